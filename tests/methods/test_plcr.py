"""PLCR's loss where float32 is not exact."""

import torch

from candidly.methods.plcr import _log_rest


def log_rest(z):
    """Return log(1 − softmax(z)) in float64: the logarithm of the sum of all other probabilities."""
    others = z.double().unsqueeze(-2).masked_fill(torch.eye(z.shape[-1], dtype=torch.bool), -torch.inf)
    return others.logsumexp(-1) - z.double().logsumexp(-1, keepdim=True)


def test_a_label_that_is_almost_certain_has_a_loss_and_a_gradient():
    lead = torch.tensor([0.0, 1.0, 5.0, 15.0, 17.0, 20.0, 60.0])
    z = torch.stack([lead, torch.zeros_like(lead), torch.full_like(lead, -0.5)], -1).requires_grad_()
    found, expected = _log_rest(z.log_softmax(-1)), log_rest(z)
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=1e-7)
    (ours,) = torch.autograd.grad(found[:, 0].sum(), z, retain_graph=True)
    (theirs,) = torch.autograd.grad(expected[:, 0].sum(), z)
    torch.testing.assert_close(ours, theirs.float(), rtol=1e-4, atol=1e-6)
    assert (ours[3:, 0] < -0.99).all()
    (ours,) = torch.autograd.grad(found.sum(), z)
    assert ours.isfinite().all()


def test_two_classes():
    z = torch.tensor([[3.0, -3.0], [0.0, 0.0]])
    torch.testing.assert_close(_log_rest(z.log_softmax(-1)).double(), log_rest(z))
