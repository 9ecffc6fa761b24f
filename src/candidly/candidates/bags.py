"""Bags: stretches of consecutive rows with equal candidate sets, as when one scene or recording gives several rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from candidly.candidates.sets import Candidates
from candidly.checks import arguments

__all__ = ["find_bags"]

_LEAST_PAIRS, _DEVIATIONS = 10, 6  # more equal pairs than in shuffled rows, by this number plus standard deviations
_LEAST_EXCESS = 0.1  # and more than nearby rows explain, by this fraction of the rows
_AGAINST = 0.25  # rows are sorted by set if at most this fraction of the changes between stretches is against the order
_STRETCHES_OF_CLASS = 6  # rows with more stretches per class are not merely sorted by class, with few sets in each


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
        Which rows are in a stretch of two or more rows; sets with one label or with all classes do not count.
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

    Let T be the number of consecutive pairs of rows with equal sets. There are bags if T is larger than in shuffled
    rows (p < 1e-6), and larger than nearby rows explain. The latter tells bags from rows that are sorted by class, by
    time or by the number of candidates, where the sets that are possible change slowly: there, a set occurs again soon
    after its stretch has ended. Sorting may also make one long stretch per class; as many of the longest stretches as
    there are classes do not count.

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
    pairs = int((known[1:] & (bag[1:] == bag[:-1])).sum())
    if pairs < _LEAST_EXCESS * n:  # most tables end here
        return None
    codes = number_sets(S)
    if pairs < _most_pairs(np.bincount(codes[known]), n):
        return None
    # Of each stretch: its pairs, one less than its rows, without those that nearby rows explain.
    excess = np.bincount(bag[known], 1 - _nearby(codes, size)[bag[known]], len(size))
    excess[np.unique(bag[known])] -= 1
    if np.sort(excess)[: max(len(excess) - classes, 0)].sum() < _LEAST_EXCESS * n:
        return None
    inside = known & (size[bag] > 1)
    return Stretches(bag, inside, int(size[bag[inside]].max()), _is_sorted(S, bag, known))


def _nearby(codes: NDArray[np.intp], size: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return which fraction of the rows around each stretch have its set: half its length before and behind it.

    The rows next to the stretch, whose sets must differ, do not count.
    """
    n = len(codes)
    first = size.cumsum() - size
    equal, compared = np.zeros(len(size)), np.zeros(len(size))
    for step in (0.1, 0.2, 0.3, 0.4, 0.5):
        away = np.ceil(step * size).astype(np.intp)
        for other in (first - 1 - away, first + size + away):
            there = (other >= 0) & (other < n)
            compared += there
            equal += there & (codes[other.clip(0, n - 1)] == codes[first])
    fraction: NDArray[np.float64] = equal / np.maximum(compared, 1)
    return fraction


def number_sets(S: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return a number for the set of each row: equal numbers for equal sets.

    Examples
    --------
    >>> number_sets(np.array([[1, 1], [0, 1], [1, 1]], dtype=bool)).tolist()
    [1, 0, 1]
    """
    packed = np.packbits(S, axis=1)
    return np.unique(packed.view(f"V{packed.shape[1]}"), return_inverse=True)[1].ravel()


def _most_pairs(sets: NDArray[np.intp], n: int) -> float:
    """Return a number of consecutive pairs with equal sets that shuffled rows reach with a probability below 1e-6.

    In shuffled rows the mean number is Σ_s n_s(n_s − 1)/n, for n_s rows with the set s.

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


def _is_sorted(S: NDArray[np.bool_], bag: NDArray[np.intp], known: NDArray[np.bool_]) -> bool:
    """Return whether the rows seem to be sorted by set, or by class with few different sets in each class."""
    classes = S.shape[1]
    starts = np.concatenate([[True], np.diff(bag) > 0])
    sets = S[starts & known]
    if len(sets) <= _STRETCHES_OF_CLASS * classes and _count_pieces(S[starts], classes + 1) <= classes:
        return True
    listed = np.sort(np.where(sets, np.arange(classes), classes), axis=1)
    for key in (sets, sets[:, ::-1], np.where(listed < classes, listed, -1)):
        differs = key[1:] != key[:-1]
        changed, at = np.flatnonzero(differs.any(axis=1)), differs.argmax(axis=1)
        rises = key[1:][changed, at[changed]] > key[:-1][changed, at[changed]]
        if min(rises.sum(), (~rises).sum()) <= _AGAINST * len(rises):
            return True
    return False


def _count_pieces(S: NDArray[np.bool_], most: int) -> int:
    """Return the smallest number of pieces whose rows have a candidate in common, at most `most`.

    Rows that are sorted by class, in any order of the classes, need no more pieces than there are classes.
    """
    pieces, common = 1, np.ones(S.shape[1], bool)
    for row in S:
        common = common & row
        if not common.any():
            pieces, common = pieces + 1, row
            if pieces == most:
                break
    return pieces
