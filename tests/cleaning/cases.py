"""Small problems for the tests of cleaners."""

import warnings

import numpy as np
import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch.nn import functional as F

from candidly.cleaning import Conformal
from candidly.engine.problem import Problem

N, B, RUNS, EPOCHS = 24, 8, 2, 4


class FakeBatch:
    """What a cleaner may use of a batch."""

    def __init__(self, problem, rows, noise=None):
        self.rows, self.uniforms, self.drawn = rows, noise, 0
        self.S = self.take(problem.sets)
        self.size = self.S.shape[1]

    def take(self, state):
        return torch.stack([one[rows] for one, rows in zip(state, self.rows, strict=True)])

    def noise(self, k):
        self.drawn += k
        return self.uniforms[..., self.drawn - k : self.drawn]


def dyadic(generator, *shape):
    """Probabilities in multiples of 1/64: sums of them are exact in whatever order."""
    cuts = generator.integers(0, 65, (*shape[:-1], shape[-1] - 1))
    cuts = np.sort(np.concatenate([np.zeros((*shape[:-1], 1)), cuts, np.full((*shape[:-1], 1), 64)], -1), -1)
    return torch.from_numpy(np.diff(cuts) / 64)


def random_sets(generator, *shape):
    S = torch.from_numpy(generator.random(shape) < 0.5)
    chosen = torch.from_numpy(generator.integers(0, shape[-1], (*shape[:-1], 1)))
    return S.scatter_(-1, chosen, True)


def world(seed, classes):
    """Random sets, probabilities, batches and a method's own supports for a few epochs."""
    generator = np.random.default_rng(seed)
    S = random_sets(generator, N, classes)
    S[: N // 2] = F.one_hot(torch.from_numpy(generator.integers(0, classes, N // 2)), classes).bool()
    rows = (torch.arange(N), torch.arange(N // 4, N))
    problem = Problem(torch.from_numpy(generator.normal(size=(N, 2))), S, rows, (seed, seed + 1))
    tables = dyadic(generator, EPOCHS, RUNS, N, classes)
    batches = torch.from_numpy(np.stack([generator.permutation(N)[:B] for _ in range(EPOCHS * RUNS)]))
    within = random_sets(generator, EPOCHS, RUNS, B, classes)
    return problem, tables, dyadic(generator, EPOCHS, RUNS, B, classes), batches.view(EPOCHS, RUNS, B), within


def visit(cleaner, problem, tables, p, rows, within):
    """Set a cleaner up, calibrate it every epoch and let it clean one batch per epoch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # levels that can never prune are part of the space
        cleaner.setup(problem)
    kept, allowed = [], []
    for epoch in range(EPOCHS):

        def predict(chosen, table=tables[epoch]):
            return table if chosen is None else torch.stack([t[c] for t, c in zip(table, chosen, strict=True)])

        cleaner.calibrate(predict, epoch)
        batch = FakeBatch(problem, rows[epoch])
        inside = batch.S & within[epoch]
        allowed.append(torch.where(inside.any(-1, keepdim=True), inside, batch.S))
        kept.append(cleaner.keep(p[epoch], allowed[-1], batch))
    return torch.stack(kept), torch.stack(allowed)


@st.composite
def conformals(draw):
    options = {
        "rule": draw(st.sampled_from(["revocable", "permanent"])),
        "level": draw(st.sampled_from(["off_candidate_mass", "fixed", "remark"])),
        "alpha": draw(st.sampled_from([None, 0.0, 0.05, 0.25, 0.5, 0.9])),
        "score": draw(st.sampled_from(["best", "worst", "mean", "singletons"])),
        "calibration": draw(st.sampled_from(["reuse", "holdout", "auto"])),
        "warmup": draw(st.integers(0, 2)),
        "finite": draw(st.booleans()),
        "slack": draw(st.sampled_from([0.0, 0.125])),
        "dkw": draw(st.booleans()),
        "stop": draw(st.sampled_from([0.02, 0.2, 1.0])),
    }
    revocable = options["rule"] == "revocable"
    per_batch = revocable and options["level"] == "off_candidate_mass" and draw(st.booleans())
    return Conformal(**options, per_batch=per_batch, shrink=revocable and draw(st.booleans()))


worlds = {"cleaner": conformals(), "seed": st.integers(0, 2**20), "classes": st.integers(2, 5)}


def visit_or_assume(cleaner, *arguments):
    try:
        return visit(cleaner, *arguments)
    except ValueError as error:  # a holdout without a single-candidate row
        assert cleaner.score == "singletons"
        assert "single candidate" in str(error)  # noqa: PT017
        assume(False)
