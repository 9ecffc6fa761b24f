"""P-values of labels against sorted calibration scores.

Everywhere `scores` (R, M) are the conformity scores of calibration rows, one line per run or fold, ascending and
padded with +inf. `counts` (R,) says how many scores each line has before the padding, m in the formulas. `conformity`
(R, ..., C) are the scores of new labels, written c_ij: the larger, the better a label conforms. "UAI" is Fuchs and
Kalinke, *Partial-Label Learning with Conformal Candidate Cleaning*, UAI 2025.
"""

import math

import torch
from torch import Tensor

from candidly.checks.arguments import fraction, real
from candidly.checks.tensors import takes_tensors


@takes_tensors
def ranks(scores: Tensor, conformity: Tensor) -> Tensor:
    """Return for each label the number of calibration scores that are at most its own."""
    return torch.searchsorted(scores, conformity.flatten(1).contiguous(), right=True).view_as(conformity)


@takes_tensors
def p_values(scores: Tensor, counts: Tensor, conformity: Tensor) -> Tensor:
    """Return conformal p-values, ``(1 + #{v : s_v ≤ c_ij}) / (m + 1)``.

    The set of labels with a p-value above α contains the true label with probability at least 1 − α if the new rows
    and the calibration rows are exchangeable and the scores are those of true labels. From candidate sets alone, the
    true label's score is known only for rows with a single candidate; `candidly.conformal.worst` bounds it for others.

    Examples
    --------
    >>> p_values(torch.tensor([[0.2, 0.5, 0.7]]), torch.tensor([3]), torch.tensor([[0.1, 0.5, 0.9]]))
    tensor([[0.2500, 0.7500, 1.0000]])
    """
    return (1 + ranks(scores, conformity)).to(conformity.dtype) / (1 + _per_run(counts, conformity))


@takes_tensors
def cross_p_values(scores: Tensor, counts: Tensor, conformity: Tensor) -> Tensor:
    """Return cross-conformal p-values, ``(1 + Σ_k #{v∈k : s_v ≤ c_kij}) / (1 + Σ_k m_k)``, (n, C) in float64.

    Fold k's networks were not trained on the rows of fold k. These networks score both the fold's rows and the new
    rows: `conformity` is (K, n, C). With one fold these are `p_values`, with the same guarantee. With more, the set of
    labels above α contains the true label with probability at least 1 − 2α − 2(K − 1)/(m + K), for m rows in total,
    and about 1 − α in practice:
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
    return (1 + ranks(scores, conformity).sum(0)).double() / (1 + counts.sum())


@takes_tensors
def smoothed_p_values(scores: Tensor, counts: Tensor, conformity: Tensor, u: Tensor) -> Tensor:
    """Return smoothed p-values, ``(Σ_k #{v∈k : s_v < c_kij} + u·(1 + Σ_k #{v∈k : s_v = c_kij})) / (1 + Σ_k m_k)``.

    They are (n, C) in float64, like `cross_p_values`, from which they differ in that ties, and the new row itself,
    count u instead of 1. With one fold and u independent of all scores, the p-value of a true label is uniform on
    (0, 1), so the set of labels above α contains the true label with probability exactly 1 − α (V. Vovk, A. Gammerman
    and G. Shafer, *Algorithmic Learning in a Random World*, 2005), under the conditions of `p_values`. With more folds
    the bound of `cross_p_values` holds.

    Parameters
    ----------
    scores, counts, conformity : Tensor
        As in `cross_p_values`.
    u : Tensor
        Uniform on [0, 1); of shape (n, 1), or another that broadcasts to (n, C).

    Examples
    --------
    >>> scores, counts = torch.tensor([[0.2, 0.5, 0.5]]), torch.tensor([3])
    >>> smoothed_p_values(scores, counts, torch.tensor([[[0.1, 0.5]]]), torch.tensor([[0.5]]))
    tensor([[0.1250, 0.6250]], dtype=torch.float64)
    """
    below = torch.searchsorted(scores, conformity.flatten(1).contiguous()).view_as(conformity).sum(0)
    tied = ranks(scores, conformity).sum(0) - below
    return (below + u.double() * (1 + tied)) / (1 + counts.sum())


@takes_tensors
def p_values_by_rank(most: int, counts: Tensor, dtype: torch.dtype, finite: bool = True) -> Tensor:
    """Return the p-values of ranks 0 … most, (R, most + 1), by the arithmetic of `p_values`.

    Without the finite-sample correction (`finite=False`) they are ``rank / m``, the empirical distribution function F̂
    of the scores. ``F̂(c) > α`` is equivalent to ``c ≥ t`` with t = sup{t : F̂(t) ≤ α}, the threshold of UAI's
    Algorithm 1: t is the (⌊αm⌋+1)-th smallest score. That rule has no finite-sample guarantee: with m = 20 and α = .05
    its sets contain the true label with probability .905 instead of .95.
    """
    rank = torch.arange(most + 1, device=counts.device, dtype=dtype)
    total = counts.to(dtype)[:, None]
    return (rank + 1) / (total + 1) if finite else rank / total


@takes_tensors
def with_ends(scores: Tensor) -> Tensor:
    """Return -inf, the scores, +inf: entry k is the smallest conformity that is kept if ranks 0 … k − 1 are removed."""
    ends = torch.full_like(scores[:, :1], torch.inf)
    return torch.cat([-ends, scores, ends], -1)


@takes_tensors
def remark_level(alpha: float, error: Tensor, m: Tensor, delta: float = 0.05, dkw: bool = True) -> Tensor:
    """Return the level of the Remark in UAI, ``α'' = α − error − sqrt(log(2/δ) / (2m))``.

    It lowers α by the classifier's estimated error and by the sampling error of m calibration rows, the bound of
    Dvoretzky, Kiefer and Wolfowitz with probability 1 − δ (δ_4 in UAI), which ``dkw=False`` leaves out. Where the level
    is not positive, all labels are kept.
    """
    alpha, delta = real("alpha", alpha), fraction("delta", delta)
    return alpha - error - (math.log(2 / delta) / (2 * m)).sqrt() * float(dkw)


def _per_run(counts: Tensor, like: Tensor) -> Tensor:
    """Return the counts in a shape that broadcasts against (R, ..., C)."""
    return counts.to(like.dtype).view(-1, *[1] * (like.ndim - 1))
