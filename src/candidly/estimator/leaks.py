"""Point out bags in the order of the training rows, and whether their features leak from row to row."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates.bags import Stretches, find_stretches
from candidly.messages import option, warn

_NEIGHBOURS = 5
_MOST_ROWS = 1000  # that are predicted
_MOST_VALUES, _COMPARED = 2_000_000, (2000, 10_000)  # values of the rows they are compared with; fewest and most rows
_LEAST_LEAK, _DEVIATIONS = 0.05, 2.5  # a smaller difference in the covering rate, or a less certain one, is no leak


@dataclass(frozen=True)
class Leak:
    """Covering rates of a nearest-neighbour classifier on rows in stretches, if other rows are held out with them.

    Attributes
    ----------
    apart : float
        The covering rate if only the row itself is held out. If the table is sorted by sets: if half of its stretch is
        held out too, at random.
    together : float
        The covering rate if the row's stretch is held out. If the table is sorted by sets: if the half of its stretch
        that is nearest in the table is held out.
    certain : bool
        Whether `together` is smaller by at least 5 points and 2.5 standard errors over stretches. If the table is
        sorted by sets, rows must also resemble the rows next to them more than sorting by class would explain.
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
    is_asked = np.isin(found.bag, bags)
    asked, others = np.flatnonzero(is_asked)[: 2 * _MOST_ROWS], np.flatnonzero(~is_asked)
    most = int(np.clip(_MOST_VALUES // max(int(np.prod(X.shape[1:])), 1), *_COMPARED))
    some = rng.permutation(others)[: max(most - len(asked), 0)]
    compared = np.sort(np.concatenate([asked, some]))
    place = np.searchsorted(compared, asked)
    features = X[compared].reshape(len(compared), -1).astype(np.float32)
    squares = (features**2).sum(axis=1)
    distance = squares - 2 * features[place] @ features.T  # less the square of the row itself, which changes no order
    distance[np.arange(len(asked)), place] = np.inf
    sets, bag = S[compared], found.bag[compared]
    beside = bag[place][:, None] == bag
    alike = np.zeros_like(beside)
    serial = True
    if found.by_set:
        serial = _is_serial(np.where(beside, distance, np.inf), sets, bag, place)
        alike, beside = _halve(beside, place, rng)
    apart, together = (_covers(distance, sets, place, out) for out in (alike, beside))
    differences = np.bincount(bag[place], weights=together.astype(float) - apart)
    drop = float(apart.mean() - together.mean())
    spread = float(np.sqrt((differences**2).sum())) / len(place)
    certain = serial and drop >= max(_LEAST_LEAK, _DEVIATIONS * spread)
    return Leak(float(apart.mean()), float(together.mean()), certain)


def _is_serial(
    distance: NDArray[np.float32], sets: NDArray[np.bool_], bag: NDArray[np.intp], place: NDArray[np.intp]
) -> bool:
    """Return whether the nearest row of the same stretch is more often the next or previous one than sorting explains.

    In a stretch of m rows in random order, that is so for each row with probability 2/m: on average for 2 rows of the
    stretch. If the stretch is sorted by class, it is so for at most 2 rows per candidate.
    """
    long = np.bincount(bag)[bag[place]] > 2
    next_to = np.abs(distance.argmin(axis=1) - place)[long] == 1
    _, first = np.unique(bag[place][long], return_index=True)
    most = 2 * int(sets[place[long][first]].sum())
    return int(next_to.sum()) > most + _DEVIATIONS * np.sqrt(most)


def _halve(
    stretch: NDArray[np.bool_], place: NDArray[np.intp], rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return half of each row's stretch twice: at random, and the rows nearest to it in the table."""
    alike, beside = np.zeros_like(stretch), np.zeros_like(stretch)
    for i, row in enumerate(place):
        others = np.flatnonzero(stretch[i])
        others = others[others != row]
        half = len(others) // 2
        alike[i, rng.permutation(others)[:half]] = True
        beside[i, others[np.argsort(np.abs(others - row), kind="stable")[:half]]] = True
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
