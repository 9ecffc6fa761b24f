"""Bags: stretches of consecutive rows with equal candidate sets, as when one scene or recording gives several rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from candidly.candidates.sets import Candidates
from candidly.checks import arguments

__all__ = ["find_bags"]

_LEAST_EXCESS = 0.1  # bags are reported if equal pairs exceed those of shuffled rows by this fraction of the rows,
_LEAST_PAIRS, _DEVIATIONS = 10, 6  # and by this number plus this many standard deviations: p < 1e-6
_LEAST_DROP = 2  # and equal sets are this many times rarer among rows that are further apart than a bag is long
_DEFAULT = 0.2  # a set with a stretch of this fraction of the rows is a default, not a bag
_AGAINST = 0.25  # rows are sorted if at most this fraction of the changes between stretches is against the order,
_RESTARTS = 0.4  # or at most this fraction and no more than there are classes,
_FEW_CHANGES = 10  # or if there are too few changes to tell


def find_bags(S: NDArray[np.bool_] | Candidates) -> NDArray[np.intp]:
    """Return the number of the bag that each row belongs to, counted from 0 in the order of rows.

    Consecutive rows with equal candidate sets of two or more labels are one bag. A row with a single candidate is a bag
    by itself: equal labels of neighbouring rows say nothing about a common origin. Pass the result as `groups` to
    `candidly.PartialLabelClassifier.fit` if you do not know which rows come from one scene or recording.

    Parameters
    ----------
    S : ndarray of bool, shape (n, C), or Candidates
        Candidate sets, in the order in which the rows were collected. If the rows were sorted by their sets, all rows
        with equal sets are one bag, whatever their origin.

    Examples
    --------
    >>> S = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1], [0, 1, 0], [0, 1, 0]], dtype=bool)
    >>> find_bags(S).tolist()
    [0, 0, 1, 2, 3]
    """
    matrix = S.matrix if isinstance(S, Candidates) else S
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype != np.bool_:
        raise ValueError(
            f"S is {arguments.shown(S)}; pass a boolean matrix (rows, classes), or convert with candidates.encode(S)"
        )
    same = (matrix[1:] == matrix[:-1]).all(axis=1) & (matrix[1:].sum(axis=1) > 1)
    return np.concatenate([np.zeros(min(len(matrix), 1), np.intp), np.cumsum(~same)])


@dataclass(frozen=True, eq=False)
class Stretches:
    """Stretches of equal sets, which shuffled rows would not have.

    Attributes
    ----------
    bag : ndarray of int, shape (n,)
        What `find_bags` returns.
    inside : ndarray of bool, shape (n,)
        Which rows are in a stretch of two or more rows; sets with one label and with all classes do not count.
    longest : int
        The number of rows of the longest stretch.
    by_set : bool
        Whether the rows are sorted by their sets, possibly within each class. Then equal sets are consecutive whatever
        the origin of the rows.
    """

    bag: NDArray[np.intp]
    inside: NDArray[np.bool_]
    longest: int
    by_set: bool


def find_stretches(S: NDArray[np.bool_]) -> Stretches | None:
    """Return the stretches of equal sets if there are many more than in shuffled rows, else None.

    Let T be the number of consecutive pairs of rows with equal sets. In shuffled rows its mean is
    E = Σ_s n_s(n_s − 1)/n, for n_s rows with the set s. There are bags if T − E is large (see the constants above), and
    if pairs of rows that are further apart than a bag is long are equal much less often. The latter tells bags from
    rows that are sorted by class or by time, where the sets that are possible change slowly.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> S = np.eye(20, dtype=bool)[rng.integers(20, size=50)] | np.eye(20, dtype=bool)[rng.integers(20, size=50)]
    >>> find_stretches(S) is None, find_stretches(np.repeat(S, 3, axis=0)).longest
    (True, 3)
    """
    n, classes = S.shape
    bag = find_bags(S)
    size = np.bincount(bag)
    counts = S.sum(axis=1)
    known = (counts > 1) & (counts < classes)
    if (size[bag] - 1)[known].sum() < _LEAST_EXCESS * n:  # at least the number of pairs; most tables end here
        return None
    codes = number_sets(S)
    known &= ~np.isin(codes, codes[size[bag] > _DEFAULT * n])
    if _equal(codes, known, 1) - _expected(np.bincount(codes[known]), n) < _LEAST_EXCESS * n:
        return None
    inside = known & (size[bag] > 1)
    longest = int(size[bag[inside]].max())
    width = int(np.ceil(size[bag[inside]].mean()))  # the mean length of a row's stretch
    lags = np.unique(np.linspace(2 * width, 4 * width, 16).astype(int))
    far = [_equal(codes, known, lag) / (n - lag) for lag in lags if lag < n]
    if far and _equal(codes, known, 1) < _LEAST_DROP * np.mean(far) * (n - 1):
        return None
    return Stretches(bag, inside, longest, _is_sorted(S[known], bag[known]))


def number_sets(S: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return a number for the set of each row: equal numbers for equal sets.

    Examples
    --------
    >>> number_sets(np.array([[1, 1], [0, 1], [1, 1]], dtype=bool)).tolist()
    [1, 0, 1]
    """
    packed = np.packbits(S, axis=1)
    return np.unique(packed.view(f"V{packed.shape[1]}"), return_inverse=True)[1].ravel()


def _equal(codes: NDArray[np.intp], known: NDArray[np.bool_], lag: int) -> int:
    """Return the number of pairs of rows with equal sets at a distance."""
    return int(((codes[lag:] == codes[:-lag]) & known[lag:]).sum())


def _expected(sets: NDArray[np.intp], n: int) -> float:
    """Return the largest number of consecutive pairs with equal sets that shuffled rows have, but for p < 1e-6.

    Parameters
    ----------
    sets : ndarray of int
        How many rows have each set.
    n : int
        The number of rows.
    """
    if n < 4:
        return n
    ordered = sets.astype(np.float64)
    two = ordered * (ordered - 1)
    three, four = two * (ordered - 2), two * (ordered - 2) * (ordered - 3)
    mean = two.sum() / n
    # Pairs that share a row, and pairs that do not: 2(n - 2) and (n - 2)(n - 3) ordered pairs of pairs.
    shared = 2 * three.sum() / (n * (n - 1))
    apart = (two.sum() ** 2 - (two**2).sum() + four.sum()) / (n * (n - 1))
    deviation = np.sqrt(max(mean + shared + apart - mean**2, 0.0))
    return float(mean + _LEAST_PAIRS + _DEVIATIONS * deviation)


def _is_sorted(S: NDArray[np.bool_], bag: NDArray[np.intp]) -> bool:
    """Return whether the sets of stretches mostly ascend or descend, in one of the usual orders.

    Rows that are sorted by another column first, such as the true class, start again with each of its values.
    """
    sets = S[np.concatenate([[True], np.diff(bag) > 0])]
    classes = sets.shape[1]
    listed = np.sort(np.where(sets, np.arange(classes), classes), axis=1)
    for key in (sets, sets[:, ::-1], np.where(listed < classes, listed, -1)):
        differs = key[1:] != key[:-1]
        changed, at = np.flatnonzero(differs.any(axis=1)), differs.argmax(axis=1)
        rises = key[1:][changed, at[changed]] > key[:-1][changed, at[changed]]
        against, changes = min(int(rises.sum()), int((~rises).sum())), len(rises)
        if against <= max(_AGAINST * changes, min(classes, _RESTARTS * changes)) or changes < _FEW_CHANGES:
            return True
    return False
