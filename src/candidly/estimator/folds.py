"""Folds: which rows each network is trained on and which are held out, independent of the order of rows."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.estimator.targets import row_weights

_MOST_COPIES = 10  # total copies per row, at most; more would only cost time


@dataclass(frozen=True, eq=False)
class Plan:
    """Training rows, sorted by content, and the fold in which each is held out.

    Attributes
    ----------
    index : ndarray of int, shape (N,)
        The user's row behind each training row; a row may occur several times, or not at all.
    fold : ndarray of int, shape (N,)
        The fold in which a training row is held out; -1 if it is never held out.
    row_fold : ndarray of int, shape (n,)
        The same for each of the user's rows; 0 if neither the row nor one with equal features is a training row.
    folds : int
        Number of folds.
    """

    index: NDArray[np.intp]
    fold: NDArray[np.intp]
    row_fold: NDArray[np.intp]
    folds: int

    def trained(self, fold: int) -> NDArray[np.intp]:
        """Return the training rows of a fold's networks."""
        return np.flatnonzero(self.fold != fold)

    def held_out(self, fold: int) -> NDArray[np.intp]:
        """Return the rows that are held out from a fold's networks."""
        return np.flatnonzero(self.fold == fold)

    def tested(self) -> NDArray[np.intp]:
        """Return the user's rows that are held out in some fold, each once, in the order of training rows."""
        rows = self.index[self.fold >= 0]
        first = np.unique(rows, return_index=True)[1]
        return rows[np.sort(first)]


def make_plan(
    X: NDArray[Any],
    S: NDArray[np.bool_],
    copies: NDArray[np.intp],
    folds: int,
    fraction: float,
    rng: np.random.Generator,
) -> Plan:
    """Assign rows to folds; rows with equal features are in the same fold.

    Parameters
    ----------
    X : ndarray, shape (n, ...)
        Encoded features.
    S : ndarray of bool, shape (n, C)
        Candidates.
    copies : ndarray of int, shape (n,)
        Number of copies of each row to train on.
    folds : int
        Number of folds. With 2 or more, every row is held out in one fold. There are fewer, with a warning, if fewer
        rows differ.
    fraction : float
        With one fold, the fraction of rows that is held out.
    rng : numpy.random.Generator
        Determines the assignment.

    Examples
    --------
    >>> X, S = np.arange(5.0)[:, None], np.eye(5, dtype=bool)
    >>> plan = make_plan(X, S, np.array([1, 0, 2, 1, 1]), folds=2, fraction=0, rng=np.random.default_rng(0))
    >>> plan.index.tolist(), plan.fold.tolist()
    ([0, 2, 2, 3, 4], [0, 0, 0, 1, 1])
    """
    key, item = content(X, np.packbits(S, axis=1)), content(X)
    index = np.repeat(np.arange(len(X)), copies)
    index = index[np.argsort(key[index], kind="stable")]
    items, group = np.unique(item[index], return_inverse=True)
    place = rng.permutation(len(items))
    if folds > 1:
        fold, folds = _deal(place, folds, len(index))
    else:
        held = round(fraction * len(items))
        if fraction and not 0 < held < len(items):
            raise ValueError(
                f"validation_fraction is {fraction}, which holds out {held} of {len(items)} different rows; choose it "
                "such that there are rows to train on and held-out rows"
            )
        fold = np.where(place < held, 0, -1)
    for k in range(folds):
        trained = int((fold[group] != k).sum())
        if trained < 2:
            raise ValueError(
                f"a network would be trained on {trained} of {len(index)} rows, the others are held out; add rows"
            )
    near = np.searchsorted(items, item).clip(max=len(items) - 1)
    return Plan(index, fold[group], np.where(items[near] == item, fold[near], 0), folds)


def _deal(place: NDArray[np.intp], folds: int, rows: int) -> tuple[NDArray[np.intp], int]:
    """Return the fold of each item, given its place in a random order, and the number of folds."""
    if len(place) < 2:
        raise ValueError(f"all {rows} rows have the same features, so none can be held out; add rows that differ")
    if len(place) < folds:
        message = f"folds is {folds} but only {len(place)} rows differ; using {len(place)} folds"
        warnings.warn(message, stacklevel=4)
    return place % min(folds, len(place)), min(folds, len(place))


def content(X: NDArray[Any], *more: NDArray[np.uint8]) -> NDArray[np.bytes_]:
    """Return the bytes of each row, to sort rows by."""
    plain = X + 0.0 if X.dtype.kind == "f" else X  # makes -0.0 and 0.0 the same bytes
    whole = np.concatenate([np.ascontiguousarray(plain).reshape(len(X), -1).view(np.uint8), *more], 1)
    return whole.view(f"S{whole.shape[1]}")[:, 0]


def count_copies(sample_weight: Any, n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the number of copies of each of n rows to train on, given the rows' weights.

    Integers are used as they are: a weight of 2 repeats the row, 0 leaves it out. Other weights, and integers whose sum
    is more than ten times the number of rows, are divided by their mean and rounded at random, such that a row's
    expected number of copies is proportional to its weight.

    Examples
    --------
    >>> count_copies([1, 0, 2], 3, np.random.default_rng(0)).tolist()
    [1, 0, 2]
    >>> count_copies([0.1, 0.1, 0.4], 3, np.random.default_rng(0)).tolist()
    [1, 0, 2]
    """
    if sample_weight is None:
        return np.ones(n, np.intp)
    weight = row_weights(sample_weight, n)
    copies = np.floor(weight)
    if (copies < weight).any() or copies.sum() > _MOST_COPIES * n:
        copies = np.floor(weight / weight.mean() + rng.random(n))
    if np.count_nonzero(copies) < 2:
        found = np.count_nonzero(copies)
        raise ValueError(f"sample_weight is zero for all rows but {found}; at least two rows need a positive weight")
    return copies.astype(np.intp)
