"""The marker ``done`` of a finished run: the checksums of its files, written last."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from candidly import store

FILES = ("predictions.parquet", "summary.json")
NAME = "done"


def write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write the files of a run, then the marker. Until the marker is there, the run is not finished."""
    (folder / NAME).unlink(missing_ok=True)  # it would not match
    for name in FILES:
        store.replace(folder / name, contents[name])
    store.replace(folder / NAME, "".join(_line(name, contents[name]) for name in FILES).encode())


def exists(folder: Path) -> bool:
    """Return whether the run was finished, even if its files were changed since."""
    return (folder / NAME).is_file()


def is_intact(folder: Path) -> bool:
    """Return whether the run is finished and all its files are as they were written."""
    with suppress(FileNotFoundError):
        expected = "".join(_line(name, (folder / name).read_bytes()) for name in FILES)
        return (folder / NAME).read_bytes() == expected.encode()
    return False


def check(path: Path) -> None:
    """Raise ValueError if a marker is beside a file of a run, but does not hold its checksum."""
    marker = path.with_name(NAME)
    if marker.is_file() and _line(path.name, path.read_bytes()).encode() not in marker.read_bytes():
        raise ValueError(
            f"{path} or {marker} is damaged or was changed: the checksums differ; remove the folder and run it again"
        )


def _line(name: str, content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()}  {name}\n"
