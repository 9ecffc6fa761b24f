"""Conformity scores of rows with candidate sets, as pure tensor functions.

Conformity scores are probabilities, or `aps` of them: the larger, the better a label conforms. Everywhere `scores`
(R, M) are the calibration rows' scores in ascending order, padded with +inf, and `counts` (R,) is the number of scores
before the padding. "UAI" is Fuchs and Kalinke, *Partial-Label Learning with Conformal Candidate Cleaning*, UAI 2025. On
calibration with candidate sets see also A. Javanmardi et al., *Conformal Prediction with Partially Labeled Data*, COPA
2023.
"""

import torch
from torch import Tensor

from candidly.checks.tensors import takes_tensors


@takes_tensors
def best(p: Tensor, S: Tensor) -> Tensor:
    """Return the probability of each row's most probable candidate, ``max_{j∈S} p_j`` (UAI, Algorithm 1).

    There is no guarantee: if that candidate is not the true label, the score is too high and sets are too small.
    """
    return p.masked_fill(~S, -torch.inf).amax(-1)


@takes_tensors
def worst(p: Tensor, S: Tensor) -> Tensor:
    """Return the probability of each row's least probable candidate, ``min_{j∈S} p_j``.

    The true label is never less probable, so sets calibrated on this score cover the true label with probability at
    least 1 − α, given y ∈ S, exchangeable held-out rows, and the finite-sample rule (`p_values`).
    """
    return p.masked_fill(~S, torch.inf).amin(-1)


@takes_tensors
def mean(p: Tensor, S: Tensor) -> Tensor:
    """Return the mean probability of each row's candidates; without a guarantee, like `best`."""
    return p.masked_fill(~S, 0).sum(-1) / S.sum(-1)


@takes_tensors
def singletons(p: Tensor, S: Tensor) -> Tensor:
    """Return the probability of each row's only candidate; +inf, which is not a score, if it has several.

    Sets cover the true label with probability 1 − α if the only candidate is the true label and if rows with one
    candidate are exchangeable with all rows: the number of candidates must not depend on how hard a row is. Usually
    easy rows have fewer candidates, and then sets are too small.

    Examples
    --------
    >>> singletons(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([[True, False], [True, True]]))
    tensor([0.9000,    inf])
    """
    return best(p, S).masked_fill(S.sum(-1) != 1, torch.inf)


@takes_tensors
def pooled(p: Tensor, S: Tensor) -> Tensor:
    """Return every candidate's probability as a separate score, (..., N, C); +inf, which is not a score, elsewhere.

    A level α is then a fraction of candidates, not of rows. One of a row's scores is the true label's, so sets cover it
    with probability at least 1 − α·c if no row has more than c candidates, y ∈ S, and rows are exchangeable and held
    out: a label is removed if at most α·(m·c + 1) − 1 scores are as low, hence no more of the m true ones. Usually
    wrong candidates are less probable, and sets cover more.

    Examples
    --------
    >>> pooled(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([[True, False], [True, True]]))
    tensor([[0.9000,    inf],
            [0.4000, 0.6000]])
    """
    return p.masked_fill(~S, torch.inf)


@takes_tensors
def aps(p: Tensor, u: Tensor) -> Tensor:
    """Return adaptive scores of labels, ``1 − (Σ_{k: p_k > p_j} p_k + u·Σ_{k: p_k = p_j} p_k)``, (..., C).

    The randomised score of Y. Romano, M. Sesia and E. J. Candès, *Classification with Valid and Adaptive Coverage*,
    NeurIPS 2020, as a conformity. Hard rows get larger sets than with the probability itself (LAC), easy rows smaller
    ones. Labels of equal probability share one score, for which their mass counts as that of one label. So the score
    does not depend on the order of classes, and if p is correct, the true label's score is uniform on (0, 1), even with
    ties. The code computes the mass below instead, which is equal for probabilities and keeps the digits of small ones.

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


@takes_tensors
def sort_scores(scores: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Return each run's sorted scores, with +inf in place of those not `valid`, and the number of valid ones."""
    return scores.masked_fill(~valid, torch.inf).sort(-1).values, valid.sum(-1)


@takes_tensors
def off_candidate_mass(p: Tensor, S: Tensor) -> Tensor:
    """Return the probability outside the candidate set, ``Σ_{j∉S} p_j``: UAI's estimate of a row's error."""
    return p.masked_fill(S, 0).sum(-1)
