"""The cleaning rule and its audit equal loops over rows and labels."""

import itertools
from statistics import NormalDist

import pytest
import torch

from candidly import conformal
from candidly.cleaning import audit, budget
from candidly.cleaning.budget import Budget
from tests.oracles import cleaning

NORMAL = NormalDist().inv_cdf(0.95)
CASES = list(itertools.product((0, 1, 2), (None, 2)))  # seeds, and whether log-probabilities tie


def made(seed, ties=None, n=60, C=4):
    """Rows of unequal classes, whose probabilities are too sure; with `ties`, they have few different values."""
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(n, C, generator=generator, dtype=torch.float64) + torch.linspace(0, 1, C)
    if ties is not None:
        z = (z * ties).round() / ties
    y = (z / 1.4).softmax(-1).multinomial(1, generator=generator)[:, 0]
    S = (torch.rand(n, C, generator=generator) < 0.4).scatter(1, y[:, None], True)
    return z, S, y


def rows(tensor):
    return tensor.tolist()


def sets(S):
    return [{j for j, there in enumerate(row) if there} for row in S.tolist()]


@pytest.mark.parametrize(("seed", "ties"), CASES)
def test_probabilities_and_errors(seed, ties):
    z, S, _ = made(seed, ties)
    for T in (1.0, 1.7, 40.0):
        wanted = cleaning.candidate_probabilities(rows(z), sets(S), T)
        torch.testing.assert_close(conformal.candidate_probabilities(z, S, T), torch.tensor(wanted, dtype=z.dtype))
        found = budget.expected_error(z, S, T)
        assert found == pytest.approx(cleaning.expected_error(rows(z), sets(S), T), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_temperature(seed):
    """The grid's steps are 0.6 %, the search ends within 0.01 %."""
    z, S, _ = made(seed)
    for scale in (1.0, 0.3, 20.0):  # the best one lies inside, at 1 and at 10
        found = conformal.fit_temperature(scale * z, S)
        assert found == pytest.approx(cleaning.fit_temperature(rows(scale * z), sets(S), 400), rel=7e-3)
        assert 1 <= found <= 10.001


def test_temperatures_lie_inside_and_at_both_ends():
    z, S, _ = made(0)
    assert [round(conformal.fit_temperature(scale * z, S), 2) for scale in (0.3, 20.0)] == [1.0, 10.0]
    assert 1.05 < conformal.fit_temperature(2 * z, S) < 9


@pytest.mark.parametrize("seed", range(2))
def test_raised_temperature(seed):
    z, S, _ = made(seed)
    start = budget.expected_error(z, S, 1.2)
    for error in (start - 0.01, start, start + 0.02, start + 0.1):
        found = budget.raise_temperature(z, S, 1.2, error)
        assert found == pytest.approx(cleaning.raise_temperature(rows(z), sets(S), 1.2, error), rel=2e-3)
        assert (found == 1.2) == (error <= start)
    assert budget.raise_temperature(z, S, 1.2, 1.0) == pytest.approx(100)


@pytest.mark.parametrize("low", [0.4, 0.15, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_excess(seed, low):
    z, S, _ = made(seed, n=90, C=5)
    for T in (1.0, 2.5):
        wanted = cleaning.excess_membership(rows(z), sets(S), T, low)
        assert budget.excess_membership(z, S, T, low) == pytest.approx(wanted, abs=1e-10)


def test_excess_of_full_sets_divides_by_a_tenth_at_least():
    z, S, _ = made(0)
    S = S | (torch.arange(len(S)) > 5)[:, None]
    wanted = cleaning.excess_membership(rows(z), sets(S), 1.0, 0.4)
    assert budget.excess_membership(z, S, 1.0) == pytest.approx(wanted, abs=1e-10)


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
        wanted = cleaning.risk_budget(rows(q), sets(S), alpha, by_class, None if shield is None else sets(shield))
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
            wanted = cleaning.find_inseparable(rows(q), sets(some), 0.05, 4.0)
            assert set(map(tuple, budget.find_inseparable(q, some).nonzero().tolist())) == wanted


def test_the_rule_is_made_of_these_parts():
    z, S = entangled(0, 0.0)
    likely = z[:, 2:].argmax(1, keepdim=True) + 2
    S |= torch.zeros_like(S).scatter(1, likely, True)  # so that candidates resemble each other
    told = ~S.all(1)
    assert not told.all()
    rule, T = Budget.of(z, S), conformal.fit_temperature(z, S)
    assert rule.error == pytest.approx(cleaning.expected_error(rows(z), sets(S), T))
    z, S = z[told], S[told]  # what is unlabelled does not show how candidates come about
    z_rows, S_sets = rows(z), sets(S)
    error, excess = cleaning.expected_error(z_rows, S_sets, T), cleaning.excess_membership(z_rows, S_sets, T, 0.4)
    assert excess > error + 0.1
    assert (rule.temperature, rule.excess) == pytest.approx((T, excess))
    hotter = cleaning.raise_temperature(z_rows, S_sets, T, error + 0.15 * (excess - error))
    assert rule.cautious == pytest.approx(hotter, rel=2e-3)
    q = cleaning.candidate_probabilities(z_rows, S_sets, rule.cautious)
    pairs = cleaning.find_inseparable(cleaning.candidate_probabilities(z_rows, S_sets, T), S_sets, 0.05, 4.0)
    assert (0, 1) in pairs
    protected = [{k for k in range(4) if (row.index(max(row)), k) in pairs} for row in q]
    for alpha in (0.02, 0.1, 0.5):
        assert sets(rule.keep(z, S, alpha)) == cleaning.risk_budget(q, S_sets, alpha, True, protected)


def test_some_of_these_classes_are_inseparable():
    found = [
        int(budget.find_inseparable(conformal.candidate_probabilities(z, S, 1.0), S).sum())
        for z, S in (entangled(seed, share) for seed in range(3) for share in (0.0, 0.06, 0.12, 0.3))
    ]
    assert set(found) == {0, 2}


@pytest.mark.parametrize(("seed", "ties"), CASES)
def test_lost_labels(seed, ties):
    z, S, _ = made(seed, ties)
    rule = Budget(1.1, 1.9, 0.0, 0.0, torch.zeros(4, 4).bool())
    for alpha in (1e-9, 0.05, 0.3, 0.9):
        kept = rule.keep(z, S, alpha)
        wanted = cleaning.lost(rows(z), sets(S), sets(kept), (1.1, 1.9), 0.3, NORMAL)
        assert rule.lost(z, S, kept) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(("part", "least"), [(0, 0.0), (10, 0.0), (3, 0.1)])
def test_missing_labels(part, least):
    """Every so many rows lose their true label."""
    z, S, y = made(part)
    without = S & ~torch.nn.functional.one_hot(y, 4).bool()
    if part:
        S[::part] = torch.where(without[::part].any(1, keepdim=True), without[::part], ~S[::part])
    wanted = cleaning.estimate_missing(rows(z), sets(S), NORMAL)
    assert audit.estimate_missing(z, S) == pytest.approx(wanted, abs=1e-12)
    assert wanted[0] >= least


@pytest.mark.parametrize("seed", range(3))
def test_truth_of_an_audit(seed):
    z, S, y = made(seed)
    y[::3] = -1
    y[1] = int((~S[1]).nonzero()[0]) if not S[1].all() else -1  # not a candidate
    rule = Budget.of(z, S)
    for labels in (y, torch.full_like(y, -1)):
        for level in audit.audit(z, S, rule, alphas=(0.05, 0.2, 0.6), y=labels).levels:
            kept = rule.keep(z, S, level.alpha)
            wanted = cleaning.truth(sets(S), sets(kept), labels.tolist())
            assert (level.true_lost, level.true_removed) == pytest.approx(wanted)
            assert level.candidates == int(S.sum() - kept.sum())
