"""Folds: which rows each network is trained on and which are held out, independent of the order of rows."""

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from candidly.estimator.targets import row_weights
from candidly.messages import option, warn

_MOST_COPIES = 10  # total copies per row, at most; more would only cost time
_FEW_TRAINED = 0.25  # networks that groups leave with a smaller fraction of the rows to train on cause a warning


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
    groups : ndarray of int, shape (n,), or None
        Rows with the same number are in the same fold: they share a group or have equal features, directly or through
        other rows. -1 if none of a row's like is a training row. None if no groups were given.
    """

    index: NDArray[np.intp]
    fold: NDArray[np.intp]
    row_fold: NDArray[np.intp]
    folds: int
    groups: NDArray[np.intp] | None = None

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
    groups: NDArray[np.intp] | None = None,
) -> Plan:
    """Assign rows to folds; rows with equal features are in the same fold, and so are rows of one group.

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
    groups : ndarray of int, shape (n,), optional
        The group of each row. The result depends on which rows share a group, not on the numbers of the groups.

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
    items, of_row = np.unique(item[index], return_inverse=True)  # distinct features, and which each training row has
    near = np.searchsorted(items, item).clip(max=len(items) - 1)
    unit = np.where(items[near] == item, near, -1)  # what is held out together, by row: (n,)
    count, sizes = len(items), None  # of units
    if groups is not None:
        component, of_group = _connect(of_row, groups[index], count, groups)
        unit = np.where(unit >= 0, component[unit], of_group)
        of_row, joined = component[of_row], int(component.max()) + 1
        count, sizes = joined, None if joined == count else np.bincount(of_row)
    if groups is not None and count < 2 and (folds > 1 or fraction):
        raise ValueError(
            f"groups connects all {len(index)} rows, so none can be held out: rows that share a group or have equal "
            f"features are held out together. Pass two or more groups with {option('groups')}, or leave it out"
        )
    place = rng.permutation(count)
    if folds > 1:
        folds = _check_folds(folds, count, len(index), grouped=groups is not None)
        fold = place % folds if sizes is None else _balance(sizes, place, folds)
    else:
        fold = _hold_out(fraction, place) if sizes is None else _hold_out_rows(fraction, sizes, place)
    for k in range(folds):
        _check_trained(int((fold[of_row] != k).sum()), len(index), folds, grouped=groups is not None)
    row_fold = np.where(unit >= 0, fold[unit], 0)
    return Plan(index, fold[of_row], row_fold, folds, None if groups is None else unit)


def _connect(
    item: NDArray[np.intp], group: NDArray[np.intp], items: int, groups: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the component of each item, numbered in the order of items, and of each row's group; -1 if it has none.

    Training rows connect their item with their group.
    """
    top = int(groups.max()) + 1
    shape = (items + top, items + top)
    graph = coo_array((np.ones(len(item), bool), (item, items + group)), shape=shape)
    found = connected_components(graph, directed=False)[1]
    _, first, number = np.unique(found[:items], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    component = rank[number]
    of_group = np.full(top, -1, np.intp)
    of_group[group] = component[item]
    return component, of_group[groups]


def _check_folds(folds: int, units: int, rows: int, grouped: bool) -> int:
    """Return the number of folds for units that are held out together; raise ValueError if there is only one."""
    if units < 2:
        raise ValueError(f"all {rows} rows have the same features, so none can be held out; add rows that differ")
    if units < folds:
        few = f"only {units} rows differ"
        if grouped:
            few = f"there are only {units} groups, where groups with equal features in common count as one"
        warn(f"folds is {folds} but {few}; using {units} folds")
    return min(folds, units)


def _balance(sizes: NDArray[np.intp], place: NDArray[np.intp], folds: int) -> NDArray[np.intp]:
    """Return the fold of each unit: the largest first, at random where sizes are equal, each to the smallest fold.

    Examples
    --------
    >>> _balance(np.array([1, 3, 1, 1]), np.arange(4), 2).tolist()
    [1, 0, 1, 1]
    """
    fold = np.empty(len(sizes), np.intp)
    smallest = [(0, k) for k in range(folds)]
    for unit in np.lexsort((place, -sizes)).tolist():
        total, fold[unit] = smallest[0]
        heapq.heapreplace(smallest, (total + int(sizes[unit]), int(fold[unit])))
    return fold


def _hold_out(fraction: float, place: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return fold 0 for a fraction of the units, given their places in a random order, and -1 for the others."""
    held = round(fraction * len(place))
    if fraction and not 0 < held < len(place):
        raise ValueError(
            f"validation_fraction is {fraction}, which holds out {held} of {len(place)} different rows; choose it "
            "such that there are rows to train on and held-out rows"
        )
    return np.where(place < held, 0, -1)


def _hold_out_rows(fraction: float, sizes: NDArray[np.intp], place: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return fold 0 for units with about a fraction of the rows, and -1 for the others.

    Units are taken in random order if that brings the number of held-out rows nearer to the fraction, and at least one.

    Examples
    --------
    >>> _hold_out_rows(0.25, np.array([5, 2, 1]), np.arange(3)).tolist()
    [-1, 0, -1]
    """
    fold, wanted = np.full(len(sizes), -1), fraction * int(sizes.sum())
    order = np.argsort(place)
    for unit in order.tolist():
        if sizes[unit] < 2 * wanted:  # else the total without it is nearer
            fold[unit], wanted = 0, wanted - int(sizes[unit])
    if fraction and (fold < 0).all():
        fold[order[sizes[order].argmin()]] = 0
    return fold


def _check_trained(trained: int, rows: int, folds: int, grouped: bool) -> None:
    """Raise ValueError if a network would be trained on fewer than two rows; warn if one group leaves it only few."""
    if trained < 2:
        advice = "pass smaller groups, or leave groups out" if grouped else "add rows"
        raise ValueError(f"a network would be trained on {trained} of {rows} rows, the others are held out; {advice}")
    if grouped and folds > 1 and trained < _FEW_TRAINED * rows:
        warn(
            f"one group holds {rows - trained} of {rows} rows, where groups with equal features in common count as one;"
            f" the networks that hold it out train on only {trained} rows. Check {option('groups')}"
        )


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
