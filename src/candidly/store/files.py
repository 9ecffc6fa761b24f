"""Files that are replaced as a whole, JSON that is bounded and checked, and the hash of a configuration."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

MOST_JSON = 2**26  # bytes: Python's objects take many times as much


def digest(config: Mapping[str, Any]) -> str:
    """Hash a configuration: the same values give the same digits, in whatever order its keys come.

    Parameters
    ----------
    config : mapping
        JSON types only (tuples count as lists); NaN and infinity are refused.

    Returns
    -------
    str
        The first 16 hexadecimal digits of the sha256 of the canonical JSON.

    Raises
    ------
    ValueError
        If a value is no JSON value or a key is no string.

    Examples
    --------
    >>> digest({"method": "proden", "seed": 1}) == digest({"seed": 1, "method": "proden"})
    True
    >>> len(digest({}))
    16
    """
    text = to_json(config, "config", sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def replace(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that its name always stands for the whole old or the whole new content.

    Parameters
    ----------
    path : path
        In a folder that exists. A kill can leave a file ``<its stem>-<16 hex digits>.tmp`` behind, which means nothing.
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
    """Open a new file that takes the place of `path` when all is written, and is gone if anything fails."""
    path = Path(path)
    temporary = path.with_name(f"{path.stem}-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    finally:
        with suppress(OSError):  # where the folder is none, or is gone
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON file's object; an empty one for another value."""
    size = path.stat().st_size
    if size > MOST_JSON:
        raise ValueError(f"{path} has {size} bytes, {MOST_JSON} at most are read; restore it from a copy")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8, or brackets without end
        raise ValueError(f"{path} is no JSON file ({error}); restore it from a copy, or save the state again") from None
    return value if isinstance(value, dict) else {}


def to_json(value: Mapping[str, Any], what: str, **style: Any) -> str:
    try:
        text = json.dumps(dict(value), allow_nan=False, **style)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} cannot be written as JSON ({error}); keep to JSON types without NaN") from error
    _check_keys(value, what)
    return text


def _check_keys(value: Any, what: str) -> None:
    """Refuse keys that JSON would turn into strings: they would not come back as they were."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{what} has the key {key!r}; JSON keys are strings, pass {str(key)!r}")
            _check_keys(item, f"{what}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _check_keys(item, f"{what}[{i}]")


def sync_folder(folder: Path) -> None:
    """Make renames in the folder durable, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
