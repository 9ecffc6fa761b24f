"""Conformal prediction on candidate sets, as pure tensor functions.

Conformity scores are probabilities, or `aps` of them: a label conforms the better the larger its score. Everywhere
`scores` (R, M) are the calibration rows' scores in ascending order, padded with +inf, and `counts` (R,) says how many
of them are real. "UAI" is Fuchs and Kalinke, *Partial-Label Learning with Conformal Candidate Cleaning*, UAI 2025. On
calibration with candidate sets see also A. Javanmardi et al., *Conformal Prediction with Partially Labeled Data*, COPA
2023.
"""

import torch
from torch import Tensor


def best(p: Tensor, S: Tensor) -> Tensor:
    """Score a row by its most probable candidate, ``max_{j∈S} p_j`` (UAI, Algorithm 1).

    There is no guarantee: where that candidate is not the true label, the score is too high and sets are too small.
    """
    return p.masked_fill(~S, -torch.inf).amax(-1)


def worst(p: Tensor, S: Tensor) -> Tensor:
    """Score a row by its least probable candidate, ``min_{j∈S} p_j``.

    The true label is never less probable than that, so sets calibrated on it cover the true label at least as often as
    the level says, given y ∈ S, exchangeable rows that did not train, and the finite-sample rule (`p_values`).
    """
    return p.masked_fill(~S, torch.inf).amin(-1)


def mean(p: Tensor, S: Tensor) -> Tensor:
    """Score a row by the mean probability of its candidates; there is no guarantee, as with `best`."""
    return p.masked_fill(~S, 0).sum(-1) / S.sum(-1)


def singletons(p: Tensor, S: Tensor) -> Tensor:
    """Score a row by its only candidate; +inf, which is no score, where it has several.

    Sets cover the true label as often as the level says if that candidate is the true label and if the rows with one
    candidate are exchangeable with all rows: how many candidates a row has must say nothing about it. As a rule easy
    rows have fewer, and then sets are too small.

    Examples
    --------
    >>> singletons(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([[True, False], [True, True]]))
    tensor([0.9000,    inf])
    """
    return best(p, S).masked_fill(S.sum(-1) != 1, torch.inf)


def pooled(p: Tensor, S: Tensor) -> Tensor:
    """Let each candidate's probability be a score of its own, (..., N, C); +inf, which is no score, elsewhere.

    A level of α is then a share of candidates, not of rows. Of a row's c scores one is the true label's, so that sets
    cover it with probability at least 1 − α·c where no row has more than c candidates, y ∈ S, and rows are exchangeable
    and did not train: a label goes where at most α·(m·c + 1) − 1 scores are as low, hence no more of the m true ones.
    As a rule the wrong candidates are the less probable ones, and sets cover more.

    Examples
    --------
    >>> pooled(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([[True, False], [True, True]]))
    tensor([[0.9000,    inf],
            [0.4000, 0.6000]])
    """
    return p.masked_fill(~S, torch.inf)


def aps(p: Tensor, u: Tensor) -> Tensor:
    """Score labels for adaptive prediction sets, ``1 − (Σ_{k: p_k > p_j} p_k + u·Σ_{k: p_k = p_j} p_k)``, (..., C).

    The randomised score of Y. Romano, M. Sesia and E. J. Candès, *Classification with Valid and Adaptive Coverage*,
    NeurIPS 2020, as a conformity. Hard rows get larger sets than with the probability itself (LAC), easy rows smaller
    ones. Labels of equal probability share one score, for which their mass counts as that of one label: it depends on
    no order of the classes, and where p is the truth the true label's score is uniform on (0, 1), ties or not. What is
    computed is the mass below, which for probabilities is the same and does not round small ones away.

    Parameters
    ----------
    p : Tensor, shape (..., N, C)
        Probabilities.
    u : Tensor, shape (N,)
        Uniform on [0, 1), one per row.

    Examples
    --------
    >>> aps(torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([0.5]))
    tensor([[0.7500, 0.2500, 0.2500]])
    """
    p = p.contiguous()
    ordered = p.sort(-1).values
    mass = torch.nn.functional.pad(ordered.cumsum(-1), (1, 0))
    below = mass.gather(-1, torch.searchsorted(ordered, p))
    upto = mass.gather(-1, torch.searchsorted(ordered, p, right=True))
    return below + (1 - u.to(p.dtype)).unsqueeze(-1) * (upto - below)


def sort_scores(scores: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Sort each run's scores, with +inf in place of those not `valid`, and count the valid ones."""
    return scores.masked_fill(~valid, torch.inf).sort(-1).values, valid.sum(-1)


def off_candidate_mass(p: Tensor, S: Tensor) -> Tensor:
    """Probability outside the candidate set, ``Σ_{j∉S} p_j``: UAI's estimate of the classifier's error on a row."""
    return p.masked_fill(S, 0).sum(-1)
