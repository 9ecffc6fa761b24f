"""Conformal functions against loops, their rules against the papers' wording, and their coverage."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from candidly import conformal

R, N, C = 3, 12, 5


def above(scores, counts, p, alpha):
    """Return the sets that `PartialLabelClassifier.predict_set` makes of p-values."""
    return conformal.p_values(scores, counts, p) > alpha


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


def test_scores_of_single_and_of_all_candidates_equal_loops():
    p, S = data()
    single, every = conformal.singletons(p, S), conformal.pooled(p, S)
    assert every.shape == p.shape
    assert 0 < single.isfinite().sum() < R * N
    for run in range(R):
        for row in range(N):
            inside = [j for j in range(C) if S[run, row, j]]
            wanted = float(p[run, row, inside[0]]) if len(inside) == 1 else math.inf
            assert float(single[run, row]) == wanted
            for j in range(C):
                assert float(every[run, row, j]) == (float(p[run, row, j]) if j in inside else math.inf)


def draws(seed=2):
    return torch.rand(N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_adaptive_scores_equal_the_papers_formula():
    """1 - (the mass of what is more probable + u times the label's own), in loops; p has no ties."""
    p, _ = data()
    u = draws()
    found = conformal.aps(p, u)
    for run in range(R):
        for row in range(N):
            values = p[run, row].tolist()
            for j, own in enumerate(values):
                wanted = 1 - (sum(v for v in values if v > own) + float(u[row]) * own)
                assert float(found[run, row, j]) == pytest.approx(wanted, abs=1e-12)


def test_adaptive_scores_of_ties_count_their_mass_once():
    p = torch.tensor([[0.125, 0.25, 0.25, 0.375, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2], [0.0, 0.0, 1.0, 0.0, 0.0]])
    found = conformal.aps(p.double(), torch.tensor([0.5, 0.25, 0.75]))
    wanted = [[0.0625, 0.375, 0.375, 0.8125, 0.0], [0.75] * 5, [0.0, 0.0, 0.25, 0.0, 0.0]]
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64))


def test_the_smallest_probabilities_keep_their_order():
    """As 1 - (...) they would all be rounded to the same."""
    p = torch.tensor([[1.0, 1e-9, 1e-10, 1e-12]])
    found = conformal.aps(p, torch.zeros(1))[0]
    assert (found.diff() < 0).all()


@pytest.mark.parametrize("levels", [None, 4])
def test_true_labels_have_uniform_adaptive_scores_whether_p_ties_or_not(levels):
    """Where y is drawn from p itself; with u·p_j instead of the mass of the tie, means would be far from a half."""
    generator = torch.Generator().manual_seed(0)
    p = torch.softmax(torch.randn(20_000, C, generator=generator, dtype=torch.float64), -1)
    if levels is not None:
        p = torch.full_like(p, 1 / 8).scatter(1, torch.randint(C, (len(p), 1), generator=generator), 0.5)
    y = torch.multinomial(p, 1, generator=generator)
    u = torch.rand(len(p), generator=generator, dtype=torch.float64)
    found = conformal.aps(p, u).gather(-1, y)[:, 0].sort().values
    ideal = (torch.arange(len(p), dtype=torch.float64) + 0.5) / len(p)
    assert float((found - ideal).abs().max()) < 1.95 / math.sqrt(len(p))  # Kolmogorov's distance at 0.1 %


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
    sets = above(scores, counts, p, 0.3)
    assert torch.equal(above(scores, counts, p[:, rows][..., classes], 0.3), sets[:, rows][..., classes])


few = st.lists(st.integers(0, 6), min_size=C, max_size=C).filter(any)


@settings(max_examples=60, deadline=None)
@given(st.lists(few, min_size=2, max_size=6), st.permutations(range(C)), st.randoms())
def test_adaptive_scores_follow_rows_and_classes(weights, classes, random):
    p = torch.tensor(weights, dtype=torch.float64)
    p = p / p.sum(1, keepdim=True)
    u = torch.tensor([random.randrange(8) / 8 for _ in weights], dtype=torch.float64)
    found = conformal.aps(p, u)
    assert torch.equal(conformal.aps(p[:, classes], u), found[:, classes])
    rows = random.sample(range(len(p)), len(p))
    assert torch.equal(conformal.aps(p[rows], u[rows]), found[rows])
    assert torch.equal(conformal.aps(p[:1], u[:1]), found[:1])  # nor do other rows matter
    assert (found > -1e-12).all()
    assert (found < 1 + 1e-12).all()
    for one, score in zip(p, found, strict=True):  # a more probable label conforms at least as well
        assert (score[one.argsort()].diff() > -1e-12).all()
        for value in one.unique():
            assert len(score[one == value].unique()) == 1


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
