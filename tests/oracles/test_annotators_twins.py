"""The posterior of votes against its slow literal twin."""

import numpy as np
import pytest
import torch

from candidly.candidates.annotators import fit_posterior
from candidly.candidates.vote_tables import VoteTable
from tests.oracles import annotators as twin


def simulate(seed, n=40, C=3, accuracy=(0.9, 0.6, 0.75, 0.4), votes=3):
    rng = np.random.default_rng(seed)
    y = rng.integers(C, size=n)
    p = rng.dirichlet(np.ones(C), size=n)
    p[np.arange(n), y] += 1
    log_p = np.log(p / p.sum(1, keepdims=True))
    found = []
    for i in range(n):
        for w in sorted(rng.choice(len(accuracy), rng.integers(1, votes + 1), replace=False).tolist()):
            v = y[i] if rng.random() < accuracy[w] else (y[i] + rng.integers(1, C)) % C
            found.append((i, w, int(v)))
    return log_p, found, len(accuracy)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("anonymous", [False, True])
def test_posterior_and_accuracies(seed, anonymous):
    log_p, votes, workers = simulate(seed)
    q, temperature, common, accuracies = twin.fit(log_p, votes, workers, anonymous)
    row, worker, label = np.array(votes).T
    table = VoteTable(range(len(log_p)), range(workers), range(3), row, worker, label)
    found = fit_posterior(torch.from_numpy(log_p), table, [None] * workers, anonymous=anonymous)
    assert found.temperature == temperature
    np.testing.assert_allclose(found.common.numpy(), common, rtol=1e-6)
    np.testing.assert_allclose(found.p.numpy(), q, atol=1e-5)
    if not anonymous:
        values = [(one.accuracy, one.low, one.high) for one in found.annotators]
        np.testing.assert_allclose(values, accuracies, atol=2e-4)
        assert [one.votes for one in found.annotators] == np.bincount(worker).tolist()
