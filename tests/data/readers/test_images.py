import gzip
from dataclasses import replace

import numpy as np
import pytest
import scipy.io

from candidly.data import REGISTRY
from candidly.data.published.catalogue import File
from candidly.data.readers import images
from candidly.data.readers.images import (
    Part,
    read_cifar,
    read_idx,
    read_idx_content,
    read_svhn,
    superclass_of_each_class,
)
from tests.data import made


def unchecked(name, *files):
    """An entry whose files may have any content."""
    return replace(REGISTRY[name], files=tuple(File(file) for file in files))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("shape", [(4, 3, 2), (5,), (0,)])
def test_idx(tmp_path, shape, suffix):
    array = made.images(*shape)
    content = made.idx(array)
    path = tmp_path / f"array{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    assert read_idx_content(path, array.ndim) == content


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with , but an idx file with 1 axes of bytes begins with 00 00 08 01"),
        (b"<html>", "begins with 3c 68 74 6d"),
        (made.idx(made.images(2, 3, 4)), "begins with 00 00 08 03"),
        (bytes((0, 0, 13, 1, 0, 0, 0, 1)) + bytes(4), "begins with 00 00 0d 01"),
        (bytes((0, 0, 8, 1, 0)), "begins with 00 00 08 01"),
        (made.idx(made.images(9))[:-1], r"should hold 17 bytes, because its header says \(9,\)"),
        (made.idx(made.images(9)) + b"?", r"should hold 17 bytes, because its header says \(9,\)"),
    ],
)
def test_idx_rejects(tmp_path, content, message, suffix):
    path = tmp_path / f"labels{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(ValueError, match=message):
        read_idx_content(path, 1)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_checks_sizes_before_it_claims_memory(tmp_path, monkeypatch, suffix):
    content = bytes((0, 0, 8, 3)) + np.array([2**31, 2**20, 2**20], ">u4").tobytes() + bytes(100)
    path = tmp_path / f"images{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    read = []
    monkeypatch.setattr(images, "gunzip", lambda path, limit: read.append(limit) or content[:limit])
    with pytest.raises(ValueError, match=f"should hold {2**71 + 16} bytes"):
        read_idx_content(path, 3)
    assert read == [16] * bool(suffix), "nothing but the header"


def test_idx_truncated_gzip(tmp_path):
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(made.idx(made.images(999)))[:-9])
    with pytest.raises(ValueError, match=r"labels.gz is not a readable gzip file"):
        read_idx_content(path, 1)


def test_idx_pairs_images_with_labels(tmp_path):
    train = made.images(3, 28, 28), np.array([0, 9, 4], np.uint8)
    made.write_idx_dataset(tmp_path, train, (made.images(1, 28, 28), np.array([1, 2], np.uint8)))
    files = [file.name for file in REGISTRY["mnist"].files]
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte has 2 labels for 1 images"):
        read_idx(unchecked("mnist", *files), tuple(tmp_path / name for name in files))
    test = made.images(2, 28, 28), np.array([1, 10], np.uint8)
    made.write_idx_dataset(tmp_path, train, test)
    with pytest.raises(ValueError, match="row 1 has the label 10, but mnist has 10 classes"):
        read_idx(unchecked("mnist", *files), tuple(tmp_path / name for name in files))


@pytest.mark.parametrize("array", [np.zeros((2, 28, 28)), np.zeros(2, np.uint8)])
def test_npz_of_images(tmp_path, array):
    path = tmp_path / "kmnist-train-imgs.npz"
    np.savez(path, array)
    with pytest.raises(ValueError, match=r"arr_0 is .*; expected 3 axes of uint8"):
        read_idx(unchecked("kmnist", "a", "b", "c", "d"), (path,) * 4)


def test_cifar10(tmp_path):
    pictures, labels = made.images(4, 3, 32, 32), np.array([3, 0, 9, 3])
    (tmp_path / "batch.bin").write_bytes(made.cifar(pictures, labels))
    (part,) = read_cifar(unchecked("cifar10", "batch.bin"), (tmp_path / "batch.bin",))
    np.testing.assert_array_equal(part.images, pictures)
    np.testing.assert_array_equal(part.labels, labels)
    assert part.superclasses is None
    assert (part.images.dtype, part.labels.dtype) == (np.uint8, np.int64)


def test_cifar100(tmp_path):
    pictures, coarse, fine = made.images(3, 3, 32, 32), np.array([19, 0, 7]), np.array([99, 4, 50])
    (tmp_path / "train.bin").write_bytes(made.cifar(pictures, coarse, fine))
    (part,) = read_cifar(unchecked("cifar100", "train.bin"), (tmp_path / "train.bin",))
    np.testing.assert_array_equal(part.images, pictures)
    np.testing.assert_array_equal(part.labels, fine)
    np.testing.assert_array_equal(part.superclasses, coarse)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes, not a multiple of 3073"),
        (bytes(3072), "has 3072 bytes, not a multiple of 3073"),
        (bytes(3074), "has 3074 bytes, not a multiple of 3073"),
        (b"\x0a" + bytes(3072), "row 0 has the label 10, but cifar10 has 10 classes"),
        (b"\x80\x02}q", "is a batch of the python version, a pickle, which can run any code.*cifar-10-binary.tar.gz"),
    ],
)
def test_cifar_rejects(tmp_path, content, message):
    (tmp_path / "batch.bin").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_cifar(unchecked("cifar10", "batch.bin"), (tmp_path / "batch.bin",))


def part(labels, superclasses):
    return Part(np.zeros((len(labels), 1), np.uint8), np.array(labels), np.array(superclasses))


def test_superclasses():
    assert superclass_of_each_class([part([2, 0, 0], [5, 1, 1]), part([1], [5])], 3) == (1, 5, 5)
    assert superclass_of_each_class([Part(np.zeros((1, 1), np.uint8), np.array([0]))], 3) is None


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([part([0, 2], [1, 1])], r"class 1 has the superclasses \[\] instead of one"),
        ([part([0, 1, 2], [1, 1, 1]), part([2], [0])], r"class 2 has the superclasses \[0, 1\] instead of one"),
    ],
)
def test_each_class_has_one_superclass(parts, message):
    with pytest.raises(ValueError, match=message):
        superclass_of_each_class(parts, 3)


def test_svhn(tmp_path):
    pictures, digits = made.images(5, 3, 32, 32), np.array([0, 1, 9, 0, 5])
    made.write_svhn(tmp_path / "train.mat", pictures, digits)
    (part,) = read_svhn(unchecked("svhn", "train.mat"), (tmp_path / "train.mat",))
    np.testing.assert_array_equal(part.images, pictures)
    np.testing.assert_array_equal(part.labels, digits)
    assert part.images.flags.c_contiguous


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 2))}, r"X is \(32, 32, 3, 2\) of type float64"),
        ({"X": np.zeros((32, 32, 3), np.uint8)}, r"X is \(32, 32, 3\)"),
        ({"X": np.zeros((3, 32, 32, 2), np.uint8)}, r"X is \(3, 32, 32, 2\)"),
        ({"y": np.array([[1], [2], [3]])}, r"y is \(3, 1\)"),
        ({"y": np.array([[1], [0]])}, "expected a label from 1 to 10 per image"),
        ({"y": np.array([[1], [11]])}, "expected a label from 1 to 10 per image"),
        ({"y": None}, "has no field y; it holds X"),
    ],
)
def test_svhn_rejects(tmp_path, change, message):
    fields = {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[1], [10]])} | change
    scipy.io.savemat(tmp_path / "train.mat", {name: value for name, value in fields.items() if value is not None})
    with pytest.raises(ValueError, match=message):
        read_svhn(unchecked("svhn", "train.mat"), (tmp_path / "train.mat",))
