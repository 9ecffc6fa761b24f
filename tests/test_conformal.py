"""Conformal functions against loops, their rules against the papers' wording, and their coverage."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from candidly import conformal

R, N, C = 3, 12, 5


def data(seed=0, levels=None):
    """Probabilities and non-empty sets; with `levels`, probabilities have that many values, so that they tie."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(2 * torch.randn(R, N, C, generator=generator, dtype=torch.float64), -1)
    if levels is not None:
        p = (p * levels).round() / levels
    S = torch.rand(R, N, C, generator=generator) < 0.4
    S.scatter_(-1, torch.randint(C, (R, N, 1), generator=generator), True)
    return p, S


def calibration(sizes=(7, 12, 1), seed=1, levels=None):
    """Sorted scores of runs with different numbers of them."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(len(sizes), max(sizes), generator=generator, dtype=torch.float64)
    if levels is not None:
        scores = (scores * levels).round() / levels
    valid = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
    return conformal.sort_scores(scores, valid)


def at_most(scores, count, value):
    return sum(float(s) <= value for s in scores[:count])


@pytest.mark.parametrize(("score", "loop"), [("best", max), ("worst", min), ("mean", lambda v: sum(v) / len(v))])
def test_scores_equal_loops(score, loop):
    p, S = data()
    found = getattr(conformal, score)(p, S)
    for run in range(R):
        for row in range(N):
            inside = [float(v) for v, s in zip(p[run, row], S[run, row], strict=True) if s]
            assert float(found[run, row]) == pytest.approx(loop(inside), abs=1e-15)


def test_scores_order():
    p, S = data(levels=4)
    best, mean, worst = conformal.best(p, S), conformal.mean(p, S), conformal.worst(p, S)
    assert (worst <= mean + 1e-12).all()
    assert (mean <= best + 1e-12).all()
    single = S.sum(-1) == 1
    assert single.any()
    assert torch.equal(best[single], worst[single])
    assert torch.equal(best[single], mean[single])


def test_sort_scores_pads_what_is_not_valid():
    scores = torch.tensor([[0.3, 0.9, 0.1], [0.5, 0.2, 0.4]])
    valid = torch.tensor([[True, False, True], [True, True, True]])
    found, counts = conformal.sort_scores(scores, valid)
    assert torch.equal(found, torch.tensor([[0.1, 0.3, torch.inf], [0.2, 0.4, 0.5]]))
    assert counts.tolist() == [2, 3]


@pytest.mark.parametrize("levels", [None, 4])
def test_ranks_p_values_and_cumulative_equal_loops(levels):
    p, _ = data(levels=levels)
    scores, counts = calibration(levels=levels)
    rank = conformal.ranks(scores, p)
    assert rank.dtype == torch.int64
    for run, m in enumerate(counts.tolist()):
        for row in range(N):
            for j in range(C):
                count = at_most(scores[run], m, float(p[run, row, j]))
                assert int(rank[run, row, j]) == count
                assert float(conformal.p_values(scores, counts, p)[run, row, j]) == (1 + count) / (1 + m)
                assert float(conformal.cumulative(scores, counts, p)[run, row, j]) == count / m


def test_padding_changes_nothing():
    p, _ = data(levels=8)
    scores, counts = calibration(levels=8)
    wide = torch.cat([scores, torch.full((R, 9), torch.inf, dtype=scores.dtype)], 1)
    alpha = torch.tensor([0.1, 0.5, 0.99], dtype=torch.float64)
    for function in (conformal.p_values, conformal.cumulative):
        assert torch.equal(function(wide, counts, p), function(scores, counts, p))
    for finite in (True, False):
        for run, m in enumerate(counts.tolist()):
            alone = conformal.threshold(scores[run : run + 1, :m], counts[run : run + 1], alpha[run : run + 1], finite)
            assert torch.equal(alone[0], conformal.threshold(wide, counts, alpha, finite)[run])


def test_works_on_any_number_of_axes():
    p, _ = data()
    scores, counts = calibration()
    flat = conformal.p_values(scores, counts, p.flatten(1))
    assert torch.equal(flat, conformal.p_values(scores, counts, p).flatten(1))
    turned = p.transpose(1, 2)  # not contiguous
    assert torch.equal(
        conformal.p_values(scores, counts, turned).transpose(1, 2), conformal.p_values(scores, counts, p)
    )


# Levels of which α·m is safely no integer, and dyadic ones of which it is one exactly for m = 8 and 16.
LEVELS = (0.0, 0.03, 0.125, 0.25, 0.3331, 0.5, 0.875, 0.97)


@pytest.mark.parametrize("alpha", LEVELS)
@pytest.mark.parametrize("ties", [None, 4])
def test_cumulative_rule_is_the_supremum_threshold(alpha, ties):
    """sup{t : F̂(t) ≤ α} is the (⌊αm⌋+1)-th smallest score, and F̂(p) > α says the same as p ≥ t."""
    scores, counts = calibration((8, 16, 5), levels=ties)
    p = torch.cat(
        [scores.masked_fill(scores.isinf(), 0.5), torch.linspace(0, 1, 21, dtype=torch.float64).expand(R, -1)], 1
    )
    p = torch.cat([p, p - 1e-12, p + 1e-12], 1)
    t = conformal.threshold(scores, counts, torch.full((R,), alpha, dtype=torch.float64), finite=False)
    for run, m in enumerate(counts.tolist()):
        assert float(t[run]) == float(scores[run, math.floor(alpha * m)])
    assert torch.equal(conformal.cumulative(scores, counts, p) > alpha, p >= t[:, None])


@pytest.mark.parametrize("alpha", LEVELS)
@pytest.mark.parametrize("ties", [None, 4])
def test_finite_rule_is_its_threshold(alpha, ties):
    """The ⌊α(m+1)⌋-th smallest score, and everything where that is the 0-th."""
    scores, counts = calibration((7, 15, 5), levels=ties)
    p = torch.cat(
        [scores.masked_fill(scores.isinf(), 0.5), torch.linspace(0, 1, 21, dtype=torch.float64).expand(R, -1)], 1
    )
    p = torch.cat([p, p - 1e-12, p + 1e-12, torch.zeros(R, 1, dtype=torch.float64)], 1)
    t = conformal.threshold(scores, counts, torch.full((R,), alpha, dtype=torch.float64))
    for run, m in enumerate(counts.tolist()):
        order = math.floor(alpha * (m + 1))
        assert float(t[run]) == (float(scores[run, order - 1]) if order else -math.inf)
    kept = conformal.prediction_sets(scores, counts, p, alpha)
    assert torch.equal(kept, p >= t[:, None])
    assert torch.equal(kept, conformal.p_values(scores, counts, p) > alpha)


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threshold_says_what_the_rule_does_at_decimal_levels(finite, dtype):
    """α(m+1) may be an integer that floating point misses, as 0.29 · 100 = 28.999999999999996."""
    wrong = []
    for m in (9, 19, 49, 50, 89, 99, 100, 179, 200):
        scores, counts = torch.arange(1, m + 1).to(dtype)[None] / 1024, torch.tensor([m])
        rule = conformal.p_values if finite else conformal.cumulative
        for percent in range(1, 100):
            alpha = torch.tensor([percent / 100], dtype=dtype)
            t = conformal.threshold(scores, counts, alpha, finite)
            if not torch.equal(rule(scores, counts, scores) > alpha, scores >= t):
                wrong.append((m, percent / 100))
    assert wrong == []


def test_threshold_beyond_the_scores():
    scores, counts = calibration((4, 4, 4))
    one = torch.ones(R, dtype=torch.float64)
    assert (conformal.threshold(scores, counts, one, finite=False) == torch.inf).all()
    assert (conformal.threshold(scores, counts, one, finite=True) == torch.inf).all()
    assert (conformal.threshold(scores, counts, 7 * one, finite=True) == torch.inf).all()
    assert (conformal.threshold(scores, counts, -one, finite=True) == -torch.inf).all()
    assert (conformal.threshold(scores, counts, -one, finite=False) == -torch.inf).all()


def test_prediction_sets_take_a_level_per_run():
    p, _ = data()
    scores, counts = calibration()
    alpha = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    found = conformal.prediction_sets(scores, counts, p, alpha[:, None, None])
    for run in range(R):
        assert torch.equal(found[run], conformal.prediction_sets(scores, counts, p, float(alpha[run]))[run])


grid = st.integers(0, 8).map(lambda k: k / 8)


@settings(max_examples=60, deadline=None)
@given(st.lists(grid, min_size=1, max_size=12), st.lists(grid, min_size=2, max_size=12), st.randoms())
def test_p_value_properties(scores, p, random):
    sorted_scores, counts = torch.tensor([sorted(scores)]), torch.tensor([len(scores)])
    found = conformal.p_values(sorted_scores, counts, torch.tensor([p]))[0]
    assert (found > 0).all()
    assert (found <= 1).all()
    order = torch.tensor(p).argsort()
    assert (found[order].diff() >= 0).all()  # monotone in p
    moved = list(range(len(p)))
    random.shuffle(moved)
    assert torch.equal(conformal.p_values(sorted_scores, counts, torch.tensor([p])[:, moved])[0], found[moved])
    shuffled = random.sample(scores, len(scores))  # the calibration rows' order does not matter
    again, _ = conformal.sort_scores(torch.tensor([shuffled]), torch.ones(1, len(scores), dtype=torch.bool))
    assert torch.equal(again, sorted_scores)
    for s in scores:  # one more calibration row moves a p-value towards whether it conforms
        more = conformal.p_values(torch.tensor([sorted([*scores, s])]), counts + 1, torch.tensor([p]))[0]
        assert torch.equal(more >= found, (torch.tensor(p) >= s) | (found == 1))


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(C)), st.permutations(range(N)), st.sampled_from(["best", "worst", "mean"]))
def test_permutations_commute(classes, rows, score):
    p, S = data(levels=8)
    function = getattr(conformal, score)
    assert torch.equal(function(p[..., classes], S[..., classes]), function(p, S))
    assert torch.equal(function(p[:, rows], S[:, rows]), function(p, S)[:, rows])
    mass = conformal.off_candidate_mass(p[:, rows][..., classes], S[:, rows][..., classes])
    assert torch.equal(mass, conformal.off_candidate_mass(p, S)[:, rows])
    scores, counts = calibration(levels=8)
    sets = conformal.prediction_sets(scores, counts, p, 0.3)
    assert torch.equal(
        conformal.prediction_sets(scores, counts, p[:, rows][..., classes], 0.3), sets[:, rows][..., classes]
    )


def exchangeable(runs, m, tests, seed):
    """Rows whose label y is drawn from some softmax that the probabilities p only approximate, and sets around y."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(runs, m + tests, C, generator=generator, dtype=torch.float64)
    y = torch.multinomial((1.5 * z).softmax(-1).flatten(0, 1), 1, generator=generator).view(runs, m + tests, 1)
    p = (z + 0.8 * torch.randn(z.shape, generator=generator, dtype=torch.float64)).softmax(-1)
    S = (torch.rand(z.shape, generator=generator) < 0.3).scatter(-1, y, True)
    return p, S, y


def coverage(score, rule, alpha, runs=600, m=19, tests=1, seed=0):
    """Share of repetitions, one per run, in which the test row's label is kept."""
    p, S, y = exchangeable(runs, m, tests, seed)
    calibrating = torch.zeros_like(S).scatter(-1, y, True) if score is None else S
    s = (conformal.best if score is None else score)(p[:, :m], calibrating[:, :m])
    scores, counts = conformal.sort_scores(s, torch.ones(runs, m, dtype=torch.bool))
    kept = rule(scores, counts, p[:, m:]) > alpha
    return float(kept.gather(-1, y[:, m:]).double().mean())


def three_errors(share, runs):
    return 3 * math.sqrt(share * (1 - share) / runs)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_true_label_calibration_covers_exactly(alpha):
    """With α(m+1) an integer and no ties the coverage is 1 - α, neither less nor more."""
    found = coverage(None, conformal.p_values, alpha, runs=4000)
    assert found == pytest.approx(1 - alpha, abs=three_errors(1 - alpha, 4000))


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_worst_candidate_covers_at_least(alpha):
    found = coverage(conformal.worst, conformal.p_values, alpha, runs=4000)
    assert found >= 1 - alpha - three_errors(1 - alpha, 4000)


def test_best_candidate_does_not_cover():
    """Calibrating on the best candidate takes labels for true that are not: why `worst` is there."""
    found = coverage(conformal.best, conformal.p_values, 0.3, runs=4000)
    assert found < 0.7 - three_errors(0.7, 4000)


def test_supremum_rule_covers_less_than_its_level():
    """m = 20 and α = .05: the threshold is the 2nd smallest of 20 scores, which covers 19/21 = .905, not .95."""
    found = coverage(None, conformal.cumulative, 0.05, runs=8000, m=20)
    assert found == pytest.approx(19 / 21, abs=three_errors(19 / 21, 8000))
    assert found < 0.95 - three_errors(0.95, 8000)


def test_off_candidate_mass_equals_loops():
    p, S = data()
    found = conformal.off_candidate_mass(p, S)
    for run in range(R):
        for row in range(N):
            outside = sum(float(v) for v, s in zip(p[run, row], S[run, row], strict=True) if not s)
            assert float(found[run, row]) == pytest.approx(outside, abs=1e-15)
    assert (conformal.off_candidate_mass(p, torch.ones_like(S)) == 0).all()


def test_remark_level():
    error, m = torch.tensor([0.0, 0.03], dtype=torch.float64), torch.tensor([179, 2000])
    found = conformal.remark_level(0.1, error, m)
    for run in range(2):
        expected = 0.1 - float(error[run]) - math.sqrt(math.log(2 / 0.05) / (2 * int(m[run])))
        assert float(found[run]) == pytest.approx(expected, abs=1e-7)
    assert found[0] < 0  # with 179 rows the DKW term alone is 0.10
    without = conformal.remark_level(0.1, error, m, dkw=False)
    assert without.tolist() == pytest.approx([0.1, 0.07])
    larger = conformal.remark_level(0.1, error + 0.01, m)
    assert (larger < found).all()  # a larger error prunes less: the opposite of Algorithm 1
    assert (conformal.remark_level(0.1, error, m, delta=0.5) > found).all()


def test_nothing_is_kept_out_below_a_level_of_zero():
    p, _ = data()
    scores, counts = calibration()
    assert (conformal.cumulative(scores, counts, p) > -0.01).all()
    assert (conformal.p_values(scores, counts, p) > 0).all()
