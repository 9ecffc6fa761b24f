"""Probabilities of candidates at a temperature, and the temperature that makes candidate sets the most likely."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

_VALUES, _ROWS = 2**16, 2**10  # to compute at a time: so many values, or so many rows if that is more


def log(p: Tensor) -> Tensor:
    """Return the logarithm of probabilities, finite where one is 0."""
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()


def blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split matrices of one shape into blocks of rows; unless there are very many classes, they fit a cache."""
    rows = max(_VALUES // tensors[0].shape[1], _ROWS)
    return zip(*(tensor.split(rows) for tensor in tensors), strict=True)


def candidate_probabilities(log_p: Tensor, S: Tensor, temperature: float) -> Tensor:
    """Return how likely each candidate is the true label, given that one of them is: ``q = norm_S(softmax(z/T))``.

    `log_p` (N, C) are logits or logarithms of probabilities: the sum over all classes cancels.

    Examples
    --------
    >>> log_p, S = torch.tensor([[0.6, 0.3, 0.1]]).log(), torch.tensor([[True, True, False]])
    >>> candidate_probabilities(log_p, S, 1.0)
    tensor([[0.6667, 0.3333, 0.0000]])
    """
    q = log_p / temperature
    for part, s in blocks(q, S):  # in place: there may be room for few matrices of this size
        part.copy_(part.masked_fill(~s, -torch.inf).softmax(-1))
    return q


def candidate_log_odds(log_p: Tensor, S: Tensor, temperatures: Sequence[float]) -> Iterator[Tensor]:
    """Yield, by `blocks` of n rows, ``log Σ_{j∈S} exp(z_j/T) − log Σ_{j∉S} exp(z_j/T)`` in float64, (temperatures, n).

    It is the log-odds that softmax(z/T) gives to the candidates, +inf where all classes are candidates.

    Examples
    --------
    >>> log_p, S = torch.tensor([[0.6, 0.2, 0.2]]).log(), torch.tensor([[True, True, False]])
    >>> [odds] = candidate_log_odds(log_p, S, [1.0])
    >>> odds.exp()
    tensor([[4.0000]], dtype=torch.float64)
    """
    lowest = torch.finfo(torch.float64).min
    for z, s in blocks(log_p, S):
        z, s = z.T.double().contiguous(), s.T.contiguous()  # sums over the first axis are fast, also of few classes
        candidates, others = z.masked_fill(~s, -torch.inf), z.masked_fill(s, -torch.inf)
        inner, outer = candidates.amax(0).clamp_min_(lowest), others.amax(0).clamp_min_(lowest)
        z = torch.maximum(candidates.sub_(inner), others.sub_(outer))  # the largest term of each sum is 1
        member, odds = s.double(), z.new_empty(len(temperatures), z.shape[1])
        for T, row in zip(temperatures, odds, strict=True):
            terms = (z * (1 / T)).exp_()
            total, inside = terms.sum(0), terms.mul_(member).sum(0)
            torch.sub((inner - outer) / T, (total / inside - 1).log_(), out=row)
        yield odds


def fit_temperature(log_p: Tensor, S: Tensor) -> float:
    """Return the T, from 1 to 10, with the largest candidate likelihood, ``Σ_i log Σ_{j∈S_i} softmax(z_i/T)_j``.

    The rows must not have trained what gave `log_p` (N, C): a network is too sure of rows that it saw. Below 1 it does
    not go. Where the likelihood wants that, wrong candidates resemble the true label, and sharper probabilities would
    only be surer of mistakes.

    Examples
    --------
    >>> p, S = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1]]), torch.tensor([[1, 0], [1, 0], [0, 1]]).bool()
    >>> T = fit_temperature(p.log(), S)
    >>> (p.log() / T).softmax(-1)[0]  # as often as either was right
    tensor([0.6667, 0.3333])
    """

    def losses(scales: Sequence[float]) -> list[float]:
        odds = candidate_log_odds(log_p, S, [math.exp(scale) for scale in scales])
        total = sum(torch.logaddexp(-block, block.new_zeros(())).sum(-1) for block in odds)
        return torch.as_tensor(total).tolist()

    hottest = math.log(10)
    step = hottest / 24  # the likelihood may have several peaks
    tried = losses([k * step for k in range(25)])
    middle = tried.index(min(tried)) * step
    return math.exp(_minimise(lambda scale: losses([scale])[0], max(middle - step, 0.0), min(middle + step, hottest)))


def _minimise(loss: Callable[[float], float], low: float, high: float) -> float:
    """Return the place of the smallest loss between two places, by golden sections."""
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = loss(left), loss(right)
    while high - low > 1e-4:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = loss(right)
    return (low + high) / 2
