"""Locks between processes, so that several sweeps can share a folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has none: there, one sweep per folder
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(folder: Path, wait: bool) -> Iterator[bool]:
    """Hold the lock of a folder; without waiting, yield False when another process holds it.

    The system releases the lock when its holder ends, however it ends.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder), wait=False) as first:
    ...     with locked(Path(folder), wait=False) as second:
    ...         print(first, second)
    True False
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        yield False
    else:
        yield True
        path.unlink(missing_ok=True)  # whoever waits for the old file looks again whether there is anything left to do
    finally:
        os.close(handle)
