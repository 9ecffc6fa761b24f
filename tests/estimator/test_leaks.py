"""Bags are pointed out where there are some, and only there; leaks are told from equal sets."""

import warnings

import numpy as np
import pytest
from sklearn import datasets
from sklearn.preprocessing import StandardScaler

from candidly import PartialLabelClassifier
from candidly.candidates.bags import find_bags, find_stretches
from candidly.data import corrupt
from candidly.estimator.leaks import measure_leak, point_out_bags

WITHOUT_BAGS = ("digits", "iris", "wine", "breast_cancer", "clouds")
SETS = ("uniform", "of the label", "of the features", "supersets")


def standard(X):
    return np.nan_to_num(StandardScaler().fit_transform(X)).astype(np.float32)


def clouds(n, classes=6, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    return rng.normal(size=(classes, 5))[y] * 2 + noise * rng.normal(size=(n, 5)), y


def made(name, kind):
    """A dataset without bags, in the order of its file, and sets of one kind."""
    X, y = clouds(800) if name == "clouds" else getattr(datasets, f"load_{name}")(return_X_y=True)
    rng, n, classes = np.random.default_rng(0), len(y), int(y.max()) + 1
    true = np.eye(classes, dtype=bool)[y]
    if kind == "uniform":
        return standard(X), np.array(corrupt.uniform(y, num_classes=classes, q=0.3, seed=0)), y
    if kind == "of the label":
        true[np.arange(n), (y + 1) % classes] |= rng.random(n) < 0.6
        return standard(X), true, y
    if kind == "supersets":
        return standard(X), true | (np.argsort(rng.random((n, classes)), axis=1) < rng.integers(classes)), y
    Z = standard(X)
    centres = np.stack([Z[y == j].mean(0) for j in range(classes)])
    distance = ((Z[:, None] - centres) ** 2).mean(-1)
    return Z, true | (distance < 1.3 * distance.min(1, keepdims=True)), y


def orders(X, S, y):
    return {
        "as in the file": np.arange(len(y)),
        "shuffled": np.random.default_rng(1).permutation(len(y)),
        "by class": np.argsort(y, kind="stable"),
        "by set": np.lexsort(S.T),
        "by set, first to last": np.lexsort(S.T[::-1]),
        "by set and class": np.lexsort([y, *S.T]),
        "by class and set": np.lexsort([*S.T, y]),
        "by text": np.argsort(["|".join(map(str, np.flatnonzero(row))) for row in S], kind="stable"),
        "by number of candidates": np.argsort(S.sum(1), kind="stable"),
        "by a feature": np.argsort(X[:, 2], kind="stable"),
    }


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("name", WITHOUT_BAGS)
def test_no_alarm_without_bags(name, kind):
    X, S, y = made(name, kind)
    for order_name, order in orders(X, S, y).items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            point_out_bags(X[order], S[order])
        assert not caught, f"{order_name}: {caught[0].message}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lost", r"rows are sorted by candidate set \(92% .*; features leak, so held-out results flatter"),
        ("bird-song", r"consecutive rows often have the same candidate set \(67% .*; features hardly leak"),
        ("msrc-v2", r"consecutive rows often have the same candidate set \(92% .*; features hardly leak"),
    ],
)
def test_alarm_on_real_files(real_files, name, message):
    dataset = real_files(name)
    X, S = standard(np.asarray(dataset.X).reshape(len(dataset.S), -1)), np.asarray(dataset.S)
    with pytest.warns(UserWarning, match=message):
        point_out_bags(X, S)
    order = np.random.default_rng(0).permutation(len(S))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        point_out_bags(X[order], S[order])


def bags(leak, length=4, n=120, seed=0):
    """Rows in bags that share a candidate set, and features if they leak."""
    X, y = clouds(n * length, noise=0.5, seed=seed)
    rng = np.random.default_rng(seed)
    X += leak * np.repeat(rng.normal(size=(n, X.shape[1])), length, axis=0)
    S = np.eye(6, dtype=bool)[y].reshape(n, length, 6).any(1)  # everybody in the picture
    return standard(X), np.repeat(S, length, axis=0)


@pytest.mark.parametrize(("leak", "found"), [(0.0, "features hardly leak"), (8.0, "features leak, so held-out")])
def test_leaks_are_told(leak, found):
    X, S = bags(leak)
    with pytest.warns(UserWarning, match=f"stretches of up to .*{found}.*--groups") as caught:
        point_out_bags(X, S)
    assert len(caught) == 1
    assert measure_leak(X, S, find_stretches(S)).certain == (leak > 0)


def test_sorted_rows_leak_only_if_rows_next_to_each_other_do():
    X, S = bags(8.0, length=2)
    order = np.lexsort(S.T)  # bags with equal sets are now one stretch
    assert find_stretches(S[order]).by_set
    with pytest.warns(UserWarning, match="rows are sorted by candidate set .*, but also resemble the rows next to"):
        point_out_bags(X[order], S[order])
    within = np.random.default_rng(0).permutation(len(S))
    order = within[np.lexsort(S[within].T)]
    leak = measure_leak(X[order], S[order], find_stretches(S[order]))
    assert not leak.certain
    assert abs(leak.apart - leak.together) < 0.05


def test_repeated_rows_are_no_bags():
    X, S, _ = made("digits", "uniform")
    X, S = np.repeat(X[:300], 4, axis=0), np.repeat(S[:300], 4, axis=0)
    assert find_stretches(S) is not None  # by the sets alone they would be
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        point_out_bags(X, S)
    assert caught == []


def test_large_tables_are_measured_on_some_rows(monkeypatch):
    monkeypatch.setattr("candidly.estimator.leaks._MOST_ROWS", 100)
    monkeypatch.setattr("candidly.estimator.leaks._COMPARED", (200, 300))
    X, S = bags(8.0)
    assert measure_leak(X, S, find_stretches(S)).certain


def test_images_of_bytes():
    X, S = bags(8.0)
    X = (10 * X + 128).clip(0, 255).astype(np.uint8).reshape(-1, 1, 1, X.shape[1])
    with pytest.warns(UserWarning, match="features leak"):
        point_out_bags(X, S)


def test_fit_points_bags_out_unless_there_are_groups():
    X, S = bags(8.0, n=24)  # too few rows to clean, which would cause another warning
    classifier = PartialLabelClassifier(folds=2, max_epochs=1, cleaner=None, device="cpu", random_state=0)
    with pytest.warns(UserWarning, match="as if they came from one scene or recording"):
        plain = classifier.fit(X, S).predict_proba(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grouped = classifier.fit(X, S, groups=find_bags(S)).predict_proba(X)
    assert (plain != grouped).any()
    every = np.arange(2 * len(X)) < len(X)
    rows, sets = np.concatenate([X, X[::-1]]), np.concatenate([S, np.roll(S, 1, axis=1)[::2], S[::2]])
    with pytest.warns(UserWarning, match="100% of the rows, in stretches of up to 4"):
        classifier.fit(rows, sets, sample_weight=every)
