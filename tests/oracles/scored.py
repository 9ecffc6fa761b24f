"""Rows with scores and candidate sets, as tensors and as lists, for the literal twins of cleaning."""

from statistics import NormalDist

import torch

NORMAL = NormalDist().inv_cdf(0.95)


def made(seed, ties=None, n=60, C=4):
    """Rows of unequal classes, whose probabilities are too sure; with `ties`, they have few different values."""
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(n, C, generator=generator, dtype=torch.float64) + torch.linspace(0, 1, C)
    if ties is not None:
        z = (z * ties).round() / ties
    y = (z / 1.4).softmax(-1).multinomial(1, generator=generator)[:, 0]
    S = (torch.rand(n, C, generator=generator) < 0.4).scatter(1, y[:, None], True)
    return z, S, y


def rows(tensor):
    return tensor.tolist()


def sets(S):
    return [{j for j, there in enumerate(row) if there} for row in S.tolist()]
