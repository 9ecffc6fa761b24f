"""New rows for a fitted classifier: missing, renamed, reordered and retyped columns, and new values."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse
import torch

import candidly
from benchmarks.robustness import made
from benchmarks.robustness.case import Case, Expected, either, error, right, warning

FAMILY = "prediction"
N = made.ROWS
_X = made.features
_F = made.frame


def plain(p: Any) -> bool:
    """Check that probabilities equal those of the good rows, for the classifier on arrays."""
    return made.same(p, made.fitted().predict_proba(_X()))


def plain_frame(p: Any) -> bool:
    """Check that probabilities equal those of the good rows, for the classifier on tables."""
    return made.same(p, made.fitted_on_frame().predict_proba(_F()))


def proper(p: Any) -> bool:
    """Check that rows are probabilities."""
    return bool(np.isfinite(p).all() and np.allclose(p.sum(1), 1) and len(p) == N)


def changed(value: Any) -> np.ndarray:
    """Return the good X with one value changed."""
    X = _X().copy()
    X[7, 1] = value
    return X


# new rows for a classifier that was fitted on an array of three columns
ARRAYS: dict[str, tuple[Callable[[], Any], Expected]] = {
    "None": (lambda: None, error("X", "2D")),
    "a text": (lambda: "rows", error("X", "2D")),
    "1-D": (lambda: _X()[0], error("X", "2D")),
    "3-D": (lambda: _X()[None], error("X", "dim")),
    "no rows": (lambda: _X()[:0], error("X", "sample")),
    "too few columns": (lambda: _X()[:, :2], error("X", "features", "column")),
    "too many columns": (lambda: np.hstack([_X(), _X()]), error("X", "features", "column")),
    "infinity": (lambda: changed(np.inf), error("row 7")),
    "a text among numbers": (
        lambda: np.where(np.arange(N * 3).reshape(N, 3) == 22, "x", _X().astype(object)),
        error("row 7", "column 1"),
    ),
    "texts": (lambda: np.full((N, 3), "red"), error("row 0", "column 0")),
    "texts of numbers": (lambda: _X().astype(str), either("column 0", check=plain)),
    "dates": (lambda: np.full((N, 3), np.datetime64("2020-01-01")), error("column 0", "date")),
    "complex": (lambda: _X() * 1j, error("omplex")),
    "1e300": (lambda: changed(1e300), either("row 7", "column 1", check=proper)),
    "-1e308": (lambda: changed(-1e308), either("row 7", "column 1", check=proper)),
    "NaN": (lambda: changed(np.nan), right(proper)),
    "all NaN": (lambda: np.full((N, 3), np.nan), either("X", check=proper)),
    "masked": (
        lambda: np.ma.masked_array(_X(), mask=np.arange(N * 3).reshape(N, 3) == 22),
        right(lambda p: made.same(p, made.fitted().predict_proba(changed(np.nan)))),
    ),
    "float32": (lambda: _X().astype(np.float32), right(plain)),
    "Fortran order": (lambda: np.asfortranarray(_X()), right(plain)),
    "a list": (lambda: _X().tolist(), right(plain)),
    "sparse": (lambda: scipy.sparse.csc_matrix(_X()), right(plain)),
    "a tensor": (lambda: torch.tensor(_X(), requires_grad=True), right(plain)),
    "a meta tensor": (lambda: torch.zeros(N, 3, device="meta"), error("X", "meta")),
    "one row at a time": (
        lambda: _X(),
        right(lambda p: made.same(p, np.vstack([made.fitted().predict_proba(_X()[i : i + 1]) for i in range(N)]))),
    ),
    "reversed rows": (
        lambda: _X()[::-1],
        right(lambda p: made.same(p[::-1].copy(), made.fitted().predict_proba(_X()))),
    ),
    "integers": (
        lambda: np.rint(_X()).astype(int),
        right(lambda p: made.same(p, made.fitted().predict_proba(np.rint(_X())))),
    ),
    "booleans": (
        lambda: _X() > 0,
        either("column", check=lambda p: made.same(p, made.fitted().predict_proba((_X() > 0) * 1.0))),
    ),
    "a table with names": (lambda: pd.DataFrame(_X(), columns=["a", "b", "c"]), either("X", "names", check=plain)),
    "a polars table": (lambda: pl.DataFrame(_X(), schema=["a", "b", "c"]), either("X", "names", check=plain)),
}

# new rows for a classifier that was fitted on a table with the columns a, b and c
FRAMES: dict[str, tuple[Callable[[], Any], Expected]] = {
    "the same": (lambda: _F(), right(plain_frame)),
    "another order": (lambda: _F()[["c", "a", "b"]], right(plain_frame)),
    "a missing column": (lambda: _F()[["a", "b"]], error("'c'")),
    "an additional column": (lambda: _F().assign(d=1), error("'d'")),
    "a renamed column": (lambda: _F().rename(columns={"a": "A"}), error("'a'", "'A'")),
    "a column with a blank": (lambda: _F().rename(columns={"a": "a "}), error("'a'")),
    "a column twice": (lambda: _F()[["a", "a", "b", "c"]], error("'a'")),
    "integer names": (lambda: _F().set_axis([0, 1, 2], axis=1), either("column", "name", check=plain_frame)),
    "an array": (lambda: _F().to_numpy(), either("X", "name", "column", check=plain_frame)),
    "an array of numbers": (lambda: _X(), warning("X", "column", "name")),
    "a new category": (lambda: _F().assign(c=["purple"] * N), right(proper)),
    "a category in upper case": (lambda: _F().assign(c=_F()["c"].str.upper()), right(proper)),
    "missing categories": (lambda: _F().assign(c=[None] * N), right(proper)),
    "numbers as categories": (lambda: _F().assign(c=range(N)), either("'c'", check=proper)),
    "texts as numbers": (lambda: _F().assign(a=["x"] * N), error("'a'")),
    "texts of numbers as numbers": (lambda: _F().assign(a=_F()["a"].astype(str)), either("'a'", check=plain_frame)),
    "decimal commas as numbers": (
        lambda: _F().assign(a=_F()["a"].astype(str).str.replace(".", ",")),
        either("'a'", check=plain_frame),
    ),
    "booleans as numbers": (
        lambda: _F().assign(a=True),
        either("'a'", check=lambda p: made.same(p, made.fitted_on_frame().predict_proba(_F().assign(a=1.0)))),
    ),
    "dates as numbers": (lambda: _F().assign(a=pd.Timestamp("2020-01-01")), error("'a'")),
    "durations as numbers": (lambda: _F().assign(a=pd.Timedelta("1D")), error("'a'")),
    "lists as numbers": (lambda: _F().assign(a=[[1]] * N), error("'a'")),
    "infinity": (lambda: _F().assign(a=np.inf), error("'a'", "row 0")),
    "categorical texts": (lambda: _F().astype({"c": "category"}), right(plain_frame)),
    "polars": (lambda: pl.DataFrame(_F()), right(plain_frame)),
    "Arrow": (lambda: pa.Table.from_pandas(_F()), right(plain_frame)),
    "Arrow dictionary": (
        lambda: pa.table({"a": _F()["a"], "b": _F()["b"], "c": pa.array(_F()["c"]).dictionary_encode()}),
        right(plain_frame),
    ),
    "another index": (lambda: _F().set_index(pd.Index(range(N, 0, -1))), right(plain_frame)),
    "one row at a time": (
        lambda: _F(),
        right(
            lambda p: made.same(p, np.vstack([made.fitted_on_frame().predict_proba(_F().iloc[[i]]) for i in range(N)]))
        ),
    ),
    "no rows": (lambda: _F().iloc[:0], error("sample", "rows", "X")),
}


def fitted_on(columns: Any) -> Any:
    """Fit on a table with other column labels."""
    return made.fit(pd.DataFrame(_X(), columns=columns))


# a classifier that was fitted on columns with these labels, and new rows with those labels in another order
ORDERS: dict[str, Any] = {
    "integers": [0, 1, 2],
    "other integers": [10, 20, 30],
    "floats": [0.5, 1.5, 2.5],
    "tuples": [("a", 1), ("a", 2), ("b", 1)],
    "dates": list(pd.date_range("2020", periods=3)),
    "texts": ["a", "b", "c"],
    "booleans and integers": [True, 2, 3],
}


def _reordered(labels: Any) -> Any:
    X = pd.DataFrame(_X(), columns=labels)
    return fitted_on(labels).predict_proba(X.iloc[:, [2, 0, 1]])


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (make, expected) in ARRAYS.items():
        yield Case(FAMILY, f"array: {name}", lambda make=make: made.fitted().predict_proba(make()), expected)
    for name, (make, expected) in FRAMES.items():
        yield Case(FAMILY, f"table: {name}", lambda make=make: made.fitted_on_frame().predict_proba(make()), expected)
    for name, labels in ORDERS.items():
        yield Case(
            FAMILY,
            f"columns labelled by {name} in another order",
            lambda labels=labels: _reordered(labels),
            either(
                "column",
                "name",
                check=lambda p, labels=labels: made.same(
                    p, fitted_on(labels).predict_proba(pd.DataFrame(_X(), columns=labels))
                ),
            ),
        )
        if name == "integers":  # 0, 1, 2 are the labels of a table without names
            continue
        yield Case(
            FAMILY,
            f"columns labelled by {name} and other labels of that type",
            lambda labels=labels: fitted_on(labels).predict_proba(
                pd.DataFrame(_X(), columns=[*labels[:2], _other(labels[2])])
            ),
            either("column", "name", check=lambda p: False),
        )
    methods = ("predict", "predict_proba", "predict_p", "predict_set", "predict_all", "score", "audit", "save")
    methods += ("clean", "clean_all", "is_trained_on", "reclean")
    arguments: dict[str, tuple[Any, ...]] = {"audit": (), "reclean": (), "save": ("model",)}
    arguments |= dict.fromkeys(("score", "clean", "clean_all", "is_trained_on"), (_X(), made.names()))
    for method in methods:
        yield Case(
            FAMILY,
            f"{method} before fit",
            lambda method=method: getattr(candidly.PartialLabelClassifier(), method)(*arguments.get(method, (_X(),))),
            error("fitted"),
        )
    for name, work in _needing_rows().items():
        yield Case(FAMILY, f"{name} of a loaded model", lambda work=work: work(_loaded()), right(lambda _: True))
        yield Case(
            FAMILY, f"{name} of a lean model", lambda work=work: work(_loaded(lean=True)), error("training rows")
        )
    yield Case(
        FAMILY, "audit of too few rows", lambda: made.fit(_X()[:50], made.names()[:50]).audit(), error("100", "rows")
    )
    yield Case(
        FAMILY,
        "predict_set with a level below the resolution",
        lambda: made.fitted().predict_set(_X(), alpha=1e-9),
        either("alpha", check=lambda sets: sets.all()),
    )
    yield Case(
        FAMILY,
        "predict_p with split and one fold without held-out rows",
        lambda: made.fit(folds=1, validation_fraction=0).predict_p(_X()),
        error("held", "validation_fraction"),
    )
    yield Case(
        FAMILY,
        "predict with max_risk and no held-out rows",
        lambda: made.fit(folds=1, validation_fraction=0).predict(_X(), max_risk=0.1),
        error("held", "validation_fraction"),
    )
    yield Case(FAMILY, "parameters changed after fit", lambda: _changed_after_fit(), right(lambda same: same))


def _changed_after_fit() -> bool:
    classifier = made.fit()
    before = classifier.predict_proba(_X())
    classifier.set_params(folds=7, members=3, method="cc", alpha=0.5, classes=["x"])
    return made.same(before, classifier.predict_proba(_X()))


def _loaded(lean: bool = False) -> Any:
    made.fitted().save("model", lean=lean)
    return candidly.PartialLabelClassifier.load("model")


def _needing_rows() -> dict[str, Callable[[Any], object]]:
    return {
        "audit": lambda classifier: classifier.audit(),
        "reclean": lambda classifier: classifier.reclean(),
        "summarise": lambda classifier: candidly.report.summarise(classifier),
    }


def _other(label: Any) -> Any:
    if isinstance(label, tuple):
        return ("z", 9)
    return (
        label + pd.Timedelta("9D")
        if isinstance(label, pd.Timestamp)
        else label + ("x" if isinstance(label, str) else 70)
    )
