"""Datasets: `load` reads published ones and files, `corrupt` makes candidate sets, `PROTOCOLS` prepare and split."""

import os
from collections.abc import Callable
from pathlib import Path

from candidly.checks import arguments
from candidly.data import corrupt
from candidly.data.dataset import Dataset
from candidly.data.protocols import PROTOCOLS, Protocol
from candidly.data.published.catalogue import LicenceNotice
from candidly.data.published.loading import load_published
from candidly.data.published.registry import REGISTRY
from candidly.data.readers.tables import read_table
from candidly.data.readers.user_files import read_mat, read_npz
from candidly.messages import did_you_mean
from candidly.tables.files import SUFFIXES, suffix_of

__all__ = ["PROTOCOLS", "REGISTRY", "Dataset", "LicenceNotice", "Protocol", "corrupt", "load", "read_table"]

_READERS: dict[str, Callable[[Path], Dataset]] = {
    ".mat": read_mat,
    ".npz": read_npz,
    **dict.fromkeys(SUFFIXES, read_table),
}


def load(
    name: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, *, download: bool = False
) -> Dataset:
    """Load a published dataset by name, or one of your own files by its path.

    Parameters
    ----------
    name
        A key of `REGISTRY`, or a path.

        - `bird-song`, `lost`, `mir-flickr`, `msrc-v2`, `soccer`, `yahoo-news`: real-world candidate sets, from a file
          `<name>.mat`.
        - `mnist`, `fmnist`, `kmnist` (idx files, plain or `.gz`; KMNIST also `.npz`), `svhn` (`.mat`), `cifar10` and
          `cifar100` (binary version): images as bytes, fully labelled, training rows first. Plain and `.npz` files of
          KMNIST are checked by size and shape only, because its publisher gives digests of the `.gz` files.
        - `cifar10n`: CIFAR-10 with the labels of three people as the candidates of each training row. In 2 % of the
          rows the true class is not among them.
        - `digits`: the 8×8 digits of scikit-learn, scaled to [0, 1], fully labelled; they need no file.
        - The path of a `.mat`, `.npz`, `.csv`, `.tsv`, `.parquet`, `.arrow` or `.feather` file, also `.csv.gz` and
          `.tsv.gz`: a path object, or a string that ends in one of these suffixes. Tables are read by `read_table`,
          which has options. An `.npz` file has arrays `X`, `S` and optionally `y`, `classes`, `groups` and
          `num_train`.

        In a fully labelled dataset each row's only candidate is its true label; `candidly.corrupt` makes larger
        candidate sets.
    root
        The folder to search first, before `$CANDIDLY_DATA` and the user's cache (`$XDG_CACHE_HOME/candidly`, by default
        `~/.cache/candidly`). In each of them the dataset's folder (`realworld`, `mnist`, `fashion-mnist`,
        `cifar-10-batches-bin`, …) is searched first. Not used for a path.
    download
        Download missing files into `root`, or else into the user's cache. Needs `pip install candidly[data]`.

    Raises
    ------
    FileNotFoundError
        When a file is missing (the message lists the folders that were searched, and where to get the file), or cannot
        be downloaded.
    ValueError
        When the name is unknown, or a file is damaged or differs from the published one.

    Warns
    -----
    LicenceNotice
        With licence and citation, when something is downloaded; for `cifar10n` always.
    UserWarning
        When true labels in your own file are not among the candidates of their rows.

    Examples
    --------
    >>> load("digits")
    Dataset('digits': 1797 rows, 64 features, 10 classes, 1.00 candidates per row)
    """
    path = arguments.path("name", name)
    root = None if root is None or root == "" else arguments.path("root", root)
    download = arguments.flag("download", download)
    if not isinstance(name, str) or suffix_of(path) in _READERS:
        return _load_path(path)
    if name not in REGISTRY:
        raise ValueError(
            f"unknown dataset {name!r}{did_you_mean(name, REGISTRY)}; known are {', '.join(sorted(REGISTRY))}, and "
            f"your own files ({', '.join(_READERS)})"
        )
    return load_published(name, root, download)


def _load_path(path: Path) -> Dataset:
    reader = _READERS.get(suffix_of(path))
    if reader is None:
        raise ValueError(
            f"{path} has the suffix {suffix_of(path)!r}; files that can be loaded are {', '.join(_READERS)}"
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is not a file; check the path")
    return reader(path)
