"""The cleaning rule: what always holds, and what it costs where the probabilities are known to be right or too sure."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from candidly import conformal
from candidly.cleaning import budget, estimates
from candidly.cleaning.budget import Budget, find_inseparable
from candidly.cleaning.estimates import excess_membership, expected_error, raise_temperature
from candidly.conformal import temperature

LEVELS = (0.02, 0.05, 0.1, 0.2)


@st.composite
def scored(draw):
    """Few rows with log-probabilities of all sizes, often equal, and their candidates."""
    n, C = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    value = st.sampled_from([0.0, -1.0, -2.0, -80.0, -700.0]) | st.floats(-700, 0, width=32)
    z = draw(st.lists(st.lists(value, min_size=C, max_size=C), min_size=n, max_size=n))
    S = draw(st.lists(st.sets(st.integers(0, C - 1), min_size=1), min_size=n, max_size=n))
    return torch.tensor(z, dtype=torch.float64), torch.tensor([[j in inside for j in range(C)] for inside in S])


def highest(q, S):
    return S & (q == q.masked_fill(~S, -1).amax(1, keepdim=True))


alphas = st.floats(1e-6, 0.999)


@given(scored(), alphas, alphas, st.booleans(), st.integers(0, 9))
def test_the_least_likely_go_within_the_budget(case, alpha, other, by_class, seed):
    z, S = case
    q = conformal.candidate_probabilities(z, S, 1.5)
    protected = torch.rand(S.shape, generator=torch.Generator().manual_seed(seed)) < 0.3
    given_q, given_S, given_protected = q.clone(), S.clone(), protected.clone()
    alpha, larger = sorted((alpha, other))
    kept = budget.risk_budget(q, S, alpha, by_class=by_class, protected=protected)
    assert (kept <= S).all()
    assert kept.any(1).all()
    assert (kept >= highest(q, S)).all()
    assert (kept >= (S & protected)).all()
    spent, amount = (q * (S & ~kept)).sum(0), alpha * q.sum(0) * (1 + 1e-8)
    assert spent.sum() <= amount.sum()
    assert not by_class or (spent <= amount).all()
    assert (budget.risk_budget(q, S, larger, by_class=by_class, protected=protected) <= kept).all()  # nested
    assert torch.equal(q, given_q)
    assert torch.equal(S, given_S)
    assert torch.equal(protected, given_protected)


@given(scored(), alphas, st.booleans())
def test_equally_likely_candidates_go_together(case, alpha, by_class):
    z, S = case
    q = conformal.candidate_probabilities(z, S, 1.0)
    kept = budget.risk_budget(q, S, alpha, by_class=by_class)
    may_go = S & ~highest(q, S)
    for column in range(S.shape[1]) if by_class else [slice(None)]:
        for value in q[:, column][may_go[:, column]].unique():
            assert len(kept[:, column][may_go[:, column] & (q[:, column] == value)].unique()) == 1


def test_ties_that_do_not_fit_stay():
    q = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.95, 0.05], [1.0, 0.0]], dtype=torch.float64)
    S = q > 0
    for alpha, gone in ((0.01, 0), (0.0125, 1), (0.04, 1), (0.0625, 3)):
        assert int((S & ~budget.risk_budget(q, S, alpha)).sum()) == gone


@given(scored(), alphas, st.booleans(), st.randoms(use_true_random=False))
def test_rows_and_classes_may_be_permuted(case, alpha, by_class, random):
    z, S = case
    q = conformal.candidate_probabilities(z, S, 2.0)
    rows, columns = random.sample(range(len(S)), len(S)), random.sample(range(S.shape[1]), S.shape[1])
    kept = budget.risk_budget(q, S, alpha, by_class=by_class)
    moved = budget.risk_budget(q[rows][:, columns], S[rows][:, columns], alpha, by_class=by_class)
    assert torch.equal(moved, kept[rows][:, columns])


@given(scored(), st.booleans())
def test_the_smallest_level_removes_only_what_is_impossible(case, by_class):
    z, S = case
    q = conformal.candidate_probabilities(z, S, 1.0)
    alpha = float(q[q > 0].min()) / (2 * len(S))
    gone = S & ~budget.risk_budget(q, S, alpha, by_class=by_class)
    assert torch.equal(gone, S & (q == 0))


@given(scored(), st.floats(1, 50), st.floats(1, 50))
def test_hotter_probabilities_expect_more_errors(case, one, other):
    z, S = case
    low, high = sorted((one, other))
    assert 0 <= expected_error(z, S, low) <= expected_error(z, S, high) + 1e-12 <= 1


@given(scored(), st.floats(1, 10), st.floats(0, 0.8), st.floats(0, 0.8))
def test_temperatures_rise_with_the_error(case, T, one, other):
    z, S = case
    low, high = sorted((one, other))
    found, hotter = raise_temperature(z, S, T, low), raise_temperature(z, S, T, high)
    assert T <= found <= hotter <= 100 * (1 + 1e-12)
    assert expected_error(z, S, found) >= low or found == pytest.approx(100)
    if found > T * (1 + 1e-6):
        assert expected_error(z, S, found / (1 + 1e-6)) <= low  # the smallest


@settings(max_examples=50)
@given(scored(), alphas)
def test_the_rule_holds_at_extremes(case, alpha):
    """Underflow, one class, one row, single candidates, nothing but candidates."""
    z, S = case
    for sets in (S, torch.ones_like(S), torch.nn.functional.one_hot(z.argmax(1), S.shape[1]).bool()):
        given_z, given_S = z.clone(), sets.clone()
        rule = Budget.of(z, sets)
        assert 1 <= rule.temperature <= rule.cautious <= 100 * (1 + 1e-12)
        assert 0 <= rule.error <= 1
        assert math.isfinite(rule.excess)
        assert torch.equal(rule.inseparable, rule.inseparable.flip(1).unique(dim=0))
        q, kept = rule.probabilities(z, sets), rule.keep(z, sets, alpha)
        torch.testing.assert_close(q.sum(1), torch.ones(len(q), dtype=q.dtype))
        assert (kept <= sets).all()
        assert (kept >= highest(q, sets)).all()
        assert kept.any(1).all()
        for some in (kept, sets, torch.zeros_like(sets)):
            value, low, high = rule.lost(z, sets, some)
            assert 0 <= low <= value <= high <= 1
        assert rule.lost(z, sets, sets) == (0, 0, 0)
        assert torch.equal(z, given_z)
        assert torch.equal(sets, given_S)


def test_one_class_has_nothing_to_lose():
    rule = Budget.of(torch.zeros(120, 1), torch.ones(120, 1).bool())
    assert (rule.error, rule.excess, rule.cautious) == (0, 0, rule.temperature)


def test_probabilities_that_underflow():
    p, S = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), torch.ones(2, 3).bool()
    q = conformal.candidate_probabilities(conformal.log(p), S, 1.0)
    assert (q > 0).all()  # 0 is taken for the smallest number
    assert torch.equal(budget.risk_budget(q, S, 0.01), p > 0)
    by_class = budget.risk_budget(q, S, 0.01, by_class=True)  # all that is the third class is one row's as the other's
    assert by_class.tolist() == [[True, False, True], [False, True, True]]
    impossible = conformal.candidate_probabilities(torch.tensor([[0.0, -1e4, -2e4]]), S[:1], 1.0)
    for one in (False, True):
        assert budget.risk_budget(impossible, S[:1], 1e-9, by_class=one).tolist() == [[True, False, False]]


def flip(z, y, rate, generator):
    """Add wrong candidates at these rates to the true ones."""
    return (torch.rand(z.shape, generator=generator) < rate).scatter(1, y[:, None], True)


def simulate(seed, wrong="uniform", rate=0.3, sure=1.0, n=300, C=4, spread=2.0, priors=None):
    """Draw z, y from softmax(z) and S from y; what is shown are logits that are right, or too `sure`.

    Wrong candidates come at one rate ("uniform"), at one of each pair of classes ("pairs", "next", which is mostly the
    next class), or, so many in all, in proportion to softmax(z), so that they resemble the true label ("alike").
    """
    generator = torch.Generator().manual_seed(seed)
    z = spread * torch.randn(n, C, generator=generator)
    z = z if priors is None else z + torch.tensor(priors).log()
    y = z.softmax(-1).multinomial(1, generator=generator)[:, 0]
    number = torch.arange(C)
    if wrong == "alike":
        others = z.scatter(1, y[:, None], -torch.inf).softmax(-1)
        rates = (others * rate * (C - 1)).clamp(max=0.95)
    else:
        table = {
            "uniform": torch.full((C, C), rate),
            "pairs": 2 * rate * torch.rand(C, C, generator=torch.Generator().manual_seed(99)),
            "next": torch.where((number[:, None] + 1) % C == number, 0.8, 0.1),
        }[wrong]
        rates = table[y]
    return sure * z, flip(z, y, rates, generator), y


def gone(kept, y):
    return ~kept.gather(1, y[:, None])[:, 0]


def losses(repetitions, **settings):
    """Mean share of rows that lose their true label at each level, and its standard error."""
    found = []
    for seed in range(repetitions):
        z, S, y = simulate(seed, **settings)
        rule = Budget.of(z, S)
        assert rule.cautious >= rule.temperature >= 1
        found.append([float(gone(rule.keep(z, S, alpha), y).double().mean()) for alpha in LEVELS])
    return np.mean(found, 0), np.std(found, 0) / math.sqrt(repetitions)


SETTINGS = {
    "few": {"rate": 0.1},
    "many, too sure": {"rate": 0.6, "sure": 1.5},
    "by pairs": {"wrong": "pairs"},
    "next class, too sure": {"wrong": "next", "sure": 1.5},
    "unequal classes": {"priors": (0.7, 0.2, 0.08, 0.02)},
    "unequal classes, too sure": {"priors": (0.7, 0.2, 0.08, 0.02), "sure": 1.5},
    "look-alikes": {"wrong": "alike"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_no_more_labels_are_lost_than_the_level_says(name):
    mean, error = losses(60, **SETTINGS[name])
    assert (mean <= np.array(LEVELS) + 3 * error).all(), (mean, error)
    assert mean[1] > 0.6 * LEVELS[1]  # and the budget is spent, where there is so much to lose


def test_without_caution_look_alikes_would_cost_too_much():
    """What the caution is for; with it the test above holds."""
    found = []
    for seed in range(20):
        z, S, y = simulate(seed, "alike")
        found.append(float(gone(Budget.of(z, S, caution=0.0).keep(z, S, 0.1), y).double().mean()))
    assert np.mean(found) > 0.12 + 3 * np.std(found) / math.sqrt(20)


def test_a_rare_class_does_not_pay_for_the_others():
    """One budget for all would take 16 % of the rarest class."""
    found = []
    for seed in range(60):
        z, S, y = simulate(seed, priors=(0.7, 0.2, 0.08, 0.02), n=600)
        lost = gone(Budget.of(z, S).keep(z, S, 0.05), y)
        found.append([float(lost[y == k].double().mean()) for k in range(4)])
    assert (np.mean(found, 0) <= 0.05 + 3 * np.std(found, 0) / math.sqrt(60)).all()


def test_temperature_is_found():
    found = [conformal.fit_temperature(*simulate(seed, sure=1.5, n=1000)[:2]) for seed in range(20)]
    assert np.mean(found) == pytest.approx(1.5, abs=3 * np.std(found) / math.sqrt(20) + 0.02)


@pytest.mark.parametrize(("rate", "spread"), [(0.1, 4.0), (0.3, 4.0), (0.6, 8.0)])
def test_the_expected_error_is_the_error_and_excess_is_nothing_without_look_alikes(rate, spread):
    """However often the most likely candidate is wrong: it is itself one that was drawn."""
    found = []
    for seed in range(25):
        z, S, y = simulate(seed, rate=rate, spread=spread, C=10, n=1000)
        wrong = float((conformal.candidate_probabilities(z, S, 1.0).argmax(1) != y).double().mean())
        found.append([expected_error(z, S, 1.0) - wrong, excess_membership(z, S, 1.0), wrong])
    mean, error = np.mean(found, 0), np.std(found, 0) / 5
    assert mean[2] > 0.03
    assert abs(mean[0]) <= 3 * error[0]
    assert abs(mean[1]) <= 3 * error[1]


@pytest.mark.parametrize("spread", [4.0, 8.0])
def test_look_alikes_are_in_excess(spread):
    found = []
    for seed in range(5):
        rule = Budget.of(*simulate(seed, "alike", 0.15, spread=spread, C=10, n=1000)[:2])
        found.append(rule.excess - rule.error)
        assert rule.cautious > 1.2 * rule.temperature
    assert min(found) > 0.5


def paired(seed, share, n=600):
    """Six classes; in a share of the rows of the first two, both are candidates."""
    generator = torch.Generator().manual_seed(seed)
    z, S, y = simulate(seed, rate=0.2, n=n, C=6, spread=4.0)
    both = (y < 2) & (torch.rand(n, generator=generator) < share)
    S[:, :2] |= both[:, None]
    return z, S, y


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_classes_that_always_come_together_are_protected_and_others_are_not(share):
    wanted = [[0, 1], [1, 0]] if share == 1 else []
    for seed in range(10):
        z, S, y = paired(seed, share)
        rule = Budget.of(z, S)
        assert rule.inseparable.tolist() == wanted
        top, kept = rule.probabilities(z, S).argmax(1), rule.keep(z, S, 0.5)
        either = (top < 2) & S[:, :2].all(1)
        assert kept[either][:, :2].all(1).double().mean() == share
        assert int((S & ~kept).sum()) > 100  # others still go
        if share == 1:
            assert not gone(kept, y)[(y < 2) & (top < 2)].any()


def test_classes_that_are_always_candidates_are_not_inseparable():
    """All come together, but no two more than others."""
    for seed in range(5):
        z, _, _ = simulate(seed, C=5)
        S = torch.ones_like(z, dtype=torch.bool)
        assert not len(find_inseparable(conformal.candidate_probabilities(z, S, 1.0), S))


def test_float32_and_float64_agree():
    for seed in range(10):
        z, S, _ = simulate(seed, "alike", sure=1.3)
        one, other = Budget.of(z, S), Budget.of(z.double(), S)
        assert one.temperature == pytest.approx(other.temperature, rel=1e-5)
        assert one.cautious == pytest.approx(other.cautious, rel=1e-5)
        assert one.excess == pytest.approx(other.excess, abs=1e-9)
        for alpha in LEVELS:
            kept = one.keep(z, S, alpha)
            assert torch.equal(kept, other.keep(z.double(), S, alpha))
            assert one.lost(z, S, kept) == pytest.approx(other.lost(z.double(), S, kept), rel=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_fitting_follows_rows_and_classes(seed):
    z, S, _ = paired(seed, 1.0)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(len(S)), rng.permutation(6)
    one, other = Budget.of(z, S), Budget.of(z[rows][:, columns], S[rows][:, columns])
    for name in ("temperature", "cautious", "error", "excess"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-6, abs=1e-9)
    assert torch.equal(torch.from_numpy(columns)[other.inseparable].unique(dim=0), one.inseparable)
    for alpha in LEVELS:
        kept = one.keep(z, S, alpha)
        assert torch.equal(other.keep(z[rows][:, columns], S[rows][:, columns], alpha), kept[rows][:, columns])


def test_sets_are_nested_in_the_level():
    z, S, _ = simulate(0, rate=0.6)
    rule = Budget.of(z, S)
    kept = [rule.keep(z, S, alpha) for alpha in (1e-9, *LEVELS, 0.5, 0.999)]
    assert (kept[0] >= (S & (rule.probabilities(z, S) > 1e-6))).all()
    assert all((small <= large).all() for large, small in itertools.pairwise(kept))
    lost = [rule.lost(z, S, sets).value for sets in kept]
    assert lost == sorted(lost)
    assert len(set(lost)) > 4


def test_intervals_are_wider_than_chance_however_many_rows():
    z, S, _ = simulate(0, n=50)
    rule, many = Budget.of(z, S), 10_000
    kept = rule.keep(z, S, 0.1)
    value, low, high = rule.lost(*(part.repeat(many, 1) for part in (z, S, kept)))
    assert high / value >= 1.3
    assert low / value <= 0.7


def test_unlabelled_rows_do_not_hide_look_alikes():
    z, S, _ = simulate(0, "alike", n=1000)
    more = 1.5 * torch.randn(2000, S.shape[1], generator=torch.Generator().manual_seed(1), dtype=z.dtype)
    both, full = torch.cat([z, more]), torch.cat([S, torch.ones(2000, S.shape[1], dtype=torch.bool)])
    alone, mixed = Budget.of(z, S), Budget.of(both, full)
    assert mixed.excess == pytest.approx(alone.excess, rel=0.1)
    assert mixed.cautious > 1.1 * mixed.temperature
    nothing = Budget.of(more, torch.ones_like(more, dtype=torch.bool))
    assert nothing.cautious == nothing.temperature
    assert not len(nothing.inseparable)


def test_blocks_of_rows_change_nothing(monkeypatch):
    z, S, _ = simulate(0, "alike", n=500)
    whole = Budget.of(z, S)
    kept = whole.keep(z, S, 0.1)
    lost = whole.lost(z, S, kept)
    monkeypatch.setattr(temperature, "_BLOCK_VALUES", 64)
    monkeypatch.setattr(temperature, "_BLOCK_ROWS", 7)
    monkeypatch.setattr(estimates, "_BLOCK_ROWS", 7)
    monkeypatch.setattr(estimates, "_MAX_PAIRS", 2 * S.shape[1] + 1)
    parts = Budget.of(z, S)
    for name in ("temperature", "cautious", "error", "excess"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-9)
    assert torch.equal(parts.inseparable, whole.inseparable)
    assert torch.equal(parts.keep(z, S, 0.1), kept)
    assert parts.lost(z, S, kept) == pytest.approx(lost, rel=1e-9)


@given(scored(), alphas)
def test_levels_are_where_candidates_go(case, alpha):
    z, S = case
    rule = Budget(1.0, 1.5, 0.0, 0.0, torch.zeros(0, 2).long(), estimates.Estimate(0.0, 0.0, 0.0), False)
    levels = rule.levels(z, S)
    assert levels[~S].isinf().all()
    found = levels[levels <= 1].unique().tolist()
    below = [math.nextafter(level, -1) for level in found if level > 0]
    for level in (alpha, 0.0, 1.0, *found, *below):
        assert torch.equal(rule.keep(z, S, level), S & (levels > level))


def test_levels_of_protected_candidates_are_infinite():
    z, S = torch.tensor([[0.0, -2.0, -3.0]] * 4, dtype=torch.float64), torch.ones(4, 3).bool()
    rule = Budget(1.0, 1.0, 0.0, 0.0, torch.tensor([[0, 1], [1, 0]]), estimates.Estimate(0.0, 0.0, 0.0), False)
    assert rule.levels(z, S).isfinite().tolist() == [[False, False, True]] * 4
