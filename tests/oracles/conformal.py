"""Rules on calibration scores that the papers write as thresholds; the library compares ranks instead."""

import torch
from torch import Tensor

from candidly import conformal


def cumulative(scores: Tensor, counts: Tensor, p: Tensor) -> Tensor:
    """Return the empirical distribution function of each run's scores at p (R, ...), as UAI's Algorithm 1 has it."""
    return conformal.ranks(scores, p).to(p.dtype) / counts.to(p.dtype).view(-1, *[1] * (p.ndim - 1))


def threshold(scores: Tensor, counts: Tensor, alpha: Tensor, finite: bool = True) -> Tensor:
    """Return the smallest p that is kept at level alpha (R,), found as the conformal cleaner finds it."""
    shares = conformal.p_values_by_rank(scores.shape[-1], counts, alpha.dtype, finite)
    removed = torch.searchsorted(shares, alpha[:, None], right=True)
    return conformal.with_ends(scores).gather(1, removed).squeeze(1)
