"""Exact nearest neighbours in blocks, so that no n × n matrix is ever held."""

import torch
from torch import Tensor

_BLOCK_ENTRIES = 2**25


def nearest(features: Tensor, k: int) -> Tensor:
    """Find each row's k nearest other rows by Euclidean distance, (n, k); ties go to whichever torch.topk takes.

    Examples
    --------
    >>> nearest(torch.tensor([[0.0], [1.0], [3.0]]), 1)
    tensor([[1],
            [0],
            [1]])
    """
    n = len(features)
    if not 1 <= k < n:
        raise ValueError(f"k = {k} neighbours were asked of {n} rows; use 1 <= k <= {n - 1}")
    features = features - features.mean(0)  # the expanded square loses digits far from the origin
    squares = features.square().sum(-1)
    found = []
    for start in range(0, n, block := max(1, _BLOCK_ENTRIES // n)):
        part = features[start : start + block]
        distances = torch.addmm(squares, part, features.T, alpha=-2)  # up to the row's own square, which ranks nothing
        own = torch.arange(start, start + len(part), device=features.device)
        distances.scatter_(1, own.unsqueeze(1), torch.inf)
        found.append(distances.topk(k, largest=False).indices)
    return torch.cat(found)
