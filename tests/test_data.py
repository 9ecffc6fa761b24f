import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

import candidly.data
import candidly.data.mat
import candidly.data.protocols
from candidly.data import Dataset, load, mat
from candidly.data.protocols import uai2025, uai2025_split


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


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The three folders that are searched, all below tmp_path."""
    monkeypatch.setenv("CANDIDLY_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "root", tmp_path / "variable", tmp_path / "cache" / "candidly"


def publish(monkeypatch, path, kind="sha256"):
    """Make the file at `path` the published one for its name."""
    content = path.read_bytes()
    blob = hashlib.sha1(b"blob " + str(len(content)).encode() + b"\0" + content).hexdigest()
    digest = hashlib.sha256(content).hexdigest() if kind == "sha256" else blob
    monkeypatch.setitem(candidly.data._DIGESTS, path.stem, (kind, digest))


@pytest.mark.parametrize("convert", [np.asarray, scipy.sparse.csc_matrix, scipy.sparse.csc_array])
def test_read_dense_and_sparse(tmp_path, convert):
    dataset = toy()
    scipy.io.savemat(tmp_path / "toy.mat", {field: convert(value) for field, value in fields_of(dataset).items()})
    X, S, y = mat.read(tmp_path / "toy.mat")
    assert (X.dtype, S.dtype, y.dtype) == (np.float64, np.bool_, np.int64)
    np.testing.assert_array_equal(X, dataset.X)
    np.testing.assert_array_equal(S, dataset.S)
    np.testing.assert_array_equal(y, dataset.y)


def test_read_integer_features(tmp_path):
    fields = {"data": np.array([[1], [2]], dtype=np.uint8), "partial_target": np.eye(2), "target": np.eye(2)}
    scipy.io.savemat(tmp_path / "toy.mat", fields)
    assert mat.read(tmp_path / "toy.mat")[0].dtype == np.float64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": None}, "has no field target; it holds data, partial_target"),
        ({"data": np.zeros((299, 5))}, r"data \(299, 5\).*partial_target \(6, 300\)"),
        ({"partial_target": np.ones((300, 6))}, r"partial_target \(300, 6\).*target \(6, 300\)"),
        ({"data": "text"}, "data should be a real matrix"),
        ({"data": np.zeros((300, 5)) * 1j}, "data should be a real matrix.*complex128"),
        ({"target": np.zeros((6, 300))}, "row 0 has 0 true labels"),
        ({"target": np.ones((6, 300))}, "row 0 has 6 true labels"),
    ],
)
def test_read_rejects(tmp_path, change, message):
    fields = {field: value for field, value in (fields_of(toy()) | change).items() if value is not None}
    scipy.io.savemat(tmp_path / "toy.mat", fields)
    with pytest.raises(ValueError, match=message):
        mat.read(tmp_path / "toy.mat")


@pytest.mark.parametrize(
    "damage", [lambda raw: b"", lambda raw: b"<html>" * 99, lambda raw: raw[:200], lambda raw: raw[:-9]]
)
def test_read_rejects_damaged_files(tmp_path, damage):
    path = tmp_path / "toy.mat"
    scipy.io.savemat(path, fields_of(toy()), do_compression=True)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"toy\.mat is not a readable \.mat file"):
        mat.read(path)


def test_read_rejects_hdf5(tmp_path):
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    (tmp_path / "toy.mat").write_bytes(header + bytes(400))
    with pytest.raises(ValueError, match=r"format 7\.3"):
        mat.read(tmp_path / "toy.mat")


def test_read_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        mat.read(tmp_path / "nothing.mat")


@pytest.mark.parametrize("kind", ["sha256", "git blob"])
@pytest.mark.parametrize("folder", ["", "realworld"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_load_searches_every_place(places, monkeypatch, place, folder, kind):
    dataset = toy()
    path = places[place] / folder / "lost.mat"
    path.parent.mkdir(parents=True)
    scipy.io.savemat(path, fields_of(dataset))
    publish(monkeypatch, path, kind)
    loaded = load("lost", root=places[0])
    assert loaded.name == "lost"
    assert loaded.classes == ("0", "1", "2", "3", "4", "5")
    np.testing.assert_array_equal(loaded.S, dataset.S)
    np.testing.assert_array_equal(loaded.y, dataset.y)


def test_load_prefers_root(places, monkeypatch):
    for seed, place in enumerate(places):
        place.mkdir(parents=True)
        scipy.io.savemat(place / "lost.mat", fields_of(toy(seed)))
    publish(monkeypatch, places[0] / "lost.mat")
    np.testing.assert_array_equal(load("lost", root=str(places[0])).X, toy(0).X)
    publish(monkeypatch, places[1] / "lost.mat")
    np.testing.assert_array_equal(load("lost").X, toy(1).X)


def test_load_says_where_it_looked(places):
    with pytest.raises(FileNotFoundError) as caught:
        load("msrc-v2", root=places[0])
    for place in places:
        assert str(place / "msrc-v2.mat") in str(caught.value)
        assert str(place / "realworld" / "msrc-v2.mat") in str(caught.value)
    for part in (
        "mathefuchs/pll-with-conformal-candidate-cleaning",
        "0bc1124707aa902bfb4faad872b34abebea07d21",
        "academic",
    ):
        assert part in str(caught.value)


def test_load_without_variables(tmp_path, monkeypatch):
    monkeypatch.delenv("CANDIDLY_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError) as caught:
        load("soccer")
    assert str(tmp_path / ".cache" / "candidly" / "realworld" / "soccer.mat") in str(caught.value)


@pytest.mark.parametrize(("name", "kind"), [("lost", "sha256"), ("soccer", "git blob")])
def test_load_rejects_another_file(places, name, kind):
    path = places[0] / f"{name}.mat"
    places[0].mkdir()
    scipy.io.savemat(path, fields_of(toy()))
    with pytest.raises(ValueError, match=f"{name}.mat is not the published file") as caught:
        load(name, root=places[0])
    for part in (str(path), kind, candidly.data._DIGESTS[name][1], "get it again"):
        assert part in str(caught.value)


def test_git_blob_of_a_known_content(tmp_path):
    path = tmp_path / "hello"
    path.write_bytes(b"hello\n")
    candidly.data._check(path, "git blob", "ce013625030ba8dba906f756967f9e9ca394464a")
    with pytest.raises(ValueError, match="has git blob ce013625030ba8dba906f756967f9e9ca394464a instead of 0000"):
        candidly.data._check(path, "git blob", "0000")


def test_load_rejects_unknown_names():
    with pytest.raises(ValueError, match="unknown dataset 'lots'; known are bird-song, digits, lost, mir-flickr"):
        load("lots")


def test_digits():
    digits = load("digits")
    assert digits.X.shape == (1797, 64)
    assert (digits.X.min(), digits.X.max()) == (0, 1)
    assert digits.classes == tuple("0123456789")
    assert (digits.S.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(digits.S.argmax(axis=1), digits.y)


def literal_uai2025(data, partial_target, target):
    """Steps 1 and 2 of the protocol, one row, class and feature at a time."""
    num_all, n = target.shape
    y = [int(np.argmax(target[:, i])) for i in range(n)]
    frequencies = sorted((sum(target[j, i] != 0 for i in range(n)) for j in range(num_all)), reverse=True)
    num_classes, covered = 0, 0
    while not covered / n > 0.99:
        covered += frequencies[num_classes]
        num_classes += 1
    counts = np.array([sum(partial_target[j, i] != 0 for i in range(n)) for j in range(num_all)])
    kept = sorted(int(j) for j in np.argsort(counts)[num_all - num_classes :])
    rows = [i for i in range(n) if y[i] in kept]
    columns = []
    for k in range(data.shape[1]):
        values = [float(data[i, k]) for i in rows]
        span = max(values) - min(values)
        column = [(value - min(values)) / (span if span >= 1e-10 else 1.0) for value in values]
        if np.std(column) > 1e-10:
            columns.append(column)
    S = [[bool(partial_target[j, i]) for j in kept] for i in rows]
    return np.array(columns).T, np.array(S), np.array([kept.index(y[i]) for i in rows]), kept


@pytest.mark.parametrize("seed", range(5))
def test_uai2025_equals_its_literal_twin(seed):
    dataset = toy(seed)
    prepared = uai2025(dataset)
    X, S, y, kept = literal_uai2025(**fields_of(dataset))
    np.testing.assert_array_equal(prepared.X, X)
    np.testing.assert_array_equal(prepared.S, S)
    np.testing.assert_array_equal(prepared.y, y)
    assert prepared.classes == tuple("abcdef"[j] for j in kept)
    assert prepared.y.dtype == np.int64
    assert prepared.X.shape[1] == 3, "the constant feature and the one that moves by 1e-13 go"
    assert len(y) < len(dataset.y), "the kept classes are those with most candidates, so some rows go"


def test_uai2025_needs_true_labels():
    dataset = toy()
    with pytest.raises(ValueError, match="'toy' has no true labels"):
        uai2025(Dataset("toy", dataset.X, dataset.S, None, dataset.classes))


@pytest.mark.parametrize("n", [20, 50, 1122])
def test_uai2025_split(n):
    train, test = uai2025_split(n, seed=3)
    assert len(train) == int(0.8 * n) - int(0.8 * n) % 16
    assert sorted([*train, *test]) == list(range(n))

    generator = np.random.Generator(np.random.PCG64(3))
    expected = generator.choice(n, len(train), replace=False, shuffle=False)
    rest = np.array([i for i in range(n) if i not in set(expected.tolist())])
    generator.shuffle(expected)
    generator.shuffle(rest)
    np.testing.assert_array_equal(train, expected)
    np.testing.assert_array_equal(test, rest)


def test_uai2025_split_needs_rows():
    with pytest.raises(ValueError, match="19 rows leave none to train on"):
        uai2025_split(19, seed=0)


@pytest.mark.parametrize(
    ("name", "train_size", "test_size", "num_classes", "num_features", "train_mean", "mean"),
    [("lost", 896, 226, 14, 108, 2.2156, 2.2175), ("bird-song", 3968, 998, 12, 38, 2.1465, 2.1488)],
)
def test_real_files(name, train_size, test_size, num_classes, num_features, train_mean, mean):
    root = Path(os.environ.get("CANDIDLY_DATA") or Path(__file__).parents[1].parent / "shared" / "data")
    if not any((root / folder / f"{name}.mat").is_file() for folder in ("", "realworld")):
        pytest.skip(f"{name}.mat is not in {root}; name its folder in CANDIDLY_DATA to run this test")
    dataset = uai2025(load(name, root=root))
    assert dataset.X.shape == (train_size + test_size, num_features)
    assert dataset.S.shape == (train_size + test_size, num_classes)
    assert len(dataset.classes) == num_classes
    assert dataset.S[np.arange(len(dataset.y)), dataset.y].all()
    assert dataset.S.sum(axis=1).mean() == pytest.approx(mean, abs=1e-4)
    splits = [uai2025_split(len(dataset.y), seed) for seed in range(5)]
    assert {(len(train), len(test)) for train, test in splits} == {(train_size, test_size)}
    train_means = [dataset.S[train].sum(axis=1).mean() for train, _ in splits]
    assert np.mean(train_means) == pytest.approx(train_mean, abs=1e-4)
