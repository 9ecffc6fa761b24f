"""Small datasets, and files of them as their publishers write them."""

import gzip
import hashlib
from dataclasses import replace

import numpy as np
import scipy.io

from candidly.data import REGISTRY, Dataset
from candidly.data.published.catalogue import File


def toy(seed=0, n=300, num_classes=6):
    """A dataset with rare classes, a class that is never true, and constant features."""
    generator = np.random.default_rng(seed)
    y = generator.choice(num_classes, n, p=[0.5, 0.3, 0.19, 0.006, 0.004, 0.0])
    S = generator.random((n, num_classes)) < [0.1, 0.4, 0.2, 0.5, 0.05, 0.3]
    S[np.arange(n), y] = True
    X = generator.normal(size=(n, 5)) * [1, 10, 0, 1e-13, 1] + [0, 5, 3, 0, -2]
    return Dataset("toy", X, S, y, tuple("abcdef"))


def fields_of(dataset):
    target = np.eye(len(dataset.classes))[:, dataset.y]
    return {"data": dataset.X, "partial_target": dataset.S.T.astype(float), "target": target}


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def git_blob(content):
    return f"git-blob:{hashlib.sha1(b'blob ' + str(len(content)).encode() + bytes(1) + content).hexdigest()}"


def publish(monkeypatch, path, digest=sha256):
    """Make the file at `path` the published one for its name."""
    content = path.read_bytes()
    change(monkeypatch, path.stem, files=(File(path.name, len(content), digest(content)),))


def change(monkeypatch, name, **facts):
    monkeypatch.setitem(REGISTRY, name, replace(REGISTRY[name], **facts))


def shrink(monkeypatch, name, num_train, num_test):
    """Let a dataset of images have fewer of them, with whatever content."""
    entry = REGISTRY[name]
    files = tuple(replace(file, size=None, digest=None) for file in entry.files)
    downloads = tuple(replace(download, size=None, digest=None) for download in entry.downloads)
    shape = (num_train + num_test, *entry.shape[1:])
    change(monkeypatch, name, files=files, downloads=downloads, shape=shape, num_train=num_train)


def images(n, *shape, seed=0):
    return np.random.default_rng(seed).integers(256, size=(n, *shape), dtype=np.uint8)


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def write_idx_dataset(folder, train, test, suffix=""):
    """Write MNIST's four files; `train` and `test` are pairs of images and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, (pictures, labels) in (("train", train), ("t10k", test)):
        for name, array in ((f"{prefix}-images-idx3-ubyte", pictures), (f"{prefix}-labels-idx1-ubyte", labels)):
            content = idx(array)
            (folder / f"{name}{suffix}").write_bytes(gzip.compress(content) if suffix else content)


def cifar(pictures, *labels):
    """The records of the binary version: the labels, then the pixels."""
    columns = [np.asarray(each, np.uint8)[:, None] for each in labels]
    return np.hstack([*columns, pictures.reshape(len(pictures), -1)]).tobytes()


def write_svhn(path, pictures, digits):
    labels = np.where(np.asarray(digits) == 0, 10, digits).astype(np.uint8)[:, None]
    scipy.io.savemat(path, {"X": pictures.transpose(2, 3, 1, 0), "y": labels}, do_compression=True)
