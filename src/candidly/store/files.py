"""Atomic replacement of files, reading JSON with a size limit, and checksums of JSON."""

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from candidly.store import lock

MOST_JSON = 2**28
"""Largest JSON file that is read, in bytes; the Python objects take many times as much memory."""


def digest(config: Mapping[str, Any]) -> str:
    """Return a hash of a configuration that does not depend on the order of its keys.

    Parameters
    ----------
    config : mapping
        JSON types only (tuples count as lists), without NaN and infinity.

    Returns
    -------
    str
        The first 16 hexadecimal digits of the sha256 of the canonical JSON.

    Raises
    ------
    ValueError
        If a value is not a JSON value or a key is not a string.

    Examples
    --------
    >>> digest({"method": "proden", "seed": 1}) == digest({"seed": 1, "method": "proden"})
    True
    >>> len(digest({}))
    16
    """
    return checksum(config, "config")[:16]


def checksum(value: Mapping[str, Any], what: str) -> str:
    """Return the sha256 of a mapping's canonical JSON; raise ValueError, calling it `what`, if it is not JSON."""
    return hashlib.sha256(to_json(value, what, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def replace(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace a file atomically: at any time it has all of its old or all of its new content.

    Parameters
    ----------
    path : path
        In an existing folder. A killed process can leave a file ``<stem>-<16 hex digits>.tmp``, which the next
        replacement of `path` removes on POSIX systems.
    data : bytes
        The content.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     replace(Path(folder) / "note.txt", b"done")
    ...     (Path(folder) / "note.txt").read_text()
    'done'
    """
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a new file that replaces `path` when the ``with`` block ends, and is deleted if anything fails."""
    path = Path(path)
    if path.exists() and not path.is_file():  # a pipe or a device would be replaced by a file
        raise OSError(f"{path} is not a regular file; name another file")
    temporary, file = _open_temporary(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name != "posix":
                file.close()  # Windows does not rename open files
            if path.exists():
                shutil.copymode(path, temporary)
            os.replace(temporary, path)
    finally:
        with suppress(OSError):  # the folder is not a folder, or was deleted
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    _remove_abandoned(path)


def _open_temporary(path: Path) -> tuple[Path, IO[bytes]]:
    """Create a file beside `path`. Its lock, held until it has its final name, tells it from abandoned ones."""
    while True:
        temporary = path.with_name(f"{path.stem}-{secrets.token_hex(8)}.tmp")
        try:
            file = open(temporary, "xb")  # noqa: SIM115 - the caller closes it
        except FileNotFoundError:
            folder = path.absolute().parent
            raise FileNotFoundError(f"the folder {folder} does not exist; make it first, or name another") from None
        lock.claim(file.fileno(), wait=True)
        if temporary.exists():  # another writer may have taken it for abandoned before it was locked
            return temporary, file
        file.close()


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files that killed writers of `path` left: those that nobody has locked."""
    pattern = re.compile(re.escape(path.stem) + r"-[0-9a-f]{16}\.tmp")
    with suppress(OSError):  # the folder cannot be listed
        for name in os.listdir(path.parent):
            if pattern.fullmatch(name):
                with suppress(OSError):  # another user's, or removed in the meantime
                    _remove_unless_locked(path.with_name(name))


def _remove_unless_locked(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        if lock.claim(handle, wait=False):
            path.unlink()
    finally:
        os.close(handle)


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one if the file holds another value."""
    return parse_json(read_limited(path, MOST_JSON), path)


def read_limited(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the content of a file; raise OSError unless it is a regular file, ValueError if it is larger than `most`.

    A named pipe or a device is refused at once: it could block, or never end.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist; check the path") from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is not a file; check the name")
        if found.st_size > most:
            raise ValueError(f"{path} has {found.st_size} bytes, more than the limit of {most}; restore it from a copy")
        with open(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


def read_text(path: str | os.PathLike[str], most: int = 2**24) -> str:
    """Return the content of a text file, in UTF-8, that a user wrote; raise as `read_limited`, and for other encodings.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write("\ufeffseeds = 3".encode()), file.flush()
    ...     read_text(file.name)
    'seeds = 3'
    """
    try:
        return read_limited(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start} is wrong); save it as UTF-8") from None


def parse_json(text: bytes, path: Path) -> dict[str, Any]:
    """Return the object in the text of a JSON file; an empty one if the text is another value."""
    try:
        value = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8, or too many nested brackets
        raise ValueError(
            f"{path} is not a JSON file ({error}); restore it from a copy, or save the state again"
        ) from None
    return value if isinstance(value, dict) else {}


def to_json(value: Mapping[str, Any], what: str, **style: Any) -> str:
    """Return a mapping as JSON text; raise ValueError, calling it `what`, if it is not JSON."""
    try:
        text = json.dumps(dict(value), allow_nan=False, **style)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} cannot be written as JSON ({error}); use JSON types only, without NaN") from error
    _check_keys(value, what)
    return text


def _check_keys(value: Any, what: str) -> None:
    """Raise ValueError for keys that are not strings: JSON would convert them."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{what} has the key {key!r}; JSON keys are strings, pass {str(key)!r}")
            _check_keys(item, f"{what}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _check_keys(item, f"{what}[{i}]")


def sync_folder(folder: Path) -> None:
    """Make renames in the folder survive a power failure.

    Only POSIX systems can sync a folder. Elsewhere, as on Windows, this does nothing: a power failure may undo the last
    replacement, but files are still complete.
    """
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
