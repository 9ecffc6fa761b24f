"""Synthetic candidate sets: exact against loops over the same draws, and in the mean against their law."""

import numpy as np
import pytest

from candidly import corrupt

N, C = 2000, 6


def labels(n=N):
    return np.random.default_rng(1).integers(C, size=n)


def probabilities(n=N):
    return np.random.default_rng(2).dirichlet(np.full(C, 0.5), size=n)


def draws(seed, n=N):
    return np.random.Generator(np.random.PCG64(seed)).random((n, C))


def wrong_of(y):
    return np.arange(C) != y[:, None]


def within_bound(S, P):
    """Whether the count of candidates is within five standard deviations of the sum of their probabilities."""
    return abs(S.sum() - P.sum()) <= 5 * np.sqrt((P * (1 - P)).sum())


def literal_law(p, y, rate):
    P = np.zeros((len(y), C))
    for i, t in enumerate(y):
        u = [0.0 if j == t else p[i][j] for j in range(C)]
        u = [value / max(u) for value in u]
        if rate is not None:
            mean = sum(u) / C
            u = [min(1.0, rate * value / mean) for value in u]
        P[i] = u
        P[i, t] = 1
    return P


@pytest.mark.parametrize("q", [0, 0.1, 0.7, 1])
def test_uniform_follows_its_law(q):
    y = labels()
    S = corrupt.uniform(y, C, q, seed=3)
    assert S.shape == (N, C)
    assert S.dtype == bool
    assert S[np.arange(N), y].all()
    wrong = S[wrong_of(y)]
    assert within_bound(wrong, np.full(wrong.shape, float(q)))
    U = draws(3)
    assert S.tolist() == [[j == y[i] or q > U[i, j] for j in range(C)] for i in range(N)]


@pytest.mark.parametrize("rate", [None, 0.8, 0.04])
def test_instance_dependent_follows_its_law(rate):
    p, y = probabilities(), labels()
    S = corrupt.instance_dependent_from(p, y, seed=3, rate=rate)
    P = literal_law(p, y, rate)
    assert S.dtype == bool
    assert S[np.arange(N), y].all()
    U = draws(3)
    assert np.array_equal(S, P > U)
    wrong = wrong_of(y)
    assert within_bound(S[wrong], P[wrong])


def test_text_form_always_adds_the_likeliest_wrong_label():
    p, y = probabilities(), labels()
    S = corrupt.instance_dependent_from(p, y, seed=0)
    assert S[np.arange(N), np.where(wrong_of(y), p, -1).argmax(axis=1)].all()
    assert (S.sum(axis=1) >= 2).all()


@pytest.mark.parametrize("rate", [None, 0.8])
def test_wrong_labels_without_probability(rate):
    y = labels(4)
    sure = np.eye(C)[y]
    assert np.array_equal(corrupt.instance_dependent_from(sure, y, seed=0, rate=rate), sure.astype(bool))
    tiny = np.where(sure > 0, 1.0, 5e-324)
    S = corrupt.instance_dependent_from(tiny, y, seed=0, rate=rate)
    assert np.array_equal(S, literal_law(tiny, y, rate) > draws(0, 4))


def test_seed_decides_and_inputs_stay():
    p, y = probabilities(50), labels(50)
    p_before, y_before = p.copy(), y.copy()
    for make in (
        lambda seed: corrupt.uniform(y, C, 0.5, seed),
        lambda seed: corrupt.instance_dependent_from(p, y, seed),
        lambda seed: corrupt.instance_dependent_from(p.astype(np.float32), y.tolist(), seed, rate=0.4),
    ):
        assert np.array_equal(make(1), make(1))
        assert not np.array_equal(make(1), make(2))
    assert np.array_equal(p, p_before)
    assert np.array_equal(y, y_before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: corrupt.uniform([0, 3], 3, 0.1, 0), "row 1 has label 3; labels must be from 0 to 2"),
        (lambda: corrupt.uniform([-1, 1], 3, 0.1, 0), "row 0 has label -1"),
        (lambda: corrupt.uniform([0.0, 1.0], 3, 0.1, 0), "integer labels"),
        (lambda: corrupt.uniform([[0, 1]], 3, 0.1, 0), "integer labels"),
        (lambda: corrupt.uniform([0, 1], 3, 1.5, 0), "q is 1.5"),
        (lambda: corrupt.uniform([0, 1], 3, float("nan"), 0), "q is nan"),
        (lambda: corrupt.instance_dependent_from([0.5, 0.5], [0], 0), r"p has shape \(2,\)"),
        (lambda: corrupt.instance_dependent_from([[0.5, 0.5]], [0, 1], 0), "p has 1 rows and y has 2"),
        (lambda: corrupt.instance_dependent_from([[0.5, 0.5], [2, -1]], [0, 1], 0), "row 1 of p"),
        (lambda: corrupt.instance_dependent_from([[0.5, np.nan]], [0], 0), "row 0 of p"),
        (lambda: corrupt.instance_dependent_from([[0.5, 0.5]], [0], 0, rate=0), "rate is 0"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
