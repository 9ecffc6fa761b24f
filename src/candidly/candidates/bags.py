"""Bags: stretches of consecutive rows with equal candidate sets, as when one scene or recording gives several rows."""

import numpy as np
from numpy.typing import NDArray


def find_bags(S: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the number of the bag that each row belongs to, counted from 0 in the order of rows.

    Consecutive rows with equal candidate sets of two or more labels are one bag. A row with a single candidate is a bag
    by itself: equal labels of neighbouring rows say nothing about a common origin.

    Parameters
    ----------
    S : ndarray of bool, shape (n, C)
        Candidate sets, in the order in which the rows were collected.

    Examples
    --------
    >>> S = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1], [0, 1, 0], [0, 1, 0]], dtype=bool)
    >>> find_bags(S).tolist()
    [0, 0, 1, 2, 3]
    """
    same = (S[1:] == S[:-1]).all(axis=1) & (S[1:].sum(axis=1) > 1)
    return np.concatenate([np.zeros(min(len(S), 1), np.intp), np.cumsum(~same)])
