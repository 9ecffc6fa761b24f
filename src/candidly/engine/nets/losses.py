"""Losses that several methods use. They work on the last two axes, rows and classes; any axes may lead them."""

import torch
from torch import Tensor


def soft_ce(q: Tensor, z: Tensor) -> Tensor:
    """Return ``CE(q, softmax(z))``, averaged over the rows."""
    return -(q * z.log_softmax(-1)).sum(-1).mean(-1)


def candidate_nll(z: Tensor, S: Tensor) -> Tensor:
    """Return ``-log Σ_{j∈S} softmax(z)_j``, averaged over the rows."""
    return (z.logsumexp(-1) - torch.where(S, z, -torch.inf).logsumexp(-1)).mean(-1)
