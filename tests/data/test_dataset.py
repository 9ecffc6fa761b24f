"""A dataset is checked when it is made."""

import numpy as np
import pytest

from candidly.data import Dataset

GOOD = {
    "name": "toy",
    "X": np.zeros((3, 2)),
    "S": np.array([[True, False], [True, True], [False, True]]),
    "y": np.array([0, 1, 1]),
    "classes": ("a", "b"),
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "name is 3"),
        ({"X": [[0.0]]}, r"X is \[\[0.0\]\]; it must be a NumPy array"),
        ({"X": np.zeros(3)}, r"X has shape \(3,\)"),
        ({"X": np.array([["a"]] * 3)}, "X has dtype <U1"),
        ({"X": np.full((3, 1), np.nan)}, "or NaN or infinite numbers; give finite numbers"),
        ({"S": np.eye(3, 2)}, "dtype float64; S must be a boolean matrix with the 3 rows of X and 2 classes"),
        ({"S": GOOD["S"][:2]}, r"S shape \(2, 2\)"),
        ({"S": GOOD["S"] & [[True], [False], [True]]}, "S has no candidates in row 1"),
        ({"y": np.array([0, 1, 2])}, "y has shape .* class number from 0 to 1 for each of 3 rows"),
        ({"y": np.array([0, 1])}, r"y has shape \(2,\)"),
        ({"y": np.array([0.0, 1.0, 1.0])}, "dtype float64"),
        ({"classes": ["a", "b"]}, "classes is .*; it must be a tuple"),
        ({"classes": ("a", "a")}, "give different names"),
        ({"num_train": 4}, "num_train is 4; it must be an integer from 0 to 3"),
        ({"num_train": "2"}, "num_train is '2'"),
        ({"groups": (0,)}, r"groups is \(0,\); it must be a tuple with the superclass of each class"),
    ],
)
def test_wrong_parts_are_named(changes, message):
    assert len(Dataset(**GOOD).classes) == 2
    with pytest.raises(ValueError, match=message):
        Dataset(**(GOOD | changes))
