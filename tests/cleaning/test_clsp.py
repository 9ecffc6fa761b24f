"""CLSP against its literal twin, by hand, and under permutations."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from candidly.cleaning import Clsp, clsp
from candidly.engine.nets.neighbours import nearest
from candidly.engine.problem import Problem
from tests.cleaning.cases import N, random_sets
from tests.contracts.cases import blobs


@pytest.mark.parametrize("options", [{"k": 0}, {"tau": -0.1}, {"tau": 1.5}, {"tau": math.nan}])
def test_options_of_clsp_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Clsp(**options).setup(Problem.of(*blobs(20, seed=0)[:2]))


# CLSP.


def slow_prune(S, neighbours, tau):
    """Candidate label set pruning, word by word."""
    pruned = []
    for row, others in zip(S, neighbours, strict=True):
        votes = [sum(1 - S[v][j] for v in others) if row[j] else 0 for j in range(len(row))]
        g = math.ceil(tau * (sum(row) - 1))
        limit = sorted(votes, reverse=True)[g]
        pruned.append([bool(row[j]) and votes[j] <= limit for j in range(len(row))])
    return pruned


def neighbourhood(seed, classes, k):
    generator = np.random.default_rng(seed)
    S = random_sets(generator, N, classes)
    neighbours = [generator.permutation([v for v in range(N) if v != i])[:k] for i in range(N)]
    return S, torch.from_numpy(np.stack(neighbours))


neighbourhoods = {"seed": st.integers(0, 2**20), "classes": st.integers(2, 12), "k": st.integers(1, 9)}

strengths = st.integers(0, 20).map(lambda twentieths: Fraction(twentieths, 20))


@given(**neighbourhoods, tau=strengths)
@settings(max_examples=80)
def test_clsp_equals_its_literal_twin(seed, classes, k, tau):
    S, neighbours = neighbourhood(seed, classes, k)
    pruned = Clsp(tau=float(tau)).prune(S, neighbours)
    assert pruned.tolist() == slow_prune(S.int().tolist(), neighbours.tolist(), tau)
    removed = (S & ~pruned).sum(-1)
    assert not (pruned & ~S).any()
    assert pruned.any(-1).all()
    assert all(int(gone) <= math.ceil(tau * (int(size) - 1)) for gone, size in zip(removed, S.sum(-1), strict=True))


@given(**neighbourhoods, tau=strengths)
@settings(max_examples=40)
def test_clsp_commutes_with_permutations(seed, classes, k, tau):
    S, neighbours = neighbourhood(seed, classes, k)
    generator, clsp = np.random.default_rng(seed), Clsp(tau=float(tau))
    pruned = clsp.prune(S, neighbours)
    columns = torch.from_numpy(generator.permutation(classes))
    assert torch.equal(clsp.prune(S[:, columns], neighbours), pruned[:, columns])
    order = torch.from_numpy(generator.permutation(N))
    assert torch.equal(clsp.prune(S[order], order.argsort()[neighbours[order]]), pruned[order])


def test_clsp_by_hand():
    S = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 1, 0], [1, 0, 0]]).bool()
    votes = torch.tensor([[1, 2, 3]] * 4)  # of row 0: class 0 none, class 1 two, class 2 two
    assert Clsp(tau=0.5).prune(S, votes)[0].tolist() == [True, True, True]  # one may go, but two tie
    assert Clsp(tau=1.0).prune(S, votes)[0].tolist() == [True, False, False]
    assert Clsp(tau=1.0).prune(S, votes)[3].tolist() == [True, False, False]
    assert torch.equal(Clsp(tau=0.0).prune(S, votes), S)
    S[1, 1] = True  # class 1 now has one vote against it, class 2 two
    assert Clsp(tau=0.5).prune(S, votes)[0].tolist() == [True, True, False]


def test_clsp_looks_among_a_runs_own_rows_by_angle():
    X, S, _ = blobs(40, seed=0)
    rows = [np.arange(40), np.arange(8, 40)]
    problem = Problem.of(X, S, rows=rows, seeds=(0, 1))
    cleaner = Clsp(k=4, tau=1.0)
    trained = cleaner.setup(problem)
    assert torch.equal(problem.S, torch.from_numpy(S))
    assert trained.S.shape == (2, 40, 4)
    unit = F.normalize(problem.X, dim=-1)
    for run, own in enumerate(problem.rows):
        expected = cleaner.prune(problem.S[own], nearest(unit[own], 4))
        assert torch.equal(trained.S[run, own], expected)
    assert torch.equal(trained.S[1, :8], problem.S[:8])  # rows it does not train on
    assert not torch.equal(trained.S[0], problem.S)
    longer = Problem.of(X * np.linspace(1, 9, 40)[:, None], S, rows=rows, seeds=(0, 1))
    assert torch.equal(cleaner.setup(longer).S, trained.S)


def test_runs_with_the_same_rows_share_the_search(monkeypatch):
    searched = []
    monkeypatch.setattr(clsp, "nearest", lambda unit, k: searched.append(len(unit)) or nearest(unit, k))
    X, S, _ = blobs(40, seed=0)
    rows = [np.arange(40), np.arange(8, 40), np.arange(40)]
    sets = np.stack([S, S, blobs(40, seed=1)[1]])
    found = Clsp(k=4, tau=1.0).setup(Problem.of(X, sets, rows=rows, seeds=(0, 1, 2))).S
    assert searched == [40, 32]
    for run, own in enumerate(rows):
        alone = Clsp(k=4, tau=1.0).setup(Problem.of(X, sets[run], rows=[own], seeds=(run,))).sets[0]
        assert torch.equal(found[run], alone)


def test_clsp_sees_a_scaling_that_was_given_but_no_standardisation():
    """The one says what the data are, the other is each run's own."""
    S = blobs(40, seed=0)[1]
    pixels = np.random.default_rng(0).integers(0, 256, (40, 5), dtype=np.uint8)
    numbers = pixels.astype(np.float32)
    cleaner = Clsp(k=4, tau=1.0)
    raw = cleaner.setup(Problem.of(numbers, S, seeds=(0, 1))).S
    centred = cleaner.setup(Problem.of((numbers - 120) / 64, S, seeds=(0, 1))).S  # exact in float32
    assert not torch.equal(raw, centred)
    for stored in (pixels, numbers):
        given = Problem.of(stored, S, seeds=(0, 1), shift=120, scale=1 / 64)
        assert torch.equal(cleaner.setup(given).S, centred)
        assert torch.equal(cleaner.setup(Problem.of(stored, S, seeds=(0, 1))).S, raw)
        assert torch.equal(cleaner.setup(Problem.of(stored, S, seeds=(0, 1), standardise=True)).S, raw)


def test_clsp_reads_given_features():
    X, S, _ = blobs(40, seed=0)
    problem = Problem.of(np.zeros_like(X), S)
    assert torch.equal(Clsp(features=X).setup(problem).S, Clsp().setup(Problem.of(X, S)).S)
    stored = Problem.of(np.zeros_like(X, dtype=np.uint8), S)
    assert torch.equal(Clsp(features=X).setup(stored).S, Clsp().setup(Problem.of(X, S)).S)
    with pytest.raises(ValueError, match="features has 39 rows but the problem has 40"):
        Clsp(features=X[:39]).setup(problem)
