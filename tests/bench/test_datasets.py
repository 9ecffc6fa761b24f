import dataclasses
import re

import numpy as np
import pytest

from candidly import data
from candidly.bench import datasets as sets
from candidly.candidates import Candidates
from candidly.data import Dataset, corrupt


def split_toy(**changes):
    """A dataset of images whose publisher fixed the split: 40 training rows, 20 test rows."""
    y = np.arange(60) % 6
    X = np.random.default_rng(0).integers(0, 256, (60, 2, 2), dtype=np.uint8)
    toy = Dataset("toy", X, np.eye(6, dtype=bool)[y], y, tuple("abcdef"), num_train=40, superclasses=(0, 0, 0, 1, 1, 1))
    return dataclasses.replace(toy, **changes)


@pytest.fixture
def toy(monkeypatch):
    made = split_toy()
    monkeypatch.setattr(data, "load", lambda name, root, download: made)
    return made


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("uniform-0.3", lambda y: corrupt.uniform(y, 6, 0.3, 0)),
        ("uniform-0", lambda y: np.eye(6, dtype=bool)[y]),
        ("hierarchical-0.5", lambda y: corrupt.hierarchical(y, (0, 0, 0, 1, 1, 1), 0.5, 0)),
        ("uniform-superset", lambda y: corrupt.uniform_superset(y, 6, 0)),
        ("label-dependent", lambda y: corrupt.label_dependent(y, 6, 0)),
        ("noisy-0.3-0.1", lambda y: corrupt.noisy(y, 6, 0.3, 0.1, 0)),
    ],
)
def test_steps_make_sets_of_the_training_rows(toy, tmp_path, step, expected):
    made = sets.load(f"toy+{step}", tmp_path)
    assert made.name == f"toy+{step}"
    np.testing.assert_array_equal(made.S[:40], expected(toy.y[:40]))
    np.testing.assert_array_equal(made.S[40:], toy.S[40:])
    np.testing.assert_array_equal(made.X, toy.X)


def test_long_tail_first(toy, tmp_path):
    made = sets.load("toy+long-tailed-0.1+uniform-0.5", tmp_path)
    rows = corrupt.long_tailed(toy.y[:40], 6, 0.1, 0)
    assert made.num_train == len(rows) < 40
    np.testing.assert_array_equal(made.y, np.concatenate([toy.y[:40][rows], toy.y[40:]]))
    np.testing.assert_array_equal(made.S[: len(rows)], corrupt.uniform(toy.y[:40][rows], 6, 0.5, 0))


@pytest.mark.parametrize("rate", ["", "-0.4"])
def test_instance_dependent_sets(toy, tmp_path, rate):
    made = sets.load(f"toy+instance-dependent{rate}", tmp_path, device="cpu")
    assert made.S[np.arange(60), toy.y].all()
    assert made.S[:40].sum() > 40
    if not rate:
        assert (made.S[:40].sum(1) >= 2).all()


@pytest.mark.parametrize("colour", [False, True])
def test_instance_dependent_sets_of_images_come_from_scaled_ones(tmp_path, monkeypatch, colour):
    shape = (60, 3, 32, 32) if colour else (60, 2, 2)
    made = split_toy(X=np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
    monkeypatch.setattr(data, "load", lambda name, root, download: made)
    given = {}

    def spy(X, y, num_classes, seed, *, shift, scale, net, **others):
        given.update(X=X, shift=shift, scale=scale, net=net)
        return np.eye(num_classes, dtype=bool)[y]

    monkeypatch.setattr(corrupt, "instance_dependent", spy)
    sets.load("toy+instance-dependent", tmp_path)
    np.testing.assert_array_equal(given["X"], made.X[:40] if colour else made.X[:40].reshape(40, 4))
    assert given["X"].dtype == np.uint8
    assert given["net"] == ("resnet9" if colour else "mlp")
    train = made.X[:40]
    shift, spread = (train.mean((0, 2, 3)), train.std((0, 2, 3))) if colour else (0, 255)
    np.testing.assert_allclose(given["shift"].squeeze(), shift)
    np.testing.assert_allclose(given["scale"].squeeze(), 1 / spread)


def test_sets_are_made_once(toy, tmp_path, monkeypatch):
    first = sets.load("toy+uniform-0.3", tmp_path)
    (folder,) = tmp_path.iterdir()
    assert Candidates.load(folder).classes == toy.classes
    monkeypatch.setattr(corrupt, "uniform", None)
    np.testing.assert_array_equal(sets.load("toy+uniform-0.3", tmp_path).S, first.S)


def test_other_labels_get_other_sets(toy, tmp_path, monkeypatch):
    sets.load("toy+uniform-0.3", tmp_path)
    monkeypatch.setattr(data, "load", lambda name, root, download: split_toy(y=toy.y[::-1].copy()))
    sets.load("toy+uniform-0.3", tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_default_sets(tmp_path):
    plain = sets.load("digits", tmp_path, device="cpu")
    named = sets.load("digits+instance-dependent-0.4", tmp_path, device="cpu")
    assert (plain.name, named.name) == ("digits", "digits+instance-dependent-0.4")
    np.testing.assert_array_equal(plain.S, named.S)
    assert 2 < plain.S.sum(1).mean() < 6


def test_a_long_tail_alone_keeps_the_default_sets(tmp_path):
    made = sets.load("digits+long-tailed-0.5", tmp_path, device="cpu")
    assert made.name == "digits+long-tailed-0.5"
    assert len(made.y) < 1797
    assert made.S.sum(1).mean() > 2


def test_damaged_sets_say_what_to_remove(toy, tmp_path):
    sets.load("toy+uniform-0.3", tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / "candidates.json").write_text("{}")
    with pytest.raises(ValueError, match=f"or remove {folder} to generate the sets again"):
        sets.load("toy+uniform-0.3", tmp_path)


def test_names_of_files_may_hold_a_plus(table, tmp_path):
    path = tmp_path / "a+b.csv"
    path.write_text(re.sub(r"[xyz|]+,([xyz])$", r"\1,\1", table.read_text(), flags=re.MULTILINE))
    assert sets.load(str(path), tmp_path / "kept").name == "a+b"
    assert sets.load(f"{path}+uniform-0.5", tmp_path / "kept").name == "a+b+uniform-0.5"


def test_a_file_may_not_take_the_name_of_a_known_dataset(table, tmp_path):
    path = tmp_path / "lost.csv"
    path.write_text(table.read_text())
    with pytest.raises(ValueError, match="would be called 'lost', the name of a published dataset; rename the file"):
        sets.load(str(path), tmp_path / "kept")


def test_a_file_keeps_its_sets(table, tmp_path):
    found = sets.load(str(table), tmp_path)
    assert (found.name, len(found.X)) == ("flowers", 60)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("toy+unifrom-0.3", "unknown step 'unifrom-0.3'.*known are uniform"),
        ("toy+uniform", "step 'uniform' has 0 numbers but takes 1"),
        ("toy+noisy-0.3", "has 1 numbers but takes 2"),
        ("toy+uniform-x", "unknown step"),
        ("toy+", "unknown step ''"),
    ],
)
def test_refuses_steps(toy, tmp_path, name, message):
    with pytest.raises(ValueError, match=message):
        sets.load(name, tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"y": None}, "'toy.*' has no true labels"), ({"superclasses": None}, "have no superclasses")],
)
def test_refuses_datasets(toy, tmp_path, monkeypatch, changes, message):
    monkeypatch.setattr(data, "load", lambda name, root, download: split_toy(**changes))
    with pytest.raises(ValueError, match=message):
        sets.load("toy+hierarchical-0.1", tmp_path)


@pytest.mark.parametrize("field", ["X", "S", "y"])
def test_fingerprint_sees_every_part(field):
    one = split_toy()
    changed = getattr(one, field).copy()
    changed.flat[1] = not changed.flat[1]
    assert sets.fingerprint(one) != sets.fingerprint(dataclasses.replace(one, **{field: changed}))
    assert sets.fingerprint(one) == sets.fingerprint(dataclasses.replace(one, name="other"))


def test_fingerprint_sees_groups_only_where_they_count():
    bare, one, other = (split_toy(groups=groups) for groups in (None, np.arange(60) // 2, np.arange(60) // 3))
    assert sets.fingerprint(bare) == sets.fingerprint(one) == sets.fingerprint(other)
    assert len({sets.fingerprint(toy, grouped=True) for toy in (bare, one, other)}) == 3
    assert sets.fingerprint(one, grouped=True) != sets.fingerprint(one)
    assert sets.fingerprint(bare) != sets.fingerprint(split_toy(superclasses=(0, 0, 1, 1, 2, 2)))


def test_steps_keep_groups(monkeypatch, tmp_path):
    made = split_toy(groups=np.arange(60) // 2)
    monkeypatch.setattr(data, "load", lambda name, root, download: made)
    np.testing.assert_array_equal(sets.load("toy+uniform-0.3", tmp_path).groups, made.groups)
    rows = corrupt.long_tailed(made.y[:40], 6, 0.1, 0)
    found = sets.load("toy+long-tailed-0.1+uniform-0.5", tmp_path).groups
    np.testing.assert_array_equal(found, np.concatenate([rows // 2, np.arange(40, 60) // 2]))


@pytest.mark.parametrize("name", ["{}+uniform-0.3", "digits+uniform-0.3+uniform-0.1"])
def test_candidate_sets_are_not_replaced(tmp_path, table, name):
    with pytest.raises(ValueError, match="has candidate sets, which uniform would replace"):
        sets.load(name.format(table), tmp_path)
