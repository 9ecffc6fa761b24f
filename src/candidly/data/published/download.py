"""Download datasets into a temporary folder, check them there, then move them. Failures leave nothing behind."""

import os
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from candidly.checks.limits import max_bytes
from candidly.data.published.catalogue import Download, Entry
from candidly.data.published.checksums import difference

_STALE = 24 * 60 * 60  # seconds after which a temporary folder is considered abandoned


def download_files(entry: Entry, target: Path) -> None:
    """Download the files of a dataset that are not in the folder `target` yet.

    Raises
    ------
    ModuleNotFoundError
        When pooch is not installed.
    FileNotFoundError
        When a server cannot be reached or does not have the file.
    ValueError
        When the download is not the published file.
    """
    try:
        import pooch  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "downloads need pooch, which is not installed; run `pip install candidly[data]`"
        ) from error
    for download in entry.downloads:
        names = [member.rpartition("/")[2] for member in download.members] or [download.name]
        if all(_is_there(name, entry, target) for name in names):
            continue
        with _temporary_folder(entry, target) as folder:
            path = _fetch(download, Path(folder), target)
            if download.members:
                _extract(path, entry, download)
            target.mkdir(exist_ok=True)
            for name in names:
                os.replace(path.with_name(name), target / name)


def _is_there(name: str, entry: Entry, target: Path) -> bool:
    """Return whether a file is there, under the name of the download or another name that the readers accept."""
    names = {name}
    for file in entry.files:
        if name in (file.name, *file.others):
            names.update((file.name, *file.others))
    return any((target / one).is_file() for one in names)


def _temporary_folder(entry: Entry, target: Path) -> tempfile.TemporaryDirectory[str]:
    """Create a folder beside the target, and remove old ones that interrupted downloads left."""
    prefix = f".{entry.name}-"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f"{prefix}*"):
            if left.is_dir() and not left.is_symlink() and left.stat().st_mtime < time.time() - _STALE:
                shutil.rmtree(left, ignore_errors=True)
        if target.exists() and not target.is_dir():
            raise NotADirectoryError(f"{target} is not a folder")
        return tempfile.TemporaryDirectory(dir=target.parent, prefix=prefix)
    except OSError as error:
        raise OSError(
            f"{target} cannot be written to ({error}); name another folder with root=, or in the environment variable "
            "XDG_CACHE_HOME"
        ) from error


def _fetch(download: Download, folder: Path, target: Path) -> Path:
    import pooch
    import requests

    # pooch does not support git blobs: those are checked below.
    known = download.digest if download.digest and download.digest.startswith("sha256:") else None
    failed = f"{download.name} could not be downloaded from {download.url} to {target}"
    by_hand = f"or get it by hand and put it in {target}"
    try:
        path = Path(
            pooch.retrieve(
                download.url,
                known_hash=known,
                fname=download.name,
                path=folder,
                downloader=_receive(download),
            )
        )
    except requests.RequestException as error:
        raise FileNotFoundError(f"{failed}: {error}; check the connection and try again, {by_hand}") from error
    except ValueError as error:
        raise ValueError(f"{failed}: it is not the published file: {error}; try again later, {by_hand}") from error
    wrong = difference(path.read_bytes(), download.size, None if known else download.digest)
    if wrong:
        raise ValueError(f"{failed}: it is not the published file: it has {wrong}; try again later, {by_hand}")
    path.chmod(0o644)  # pooch leaves it readable for the user only
    return path


def _receive(download: Download) -> Callable[[str, str, Any], None]:
    """Return a downloader for pooch that stops when a file is larger than published, or than any file may be."""
    import pooch

    most = max_bytes(0) if download.size is None else download.size

    def receive(url: str, path: str, caller: Any) -> None:
        with open(path, "wb") as file:
            pooch.HTTPDownloader(progressbar=True)(url, _Limited(file, most), caller)

    return receive


class _Limited:
    """A file that accepts at most `most` bytes."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._file = file
        self._most = most
        self.flush = file.flush

    def write(self, content: bytes) -> None:
        if self._file.tell() + len(content) > self._most:
            raise ValueError(f"it has more than {self._most} bytes")
        self._file.write(content)


def _extract(archive: Path, entry: Entry, download: Download) -> None:
    """Write the needed members of an archive beside it, and no others."""
    sizes = {file.name: file.size for file in entry.files}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in download.members:
                name = member.rpartition("/")[2]
                info = tar.getmember(member)
                source = tar.extractfile(info) if info.isfile() else None
                if source is None or info.size != sizes[name]:
                    raise ValueError(f"{member} is not a file of {sizes[name]} bytes")
                with source, open(archive.with_name(name), "xb") as file:
                    shutil.copyfileobj(source, file)
    except (tarfile.TarError, KeyError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(
            f"{download.name} from {download.url} is not the expected archive ({error}); try again later"
        ) from error
