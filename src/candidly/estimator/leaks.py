"""Point out bags in the order of the training rows, and whether their features leak from row to row."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates.bags import Stretches, find_stretches, number_sets
from candidly.messages import option, warn

_NEIGHBOURS = 5
_MOST_ROWS, _MOST_VALUES = 1000, 2_000_000  # rows that are predicted, and values of the rows they are compared with
_LEAST_COMPARED = 2000
_LEAST_LEAK, _DEVIATIONS = 0.05, 2.5  # a smaller difference in the covering rate, or a less certain one, is no leak


@dataclass(frozen=True)
class Leak:
    """Covering rates of a nearest-neighbour classifier on rows in bags, with and without their bags.

    Attributes
    ----------
    apart : float
        The covering rate if only the row itself is held out. If the table is sorted by sets: if random rows with the
        same set are held out too.
    together : float
        The covering rate if the row's bag is held out. If the table is sorted by sets: if as many rows with the same
        set are held out as for `apart`, those nearest to the row in the table.
    certain : bool
        Whether `together` is smaller by at least 5 points and 2.5 standard errors over bags.
    """

    apart: float
    together: float
    certain: bool


def point_out_bags(X: NDArray[Any], S: NDArray[np.bool_]) -> None:
    """Warn if consecutive rows look like bags: they have equal candidate sets far more often than shuffled rows.

    Parameters
    ----------
    X : ndarray, shape (n, ...)
        Encoded features. A row that equals the row before it is ignored: such rows are held out together anyway.
    S : ndarray of bool, shape (n, C)
        Candidates.
    """
    found = find_stretches(S)
    if found is None:
        return
    again = np.zeros(len(X), bool)
    inside = np.flatnonzero(found.inside[1:] & (found.bag[1:] == found.bag[:-1])) + 1
    again[inside] = (X[inside] == X[inside - 1]).reshape(len(inside), -1).all(axis=1)
    if again.any():
        X, S = X[~again], S[~again]
        found = find_stretches(S)
        if found is None:
            return
    leak = measure_leak(X, S, found)
    if found.by_set and not leak.certain:  # sorting explains everything
        return
    warn(_describe(found, leak))


def _describe(found: Stretches, leak: Leak) -> str:
    fraction = f"{found.inside.mean():.0%} of the rows, in stretches of up to {found.longest}"
    structure = f"consecutive rows often have the same candidate set ({fraction})"
    if found.by_set:
        structure = f"rows are sorted by candidate set ({fraction}), but also resemble the rows next to them"
    verdict = "features leak, so held-out results flatter" if leak.certain else "features hardly leak"
    left_out = "the rows next to them" if found.by_set else "their stretch"
    rates = f"nearest neighbours cover {leak.apart:.0%} of these rows, and {leak.together:.0%} without {left_out}"
    advice = f"pass the scene or recording of each row with {option('groups')}"
    origin = "as if they came from one scene or recording"
    return f"{structure}, {origin}; {verdict}: {rates}. To hold them out together, {advice}"


def measure_leak(X: NDArray[Any], S: NDArray[np.bool_], found: Stretches) -> Leak:
    """Compare the covering rates of rows in bags with and without their bags, on at most 1,000 rows."""
    rng = np.random.default_rng(0)
    sizes = np.bincount(found.bag)
    bags = rng.permutation(np.unique(found.bag[found.inside]))
    bags = bags[: max(int(np.searchsorted(sizes[bags].cumsum(), _MOST_ROWS, side="right")), 1)]
    asked = np.flatnonzero(np.isin(found.bag, bags))[: 2 * _MOST_ROWS]
    others = np.setdiff1d(np.arange(len(X)), asked)
    most = max(_LEAST_COMPARED, _MOST_VALUES // max(int(np.prod(X.shape[1:])), 1))
    some = rng.permutation(others)[: max(most - len(asked), 0)]
    compared = np.sort(np.concatenate([asked, some]))
    place = np.searchsorted(compared, asked)
    features = X[compared].reshape(len(compared), -1).astype(np.float32)
    squares = (features**2).sum(axis=1)
    distance = squares - 2 * features[place] @ features.T  # less the square of the row itself, which changes no order
    distance[np.arange(len(asked)), place] = np.inf
    sets, bag = S[compared], found.bag[compared]
    if found.by_set:
        alike, beside = _same_number(number_sets(sets), bag, place, rng)
    else:
        alike, beside = np.zeros(distance.shape, bool), bag[place][:, None] == bag
    apart, together = (_covers(distance, sets, place, out) for out in (alike, beside))
    differences = np.bincount(bag[place], weights=together.astype(float) - apart)
    drop = float(apart.mean() - together.mean())
    spread = np.sqrt((differences**2).sum()) / len(place)
    return Leak(float(apart.mean()), float(together.mean()), bool(drop >= max(_LEAST_LEAK, _DEVIATIONS * spread)))


def _same_number(
    number: NDArray[np.intp], bag: NDArray[np.intp], place: NDArray[np.intp], rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows to hold out with each row: random ones with its set, and as many next to it in its stretch.

    Rows with equal sets have equal numbers. A stretch may hold all rows with its set, so at most half of them are held
    out.
    """
    alike, beside = np.zeros((2, len(place), len(number)), bool)
    for i, row in enumerate(place):
        ends = np.searchsorted(bag, [bag[row], bag[row] + 1])
        near = np.delete(np.arange(*ends), row - ends[0])
        same = np.flatnonzero(number == number[row])
        same = same[same != row]
        count = min(len(near), len(same) // 2)
        beside[i, near[np.argsort(np.abs(near - row), kind="stable")[:count]]] = True
        alike[i, rng.permutation(same)[:count]] = True
    return alike, beside


def _covers(
    distance: NDArray[np.float32], sets: NDArray[np.bool_], place: NDArray[np.intp], left_out: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return whether the class that the nearest neighbours vote for is a candidate; nearer ones have more weight."""
    far = np.where(left_out, np.inf, distance)
    number = min(_NEIGHBOURS, far.shape[1])
    nearest = np.argpartition(far, number - 1, axis=1)[:, :number]
    nearest = np.take_along_axis(nearest, np.take_along_axis(far, nearest, axis=1).argsort(axis=1), axis=1)
    weights = 1 / np.arange(1, number + 1) / sets.sum(axis=1)[nearest]
    total = np.einsum("qk,qkc->qc", weights, sets[nearest])
    covered: NDArray[np.bool_] = sets[place, total.argmax(axis=1)]
    return covered
