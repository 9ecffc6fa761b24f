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
        ({"X": X / np.array([[1], [0], [1]])}, "row 1 of X holds a value that is not finite"),
        ({"S": S.tolist()}, "S is .*; it must be a boolean array"),
        ({"S": S * 2}, "candidates have dtype int64"),
        ({"S": S & (np.arange(3) != 1)[:, None]}, "row 1 has no candidates"),
        ({"S": S[:2]}, "the numbers of rows differ: X has 3, S 2, y 3"),
        ({"y": np.array([0.5, 1, 1])}, "y is .* of type float64"),
        ({"y": np.array([0, 2, 1])}, "row 1 has the label 2, but there are 2 classes"),
        ({"classes": ("a",)}, "1 class names for 2 columns of S"),
        ({"classes": ("a", "a")}, "listed twice"),
        ({"num_train": 4}, "num_train is 4; it must be an integer from 0 to 3"),
        ({"groups": (0,)}, "groups has 1 entries for 2 classes"),
        ({"groups": "aa"}, "groups is 'aa'"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        Dataset(**GOOD | changes)


def test_accepts_what_is_documented():
    found = dataclasses.replace(Dataset(**GOOD), y=None, num_train=2, groups=(0, 1), X=np.zeros((3, 4, 4), np.uint8))
    assert repr(found) == "Dataset('toy': 3 rows, 4×4 features, 2 classes, 1.33 candidates per row)"
