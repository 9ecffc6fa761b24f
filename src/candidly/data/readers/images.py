"""Readers of the formats of published image datasets. Images stay bytes."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from candidly.checks.limits import check_bytes
from candidly.data.published.catalogue import Entry, File
from candidly.data.published.checksums import check, check_download
from candidly.data.readers import mat, npz
from candidly.data.readers.compressed import MAX_EXPANSION, gunzip

Bytes = NDArray[np.uint8]

_PIXELS = 3 * 32 * 32


class Part(NamedTuple):
    """The images of one or two files, with their labels and, if there are any, their superclasses."""

    images: Bytes
    labels: NDArray[np.int64]
    superclasses: NDArray[np.int64] | None = None


def read_idx(entry: Entry, paths: tuple[Path, ...]) -> list[Part]:
    """Read a dataset in MNIST's layout: images and labels of the training rows, then of the test rows."""
    num_axes = (3, 1, 3, 1)
    arrays = [
        _read_array(file, path, entry, ndim) for file, path, ndim in zip(entry.files, paths, num_axes, strict=True)
    ]
    train_images, train_labels, test_images, test_labels = arrays
    return [_part(train_images, train_labels, paths[1], entry), _part(test_images, test_labels, paths[3], entry)]


def read_cifar(entry: Entry, paths: tuple[Path, ...]) -> list[Part]:
    """Read the binary version of CIFAR-10 or CIFAR-100; records of the latter begin with a superclass."""
    parts = []
    for file, path in zip(entry.files, paths, strict=True):
        content = path.read_bytes()
        if content[:1] == b"\x80":
            raise ValueError(
                f"{path} is a batch of the python version, a pickle, which can run any code when it is read; get the "
                f"binary version, {entry.downloads[0].url}"
            )
        num_labels = 2 if entry.num_classes == 100 else 1
        if not content or len(content) % (num_labels + _PIXELS):
            raise ValueError(
                f"{path} has {len(content)} bytes, not a multiple of {num_labels + _PIXELS}; it is truncated or not "
                f"of the binary version, get it again from {entry.downloads[0].url}"
            )
        check(content, file, path, entry)
        records = np.frombuffer(content, np.uint8).reshape(-1, num_labels + _PIXELS)
        images = records[:, num_labels:].reshape(-1, 3, 32, 32)
        part = _part(images, records[:, num_labels - 1], path, entry)
        if num_labels == 2:
            part = part._replace(superclasses=records[:, 0].astype(np.int64))
        parts.append(part)
    return parts


def read_svhn(entry: Entry, paths: tuple[Path, ...]) -> list[Part]:
    """Read SVHN's cropped digits, in which the label 10 is the digit 0."""
    parts = []
    for file, path in zip(entry.files, paths, strict=True):
        content = path.read_bytes()
        check(content, file, path, entry)
        raw = mat.fields(content, path, ("X", "y"))
        images, labels = np.asarray(raw["X"]), np.asarray(raw["y"])
        if images.dtype != np.uint8 or images.shape[:3] != (32, 32, 3) or images.ndim != 4:
            raise ValueError(f"{path}: X is {images.shape} of type {images.dtype}; expected (32, 32, 3, n) of uint8")
        if labels.dtype.kind not in "iu" or labels.size != images.shape[3] or labels.min() < 1 or labels.max() > 10:
            raise ValueError(
                f"{path}: y is {labels.shape} of type {labels.dtype}; expected a label from 1 to 10 per image"
            )
        parts.append(_part(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.ravel() % 10, path, entry))
    return parts


def superclass_of_each_class(parts: list[Part], num_classes: int) -> tuple[int, ...] | None:
    """Return the superclass of each class, if the images have superclasses.

    Raises
    ------
    ValueError
        When a class has none, or more than one.
    """
    pairs: set[tuple[int, int]] = set()
    for part in parts:
        if part.superclasses is not None:
            pairs.update(_pairs(part.labels, part.superclasses))
    if not pairs:
        return None
    for j in range(num_classes):
        found = sorted(superclass for label, superclass in pairs if label == j)
        if len(found) != 1:
            raise ValueError(
                f"class {j} has the superclasses {found} instead of one; the files are damaged, get them again"
            )
    return tuple(superclass for _, superclass in sorted(pairs))


def _pairs(labels: NDArray[np.int64], superclasses: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the different pairs of label and superclass."""
    pairs = np.unique(np.stack([labels, superclasses], 1), axis=0)
    return [(int(label), int(superclass)) for label, superclass in pairs]


def _part(images: Bytes, labels: NDArray[np.integer], path: Path, entry: Entry) -> Part:
    if len(images) != len(labels):
        raise ValueError(f"{path} has {len(labels)} labels for {len(images)} images; get both files again")
    if labels.max(initial=0) >= entry.num_classes:
        row = int(np.argmax(labels >= entry.num_classes))
        raise ValueError(
            f"{path}: row {row} has the label {labels[row]}, but {entry.name} has {entry.num_classes} classes; "
            "get the file again"
        )
    return Part(images, labels.astype(np.int64))


def _read_array(file: File, path: Path, entry: Entry, ndim: int) -> Bytes:
    if path.suffix == ".npz":
        array = npz.read(path, ["arr_0"])["arr_0"]
        if array.dtype != np.uint8 or array.ndim != ndim:
            raise ValueError(f"{path}: arr_0 is {array.shape} of type {array.dtype}; expected {ndim} axes of uint8")
        # The registry has the digest of the idx file, so check the same content.
        check(_idx_head(array.shape) + array.tobytes(), file, path, entry)
        return array
    content = read_idx_content(path, ndim)
    check(content, file, path, entry)
    if file.digest is None:
        check_download(path, entry)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * ndim).reshape(_idx_shape(content, path, ndim))


def read_idx_content(path: Path, ndim: int) -> bytes:
    """Return the content of an idx file of bytes, plain or compressed.

    Raises
    ------
    ValueError
        When it is not such a file, or its size differs from the size in its header. This is checked before memory is
        allocated.
    """
    on_disk = path.stat().st_size
    compressed = path.suffix == ".gz"
    with open(path, "rb") as stream:
        head = gunzip(path, 4 + 4 * ndim) if compressed else stream.read(4 + 4 * ndim)
    shape = _idx_shape(head, path, ndim)
    size = 4 + 4 * ndim + math.prod(shape)
    content = b""
    if compressed and size <= MAX_EXPANSION * on_disk:
        check_bytes(str(path), size, on_disk)
        content = gunzip(path, size + 1)
    elif not compressed and size == on_disk:
        content = path.read_bytes()
    if len(content) != size:
        raise ValueError(
            f"{path} should hold {size} bytes, because its header says {shape}, but its {on_disk} bytes "
            f"{'expand to a different number' if compressed else 'are a different number'}; delete it and get it again"
        )
    return content


def _idx_head(shape: tuple[int, ...]) -> bytes:
    return bytes((0, 0, 8, len(shape))) + np.array(shape, ">u4").tobytes()


def _idx_shape(content: bytes, path: Path, ndim: int) -> tuple[int, ...]:
    if content[:4] != _idx_head((0,) * ndim)[:4] or len(content) < 4 + 4 * ndim:
        raise ValueError(
            f"{path} begins with {content[:4].hex(' ')}, but an idx file with {ndim} axes of bytes begins with "
            f"00 00 08 {ndim:02x}; delete it and get it again"
        )
    return tuple(int(length) for length in np.frombuffer(content, ">u4", ndim, offset=4))
