"""The controls, and the cleaner that keeps everything."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.nn import functional as F

from candidly.cleaning import Cleaner, Clsp, Oracle, Random
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.engine.training import Training
from candidly.methods import Proden
from tests.cleaning.cases import EPOCHS, RUNS, B, FakeBatch, N, random_sets, visit_or_assume, world, worlds
from tests.contracts.cases import blobs

# The two controls.


@given(**worlds)
@settings(max_examples=60)
def test_random_removes_as_many_labels_per_row_as_the_cleaner_it_imitates(cleaner, seed, classes):
    problem, tables, p, rows, within = world(seed, classes)
    imitated = copy.copy(cleaner)
    kept, allowed = visit_or_assume(imitated, problem, tables, p, rows, within)
    noise = torch.rand(EPOCHS, RUNS, B, classes, generator=torch.Generator().manual_seed(seed))
    control = Random(cleaner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        control.setup(problem)
    assert control.noise == classes
    for epoch in range(EPOCHS):

        def predict(chosen, table=tables[epoch]):
            return table if chosen is None else torch.stack([t[c] for t, c in zip(table, chosen, strict=True)])

        control.calibrate(predict, epoch)
        found = control.keep(p[epoch], allowed[epoch], FakeBatch(problem, rows[epoch], noise[epoch]))
        assert torch.equal(found.sum(-1), kept[epoch].sum(-1))
        assert not (found & ~allowed[epoch]).any()
    facts = imitated.facts()
    assert all(torch.equal(value, facts[name]) for name, value in control.facts().items())
    assert control.state().keys() == imitated.state().keys()


class Half(Cleaner):
    """Keeps the first two classes."""

    def keep(self, p, S, batch):
        return S & torch.tensor([True, True, False, False, False])


def test_random_chooses_evenly():
    n = 6000
    S = torch.ones(n, 5, dtype=torch.bool)
    S[:, 4] = False
    problem = Problem(torch.zeros(n, 1), S, (torch.arange(n),), (0,))
    noise = torch.rand(1, n, 5, generator=torch.Generator().manual_seed(0))
    control = Random(Half())
    control.setup(problem)
    kept = control.keep(torch.full((1, n, 5), 0.2), S[None], FakeBatch(problem, torch.arange(n)[None], noise))[0]
    pairs = (kept.long() * 2 ** torch.arange(5)).sum(-1).bincount(minlength=32)
    assert (pairs > 0).sum() == math.comb(4, 2)
    chances = pairs[pairs > 0] / n
    assert (chances - 1 / 6).abs().max() < 4 * math.sqrt(1 / 6 * 5 / 6 / n)


def test_random_imitates_a_cleaner_that_prunes_before_training():
    X, S, _ = blobs(40, seed=0)
    problem = Problem.of(X, S, rows=[np.arange(40), np.arange(8, 40)], seeds=(0, 1))
    clsp = Clsp(k=4, tau=1.0)
    expected, found = clsp.setup(problem).S, Random(clsp).setup(problem).S
    assert torch.equal(found.sum(-1), expected.sum(-1))
    assert not (found & ~problem.sets).any()
    assert not torch.equal(found, expected)
    assert torch.equal(Random(clsp).setup(problem).S, found)


class Noisy(Cleaner):
    """Keeps one random candidate; how much noise that takes is known at setup."""

    def setup(self, problem):
        self.noise = problem.num_classes
        return problem

    def keep(self, p, S, batch):
        best = batch.noise(S.shape[-1]).masked_fill(~S, -1).argmax(-1, keepdim=True)
        return torch.zeros_like(S).scatter_(-1, best, True)


def test_random_asks_for_the_noise_of_both():
    X, S, _ = blobs(40, seed=0)
    training = Training(Problem.of(X, S), Proden(), Random(Noisy()), Recipe(epochs=1), "linear")
    assert training.cleaner.noise == 8
    training.begin_epoch()
    training.advance(capture=False)
    assert (training.batch.take(training.batch.kept).sum(-1) == 1).all()


def test_oracle_keeps_the_true_label_wherever_it_is_allowed():
    generator = np.random.default_rng(0)
    S, y = random_sets(generator, N, 4), torch.from_numpy(generator.integers(0, 4, N))
    problem = Problem(torch.zeros(N, 1), S, (torch.arange(N), torch.arange(4, N)), (0, 1))
    oracle = Oracle(y.numpy())
    assert oracle.setup(problem) is problem
    rows = torch.from_numpy(np.stack([generator.permutation(N)[:B] for _ in range(2)]))
    batch = FakeBatch(problem, rows)
    kept = oracle.keep(torch.full((2, B, 4), 0.25), batch.S, batch)
    true = F.one_hot(y[rows], 4).bool()
    inside = (batch.S & true).any(-1)
    assert inside.any()
    assert not inside.all()
    assert torch.equal(kept[inside], true[inside])
    assert torch.equal(kept[~inside], batch.S[~inside])
    with pytest.raises(ValueError, match=r"y has shape \(3,\) but X has 24 rows"):
        Oracle([0, 1, 2]).setup(problem)


def test_the_identity_cleaner():
    problem = Problem.of(*blobs(10, seed=0)[:2])
    cleaner = Cleaner()
    assert cleaner.setup(problem) is problem
    assert cleaner.keep(None, problem.S, None) is problem.S
    assert cleaner.facts() == cleaner.state() == {}
