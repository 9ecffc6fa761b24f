"""Load published datasets: find or download them, check and read them."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from candidly.candidates.bags import find_bags
from candidly.data.dataset import Dataset
from candidly.data.published import locations
from candidly.data.published.catalogue import Entry, LicenceNotice
from candidly.data.published.checksums import check
from candidly.data.published.download import download_files
from candidly.data.published.registry import REGISTRY
from candidly.data.readers import images, mat, npz
from candidly.messages import warn

_IMAGE_READERS: dict[str, Callable[[Entry, tuple[Path, ...]], list[images.Part]]] = {
    "idx": images.read_idx,
    "cifar": images.read_cifar,
    "svhn": images.read_svhn,
}

# sha256 of the annotators' labels, sorted in each row: which annotator gave which label does not matter.
_CIFAR10N = "17389dec2890c7f702e7005328fa32adfb2364ec647eca7015d3916e48063727"


def load_published(name: str, root: locations.Root, download: bool) -> Dataset:
    """Load a dataset of the registry, as `candidly.data.load` documents.

    Examples
    --------
    >>> load_published("digits", None, False).S.shape
    (1797, 10)
    """
    entry = REGISTRY[name]
    if entry.format == "digits":
        return _load_digits(entry)
    if entry.format == "cifar10n":
        warn(LicenceNotice(entry.terms))
        return _read_cifar10n(entry, _paths(entry, root, download)[0], load_published("cifar10", root, download))
    paths = _paths(entry, root, download)
    if entry.format == "mat":
        return _read_mat(entry, paths[0])
    return _assemble(entry, _IMAGE_READERS[entry.format](entry, paths))


def _paths(entry: Entry, root: locations.Root, download: bool) -> tuple[Path, ...]:
    paths = locations.find(entry, root)
    if paths is None and download and entry.downloads:
        warn(LicenceNotice(entry.terms))
        download_files(entry, locations.target(entry, root))
        paths = locations.find(entry, root)
    if paths is None:
        raise locations.not_found(entry, root)
    return paths


def _load_digits(entry: Entry) -> Dataset:
    from sklearn.datasets import load_digits

    digits = load_digits()
    y = digits.target.astype(np.int64)
    return Dataset(entry.name, digits.data / 16, _one_hot(y, 10), y, entry.classes)


def _read_mat(entry: Entry, path: Path) -> Dataset:
    content = path.read_bytes()
    check(content, entry.files[0], path, entry)
    X, S, y = mat.parse(content, path, any_mark=True)
    groups = find_bags(S).astype(np.int64) if entry.bags else None
    return Dataset(entry.name, X, S, y, tuple(str(j) for j in range(S.shape[1])), groups=groups)


def _assemble(entry: Entry, parts: list[images.Part]) -> Dataset:
    """Concatenate the parts; the last one holds the test rows."""
    X = np.concatenate([part.images for part in parts])
    y = np.concatenate([part.labels for part in parts])
    num_train = len(y) - len(parts[-1].labels)
    if X.shape != entry.shape or num_train != entry.num_train:
        raise ValueError(
            f"the files of {entry.name} hold images {X.shape}, {num_train} of them to train, instead of {entry.shape} "
            f"and {entry.num_train}; get them again from {entry.page}"
        )
    superclasses = images.superclass_of_each_class(parts, entry.num_classes)
    return Dataset(entry.name, X, _one_hot(y, entry.num_classes), y, entry.classes, num_train, superclasses)


def _one_hot(y: NDArray[np.int64], num_classes: int) -> NDArray[np.bool_]:
    return np.eye(num_classes, dtype=bool)[y]


def _read_cifar10n(entry: Entry, path: Path, cifar10: Dataset) -> Dataset:
    """Return CIFAR-10 with the labels of three annotators as the candidates of its training rows."""
    n = cifar10.num_train
    assert n is not None, "CIFAR-10 is split"
    assert cifar10.y is not None, "CIFAR-10 has true labels"
    arrays = npz.read(path, ["annotator_labels", "clean_label"])
    for array_name, shape in (("annotator_labels", (n, 3)), ("clean_label", (n,))):
        array = arrays[array_name]
        if array.shape != shape or array.dtype.kind not in "iu" or array.min() < 0 or array.max() > 9:
            raise ValueError(
                f"{path}: {array_name} is {array.shape} of type {array.dtype}; expected {shape} with labels 0 to 9"
            )
    differ = np.flatnonzero(arrays["clean_label"] != cifar10.y[:n])
    if differ.size:
        raise ValueError(
            f"{path}: clean_label differs from CIFAR-10's label in {differ.size} rows, first in row {differ[0]}; "
            "use the row order of CIFAR-10's binary files"
        )
    labels = arrays["annotator_labels"].astype(np.uint8)
    if hashlib.sha256(np.sort(labels, axis=1).tobytes()).hexdigest() != _CIFAR10N:
        raise ValueError(
            f"{path}: annotator_labels are not the published ones; make it again from random_label1, random_label2 "
            f"and random_label3 of {entry.page}"
        )
    S = cifar10.S.copy()
    S[:n] = False
    S[np.arange(n)[:, None], labels] = True
    return replace(cifar10, name=entry.name, S=S)
