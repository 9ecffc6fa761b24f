"""VALEN's loss where float32 overflows."""

import torch

from candidly.methods.valen import _concentrations


def test_large_logits_have_clipped_concentrations_and_no_gradient():
    a = torch.tensor([-2000.0, -20, -10, 0, 10, 20, 2000], requires_grad=True)  # ResNet-9 had 700 on CIFAR-10
    found = _concentrations(a)
    expected = (a.detach().double() / 4).exp().clamp(0.01, 30)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    (slope,) = torch.autograd.grad(found.sum(), a)
    inside = (expected > 0.01) & (expected < 30)
    torch.testing.assert_close(slope, torch.where(inside, found.detach() / 4, 0.0))
    assert inside.tolist() == [False, False, True, True, True, False, False]
