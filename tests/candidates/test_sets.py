"""Candidate sets: conversion from every form, checks, statistics."""

import hashlib
import subprocess
import sys
import tracemalloc
import warnings
from dataclasses import FrozenInstanceError
from functools import partial

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from candidly.candidates import Candidates, check, encode
from candidly.store import states
from tests.store.cases import forge_index

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
    arranged = encode(Frame(), classes=["z", "x", "y"])
    assert arranged.classes == ("z", "x", "y")
    assert arranged.matrix.tolist() == MATRIX[:, [2, 0, 1]].tolist()
    with pytest.raises(ValueError, match=r"y has the columns .*'x'.* but the classes are .*'p'.*; use the same names"):
        encode(Frame(), classes=["p", "r", "q"])


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
        (([["a", ["b"]], ["c"]],), r"row 0 holds \['b'\], which is not a class name"),
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
        encode(MATRIX[[0, 0]])
    with pytest.warns(UserWarning, match="nothing can be learned"):
        encode([["a", "b"], ["b", "a"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode(MATRIX[:1])
        encode(MATRIX)
        Candidates(MATRIX[[0, 0]], ("a", "b", "c"))  # cleaned sets may well be all the same


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


def random_candidates(n, num_classes, classes=None):
    matrix = np.random.default_rng(0).random((n, num_classes)) < 0.3
    matrix[:, 0] |= ~matrix.any(axis=1)
    return Candidates(matrix, range(num_classes) if classes is None else classes)


@pytest.mark.parametrize("shape", [(1, 2), (3, 5), (8, 8), (100, 13)])
def test_frozen_sets_come_back(shape, tmp_path):
    S = random_candidates(*shape)
    assert S.save(tmp_path) == S.digest
    again = Candidates.load(tmp_path)
    assert again == S
    assert again.matrix.dtype == bool
    assert again.digest == S.digest


def test_names_and_facts_survive(tmp_path):
    S = Candidates(MATRIX, ('ä|b "\n', 7, "7"))
    facts = {"made": "uniform", "numbers": [0.1, 2], "nested": {"y": None}}
    S.save(tmp_path / "new" / "folder", facts, stem="sets")
    assert sorted(path.suffix for path in (tmp_path / "new" / "folder").iterdir()) == [".json", ".safetensors"]
    found = Candidates.load(tmp_path / "new" / "folder", stem="sets")
    assert found.classes == ('ä|b "\n', 7, "7")
    assert [type(name) for name in found.classes] == [str, int, str]
    assert states.read(tmp_path / "new" / "folder", stem="sets")[1]["facts"] == facts
    S.save(str(tmp_path / "new" / "folder"), stem="sets")
    assert states.read(tmp_path / "new" / "folder", stem="sets")[1]["facts"] == {}


def test_frozen_sets_take_a_bit_each(tmp_path):
    random_candidates(8000, 100).save(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 8000 * 100 / 8 + 3000


def test_digest_is_of_sets_and_names():
    S = Candidates(MATRIX, ("a", "b", "c"))
    packed = bytes([0b11001010, 0b10000000])
    assert S.digest == hashlib.sha256(b'[3, ["a", "b", "c"]]' + packed).hexdigest()[:16]
    assert Candidates(np.asfortranarray(MATRIX), ["a", "b", "c"]).digest == S.digest
    assert encode(NAMES).digest == S.digest
    wider = Candidates(np.pad(MATRIX, ((0, 0), (0, 1))), ("a", "b", "c", "d"))
    flipped = MATRIX.copy()
    flipped[2, 2] = False
    others = [
        wider,
        Candidates(flipped, ("a", "b", "c")),
        Candidates(MATRIX[:2], ("a", "b", "c")),
        Candidates(MATRIX[[1, 0, 2]], ("a", "b", "c")),
        Candidates(MATRIX, ("a", "c", "b")),
        Candidates(MATRIX, (0, 1, 2)),
        Candidates(MATRIX, ("0", "1", "2")),
        Candidates(np.array([[1, 1], [0, 1]], dtype=bool), (0, 1)),
        Candidates(np.array([[1, 1, 0, 1]], dtype=bool), (0, 1, 2, 3)),
    ]
    digests = {S.digest, *(other.digest for other in others)}
    assert len(digests) == len(others) + 1
    assert all(len(digest) == 16 and int(digest, 16) >= 0 for digest in digests)


@pytest.mark.parametrize("name", [1.5, True, ("a", "b"), b"a"])
def test_other_class_names_are_not_saved(name, tmp_path):
    S = Candidates(MATRIX, ("a", "b", name))
    with pytest.raises(ValueError, match="save strings or integers as class names") as error:
        S.save(tmp_path / "new")
    assert f"class {name!r} is a {type(name).__name__}" in str(error.value)
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="strings or integers"):
        _ = S.digest


def test_bad_facts_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        encode(NAMES).save(tmp_path / "new", {"q": float("nan")})
    assert not (tmp_path / "new").exists()


def set_fact(key, value, index):
    index["facts"][key] = value


def test_damaged_or_changed_sets_are_refused(tmp_path):
    encode(NAMES).save(tmp_path)
    index = tmp_path / "candidates.json"
    original = index.read_text()
    for key, value in (("classes", ["a", "c", "b"]), ("rows", 2), ("rows", 10**9), ("digest", "0" * 16)):
        index.write_text(original)
        forge_index(index, partial(set_fact, key, value))
        with pytest.raises(ValueError, match="sets or class names in "):
            Candidates.load(tmp_path)
    for key, value in (("classes", 5), ("rows", None), ("rows", -1), ("rows", "3")):
        index.write_text(original)
        forge_index(index, partial(set_fact, key, value))
        with pytest.raises(ValueError, match="holds no candidates under 'candidates'"):
            Candidates.load(tmp_path)
    index.write_text(original)
    tensors = next(tmp_path.glob("*.safetensors"))
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 128
    tensors.write_bytes(data)
    with pytest.raises(ValueError, match="is truncated or was changed"):
        Candidates.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"candidates\.json does not exist"):
        Candidates.load(tmp_path / "elsewhere")
    states.write(tmp_path, {"q": torch.eye(2)}, {"epoch": 3}, stem="state")
    with pytest.raises(ValueError, match="holds no candidates under 'state'"):
        Candidates.load(tmp_path, stem="state")


def test_memory_stays_near_the_matrix(tmp_path):
    matrix = random_candidates(100_000, 50).matrix
    tracemalloc.start()
    try:
        S = encode(matrix)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * matrix.nbytes
        S.save(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2 * matrix.nbytes
        del S
        tracemalloc.reset_peak()
        Candidates.load(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2.5 * matrix.nbytes
    finally:
        tracemalloc.stop()


def test_sets_need_no_torch_until_they_are_saved():
    code = (
        "import sys\nfrom candidly.candidates.sets import encode\n"
        "encode([['a', 'b'], ['b']]).digest\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", "b", "a|b"], r"the class name 'a\|b' looks like several names; split it with separator='\|', or list"),
        (["a;b", "b;c", "a;c"], "split it with separator=';'"),
        ([["a|b"], ["b"], ["a"]], "looks like several names"),
        (["['a', 'b']", "['a']"], "looks like a list in a text; pass lists of names"),
        ([True, 1, 2], "class names are of types bool, int; convert them to one type"),
        ([True, "True"], "class names are of types bool, str"),
        (np.ma.array([1, 2], mask=[0, 1]), "row 1 holds a missing name"),
        (np.ma.array([[True, True], [True, False]], mask=[[0, 0], [0, 1]]), "row 1 holds a missing name"),
        (["a", np.ma.masked], "row 1 holds a missing name"),
        ({"a", "b"}, "y is a set; pass a matrix or one entry per row"),
        (np.zeros(2, "V4"), r"y has dtype \|V4; pass class names"),
        (np.array([1j, 2]), "y has dtype complex128"),
        ([1j, 2], "row 0 holds 1j, which is not a class name"),
        ([iter("ab"), "a"], "which is not a class name"),
    ],
)
def test_names_that_were_misread_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        encode(y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            ["cat", "Cat", "dog"],
            "differ only by case, blanks, quotes or invisible characters: 'Cat' and 'cat'",
        ),
        (["cat", "cat ", "dog"], "'cat' and 'cat '"),
        (["caf\u00e9", "cafe\u0301"], "differ only by case"),
        (["a", "b", "a, b"], "the class name 'a, b' looks like several names; split it with separator=','"),
        (["nan", "cat"], "the class name 'nan' is what programs write for a missing value"),
    ],
)
def test_names_that_may_be_misread_warn(y, message):
    with pytest.warns(UserWarning, match=message):
        assert len(encode(y)) == len(y)
    assert encode(y, classes=sorted(set(y))).classes == tuple(sorted(set(y)))  # listed names are not questioned


@pytest.mark.parametrize(
    "y", [["left|right", "up"], ["Paris, France", "Lyon, France"], ["n/a", "yes"], ["[0, 1)", "x"]]
)
def test_names_with_separators_are_fine(y):
    assert encode(y).classes == tuple(sorted(y))


@pytest.mark.parametrize("classes", [{"a", "b"}, frozenset("ab"), 2])
def test_classes_need_an_order(classes):
    with pytest.raises(ValueError, match="which has no order; pass a list of names"):
        encode(["a", "b"], classes=classes)


@pytest.mark.parametrize("separator", [5, b"|", ["|"]])
def test_the_separator_is_text(separator):
    with pytest.raises(ValueError, match=r"separator is .*; pass the text between the names"):
        encode(["a", "b"], separator=separator)


def test_dates_in_nanoseconds_do_not_become_numbers():
    dates = np.array(["2020-01-01", "2020-01-02"], "M8[ns]")
    assert encode(dates).classes == tuple(dates)


def test_arrow_arrays_and_big_integers_of_polars_are_rows():
    pa = pytest.importorskip("pyarrow")
    assert encode([pa.array(["a", "b"]), pa.array(["b"])]).decode() == [("a", "b"), ("b",)]
    polars = pytest.importorskip("polars")
    assert encode(polars.Series([1, 2], dtype=polars.Int128)).classes == (1, 2)


def test_rows_are_selected_as_in_an_array():
    S = Candidates(MATRIX, ("a", "b", "c"), index=["x", "y", "z"])
    assert S.shape == (3, 3)
    assert list(S) == S.decode() == NAMES
    for rows in ([2, 0], np.array([2, 0]), (np.array([2, 0]), ...)):
        assert S[rows].decode() == [NAMES[2], NAMES[0]]
        assert S[rows].index == ["z", "x"]
    assert S[1:].decode() == NAMES[1:]
    assert S[np.array([True, False, True])].decode() == [NAMES[0], NAMES[2]]
    assert S[1:] == Candidates(MATRIX[1:], ("a", "b", "c"))  # the index does not count
    np.testing.assert_array_equal(np.asarray(S), MATRIX)
    assert np.array(S, dtype=float).dtype == float
    with pytest.raises(ValueError, match="pass a list of row numbers"):
        S[0]
    with pytest.raises(ValueError, match="index has 1 names for 3 rows"):
        Candidates(MATRIX, ("a", "b", "c"), index=["x"])
