"""Check that files are the published ones, by size and digest."""

import hashlib
from pathlib import Path

from candidly.data.published.catalogue import Entry, File
from candidly.data.published.registry import REGISTRY


def digest(content: bytes, kind: str) -> str:
    """Return the digest of a file's content, of kind `sha256` or `git-blob`.

    Examples
    --------
    >>> digest(b"hello", "git-blob")
    'git-blob:b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0'
    """
    if kind == "sha256":
        return f"sha256:{hashlib.sha256(content).hexdigest()}"
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return f"git-blob:{blob.hexdigest()}"


def difference(content: bytes, size: int | None, expected: str | None) -> str | None:
    """Return how a content differs from the expected size and digest, or None if it does not."""
    if size is not None and len(content) != size:
        return f"{len(content)} bytes instead of {size}"
    if expected is not None:
        found = digest(content, expected.partition(":")[0])
        if found != expected:
            return f"{found} instead of {expected}"
    return None


def check(content: bytes, file: File, path: Path, entry: Entry) -> None:
    """Check that the content found at `path` is the published one.

    Raises
    ------
    ValueError
        When its size or digest differs; for a file without a known digest, when it belongs to another dataset.
    """
    _refuse(difference(content, file.size, file.digest), path, entry)
    if file.digest is None:
        # The files of MNIST and of its successors have the same names and sizes.
        found = digest(content, "sha256")
        for other in REGISTRY.values():
            if any(found == known.digest for known in other.files):
                raise ValueError(
                    f"{path} belongs to {other.name}, not to {entry.name}; keep each dataset in its own folder, "
                    f"here {entry.folders[0]}"
                )


def check_download(path: Path, entry: Entry) -> None:
    """Check that a file is the publisher's download of the same name, if there is one.

    Raises
    ------
    ValueError
        When its size or digest differs.
    """
    for download in entry.downloads:
        if download.name == path.name:
            _refuse(difference(path.read_bytes(), download.size, download.digest), path, entry)


def _refuse(wrong: str | None, path: Path, entry: Entry) -> None:
    if wrong:
        again = f"from {entry.page}" + (", or with download=True," if entry.downloads else "")
        raise ValueError(
            f"{path.name} is not the published file: {path} has {wrong}; delete it and get it again {again} or, if it "
            "is your own file, load it by its path"
        )
