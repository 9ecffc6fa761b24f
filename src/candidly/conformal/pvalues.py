"""P-values of labels against sorted calibration scores."""

import math

import torch
from torch import Tensor


def ranks(scores: Tensor, p: Tensor) -> Tensor:
    """Return the number of calibration scores that are at most p, for each entry of p (R, ..., C)."""
    return torch.searchsorted(scores, p.flatten(1).contiguous(), right=True).view_as(p)


def p_values(scores: Tensor, counts: Tensor, p: Tensor) -> Tensor:
    """Return conformal p-values, ``(1 + #{v : s_v ≤ p_ij}) / (m + 1)``.

    Keeping the labels with a p-value above α covers the true label with probability at least 1 − α if the scored rows
    and the calibration rows are exchangeable and the scores are those of true labels.

    Examples
    --------
    >>> p_values(torch.tensor([[0.2, 0.5, 0.7]]), torch.tensor([3]), torch.tensor([[0.1, 0.5, 0.9]]))
    tensor([[0.2500, 0.7500, 1.0000]])
    """
    return (1 + ranks(scores, p)).to(p.dtype) / (1 + _per_run(counts, p))


def cross_p_values(scores: Tensor, counts: Tensor, p: Tensor) -> Tensor:
    """Return cross-conformal p-values, ``(1 + Σ_k #{v∈k : s_v ≤ p_kij}) / (1 + Σ_k m_k)``, (n, C) in float64.

    Fold k's networks were not trained on the fold's rows. They give the fold's scores and the probabilities p_k of new
    rows (p is (K, n, C)). With one fold these are `p_values`, with the same guarantee. With more, keeping the labels
    above α covers with probability at least 1 − 2α − 2(K − 1)/(m + K) for m rows in total, and about 1 − α in practice:
    each fold's p-value is a p-value, and twice a mean of p-values is one as well (V. Vovk, *Cross-conformal
    predictors*, Annals of Mathematics and Artificial Intelligence 74, 2015; V. Vovk and R. Wang, *Combining p-values
    via averaging*, Biometrika 107, 2020; the same sets are CV+ in R. F. Barber et al., *Predictive inference with the
    jackknife+*, Annals of Statistics 49, 2021).

    Examples
    --------
    >>> scores, counts = torch.tensor([[0.2, 0.5], [0.3, 0.9]]), torch.tensor([2, 2])
    >>> cross_p_values(scores, counts, torch.tensor([[[0.1, 0.6]], [[0.3, 0.7]]]))
    tensor([[0.4000, 0.8000]], dtype=torch.float64)
    """
    return (1 + ranks(scores, p).sum(0)).double() / (1 + counts.sum())


def smoothed_p_values(scores: Tensor, counts: Tensor, p: Tensor, u: Tensor) -> Tensor:
    """Return ``(#{v : s_v < p_ij} + u·(1 + #{v : s_v = p_ij})) / (m + 1)``, smoothed p-values over all folds, (n, C).

    In float64, like `cross_p_values`, from which they differ by the scores that tie with p_ij. With one fold and u
    independent of all scores, the p-value of a true label is uniform on (0, 1), so keeping the labels above α covers
    with probability exactly 1 − α (V. Vovk, A. Gammerman and G. Shafer, *Algorithmic Learning in a Random
    World*, 2005), under the conditions of `p_values`. With more folds the bound of `cross_p_values` holds.

    Parameters
    ----------
    scores, counts, p : Tensor
        As in `cross_p_values`.
    u : Tensor
        Uniform on [0, 1); of shape (n, 1), or another that broadcasts to (n, C).

    Examples
    --------
    >>> scores, counts = torch.tensor([[0.2, 0.5, 0.5]]), torch.tensor([3])
    >>> smoothed_p_values(scores, counts, torch.tensor([[[0.1, 0.5]]]), torch.tensor([[0.5]]))
    tensor([[0.1250, 0.6250]], dtype=torch.float64)
    """
    below = torch.searchsorted(scores, p.flatten(1).contiguous()).view_as(p).sum(0)
    tied = ranks(scores, p).sum(0) - below
    return (below + u.double() * (1 + tied)) / (1 + counts.sum())


def shares(m: int, counts: Tensor, dtype: torch.dtype, finite: bool = True) -> Tensor:
    """Return the p-values of ranks 0 … m, (R, m + 1), by the arithmetic of `p_values`.

    Unless `finite`, they are ``rank / m``, the empirical distribution function F̂ of the scores. ``F̂(p) > α`` is
    equivalent to ``p ≥ t`` with t = sup{t : F̂(t) ≤ α}, the threshold of UAI's Algorithm 1: t is the (⌊αm⌋+1)-th
    smallest score. That rule has no finite-sample guarantee: with m = 20 and α = .05 it covers .905.
    """
    rank = torch.arange(m + 1, device=counts.device, dtype=dtype)
    total = counts.to(dtype)[:, None]
    return (rank + 1) / (total + 1) if finite else rank / total


def with_ends(scores: Tensor) -> Tensor:
    """Return the scores between -inf and +inf: entry k is the smallest p that is kept if k ranks are not."""
    ends = torch.full_like(scores[:, :1], torch.inf)
    return torch.cat([-ends, scores, ends], -1)


def remark_level(alpha: float, error: Tensor, m: Tensor, delta: float = 0.05, dkw: bool = True) -> Tensor:
    """Return the level of UAI's Remark, ``α'' = α − error − sqrt(log(2/δ_4) / (2m))``.

    If it is not positive, all labels are kept. The last term is the Dvoretzky-Kiefer-Wolfowitz bound on the calibration
    rows, omitted unless `dkw`.
    """
    return alpha - error - (math.log(2 / delta) / (2 * m)).sqrt() * float(dkw)


def _per_run(counts: Tensor, p: Tensor) -> Tensor:
    return counts.to(p.dtype).view(-1, *[1] * (p.ndim - 1))
