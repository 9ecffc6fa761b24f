"""Conformal prediction on candidate sets, as pure tensor functions.

Conformity scores are probabilities: a label conforms the better the larger its p. Everywhere `scores` (R, M) are the
calibration rows' scores in ascending order, padded with +inf, and `counts` (R,) says how many of them are real.
"UAI" is Fuchs and Kalinke, *Partial-Label Learning with Conformal Candidate Cleaning*, UAI 2025.
"""

import math

import torch
from torch import Tensor


def best(p: Tensor, S: Tensor) -> Tensor:
    """Score a row by its most probable candidate, ``max_{j∈S} p_j`` (UAI, Algorithm 1)."""
    return p.masked_fill(~S, -torch.inf).amax(-1)


def worst(p: Tensor, S: Tensor) -> Tensor:
    """Score a row by its least probable candidate, ``min_{j∈S} p_j``.

    The true label is never less probable than that, so sets calibrated on it cover the true label at least as often as
    the level says, given y ∈ S, exchangeable rows that did not train, and the finite-sample rule (`p_values`).
    """
    return p.masked_fill(~S, torch.inf).amin(-1)


def mean(p: Tensor, S: Tensor) -> Tensor:
    """Score a row by the mean probability of its candidates."""
    return p.masked_fill(~S, 0).sum(-1) / S.sum(-1)


def sort_scores(scores: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Sort each run's scores, with +inf in place of those not `valid`, and count the valid ones."""
    return scores.masked_fill(~valid, torch.inf).sort(-1).values, valid.sum(-1)


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
    """Cross-conformal p-values of new rows, ``(1 + Σ_k #{v∈k : s_v ≤ p_kij}) / (1 + Σ_k m_k)``, (n, C).

    Fold k's rows did not train the networks that scored them and give the probabilities p_k (p is (K, n, C)). With one
    fold these are `p_values`, and the same is guaranteed. With more, keeping the labels above α covers with probability
    at least 1 − 2α, less a term that vanishes as folds grow (V. Vovk, *Cross-conformal predictors*, Annals of
    Mathematics and Artificial Intelligence 74, 2015; R. F. Barber et al., *Predictive inference with the jackknife+*,
    Annals of Statistics 49, 2021), and about 1 − α in practice.

    Examples
    --------
    >>> scores, counts = torch.tensor([[0.2, 0.5], [0.3, 0.9]]), torch.tensor([2, 2])
    >>> cross_p_values(scores, counts, torch.tensor([[[0.1, 0.6]], [[0.3, 0.7]]]))
    tensor([[0.4000, 0.8000]])
    """
    return (1 + ranks(scores, p).sum(0)).to(p.dtype) / (1 + counts.sum())


def own_p_values(scores: Tensor, p: Tensor, own: Tensor, member: Tensor) -> Tensor:
    """P-values of the rows of one fold, (n, C), each against the fold's other rows.

    Parameters
    ----------
    scores : Tensor, shape (m,)
        The fold's calibration scores, ascending.
    p : Tensor, shape (n, C)
        Probabilities of the rows.
    own : Tensor, shape (n,)
        Score of each row.
    member : Tensor of bool, shape (n,)
        Whether it is among the calibration scores; there it does not count.

    Examples
    --------
    >>> scores, p = torch.tensor([0.5, 0.7, 0.8]), torch.tensor([[0.7, 0.3]])
    >>> own_p_values(scores, p, torch.tensor([0.7]), torch.tensor([True]))
    tensor([[0.6667, 0.3333]])
    """
    itself = member[:, None] & (own[:, None] <= p)
    rank = ranks(scores[None], p[None])[0] - itself.long()
    return (1 + rank).to(p.dtype) / (1 + len(scores) - member.to(p.dtype)[:, None])


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


def off_candidate_mass(p: Tensor, S: Tensor) -> Tensor:
    """Probability outside the candidate set, ``Σ_{j∉S} p_j``: UAI's estimate of the classifier's error on a row."""
    return p.masked_fill(S, 0).sum(-1)


def remark_level(alpha: float, error: Tensor, m: Tensor, delta: float = 0.05, dkw: bool = True) -> Tensor:
    """UAI's Remark: the level ``α'' = α − error − sqrt(log(2/δ_4) / (2m))``; where it is not positive keep all labels.

    The last term is the Dvoretzky-Kiefer-Wolfowitz bound on the calibration rows, left out when `dkw` is false.
    """
    return alpha - error - (math.log(2 / delta) / (2 * m)).sqrt() * float(dkw)


def prediction_sets(scores: Tensor, counts: Tensor, p: Tensor, alpha: float | Tensor) -> Tensor:
    """Labels whose p-value exceeds α: split-conformal prediction sets with the score 1 − p (LAC)."""
    return p_values(scores, counts, p) > torch.as_tensor(alpha, dtype=p.dtype, device=p.device)


def _per_run(counts: Tensor, p: Tensor) -> Tensor:
    return counts.to(p.dtype).view(-1, *[1] * (p.ndim - 1))
