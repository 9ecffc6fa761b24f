"""Synthetic rows with candidate sets and known true labels: the mechanisms on which cleaning is tested.

A problem is a base (rows with true labels), a mechanism (which makes the wrong candidates) and a seed.

- ``uniform-q``: each wrong label with probability q. ``class-q``: with a probability that depends on both labels, q on
  average, at most 0.85.
- ``bags-s``: rows come in bags of 1 + Poisson(s), and all labels of a bag are candidates of each of its rows;
  ``topics-s``: labels that share a bag come from a topic; ``leak-s``, ``leak4-s``: moreover a row's features are mixed
  with a share of 0.2 or 0.35 of the others' in its bag.
- ``inst-r``: with the probability that a linear classifier gives it, at rate r (`candidly.corrupt`).
- ``sys-s``: a third of the classes come with a partner, always the same, with probability s; others at 0.1.
- ``easy-q``: as uniform, but rows that a linear classifier is sure of have a single candidate.
- ``noisy-e``: at 0.15, and the true label is missing with probability e.
"""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from candidly.data import corrupt

BASES = ("blobs", "blobs-large", "blobs-rare", "digits", "digits-blurred", "small", "three", "wide", "wide-rare")
MECHANISMS = {
    "meets the assumptions": (
        "uniform-0.02", "uniform-0.05", "uniform-0.1", "uniform-0.2", "uniform-0.3", "uniform-0.5",
        "class-0.1", "class-0.15", "class-0.2", "bags-1.5", "topics-1.5", "topics-3", "sys-0.6",
    ),
    "does not": (
        "inst-0.05", "inst-0.1", "inst-0.15", "inst-0.2", "leak-1.5", "leak4-2.5", "sys-0.9", "sys-1", "easy-0.15",
        "noisy-0.05", "noisy-0.15",
    ),
}  # fmt: skip

Rows = NDArray[Any]
Labels = NDArray[np.intp]
Sets = NDArray[np.bool_]


def make(base: str, mechanism: str, seed: int) -> tuple[Rows, Sets, Labels]:
    """Return features, candidates and true labels."""
    X, y, C = _base(base, np.random.default_rng([zlib.crc32(base.encode()), seed]))
    rng = np.random.default_rng([zlib.crc32(f"{base}{mechanism}".encode()), seed])
    kind, _, value = mechanism.partition("-")
    number = float(value)
    if kind in ("bags", "topics", "leak", "leak4"):
        X, S = _bags(X, y, C, number, kind != "bags", {"leak": 0.2, "leak4": 0.35}.get(kind, 0.0), rng)
        return X, S, y
    draw = int(rng.integers(2**31))
    if kind == "uniform":
        return X, corrupt.uniform(y, C, number, draw), y
    if kind == "noisy":
        return X, corrupt.noisy(y, C, 0.15, number, draw), y
    if kind == "inst":
        return X, corrupt.instance_dependent_from(_linear(X, y, C), y, draw, rate=number), y
    others = {"class": _class_dependent, "sys": _systematic, "easy": _easy}
    return X, others[kind](X, y, C, number, rng), y


def _base(name: str, rng: np.random.Generator) -> tuple[Rows, Labels, int]:
    if name == "blobs":
        return _blobs(1000, 10, 30, 0.65, 1.0, rng)
    if name == "blobs-large":
        return _blobs(2000, 12, 40, 0.47, 1.0, rng)
    if name == "blobs-rare":  # the rarest class has a tenth of the rows of the most frequent one
        return _blobs(1500, 14, 60, 0.45, 0.1, rng)
    if name == "small":
        return _blobs(300, 5, 10, 0.9, 1.0, rng)
    if name == "three":
        return _blobs(600, 3, 8, 0.8, 1.0, rng)
    if name == "wide":
        return _blobs(4000, 50, 60, 0.5, 1.0, rng)
    if name == "wide-rare":
        return _blobs(5000, 100, 80, 0.55, 0.05, rng)
    n, noise = {"digits": (900, 6.0), "digits-blurred": (1797, 9.0)}[name]
    X, y = load_digits(return_X_y=True)
    rows = rng.permutation(len(X))[:n]
    return _standard(X[rows] + noise * rng.normal(size=(n, 64))), y[rows], 10


def _blobs(
    n: int, C: int, d: int, distance: float, balance: float, rng: np.random.Generator
) -> tuple[Rows, Labels, int]:
    """Draw rows around two centres per class."""
    share = balance ** (np.arange(C) / (C - 1))
    y = rng.choice(C, n, p=share / share.sum())
    centres = distance * rng.normal(size=(C, 2, d))
    return _standard(centres[y, rng.integers(2, size=n)] + rng.normal(size=(n, d))), y, C


def _standard(X: Rows) -> Rows:
    deviation = X.std(0)
    return ((X - X.mean(0)) / np.where(deviation > 0, deviation, 1)).astype(np.float32)


def _linear(X: Rows, y: Labels, C: int) -> Rows:
    """Return out-of-fold probabilities of a linear classifier trained on the true labels."""
    names, plain = np.unique(y, return_inverse=True)
    p = np.full((len(X), C), 1e-6)
    found = cross_val_predict(LogisticRegression(C=0.05, max_iter=200), X, plain, method="predict_proba", cv=3)
    p[:, names] += found
    return p / p.sum(1, keepdims=True)


def _class_dependent(X: Rows, y: Labels, C: int, mean: float, rng: np.random.Generator) -> Sets:
    rate = np.minimum(rng.beta(0.5, 0.5 * (1 - mean) / mean, size=(C, C)), 0.85)
    S: Sets = rng.random((len(y), C)) < rate[y]
    S[np.arange(len(y)), y] = True
    return S


def _systematic(X: Rows, y: Labels, C: int, strength: float, rng: np.random.Generator) -> Sets:
    S = corrupt.uniform(y, C, 0.1, int(rng.integers(2**31)))
    partner = np.roll(np.arange(C), 1)
    for j in rng.permutation(C)[: max(2, C // 3)]:
        rows = y == j
        S[rows, partner[j]] |= rng.random(rows.sum()) < strength
    return S


def _easy(X: Rows, y: Labels, C: int, q: float, rng: np.random.Generator) -> Sets:
    rank = np.argsort(np.argsort(_linear(X, y, C)[np.arange(len(y)), y])) / len(y)
    single = rng.random(len(y)) < 0.9 * rank**2
    S = corrupt.uniform(y, C, q, int(rng.integers(2**31)))
    more = ~single & (S.sum(1) == 1)
    S[more, (y[more] + rng.integers(1, C, more.sum())) % C] = True
    S[single] = np.eye(C, dtype=bool)[y[single]]
    return S


def _bags(
    X: Rows, y: Labels, C: int, size: float, topics: bool, leak: float, rng: np.random.Generator
) -> tuple[Rows, Sets]:
    weights = rng.dirichlet(np.full(C, 0.3), size=max(3, C // 2)) + 0.02 / C
    left = [rng.permutation(np.flatnonzero(y == j)).tolist() for j in range(C)]
    S, mixed = np.zeros((len(y), C), bool), X.copy()
    while any(left):
        there = np.array([bool(rows) for rows in left])
        weight = (weights[rng.integers(len(weights))] if topics else np.ones(C)) * there
        weight = weight if weight.sum() > 0 else there
        drawn = rng.choice(C, size=1 + rng.poisson(size), p=weight / weight.sum())
        rows = np.array([left[j].pop() for j in drawn if left[j]])
        S[np.ix_(rows, np.unique(y[rows]))] = True
        for i in rows if leak and len(rows) > 1 else ():
            mixed[i] = (1 - leak) * X[i] + leak * X[rows[rows != i]].mean(0)
    return _standard(mixed), S
