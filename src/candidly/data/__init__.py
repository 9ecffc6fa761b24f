"""Datasets: `load` finds, checks and reads them; `candidly.data.protocols` prepares them as in published work."""

import hashlib
import os
from pathlib import Path

import numpy as np

from candidly.data import mat
from candidly.data.dataset import Dataset

__all__ = ["Dataset", "load"]

_REPOSITORY = "https://github.com/mathefuchs/pll-with-conformal-candidate-cleaning"
_COMMIT = "0bc1124707aa902bfb4faad872b34abebea07d21"
_SOURCE = f"{_REPOSITORY}/tree/{_COMMIT}/data/realworld-datasets"
_LICENCE = "that folder's licence file is MIT, its README says academic use only"

# "git blob" is sha1 of "blob SIZE\0" + content: what git stores, and for three files the only published digest.
_DIGESTS = {
    "bird-song": ("sha256", "2170d46765a151ac80623d9a1242e0299802236e5574442bdb596bef90f50743"),
    "lost": ("sha256", "42a8cc43e05578087e7b8ca194647829ec535dc4d0a86cf47f357c5eb3146e4f"),
    "mir-flickr": ("git blob", "4e35e2ac7d16120722a2f2ec6e7baa99138ddbd0"),
    "msrc-v2": ("sha256", "948e4d443a5450308f05aa689bc82d9bcc7af699a113a6a81c40ef337a20c393"),
    "soccer": ("git blob", "3372e7350e06eba374c715e07fbd18e2555e00ec"),
    "yahoo-news": ("git blob", "c9c3c35a6562ece4dffca8e7997c4c9cdcd12354"),
}


def load(name: str, root: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a dataset by name, checking that its file is the one published.

    Parameters
    ----------
    name
        `lost`, `bird-song`, `mir-flickr`, `msrc-v2`, `soccer` or `yahoo-news`, the real-world sets, from a file
        `<name>.mat`; or `digits`, scikit-learn's 8×8 digits scaled to [0, 1], which need no file. `digits` is fully
        labelled: each row's one candidate is its true label, and larger candidate sets come from `candidly.corrupt`.
    root
        The folder to look in first. Then come `$CANDIDLY_DATA` and the user's cache (`$XDG_CACHE_HOME/candidly`, by
        default `~/.cache/candidly`). In each of them a folder `realworld` is looked in too.

    Raises
    ------
    FileNotFoundError
        When the file is in none of these places; the message lists them and says where to get it.
    ValueError
        When the name is unknown or the file differs from the published one.

    Examples
    --------
    >>> load("digits")
    Dataset('digits': 1797 rows, 64 features, 10 classes, 1.00 candidates per row)
    """
    if name == "digits":
        return _load_digits()
    if name not in _DIGESTS:
        raise ValueError(f"unknown dataset {name!r}; known are {', '.join(sorted([*_DIGESTS, 'digits']))}")
    path = _find(f"{name}.mat", root)
    _check(path, *_DIGESTS[name])
    X, S, y = mat.read(path)
    return Dataset(name, X, S, y, tuple(str(j) for j in range(S.shape[1])))


def _load_digits() -> Dataset:
    from sklearn.datasets import load_digits

    digits = load_digits()
    y = digits.target.astype(np.int64)
    return Dataset("digits", digits.data / 16, np.eye(10, dtype=bool)[y], y, tuple("0123456789"))


def _find(file_name: str, root: str | os.PathLike[str] | None) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "candidly"
    folders = [Path(folder).expanduser() for folder in (root, os.environ.get("CANDIDLY_DATA"), cache) if folder]
    places = [place / file_name for folder in folders for place in (folder, folder / "realworld")]
    for place in places:
        if place.is_file():
            return place
    looked_at = "\n".join(f"  {place}" for place in places)
    raise FileNotFoundError(
        f"{file_name} was not found; looked at\n{looked_at}\n"
        f"Get {file_name} from {_SOURCE} (mind its licence: {_LICENCE}) and put it in one of these places, "
        "or name its folder with `root` or in the environment variable CANDIDLY_DATA."
    )


def _check(path: Path, kind: str, expected: str) -> None:
    content = path.read_bytes()
    if kind == "sha256":
        found = hashlib.sha256(content).hexdigest()
    else:
        found = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ValueError(
            f"{path.name} is not the published file: {path} has {kind} {found} instead of {expected}; delete it and "
            f"get it again from {_SOURCE}, or read a file of your own with candidly.data.mat.read"
        )
