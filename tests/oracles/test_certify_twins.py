"""Certified cleaning equals its literal twin, and is wrong as rarely as it says: small tables, all samples."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import hypergeom

from candidly.cleaning import certify, exact
from tests.oracles import certify as twin

NEVER = float("inf")
DELTAS = (Fraction(101, 1009), Fraction(303, 1009), Fraction(503, 1009))  # no p-value of a small table equals them


def made(seed, population, tied):
    """Return the limit at which each row loses its label, and all limits."""
    rng = np.random.default_rng(seed)
    levels = rng.integers(1, 5, population) if tied else rng.permutation(population) + 1
    limits = sorted({float(one) for one in levels} | {0.5})
    return np.where(rng.random(population) < 0.25, NEVER, levels.astype(float)).tolist(), limits


def test_p_values():
    for population, allowed in itertools.product((5, 9, 14), (0, 1, 3)):
        for m in range(population + 1):
            for k in range(m + 1):
                wanted = twin.p_value(k, population, allowed, m)
                assert exact.p_value(k, population, allowed, m) == pytest.approx(float(wanted), rel=1e-6, abs=0)
            for delta in DELTAS:
                found = exact.tolerated(population, allowed, m, float(delta))
                assert found == twin.tolerated(population, allowed, m, delta)


def test_p_values_of_large_tables_are_those_of_scipy():
    for population, allowed, m, k in [(1122, 56, 200, 3), (100_000, 5000, 400, 12), (10**6, 10_000, 50_000, 480)]:
        found = exact.p_value(k, population, allowed, m)
        wanted = hypergeom.cdf(k, population, allowed + 1 + k, m)
        assert wanted <= found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_certificates_are_wrong_as_rarely_as_they_say(seed, tied):
    lost, limits = made(seed, 11, tied)
    seen = set()
    for allowed, m, delta in itertools.product((1, 2, 3), (3, 5, 7), DELTAS):
        wanted = twin.violation(limits, lost, m, allowed, delta)
        assert wanted <= delta
        found = exact.violation(torch.tensor(lost), len(lost), allowed, m, float(delta))
        assert found == pytest.approx(float(wanted), abs=1e-12)
        seen.add(wanted)
    assert len(seen) > 3


@pytest.mark.parametrize("seed", range(3))
def test_limits(seed):
    lost, limits = made(seed, 9, tied=True)
    for sample in itertools.combinations(range(9), 5):
        most = twin.tolerated(9, 2, 5, DELTAS[-1])
        own = torch.tensor([lost[row] for row in sample])
        found = certify.largest_limit(torch.tensor([*limits, NEVER]), own, most)
        assert found == twin.limit(limits, lost, sample, 2, DELTAS[-1])


@pytest.mark.parametrize(("population", "allowed", "m"), [(8, 1, 6), (8, 2, 5), (7, 0, 7), (7, 3, 4)])
def test_boundaries_of_sequential_plans_are_crossed_as_rarely_as_they_say(population, allowed, m):
    for delta in DELTAS:
        bounds = exact.tolerated_by_prefix(population, allowed, m, float(delta))
        assert bounds.shape == (m + 1,)
        assert (np.diff(bounds) >= 0).all()
        wanted = twin.crossing(bounds.tolist(), population, allowed)
        assert wanted <= delta
        assert exact._crossing(bounds, population, allowed) == pytest.approx(float(wanted), abs=1e-6)
        assert bounds[-1] <= exact.tolerated(population, allowed, m, float(delta))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_sequential_certificates_are_wrong_as_rarely_as_they_say(seed, tied):
    lost, limits = made(seed, 7, tied)
    tested = 0
    for allowed, delta in itertools.product((1, 2), DELTAS):
        bounds = exact.tolerated_by_prefix(7, allowed, 5, float(delta)).tolist()
        assert twin.violation_at_any_time(limits, lost, bounds, allowed) <= delta
        tested += bounds[-1] >= 0
    assert tested


def test_intervals_hold_the_truth_as_often_as_they_say():
    population, m = 13, 6
    for marked in range(population + 1):
        for confidence in (0.5, 0.8, 0.95):
            held = 0.0
            for x in range(max(m - (population - marked), 0), min(m, marked) + 1):
                found = exact.interval(x, x, m, population, confidence)
                assert 0 <= found.low <= found.value <= found.high <= 1
                held += (found.low * population <= marked + 1e-9 and marked - 1e-9 <= found.high * population) * (
                    hypergeom.pmf(x, population, marked, m)
                )
            assert held >= confidence - 1e-12
