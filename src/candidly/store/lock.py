"""Locks between processes and threads, which the system releases when their holder ends."""

import errno
import importlib
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["claim", "locked"]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# POSIX and Windows lock files in different ways; some systems, such as WebAssembly, cannot do it at all.
_fcntl, _msvcrt = _module("fcntl"), _module("msvcrt")
_PAUSE = 0.1  # seconds between two attempts on Windows, which cannot wait for a lock as long as it takes
_NOT_SUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}  # by the file system


@contextmanager
def locked(path: Path, wait: bool) -> Iterator[bool]:
    """Hold the lock of a file, which is created, with its folder, and removed afterwards.

    Parameters
    ----------
    path : Path
        The lock file. If its holder is killed, the file remains, but does not count as locked.
    wait : bool
        Whether to wait while another process or thread holds the lock, instead of yielding False.

    Yields
    ------
    bool
        Whether the lock is held. Where files cannot be locked, a warning says so and the result is True.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder, "lock"), wait=False) as first:
    ...     with locked(Path(folder, "lock"), wait=False) as second:
    ...         print(first, second)
    True False
    """
    handle = _open_locked(path, wait)
    if handle is None:
        yield False
        return
    try:
        yield True
    finally:
        if _fcntl is not None:
            path.unlink(missing_ok=True)  # before the lock is released; who waits for it then opens a new file
            os.close(handle)
        else:
            if _msvcrt is not None:
                _msvcrt.locking(handle, _msvcrt.LK_UNLCK, 1)
            os.close(handle)
            with suppress(PermissionError):  # Windows cannot remove a file that another process has opened meanwhile
                path.unlink(missing_ok=True)


def claim(handle: int, wait: bool) -> bool:
    """Lock an open file until it is closed; return False if that is impossible or, without waiting, it is locked.

    Only POSIX systems can do this: on Windows a locked file cannot be renamed.
    """
    if _fcntl is None:
        return False
    with suppress(OSError):
        _fcntl.flock(handle, _fcntl.LOCK_EX | (0 if wait else _fcntl.LOCK_NB))
        return True
    return False


def _open_locked(path: Path, wait: bool) -> int | None:
    """Return a handle of the locked file; None if another holder has locked it."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"the folder {path.parent} cannot be made ({error.strerror}); choose another one"
            raise OSError(error.errno, reason) from error
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            mine = _acquire(handle, wait)
            if mine and _is_at(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if not mine:
            return None


def _is_at(handle: int, path: Path) -> bool:
    """Return whether the open file is still at the path: the previous holder of its lock removed it otherwise."""
    if _fcntl is None:
        return True
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(path))
    return False


def _acquire(handle: int, wait: bool) -> bool:
    """Lock an open file; return whether that succeeded."""
    if _fcntl is not None:
        try:
            _fcntl.flock(handle, _fcntl.LOCK_EX | (0 if wait else _fcntl.LOCK_NB))
            return True
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
    elif _msvcrt is not None:
        while True:
            with suppress(PermissionError):
                _msvcrt.locking(handle, _msvcrt.LK_NBLCK, 1)
                return True
            if not wait:
                return False
            time.sleep(_PAUSE)
    warnings.warn("files cannot be locked here; do not let two processes write to one folder", stacklevel=5)
    return True
