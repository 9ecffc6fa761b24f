"""P-values of labels against sorted calibration scores, and the levels and thresholds that follow."""

import math

import torch
from torch import Tensor


def ranks(scores: Tensor, p: Tensor) -> Tensor:
    """Count the calibration scores that are at most p: for each entry of p (R, ..., C) a number in 0 … counts."""
    return torch.searchsorted(scores, p.flatten(1).contiguous(), right=True).view_as(p)


def p_values(scores: Tensor, counts: Tensor, p: Tensor) -> Tensor:
    """Conformal p-values, ``(1 + #{v : s_v ≤ p_ij}) / (m + 1)``.

    Keeping the labels with a p-value above α covers with probability at least 1 − α when the scored rows and the
    calibration rows are exchangeable and the scores are those of true labels.

    Examples
    --------
    >>> p_values(torch.tensor([[0.2, 0.5, 0.7]]), torch.tensor([3]), torch.tensor([[0.1, 0.5, 0.9]]))
    tensor([[0.2500, 0.7500, 1.0000]])
    """
    return (1 + ranks(scores, p)).to(p.dtype) / (1 + _per_run(counts, p))


def cross_p_values(scores: Tensor, counts: Tensor, p: Tensor) -> Tensor:
    """Cross-conformal p-values of new rows, ``(1 + Σ_k #{v∈k : s_v ≤ p_kij}) / (1 + Σ_k m_k)``, (n, C) in float64.

    Fold k's rows did not train the networks that scored them and give the probabilities p_k (p is (K, n, C)). With one
    fold these are `p_values`, and the same is guaranteed. With more, keeping the labels above α covers with probability
    at least 1 − 2α − 2(K − 1)/(m + K) for m rows in all, and about 1 − α in practice: each fold's own p-value is one,
    and twice a mean of p-values is one as well (V. Vovk, *Cross-conformal predictors*, Annals of Mathematics and
    Artificial Intelligence 74, 2015; V. Vovk and R. Wang, *Combining p-values via averaging*, Biometrika 107, 2020;
    the same sets are CV+ in R. F. Barber et al., *Predictive inference with the jackknife+*, Annals of Statistics 49,
    2021).

    Examples
    --------
    >>> scores, counts = torch.tensor([[0.2, 0.5], [0.3, 0.9]]), torch.tensor([2, 2])
    >>> cross_p_values(scores, counts, torch.tensor([[[0.1, 0.6]], [[0.3, 0.7]]]))
    tensor([[0.4000, 0.8000]], dtype=torch.float64)
    """
    return (1 + ranks(scores, p).sum(0)).double() / (1 + counts.sum())


def smoothed_p_values(scores: Tensor, counts: Tensor, p: Tensor, u: Tensor) -> Tensor:
    """Smoothed p-values, ``(#{v : s_v < p_ij} + u·(1 + #{v : s_v = p_ij})) / (m + 1)``, summed over folds, (n, C).

    In float64, like `cross_p_values`, from which they differ by what ties with p_ij. With one fold and u independent
    of all scores, the p-value of a true label is uniform on (0, 1), so that keeping the labels above α covers with
    probability 1 − α, neither less nor more (V. Vovk, A. Gammerman and G. Shafer, *Algorithmic Learning in a Random
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


def cumulative(scores: Tensor, counts: Tensor, p: Tensor) -> Tensor:
    """Empirical distribution function of the scores at p, ``F̂(p) = #{v : s_v ≤ p_ij} / m``.

    ``F̂(p) > α`` says the same as ``p ≥ t`` with t = sup{t : F̂(t) ≤ α}, the threshold of UAI's Algorithm 1: t is the
    (⌊αm⌋+1)-th smallest score. It has no finite-sample guarantee: with m = 20 and α = .05 it covers .905.
    """
    return ranks(scores, p).to(p.dtype) / _per_run(counts, p)


def threshold(scores: Tensor, counts: Tensor, alpha: Tensor, finite: bool = True) -> Tensor:
    """Return the smallest p that is kept at level `alpha` (R,).

    ``finite`` follows `p_values`: the ⌊α(m+1)⌋-th smallest score, -inf (keep everything) where that is the 0-th.
    Otherwise it follows `cumulative`: the (⌊αm⌋+1)-th. In both, +inf where there are not that many scores.

    Examples
    --------
    >>> scores, counts = torch.tensor([[0.2, 0.5, 0.7]]), torch.tensor([3])
    >>> threshold(scores, counts, torch.tensor([0.5])), threshold(scores, counts, torch.tensor([0.5]), finite=False)
    (tensor([0.5000]), tensor([0.5000]))
    """
    kept = shares(scores.shape[-1], counts, alpha.dtype, finite) > alpha[:, None]
    return with_ends(scores).gather(-1, (~kept).sum(-1, keepdim=True)).squeeze(-1)


def shares(m: int, counts: Tensor, dtype: torch.dtype, finite: bool = True) -> Tensor:
    """Return what `p_values` (`cumulative` unless `finite`) is at ranks 0 … m, by the same arithmetic: (R, m + 1)."""
    rank = torch.arange(m + 1, device=counts.device, dtype=dtype)
    total = counts.to(dtype)[:, None]
    return (rank + 1) / (total + 1) if finite else rank / total


def with_ends(scores: Tensor) -> Tensor:
    """Put -inf before and +inf after the scores: the smallest p that is kept when so many ranks are not."""
    ends = torch.full_like(scores[:, :1], torch.inf)
    return torch.cat([-ends, scores, ends], -1)


def remark_level(alpha: float, error: Tensor, m: Tensor, delta: float = 0.05, dkw: bool = True) -> Tensor:
    """UAI's Remark: the level ``α'' = α − error − sqrt(log(2/δ_4) / (2m))``; where it is not positive keep all labels.

    The last term is the Dvoretzky-Kiefer-Wolfowitz bound on the calibration rows, left out when `dkw` is false.
    """
    return alpha - error - (math.log(2 / delta) / (2 * m)).sqrt() * float(dkw)


def _per_run(counts: Tensor, p: Tensor) -> Tensor:
    return counts.to(p.dtype).view(-1, *[1] * (p.ndim - 1))
