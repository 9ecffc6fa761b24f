"""The risk budget and its parts equal their literal twins."""

import itertools

import pytest
import torch

from candidly import conformal
from candidly.cleaning import budget, estimates
from candidly.cleaning.budget import Budget
from candidly.cleaning.estimates import Estimate
from tests.oracles import budget as budget_twin
from tests.oracles import temperature as temperature_twin
from tests.oracles.scored import NORMAL, made, rows, sets

CASES = list(itertools.product((0, 1, 2), (None, 2)))  # seeds, and whether log-probabilities tie


@pytest.mark.parametrize(("seed", "ties"), CASES)
def test_probabilities_and_errors(seed, ties):
    z, S, _ = made(seed, ties)
    for T in (1.0, 1.7, 40.0):
        wanted = temperature_twin.candidate_probabilities(rows(z), sets(S), T)
        torch.testing.assert_close(conformal.candidate_probabilities(z, S, T), torch.tensor(wanted, dtype=z.dtype))
        found = estimates.expected_error(z, S, T)
        assert found == pytest.approx(budget_twin.expected_error(rows(z), sets(S), T), abs=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_raised_temperature(seed):
    z, S, _ = made(seed)
    start = estimates.expected_error(z, S, 1.2)
    for error in (start - 0.01, start, start + 0.02, start + 0.1):
        found = estimates.raise_temperature(z, S, 1.2, error)
        assert found == pytest.approx(budget_twin.raise_temperature(rows(z), sets(S), 1.2, error), rel=2e-3)
        assert (found == 1.2) == (error <= start)
    assert estimates.raise_temperature(z, S, 1.2, 1.0) == pytest.approx(100)


@pytest.mark.parametrize("low", [0.4, 0.15, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_excess(seed, low):
    z, S, _ = made(seed, n=90, C=5)
    for T in (1.0, 2.5):
        wanted = budget_twin.excess_membership(rows(z), sets(S), T, low)
        assert estimates.excess_membership(z, S, T, low) == pytest.approx(wanted, abs=1e-10)


def test_excess_of_full_sets_divides_by_a_tenth_at_least():
    z, S, _ = made(0)
    S = S | (torch.arange(len(S)) > 5)[:, None]
    wanted = budget_twin.excess_membership(rows(z), sets(S), 1.0, 0.4)
    assert estimates.excess_membership(z, S, 1.0) == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize(("seed", "ties"), CASES)
def test_risk_budget(seed, ties, by_class):
    z, S, _ = made(seed, ties)
    q = conformal.candidate_probabilities(z, S, 1.3)
    if ties is not None:
        q = (q * 64).round() / 64
        assert len(q[S].unique()) < S.sum() / 2
    protected = torch.rand(S.shape, generator=torch.Generator().manual_seed(seed)) < 0.3
    seen = set()
    for alpha, shield in itertools.product((1e-9, 0.02, 0.1, 0.25, 0.6, 0.999), (None, protected)):
        found = budget.risk_budget(q, S, alpha, by_class=by_class, protected=shield)
        wanted = budget_twin.risk_budget(rows(q), sets(S), alpha, by_class, None if shield is None else sets(shield))
        assert sets(found) == wanted
        seen.add(int(found.sum()))
    assert len(seen) > 6


def entangled(seed, share):
    """Classes 0 and 1 come together but for a share of their rows; the others come by chance."""
    z, S, y = made(seed, n=120)
    generator = torch.Generator().manual_seed(seed)
    both = (y < 2) & (torch.rand(len(y), generator=generator) >= share)
    S[:, :2] = torch.where(both[:, None], True, torch.nn.functional.one_hot(y, 4)[:, :2].bool())
    return z, S


@pytest.mark.parametrize("share", [0.0, 0.06, 0.12, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_inseparable_classes(seed, share):
    z, S = entangled(seed, share)
    for T in (1.0, 3.0):
        for some in (S, made(seed, n=120)[1]):
            q = conformal.candidate_probabilities(z, some, T)
            wanted = budget_twin.find_inseparable(rows(q), sets(some), 0.05, 4.0)
            assert set(map(tuple, budget.find_inseparable(q, some).tolist())) == wanted


def test_the_rule_is_made_of_these_parts():
    z, S = entangled(0, 0.0)
    likely = z[:, 2:].argmax(1, keepdim=True) + 2
    S |= torch.zeros_like(S).scatter(1, likely, True)  # so that candidates resemble each other
    told = ~S.all(1)
    assert not told.all()
    rule, T = Budget.of(z, S), conformal.fit_temperature(z, S)
    assert rule.error == pytest.approx(budget_twin.expected_error(rows(z), sets(S), T))
    z, S = z[told], S[told]  # what is unlabelled does not show how candidates come about
    z_rows, S_sets = rows(z), sets(S)
    error, excess = budget_twin.expected_error(z_rows, S_sets, T), budget_twin.excess_membership(z_rows, S_sets, T, 0.4)
    assert excess > error + 0.1
    assert (rule.temperature, rule.excess) == pytest.approx((T, excess))
    hotter = budget_twin.raise_temperature(z_rows, S_sets, T, error + 0.15 * (excess - error))
    assert rule.cautious == pytest.approx(hotter, rel=2e-3)
    q = temperature_twin.candidate_probabilities(z_rows, S_sets, rule.cautious)
    pairs = budget_twin.find_inseparable(temperature_twin.candidate_probabilities(z_rows, S_sets, T), S_sets, 0.05, 4.0)
    assert (0, 1) in pairs
    protected = [{k for k in range(4) if (row.index(max(row)), k) in pairs} for row in q]
    for alpha in (0.02, 0.1, 0.5):
        assert sets(rule.keep(z, S, alpha)) == budget_twin.risk_budget(q, S_sets, alpha, True, protected)


def test_some_of_these_classes_are_inseparable():
    found = [
        len(budget.find_inseparable(conformal.candidate_probabilities(z, S, 1.0), S))
        for z, S in (entangled(seed, share) for seed in range(3) for share in (0.0, 0.06, 0.12, 0.3))
    ]
    assert set(found) == {0, 2}


@pytest.mark.parametrize(("seed", "ties"), CASES)
def test_lost_labels(seed, ties):
    z, S, _ = made(seed, ties)
    rule = Budget(1.1, 1.9, 0.0, 0.0, torch.zeros(0, 2).long(), Estimate(0.0, 0.0, 0.0), False)
    for alpha in (1e-9, 0.05, 0.3, 0.9):
        kept = rule.keep(z, S, alpha)
        wanted = budget_twin.lost(rows(z), sets(S), sets(kept), (1.1, 1.9), (0.5, 1.5), NORMAL)
        assert rule.lost(z, S, kept) == pytest.approx(wanted, abs=1e-12)
