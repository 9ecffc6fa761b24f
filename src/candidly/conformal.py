"""Conformal prediction on candidate sets, as pure tensor functions.

Conformity scores are probabilities, or `aps` of them: a label conforms the better the larger its score. Everywhere
`scores` (R, M) are the calibration rows' scores in ascending order, padded with +inf, and `counts` (R,) says how many
of them are real. "UAI" is Fuchs and Kalinke, *Partial-Label Learning with Conformal Candidate Cleaning*, UAI 2025. On
calibration with candidate sets see also A. Javanmardi et al., *Conformal Prediction with Partially Labeled Data*, COPA
2023.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

_VALUES, _ROWS = 2**16, 2**10  # to compute at a time: so many values, or so many rows if that is more


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


def off_candidate_mass(p: Tensor, S: Tensor) -> Tensor:
    """Probability outside the candidate set, ``Σ_{j∉S} p_j``: UAI's estimate of the classifier's error on a row."""
    return p.masked_fill(S, 0).sum(-1)


def remark_level(alpha: float, error: Tensor, m: Tensor, delta: float = 0.05, dkw: bool = True) -> Tensor:
    """UAI's Remark: the level ``α'' = α − error − sqrt(log(2/δ_4) / (2m))``; where it is not positive keep all labels.

    The last term is the Dvoretzky-Kiefer-Wolfowitz bound on the calibration rows, left out when `dkw` is false.
    """
    return alpha - error - (math.log(2 / delta) / (2 * m)).sqrt() * float(dkw)


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


def risk_budget(
    q: Tensor, S: Tensor, alpha: float, *, by_class: bool = False, protected: Tensor | None = None
) -> Tensor:
    """Keep all candidates but the least likely ones, whose summed probability stays within ``alpha·N``.

    If q (N, C) is the probability that a candidate is true, given features and candidate sets, then at most a share
    `alpha` of the rows are expected to lose their true label: on average over these rows, not row by row or for rows to
    come. With `by_class` the least likely ones of each class j stay within ``alpha·Σ_i q_ij``, so that a rare class
    does not pay for the others; together that is ``alpha·N`` again. A row's most likely candidate stays, and so does
    what is `protected` (N, C). Candidates that are equally likely go together or not at all, so that the order of rows
    and of classes does not matter. The sets are nested in `alpha`.

    Examples
    --------
    >>> q = torch.tensor([[0.9, 0.1, 0.0], [0.6, 0.0, 0.4]])
    >>> risk_budget(q, q > 0, alpha=0.1).long()
    tensor([[1, 0, 0],
            [1, 0, 1]])
    """
    return next(risk_budgets(q, S, [alpha], by_class=by_class, protected=protected))


def risk_budgets(
    q: Tensor, S: Tensor, alphas: Sequence[float], *, by_class: bool = False, protected: Tensor | None = None
) -> Iterator[Tensor]:
    """Yield what `risk_budget` keeps at each level; what may go is sorted once."""
    may_go = torch.empty_like(S)
    for part, q_part, s in blocks(may_go, q, S):
        torch.logical_and(s, q_part < q_part.masked_fill(~s, -1).amax(-1, keepdim=True), out=part)
    if protected is not None:
        may_go &= ~protected
    levels = torch.tensor(alphas, dtype=torch.float64, device=q.device)
    if by_class:
        sums = q.sum(0, dtype=torch.float64)
        columns = zip(q.T, may_go.T, sums, strict=True)
        limits = torch.stack([_spend(column[rows], levels * total) for column, rows, total in columns], 1)
    else:
        limits = _spend(q[may_go], levels * len(S))[:, None]
    for limit in limits:
        yield S & ~(may_go & (q <= limit))


def _spend(values: Tensor, amounts: Tensor) -> Tensor:
    """Return, per amount, the largest value that adds up with all smaller or equal ones to no more; -1 if none does."""
    values = values.sort().values
    last = torch.cat([values[1:] != values[:-1], values.new_ones(len(values[:1]), dtype=torch.bool)])  # of equal ones
    spent = values.cumsum(0, dtype=torch.float64)[last]
    fits = torch.searchsorted(spent, amounts * (1 + 1e-9), right=True)  # sums depend on their order
    return torch.cat([values.new_full((1,), -1), values[last]])[fits]


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


def _per_run(counts: Tensor, p: Tensor) -> Tensor:
    return counts.to(p.dtype).view(-1, *[1] * (p.ndim - 1))
