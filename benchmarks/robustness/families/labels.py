"""y: candidates in all forms, for `encode`, `fit` and `score`."""

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

FAMILY = "labels"
N = made.ROWS
_S = made.matrix
_NAMES = made.names


def like(plain: Callable[[], Any]) -> Callable[[Any], bool]:
    """Return a check that candidates equal those of plain y."""
    return lambda found: made.same(found, candidly.encode(plain()))


def numbered(found: Any) -> bool:
    """Check that candidates equal the good matrix, with classes 0, 1 and 2."""
    return made.same(found, candidly.Candidates(_S().copy(), (0, 1, 2)))


def named(found: Any) -> bool:
    """Check that candidates equal the good ones."""
    return made.same(found, candidly.encode(_NAMES()))


def changed(row: int, value: Any) -> list[Any]:
    """Return the good candidates with another entry in a row."""
    return [value if i == row else names for i, names in enumerate(_NAMES())]


def frame(**changes: Any) -> pd.DataFrame:
    """Return the good matrix as a table with class names as columns."""
    return pd.DataFrame({name: _S()[:, j] for j, name in enumerate(made.CLASSES)} | changes)


def cell(value: Any, dtype: Any = float) -> np.ndarray:
    """Return the good matrix with another value at (7, 1)."""
    S = _S().astype(dtype)
    S[7, 1] = value
    return S


def label_list(*names: Any) -> list[Any]:
    """Return one plain label per row, cycling through names."""
    return [names[i % len(names)] for i in range(N)]


MASK = np.arange(N * 3).reshape(N, 3) == 22
ENCODE: dict[str, tuple[Callable[[], Any], Expected]] = {
    "None": (lambda: None, error("y")),
    "a text": (lambda: "cat|dog", error("y")),
    "bytes": (lambda: b"cat", error("y")),
    "a number": (lambda: 3, error("y")),
    "a dict": (lambda: {"cat": 1}, error("y")),
    "an object": (lambda: object(), error("y")),
    "nothing": (list, error("y", "rows", "candidates")),
    "an empty array": (lambda: np.zeros((0, 3), bool), error("y", "rows", "candidates")),
    "a 0-d array": (lambda: np.array("cat"), error("y")),
    "a 3-D array": (lambda: np.ones((N, 3, 2), bool), error("y", "shape")),
    "one class": (lambda: label_list("cat"), error("class")),
    "a matrix of one column": (lambda: np.ones((N, 1), bool), error("class")),
    "a matrix without columns": (lambda: np.ones((N, 0), bool), error("class")),
    # rows
    "an empty list": (lambda: changed(7, []), error("row 7")),
    "an empty set": (lambda: changed(7, set()), error("row 7")),
    "an empty text": (lambda: changed(7, ""), error("row 7")),
    "a blank text": (lambda: changed(7, "  "), error("row 7")),
    "None in a row": (lambda: changed(7, None), error("row 7")),
    "NaN in a row": (lambda: changed(7, float("nan")), error("row 7")),
    "NaT in a row": (lambda: changed(7, pd.NaT), error("row 7")),
    "pandas NA in a row": (lambda: changed(7, pd.NA), error("row 7")),
    "None in a list": (lambda: changed(7, ["cat", None]), error("row 7")),
    "an empty name in a list": (lambda: changed(7, ["cat", ""]), error("row 7")),
    "nested lists": (lambda: changed(7, [["cat"]]), error("row 7")),
    "a dict in a row": (lambda: changed(7, {"cat": 0.5}), error("row 7")),
    "an object in a row": (lambda: changed(7, object()), error("row 7", "class")),
    "a generator in a row": (
        lambda: changed(7, (name for name in ["cat"])),
        either("row 7", "class", check=like(lambda: changed(7, ["cat"]))),
    ),
    "the same name twice": (
        lambda: changed(7, ["cat", "cat"]),
        either("row 7", check=like(lambda: changed(7, ["cat"]))),
    ),
    "a row of zeros": (lambda: np.where(np.arange(N)[:, None] == 7, False, _S()), error("row 7")),
    "a list in a text": (lambda: changed(7, "['cat', 'dog']"), warning("row 7", "class", "['cat'")),
    # values of a matrix
    "a matrix of floats 0 and 1": (lambda: _S().astype(float), right(numbered)),
    "a matrix of integers 0 and 1": (lambda: _S().astype(int), right(numbered)),
    "a matrix of uint8": (lambda: _S().astype(np.uint8), right(numbered)),
    "a matrix of objects": (lambda: _S().astype(object), right(numbered)),
    "a matrix of probabilities": (lambda: cell(0.5), error("row 7")),
    "a matrix of 0 and 2": (lambda: _S() * 2, error("row 0")),
    "a matrix of -1 and 1": (lambda: np.where(_S(), 1, -1), error("row")),
    "a matrix with NaN": (lambda: cell(np.nan), error("row 7")),
    "a matrix with infinity": (lambda: cell(np.inf), error("row 7")),
    "a matrix of complex numbers": (lambda: _S() * (1 + 0j), error("y", "complex")),
    "a matrix of texts 0 and 1": (lambda: _S().astype(int).astype(str), warning("y", "row", "class")),
    "a matrix of texts True and False": (lambda: _S().astype(str), warning("y", "row", "class")),
    "a matrix of bytes": (lambda: _S().astype(int).astype("S1"), warning("y", "row", "class")),
    "a matrix with None": (lambda: cell(None, object), error("row 7")),
    "a masked matrix": (lambda: np.ma.masked_array(_S(), mask=MASK), error("mask", "row 7")),
    "a masked matrix without masked values": (lambda: np.ma.masked_array(_S(), mask=False), right(numbered)),
    "a masked row": (
        lambda: np.ma.masked_array(label_list("cat", "dog"), mask=np.arange(N) == 7),
        error("mask", "row 7"),
    ),
    "nested lists of 0 and 1": (lambda: _S().astype(int).tolist(), error("y")),
    "nested lists of booleans": (lambda: _S().tolist(), right(numbered)),
    "dates": (
        lambda: np.array(["2020-01-01", "2020-01-02"] * (N // 2), dtype="datetime64[D]"),
        either("class", "row", "y", check=lambda found: len(found.classes) == 2),
    ),
    "a structured array": (lambda: np.zeros(N, dtype=[("cat", bool), ("dog", bool)]), error("y", "row", "class")),
    # forms
    "sets": (lambda: [set(row) for row in _NAMES()], right(named)),
    "tuples": (lambda: [tuple(row) for row in _NAMES()], right(named)),
    "arrays of names": (lambda: [np.array(row) for row in _NAMES()], right(named)),
    "a generator": (lambda: (row for row in _NAMES()), right(named)),
    "an array of objects": (lambda: pd.Series(_NAMES()).to_numpy(), right(named)),
    "numpy names": (lambda: [[np.str_(name) for name in row] for row in _NAMES()], right(named)),
    "a Series of lists": (lambda: pd.Series(_NAMES(), index=range(N, 0, -1)), right(named)),
    "a polars Series of lists": (lambda: pl.Series(_NAMES()), right(named)),
    "an Arrow column of lists": (lambda: pa.array(_NAMES()), right(named)),
    "Arrow chunks of lists": (lambda: pa.chunked_array([_NAMES()[:50], _NAMES()[50:]]), right(named)),
    "an Arrow column with a null": (lambda: pa.array(changed(7, None)), error("row 7")),
    "an Arrow list with a null": (lambda: pa.array(changed(7, ["cat", None])), error("row 7")),
    "an Arrow dictionary column": (
        lambda: pa.array(label_list("cat", "dog")).dictionary_encode(),
        right(like(lambda: label_list("cat", "dog"))),
    ),
    "an Arrow column of structs": (lambda: pa.array([{"cat": True}] * N), error("row 0", "y")),
    "a categorical Series": (
        lambda: pd.Series(pd.Categorical(label_list("cat", "dog"))),
        right(like(lambda: label_list("cat", "dog"))),
    ),
    "a sparse matrix": (lambda: scipy.sparse.csr_matrix(_S()), right(numbered)),
    "a sparse matrix of 2": (lambda: scipy.sparse.csr_matrix(_S() * 2.0), error("row")),
    "a sparse matrix of a million columns": (
        lambda: scipy.sparse.csr_matrix((N, 10**6), dtype=bool),
        error("row", "class", "y"),
    ),
    "a sparse matrix of 10**9 columns": (
        lambda: scipy.sparse.csr_matrix((N, 10**9), dtype=bool),
        error("row", "class", "y"),
    ),
    "a tensor": (lambda: torch.tensor(_S()), right(numbered)),
    "a tensor of floats": (lambda: torch.tensor(_S()).float(), right(numbered)),
    "a bfloat16 tensor": (lambda: torch.tensor(_S()).bfloat16(), either("y", check=numbered)),
    "a tensor with gradients": (lambda: torch.tensor(_S()).float().requires_grad_(), either("y", check=numbered)),
    "a meta tensor": (lambda: torch.ones(N, 3, device="meta"), error("y", "meta")),
    "a pandas table": (lambda: frame(), right(named)),
    "a pandas table in another order": (
        lambda: frame()[["emu", "cat", "dog"]],
        right(lambda found: [set(row) for row in found.decode()] == [set(row) for row in _NAMES()]),
    ),
    "a pandas table with NaN": (lambda: frame(emu=np.where(np.arange(N) == 7, np.nan, 1.0)), error("row 7")),
    "a pandas table of texts": (lambda: frame(emu=["yes"] * N), error("emu", "row 0", "y", "class")),
    "a pandas table with duplicate columns": (
        lambda: pd.DataFrame(_S(), columns=["cat", "cat", "dog"]),
        error("'cat'"),
    ),
    "a pandas table of one text column": (
        lambda: pd.DataFrame({"tags": made.texts()}),
        warning("separator", "column", "y"),
    ),
    "a polars table": (lambda: pl.DataFrame(frame()), right(named)),
    "an Arrow table": (lambda: pa.table({name: _S()[:, j] for j, name in enumerate(made.CLASSES)}), right(named)),
    "a lazy polars table": (lambda: pl.DataFrame(frame()).lazy(), error("y", "lazy", "collect")),
    # names
    "names that differ by case": (lambda: changed(7, ["Cat"]), warning("Cat")),
    "names that differ by blanks": (lambda: changed(7, ["cat "]), warning("'cat '")),
    "names that differ by a null character": (lambda: changed(7, ["cat\0"]), warning("cat\\x00")),
    "names that differ by their composition": (
        lambda: [["é"], ["e\u0301"], ["a"]] * (N // 3),
        warning("é", "e\u0301", "\\u0301"),
    ),
    "names that differ by a no-break space": (
        lambda: [["a b"], ["a\u00a0b"], ["c"]] * (N // 3),
        warning("a b", "\\xa0"),
    ),
    "names that differ by a zero-width space": (
        lambda: [["ab"], ["a\u200bb"], ["c"]] * (N // 3),
        warning("ab", "\\u200b"),
    ),
    "texts with separators": (lambda: made.texts(), warning("separator")),
    "texts with commas": (lambda: made.texts(","), warning("separator")),
    "texts with semicolons": (lambda: made.texts("; "), warning("separator")),
    "names of mixed types": (lambda: changed(7, [3]), error("type", "class")),
    "numbers and texts of numbers": (lambda: [[1], ["1"], [2]] * (N // 3), error("type", "class")),
    "booleans and integers": (lambda: [[1], [True], [2]] * (N // 3), warning("bool", "True")),
    "floats and integers": (
        lambda: [[1], [1.5], [2]] * (N // 3),
        either("class", check=lambda found: found.classes == (1, 1.5, 2)),
    ),
    "infinite names": (
        lambda: [[1.0], [float("inf")], [2.0]] * (N // 3),
        either("inf", check=lambda found: found.classes == (1.0, 2.0, float("inf"))),
    ),
    "names 2**63 and -1": (
        lambda: [[2**63], [-1], [0]] * (N // 3),
        either("class", str(2**63), check=lambda found: found.classes == (-1, 0, 2**63)),
    ),
    "names of 10**400": (
        lambda: [[10**400], [-1]] * (N // 2),
        either("class", check=lambda found: found.classes == (-1, 10**400)),
    ),
    "complex names": (lambda: [[1j], [2j]] * (N // 2), error("class")),
    "tuples as names": (
        lambda: [[("a", "b")], [("c", "d")]] * (N // 2),
        either("class", "row 0", check=lambda found: found.classes == (("a", "b"), ("c", "d"))),
    ),
    "bytes as names": (
        lambda: [[b"a"], [b"b"]] * (N // 2),
        either("class", "row 0", check=lambda found: found.classes == (b"a", b"b")),
    ),
    "names of 100,000 characters": (
        lambda: [["a" * 100_000], ["b" * 100_000]] * (N // 2),
        either("class", check=lambda found: len(found.classes[0]) == 100_000),
    ),
    "control characters in names": (
        lambda: [["a\x1b[31m"], ["b"]] * (N // 2),
        right(lambda found: found.classes == ("a\x1b[31m", "b")),
    ),
    "surrogates in names": (
        lambda: [["a\ud800"], ["b"]] * (N // 2),
        either("a\\ud800", check=lambda found: found.classes[0] == "a\ud800"),
    ),
    "the names nan and None": (
        lambda: [["nan"], ["None"]] * (N // 2),
        either("nan", "None", check=lambda found: found.classes == ("None", "nan")),
    ),
    "NumPy integers": (lambda: list(np.array([1, 2, 3] * (N // 3))), right(like(lambda: [1, 2, 3] * (N // 3)))),
    "an array of integers": (lambda: np.array([1, 2, 3] * (N // 3)), right(like(lambda: [1, 2, 3] * (N // 3)))),
    "an array of uint64": (
        lambda: np.array([2**64 - 1, 1] * (N // 2), dtype=np.uint64),
        right(lambda found: found.classes == (1, 2**64 - 1)),
    ),
    "a column of labels": (
        lambda: np.array(label_list("cat", "dog"))[:, None],
        either("y", "shape", check=like(lambda: label_list("cat", "dog"))),
    ),
}

# Forms of y that only `fit` refuses, because they depend on X, and those in which the answer of `fit` differs.
FIT: dict[str, tuple[Callable[[], Any], Expected]] = {
    "too few rows": (lambda: _NAMES()[:-1], error("y")),
    "too many rows": (lambda: [*_NAMES(), ["cat"]], error("y")),
    "a transposed matrix": (lambda: _S().T, error("y")),
    "dates": (lambda: np.array(["2020-01-01", "2020-01-02"] * (N // 2), dtype="datetime64[D]"), error("class", "y")),
    "infinite names": (
        lambda: [[1.0], [float("inf")], [2.0]] * (N // 3),
        either("inf", check=lambda c: list(c.classes_) == [1.0, 2.0, float("inf")]),
    ),
    "floats as labels": (lambda: np.linspace(0, 1, N), error("y", "label")),
    "every row a class": (
        lambda: [f"class {i}" for i in range(N)],
        either("class", check=lambda c: len(c.classes_) == N),
    ),
    "another index": (
        lambda: pd.Series(_NAMES(), index=range(N, 0, -1)),
        either("index", "y", check=lambda c: made.same(c, made.fitted())),
    ),
    "Candidates": (lambda: candidly.encode(_NAMES()), right(lambda c: made.same(c, made.fitted()))),
    "float class names": (
        lambda: [[0.5], [1.5], [2.5]] * (N // 3),
        either(
            "class",
            check=lambda c: list(c.classes_) == [0.5, 1.5, 2.5] and set(c.predict(made.features())) <= {0.5, 1.5, 2.5},
        ),
    ),
    "class names 2**63 and -1": (
        lambda: [[2**63], [-1], [0]] * (N // 3),
        either(
            "class",
            str(2**63),
            check=lambda c: (
                [int(name) for name in c.classes_] == [-1, 0, 2**63]
                and set(map(int, c.predict(made.features()))) <= {-1, 0, 2**63}
            ),
        ),
    ),
    "class names of 30 digits": (
        lambda: [[10**30], [10**30 + 1]] * (N // 2),
        either("class", check=lambda c: [int(name) for name in c.classes_] == [10**30, 10**30 + 1]),
    ),
    "booleans as labels": (
        lambda: [True, False] * (N // 2),
        right(lambda c: set(c.predict(made.features()).tolist()) <= {True, False}),
    ),
    "names with trailing null characters": (lambda: [["a\0"], ["b"]] * (N // 2), error("a\\x00")),
    "names of different lengths": (
        lambda: [["a"], ["a much longer name"]] * (N // 2),
        right(lambda c: set(c.predict(made.features())) <= {"a", "a much longer name"}),
    ),
    "all rows the same candidates": (
        lambda: [["cat", "dog"]] * N,
        either("y", "candidates", check=lambda c: c.candidates_.matrix.all()),
    ),
    "all classes in all rows": (
        lambda: np.ones((N, 3), bool),
        either("y", "candidates", check=lambda c: c.candidates_.matrix.any(1).all()),
    ),
}
SAME_IN_FIT = (
    "a text",
    "a number",
    "nothing",
    "a 3-D array",
    "an empty list",
    "None in a row",
    "NaN in a row",
    "nested lists",
    "a row of zeros",
    "a matrix of probabilities",
    "a matrix with NaN",
    "a matrix with infinity",
    "a masked matrix",
    "nested lists of 0 and 1",
    "texts with separators",
    "texts with commas",
    "names that differ by case",
    "names that differ by blanks",
    "names of mixed types",
    "a meta tensor",
    "a matrix of complex numbers",
    "one class",
    "an object",
    "complex names",
    "a matrix of texts 0 and 1",
)

# y for `score` of a classifier with classes cat, dog and emu
SCORE: dict[str, tuple[Callable[[], Any], Expected]] = {
    "the good y": (lambda: _NAMES(), right(lambda score: score == _score())),
    "a matrix": (lambda: _S(), right(lambda score: score == _score())),
    "too few rows": (lambda: _NAMES()[:-1], error("y")),
    "no rows": (list, error("y")),
    "None": (lambda: None, error("y")),
    "a text": (lambda: "cat", error("y")),
    "a number": (lambda: 3, error("y")),
    "class numbers": (lambda: made.truth(), error("y", "class", "type")),
    "texts of class numbers": (lambda: made.truth().astype(str), either("y", "class", check=lambda score: score == 0)),
    "bytes": (lambda: np.array(made.CLASSES)[made.truth()].astype("S3"), error("y", "class", "type")),
    "upper case": (lambda: [name.upper() for name in np.array(made.CLASSES)[made.truth()]], error("y", "class")),
    "texts with separators": (lambda: made.texts(), warning("separator")),
    "one unknown class": (lambda: changed(7, ["owl"]), right(lambda score: abs(score - _score()) <= 1 / N + 1e-9)),
    "only unknown classes": (lambda: ["owl"] * N, either("y", "class", check=lambda score: score == 0)),
    "a matrix of another width": (lambda: np.ones((N, 4), bool), error("y", "class")),
    "a matrix of probabilities": (lambda: cell(0.5), error("row 7")),
    "a masked matrix": (lambda: np.ma.masked_array(_S(), mask=MASK), error("mask", "row 7")),
    "booleans": (lambda: made.truth() == 1, error("y", "class", "type")),
    "NaN in a row": (lambda: changed(7, float("nan")), error("row 7")),
    "an empty row": (lambda: changed(7, []), error("row 7")),
    "a matrix with an empty row": (lambda: np.where(np.arange(N)[:, None] == 7, False, _S()), error("row 7")),
    "Candidates": (lambda: candidly.encode(_NAMES()), right(lambda score: score == _score())),
    "Candidates of other classes": (lambda: candidly.Candidates(_S(), (0, 1, 2)), error("y", "class")),
    "a table of other classes": (lambda: pd.DataFrame(_S(), columns=["x", "y", "z"]), error("y", "class")),
}


def _score() -> float:
    return made.fitted().score(made.features(), _NAMES())


def _fit(y: Any) -> Any:
    return candidly.PartialLabelClassifier(**made.SMALL).fit(made.features(), y)


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (make, expected) in ENCODE.items():
        yield Case(FAMILY, f"encode {name}", lambda make=make: candidly.encode(make()), expected, gib=3)
    for name in SAME_IN_FIT:
        make, expected = ENCODE[name]
        yield Case(FAMILY, f"fit with y of {name}", lambda make=make: _fit(make()), expected, gib=3)
    for name, (make, expected) in FIT.items():
        yield Case(FAMILY, f"fit with y of {name}", lambda make=make: _fit(make()), expected, gib=3)
    for name, (make, expected) in SCORE.items():
        yield Case(
            FAMILY, f"score with y of {name}", lambda make=make: made.fitted().score(made.features(), make()), expected
        )
    for name in ("class numbers", "upper case", "only unknown classes", "too few rows", "None", "a number", "a matrix"):
        make = SCORE[name][0]
        yield Case(
            FAMILY,
            f"evaluate with y of {name}",
            lambda make=make: candidly.evaluate(made.fitted(), made.features(), make()),
            error("y", "label", "class"),
        )
    separators = {
        "empty parts": (["cat||dog", "cat"], "|", error("row 0")),
        "only a separator": (["|", "cat|dog"], "|", error("row 0")),
        "blank rows": ([" ", "cat|dog"], "|", error("row 0")),
        "lists beside texts": ([["cat"], "cat|dog"], "|", error("row 0")),
        "numbers beside texts": ([3, "cat|dog"], "|", error("row 0")),
        "None beside texts": ([None, "cat|dog"], "|", error("row 0")),
        "a matrix": (np.eye(2, dtype=bool), "|", error("separator")),
        "blanks around names": (
            [" cat | dog ", "cat"],
            "|",
            right(lambda found: found.decode() == [("cat", "dog"), ("cat",)]),
        ),
        "a separator of two characters": (
            ["cat::dog", "cat"],
            "::",
            right(lambda found: found.decode() == [("cat", "dog"), ("cat",)]),
        ),
        "a blank as separator": (
            ["cat dog", "cat"],
            " ",
            right(lambda found: found.decode() == [("cat", "dog"), ("cat",)]),
        ),
        "another separator in all texts": (["cat;dog", "cat;emu", "emu;dog"], "|", warning("separator", ";")),
    }
    for name, (y, separator, expected) in separators.items():
        yield Case(
            FAMILY,
            f"encode texts with {name}",
            lambda y=y, separator=separator: candidly.encode(y, separator=separator),
            expected,
        )
