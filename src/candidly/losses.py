"""The few pieces that methods share. Every function works on the last axis and ignores how many axes lead it."""

import torch
from torch import Tensor

_REJECTION_ROUNDS = 4
NOISE_PER_GAMMA = 2 * _REJECTION_ROUNDS + 1
"""How many uniforms the two samplers below consume for each number they return."""


def uniform_weights(S: Tensor, dtype: torch.dtype) -> Tensor:
    """Equal label weights on the candidates: ``q_j = 1 / |S|`` for ``j`` in S, zero elsewhere."""
    return S.to(dtype) / S.sum(-1, keepdim=True)


def masked_softmax(z: Tensor, S: Tensor) -> Tensor:
    """``norm_S(softmax(z))``, computed from the logits so that candidates that underflow do not give 0/0.

    Examples
    --------
    >>> masked_softmax(torch.tensor([0.0, 0.0, -500.0]), torch.tensor([True, False, True]))
    tensor([1., 0., 0.])
    """
    return z.masked_fill(~S, -torch.inf).softmax(-1)


def soft_ce(q: Tensor, z: Tensor) -> Tensor:
    """``CE(q, softmax(z))``, averaged over the rows (the axis before the last)."""
    return -(q * z.log_softmax(-1)).sum(-1).mean(-1)


def candidate_nll(z: Tensor, S: Tensor) -> Tensor:
    """``-log Σ_{j∈S} softmax(z)_j``, averaged over the rows."""
    return (z.logsumexp(-1) - z.masked_fill(~S, -torch.inf).logsumexp(-1)).mean(-1)


def log_gamma_sample(a: Tensor, u: Tensor) -> Tensor:
    """Logarithm of a Gamma(a, 1) sample for each entry of `a`, made from uniforms, differentiable in `a`.

    Marsaglia and Tsang (2000) with a fixed number of rejection rounds on shape ``a + 1``, then the boost
    ``Gamma(a) = Gamma(a + 1) · U^(1/a)``. Everything stays in logarithms: with a = 0.01 the sample itself underflows.
    The gradient is the path-wise one through the accepted proposal. It leaves out the (small) dependence of the
    acceptance on `a`, as in the "reparameterised" part of Naesseth et al. (AISTATS 2017).

    Parameters
    ----------
    a : Tensor
        Shapes, positive.
    u : Tensor
        Uniforms in [0, 1), ``a.shape + (NOISE_PER_GAMMA,)``.
    """
    tiny = torch.finfo(u.dtype).tiny
    normal, accept, boost = u.split([_REJECTION_ROUNDS, _REJECTION_ROUNDS, 1], -1)
    x = torch.special.ndtri(normal.clamp(torch.finfo(u.dtype).eps, 1 - torch.finfo(u.dtype).eps))
    d = (a + (1 - 1 / 3)).unsqueeze(-1)
    root = 1 + x / (9 * d).sqrt()
    v = root.clamp_min(1e-3) ** 3  # clamped so that a rejected round has a finite gradient too
    accepted = (root > 0) & (accept.clamp_min(tiny).log() < 0.5 * x**2 + d - d * v + d * v.log())
    # The first accepted round; the last one where none was (at most 1 in 100,000).
    first = torch.where(accepted.any(-1, keepdim=True), accepted.byte().argmax(-1, keepdim=True), _REJECTION_ROUNDS - 1)
    log_boosted = (d * v).log().gather(-1, first).squeeze(-1)
    return log_boosted + boost.squeeze(-1).clamp_min(tiny).log() / a


def log_dirichlet_sample(a: Tensor, u: Tensor) -> Tensor:
    """Logarithm of a Dirichlet(a) sample over the last axis, made from uniforms (..., C · NOISE_PER_GAMMA)."""
    return log_gamma_sample(a, u.unflatten(-1, (-1, NOISE_PER_GAMMA))).log_softmax(-1)


def dirichlet_kl_to_uniform(a: Tensor) -> Tensor:
    """``KL(Dir(a) ‖ Dir(1))`` over the last axis."""
    total = a.sum(-1)
    classes = torch.full_like(total, a.shape[-1])
    normaliser = total.lgamma() - a.lgamma().sum(-1) - classes.lgamma()
    return normaliser + ((a - 1) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)
