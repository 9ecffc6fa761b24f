"""What `load` finds where, and what it says when it does not."""

import numpy as np
import pytest
import scipy.io

from candidly.data import REGISTRY, load
from tests.data.made import change, fields_of, git_blob, images, publish, sha256, shrink, toy, write_idx_dataset


@pytest.mark.parametrize("digest", [sha256, git_blob])
@pytest.mark.parametrize("folder", ["", "realworld"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_searches_every_place(places, monkeypatch, place, folder, digest):
    dataset = toy()
    path = places[place] / folder / "lost.mat"
    path.parent.mkdir(parents=True)
    scipy.io.savemat(path, fields_of(dataset))
    publish(monkeypatch, path, digest)
    loaded = load("lost", root=places[0])
    assert loaded.name == "lost"
    assert loaded.classes == ("0", "1", "2", "3", "4", "5")
    np.testing.assert_array_equal(loaded.S, dataset.S)
    np.testing.assert_array_equal(loaded.y, dataset.y)


def test_prefers_root(places, monkeypatch):
    for seed, place in enumerate(places):
        place.mkdir(parents=True)
        scipy.io.savemat(place / "lost.mat", fields_of(toy(seed)))
    publish(monkeypatch, places[0] / "lost.mat")
    np.testing.assert_array_equal(load("lost", root=str(places[0])).X, toy(0).X)
    publish(monkeypatch, places[1] / "lost.mat")
    np.testing.assert_array_equal(load("lost").X, toy(1).X)


@pytest.mark.parametrize("folder", ["fashion-mnist", "fmnist", ""])
def test_own_folders(places, monkeypatch, folder):
    shrink(monkeypatch, "fmnist", 2, 1)
    pair = images(2, 28, 28), np.array([1, 2], np.uint8)
    write_idx_dataset(places[1] / folder, pair, (pair[0][:1], pair[1][:1]))
    assert load("fmnist").y.tolist() == [1, 2, 1]


def test_own_folder_comes_before_the_folder_itself(places, monkeypatch):
    shrink(monkeypatch, "fmnist", 2, 1)
    for folder, label in (("", 1), ("fmnist", 2)):
        pair = images(2, 28, 28), np.full(2, label, np.uint8)
        write_idx_dataset(places[0] / folder, pair, (pair[0][:1], pair[1][:1]))
    assert load("fmnist", root=places[0]).y.tolist() == [2, 2, 2]


def test_all_files_come_from_one_place(places, monkeypatch):
    shrink(monkeypatch, "mnist", 2, 1)
    for place, label in ((places[0], 1), (places[1], 2)):
        pair = images(2, 28, 28), np.full(2, label, np.uint8)
        write_idx_dataset(place / "mnist", pair, (pair[0][:1], pair[1][:1]))
    (places[0] / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    assert load("mnist", root=places[0]).y.tolist() == [2, 2, 2]
    (places[1] / "mnist" / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"mnist \(4 files\) was not found") as caught:
        load("mnist", root=places[0])
    for path in (
        places[0] / "mnist" / "t10k-labels-idx1-ubyte",
        places[1] / "mnist" / "t10k-images-idx3-ubyte",
        places[2] / "train-images-idx3-ubyte",
    ):
        assert f"  {path}\n" in str(caught.value)


def test_says_where_it_looked(places):
    with pytest.raises(FileNotFoundError, match=r"^msrc-v2.mat was not found; looked at\n") as caught:
        load("msrc-v2", root=places[0])
    for place in places:
        assert f"  {place / 'msrc-v2.mat'}\n" in str(caught.value)
        assert f"  {place / 'realworld' / 'msrc-v2.mat'}\n" in str(caught.value)
    for part in (
        "mathefuchs/pll-with-conformal-candidate-cleaning",
        "0bc1124707aa902bfb4faad872b34abebea07d21",
        "MIT",
        "academic",
        "download=True",
    ):
        assert part in str(caught.value)


def test_without_variables(tmp_path, monkeypatch):
    monkeypatch.delenv("CANDIDLY_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError) as caught:
        load("soccer")
    assert str(tmp_path / ".cache" / "candidly" / "realworld" / "soccer.mat") in str(caught.value)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cifar10", "data_batch_1"),
        ("cifar10", "cifar-10-batches-py/data_batch_1"),
        ("cifar100", "train"),
        ("cifar100", "cifar-100-python/train"),
    ],
)
def test_says_that_the_python_version_is_not_read(places, name, file):
    path = places[0] / file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x80")
    with pytest.raises(FileNotFoundError) as caught:
        load(name, root=places[0])
    for part in (f"{path} is a pickle, which can run any code", REGISTRY[name].downloads[0].url):
        assert part in str(caught.value)


@pytest.mark.parametrize(("name", "kind"), [("lost", "sha256"), ("soccer", "git-blob")])
def test_rejects_another_file(places, monkeypatch, name, kind):
    path = places[0] / f"{name}.mat"
    places[0].mkdir()
    scipy.io.savemat(path, fields_of(toy()))
    file = REGISTRY[name].files[0]
    change(monkeypatch, name, files=(file.__class__(file.name, None, file.digest),))
    with pytest.raises(ValueError, match=f"{name}.mat is not the published file") as caught:
        load(name, root=places[0])
    for part in (str(path), f"{kind}:", file.digest, "get it again"):
        assert part in str(caught.value)


def test_rejects_unknown_names():
    with pytest.raises(
        ValueError, match=r"unknown dataset 'lots' \(did you mean 'lost'\?\); known are bird-song, cifar10,"
    ):
        load("lots")
    with pytest.raises(ValueError, match="did you mean 'mnist'"):
        load("MNIST")
    with pytest.raises(ValueError, match=r"'qqq'; known are .*your own files \(.mat, .npz, .csv, .csv.gz"):
        load("qqq")
    with pytest.raises(ValueError, match="name is 3; it must be a path"):
        load(3)


@pytest.mark.parametrize("name", ["no.mat", "no.npz", "no.parquet", "no.csv", "no.CSV", "no.csv.gz", "no.tsv"])
def test_missing_files_of_the_users(tmp_path, name):
    for path in (tmp_path / name, str(tmp_path / name)):
        with pytest.raises(FileNotFoundError, match=f"{name} does not exist"):
            load(path)


def test_paths_need_a_known_suffix(tmp_path):
    with pytest.raises(ValueError, match=r"lost has the suffix ''; files that can be loaded are .mat, .npz"):
        load(tmp_path / "lost")


def test_digits():
    digits = load("digits")
    assert digits.X.shape == REGISTRY["digits"].shape == (1797, 64)
    assert (digits.X.min(), digits.X.max()) == (0, 1)
    assert digits.classes == tuple("0123456789")
    assert (digits.S.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(digits.S.argmax(axis=1), digits.y)
