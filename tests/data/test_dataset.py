"""Checks at the construction of a dataset."""

import dataclasses

import numpy as np
import pytest

from candidly.data import Dataset

X = np.zeros((3, 2))
S = np.array([[True, False], [True, True], [False, True]])
GOOD = {"name": "toy", "X": X, "S": S, "y": np.array([0, 1, 1]), "classes": ("a", "b")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": b"toy"}, "name is b'toy'; it must be a text"),
        ({"X": None}, "X is None; it must be an array"),
        ({"X": X[:, 0]}, r"X is \(3,\) of type float64"),
        ({"X": X.astype(str)}, "X is .* of type <U"),
        ({"X": X[:, :0]}, "without features"),
        ({"X": np.where(np.arange(3) == 1, np.nan, X.T).T}, "row 1 of X holds a value that is not finite"),
        ({"S": S.tolist()}, "S is .*; it must be a boolean array"),
        ({"S": S * 2}, "candidates have dtype int64"),
        ({"S": S & (np.arange(3) != 1)[:, None]}, "row 1 has no candidates"),
        ({"S": S[:2]}, "the numbers of rows differ: X has 3, S 2, y 3"),
        ({"y": np.array([0.5, 1, 1])}, "y is .* of type float64"),
        ({"y": np.array([0, 2, 1])}, "row 1 has the label 2, but there are 2 classes"),
        ({"classes": ("a",)}, "1 class names for 2 columns of S"),
        ({"classes": ("a", "a")}, "listed twice"),
        ({"num_train": 4}, "num_train is 4; it must be an integer from 0 to 3"),
        ({"superclasses": (0,)}, "superclasses has 1 entries for 2 classes"),
        ({"superclasses": "aa"}, "superclasses is 'aa'"),
        ({"groups": [0, 0, 1]}, r"groups is \[0, 0, 1\]; it must be an array with one group number per row, or None"),
        ({"groups": np.array([0, 0, 1.0])}, r"groups is \(3,\) of type float64"),
        ({"groups": np.zeros((3, 1), int)}, r"groups is \(3, 1\) of type int64"),
        ({"groups": np.array([0, 1])}, "the numbers of rows differ: X has 3, S 3, y 3, groups 2"),
    ],
)
def test_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        Dataset(**GOOD | changes)


def test_accepts_what_is_documented():
    found = dataclasses.replace(
        Dataset(**GOOD), y=None, num_train=2, superclasses=(0, 1), X=np.zeros((3, 4, 4), np.uint8)
    )
    assert repr(found) == "Dataset('toy': 3 rows, 4×4 features, 2 classes, 1.33 candidates per row)"


def test_groups_are_counted():
    found = Dataset(**GOOD, groups=np.array([7, -2, 7]))
    assert repr(found) == "Dataset('toy': 3 rows, 2 features, 2 classes, 2 groups, 1.33 candidates per row)"


@pytest.mark.parametrize("rows", [slice(1, 3), [2, 0]])
def test_take(rows):
    found = Dataset(**GOOD | {"X": np.arange(6.0).reshape(3, 2), "num_train": 3}, groups=np.array([4, 4, 9]))
    taken = found.take(rows, num_train=1)
    for field in ("X", "S", "y", "groups"):
        np.testing.assert_array_equal(getattr(taken, field), getattr(found, field)[rows])
    assert (taken.name, taken.classes, taken.num_train) == ("toy", ("a", "b"), 1)
    bare = Dataset(**GOOD | {"y": None}).take(rows)
    assert (bare.y, bare.groups, bare.num_train, len(bare.X)) == (None, None, None, 2)
