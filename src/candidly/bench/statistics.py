"""Statistical tests on accuracies: two cells over seeds, several methods over datasets.

Seeds are repetitions on one dataset, not independent datasets: t-tests pair them, and ranks use datasets only.
Friedman's test, Nemenyi's critical distance and the groups follow J. Demšar, Statistical Comparisons of Classifiers
over Multiple Data Sets, JMLR 7, 2006.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from candidly.bench.scores import Cell, Scores

__all__ = [
    "Comparison",
    "Paired",
    "Ranks",
    "Record",
    "compare",
    "critical_distance",
    "holm",
    "paired",
    "ranks",
    "wins_ties_losses",
]

LEVEL = 0.05
# Accuracies of different predictions differ by more; smaller differences are rounding errors.
EQUAL = 1e-12


class Paired(NamedTuple):
    """The result of a paired t-test: mean difference, two-sided p-value, number of common seeds."""

    difference: float
    p: float
    n: int


class Record(NamedTuple):
    """Numbers of comparisons in which a method is significantly better, not different, and significantly worse."""

    wins: int
    ties: int
    losses: int


class Comparison(NamedTuple):
    """A cell and a published one: means over the n common seeds, their difference, raw and adjusted p-values."""

    ours: float
    theirs: float
    difference: float
    p: float
    p_holm: float
    n: int

    @property
    def significant(self) -> bool:
        """Whether the difference remains significant after Holm's correction."""
        return self.p_holm < LEVEL


@dataclass(frozen=True)
class Ranks:
    """Ranks of methods on the datasets on which all of them have a cell.

    Attributes
    ----------
    datasets : tuple of str
        The datasets that were used.
    average : mapping of str to float
        Average rank of each method, 1 being the best; empty if no dataset could be used.
    statistic, p : float or None
        Friedman's test of whether all methods rank equally.
    reason : str
        Why there is no test, or no ranks at all; empty otherwise.
    distance : float or None
        Nemenyi's critical distance at 5 %: average ranks that differ by at least this much differ significantly.
    groups : tuple of tuples of str
        Maximal sets of two or more methods that are closer together than the critical distance, best first.
    """

    datasets: tuple[str, ...]
    average: Mapping[str, float]
    statistic: float | None
    p: float | None
    reason: str
    distance: float | None
    groups: tuple[tuple[str, ...], ...]


def paired(a: Mapping[int, float], b: Mapping[int, float]) -> Paired:
    """Test whether two cells differ: a two-sided paired t-test over their common seeds.

    Parameters
    ----------
    a, b : mapping of seed to accuracy

    Returns
    -------
    Paired
        Mean of a − b, p-value and number of common seeds. The p-value is 1 if the two agree on every seed, 0 if they
        differ by the same amount on every seed, and nan with fewer than two common seeds.

    Examples
    --------
    >>> test = paired({0: 0.50, 1: 0.75, 2: 0.75}, {0: 0.50, 1: 0.50, 2: 0.50})
    >>> round(test.difference, 4), round(test.p, 4), test.n
    (0.1667, 0.1835, 3)
    """
    d = np.array([a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())])
    if len(d) == 0:
        return Paired(math.nan, math.nan, 0)
    mean = float(d.mean())
    if len(d) == 1:
        p = math.nan
    elif np.ptp(d) <= EQUAL:
        p = 1.0 if abs(mean) <= EQUAL else 0.0
    else:
        p = float(stats.ttest_1samp(d, 0).pvalue)
    return Paired(mean, p, len(d))


def wins_ties_losses(scores: Scores, method: str, against: Iterable[str] | None = None) -> Record:
    """Count wins, ties and losses of a method against other methods, over all datasets.

    Each comparison is a paired t-test at 5 %, not adjusted for the number of tests. One with a missing cell, or with
    fewer than two common seeds, is left out.

    Parameters
    ----------
    scores : Scores
    method : str
        A method of the scores.
    against : iterable of str, optional
        The methods to compare with, by default all without a cleaner. A method is not compared with itself.

    Returns
    -------
    Record

    Raises
    ------
    ValueError
        If a method is not in the scores.

    Examples
    --------
    >>> cells = {("lost", "proden"): {0: 0.5, 1: 0.5}, ("lost", "conf+proden"): {0: 0.75, 1: 0.75}}
    >>> wins_ties_losses(Scores(cells), "conf+proden")
    Record(wins=1, ties=0, losses=0)
    """
    rivals = scores.base_methods if against is None else tuple(dict.fromkeys(against))
    known = scores.methods
    for name in (method, *rivals):
        if name not in known:
            raise ValueError(f"there is no method {name!r} in these scores; choose from {', '.join(known)}")
    counts = {1: 0, 0: 0, -1: 0}
    for dataset in scores.datasets:
        for rival in rivals:
            if rival != method and {(dataset, method), (dataset, rival)} <= scores.cells.keys():
                test = paired(scores.cells[dataset, method], scores.cells[dataset, rival])
                if test.n > 1:
                    counts[int(math.copysign(1, test.difference)) if test.p < LEVEL else 0] += 1
    return Record(counts[1], counts[0], counts[-1])


def ranks(scores: Scores) -> Ranks:
    """Rank methods by mean accuracy on each dataset, and test whether the ranks differ.

    Only datasets on which every method has a cell are used. Tied methods get the average of their ranks.

    Parameters
    ----------
    scores : Scores

    Returns
    -------
    Ranks

    Examples
    --------
    >>> cells = {("lost", "proden"): {0: 0.5}, ("lost", "cc"): {0: 0.6}, ("lost", "pop"): {0: 0.5}}
    >>> found = ranks(Scores(cells))
    >>> found.average
    {'proden': 2.5, 'cc': 1.0, 'pop': 2.5}
    >>> found.reason
    "Friedman's test needs at least 3 methods and 2 datasets, not 3 and 1"
    """
    methods = scores.methods
    used = tuple(d for d in scores.datasets if all((d, method) in scores.cells for method in methods))
    if not used:
        return Ranks((), {}, None, None, "there is no dataset on which every method has a cell", None, ())
    means = np.array([[scores.mean(dataset, method) for method in methods] for dataset in used])
    table = stats.rankdata(-means, axis=1)
    average = dict(zip(methods, table.mean(axis=0).tolist(), strict=True))
    distance = critical_distance(len(methods), len(used)) if len(methods) > 1 else None
    groups = _group(average, distance) if distance is not None else ()
    statistic, p, reason = _friedman(table)
    return Ranks(used, average, statistic, p, reason, distance, groups)


def critical_distance(methods: int, datasets: int) -> float:
    """Return Nemenyi's critical distance at 5 %: q·√(k(k + 1) / 6N), with q the studentised range divided by √2.

    Parameters
    ----------
    methods, datasets : int
        k, at least 2, and N.

    Returns
    -------
    float

    Examples
    --------
    >>> round(critical_distance(4, 14), 2)
    1.25
    """
    q = stats.studentized_range.ppf(1 - LEVEL, methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(methods * (methods + 1) / (6 * datasets)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple tests by Holm's step-down procedure.

    Parameters
    ----------
    p_values : sequence of float
        nan stands for a test that was not made: it stays nan and does not count.

    Returns
    -------
    list of float
        Adjusted p-values, in the same order.

    Examples
    --------
    >>> holm([0.01, 0.04, float("nan"), 0.03])
    [0.03, 0.06, nan, 0.06]
    """
    order = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=lambda i: p_values[i])
    adjusted, worst = [math.nan] * len(p_values), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = worst
    return adjusted


def compare(scores: Scores, other: Scores) -> dict[Cell, Comparison]:
    """Compare each cell with the same cell of other scores, such as published ones.

    Parameters
    ----------
    scores, other : Scores

    Returns
    -------
    dict of (dataset, method) to Comparison
        For every cell that both have. Means are over the common seeds, or over all seeds of each if none is common.
        Holm's correction is over all compared cells.

    Examples
    --------
    >>> ours = Scores({("lost", "proden"): {0: 0.75, 1: 0.50}})
    >>> theirs = Scores({("lost", "proden"): {0: 0.50, 1: 0.50}, ("lost", "cc"): {0: 0.50}})
    >>> found = compare(ours, theirs)["lost", "proden"]
    >>> found.difference, round(found.p, 2), found.n
    (0.125, 0.5, 2)
    """
    if scores.split != other.split:
        raise ValueError(
            f"accuracies on {scores.split} rows cannot be compared with those on {other.split} rows; read one split"
        )
    rows = []
    cells = [cell for cell in scores.cells if cell in other.cells]
    for cell in cells:
        a, b = scores.cells[cell], other.cells[cell]
        common = sorted(a.keys() & b.keys())
        ours = float(np.mean([a[seed] for seed in common or a]))
        theirs = float(np.mean([b[seed] for seed in common or b]))
        rows.append((ours, theirs, ours - theirs, paired(a, b)))
    adjusted = holm([test.p for *_, test in rows])
    return {
        cell: Comparison(ours, theirs, difference, test.p, p_holm, test.n)
        for cell, (ours, theirs, difference, test), p_holm in zip(cells, rows, adjusted, strict=True)
    }


def _friedman(table: np.ndarray) -> tuple[float | None, float | None, str]:
    """Return the statistic and p-value of Friedman's test, or the reason why there is no test."""
    datasets, methods = table.shape
    if methods < 3 or datasets < 2:
        needs = "Friedman's test needs at least 3 methods and 2 datasets"
        return None, None, f"{needs}, not {methods} and {datasets}"
    if np.ptp(table, axis=1).max() == 0:  # all methods are tied on every dataset: the statistic would be 0/0
        return 0.0, 1.0, ""
    test = stats.friedmanchisquare(*table.T)
    return float(test.statistic), float(test.pvalue), ""


def _group(average: Mapping[str, float], distance: float) -> tuple[tuple[str, ...], ...]:
    """Return the maximal sets of at least two methods that are closer together than the critical distance."""
    order = sorted(average, key=lambda method: average[method])
    groups, reached = [], 0
    for i, first in enumerate(order):
        j = i
        while j < len(order) and average[order[j]] - average[first] < distance:
            j += 1
        if j > max(reached, i + 1):  # otherwise a part of the previous group, or a single method
            groups.append(tuple(order[i:j]))
        reached = max(reached, j)
    return tuple(groups)
