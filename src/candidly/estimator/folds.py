"""Which rows train which network, and which are held out: folds over rows that differ, whatever order they come in."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_COPIES = 10  # times the number of rows; more copies than that would only cost time


@dataclass(frozen=True, eq=False)
class Plan:
    """Training rows in an order that their content decides, and the fold in which each is held out.

    Attributes
    ----------
    index : ndarray of int, shape (N,)
        Which of the user's rows each training row is; one may come several times, or not at all.
    fold : ndarray of int, shape (N,)
        The fold in which a training row is held out; -1 if it always trains.
    row_fold : ndarray of int, shape (n,)
        The same for each of the user's rows; 0 if neither it nor its like trains.
    folds : int
        How many folds there are.
    """

    index: NDArray[np.intp]
    fold: NDArray[np.intp]
    row_fold: NDArray[np.intp]
    folds: int

    def trained(self, fold: int) -> NDArray[np.intp]:
        """Return the training rows of a fold's networks."""
        return np.flatnonzero(self.fold != fold)

    def held_out(self, fold: int) -> NDArray[np.intp]:
        """Return the rows that the fold's networks do not see."""
        return np.flatnonzero(self.fold == fold)

    def tested(self) -> NDArray[np.intp]:
        """Return which of the user's rows are held out in some fold, each once, in the order of training rows."""
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
    """Put the rows into folds, those with equal features into the same one.

    Parameters
    ----------
    X : ndarray, shape (n, ...)
        Encoded features.
    S : ndarray of bool, shape (n, C)
        Candidates.
    copies : ndarray of int, shape (n,)
        How many times each row trains.
    folds : int
        With 2 or more every row is held out in one of them; fewer, with a warning, where fewer rows differ.
    fraction : float
        With one fold, the share of rows that is held out.
    rng : numpy.random.Generator
        Decides which.

    Examples
    --------
    >>> X, S = np.arange(5.0)[:, None], np.eye(5, dtype=bool)
    >>> plan = make_plan(X, S, np.array([1, 0, 2, 1, 1]), folds=2, fraction=0, rng=np.random.default_rng(0))
    >>> plan.index.tolist(), plan.fold.tolist()
    ([0, 2, 2, 3, 4], [0, 0, 0, 1, 1])
    """
    key, item = _content(X, np.packbits(S, axis=1)), _content(X)
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
                f"validation_fraction is {fraction}, which holds out {held} of {len(items)} rows that differ; it must "
                "leave some on either side"
            )
        fold = np.where(place < held, 0, -1)
    for k in range(folds):
        trained = int((fold[group] != k).sum())
        if trained < 2:
            raise ValueError(f"a network would train on {trained} of {len(index)} rows, the others held out; add some")
    near = np.searchsorted(items, item).clip(max=len(items) - 1)
    return Plan(index, fold[group], np.where(items[near] == item, fold[near], 0), folds)


def _deal(place: NDArray[np.intp], folds: int, rows: int) -> tuple[NDArray[np.intp], int]:
    """Return the fold of each item, given its place in a random order, and how many folds there are."""
    if len(place) < 2:
        raise ValueError(f"all {rows} rows have the same features, so none can be held out; add rows that differ")
    if len(place) < folds:
        message = f"folds is {folds} but only {len(place)} rows differ; there will be {len(place)} folds"
        warnings.warn(message, stacklevel=4)
    return place % min(folds, len(place)), min(folds, len(place))


def _content(X: NDArray[Any], *more: NDArray[np.uint8]) -> NDArray[np.bytes_]:
    """Return each row's bytes, by which rows can be sorted."""
    plain = X + 0.0 if X.dtype.kind == "f" else X  # there are two zeros
    whole = np.concatenate([np.ascontiguousarray(plain).reshape(len(X), -1).view(np.uint8), *more], 1)
    return whole.view(f"S{whole.shape[1]}")[:, 0]


def count_copies(sample_weight: Any, n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Say how many times each of n rows trains, given its weight.

    Whole numbers are taken at their word, so that a weight of 2 is the row twice and 0 is no row. Others, and whole
    ones that add up to more than ten times the rows, are divided by their mean and rounded by chance, so that a row's
    expected number of copies is in proportion to its weight.

    Examples
    --------
    >>> count_copies([1, 0, 2], 3, np.random.default_rng(0)).tolist()
    [1, 0, 2]
    >>> count_copies([0.1, 0.1, 0.4], 3, np.random.default_rng(0)).tolist()
    [1, 0, 2]
    """
    if sample_weight is None:
        return np.ones(n, np.intp)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise ValueError(f"sample_weight has shape {weight.shape}, but there are {n} rows; give one number per row")
    wrong = ~(np.isfinite(weight) & (weight >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"sample_weight is {weight[row]} in row {row}; give finite numbers of at least 0")
    copies = np.floor(weight)
    if (copies < weight).any() or copies.sum() > _MOST_COPIES * n:
        copies = np.floor(weight / weight.mean() + rng.random(n))
    if np.count_nonzero(copies) < 2:
        found = np.count_nonzero(copies)
        raise ValueError(f"sample_weight is zero for all rows but {found}; give weight to two or more")
    return copies.astype(np.intp)
