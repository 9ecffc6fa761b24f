"""Locks between processes, so that several sweeps can share a folder."""

import importlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from candidly.messages import warn


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# POSIX and Windows lock files in different ways; some systems, such as WebAssembly, cannot do it at all.
_fcntl, _msvcrt = _module("fcntl"), _module("msvcrt")
_PAUSE = 0.1  # seconds between two attempts on Windows, which cannot wait for a lock as long as it takes


@contextmanager
def locked(folder: Path, wait: bool) -> Iterator[bool]:
    """Hold the lock of a folder; without waiting, yield False when another process holds it.

    The system releases the lock when its holder ends, however it ends. Where the system has no locks, a warning says so
    and the folder counts as locked.

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
        mine = _acquire(handle, wait)
        yield mine
        if mine and _fcntl is not None:
            path.unlink(missing_ok=True)  # a process that waits for this file looks again whether work is left
        elif mine and _msvcrt is not None:
            _msvcrt.locking(handle, _msvcrt.LK_UNLCK, 1)
    finally:
        os.close(handle)
    if mine and _fcntl is None:
        with suppress(PermissionError):  # Windows cannot remove a file that another process has opened meanwhile
            path.unlink(missing_ok=True)


def _acquire(handle: int, wait: bool) -> bool:
    """Lock an open file; return whether that succeeded."""
    if _fcntl is not None:
        with suppress(BlockingIOError):
            _fcntl.flock(handle, _fcntl.LOCK_EX | (0 if wait else _fcntl.LOCK_NB))
            return True
        return False
    if _msvcrt is not None:
        while True:
            with suppress(PermissionError):
                _msvcrt.locking(handle, _msvcrt.LK_NBLCK, 1)
                return True
            if not wait:
                return False
            time.sleep(_PAUSE)
    warn("this system cannot lock files; do not let two sweeps use one folder at the same time")
    return True
