"""Label weights on candidate sets."""

import math

import pytest
import torch

from candidly.candidates import weights
from tests.engine.nets.cases import data, rows


def test_uniform_weights():
    _, S = data()
    q = weights.uniform_weights(S, torch.float64)
    for run, row, inside in rows(S):
        expected = [1 / sum(inside) if s else 0 for s in inside]
        assert q[run, row].tolist() == pytest.approx(expected, abs=1e-15)
    assert q.dtype == torch.float64
    assert weights.uniform_weights(S, torch.float32).dtype == torch.float32


def test_masked_softmax():
    z, S = data()
    found = weights.masked_softmax(z, S)
    for run, row, logits, inside in rows(z, S):
        e = [math.exp(v) if s else 0.0 for v, s in zip(logits, inside, strict=True)]
        assert found[run, row].tolist() == pytest.approx([v / sum(e) for v in e], abs=1e-14)
    assert (found[~S] == 0).all()


def test_masked_softmax_of_candidates_that_underflow():
    z = torch.tensor([500.0, -500.0, -501.0])
    S = torch.tensor([False, True, True])
    assert (z.softmax(-1)[S] == 0).all()  # norm_S(softmax(z)) would be 0/0
    found = weights.masked_softmax(z, S)
    assert found.tolist() == pytest.approx([0, 1 / (1 + math.exp(-1)), 1 / (1 + math.e)], rel=1e-6)
