"""Whole datasets, small ones made here and, where they are found, the published ones."""

import gzip
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from candidly.data import REGISTRY, LicenceNotice, load
from candidly.data.published import loading as published
from candidly.data.published.checksums import digest
from tests.data import made


def assert_fully_labelled(dataset, pictures, labels, num_train):
    np.testing.assert_array_equal(dataset.X, pictures)
    np.testing.assert_array_equal(dataset.y, labels)
    np.testing.assert_array_equal(dataset.S, np.eye(len(dataset.classes), dtype=bool)[labels])
    assert (dataset.X.dtype, dataset.y.dtype) == (np.uint8, np.int64)
    assert dataset.num_train == num_train
    assert dataset.classes == REGISTRY[dataset.name].classes


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("name", ["mnist", "fmnist", "kmnist"])
def test_idx(places, monkeypatch, name, suffix):
    made.shrink(monkeypatch, name, 4, 2)
    pictures, labels = made.images(6, 28, 28), np.array([0, 9, 3, 3, 1, 2], np.uint8)
    train, test = (pictures[:4], labels[:4]), (pictures[4:], labels[4:])
    made.write_idx_dataset(places[0] / REGISTRY[name].folders[0], train, test, suffix)
    assert_fully_labelled(load(name, root=places[0]), pictures, labels, 4)


def test_kmnist_as_npz(places, monkeypatch):
    made.shrink(monkeypatch, "kmnist", 2, 1)
    pictures, labels = made.images(3, 28, 28), np.array([0, 9, 3], np.uint8)
    folder = places[0] / "kmnist"
    folder.mkdir(parents=True)
    for part, rows in (("train", slice(0, 2)), ("test", slice(2, 3))):
        np.savez_compressed(folder / f"kmnist-{part}-imgs.npz", pictures[rows])
        np.savez_compressed(folder / f"kmnist-{part}-labels.npz", labels[rows])
    dataset = load("kmnist", root=places[0])
    assert_fully_labelled(dataset, pictures, labels, 2)
    assert dataset.classes[3] == "tsu"


def test_kmnist_placed_by_hand(places, monkeypatch):
    made.shrink(monkeypatch, "kmnist", 4, 2)
    pictures, labels = made.images(6, 28, 28), np.array([0, 9, 3, 3, 1, 2], np.uint8)
    folder = places[0] / "kmnist"
    made.write_idx_dataset(folder, (pictures[:4], labels[:4]), (pictures[4:], labels[4:]), ".gz")
    downloads = REGISTRY["kmnist"].downloads
    right = [(folder / download.name).read_bytes() for download in downloads]
    known = tuple(
        replace(download, size=len(content), digest=made.sha256(content))
        for download, content in zip(downloads, right, strict=True)
    )
    made.change(monkeypatch, "kmnist", downloads=known)
    assert len(load("kmnist", root=places[0]).X) == 6
    (folder / downloads[1].name).write_bytes(gzip.compress(made.idx(labels[1:5])))
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte.gz is not the published file.*get it again"):
        load("kmnist", root=places[0])


@pytest.mark.parametrize("suffix", ["", ".npz"])
def test_files_of_another_dataset(places, monkeypatch, suffix):
    pictures, labels = made.images(6, 28, 28), np.array([0, 9, 3, 3, 1, 2], np.uint8)
    folder = places[0] / "kmnist"
    made.write_idx_dataset(folder, (pictures[:4], labels[:4]), (pictures[4:], labels[4:]))
    made.shrink(monkeypatch, "kmnist", 4, 2)
    first, *others = REGISTRY["mnist"].files
    known = replace(first, size=None, digest=made.sha256(made.idx(pictures[:4])))
    made.change(monkeypatch, "mnist", files=(known, *others))
    if suffix:
        (folder / "train-images-idx3-ubyte").unlink()
        np.savez(folder / "kmnist-train-imgs.npz", pictures[:4])
    with pytest.raises(ValueError, match="belongs to mnist, not to kmnist"):
        load("kmnist", root=places[0])


def test_svhn(places, monkeypatch):
    made.shrink(monkeypatch, "svhn", 2, 1)
    pictures, labels = made.images(3, 3, 32, 32), np.array([0, 9, 3])
    (places[0] / "svhn").mkdir(parents=True)
    made.write_svhn(places[0] / "svhn" / "train_32x32.mat", pictures[:2], labels[:2])
    made.write_svhn(places[0] / "svhn" / "test_32x32.mat", pictures[2:], labels[2:])
    assert_fully_labelled(load("svhn", root=places[0]), pictures, labels, 2)


def write_cifar10(folder, pictures, labels):
    """Write 10 training rows and the others to test."""
    folder.mkdir(parents=True)
    names = [file.name for file in REGISTRY["cifar10"].files]
    for k, name in enumerate(names):
        rows = slice(2 * k, 2 * k + 2) if k < 5 else slice(10, None)
        (folder / name).write_bytes(made.cifar(pictures[rows], labels[rows]))


@pytest.mark.parametrize("folder", ["cifar10", "cifar-10-batches-bin", ""])
def test_cifar10(places, monkeypatch, folder):
    made.shrink(monkeypatch, "cifar10", 10, 3)
    pictures, labels = made.images(13, 3, 32, 32), np.arange(13) % 10
    write_cifar10(places[0] / folder, pictures, labels)
    dataset = load("cifar10", root=places[0])
    assert_fully_labelled(dataset, pictures, labels, 10)
    assert dataset.superclasses is None


def test_cifar100(places, monkeypatch):
    made.shrink(monkeypatch, "cifar100", 100, 3)
    pictures, labels = made.images(103, 3, 32, 32), np.arange(103) % 100
    (places[0] / "cifar100").mkdir(parents=True)
    for name, rows in (("train.bin", slice(0, 100)), ("test.bin", slice(100, None))):
        content = made.cifar(pictures[rows], labels[rows] // 5, labels[rows])
        (places[0] / "cifar100" / name).write_bytes(content)
    dataset = load("cifar100", root=places[0])
    assert_fully_labelled(dataset, pictures, labels, 100)
    assert dataset.superclasses == tuple(j // 5 for j in range(100))


def test_rejects_other_sizes(places, monkeypatch):
    made.shrink(monkeypatch, "mnist", 3, 1)
    pictures, labels = made.images(4, 28, 28), np.zeros(4, np.uint8)
    made.write_idx_dataset(places[0], (pictures[:2], labels[:2]), (pictures[2:], labels[2:]))
    with pytest.raises(ValueError, match=r"mnist hold images \(4, 28, 28\), 2 of them to train, instead of .* and 3"):
        load("mnist", root=places[0])


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_contents_are_checked_uncompressed(places, monkeypatch, suffix):
    pictures, labels = made.images(4, 28, 28), np.zeros(4, np.uint8)
    made.write_idx_dataset(places[0], (pictures[:3], labels[:3]), (pictures[3:], labels[3:]), suffix)
    with pytest.raises(ValueError, match=r"is not the published file: .* has 2368 bytes instead of 47040016"):
        load("mnist", root=places[0])
    made.shrink(monkeypatch, "mnist", 3, 1)
    first, *others = REGISTRY["mnist"].files
    right = type(first)(first.name, 2368, digest(made.idx(pictures[:3]), "sha256"), first.others)
    made.change(monkeypatch, "mnist", files=(right, *others))
    assert len(load("mnist", root=places[0]).X) == 4
    wrong = type(first)(first.name, 2368, digest(made.idx(pictures[1:]), "sha256"), first.others)
    made.change(monkeypatch, "mnist", files=(wrong, *others))
    with pytest.raises(ValueError, match=r"has sha256:.* instead of sha256:"):
        load("mnist", root=places[0])


@pytest.fixture
def small_cifar10n(places, monkeypatch):
    """CIFAR-10 with ten training rows, and what three people took them for."""
    made.shrink(monkeypatch, "cifar10", 10, 3)
    pictures, labels = made.images(13, 3, 32, 32), np.arange(13, dtype=np.uint8) % 10
    write_cifar10(places[0] / "cifar10", pictures, labels)
    annotated = np.stack([labels[:10], labels[:10], (labels[:10] + 1) % 10], axis=1)
    annotated[4] = (5, 6, 7)
    monkeypatch.setattr(published, "_CIFAR10N", made.sha256(np.sort(annotated, axis=1).tobytes())[7:])
    (places[0] / "cifar10n").mkdir()

    def save(**changes):
        arrays = {"annotator_labels": annotated, "clean_label": labels[:10]} | changes
        np.savez_compressed(places[0] / "cifar10n" / "cifar10n.npz", **arrays)

    save()
    return places[0], annotated, save


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_cifar10n(small_cifar10n, order):
    root, annotated, save = small_cifar10n
    save(annotator_labels=annotated[:, order])
    with pytest.warns(LicenceNotice, match=r"cifar10n: licence: CC BY-NC 4.0.*please cite J. Wei") as caught:
        dataset = load("cifar10n", root=root)
    assert caught[0].filename == __file__
    assert dataset.name == "cifar10n"
    expected = [set(row) for row in annotated.tolist()] + [{0}, {1}, {2}]
    assert [set(np.flatnonzero(row).tolist()) for row in dataset.S] == expected
    np.testing.assert_array_equal(dataset.y, np.arange(13) % 10)
    assert not dataset.S[4, 4], "three people may all be wrong"
    assert dataset.num_train == 10
    np.testing.assert_array_equal(dataset.X, load("cifar10", root=root).X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"annotator_labels": np.zeros((10, 2), np.uint8)}, r"annotator_labels is \(10, 2\).*expected \(10, 3\)"),
        ({"annotator_labels": np.full((10, 3), 10, np.uint8)}, "with labels 0 to 9"),
        ({"clean_label": np.zeros(10)}, r"clean_label is \(10,\) of type float64"),
        ({"clean_label": np.arange(10)[::-1]}, "clean_label differs from CIFAR-10's label in 10 rows, first in row 0"),
        ({"annotator_labels": np.zeros((10, 3), np.uint8)}, "annotator_labels are not the published ones"),
    ],
)
@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
def test_cifar10n_rejects(small_cifar10n, change, message):
    root, _, save = small_cifar10n
    save(**change)
    with pytest.raises(ValueError, match=message):
        load("cifar10n", root=root)


@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
@pytest.mark.parametrize("download", [False, True])
def test_cifar10n_cannot_be_downloaded(places, download):
    with pytest.raises(FileNotFoundError) as caught:
        load("cifar10n", root=places[0], download=download)
    for part in ("cifar10n.npz", "pickles only", "annotator_labels (50000, 3)", "clean_label (50000,)", "CC BY-NC"):
        assert part in str(caught.value)
    assert "download=True" not in str(caught.value)


def test_terms_are_shown_each_time():
    code = (
        "import sys, warnings, candidly.data as data\n"
        "for _ in range(2):\n    warnings.warn(data.LicenceNotice('terms'))\n    warnings.warn('other')\n"
        "print(*{'torch', 'sklearn', 'pyarrow', 'pooch', 'requests'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("LicenceNotice: terms") == 2
    assert done.stderr.count("UserWarning: other") == 1
    assert done.stdout == "\n", "these are imported when they are needed"


@pytest.mark.parametrize("name", [name for name, entry in REGISTRY.items() if entry.files])
def test_the_published_files(real_files, name):
    entry, dataset = REGISTRY[name], real_files(name)
    assert dataset.X.shape == entry.shape
    assert dataset.S.shape == (entry.shape[0], entry.num_classes)
    assert dataset.num_train == entry.num_train
    assert dataset.S.any(axis=1).all()
    assert set(np.unique(dataset.y)) <= set(range(entry.num_classes))
    covered = dataset.S[np.arange(len(dataset.y)), dataset.y]
    if name == "cifar10n":
        assert (~covered[:50_000]).sum() == 1067, "about 2 % of the training rows"
        assert covered[50_000:].all()
        assert dataset.S[:50_000].sum(axis=1).mean() == pytest.approx(1.457, abs=1e-3)
    else:
        assert covered.all()
    if name == "cifar100":
        assert np.bincount(dataset.superclasses).tolist() == [5] * 20
