"""Small data for the tests of conformal functions."""

import torch

from candidly import conformal

R, N, C = 3, 12, 5


def above(scores, counts, p, alpha):
    """Return the sets that `PartialLabelClassifier.predict_set` makes of p-values."""
    return conformal.p_values(scores, counts, p) > alpha


def data(seed=0, levels=None):
    """Probabilities and non-empty sets; with `levels`, probabilities have that many values, so that they tie."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(2 * torch.randn(R, N, C, generator=generator, dtype=torch.float64), -1)
    if levels is not None:
        p = (p * levels).round() / levels
    S = torch.rand(R, N, C, generator=generator) < 0.4
    S.scatter_(-1, torch.randint(C, (R, N, 1), generator=generator), True)
    return p, S


def calibration(sizes=(7, 12, 1), seed=1, levels=None):
    """Sorted scores of runs with different numbers of them."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(len(sizes), max(sizes), generator=generator, dtype=torch.float64)
    if levels is not None:
        scores = (scores * levels).round() / levels
    valid = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
    return conformal.sort_scores(scores, valid)


def draws(seed=2):
    return torch.rand(N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
