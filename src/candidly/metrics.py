"""Metrics of predictions, prediction sets and cleaned candidate sets. Every such formula lives here.

All functions take tensors whose last axes are rows and classes, (..., N, C), with any leading axes, such as runs;
labels are (..., N). Leading axes broadcast, so one S (N, C) or y (N,) serves all runs. A per-row function returns
(..., N). All others return one number per run, or a 0-dimensional tensor when there is no leading axis. A label outside
0 … C−1, such as -1 for "unknown" or the number of a class unseen in training, is never predicted and is in no set.
"""

import torch
from torch import Tensor

from candidly.checks.arguments import integer, real
from candidly.checks.tensors import takes_tensors

__all__ = [
    "accuracy",
    "approximated_accuracy",
    "aurc",
    "calibration_error",
    "candidate_confidence",
    "contains",
    "coverage",
    "coverage_curve",
    "covered",
    "covering_rate",
    "pruning_coverage",
    "pruning_error",
    "pruning_f",
    "risk_coverage",
    "set_size",
    "true_kept",
    "true_lost",
    "wrong_removed",
]


@takes_tensors
def contains(sets: Tensor, labels: Tensor) -> Tensor:
    """Return for each row whether its set contains its label; unlike `torch.gather`, this broadcasts.

    Parameters
    ----------
    sets : Tensor of bool, shape (..., N, C)
        Prediction sets or candidates.
    labels : Tensor of int, shape (..., N)
        One class per row, true or predicted.

    Returns
    -------
    Tensor of bool, shape (..., N)

    Examples
    --------
    >>> contains(torch.tensor([[True, False], [True, False]]), torch.tensor([0, 1]))
    tensor([ True, False])
    """
    _check_labels(sets, labels)
    return (sets & (labels.unsqueeze(-1) == torch.arange(sets.shape[-1], device=sets.device))).any(dim=-1)


@takes_tensors
def covered(p: Tensor, S: Tensor) -> Tensor:
    """Return for each row whether its most probable class is a candidate.

    Parameters
    ----------
    p : Tensor, shape (..., N, C)
        Probabilities.
    S : Tensor of bool, shape (..., N, C)
        Candidates.

    Returns
    -------
    Tensor of bool, shape (..., N)

    Examples
    --------
    >>> p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    >>> covered(p, torch.tensor([[True, True, False], [True, True, False]]))
    tensor([ True, False])
    """
    return contains(S, p.argmax(dim=-1))


@takes_tensors
def candidate_confidence(p: Tensor, S: Tensor) -> Tensor:
    """Return for each row norm_S(p) at its most probable class; 0 where that class is not a candidate.

    norm_S(p)_j = S_j p_j / Σ_k S_k p_k is p, renormalised on the candidates.

    Parameters
    ----------
    p : Tensor, shape (..., N, C)
        Probabilities.
    S : Tensor of bool, shape (..., N, C)
        Candidates.

    Returns
    -------
    Tensor, shape (..., N)

    Examples
    --------
    >>> p = torch.tensor([[0.6, 0.2, 0.2], [0.1, 0.3, 0.6]])
    >>> candidate_confidence(p, torch.tensor([[True, True, False], [True, True, False]]))
    tensor([0.7500, 0.0000])
    """
    p = _at_least_single(p)
    top, best = p.max(dim=-1)
    inside = contains(S, best)
    # All candidates can underflow to 0, but then the best class is not a candidate: divide by 1 there instead of by 0.
    mass = torch.where(inside, (p * S).sum(dim=-1), 1)
    return torch.where(inside, top / mass, 0)


@takes_tensors
def accuracy(p: Tensor, y: Tensor) -> Tensor:
    """Return the fraction of rows whose most probable class is the true one.

    Parameters
    ----------
    p : Tensor, shape (..., N, C)
        Probabilities, or logits: only their order counts.
    y : Tensor of int, shape (..., N)
        True labels.

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> p = torch.tensor([[0.9, 0.1], [0.4, 0.6]])
    >>> accuracy(p, torch.tensor([0, 0]))
    tensor(0.5000)
    """
    _check_labels(p, y)
    return _mean(p.argmax(dim=-1) == y)


@takes_tensors
def covering_rate(p: Tensor, S: Tensor) -> Tensor:
    """Return the fraction of rows whose most probable class is a candidate (`covered`).

    The covering rate of Wang et al., ICLR 2025. It needs no true labels, so it can select a model on held-out rows.

    Parameters
    ----------
    p : Tensor, shape (..., N, C)
        Probabilities.
    S : Tensor of bool, shape (..., N, C)
        Candidates.

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    >>> S = torch.tensor([[True, True, False], [True, True, False]])
    >>> covering_rate(p, S)
    tensor(0.5000)
    """
    return _mean(covered(p, S))


@takes_tensors
def approximated_accuracy(p: Tensor, S: Tensor) -> Tensor:
    """Return the mean of `candidate_confidence` over the rows.

    The approximated accuracy of Wang et al., ICLR 2025: the mean of norm_S(p) at argmax p. It needs no true labels.

    Parameters
    ----------
    p : Tensor, shape (..., N, C)
        Probabilities.
    S : Tensor of bool, shape (..., N, C)
        Candidates.

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> p = torch.tensor([[0.6, 0.2, 0.2], [0.1, 0.3, 0.6]])
    >>> S = torch.tensor([[True, True, False], [True, True, False]])
    >>> approximated_accuracy(p, S)
    tensor(0.3750)
    """
    return candidate_confidence(p, S).mean(dim=-1)


@takes_tensors
def coverage(sets: Tensor, y: Tensor) -> Tensor:
    """Return the fraction of rows whose set contains the true label.

    Parameters
    ----------
    sets : Tensor of bool, shape (..., N, C)
        Prediction sets or candidates.
    y : Tensor of int, shape (..., N)
        True labels.

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> coverage(torch.tensor([[True, True], [True, False]]), torch.tensor([1, 1]))
    tensor(0.5000)
    """
    return _mean(contains(sets, y))


@takes_tensors
def set_size(sets: Tensor) -> Tensor:
    """Return the mean number of classes in a set.

    Parameters
    ----------
    sets : Tensor of bool, shape (..., N, C)
        Prediction sets or candidates.

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> set_size(torch.tensor([[True, True], [True, False]]))
    tensor(1.5000)
    """
    return _mean(sets.sum(dim=-1))


@takes_tensors
def coverage_curve(p_values: Tensor, y: Tensor, alphas: Tensor) -> tuple[Tensor, Tensor]:
    """Return the coverage and the mean size of prediction sets at several levels.

    Parameters
    ----------
    p_values : Tensor, shape (..., N, C)
        P-values; a set contains the classes whose p-value exceeds the level.
    y : Tensor of int, shape (..., N)
        True labels.
    alphas : Tensor, shape (A,)
        Levels.

    Returns
    -------
    coverage, size : Tensor, shape (..., A)

    Examples
    --------
    >>> p_values = torch.tensor([[0.9, 0.3], [0.6, 0.4]])
    >>> coverage_curve(p_values, torch.tensor([0, 1]), torch.tensor([0.2, 0.5]))
    (tensor([1.0000, 0.5000]), tensor([2., 1.]))
    """
    kept = [p_values > alpha for alpha in alphas.to(p_values.dtype)]
    return torch.stack([coverage(sets, y) for sets in kept], -1), torch.stack([set_size(sets) for sets in kept], -1)


@takes_tensors
def risk_coverage(confidence: Tensor, errors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the error rate among the accepted rows, for every threshold on the confidence.

    Rows are sorted by decreasing confidence. Rows of equal confidence are accepted together, so ties need no order.

    Parameters
    ----------
    confidence : Tensor, shape (..., N)
        Confidence of each prediction.
    errors : Tensor, shape (..., N)
        Whether the prediction is wrong, or the probability that it is.

    Returns
    -------
    threshold, coverage, risk : Tensor, shape (..., N)
        Each row's confidence, decreasing; the fraction of rows with at least that; the mean of their errors.

    Examples
    --------
    >>> risk_coverage(torch.tensor([0.6, 0.9, 0.9, 0.7]), torch.tensor([1.0, 0.0, 0.0, 1.0]))[1:]
    (tensor([0.5000, 0.5000, 0.7500, 1.0000]), tensor([0.0000, 0.0000, 0.3333, 0.5000]))
    """
    if confidence.shape[-1:] != errors.shape[-1:]:
        shapes = f"confidence has shape {tuple(confidence.shape)} and errors has shape {tuple(errors.shape)}"
        raise ValueError(f"{shapes}; they must have the same number of rows")
    threshold, order = confidence.sort(dim=-1, descending=True)
    total = _at_least_single(errors.to(threshold.dtype)).gather(-1, order).cumsum(-1)
    accepted = torch.searchsorted(-threshold, -threshold, right=True)
    risk = total.gather(-1, accepted - 1) / accepted
    return threshold, accepted.to(risk.dtype) / max(confidence.shape[-1], 1), risk


@takes_tensors
def aurc(confidence: Tensor, errors: Tensor) -> Tensor:
    """Return the area under the risk-coverage curve: the mean of its risks over the rows.

    Y. Geifman, G. Uziel and R. El-Yaniv, ICLR 2019. It is low when errors are few and have low confidence.

    Parameters
    ----------
    confidence, errors : Tensor, shape (..., N)
        As in `risk_coverage`.

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> aurc(torch.tensor([0.6, 0.9, 0.8, 0.7]), torch.tensor([1.0, 0.0, 0.0, 1.0]))
    tensor(0.2083)
    """
    return risk_coverage(confidence, errors)[2].mean(dim=-1)


@takes_tensors
def pruning_error(before: Tensor, after: Tensor, y: Tensor) -> Tensor:
    """Return the fraction of all rows whose true label was removed.

    See `true_lost` for the fraction of the rows that had it.

    Parameters
    ----------
    before, after : Tensor of bool, shape (..., N, C)
        Candidates before and after cleaning.
    y : Tensor of int, shape (..., N)
        True labels.

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> before = torch.tensor([[True, True], [True, True]])
    >>> after = torch.tensor([[True, False], [True, True]])
    >>> pruning_error(before, after, torch.tensor([1, 0]))
    tensor(0.5000)
    """
    return _mean(contains(before & ~after, y))


@takes_tensors
def pruning_coverage(before: Tensor, after: Tensor) -> Tensor:
    """Return the fraction of removable candidates that were removed: removed / Σ_i (|S_i| − 1), or 0 if there are none.

    Parameters
    ----------
    before, after : Tensor of bool, shape (..., N, C)
        Candidates before and after cleaning.

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> before = torch.tensor([[True, True, True], [True, True, False]])
    >>> after = torch.tensor([[True, False, False], [True, True, False]])
    >>> pruning_coverage(before, after)
    tensor(0.6667)
    """
    removed = (before & ~after).sum(dim=(-2, -1))
    removable = before.sum(dim=(-2, -1)) - before.shape[-2]
    return removed / removable.clamp(min=1)


@takes_tensors
def pruning_f(before: Tensor, after: Tensor, y: Tensor, beta: float = 0.5) -> Tensor:
    """Return the F-measure (1 + β²)·P·R / (β²·P + R) with P = 1 − pruning error and R = pruning coverage.

    The measure of He et al., ICLR 2024. With β = 0.5 a lost true label counts more than a wrong candidate that was
    kept. It is 0 where P and R are both 0.

    Parameters
    ----------
    before, after : Tensor of bool, shape (..., N, C)
        Candidates before and after cleaning.
    y : Tensor of int, shape (..., N)
        True labels.
    beta : float, default 0.5
        Weight of R relative to P; must be above 0.

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> before = torch.tensor([[True, True], [True, True]])
    >>> after = torch.tensor([[True, False], [True, True]])
    >>> pruning_f(before, after, torch.tensor([0, 0]))
    tensor(0.8333)
    """
    beta = real("beta", beta, above=0)
    P, R = 1 - pruning_error(before, after, y), pruning_coverage(before, after)
    below = beta**2 * P + R
    return (1 + beta**2) * P * R / torch.where(below > 0, below, 1)


@takes_tensors
def true_kept(before: Tensor, after: Tensor, y: Tensor) -> Tensor:
    """Return the fraction of true labels that cleaning kept.

    It is a fraction of the rows whose true label is known and was a candidate. Rows whose true label never was a
    candidate have nothing to keep or to lose, so neither they nor their candidates count, here and in `true_lost` and
    `wrong_removed`.

    Parameters
    ----------
    before, after : Tensor of bool, shape (..., N, C)
        Candidates before and after cleaning.
    y : Tensor of int, shape (..., N)
        True labels, -1 where unknown. To leave out rows, set their labels to -1.

    Returns
    -------
    Tensor of float64, shape (...)
        NaN where no row counts.

    Examples
    --------
    >>> before = torch.tensor([[True, True, False], [True, True, True], [True, True, False]])
    >>> after = torch.tensor([[True, False, False], [False, True, False], [True, False, False]])
    >>> true_kept(before, after, torch.tensor([0, 0, 2]))
    tensor(0.5000, dtype=torch.float64)
    """
    counted = contains(before, y)
    return _ratio(counted & contains(after, y), counted)


@takes_tensors
def true_lost(before: Tensor, after: Tensor, y: Tensor) -> Tensor:
    """Return the fraction of true labels that cleaning removed: 1 − `true_kept`, without its rounding.

    Parameters and result are those of `true_kept`.

    Examples
    --------
    >>> before = torch.tensor([[True, True], [True, True]])
    >>> after = torch.tensor([[True, False], [True, True]])
    >>> true_lost(before, after, torch.tensor([1, 0]))
    tensor(0.5000, dtype=torch.float64)
    """
    counted = contains(before, y)
    return _ratio(counted & contains(before & ~after, y), counted)


@takes_tensors
def wrong_removed(before: Tensor, after: Tensor, y: Tensor) -> Tensor:
    """Return the fraction of wrong candidates that cleaning removed, of the rows that count for `true_kept`.

    Parameters are those of `true_kept`.

    Returns
    -------
    Tensor of float64, shape (...)
        NaN where there are no wrong candidates.

    Examples
    --------
    >>> before = torch.tensor([[True, True, False], [True, True, True]])
    >>> after = torch.tensor([[True, False, False], [False, True, False]])
    >>> wrong_removed(before, after, torch.tensor([0, 0]))
    tensor(0.6667, dtype=torch.float64)
    """
    counted = contains(before, y).unsqueeze(-1)
    is_true = y.unsqueeze(-1) == torch.arange(before.shape[-1], device=before.device)
    wrong = before & ~is_true & counted
    return _ratio((wrong & ~after).flatten(-2), wrong.flatten(-2))


@takes_tensors
def calibration_error(p: Tensor, y: Tensor, bins: int = 15) -> Tensor:
    """Return the expected calibration error of the most probable class.

    Rows are put into equal-width bins ((b − 1)/B, b/B] by the probability of their most probable class; the error is
    Σ_b (n_b / N)·|accuracy in b − mean probability in b| (Guo et al., ICML 2017).

    Parameters
    ----------
    p : Tensor, shape (..., N, C)
        Probabilities.
    y : Tensor of int, shape (..., N)
        True labels.
    bins : int, default 15
        Number of bins B.

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> p = torch.tensor([[0.75, 0.25], [0.25, 0.75]])
    >>> calibration_error(p, torch.tensor([0, 0]))
    tensor(0.2500)
    """
    bins = integer("bins", bins, least=1)
    _check_labels(p, y)
    top, best = _at_least_single(p).max(dim=-1)
    index = ((top * bins).ceil() - 1).clamp(0, bins - 1)
    # A sum over a one-hot axis rather than scatter_add, which is not deterministic on CUDA.
    member = index.unsqueeze(-1) == torch.arange(bins, device=p.device)
    gap = (best == y).to(top.dtype) - top
    return (gap.unsqueeze(-1) * member).sum(dim=-2).abs().sum(dim=-1) / p.shape[-2]


def _check_labels(rows: Tensor, y: Tensor) -> None:
    """Raise ValueError for labels, such as a column (N, 1), that would silently broadcast against the rows."""
    if y.ndim == 0 or y.shape[-1] != rows.shape[-2]:
        raise ValueError(f"y has shape {tuple(y.shape)}, but the rows have shape {tuple(rows.shape)}; pass (..., N)")


def _mean(values: Tensor) -> Tensor:
    return values.float().mean(dim=-1)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Return the number of true entries in `part` over that in `whole`; 0/0 is NaN."""
    return part.sum(dim=-1) / whole.sum(dim=-1).double()


def _at_least_single(p: Tensor) -> Tensor:
    """Return p in single precision or better: half precision would round the sums over rows."""
    return p.to(torch.promote_types(p.dtype, torch.float32))
