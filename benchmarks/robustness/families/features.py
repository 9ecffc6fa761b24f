"""X: what `fit` and `predict` accept as features, and what they must refuse."""

import datetime
import decimal
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
from benchmarks.robustness.case import Case, Expected, either, error, right

FAMILY = "features"
NOTHING = object()  # stands for None, which `made.fit` would replace by the good X
ALIKE = "same features"  # in the error about rows that do not differ


def like(plain: Callable[[], Any]) -> Callable[[Any], bool]:
    """Return a check that a classifier equals the one that is fitted on plain X."""
    return lambda classifier: made.same(classifier, made.fit(plain()))


def plain_like(classifier: Any) -> bool:
    """Check that a classifier equals the one that is fitted on the good X."""
    return made.same(classifier, made.fitted())


def finite(classifier: Any) -> bool:
    """Check that probabilities are finite, and that the classifier has learned something from the other columns."""
    return (
        bool(np.isfinite(classifier.candidate_proba_).all()) and classifier.score(made.features(), made.names()) > 0.5
    )


def masked(mask: Any) -> Any:
    """Return the good X as a masked array."""
    return np.ma.masked_array(made.features().copy(), mask=mask)


def missing(rows: slice, column: int) -> np.ndarray:
    """Return the good X with NaN in some rows of a column."""
    X = made.features().copy()
    X[rows, column] = np.nan
    return X


def column(values: Any) -> Any:
    """Return the good X with another column, as a table of pandas."""
    return pd.DataFrame({"a": made.features()[:, 0], "b": made.features()[:, 1], "c": values})


def changed(value: Any, dtype: Any = None) -> Any:
    """Return the good X with one value changed."""
    X = made.features().astype(dtype) if dtype is not None else made.features().copy()
    X[7, 1] = value
    return X


def arrow_column(values: Any) -> Any:
    """Return the good X with another column, as an Arrow table."""
    return pa.table({"a": made.features()[:, 0], "b": made.features()[:, 1], "c": values})


def polars_column(values: Any) -> Any:
    """Return the good X with another column, as a polars table."""
    return pl.DataFrame([pl.Series("a", made.features()[:, 0]), pl.Series("b", made.features()[:, 1]), values])


def plain_score(classifier: Any, X: Any) -> bool:
    """Check that a classifier learned as much from scaled rows as from the good ones."""
    return abs(classifier.score(X, made.names()) - made.fitted().score(made.features(), made.names())) < 0.05


def far(classifier: Any) -> bool:
    """Check that dates 500,000 years apart are told apart: the encoding has two values."""
    X = np.array([["300000-01-01"], ["-200000-01-01"]], dtype="datetime64[D]")
    encoded = classifier.features_.transform(X)
    return bool(np.isfinite(encoded).all() and encoded[0, 0] > 0 > encoded[1, 0])


N = made.ROWS
_X = made.features
_DATES = [datetime.datetime(2020, 1, 1) + datetime.timedelta(days=i) for i in range(N)]

# name: (X, what is expected of fit)
FIT: dict[str, tuple[Callable[[], Any], Expected]] = {
    # shapes
    "None": (lambda: NOTHING, error("X")),
    "a text": (lambda: "rows.csv", error("X", "2D")),
    "a number": (lambda: 3.0, error("X", "2D")),
    "a dict": (lambda: {"a": [1, 2]}, error("X")),
    "a set": (lambda: {1.0, 2.0}, error("X", "2D")),
    "an object": (lambda: object(), error("X", "2D")),
    "a class": (lambda: np.ndarray, error("X", "2D")),
    "a generator": (lambda: ([float(i), 1.0, 2.0] for i in range(N)), error("X", "2D")),
    "1-D": (lambda: _X()[:, 0], error("X", "2D")),
    "3-D": (lambda: np.zeros((N, 2, 3)), error("X", "dim")),
    "0-D": (lambda: np.array(3.0), error("X", "2D")),
    "no rows": (lambda: np.zeros((0, 3)), error("X", "sample")),
    "no columns": (lambda: np.zeros((N, 0)), error("X", "feature")),
    "no columns, pandas": (lambda: pd.DataFrame(index=range(N)), error("X", "feature")),
    "no columns, Arrow": (lambda: pa.table({}), error("X", "feature", "sample")),
    "no columns, sparse": (lambda: scipy.sparse.csr_matrix((N, 0)), error("X", "feature")),
    "one row": (lambda: _X()[:1], error("X")),
    "too few rows": (lambda: _X()[:50], error("X", "y")),
    "too many rows": (lambda: np.vstack([_X(), _X()]), error("X", "y")),
    "transposed": (lambda: _X().T, error("X", "y")),
    "ragged": (lambda: [[1.0, 2.0], [3.0]] * (N // 2), error("X")),
    "ragged objects": (lambda: np.array([[1.0, 2.0], [3.0]] * (N // 2), dtype=object), error("X", "2D")),
    "lists of lists of lists": (lambda: [[[1.0], [2.0]]] * N, error("X", "dim")),
    "empty lists": (lambda: [[] for _ in range(N)], error("X", "feature")),
    "a Series": (lambda: pd.Series(_X()[:, 0]), error("X", "2D")),
    "a polars Series": (lambda: pl.Series(_X()[:, 0]), error("X", "2D")),
    "a lazy polars table": (lambda: pl.DataFrame(_X()).lazy(), error("X", "lazy", "collect")),
    "a memory view": (lambda: memoryview(_X().copy()), either("X", check=plain_like)),
    "a tuple of tuples": (lambda: tuple(map(tuple, _X().tolist())), right(plain_like)),
    "a list of arrays": (lambda: list(_X()), right(plain_like)),
    "a range of columns": (lambda: [range(3)] * N, either(ALIKE, "X", check=finite)),
    "numpy matrix": (lambda: np.asmatrix(_X()), right(plain_like)),
    "a recarray": (lambda: np.rec.fromarrays(_X().T, names="a,b,c"), error("X")),
    "a structured array": (lambda: np.zeros(N, dtype=[("a", float), ("b", float)]), error("X")),
    "a 2-D structured array": (lambda: np.zeros((N, 1), dtype=[("a", float), ("b", float)]), error("X")),
    "Fortran order": (lambda: np.asfortranarray(_X()), right(plain_like)),
    "reversed strides": (lambda: _X()[::-1].copy()[::-1], right(plain_like)),
    "read-only": (lambda: _X(), right(plain_like)),
    "big-endian": (lambda: _X().astype(">f8"), right(plain_like)),
    "float32": (lambda: _X().astype(np.float32), right(plain_like)),
    "float16": (lambda: _X().astype(np.float16), right(like(lambda: _X().astype(np.float16).astype(float)))),
    "long double": (lambda: _X().astype(np.longdouble), right(plain_like)),
    "objects": (lambda: _X().astype(object), right(plain_like)),
    "texts of numbers": (lambda: _X().astype(str), either("X", check=plain_like)),
    "Decimals": (lambda: [[decimal.Decimal(value) for value in row] for row in _X().tolist()], right(plain_like)),
    # values
    "a NaN": (lambda: missing(slice(3, 4), 1), right(like(lambda: masked(np.isnan(missing(slice(3, 4), 1)))))),
    "infinity": (lambda: changed(np.inf), error("row 7")),
    "minus infinity": (lambda: changed(-np.inf), error("row 7")),
    "infinity as text": (lambda: changed("inf", object), error("row 7", "column 1")),
    "infinity in float32": (lambda: changed(1e300).astype(np.float32), error("row 7")),
    "one value of 1e300": (lambda: changed(1e300), either("column 1", "row 7", check=finite)),
    "one value of -1e308": (lambda: changed(-1e308), either("column 1", "row 7", check=finite)),
    "values around 1e300": (lambda: _X() * 1e300, either("column", check=lambda c: plain_score(c, _X() * 1e300))),
    "values around 1e-300": (lambda: _X() * 1e-300, either("column", check=lambda c: plain_score(c, _X() * 1e-300))),
    "values around 1e-310": (lambda: _X() * 1e-310, either("column", check=lambda c: plain_score(c, _X() * 1e-310))),
    "a large offset": (
        lambda: _X() + 1e15,
        either(ALIKE, "column", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "an integer of 400 digits": (lambda: changed(10**400, object), error("column 1")),
    "an integer of 2**70": (
        lambda: changed(2**70, object),
        either("column 1", check=like(lambda: changed(float(2**70)))),
    ),
    "int64 extremes": (
        lambda: (np.sign(_X()) * (2**62)).astype(np.int64),
        right(like(lambda: np.sign(_X()) * 2.0**62)),
    ),
    "uint64 extremes": (
        lambda: (_X() > 0).astype(np.uint64) * np.uint64(2**64 - 1),
        right(like(lambda: (_X() > 0) * 2.0**64)),
    ),
    "int8": (
        lambda: np.clip(np.rint(_X() * 8), -100, 100).astype(np.int8),
        right(like(lambda: np.clip(np.rint(_X() * 8), -100, 100))),
    ),
    "booleans": (lambda: _X() > 0, right(like(lambda: (_X() > 0).astype(float)))),
    "all NaN": (lambda: np.full((N, 3), np.nan), error(ALIKE, "X", "column")),
    "a column of NaN": (lambda: missing(slice(None), 2), either("column 2", check=finite)),
    "constant columns": (
        lambda: np.ones((N, 3)),
        either(ALIKE, "X", "column", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "complex": (lambda: _X() * (1 + 0j), error("omplex")),
    "complex objects": (lambda: changed(1j, object), error("omplex")),
    "bytes": (
        lambda: np.full((N, 3), b"1"),
        either(ALIKE, "X", "bytes", check=lambda c: made.same(c, made.fit(np.ones((N, 3))))),
    ),
    "void": (lambda: np.zeros((N, 3), dtype="V8"), error("X")),
    "dates": (
        lambda: np.array(_DATES, dtype="datetime64[s]")[:, None].repeat(3, 1),
        right(lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "dates and NaT": (
        lambda: np.array([*_DATES[:-1], "NaT"], dtype="datetime64[s]")[:, None].repeat(3, 1),
        right(lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "far dates": (
        lambda: np.array(["300000-01-01", "-200000-01-01"] * (N // 2), dtype="datetime64[D]")[:, None],
        either("X", "column 0", check=far),
    ),
    "dates in years": (
        lambda: np.array([10**9, -(10**9)] * (N // 2), dtype="datetime64[Y]")[:, None],
        error("column 0", "row 0"),
    ),
    "dates in attoseconds": (
        lambda: np.arange(N).astype("datetime64[as]")[:, None],
        either(ALIKE, "column 0", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "durations of years": (
        lambda: np.array([10**15, -(10**15)] * (N // 2), dtype="timedelta64[D]")[:, None],
        error("column 0", "row 0"),
    ),
    "Python dates": (lambda: [[one] for one in _DATES], right(like(lambda: pd.DataFrame({"a": _DATES}).to_numpy()))),
    "the year 1 and 9999": (
        lambda: [[datetime.date(1, 1, 1)], [datetime.date(9999, 12, 31)]] * (N // 2),
        right(lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "dates with and without time zones": (
        lambda: [[datetime.datetime(2020, 1, 1)], [datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)]] * (N // 2),
        either(ALIKE, "column 0", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "dates and numbers": (lambda: [[_DATES[0]], [3.0]] * (N // 2), error("column 0")),
    "dates and texts": (lambda: [[_DATES[0]], ["x"]] * (N // 2), error("column 0")),
    "texts and numbers": (
        lambda: changed("red", object),
        either("column 1", check=like(lambda: changed("red", object).tolist())),
    ),
    "functions": (lambda: changed(len, object), error("column 1", "row 7")),
    "lists in cells": (lambda: np.array([[1.0, [1, 2]]] * N, dtype=object), error("column", "row 0", "X", "dim")),
    "dicts in cells": (lambda: pd.DataFrame({"a": [{"x": 1}] * N}), error("column 'a'")),
    "None in cells": (lambda: changed(None, object), right(like(lambda: changed(np.nan)))),
    "pandas NA": (lambda: changed(pd.NA, object), right(like(lambda: changed(np.nan)))),
    "the text nan": (lambda: changed("nan", object), either("column 1", check=like(lambda: changed(np.nan)))),
    "decimal commas": (
        lambda: np.char.replace(_X().astype(str), ".", ","),
        either("column", check=lambda c: made.same(c.candidates_, made.fitted().candidates_)),
    ),
    "decimal commas in pandas": (
        lambda: column([f"{v:.6f}".replace(".", ",") for v in _X()[:, 2]]),
        either("column 'c'", check=lambda c: made.same(c.candidates_, made.fit(column(_X()[:, 2])).candidates_)),
    ),
    "thousands separators": (
        lambda: column([f"{i:,}" for i in range(1000, 1000 + N * 1000, 1000)]),
        either("column 'c'", check=like(lambda: column(range(1000, 1000 + N * 1000, 1000)))),
    ),
    "a text of 1 MB": (
        lambda: column(["x" * 1_000_000] + ["y"] * (N - 1)),
        either("column 'c'", check=like(lambda: column(["x"] + ["y"] * (N - 1)))),
    ),
    "control characters in texts": (
        lambda: column(["a\x1b[31m\n", "b"] * (N // 2)),
        right(like(lambda: column(["a", "b"] * (N // 2)))),
    ),
    "surrogates in texts": (
        lambda: column(["a\ud800", "b"] * (N // 2)),
        either("column 'c'", check=like(lambda: column(["a", "b"] * (N // 2)))),
    ),
    "a category per row": (
        lambda: column([f"user {i}" for i in range(N)]),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    # masked arrays
    "masked nothing": (lambda: masked(False), right(plain_like)),
    "masked one": (lambda: masked(np.arange(N * 3).reshape(N, 3) == 22), right(like(lambda: missing(slice(7, 8), 1)))),
    "masked infinity": (
        lambda: np.ma.masked_array(changed(np.inf), mask=np.arange(N * 3).reshape(N, 3) == 22),
        right(like(lambda: missing(slice(7, 8), 1))),
    ),
    "masked all": (lambda: masked(True), error(ALIKE, "X", "column")),
    "masked integers": (
        lambda: np.ma.masked_array(np.rint(_X()).astype(int), mask=np.arange(N * 3).reshape(N, 3) == 22),
        right(like(lambda: np.where(np.arange(N * 3).reshape(N, 3) == 22, np.nan, np.rint(_X())))),
    ),
    # tables
    "duplicate names": (lambda: pd.DataFrame(_X(), columns=["a", "a", "b"]), error("'a'", "column")),
    "names of mixed types": (lambda: pd.DataFrame(_X(), columns=["a", 1, "b"]), error("column")),
    "MultiIndex columns": (
        lambda: pd.DataFrame(_X(), columns=pd.MultiIndex.from_product([["a"], [1, 2, 3]])),
        either("column", "name", check=plain_like),
    ),
    "MultiIndex rows": (
        lambda: pd.DataFrame(_X(), columns=list("abc"), index=pd.MultiIndex.from_product([range(N // 2), [0, 1]])),
        right(like(lambda: pd.DataFrame(_X(), columns=list("abc")))),
    ),
    "integer names": (lambda: pd.DataFrame(_X()), right(plain_like)),
    "date names": (lambda: pd.DataFrame(_X(), columns=_DATES[:3]), either("column", "name", check=plain_like)),
    "an empty name": (lambda: pd.DataFrame(_X(), columns=["", "b", "c"]), either("''", "name", check=plain_like)),
    "a long name": (
        lambda: pd.DataFrame(_X(), columns=["x" * 100_000, "b", "c"]),
        either("name", "column", check=plain_like),
    ),
    "control characters in a name": (
        lambda: pd.DataFrame(changed(np.inf), columns=["a", "b\x1b[31m", "c"]),
        error("b\\x1b"),
    ),
    "a name of 5,000 characters in an error": (
        lambda: pd.DataFrame(changed(np.inf), columns=["a", "b" * 5000, "c"]),
        error("bbb"),
    ),
    "another index": (
        lambda: pd.DataFrame(_X(), columns=list("abc"), index=range(N, 0, -1)),
        right(like(lambda: pd.DataFrame(_X(), columns=list("abc")))),
    ),
    "pandas Int64 with NA": (
        lambda: column(pd.array([None, *range(1, N)], dtype="Int64")),
        right(like(lambda: column([np.nan, *range(1, N)]))),
    ),
    "pandas boolean with NA": (
        lambda: column(pd.array([None, *([True, False] * (N // 2))[1:]], dtype="boolean")),
        right(like(lambda: column([np.nan, *([1.0, 0.0] * (N // 2))[1:]]))),
    ),
    "pandas string": (
        lambda: column(pd.array(["a", "b"] * (N // 2), dtype="string")),
        right(like(lambda: column(["a", "b"] * (N // 2)))),
    ),
    "pandas categories of numbers": (
        lambda: column(pd.Categorical([1, 2] * (N // 2))),
        right(like(lambda: column(pd.Categorical(["1", "2"] * (N // 2))))),
    ),
    "pandas sparse": (lambda: column(pd.arrays.SparseArray(_X()[:, 2])), right(like(lambda: column(_X()[:, 2])))),
    "pandas intervals": (
        lambda: column(pd.interval_range(0, N)),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "pandas periods": (
        lambda: column(pd.period_range("2020-01", periods=N, freq="M")),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "pandas complex": (lambda: column(_X()[:, 2] * 1j), error("omplex", "column 'c'")),
    "pandas timestamps with zones": (
        lambda: column(pd.date_range("2020", periods=N, tz="Europe/Paris")),
        right(like(lambda: column(pd.date_range("2020", periods=N, tz="Europe/Paris").tz_convert("UTC")))),
    ),
    "Arrow dictionary with nulls": (
        lambda: arrow_column(pa.array(["a", None, "b"] * (N // 3)).dictionary_encode()),
        right(like(lambda: arrow_column(pa.array(["a", None, "b"] * (N // 3))))),
    ),
    "Arrow dictionary of null values": (
        lambda: arrow_column(
            pa.DictionaryArray.from_arrays(pa.array([0, 1, 2] * (N // 3)), pa.array(["a", None, "b"]))
        ),
        right(like(lambda: arrow_column(pa.array(["a", None, "b"] * (N // 3))))),
    ),
    "Arrow dictionary of numbers with nulls": (
        lambda: arrow_column(pa.array([1, None, 2] * (N // 3)).dictionary_encode()),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "Arrow nulls": (
        lambda: arrow_column(pa.nulls(N)),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "Arrow lists": (lambda: arrow_column(pa.array([[1]] * N)), error("column 'c'")),
    "Arrow structs": (lambda: arrow_column(pa.array([{"x": 1}] * N)), error("column 'c'")),
    "Arrow maps": (
        lambda: arrow_column(pa.array([[("x", 1)]] * N, pa.map_(pa.string(), pa.int64()))),
        error("column 'c'"),
    ),
    "Arrow binary": (
        lambda: arrow_column(pa.array([b"\xff\x00"] * N)),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "Arrow fixed binary": (
        lambda: arrow_column(pa.array([b"ab"] * N, pa.binary(2))),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "Arrow decimal": (
        lambda: arrow_column(pa.array([decimal.Decimal(i) for i in range(N)])),
        right(like(lambda: arrow_column(pa.array(np.arange(N, dtype=float))))),
    ),
    "Arrow decimal256": (
        lambda: arrow_column(pa.array([decimal.Decimal(i) for i in range(N)], pa.decimal256(60, 0))),
        either("column 'c'", check=like(lambda: arrow_column(pa.array(np.arange(N, dtype=float))))),
    ),
    "Arrow times": (
        lambda: arrow_column(pa.array([datetime.time(i % 24) for i in range(N)])),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "Arrow durations": (
        lambda: arrow_column(pa.array(range(N), pa.duration("s"))),
        right(lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "Arrow far timestamps": (
        lambda: arrow_column(pa.array([2**62, -(2**62)] * (N // 2), pa.timestamp("s"))),
        error("column 'c'"),
    ),
    "Arrow nanoseconds": (
        lambda: arrow_column(pa.array(range(N), pa.timestamp("ns"))),
        right(lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "Arrow half floats": (
        lambda: arrow_column(pa.array(_X()[:, 2].astype(np.float16))),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "Arrow months": (
        lambda: arrow_column(pa.array([(1, 2, 3)] * N, pa.month_day_nano_interval())),
        error("column 'c'"),
    ),
    "Arrow string views": (
        lambda: arrow_column(pa.array(["a", "b"] * (N // 2)).cast(pa.string_view())),
        either("column 'c'", check=like(lambda: arrow_column(pa.array(["a", "b"] * (N // 2))))),
    ),
    "Arrow large strings": (
        lambda: arrow_column(pa.array(["a", "b"] * (N // 2), pa.large_string())),
        right(like(lambda: arrow_column(pa.array(["a", "b"] * (N // 2))))),
    ),
    "Arrow run-end encoded": (
        lambda: arrow_column(pa.RunEndEncodedArray.from_arrays(pa.array([60, N], pa.int32()), pa.array([1.0, 2.0]))),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "Arrow batches": (
        lambda: pa.record_batch({"a": _X()[:, 0], "b": _X()[:, 1], "c": _X()[:, 2]}),
        either("X", check=plain_like),
    ),
    "Arrow chunks": (
        lambda: pa.concat_tables([arrow_column(_X()[:, 2]).slice(0, 50), arrow_column(_X()[:, 2]).slice(50)]),
        right(like(lambda: arrow_column(_X()[:, 2]))),
    ),
    "Arrow duplicate names": (lambda: pa.table([_X()[:, 0], _X()[:, 1]], names=["a", "a"]), error("'a'")),
    "Arrow infinity": (lambda: arrow_column(np.where(np.arange(N) == 7, np.inf, 0.0)), error("row 7")),
    "polars Array": (
        lambda: polars_column(pl.Series("c", [[1.0, 2.0]] * N, dtype=pl.Array(pl.Float64, 2))),
        error("column 'c'"),
    ),
    "polars Int128": (
        lambda: polars_column(pl.Series("c", range(N), dtype=pl.Int128)),
        either("column 'c'", check=like(lambda: polars_column(pl.Series("c", range(N))))),
    ),
    "polars lists": (lambda: polars_column(pl.Series("c", [[1]] * N)), error("column 'c'")),
    "polars structs": (lambda: polars_column(pl.Series("c", [{"x": 1}] * N)), error("column 'c'")),
    "polars binary": (
        lambda: polars_column(pl.Series("c", [b"x"] * N)),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "polars Decimal": (
        lambda: polars_column(pl.Series("c", [decimal.Decimal(i) for i in range(N)])),
        right(like(lambda: polars_column(pl.Series("c", np.arange(N, dtype=float))))),
    ),
    "polars Null": (
        lambda: polars_column(pl.Series("c", [None] * N)),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "polars Time": (
        lambda: polars_column(pl.Series("c", [datetime.time(i % 24) for i in range(N)])),
        either("column 'c'", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "polars Enum": (
        lambda: polars_column(pl.Series("c", ["a", "b"] * (N // 2), dtype=pl.Enum(["a", "b"]))),
        right(like(lambda: polars_column(pl.Series("c", ["a", "b"] * (N // 2))))),
    ),
    "polars Categorical with nulls": (
        lambda: polars_column(pl.Series("c", ["a", None] * (N // 2), dtype=pl.Categorical)),
        right(like(lambda: polars_column(pl.Series("c", ["a", None] * (N // 2))))),
    ),
    "polars objects": (lambda: polars_column(pl.Series("c", [object()] * N, dtype=pl.Object)), error("column 'c'")),
    # sparse
    "sparse csr": (lambda: scipy.sparse.csr_matrix(_X()), right(plain_like)),
    "sparse coo with duplicates": (
        lambda: scipy.sparse.coo_array(
            (
                np.r_[_X().ravel() / 2, _X().ravel() / 2],
                (np.r_[np.repeat(np.arange(N), 3), np.repeat(np.arange(N), 3)], np.tile([0, 1, 2], 2 * N)),
            ),
            shape=(N, 3),
        ),
        right(plain_like),
    ),
    "sparse with NaN": (
        lambda: scipy.sparse.csr_matrix(missing(slice(3, 4), 1)),
        right(like(lambda: missing(slice(3, 4), 1))),
    ),
    "sparse with infinity": (lambda: scipy.sparse.csr_matrix(changed(np.inf)), error("row 7")),
    "sparse complex": (lambda: scipy.sparse.csr_matrix(_X() * 1j), error("omplex")),
    "sparse objects": (lambda: _sparse_objects(), error("X", "dtype")),
    "sparse booleans": (lambda: scipy.sparse.csr_matrix(_X() > 0), right(like(lambda: (_X() > 0).astype(float)))),
    "a sparse matrix of a billion columns": (lambda: scipy.sparse.csr_matrix((N, 10**9)), error("X")),
    "a sparse matrix of 20,000 columns": (
        lambda: scipy.sparse.csr_matrix((N, 20_000)),
        either("X", ALIKE, check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "a damaged sparse matrix": (lambda: _damaged_sparse(), error("X")),
    "1-D sparse": (lambda: scipy.sparse.coo_array(_X()[:, 0]), error("X", "2D")),
    # tensors
    "a tensor": (lambda: torch.tensor(_X()), right(plain_like)),
    "a tensor that requires gradients": (lambda: torch.tensor(_X(), requires_grad=True), right(plain_like)),
    "a bfloat16 tensor": (
        lambda: torch.tensor(_X()).bfloat16(),
        right(like(lambda: torch.tensor(_X()).bfloat16().double().numpy())),
    ),
    "a half tensor": (
        lambda: torch.tensor(_X()).half(),
        right(like(lambda: torch.tensor(_X()).half().double().numpy())),
    ),
    "a meta tensor": (lambda: torch.zeros(N, 3, device="meta"), error("X", "meta")),
    "a sparse tensor": (lambda: torch.tensor(_X()).to_sparse(), right(plain_like)),
    "a complex tensor": (lambda: torch.tensor(_X() * 1j), error("omplex")),
    "a quantised tensor": (
        lambda: torch.quantize_per_tensor(torch.tensor(_X()).float(), 0.1, 0, torch.qint8),
        either("X", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "a boolean tensor": (lambda: torch.tensor(_X() > 0), right(like(lambda: (_X() > 0).astype(float)))),
    "a nested tensor": (lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), error("X")),
    "a float8 tensor": (
        lambda: torch.tensor(_X()).float().to(torch.float8_e5m2),
        either("X", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    ),
    "a list of tensors": (lambda: list(torch.tensor(_X())), either("X", check=plain_like)),
    # images
    "images": (lambda: _images(), right(lambda c: np.isfinite(c.candidate_proba_).all())),
    "images of floats": (lambda: np.zeros((N, 3, 8, 8)), error("dim", "image")),
    "images without pixels": (lambda: np.zeros((N, 3, 0, 8), np.uint8), error("feature", "X")),
}


def _images() -> Any:
    return np.random.default_rng(0).integers(0, 255, (N, 3, 8, 8), dtype=np.uint8)


def _sparse_objects() -> Any:
    X = scipy.sparse.csr_matrix(made.features())
    X.data = X.data.astype(object)
    return X


def _damaged_sparse() -> Any:
    X = scipy.sparse.csr_matrix(made.features())
    X.indices[0] = 99
    return X


def _fit(X: Any) -> Any:
    if X is NOTHING:
        return candidly.PartialLabelClassifier(**made.SMALL).fit(None, made.names())
    return made.fit(X)


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (make, expected) in FIT.items():
        yield Case(FAMILY, f"fit on {name}", lambda make=make: _fit(make()), expected, gib=3)
    # The same inputs for the engine, which takes numbers only.
    engine = (
        "None",
        "a text",
        "1-D",
        "0-D",
        "no rows",
        "no columns",
        "too few rows",
        "ragged",
        "texts of numbers",
        "infinity",
        "a NaN",
        "complex",
        "bytes",
        "dates",
        "masked one",
        "one value of 1e300",
        "sparse csr",
        "a meta tensor",
        "a structured array",
        "an integer of 400 digits",
    )
    for name in engine:
        make = FIT[name][0]
        plain = {"sparse csr", "texts of numbers"}
        expected = (
            either("X", check=lambda model: made.same(model, made.trained()))
            if name in plain
            else error("X", "rows", "omplex", "float")
        )
        yield Case(
            FAMILY,
            f"Problem.of with {name}",
            lambda make=make: made.train(made.problem(X=None if make() is NOTHING else make())),
            expected,
            gib=3,
        )
    yield Case(FAMILY, "X is not changed by fit", _unchanged, right(lambda same: same))


def _unchanged() -> bool:
    X = missing(slice(3, 4), 1)
    before, table = X.copy(), column(["a", None] * (N // 2))
    old = table.copy()
    made.fit(X).predict(X)
    made.fit(table).predict(table)
    return made.same(X, before) and old.equals(table)
