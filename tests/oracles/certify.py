"""Literal twin of certified cleaning: every sample is drawn, every rule is tried, and probabilities are counted."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

Rules = Sequence[float]  # of each row, the limit at which it loses its label


def p_value(k: int, population: int, allowed: int, m: int) -> Fraction:
    """Count the samples with at most k of the marked rows."""
    marked = allowed + 1 + k
    if marked > population:
        return Fraction(0)
    ways = [math.comb(marked, x) * math.comb(population - marked, m - x) for x in range(min(k, m) + 1)]
    return Fraction(sum(ways), math.comb(population, m))


def tolerated(population: int, allowed: int, m: int, delta: Fraction) -> int:
    k = -1
    while k < m and p_value(k + 1, population, allowed, m) <= delta:
        k += 1
    return k


def limit(limits: Rules, lost: Rules, sample: Sequence[int], allowed: int, delta: Fraction) -> float | None:
    """Walk all rules upwards, and stop before the first that is not certified."""
    found = None
    for one in sorted(set(limits)):
        k = sum(lost[row] <= one for row in sample)
        if p_value(k, len(lost), allowed, len(sample)) > delta:
            break
        found = one
    return found


def is_wrong(lost: Rules, sample: Sequence[int], chosen: float | None, allowed: int) -> bool:
    """Return whether more rows outside the sample lose their label than allowed."""
    return chosen is not None and sum(lost[row] <= chosen for row in range(len(lost)) if row not in sample) > allowed


def violation(limits: Rules, lost: Rules, m: int, allowed: int, delta: Fraction) -> Fraction:
    samples = list(itertools.combinations(range(len(lost)), m))
    wrong = sum(is_wrong(lost, sample, limit(limits, lost, sample, allowed, delta), allowed) for sample in samples)
    return Fraction(wrong, len(samples))


def violation_at_any_time(limits: Rules, lost: Rules, bounds: Sequence[int], allowed: int) -> Fraction:
    """Draw the rows in every order; a certificate may be asked for after every row."""
    orders = list(itertools.permutations(range(len(lost)), len(bounds) - 1))
    wrong = 0
    for order in orders:
        for t, bound in enumerate(bounds):
            rules = [one for one in limits if sum(lost[row] <= one for row in order[:t]) <= bound]
            if rules and is_wrong(lost, order[:t], max(rules), allowed):
                wrong += 1
                break
    return Fraction(wrong, len(orders))


def crossing(bounds: Sequence[int], population: int, allowed: int) -> Fraction:
    """Count the orders in which the first a + 1 + K_t rows have at most K_t among the first t, for some t."""
    orders = list(itertools.permutations(range(population), len(bounds) - 1))
    crossed = sum(
        any(sum(row < allowed + 1 + bound for row in order[:t]) <= bound for t, bound in enumerate(bounds))
        for order in orders
    )
    return Fraction(crossed, len(orders))
