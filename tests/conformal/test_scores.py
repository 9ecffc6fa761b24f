"""Conformity scores against loops and the papers' formulas."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from candidly import conformal
from tests.conformal.cases import C, N, R, above, calibration, data, draws


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


def test_off_candidate_mass_equals_loops():
    p, S = data()
    found = conformal.off_candidate_mass(p, S)
    for run in range(R):
        for row in range(N):
            outside = sum(float(v) for v, s in zip(p[run, row], S[run, row], strict=True) if not s)
            assert float(found[run, row]) == pytest.approx(outside, abs=1e-15)
    assert (conformal.off_candidate_mass(p, torch.ones_like(S)) == 0).all()
