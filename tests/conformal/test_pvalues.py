"""P-values against loops, their rules against the papers' wording, and their coverage."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from candidly import conformal
from tests.conformal.cases import C, N, R, above, calibration, data, draws
from tests.oracles.conformal import cumulative, threshold


def at_most(scores, count, value):
    return sum(float(s) <= value for s in scores[:count])


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
                assert float(cumulative(scores, counts, p)[run, row, j]) == count / m


@pytest.mark.parametrize("levels", [None, 4])
def test_smoothed_p_values_equal_loops(levels):
    """Over folds of different sizes, for which there is one u per row."""
    p, _ = data(levels=levels)
    scores, counts = calibration(levels=levels)
    u = draws()[:, None]
    found = conformal.smoothed_p_values(scores, counts, p, u)
    plain = conformal.cross_p_values(scores, counts, p)
    total = int(counts.sum())
    for row in range(N):
        for j in range(C):
            real = [(float(s), float(p[run, row, j])) for run, m in enumerate(counts.tolist()) for s in scores[run, :m]]
            below, tied = sum(s < value for s, value in real), sum(s == value for s, value in real)
            wanted = (below + float(u[row]) * (1 + tied)) / (total + 1)
            assert float(found[row, j]) == pytest.approx(wanted, abs=1e-15)
            assert float(plain[row, j]) == (1 + below + tied) / (total + 1)
    assert (found <= plain).all()
    assert torch.equal(conformal.smoothed_p_values(scores, counts, p, torch.ones(1)), plain)


def test_padding_changes_nothing():
    p, _ = data(levels=8)
    scores, counts = calibration(levels=8)
    wide = torch.cat([scores, torch.full((R, 9), torch.inf, dtype=scores.dtype)], 1)
    alpha = torch.tensor([0.1, 0.5, 0.99], dtype=torch.float64)
    for function in (conformal.p_values, cumulative):
        assert torch.equal(function(wide, counts, p), function(scores, counts, p))
    for finite in (True, False):
        for run, m in enumerate(counts.tolist()):
            alone = threshold(scores[run : run + 1, :m], counts[run : run + 1], alpha[run : run + 1], finite)
            assert torch.equal(alone[0], threshold(wide, counts, alpha, finite)[run])


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
    t = threshold(scores, counts, torch.full((R,), alpha, dtype=torch.float64), finite=False)
    for run, m in enumerate(counts.tolist()):
        assert float(t[run]) == float(scores[run, math.floor(alpha * m)])
    assert torch.equal(cumulative(scores, counts, p) > alpha, p >= t[:, None])


@pytest.mark.parametrize("alpha", LEVELS)
@pytest.mark.parametrize("ties", [None, 4])
def test_finite_rule_is_its_threshold(alpha, ties):
    """The ⌊α(m+1)⌋-th smallest score, and everything where that is the 0-th."""
    scores, counts = calibration((7, 15, 5), levels=ties)
    p = torch.cat(
        [scores.masked_fill(scores.isinf(), 0.5), torch.linspace(0, 1, 21, dtype=torch.float64).expand(R, -1)], 1
    )
    p = torch.cat([p, p - 1e-12, p + 1e-12, torch.zeros(R, 1, dtype=torch.float64)], 1)
    t = threshold(scores, counts, torch.full((R,), alpha, dtype=torch.float64))
    for run, m in enumerate(counts.tolist()):
        order = math.floor(alpha * (m + 1))
        assert float(t[run]) == (float(scores[run, order - 1]) if order else -math.inf)
    kept = above(scores, counts, p, alpha)
    assert torch.equal(kept, p >= t[:, None])
    assert torch.equal(kept, conformal.p_values(scores, counts, p) > alpha)


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threshold_says_what_the_rule_does_at_decimal_levels(finite, dtype):
    """α(m+1) may be an integer that floating point misses, as 0.29 · 100 = 28.999999999999996."""
    wrong = []
    for m in (9, 19, 49, 50, 89, 99, 100, 179, 200):
        scores, counts = torch.arange(1, m + 1).to(dtype)[None] / 1024, torch.tensor([m])
        rule = conformal.p_values if finite else cumulative
        for percent in range(1, 100):
            alpha = torch.tensor([percent / 100], dtype=dtype)
            t = threshold(scores, counts, alpha, finite)
            if not torch.equal(rule(scores, counts, scores) > alpha, scores >= t):
                wrong.append((m, percent / 100))
    assert wrong == []


def test_threshold_beyond_the_scores():
    scores, counts = calibration((4, 4, 4))
    one = torch.ones(R, dtype=torch.float64)
    assert (threshold(scores, counts, one, finite=False) == torch.inf).all()
    assert (threshold(scores, counts, one, finite=True) == torch.inf).all()
    assert (threshold(scores, counts, 7 * one, finite=True) == torch.inf).all()
    assert (threshold(scores, counts, -one, finite=True) == -torch.inf).all()
    assert (threshold(scores, counts, -one, finite=False) == -torch.inf).all()


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


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(grid, min_size=1, max_size=6), min_size=1, max_size=3),
    st.lists(grid, min_size=C, max_size=C),
    st.floats(0, 0.999),
    st.permutations(range(C)),
)
def test_smoothed_p_value_properties(folds, p, u, classes):
    parts = [torch.tensor(sorted(fold), dtype=torch.float64) for fold in folds]
    scores = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=torch.inf)
    counts = torch.tensor([len(fold) for fold in folds])
    values = torch.tensor(p, dtype=torch.float64).expand(len(folds), 1, C)
    chance = torch.tensor([[u]], dtype=torch.float64)
    found = conformal.smoothed_p_values(scores, counts, values, chance)
    plain = conformal.cross_p_values(scores, counts, values)
    assert (found >= 0).all()
    assert (found <= plain).all()
    order = values[0, 0].argsort(stable=True)
    assert (found[0, order].diff() >= 0).all()  # monotone in p
    assert torch.equal(conformal.smoothed_p_values(scores, counts, values[..., classes], chance), found[:, classes])
    turned = conformal.smoothed_p_values(scores.flip(0), counts.flip(0), values, chance)  # folds have no order
    assert torch.equal(turned, found)


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


def cover(p, S, y, *, flat=False, alpha, score, u=None, smooth=None):
    """Share of repetitions, one per run, in which the last row's label is kept by scores of the others."""
    conformity = p if u is None else torch.stack([conformal.aps(one, v) for one, v in zip(p, u, strict=True)])
    s = score(conformity[:, :-1], S[:, :-1])
    s = s.flatten(1) if flat else s
    scores, counts = conformal.sort_scores(s, s.isfinite())
    if smooth is None:
        found = conformal.p_values(scores, counts, conformity[:, -1])
    else:
        parts = [
            conformal.smoothed_p_values(scores[r : r + 1], counts[r : r + 1], conformity[r : r + 1, -1:], smooth[r])
            for r in range(len(p))
        ]
        found = torch.cat(parts)
    return float((found > alpha).gather(-1, y[:, -1]).double().mean())


@pytest.mark.parametrize("alpha", [0.07, 0.2])
def test_smoothed_p_values_cover_exactly_though_scores_tie(alpha):
    """At levels that are no multiple of 1/(m+1) and with ties, where p-values themselves cover too much."""
    p, S, y = exchangeable(3000, 19, 1, seed=3)
    p = (p * 4).round() / 4
    truth = torch.zeros_like(S).scatter(-1, y, True)
    smooth = torch.rand(3000, 1, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    found = cover(p, truth, y, alpha=alpha, score=conformal.best, smooth=smooth)
    assert found == pytest.approx(1 - alpha, abs=three_errors(1 - alpha, 3000))
    assert cover(p, truth, y, alpha=alpha, score=conformal.best) > 1 - alpha + three_errors(1 - alpha, 3000)


@pytest.mark.parametrize("adaptive", [False, True])
def test_pooled_candidates_cover_by_their_number(adaptive):
    """Rows have three candidates at most, all of them as probable as they can be, so that the bound 1 - 3α is near."""
    p, _, y = exchangeable(4000, 30, 1, seed=5)
    wrong = p.scatter(-1, y, -1).topk(2, -1).indices
    S = torch.zeros(p.shape, dtype=torch.bool).scatter(-1, y, True).scatter(-1, wrong, True)
    u = torch.rand(p.shape[:2], generator=torch.Generator().manual_seed(6), dtype=torch.float64) if adaptive else None
    found = cover(p, S, y, alpha=0.1, score=conformal.pooled, flat=True, u=u)
    assert found >= 0.7 - three_errors(0.7, 4000)
    assert cover(p, S, y, alpha=0.1, score=conformal.best, u=u) < found


def test_supremum_rule_covers_less_than_its_level():
    """m = 20 and α = .05: the threshold is the 2nd smallest of 20 scores, which covers 19/21 = .905, not .95."""
    found = coverage(None, cumulative, 0.05, runs=8000, m=20)
    assert found == pytest.approx(19 / 21, abs=three_errors(19 / 21, 8000))
    assert found < 0.95 - three_errors(0.95, 8000)


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
    assert (cumulative(scores, counts, p) > -0.01).all()
    assert (conformal.p_values(scores, counts, p) > 0).all()
