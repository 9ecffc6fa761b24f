"""The few pieces that methods share. Every function works on the last axis and ignores how many axes lead it."""

import torch
from torch import Tensor


def soft_ce(q: Tensor, z: Tensor) -> Tensor:
    """``CE(q, softmax(z))``, averaged over the rows (the axis before the last)."""
    return -(q * z.log_softmax(-1)).sum(-1).mean(-1)


def candidate_nll(z: Tensor, S: Tensor) -> Tensor:
    """``-log Σ_{j∈S} softmax(z)_j``, averaged over the rows."""
    return (z.logsumexp(-1) - torch.where(S, z, -torch.inf).logsumexp(-1)).mean(-1)
