"""Logits and candidate sets for the tests of losses and weights."""

import torch

R, N, C = 2, 7, 4


def data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = 3 * torch.randn(R, N, C, generator=generator, dtype=torch.float64)
    S = torch.rand(R, N, C, generator=generator) < 0.5
    S.scatter_(-1, torch.randint(C, (R, N, 1), generator=generator), True)
    return z, S


def rows(*tensors):
    """Lists of each run's and row's numbers."""
    for run in range(R):
        for row in range(N):
            yield run, row, *(tensor[run, row].tolist() for tensor in tensors)
