"""Losses against sums over rows and labels."""

import math

import pytest
import torch

from candidly.candidates import weights
from candidly.engine.nets import losses
from tests.engine.nets.cases import C, N, R, data, rows


def test_soft_ce():
    z, S = data()
    q = weights.uniform_weights(S, torch.float64)
    found = losses.soft_ce(q, z)
    totals = [0.0] * R
    for run, _, logits, given in rows(z, q):
        top = math.log(sum(math.exp(v) for v in logits))
        totals[run] -= sum(w * (v - top) for w, v in zip(given, logits, strict=True))
    assert found.shape == (R,)
    assert found.tolist() == pytest.approx([total / N for total in totals], rel=1e-12)


def test_candidate_nll():
    z, S = data()
    found = losses.candidate_nll(z, S)
    totals = [0.0] * R
    for run, _, p, inside in rows(z.softmax(-1), S):
        totals[run] -= math.log(sum(v for v, s in zip(p, inside, strict=True) if s))
    assert found.shape == (R,)
    assert found.tolist() == pytest.approx([total / N for total in totals], rel=1e-12)


@pytest.mark.parametrize("loss", ["candidate_nll", "soft_ce"])
def test_gradients_stay_finite(loss):
    """Masked logits are -inf, and far-off candidates underflow; neither may spoil a gradient."""
    z, S = data()
    z[0, 0], S[0, 0] = torch.tensor([900.0, -900.0, 0.0, 0.0]), torch.tensor([False, True, False, False])
    z[1, 0], S[1, 0] = torch.tensor([5.0, 5.0, 5.0, 5.0]), torch.ones(C, dtype=torch.bool)
    z.requires_grad_()
    if loss == "candidate_nll":
        value = losses.candidate_nll(z, S)
    else:
        value = losses.soft_ce(weights.masked_softmax(z.detach(), S), z)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    assert value.isfinite().all()
    assert gradient.isfinite().all()
    p = z.detach().softmax(-1)
    assert torch.allclose(gradient, (p - weights.masked_softmax(z.detach(), S)) / N, atol=1e-14)  # both have this one
