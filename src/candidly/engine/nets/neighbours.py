"""Exact nearest neighbours, in blocks, without an n × n matrix."""

import torch
from torch import Tensor

_BLOCK_ENTRIES = 2**25


def nearest(features: Tensor, k: int) -> Tensor:
    """Return each row's k nearest other rows by Euclidean distance, (n, k); torch.topk breaks ties.

    Examples
    --------
    >>> nearest(torch.tensor([[0.0], [1.0], [3.0]]), 1)
    tensor([[1],
            [0],
            [1]])
    """
    n = len(features)
    if not 1 <= k < n:
        raise ValueError(f"k is {k}, but there are {n} rows; use 1 <= k <= {n - 1}")
    features = features - features.mean(0)  # expanding the square loses digits far from the origin
    squares = features.square().sum(-1)
    found = []
    for start in range(0, n, block := max(1, _BLOCK_ENTRIES // n)):
        part = features[start : start + block]
        distances = torch.addmm(
            squares, part, features.T, alpha=-2
        )  # without the row's own square, which does not change the order
        own = torch.arange(start, start + len(part), device=features.device)
        distances.scatter_(1, own.unsqueeze(1), torch.inf)
        found.append(distances.topk(k, largest=False).indices)
    return torch.cat(found)
