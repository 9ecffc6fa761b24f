"""Label weights on candidate sets, as tensor functions over the last axis."""

import torch
from torch import Tensor

from candidly.checks.tensors import broadcast


def uniform_weights(S: Tensor, dtype: torch.dtype) -> Tensor:
    """Return equal label weights on the candidates: ``q_j = 1 / |S|`` for ``j`` in S, zero elsewhere."""
    broadcast(S=S)
    return S.to(dtype) / S.sum(-1, keepdim=True)


def masked_softmax(z: Tensor, S: Tensor) -> Tensor:
    """Return ``norm_S(softmax(z))``, computed from the logits so that candidates that underflow do not give 0/0.

    Examples
    --------
    >>> masked_softmax(torch.tensor([0.0, 0.0, -500.0]), torch.tensor([True, False, True]))
    tensor([1., 0., 0.])
    """
    broadcast(z=z, S=S)
    return torch.where(S, z, -torch.inf).softmax(-1)
