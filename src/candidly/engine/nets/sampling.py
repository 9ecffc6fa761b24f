"""Gamma and Dirichlet samples computed from uniforms, differentiable in their parameters."""

import math
from typing import Any

import torch
from torch import Tensor

from candidly.engine.nets import kernels

_REJECTION_ROUNDS = 4
_SMALL_ROOT = 1e-3  # lower bound: the root of a rejected round may be negative, but its logarithm is computed

NOISE_PER_GAMMA = 2 * _REJECTION_ROUNDS + 1
"""Number of uniforms that the samplers below need per returned number."""


class _LogGamma(torch.autograd.Function):
    """Marsaglia and Tsang's sampler, with its derivative: with m = 1 + x/√(9d), log(d·m³) grows by (1.5/m − .5)/d."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, u: Tensor) -> Tensor:
        tiny, eps = torch.finfo(u.dtype).tiny, torch.finfo(u.dtype).eps
        normal, accept, boost = u.split([_REJECTION_ROUNDS, _REJECTION_ROUNDS, 1], -1)
        x = torch.special.ndtri(normal.clamp(eps, 1 - eps))
        if a.dtype == torch.float32 and kernels.usable(a):
            from candidly.engine.nets.kernels import gamma

            sample, slope = gamma.sample(a.contiguous(), x, u, _SMALL_ROOT, tiny)
            ctx.save_for_backward(slope)
            return sample
        d = (a + (1 - 1 / 3)).unsqueeze(-1)
        root = 1 + x / (9 * d).sqrt()
        v = root.clamp_min(_SMALL_ROOT) ** 3
        accepted = (root > 0) & (accept.clamp_min(tiny).log() < 0.5 * x**2 + d * (1 - v + v.log()))
        accepted[..., -1].fill_(True)  # at most 1 in 100,000 samples accepts no round
        root = root.gather(-1, accepted.byte().argmax(-1, keepdim=True))
        log_boost = boost.clamp_min(tiny).log().squeeze(-1) / a
        slope = torch.where(root > _SMALL_ROOT, 1.5 / root - 0.5, 1.0).div_(d).squeeze(-1) - log_boost / a
        ctx.save_for_backward(slope)
        return (d * root.clamp_min(_SMALL_ROOT) ** 3).log().squeeze(-1) + log_boost

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return grads[0] * slope, None


def log_gamma_sample(a: Tensor, u: Tensor) -> Tensor:
    """Return the logarithm of a Gamma(a, 1) sample for each entry of `a`, differentiable in `a`.

    Marsaglia and Tsang (2000) with a fixed number of rejection rounds on shape ``a + 1``, then the boost
    ``Gamma(a) = Gamma(a + 1) · U^(1/a)``. It computes in logarithms, because with a = 0.01 the sample underflows. The
    gradient is the path-wise one through the accepted proposal. It ignores the (small) dependence of the acceptance on
    `a`, as in the "reparameterised" part of Naesseth et al. (AISTATS 2017).

    Parameters
    ----------
    a : Tensor
        Shapes, positive.
    u : Tensor
        Uniforms in [0, 1), ``a.shape + (NOISE_PER_GAMMA,)``.
    """
    return _LogGamma.apply(a, u)  # type: ignore[no-untyped-call]


def log_dirichlet_sample(a: Tensor, u: Tensor) -> Tensor:
    """Return the logarithm of a Dirichlet(a) sample over the last axis, from uniforms (..., C · NOISE_PER_GAMMA)."""
    return log_gamma_sample(a, u.unflatten(-1, (-1, NOISE_PER_GAMMA))).log_softmax(-1)


class _DirichletKl(torch.autograd.Function):
    """The divergence and its derivative, (a_j − 1)·ψ'(a_j) − (A − C)·ψ'(A) with A = Σ_j a_j."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        total, classes = a.sum(-1, keepdim=True), a.shape[-1]
        ctx.save_for_backward(a, total)
        inner = (a - 1) * (a.digamma() - total.digamma()) - a.lgamma()
        return inner.sum(-1) + (total.lgamma() - math.lgamma(classes)).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        a, total = ctx.saved_tensors
        slope = (a - 1) * torch.polygamma(1, a) - (total - a.shape[-1]) * torch.polygamma(1, total)
        return grads[0].unsqueeze(-1) * slope


def dirichlet_kl_to_uniform(a: Tensor) -> Tensor:
    """Return ``KL(Dir(a) ‖ Dir(1))`` over the last axis."""
    return _DirichletKl.apply(a)  # type: ignore[no-untyped-call]
