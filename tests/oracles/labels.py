"""Probabilities, losses and label weights, row by row and label by label, in the notation of the papers."""

import math
from collections.abc import Collection, Sequence
from statistics import fmean

import torch
from torch import Tensor

from tests.oracles.runs import Set, Weights


def softmax(z: Sequence[float], S: Collection[int] | None = None) -> Weights:
    """Compute norm_S(softmax(z)), from the logits; S is everything when left out."""
    inside = range(len(z)) if S is None else S
    top = max(z[j] for j in inside)
    total = sum(math.exp(z[k] - top) for k in inside)
    return [math.exp(z[j] - top) / total if j in inside else 0.0 for j in range(len(z))]


def log_softmax(z: Tensor) -> list[Tensor]:
    """Compute the log-probabilities of one row, label by label, with gradient."""
    top = z.max().item()
    log_total = top + sum((z_j - top).exp() for z_j in z).log()
    return [z_j - log_total for z_j in z]


def cross_entropy(q: Sequence[Weights], z: Tensor) -> Tensor:
    """CE(q, p) = −Σ_j q_j log p_j, averaged over the batch."""
    total = torch.zeros((), dtype=torch.float64)
    for q_i, z_i in zip(q, z, strict=True):
        for q_ij, log_p_ij in zip(q_i, log_softmax(z_i), strict=True):
            total = total - q_ij * log_p_ij
    return total / len(q)


def candidate_loss(S: Sequence[Set], z: Tensor) -> Tensor:
    """−log Σ_{j∈S} p_j, averaged over the batch."""
    total = torch.zeros((), dtype=torch.float64)
    for S_i, z_i in zip(S, z, strict=True):
        log_p = log_softmax(z_i)
        total = total - sum(log_p[j].exp() for j in S_i).log()
    return total / len(S)


def uniform(S: Set, classes: int) -> Weights:
    return [1 / len(S) if j in S else 0.0 for j in range(classes)]


def off_candidate_mass(p: Sequence[Weights], S: Sequence[Set]) -> float:
    """Mean over rows of Σ_{j∉S} p_j."""
    return fmean(sum(p_ij for j, p_ij in enumerate(p_i) if j not in S_i) for p_i, S_i in zip(p, S, strict=True))


def argmax(p: Weights) -> int:
    return max(range(len(p)), key=lambda j: p[j])
