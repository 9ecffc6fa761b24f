"""Datasets: `load` finds, checks and reads them; `candidly.data.protocols` prepares them as in published work."""

import difflib
import os
from collections.abc import Callable
from pathlib import Path

from candidly.data.dataset import Dataset
from candidly.data.published.catalogue import LicenceNotice
from candidly.data.published.loading import load_published
from candidly.data.published.registry import REGISTRY
from candidly.data.readers.tables import read_table
from candidly.data.readers.user_files import read_mat, read_npz
from candidly.tables.files import SUFFIXES, suffix_of

__all__ = ["REGISTRY", "Dataset", "LicenceNotice", "load", "read_table"]

_READERS: dict[str, Callable[[Path], Dataset]] = {
    ".mat": read_mat,
    ".npz": read_npz,
    **dict.fromkeys(SUFFIXES, read_table),
}


def load(
    name: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, *, download: bool = False
) -> Dataset:
    """Load a published dataset by name, checking that its files are the published ones, or a file of your own.

    Parameters
    ----------
    name
        A key of `REGISTRY`, or a path.

        - `bird-song`, `lost`, `mir-flickr`, `msrc-v2`, `soccer`, `yahoo-news`: real-world candidate sets, from a file
          `<name>.mat`.
        - `mnist`, `fmnist`, `kmnist` (idx files, plain or `.gz`; KMNIST also `.npz`), `svhn` (`.mat`), `cifar10` and
          `cifar100` (binary version): images of bytes, fully labelled, training rows first. Of KMNIST, plain and `.npz`
          files are checked by size and shape only, because its publisher gives digests of the `.gz` files.
        - `cifar10n`: CIFAR-10, where the candidates of a training row are what three people took it for. In 2 % of
          the rows the true class is not among them.
        - `digits`: scikit-learn's 8×8 digits scaled to [0, 1], fully labelled; they need no file.
        - A path (a string that ends in one of these, or a path object) of a `.mat`, `.npz`, `.parquet`, `.csv` or
          `.tsv` file. The last three are read by `read_table`, which takes options; `.csv.gz` and `.tsv.gz` will do,
          too. An `.npz` file has arrays `X`, `S` and optionally `y`, `classes`.

        Where a dataset is fully labelled, each row's one candidate is its true label; larger candidate sets come from
        `candidly.corrupt`.
    root
        The folder to look in first. Then come `$CANDIDLY_DATA` and the user's cache (`$XDG_CACHE_HOME/candidly`, by
        default `~/.cache/candidly`). In each of them the dataset's own folder (`realworld`, `mnist`, `fashion-mnist`,
        `cifar-10-batches-bin`, …) is looked in first. Not used for a path.
    download
        Download what is missing, into `root` or else the user's cache. Needs `pip install candidly[data]`.

    Raises
    ------
    FileNotFoundError
        When a file is missing (the message says where it was looked for and where to get it), or an address is.
    ValueError
        When the name is unknown, or a file is damaged or differs from the published one.

    Warns
    -----
    LicenceNotice
        With licence and citation, when something is downloaded; for `cifar10n` always.
    UserWarning
        When in a file of your own true labels are not among the candidates of their rows.

    Examples
    --------
    >>> load("digits")
    Dataset('digits': 1797 rows, 64 features, 10 classes, 1.00 candidates per row)
    """
    if not isinstance(name, str | os.PathLike):
        raise ValueError(f"name is {name!r}; pass the name of a dataset or the path of a file")
    path = Path(name).expanduser()
    if not isinstance(name, str) or suffix_of(path) in _READERS:
        return _load_path(path)
    if name not in REGISTRY:
        close = difflib.get_close_matches(name.lower(), REGISTRY, n=1)
        raise ValueError(
            f"unknown dataset {name!r}; {f'did you mean {close[0]!r}? ' if close else ''}known are "
            f"{', '.join(sorted(REGISTRY))}, and files of your own ({', '.join(_READERS)})"
        )
    return load_published(name, root, download)


def _load_path(path: Path) -> Dataset:
    reader = _READERS.get(suffix_of(path))
    if reader is None:
        raise ValueError(
            f"{path} has the suffix {suffix_of(path)!r}; files that can be loaded are {', '.join(_READERS)}"
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is no file; check the path")
    return reader(path)
