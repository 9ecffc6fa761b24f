"""Losses that several methods use. They work on the last two axes, rows and classes; any axes may lead them."""

import torch
from torch import Tensor

from candidly.checks.tensors import broadcast


def soft_ce(q: Tensor, z: Tensor) -> Tensor:
    """Return ``CE(q, softmax(z))``, averaged over the rows."""
    broadcast(q=q, z=z)
    return -(q * z.log_softmax(-1)).sum(-1).mean(-1)


def candidate_nll(z: Tensor, S: Tensor) -> Tensor:
    """Return ``-log Σ_{j∈S} softmax(z)_j``, averaged over the rows."""
    broadcast(z=z, S=S)
    return (z.logsumexp(-1) - torch.where(S, z, -torch.inf).logsumexp(-1)).mean(-1)
