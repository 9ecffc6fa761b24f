"""Candidate sets: conversion from every form, checks, statistics."""

import warnings
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from candidly.candidates import Candidates, check, encode

MATRIX = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 1]], dtype=bool)
NAMES = [("a", "b"), ("b",), ("a", "c")]


@pytest.mark.parametrize(
    "y",
    [
        NAMES,
        [list(row) for row in NAMES],
        [set(row) for row in NAMES],
        [frozenset(row) for row in NAMES],
        [np.array(row) for row in NAMES],
        np.array([list(row) for row in NAMES], dtype=object),
        (row for row in NAMES),
        [["b", "a", "a"], "b", {"c", "a"}],
        Candidates(MATRIX, ("a", "b", "c")),
    ],
)
def test_names_per_row(y):
    S = encode(y)
    assert S.classes == ("a", "b", "c")
    assert np.array_equal(S.matrix, MATRIX)
    assert S.decode() == NAMES


@pytest.mark.parametrize(
    "y",
    [
        MATRIX,
        MATRIX.astype(np.uint8),
        MATRIX.astype(float),
        MATRIX.astype(object),
        MATRIX.tolist(),
        list(MATRIX),
        torch.tensor(MATRIX),
        list(torch.tensor(MATRIX)),
        scipy.sparse.csr_matrix(MATRIX.astype(int)),
        scipy.sparse.coo_array(MATRIX),
    ],
)
def test_matrices(y):
    assert encode(y) == Candidates(MATRIX, (0, 1, 2))
    assert encode(y, classes=["x", "y", "z"]) == Candidates(MATRIX, ("x", "y", "z"))


def test_matrix_takes_column_names_of_a_frame():
    class Frame:
        columns = ("x", "y", "z")

        def __array__(self, dtype=None, copy=None):
            return MATRIX

    assert encode(Frame()).classes == ("x", "y", "z")
    assert encode(Frame(), classes=["p", "r", "q"]).classes == ("p", "r", "q")


@pytest.mark.parametrize("y", [[2, 0, 7], np.array([2, 0, 7]), torch.tensor([2, 0, 7]), [[2], [0], [7]]])
def test_plain_labels_are_single_candidates(y):
    S = encode(y)
    assert S.classes == (0, 2, 7)
    assert all(type(name) is int for name in S.classes)
    assert S.matrix.tolist() == [[False, True, False], [True, False, False], [False, False, True]]


def test_string_arrays():
    assert encode(np.array(["b", "a"])).decode() == [("b",), ("a",)]
    assert encode(np.array([["b", "a"], ["a", "a"]])).decode() == [("a", "b"), ("a",)]
    assert all(type(name) is str for name in encode(np.array(["b", "a"])).classes)


def test_strings_are_split_only_with_a_separator():
    assert encode(["a|b", "b"]).classes == ("a|b", "b")
    assert encode([" a | b", "b "], separator="|").decode() == [("a", "b"), ("b",)]
    assert encode(["a, b", "b"], separator=", ").decode() == [("a", "b"), ("b",)]
    assert encode(np.array(["b c", "c"]), separator=" ").decode() == [("b", "c"), ("c",)]


def test_classes_fix_the_order():
    S = encode([["b", "a"], ["c"]], classes=["c", "b", "a", "unused"])
    assert S.classes == ("c", "b", "a", "unused")
    assert S.matrix.tolist() == [[False, True, True, False], [True, False, False, False]]
    again = encode(S, classes=["a", "b", "c"])
    assert again.classes == ("a", "b", "c")
    assert again.decode() == [("a", "b"), ("c",)]
    assert encode(S, classes=S.classes) is S


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([["a"], [], ["b"]],), "row 1 has no candidates; drop it or list at least one class for it"),
        ((np.array([[1, 0], [0, 0], [0, 0]]),), r"row 1 has no candidates \(and 1 more rows\)"),
        (([["a"], ["b", "x"]], ["a", "b"]), "row 1 names 'x', which is not in classes"),
        ((encode([["a"], ["b"]]), ["b", "c"]), "row 0 names 'a', which is not in classes"),
        ((["a||b", "a"], None, "|"), "row 0 is 'a||b', with an empty name"),
        ((["a|b", "|a"], None, "|"), "row 1 is '|a', with an empty name"),
        ((["a|b", "a| "], None, "|"), "row 1 is 'a| ', with an empty name"),
        ((["a|b", " "], None, "|"), "row 1 has no candidates"),
        ((["a|b", ["a"]], None, "|"), r"row 1 is \['a'\], not a string"),
        ((MATRIX, None, "|"), "y is a matrix"),
        ((["a", "b"], None, ""), "separator is empty"),
        (([["a", " "], ["b"]],), "row 0 holds an empty name"),
        (([["a"], ["b", None]],), "row 1 holds a missing name"),
        (([1.0, float("nan")],), "row 1 holds a missing name"),
        (([["a", ["b"]], ["c"]],), r"row 0 holds \['b'\], which is no class name"),
        (([{"a": 2, "b": 0}, ["b"]],), "row 0 is a mapping"),
        (([["a", 1], ["b"]],), "types int, str cannot be sorted"),
        (([[0, 1, 1], [1, 0, 0]],), "could be a matrix or lists of class names"),
        (([[0, 1], [1, 0]],), "pass numpy.array"),
        ((np.array([[1, 0], [0, 2]]),), "row 1 holds 2"),
        ((np.array([[1.0, np.nan], [0, 1]]),), "row 0 holds nan"),
        ((MATRIX, ["a", "b"]), "2 class names for 3 columns"),
        ((MATRIX, ["a", "b", "a"]), "class 'a' is listed twice"),
        ((MATRIX, ["a", "b", None]), r"classes\[2\] holds a missing name"),
        ((MATRIX, "abc"), "classes is the single text 'abc'"),
        ((MATRIX[None],), r"shape \(1, 3, 3\)"),
        ((MATRIX[:, :1],), "number of classes is 1"),
        ((MATRIX[:0],), "no rows"),
        ((["a", "a"],), "list all with classes="),
        (([],), "no rows"),
        (("a|b",), "y is a str"),
        (({"a": 1},), "y is a dict"),
        ((3,), "y is a int"),
        ((np.array(3),), "single value"),
    ],
)
def test_errors_name_the_place(arguments, message):
    with pytest.raises(ValueError, match=message):
        encode(*arguments)


def test_check_refuses_other_types_and_warns_when_nothing_can_be_learned():
    with pytest.raises(ValueError, match="dtype int64"):
        check(MATRIX.astype(np.int64))
    with pytest.raises(ValueError, match="two-dimensional"):
        check(MATRIX[0])
    with pytest.warns(UserWarning, match="all 2 rows have the same candidates.*; add rows"):
        check(MATRIX[[0, 0]])
    with pytest.warns(UserWarning, match="nothing can be learned"):
        encode([["a", "b"], ["b", "a"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(MATRIX[:1])
        check(MATRIX)


def test_statistics():
    S = Candidates(MATRIX, ("a", "b", "c"))
    assert len(S) == 3
    assert S.sizes.tolist() == [2, 1, 2]
    assert S.mean_size == pytest.approx(5 / 3)
    assert S.singletons.tolist() == [False, True, False]
    assert S.co_occurrence().tolist() == [[2, 1, 1], [1, 2, 0], [1, 0, 1]]
    assert S.co_occurrence().dtype == np.int64


def test_frozen_and_independent_of_the_input():
    matrix = MATRIX.copy()
    S = Candidates(matrix, ["a", "b", "c"])
    matrix[0] = False
    assert np.array_equal(S.matrix, MATRIX)
    assert S.classes == ("a", "b", "c")
    with pytest.raises(ValueError, match="read-only"):
        S.matrix[0, 0] = False
    with pytest.raises(FrozenInstanceError):
        S.classes = ()
    rows = [["b", "a"], ["a"]]
    encode(rows)
    assert rows == [["b", "a"], ["a"]]
    assert S != "something else"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=2, max_size=8))
def test_round_trips(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        S = encode(rows, classes=list("abcd"))
        assert [set(row) for row in S.decode()] == rows
        assert encode(["|".join(row) for row in rows], S.classes, "|") == S
        assert encode(S.decode(), S.classes) == S
        assert encode(S.matrix.astype(int), S.classes) == S
