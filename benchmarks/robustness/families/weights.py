"""Weights of rows (`sample_weight`) and of candidates (`weights`), and groups of rows (`groups`)."""

import decimal
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch

import candidly
from benchmarks.robustness import made
from benchmarks.robustness.case import Case, Expected, either, error, right

FAMILY = "weights"
N = made.ROWS


def ones(**changes: Any) -> np.ndarray:
    """Return a weight of 1 per row; ``at7`` changes that of row 7."""
    weights = np.ones(N)
    weights[7] = changes.get("at7", 1)
    return weights


def plain(result: Any) -> bool:
    """Check that equal weights have no effect on the score."""
    return result == made.fitted().score(made.features(), made.names())


def equal(result: Any) -> bool:
    """Check that equal weights have no effect, on a fit or on a score."""
    return plain(result) if isinstance(result, float) else made.same(result, made.fit(sample_weight=np.ones(N)))


ROWS: dict[str, tuple[Callable[[], Any], Expected]] = {
    "negative": (lambda: ones(at7=-1), error("weight")),
    "NaN": (lambda: ones(at7=math.nan), error("weight")),
    "infinite": (lambda: ones(at7=math.inf), error("weight")),
    "all zero": (lambda: np.zeros(N), error("weight")),
    "too few": (lambda: np.ones(N - 1), error("weight")),
    "too many": (lambda: np.ones(N + 1), error("weight")),
    "a column": (lambda: np.ones((N, 1)), error("weight")),
    "a matrix": (lambda: np.ones((N, 3)), error("weight")),
    "texts": (lambda: ["1"] * N, either("weight", check=equal)),
    "a text": (lambda: "balanced", error("weight")),
    "complex": (lambda: np.ones(N) * 1j, error("weight")),
    "objects": (lambda: [object()] * N, error("weight")),
    "None inside": (lambda: [None, *[1.0] * (N - 1)], error("weight")),
    "dates": (lambda: np.ones(N, dtype="datetime64[D]"), error("weight")),
    "a dict": (lambda: {0: 1.0}, error("weight")),
    "masked": (lambda: np.ma.masked_array(np.ones(N), mask=np.arange(N) == 7), error("weight", "mask")),
    "huge": (lambda: ones(at7=1e300), error("weight")),
    "1e-320": (lambda: np.full(N, 1e-320), either("weight", check=equal)),
    "a generator": (lambda: (1.0 for _ in range(N)), error("weight")),
    "a meta tensor": (lambda: torch.ones(N, device="meta"), error("weight")),
}
EQUAL: dict[str, tuple[Callable[[], Any], Expected]] = {
    "ones": (lambda: ones(), right(plain)),
    "a list of ones": (lambda: [1] * N, right(plain)),
    "booleans": (lambda: np.ones(N, bool), either("weight", check=plain)),
    "a Series with another index": (lambda: pd.Series(np.ones(N), index=range(N, 0, -1)), right(plain)),
    "a tensor": (lambda: torch.ones(N), either("weight", check=plain)),
    "Decimals": (lambda: [decimal.Decimal(1)] * N, either("weight", check=plain)),
    "a number": (lambda: 2.0, either("weight", check=plain)),
    "int8": (lambda: np.ones(N, np.int8), right(plain)),
}

CANDIDATES: dict[str, tuple[Callable[[], Any], Expected]] = {
    "negative": (lambda: -np.ones((N, 3)), error("weights")),
    "NaN": (lambda: np.full((N, 3), math.nan), error("weights")),
    "infinite": (lambda: np.full((N, 3), math.inf), error("weights")),
    "another shape": (lambda: np.ones((N, 4)), error("weights")),
    "transposed": (lambda: np.ones((3, N)), error("weights")),
    "a vector": (lambda: np.ones(N), error("weights")),
    "texts": (lambda: [["1", "1", "1"]] * N, error("weights")),
    "a text": (lambda: "votes", error("weights")),
    "complex": (lambda: np.ones((N, 3)) * 1j, error("weights")),
    "objects": (lambda: np.full((N, 3), None), error("weights")),
    "masked": (lambda: np.ma.masked_array(np.ones((N, 3)), mask=np.eye(N, 3, dtype=bool)), error("weights", "mask")),
    "huge": (
        lambda: np.full((N, 3), 1e300),
        either("weights", check=lambda c: made.same(c, made.fit(weights=np.ones((N, 3))))),
    ),
    "tiny": (
        lambda: np.full((N, 3), 1e-300),
        either("weights", check=lambda c: made.same(c, made.fit(weights=np.ones((N, 3))))),
    ),
    "zero": (
        lambda: np.zeros((N, 3)),
        either("weights", check=lambda c: made.same(c, made.fit(weights=np.ones((N, 3))))),
    ),
    "a list": (lambda: np.ones((N, 3)).tolist(), right(lambda c: made.same(c, made.fit(weights=np.ones((N, 3)))))),
    "integers": (lambda: np.ones((N, 3), int), right(lambda c: made.same(c, made.fit(weights=np.ones((N, 3)))))),
    "a table of classes in another order": (
        lambda: pd.DataFrame(np.arange(1, 1 + N * 3).reshape(N, 3), columns=["emu", "dog", "cat"]),
        either(
            "weights",
            check=lambda c: made.same(c, made.fit(weights=np.arange(1, 1 + N * 3).reshape(N, 3)[:, ::-1].copy())),
        ),
    ),
}

TENS = np.arange(N) // 10  # the groups that others are compared with


def by_tens(result: Any) -> bool:
    """Check that rows were grouped by tens."""
    return made.same(result, made.fit(groups=TENS))


def ungrouped(result: Any) -> bool:
    """Check that every row was a group by itself."""
    return made.same(result, made.fit())


GROUPS: dict[str, tuple[Callable[[], Any], Expected]] = {
    "too few": (lambda: TENS[1:], error("groups")),
    "too many": (lambda: [*TENS, 0], error("groups")),
    "one group": (lambda: np.zeros(N, int), error("groups")),
    "a matrix": (lambda: np.stack([TENS, TENS], 1), error("groups")),
    "a text": (lambda: "scene", error("groups")),
    "a number": (lambda: 3, error("groups")),
    "a dict": (lambda: dict.fromkeys(range(N), 0), error("groups")),
    "a set": (lambda: set(range(N)), error("groups")),
    "an object": (object, error("groups")),
    "lists inside": (lambda: [[group] for group in TENS], error("groups")),
    "another index": (lambda: pd.Series(TENS, index=[f"r{i}" for i in range(N)]), right(by_tens)),
    "a list": (lambda: TENS.tolist(), right(by_tens)),
    "texts": (lambda: [f"scene {group}" for group in TENS], right(by_tens)),
    "texts in a Series": (lambda: pd.Series(TENS).astype(str), right(by_tens)),
    "categories": (lambda: pd.Series(TENS).astype(str).astype("category"), right(by_tens)),
    "floats": (lambda: TENS / 2, right(by_tens)),
    "tuples": (lambda: [("a", int(group)) for group in TENS], right(by_tens)),
    "dates": (lambda: np.datetime64("2020-01-01") + TENS, right(by_tens)),
    "a tensor": (lambda: torch.from_numpy(TENS), either("groups", check=by_tens)),
    "a column": (lambda: TENS[:, None], either("groups", check=by_tens)),
    "a generator": (lambda: iter(TENS.tolist()), either("groups", check=by_tens)),
    "a meta tensor": (lambda: torch.ones(N, device="meta"), error("groups")),
    "None": (lambda: [None] * N, right(ungrouped)),
    "NaN": (lambda: np.full(N, math.nan), right(ungrouped)),
    "blank texts": (lambda: [" "] * N, right(ungrouped)),
    "masked": (lambda: np.ma.masked_array(TENS, mask=np.ones(N, bool)), right(ungrouped)),
    "row numbers": (lambda: range(N), right(ungrouped)),
}


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (make, expected) in GROUPS.items():
        yield Case(FAMILY, f"fit with groups {name}", lambda make=make: made.fit(groups=make()), expected)
    for name, (make, expected) in ROWS.items():
        yield Case(FAMILY, f"fit with sample_weight {name}", lambda make=make: made.fit(sample_weight=make()), expected)
    scores = {
        "score": lambda weights: made.fitted().score(made.features(), made.names(), weights),
        "covering_rate": lambda weights: candidly.scoring.covering_rate(
            made.fitted(), made.features(), made.names(), weights
        ),
        "approximated_accuracy": lambda weights: candidly.scoring.approximated_accuracy(
            made.fitted(), made.features(), made.names(), weights
        ),
    }
    for score, act in scores.items():
        for name, (make, expected) in (ROWS | (EQUAL if score == "score" else {})).items():
            if score == "approximated_accuracy" and name in ("texts", "1e-320"):
                continue
            if name == "huge":  # a score is a weighted mean, in which this row decides
                expected = either("weight", check=lambda result: 0 <= result <= 1)
            yield Case(FAMILY, f"{score} with sample_weight {name}", lambda make=make, act=act: act(make()), expected)
    for name, (make, expected) in CANDIDATES.items():
        yield Case(FAMILY, f"fit with weights {name}", lambda make=make: made.fit(weights=make()), expected)
    yield Case(
        FAMILY,
        "a weight of 2 is like a repeated row",
        lambda: made.fit(sample_weight=ones(at7=2)),
        right(lambda c: np.isfinite(c.candidate_proba_).all() and len(c.candidates_) == N),
    )
