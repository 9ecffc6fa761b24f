from dataclasses import replace

import numpy as np
import pytest

from candidly.data import Dataset
from candidly.data.protocols import PROTOCOLS, default_split, grouped_split, scaling, uai2025, uai2025_split
from candidly.engine.batches import scaled
from candidly.engine.problem import Problem
from tests.data.made import fields_of, toy


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
    train, test = uai2025_split(toy(n=n), seed=3)
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
    with pytest.raises(ValueError, match="19 rows give no training rows"):
        uai2025_split(toy(n=19), seed=0)


@pytest.mark.parametrize(
    ("name", "train_size", "test_size", "num_classes", "num_features", "train_mean", "mean"),
    [
        ("lost", 896, 226, 14, 108, 2.2156, 2.2175),
        ("bird-song", 3968, 998, 12, 38, 2.1465, 2.1488),
        ("msrc-v2", 1392, 363, 22, 48, 3.1489, 3.1527),
    ],
)
def test_real_files(real_files, name, train_size, test_size, num_classes, num_features, train_mean, mean):
    dataset = uai2025(real_files(name))
    assert dataset.X.shape == (train_size + test_size, num_features)
    assert dataset.S.shape == (train_size + test_size, num_classes)
    assert len(dataset.classes) == num_classes
    assert dataset.S[np.arange(len(dataset.y)), dataset.y].all()
    assert dataset.S.sum(axis=1).mean() == pytest.approx(mean, abs=1e-4)
    splits = [uai2025_split(dataset, seed) for seed in range(5)]
    assert {(len(train), len(test)) for train, test in splits} == {(train_size, test_size)}
    train_means = [dataset.S[train].sum(axis=1).mean() for train, _ in splits]
    assert np.mean(train_means) == pytest.approx(train_mean, abs=1e-4)


def images(shape, num_train=None):
    n = shape[0]
    X = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    y = np.arange(n) % 2
    return Dataset("toy", X, np.eye(2, dtype=bool)[y], y, ("a", "b"), num_train)


def literal_images(dataset):
    """What networks are to see of images, in float64."""
    X = dataset.X / 255
    if X.ndim == 3:
        return X.reshape(len(X), -1)
    if dataset.num_train is None:
        return X
    train = X[: dataset.num_train]
    mean, spread = train.mean(axis=(0, 2, 3), keepdims=True), train.std(axis=(0, 2, 3), keepdims=True)
    return (X - mean) / np.where(spread > 0, spread, 1)


def seen(dataset):
    """What networks see of a prepared dataset, in float32."""
    shift, scale = scaling(dataset)
    problem = Problem.of(dataset.X, dataset.S, shift=shift, scale=scale)
    return scaled(problem.X[None], problem)[0].numpy()


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize(
    ("shape", "num_train"),
    [((5, 4, 3), None), ((5, 4, 3), 4), ((7, 3, 4, 4), None), ((7, 3, 4, 4), 5)],
    ids=["grey", "grey, split", "colour", "colour, split"],
)
def test_images_stay_bytes_and_networks_see_them_scaled(name, shape, num_train):
    raw = images(shape, num_train)
    prepared = PROTOCOLS[name].prepare(raw)
    assert prepared.X.dtype == np.uint8
    assert np.shares_memory(prepared.X, raw.X)
    assert prepared.X.shape == ((5, 12) if len(shape) == 3 else shape)
    # Three roundings to float32, each by at most 2**-24 of a value of up to 255; channels spread by 60 and more.
    atol = 3 * 2.0**-24 * 255 / 60
    np.testing.assert_allclose(seen(prepared), literal_images(raw), rtol=3 * 2.0**-24, atol=atol)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_test_images_do_not_reach_the_scaling(name):
    raw = images((7, 3, 4, 4), num_train=5)
    other = replace(raw, X=np.concatenate([raw.X[:5], raw.X[5:] // 2]))
    np.testing.assert_equal(scaling(PROTOCOLS[name].prepare(other)), scaling(PROTOCOLS[name].prepare(raw)))


def test_the_scaling_is_exact():
    """Also where a channel is almost constant, and its sum of squares times the number of pixels exceeds an int64."""
    X = np.full((800, 2, 128, 128), 255, dtype=np.uint8)
    X[3, 0, 0, 0] = 254
    X[:390, 1] = 0
    shift, scale = scaling(replace(images((800, 1, 1), num_train=780), X=X))
    n = 780 * 128 * 128
    assert n * n * 255**2 > 2**63
    assert shift.shape == scale.shape == (2, 1, 1)
    np.testing.assert_allclose(shift.ravel(), [255 - 1 / n, 127.5], rtol=1e-15)
    np.testing.assert_allclose(scale.ravel(), [n / np.sqrt(n - 1), 1 / 127.5], rtol=1e-15)


def test_tables_have_no_scaling():
    assert scaling(toy()) == (None, None)
    assert scaling(replace(toy(), num_train=100)) == (None, None)


def test_uai2025_takes_a_matrix():
    with pytest.raises(ValueError, match="has shape"):
        uai2025(replace(images((7, 3, 4, 4)), X=np.zeros((7, 3, 4, 4))))


def test_a_constant_channel_stays_finite():
    raw = replace(images((3, 3, 2, 2), num_train=2), X=np.zeros((3, 3, 2, 2), np.uint8))
    assert (seen(raw) == 0).all()
    raw.X[2, 1] = 255
    assert (seen(raw)[2, 1] == 1).all()


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_publishers_split_is_every_seeds(name):
    raw = replace(images((60, 2, 2), num_train=45), groups=np.arange(60) // 15)
    for seed in (0, 1):
        train, test = PROTOCOLS[name].rows(raw, seed)
        assert train.tolist() == list(range(45))
        assert test.tolist() == list(range(45, 60))


def test_the_default_protocol_keeps_what_it_gets():
    dataset = toy()
    assert PROTOCOLS["default"].prepare(dataset) is dataset
    assert PROTOCOLS["default"].inputs == "standardised"
    assert PROTOCOLS["uai2025"].inputs == "prepared"
    train, test = PROTOCOLS["default"].rows(dataset, 3)
    assert sorted([*train, *test]) == list(range(300))
    assert len(train) == 240
    assert train.tolist() != PROTOCOLS["default"].rows(dataset, 4)[0].tolist()


def test_the_default_split_needs_rows():
    with pytest.raises(ValueError, match="1 rows cannot be split"):
        default_split(toy().take([0]), seed=0)


def literal_grouped_split(groups, seed):
    """The split by groups, one group at a time."""
    names = sorted(set(groups.tolist()))
    order = [names[k] for k in np.random.Generator(np.random.PCG64(seed)).permutation(len(names))]
    best = None
    for cut in range(1, len(names)):
        test = [i for i, group in enumerate(groups.tolist()) if group in order[:cut]]
        if best is None or abs(len(test) - 0.2 * len(groups)) < abs(len(best) - 0.2 * len(groups)):
            best = test
    return [i for i in range(len(groups)) if i not in best], best


@pytest.mark.parametrize("seed", range(5))
def test_grouped_equals_its_literal_twin(seed):
    groups = np.random.default_rng(seed).integers(-20, 20, 300)
    dataset = replace(toy(), groups=groups)
    train, test = PROTOCOLS["grouped"].rows(dataset, seed)
    assert (train.tolist(), test.tolist()) == literal_grouped_split(groups, seed)
    assert sorted([*train, *test]) == list(range(300))
    assert not set(groups[train]) & set(groups[test])
    assert 50 <= len(test) <= 70, "a group has about 8 rows"


def test_grouped_prepares_as_the_default_does():
    dataset = replace(toy(), groups=np.arange(300) // 3)
    assert PROTOCOLS["grouped"].prepare(dataset) is dataset
    assert PROTOCOLS["grouped"].inputs == "unit range"
    assert [name for name in PROTOCOLS if PROTOCOLS[name].grouped] == ["grouped"]


def test_two_groups_are_split_in_two():
    groups = np.array([5] * 299 + [3])
    for seed in range(4):
        train, test = grouped_split(replace(toy(), groups=groups), seed)
        assert {len(train), len(test)} == {1, 299}


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (toy(), "'toy' has no groups, .*'grouped' splits by; .* are bird-song, lost, msrc-v2; .* a column 'groups'"),
        (images((60, 2, 2), num_train=45), "'toy' has no groups"),
        (replace(toy(), groups=np.zeros(300, int)), "the rows of 'toy' form a single group; at least 2"),
        (
            replace(images((60, 2, 2), num_train=45), groups=np.arange(60) // 14),
            "in 'toy', group 3 has both training and test rows of the publisher's split",
        ),
    ],
)
def test_grouped_refuses(dataset, message):
    for act in (PROTOCOLS["grouped"].check, lambda given: PROTOCOLS["grouped"].rows(given, 0)):
        with pytest.raises(ValueError, match=message):
            act(dataset)
    for name in ("default", "uai2025"):
        PROTOCOLS[name].check(dataset)


def test_uai2025_keeps_the_groups_of_its_rows():
    dataset = toy()
    groups = np.arange(300) // 4
    prepared = uai2025(replace(dataset, groups=groups))
    rows = np.isin(np.array(dataset.classes)[dataset.y], prepared.classes)
    assert np.count_nonzero(~rows) > 0
    np.testing.assert_array_equal(prepared.groups, groups[rows])


@pytest.mark.parametrize(("name", "num_groups"), [("lost", 155), ("bird-song", 1867), ("msrc-v2", 460)])
def test_real_groups(real_files, name, num_groups):
    dataset = real_files(name)
    groups = dataset.groups
    assert groups[0] == 0
    assert np.isin(np.diff(groups), (0, 1)).all()
    assert groups[-1] + 1 == num_groups
    for i in range(1, len(groups)):
        same = (dataset.S[i] == dataset.S[i - 1]).all() and dataset.S[i].sum() > 1
        assert (groups[i] == groups[i - 1]) == same
    for seed in range(10):
        train, test = PROTOCOLS["grouped"].rows(dataset, seed)
        assert not set(groups[train]) & set(groups[test])
        assert abs(len(test) - 0.2 * len(groups)) <= np.bincount(groups).max() / 2
