"""Probabilities of candidates at a temperature, and the temperature that maximises the candidate likelihood.

The candidate likelihood of a row is ``Σ_{j∈S} softmax(z/T)_j``: how probable it is, at temperature T, that the true
label is a candidate. It needs no true labels. There are two searches for its maximum:

- `fit_temperature`, after training: one T for all rows, by a grid and golden sections. It computes in float64, block by
  block, and reads losses back to the host to decide where to look next.
- `fit_candidate_probabilities`, before each epoch of a training: one T per run, from a fixed grid. It reads nothing
  back, so a GPU that is still busy with the epoch before need not be waited for.

Neither goes below 1. The likelihood does not see errors within a candidate set. Where it is largest below 1, wrong
candidates resemble the true label, and sharper probabilities would only be more confident in mistakes.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from candidly.candidates.weights import masked_softmax
from candidly.checks.arguments import items, real
from candidly.checks.tensors import takes_tensors

HOTTEST = 10.0
"""Largest temperature of `TEMPERATURES` and `fit_temperature`."""

_INTERVALS = 24
_STEP = math.log(HOTTEST) / _INTERVALS

TEMPERATURES = tuple(math.exp(k * _STEP) for k in range(_INTERVALS + 1))
"""Grid from 1 to `HOTTEST`, equally spaced in log T. It is searched as a whole: there may be several maxima."""

_RUN_TEMPERATURES = tuple(2 ** (k / 4) for k in range(1, 17))
"""Grid of `fit_candidate_probabilities`, besides 1: up to 16."""

_BLOCK_VALUES = 2**16
_BLOCK_ROWS = 2**10
_MAX_BLOCK_VALUES = 2**22


@takes_tensors
def log(p: Tensor) -> Tensor:
    """Return the logarithm of probabilities, finite where one is 0."""
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()


def blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split matrices of one shape into blocks of rows that fit a cache, unless there are thousands of classes."""
    C = tensors[0].shape[1]
    rows = max(_BLOCK_VALUES // C, min(_BLOCK_ROWS, _MAX_BLOCK_VALUES // C), 1)
    return zip(*(tensor.split(rows) for tensor in tensors), strict=True)


@takes_tensors
def candidate_probabilities(log_p: Tensor, S: Tensor, temperature: float) -> Tensor:
    """Return how likely each candidate is the true label, given that one of them is: ``q = norm_S(softmax(z/T))``.

    `log_p` (N, C) are logits or logarithms of probabilities: the sum over all classes cancels.

    Examples
    --------
    >>> log_p, S = torch.tensor([[0.6, 0.3, 0.1]]).log(), torch.tensor([[True, True, False]])
    >>> candidate_probabilities(log_p, S, 1.0)
    tensor([[0.6667, 0.3333, 0.0000]])
    """
    q = log_p / real("temperature", temperature, above=0)
    for part, s in blocks(q, S):  # in place, to hold few matrices of this size at a time
        part.copy_(masked_softmax(part, s))
    return q


@takes_tensors
def candidate_log_odds(log_p: Tensor, S: Tensor, temperatures: Sequence[float]) -> Iterator[Tensor]:
    """Yield ``log Σ_{j∈S} exp(z_j/T) − log Σ_{j∉S} exp(z_j/T)`` in float64, (temperatures, n), by `blocks` of n rows.

    These are the log-odds of the candidate likelihood: +inf where all classes are candidates.

    Examples
    --------
    >>> log_p, S = torch.tensor([[0.6, 0.2, 0.2]]).log(), torch.tensor([[True, True, False]])
    >>> [odds] = candidate_log_odds(log_p, S, [1.0])
    >>> odds.exp()
    tensor([[4.0000]], dtype=torch.float64)
    """
    temperatures = [real("temperatures", T, above=0) for T in items("temperatures", temperatures, "a list of numbers")]
    lowest = torch.finfo(torch.float64).min
    for z, s in blocks(log_p, S):
        z, s = z.T.double().contiguous(), s.T.contiguous()  # sums over the first axis are fast even for few classes
        candidates = z.masked_fill(~s, -torch.inf)
        others = z.masked_fill(s, -torch.inf)
        inner = candidates.amax(0).clamp_min_(lowest)
        outer = others.amax(0).clamp_min_(lowest)
        z = torch.maximum(candidates.sub_(inner), others.sub_(outer))  # the largest term of each sum is 1
        member = s.double()
        odds = z.new_empty(len(temperatures), z.shape[1])
        for T, row in zip(temperatures, odds, strict=True):
            terms = (z * (1 / T)).exp_()
            total = terms.sum(0)
            inside = terms.mul_(member).sum(0)
            torch.sub((inner - outer) / T, (total / inside - 1).log_(), out=row)
        yield odds


@takes_tensors
def fit_temperature(log_p: Tensor, S: Tensor) -> float:
    """Return the T from 1 to `HOTTEST` that maximises the candidate likelihood, ``Σ_i log Σ_{j∈S_i} softmax(z_i/T)_j``.

    `log_p` (N, C) must come from networks that did not train on these rows: networks are overconfident on their
    training rows.

    Examples
    --------
    >>> p, S = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1]]), torch.tensor([[1, 0], [1, 0], [0, 1]]).bool()
    >>> T = fit_temperature(p.log(), S)
    >>> (p.log() / T).softmax(-1)[0]  # as often as each was right
    tensor([0.6667, 0.3333])
    """

    def losses(temperatures: Sequence[float]) -> list[float]:
        odds = candidate_log_odds(log_p, S, temperatures)
        total = sum(torch.logaddexp(-block, block.new_zeros(())).sum(-1) for block in odds)
        return torch.as_tensor(total).tolist()

    tried = losses(TEMPERATURES)
    middle = tried.index(min(tried)) * _STEP
    low, high = max(middle - _STEP, 0.0), min(middle + _STEP, math.log(HOTTEST))
    return math.exp(_minimise(lambda scale: losses([math.exp(scale)])[0], low, high))


@takes_tensors
def fit_candidate_probabilities(
    p: Tensor, S: Tensor, valid: Tensor, total: Callable[[Tensor], Tensor] = lambda x: x
) -> Tensor:
    """Return ``q = norm_S(p^(1/T))``, with each run's T from a grid, where the candidate likelihood is largest.

    Parameters
    ----------
    p, S : Tensor, shape (R, M, C)
        Probabilities and candidates of each run's rows.
    valid : Tensor of bool, shape (R, M)
        Which rows count for the fit; the others are padding.
    total : callable, optional
        Adds the likelihoods (17, R) of other processes, which have further rows.

    Examples
    --------
    >>> p = torch.tensor([[[0.9, 0.1], [0.9, 0.1], [0.5, 0.5]]])
    >>> S = torch.tensor([[[True, False], [False, True], [True, True]]])
    >>> fit_candidate_probabilities(p, S, torch.tensor([[True, True, False]]))[0, 2]
    tensor([0.5000, 0.5000])
    """
    z = log(p)
    z = z - z.amax(-1, keepdim=True)  # then exp(z/T) of the largest does not underflow
    inside = S.to(p.dtype)
    T = z.new_ones(len(z))
    likelihoods = [_run_likelihood(z, inside, valid)]
    likelihoods += [_run_likelihood(z / value, inside, valid) for value in _RUN_TEMPERATURES]
    best, *others = total(torch.stack(likelihoods))
    for value, found in zip(_RUN_TEMPERATURES, others, strict=True):
        T.masked_fill_(found > best, value)
        best = torch.maximum(best, found)
    return masked_softmax(z / T[:, None, None], S)


def _run_likelihood(z: Tensor, inside: Tensor, valid: Tensor) -> Tensor:
    """Return ``Σ_i log Σ_{j∈S_i} softmax(z_i)_j`` over each run's valid rows, (R,)."""
    e = z.exp()
    return ((e * inside).sum(-1) / e.sum(-1)).log().masked_fill(~valid, 0).sum(-1)


def _minimise(loss: Callable[[float], float], low: float, high: float) -> float:
    """Return where a loss is smallest between `low` and `high`, by golden sections."""
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
