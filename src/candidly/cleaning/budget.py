"""The default rule of cleaning: a risk budget that grows more cautious where wrong candidates resemble the true label.

Networks that learn from candidate sets are too sure of themselves where wrong candidates look like the true label, and
no held-out row can show it, because the true label is never seen. What shows is who is a candidate: classes that are
likely, but not the likeliest candidate, are candidates more often than the probabilities and chance explain
(`excess_membership`). `Budget` counts a part of that excess as error, raises the temperature of the probabilities
accordingly and spends the budget of `candidly.conformal.risk_budget`, class by class. Where two classes are hardly ever
likely without each other (`find_inseparable`), neither is removed for the other. docs/trust.md has the experiments that
this rests on.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from candidly import conformal

# All constants were chosen on synthetic candidate sets (docs/trust.md).
CAUTION = 0.15  # how much of the excess counts as error
LOW = 0.4  # the part of the pairs, those of unlikely classes, that shows how often a wrong class is a candidate
ALONE = 0.05  # two classes are inseparable if one has a smaller share of its likely rows without the other
ODDS = 4.0  # and the odds of being candidates together are so many times those of other rows
FEW = 100  # with fewer rows there is no rule
SLACK = 0.3  # relative error that the estimated losses may have, beside chance
NORMAL = 1.6448536269514722  # a standard normal lies within ± this with probability 90 %
_HOTTEST = 100.0  # no temperature above this is looked for: candidates of a row are then about equally likely
_MOST = 2**23  # values to take a quantile of
_ROWS = 2**14  # to compute at a time


class Estimate(NamedTuple):
    """A share with its 90 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Budget:
    """What held-out rows say about probabilities of candidates, and the rule that follows.

    Attributes
    ----------
    temperature : float
        That of the largest candidate likelihood (`conformal.fit_temperature`).
    cautious : float
        The one, at least as high, that the rule uses.
    error : float
        Expected share of rows whose most likely candidate is wrong, at `temperature`.
    excess : float
        Candidates per row that chance does not explain (`excess_membership`); about 0 unless wrong ones look true.
    inseparable : Tensor of bool, shape (C, C)
        Pairs of classes that cannot be told apart (`find_inseparable`).

    Notes
    -----
    There is no guarantee, but a measured property. On average over rows, about a share α or fewer lose their true label
    if the rows did not train what scored them, the true label is a candidate, and wrong candidates either do not depend
    on the features, given the true label, or do so no more than in the synthetic sets on which the caution was chosen.

    Examples
    --------
    >>> p = torch.tensor([[0.97, 0.02, 0.01], [0.5, 0.1, 0.4], [0.01, 0.98, 0.01], [0.02, 0.03, 0.95]])
    >>> S = torch.tensor([[1, 1, 0], [1, 0, 1], [0, 1, 0], [0, 1, 1]]).bool()
    >>> Budget.of(p.log(), S).keep(p.log(), S, alpha=0.2).long()
    tensor([[1, 0, 0],
            [1, 0, 1],
            [0, 1, 0],
            [0, 1, 1]])
    """

    temperature: float
    cautious: float
    error: float
    excess: float
    inseparable: Tensor

    @classmethod
    def of(cls, log_p: Tensor, S: Tensor, caution: float = CAUTION, alone: float = ALONE) -> "Budget":
        """Fit to log-probabilities (N, C) of rows that did not train, and to their candidates.

        Rows with all classes are unlabelled: what candidates have in common with the features shows in the others.
        """
        temperature = conformal.fit_temperature(log_p, S)
        error = own = expected_error(log_p, S, temperature)
        told = ~S.all(-1)
        if not told.any():
            return cls(temperature, temperature, error, 0.0, S.new_zeros(S.shape[1], S.shape[1]))
        if not told.all():
            log_p, S = log_p[told], S[told]
            own = expected_error(log_p, S, temperature)
        excess = excess_membership(log_p, S, temperature)
        cautious = raise_temperature(log_p, S, temperature, own + caution * max(excess - own, 0.0))
        inseparable = find_inseparable(conformal.candidate_probabilities(log_p, S, temperature), S, alone)
        return cls(temperature, cautious, error, excess, inseparable)

    def probabilities(self, log_p: Tensor, S: Tensor) -> Tensor:
        """Return the cautious probability that each candidate is the true label, (N, C)."""
        return conformal.candidate_probabilities(log_p, S, self.cautious)

    def keep(self, log_p: Tensor, S: Tensor, alpha: float) -> Tensor:
        """Return the candidates that stay at level `alpha`; never an empty row."""
        return next(self.keep_each(self.probabilities(log_p, S), S, [alpha]))

    def keep_each(self, q: Tensor, S: Tensor, alphas: Sequence[float]) -> Iterator[Tensor]:
        """Yield the candidates that stay at each level, given their cautious probabilities."""
        return risk_budgets(q, S, alphas, by_class=True, protected=self.inseparable[q.argmax(-1)])

    def lost(self, log_p: Tensor, S: Tensor, kept: Tensor) -> Estimate:
        """Estimate the share of rows whose true label is a candidate that was not kept."""
        fitted, cautious = (conformal.candidate_probabilities(log_p, S, T) for T in (self.temperature, self.cautious))
        return estimate_lost(fitted, cautious, S & ~kept)


def estimate_lost(fitted: Tensor, cautious: Tensor, removed: Tensor) -> Estimate:
    """Estimate the share of rows whose true label is among the removed, from probabilities at both temperatures."""
    n, sums = len(removed), [0.0, 0.0]
    for *parts, gone in conformal.blocks(fitted, cautious, removed):
        sums = [total + float(q[gone].sum(dtype=torch.float64)) for total, q in zip(sums, parts, strict=True)]
    low, high = sorted(min(total / n, 1.0) for total in sums)  # a row's probabilities may add up to a little more
    return Estimate(
        math.sqrt(low * high),
        max(low * (1 - SLACK) - NORMAL * math.sqrt(low * (1 - low) / n), 0.0),
        min(high * (1 + SLACK) + NORMAL * math.sqrt(high * (1 - high) / n), 1.0),
    )


def expected_error(log_p: Tensor, S: Tensor, temperature: float) -> float:
    """Return the expected share of rows whose most likely candidate is wrong, ``mean_i (1 − max_j q_ij)``.

    Examples
    --------
    >>> p, S = torch.tensor([[0.6, 0.2, 0.2], [0.1, 0.8, 0.1]]), torch.tensor([[1, 1, 0], [0, 1, 0]]).bool()
    >>> round(expected_error(p.log(), S, 1.0), 3)
    0.125
    """
    return _error(_gaps(log_p, S), temperature) / len(S)


def _gaps(log_p: Tensor, S: Tensor) -> list[Tensor]:
    """Return how far candidates lie below the row's most likely one, (k, n) for blocks of n rows with k ≥ 2 of them."""
    count, found = S.sum(-1), []
    for k in count[count > 1].unique().tolist():
        for rows in (count == k).nonzero()[:, 0].split(_ROWS):
            z = log_p[rows][S[rows]].view(-1, k).T.double().contiguous()
            found.append(z - z.amax(0))
    return found


def _error(gaps: list[Tensor], temperature: float) -> float:
    """Return the expected number of rows whose most likely candidate is wrong."""
    return sum(float((1 - 1 / (block / temperature).exp_().sum(0)).sum()) for block in gaps)


def excess_membership(log_p: Tensor, S: Tensor, temperature: float, low: float = LOW) -> float:
    """Count the candidates among likely classes that chance does not explain, per row.

    Let t be a row's most likely candidate and k any other class. Where wrong candidates are drawn without regard to the
    features, given the true label, k is a candidate with a probability d_tk that does not depend on how likely it is.
    Which one that is shows where k is so unlikely that it is not true: in the `low` part of the pairs (row, k) with the
    smallest ``p_k / (p_k + Σ_{j∈S, j≠k} p_j)``, which does not depend on whether k is a candidate. The measure is

        Σ (1[k ∈ S] − d_tk) / (1 − mean of d_tk) / N   over the other pairs.

    Where wrong candidates are so drawn it is about 0, however large `expected_error` is: where t is wrong, the true
    label is a candidate for certain, but t is one that was drawn and takes its place. Where they resemble the true
    label it is positive, and often larger than `expected_error` by many times. It is smaller where true labels are
    missing. The rows must not have trained.
    """
    C = S.shape[1]
    if C == 1:
        return 0.0  # nothing but the most likely candidate can be one
    limit = _limit(log_p, S, temperature, low)
    total, member = (torch.zeros(2, C * C, dtype=torch.float64, device=S.device) for _ in range(2))
    for z, s in conformal.blocks(log_p, S):
        share, top = _shares(z, s, temperature)
        pair = top[:, None] * C + torch.arange(C, device=S.device)  # by the row's most likely candidate
        for part, chosen in enumerate((share < limit, share >= limit)):  # pairs of unlikely and of likely classes
            total[part] += pair[chosen].bincount(minlength=C * C)
            member[part] += pair[chosen & s].bincount(minlength=C * C)
    total, member = total.view(2, C, C), member.view(2, C, C)
    d = _shrink(member[0], total[0])
    mean = float((total[1] * d).sum() / total[1].sum().clamp_min(1))
    return float((member[1] - total[1] * d).sum()) / (1 - min(mean, 0.9)) / len(S)


def _shares(log_p: Tensor, S: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return what each class has of it and the row's other candidates, NaN for the most likely one, and that class."""
    p = (log_p.double() / temperature).softmax(-1)
    inside = (p * S).sum(-1, keepdim=True)
    share = p / torch.where(S, inside, inside + p).clamp_min(torch.finfo(p.dtype).tiny)
    top = p.masked_fill(~S, -1).argmax(-1)
    return share.scatter_(1, top[:, None], torch.nan), top


def _limit(log_p: Tensor, S: Tensor, temperature: float, low: float) -> Tensor:
    """Return a quantile of the shares, that of every s-th one where there are very many."""
    N, C = S.shape
    step, done, some = 1 + N * (C - 1) // _MOST, 0, []
    for z, s in conformal.blocks(log_p, S):
        share, top = _shares(z, s, temperature)
        pair = torch.arange(-done % step, len(s) * (C - 1), step, device=S.device)
        row, k = pair // (C - 1), pair % (C - 1)
        some.append(share[row, k + (k >= top[row])])  # all classes but the most likely candidate
        done += len(s) * (C - 1)
    values = torch.cat(some)
    return values.kthvalue(int(low * (len(values) - 1)) + 1).values


def raise_temperature(log_p: Tensor, S: Tensor, temperature: float, error: float) -> float:
    """Return the smallest T, from `temperature` to 100, at which `expected_error` is at least `error`."""
    gaps = _gaps(log_p, S)
    if _error(gaps, temperature) / len(S) >= error:
        return temperature
    low, high = math.log(temperature), math.log(_HOTTEST)
    for _ in range(30):
        middle = (low + high) / 2
        if _error(gaps, math.exp(middle)) / len(S) < error:
            low = middle
        else:
            high = middle
    return math.exp(high)


def find_inseparable(q: Tensor, S: Tensor, alone: float = ALONE) -> Tensor:
    """Find pairs of classes of which one is hardly ever likely in a row where the other is no candidate, (C, C).

    Nothing could tell such classes apart: all rows of the one would look the same if they were the other's. With W the
    sum of both classes' q (N, C) over the rows with both and A the smaller of the two classes' sums over the rows
    without the other, a pair is inseparable if ``A < alone·(A + W)``. Classes that are rare, or together by chance, are
    not meant: W must be 8 rows and a hundredth of all, and the odds that the one is a candidate where the other is the
    most likely candidate must be four times those in rows where neither is.

    Examples
    --------
    >>> S = torch.tensor([[1, 1, 0]] * 40 + [[0, 1, 1], [0, 0, 1]] * 20).bool()
    >>> find_inseparable(S / S.sum(1, keepdim=True), S)[0]
    tensor([False,  True, False])
    """
    n, both = len(S), count_together(q, S)
    without = q.sum(0, dtype=torch.float64)[:, None] - both
    likely, apart = both + both.T, torch.minimum(without, without.T)
    top = torch.zeros_like(S).scatter_(1, q.argmax(-1, keepdim=True), True)
    rows, together = top.sum(0), count_together(top, S)  # by the most likely candidate
    elsewhere, others = together.sum(0) - together - together.diagonal(), n - rows[:, None] - rows
    odds = _odds(together, rows[:, None]) / _odds(elsewhere, others)
    found = (likely >= max(8.0, n / 100)) & (apart < alone * (apart + likely)) & (torch.maximum(odds, odds.T) >= ODDS)
    return found.fill_diagonal_(False)


def count_together(q: Tensor, S: Tensor) -> Tensor:
    """Sum q of the first class over the rows where the second is a candidate, for all pairs of classes, (C, C)."""
    total = torch.zeros(S.shape[1], S.shape[1], dtype=torch.float64, device=S.device)
    for part, s in conformal.blocks(q, S):
        total.addmm_(part.double().T, s.double())
    return total


def _odds(count: Tensor, total: Tensor) -> Tensor:
    return (count + 0.5) / (total - count + 0.5)


def _shrink(member: Tensor, total: Tensor, rows: float = 5.0) -> Tensor:
    """Return the share of members of each pair of classes, drawn towards the class's, and that towards all classes'."""
    share = member.sum() / total.sum().clamp_min(1)
    by_class = (member.sum(0) + rows * share) / (total.sum(0) + rows)
    return (member + rows * by_class) / (total + rows)


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
    for part, q_part, s in conformal.blocks(may_go, q, S):
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
