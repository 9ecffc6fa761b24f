"""Exact tests of a sample that was drawn without replacement: p-values, tolerated losses, intervals.

`candidly.cleaning.certify` explains the setting and has the proof. Here are its probabilities: N is the number of rows
that the sample was drawn from, `allowed` is a, and losses are rows that lose their true label.
"""

from decimal import Decimal
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from candidly.cleaning.estimates import Estimate

_BISECTIONS = 20
_ROUNDING = 1e-7  # relative; p-values are rounded up, so that rounding errors certify nothing
_LARGE = 1 << 22  # rows from which on binomial coefficients are added up, factor by factor


def count_allowed(n: int, alpha: float) -> int:
    """Return the number of rows that may lose their label: the integer part of ``alpha · n`` in decimal arithmetic.

    Examples
    --------
    >>> count_allowed(100, 0.29), int(100 * 0.29)
    (29, 28)
    """
    return int(Decimal(repr(float(alpha))) * n)


def risk(confidence: float) -> float:
    """Return 1 − confidence in decimal arithmetic.

    Examples
    --------
    >>> risk(0.9), 1 - 0.9
    (0.1, 0.09999999999999998)
    """
    return float(1 - Decimal(repr(float(confidence))))


def p_value(losses: int, population: int, allowed: int, checked: int) -> float:
    """Return the p-value of the hypothesis that more than `allowed` unchecked rows lose their label.

    Parameters
    ----------
    losses : int
        Rows of the sample that lose it: k.
    population : int
        Rows that the sample was drawn from: the size of A.
    allowed : int
        Rows outside the sample that may lose it: a.
    checked : int
        Rows of the sample: m.

    Returns
    -------
    float
        ``P(Hyp(population, allowed + 1 + losses, checked) ≤ losses)``; 0 if there are not that many rows.

    Examples
    --------
    >>> round(p_value(0, 1000, 50, 45), 4), round(p_value(2, 1000, 50, 100), 4)
    (0.0898, 0.084)
    """
    marked = allowed + 1 + losses
    if marked > population:
        return 0.0
    return float(_p_values(losses, population, allowed, torch.tensor([checked]))[0])


def _p_values(losses: int, population: int, allowed: int, checked: Tensor) -> Tensor:
    """Return `p_value` for several numbers of checked rows, where the population has enough rows."""
    return (_at_most(losses, population, allowed + 1 + losses, checked) * (1 + _ROUNDING)).clamp_max(1.0)


def _at_most(k: int, population: int, marked: int, checked: Tensor) -> Tensor:
    """Return the hypergeometric distribution function ``P(Hyp(population, marked, checked) ≤ k)``, for several samples.

    k is at least -1.
    """
    total = checked.double()[:, None]
    x = torch.arange(min(k, marked) + 1, dtype=torch.float64)
    possible = (x <= total) & (total - x <= population - marked)
    others = (total - x).clamp(0, population - marked)  # lgamma is not defined where it is impossible
    terms = _log_choose(marked, x) + _log_choose(population - marked, others) - _log_choose(population, total)
    return terms.masked_fill(~possible, -torch.inf).exp().sum(1)


def _log_choose(n: int, k: Tensor) -> Tensor:
    if n > _LARGE:  # differences of large logarithms would lose too many digits
        i = torch.arange(int(k.max()), dtype=torch.float64)
        sums = torch.cat([torch.zeros(1).double(), (torch.log(n - i) - torch.log(i + 1)).cumsum(0)])
        return sums[k.long()]
    return torch.lgamma(torch.tensor(n + 1.0).double()) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)


def tolerated(population: int, allowed: int, checked: int, delta: float) -> int:
    """Return the largest number of losses with a p-value of at most `delta`; -1 if there is none.

    Parameters
    ----------
    population, allowed, checked : int
        As in `p_value`.
    delta : float
        Probability with which the certificate may be wrong.

    Examples
    --------
    >>> [tolerated(1000, 50, m, 0.1) for m in (44, 45, 100, 200)]
    [0, 0, 2, 7]
    """
    low, high = -1, checked
    while low < high:
        middle = (low + high + 1) // 2
        if p_value(middle, population, allowed, checked) <= delta:
            low = middle
        else:
            high = middle - 1
    return low


def tolerated_by_prefix(population: int, allowed: int, checked: int, delta: float) -> NDArray[np.int64]:
    """Return the number of losses that is tolerated after each number of checked rows, for stopping at any time.

    Parameters
    ----------
    population, allowed, checked : int
        As in `p_value`; `checked` is the largest number of rows.
    delta : float
        Probability with which any of the certificates may be wrong.

    Returns
    -------
    ndarray, shape (checked + 1,)
        K_t for t = 0 … checked; -1 where nothing can be certified.

    Notes
    -----
    K_t is what `tolerated` gives for t rows and a probability ε instead of `delta`. The same ε is used for all t: the
    largest at which the probability that the first a + 1 + K_t rows of the order have at most K_t rows among the first
    t that are drawn, for some t, does not exceed `delta`. That probability is computed exactly. Let b be a + 1 + K_t,
    and x the number of these b rows that were drawn. The next row that is drawn is one of them with probability
    ``(b − x) / (population − t)``. If K_t rises, b does, too, and the additional row was drawn with probability
    ``(t − x) / (population − b)``, whatever happened before, because all rows outside of the b rows are alike. So x is
    a Markov chain. docs/evidence/certify.md compares this with martingales (I. Waudby-Smith and A. Ramdas, *Confidence
    sequences for sampling without replacement*, NeurIPS 2020), which tolerate fewer losses.

    Examples
    --------
    >>> tolerated_by_prefix(1000, 50, 200, 0.1)[[50, 75, 100, 150, 200]].tolist()
    [-1, 0, 1, 3, 5]
    """
    most = min(tolerated(population, allowed, checked, delta), population - allowed - 1)
    looks = torch.arange(checked + 1)
    table = [_p_values(k, population, allowed, looks).numpy() for k in range(most + 1)]
    p = np.stack([*table, np.full(checked + 1, 2.0)], 1)  # of each number of rows and losses, and of one loss too many

    def bounds(level: float) -> NDArray[np.int64]:
        return np.maximum.accumulate((p > level).argmax(1) - 1)

    low, high = 0.0, delta
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _crossing(bounds(middle), population, allowed) <= delta:
            low = middle
        else:
            high = middle
    return bounds(low)


def _crossing(bounds: NDArray[np.int64], population: int, allowed: int) -> float:
    """Return the probability that the first a + 1 + K_t rows of A have at most K_t rows among the first t, for some t.

    The bounds K_t must not fall.
    """
    x = np.arange(bounds[-1] + 2)
    alive = np.eye(1, len(x))[0]  # probabilities of x without a crossing; larger x cannot cross
    crossed, b = 0.0, allowed + 1
    for t, bound in enumerate(bounds.tolist()):
        while b < allowed + 1 + bound:
            alive = _rise(alive, (t - x) / max(population - b, 1))
            b += 1
        crossed += float(alive[: bound + 1].sum())
        alive[: bound + 1] = 0.0
        alive = _rise(alive, (b - x) / max(population - t, 1))
    return crossed * (1 + _ROUNDING)


def _rise(p: NDArray[Any], chance: NDArray[Any]) -> NDArray[Any]:
    """Return the probabilities of x after it rose by 1 with a chance that depends on x."""
    up = p * chance.clip(0.0, 1.0)
    found = p - up
    found[1:] += up[:-1]
    return found


def rows_needed(population: int, allowed: int, delta: float, losses: int = 0) -> int:
    """Return the smallest number of checked rows at which so many `losses` are tolerated.

    Examples
    --------
    >>> rows_needed(1000, 50, 0.1), rows_needed(10**6, 50_000, 0.1), rows_needed(1000, 50, 0.1, losses=3)
    (44, 45, 118)
    """
    low, high = losses, max(population - allowed, losses)
    while low < high:
        middle = (low + high) // 2
        if p_value(losses, population, allowed, middle) <= delta:
            high = middle
        else:
            low = middle + 1
    return low


def interval(low: int, high: int, checked: int, population: int, confidence: float) -> Estimate:
    """Return the fraction of marked rows in a population, with an exact interval, from a sample without replacement.

    Parameters
    ----------
    low, high : int
        Marked rows of the sample: at least, and at most, because some are not known.
    checked, population : int
        Rows of the sample and of the population.
    confidence : float
        Probability with which the interval holds the fraction: both ends are tests at level (1 − confidence) / 2.

    Examples
    --------
    >>> found = interval(3, 3, 100, 1000, 0.9)
    >>> [round(value, 3) for value in found]
    [0.03, 0.009, 0.073]
    """
    tail = risk(confidence) / 2

    def at_most(k: int, marked: int) -> float:
        return float(_at_most(k, population, marked, torch.tensor([checked]))[0])

    fewest, most = low, population - checked + high  # marked rows that the sample leaves possible
    least, end = fewest, most
    while least < end:  # the smallest number at which at least `low` marked rows are not too unlikely
        middle = (least + end) // 2
        if 1 - at_most(low - 1, middle) > tail:
            end = middle
        else:
            least = middle + 1
    largest, start = most, fewest
    while start < largest:  # the largest number at which at most `high` are not
        middle = (start + largest + 1) // 2
        if at_most(high, middle) > tail:
            start = middle
        else:
            largest = middle - 1
    value = low / max(checked - (high - low), 1)
    return Estimate(value, min(least / population, value), max(largest / population, value))


def violation(lost: Tensor, population: int, allowed: int, checked: int, delta: float) -> float:
    """Return the probability over the draw that a certificate is wrong, given the true labels of all rows.

    Parameters
    ----------
    lost : Tensor, shape (population,)
        The level at which each row of A loses its label; inf if never.
    population, allowed, checked : int
        As in `p_value`.
    delta : float
        As in `tolerated`.

    Notes
    -----
    The certificate is wrong if some λ has at most K losses in V and more than a outside. With D(λ) losses in all, that
    is ``k(λ) ≤ min(K, D(λ) − a − 1)``. Losses outside V rise with λ, so among all λ with D ≤ a + K the last one
    decides, and among those with D > a + K the first one, because k rises. With d and e losses at these two, the
    probability is ``P(k_e ≤ K) + P(k_d ≤ d − a − 1, k_e > K)``, a sum of hypergeometric probabilities, without
    simulation.

    Examples
    --------
    >>> violation(torch.arange(1000.0), 1000, 50, 200, 0.1) <= 0.1
    True
    """
    most = tolerated(population, allowed, checked, delta)
    if most < 0:
        return 0.0

    def at_most(k: int, rows: int, marked: int, drawn: int) -> float:
        return float(_at_most(k, rows, marked, torch.tensor([drawn]))[0])

    _, sizes = lost[lost.isfinite()].unique(return_counts=True)
    totals = [0, *sizes.cumsum(0).tolist()]
    before = max(total for total in totals if total <= allowed + most)
    after = next((total for total in totals if total > allowed + most), None)
    wrong = 0.0 if after is None else at_most(most, population, after, checked)
    for x in range(before - allowed):  # losses in V at which more than `allowed` remain outside
        here = at_most(x, population, before, checked) - at_most(x - 1, population, before, checked)
        more = 1.0
        if after is not None:
            more -= at_most(most - x, population - before, after - before, checked - x)
        wrong += here * more
    return wrong
