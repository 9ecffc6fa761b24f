"""What held-out rows tell about errors: guesses of lost labels, of missing labels, and of the networks' confidence.

All functions take log-probabilities (N, C) of rows by networks that were not trained on them, and their candidates.
`candidly.cleaning.budget` fits the rule that removes candidates by these estimates, and `candidly.cleaning.audit`
reports them.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from candidly import conformal

# All constants were chosen on synthetic candidate sets (docs/evidence/trust.md).

UNLIKELY_FRACTION = 0.4
"""Fraction of the (row, class) pairs, the least likely ones, that show how often a wrong class is a candidate."""

LOWER_FACTOR, UPPER_FACTOR = 0.5, 1.5
"""Guessed losses may be that much too high or too low, in addition to chance (`benchmarks.trust audit`)."""

NORMAL_90 = 1.6448536269514722
"""A standard normal variable lies within ± this with probability 90 %."""

HOTTEST = 100.0
"""Largest temperature of `raise_temperature`: all candidates of a row are then about equally likely."""

_MAX_QUANTILE_VALUES = 2**23
_MAX_PAIRS = 2**22  # pairs of classes to count at a time
_BLOCK_ROWS = 2**14
_PRIOR_ROWS = 5.0  # weight of the prior when fractions of few rows are shrunk


class Estimate(NamedTuple):
    """A guessed or measured fraction with its interval."""

    value: float
    low: float
    high: float


def estimate_missing(log_p: Tensor, S: Tensor) -> Estimate:
    """Estimate the fraction η of rows whose true label is not a candidate, with the interval of its profile likelihood.

    If the true label is a candidate, the row's likelihood is the candidate likelihood ``Σ_{j∈S} softmax(z/T)_j``. If
    not, its candidates do not depend on z, and the likelihood is their fraction of all classes. η and T ≥ 1 maximise
    the mixture. The estimate tells noisy sets from clean ones, but not how noisy they are: it is usually 1.5 to 2 times
    the truth, and with few rows of classes that are hard to tell apart it may be 0.
    """
    shares = torch.arange(0, 0.501, 0.01, dtype=torch.float64)
    fits = torch.zeros(len(shares), len(conformal.TEMPERATURES), dtype=torch.float64)
    for odds, (s,) in zip(
        conformal.candidate_log_odds(log_p, S, conformal.TEMPERATURES), conformal.blocks(S), strict=True
    ):
        inside, chance = odds.sigmoid_(), s.double().mean(-1)
        for share, fit in zip(shares.tolist(), fits, strict=True):
            fit += inside.lerp(chance, share).clamp_min_(1e-300).log_().sum(-1).cpu()
    profile = fits.amax(1)
    within = shares[profile >= profile.max() - NORMAL_90**2 / 2]
    best = shares[profile >= profile.max() - 1e-6]  # several fit equally well if all classes are candidates
    return Estimate(float(best[0]), float(within[0]), float(within[-1]))


def predicts_by_chance(log_p: Tensor, S: Tensor) -> bool:
    """Return whether predictions are candidates no more often than if they were dealt to the rows at random.

    With k the most probable class of a row and f_k the fraction of rows that have the candidate k, the mean of
    ``1[k ∈ S] − f_k`` is 0 on average for random predictions. They count as better if it is positive in a one-sided
    test at level 5 %. Rows with all classes as candidates say nothing; without other rows the answer is no.

    Examples
    --------
    >>> S = torch.eye(2).bool().repeat(50, 1)
    >>> predicts_by_chance(S.float(), S), predicts_by_chance(torch.tensor([[0.9, 0.1]]).expand(100, 2), S)
    (False, True)
    """
    labelled = ~S.all(-1)
    if not labelled.any():
        return False
    hit, frequency = _hits(log_p[labelled].argmax(-1), S[labelled])
    gain = hit - frequency
    return bool(gain.mean() <= NORMAL_90 * gain.std(correction=0) / math.sqrt(len(gain)))


def _hits(top: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether predictions are candidates, and the fraction of rows that have the same candidate, (N,) each."""
    return S.gather(1, top[:, None])[:, 0].double(), (S.sum(0).double() / len(S))[top]


def uninformed(top: Tensor, S: Tensor) -> Tensor:
    """Return how likely the networks know nothing about a row, (N,), from its most probable class, candidate or not.

    Networks that know nothing about a row predict a candidate by chance: with probability f, the fraction of rows that
    have the predicted class as a candidate. If they know the label of a fraction a of the rows, and nothing about the
    others, then ``a + (1 − a)·f`` of their predictions are candidates, which gives a. A row whose prediction is not a
    candidate is one that they know nothing about; any other row is one with probability
    ``(1 − a)·f / (a + (1 − a)·f)``. Probabilities do not matter, so overconfident networks do not look better. Wrong
    candidates that resemble the true label do make them look better.

    Rows with all classes as candidates are left out when a is estimated, because every prediction is a candidate.

    Examples
    --------
    >>> S = torch.eye(2).bool().repeat(50, 1)
    >>> uninformed(torch.tensor([0, 1]).repeat(50), S).max(), uninformed(torch.tensor([1, 0]).repeat(50), S).min()
    (tensor(0., dtype=torch.float64), tensor(1., dtype=torch.float64))
    """
    labelled = ~S.all(-1)
    known = 0.0
    if labelled.any():
        hit, frequency = _hits(top[labelled], S[labelled])
        known = max(float((hit - frequency).sum() / (1 - frequency).sum().clamp_min(1e-12)), 0.0)
    hit, frequency = _hits(top, S)
    by_chance = (1 - known) * frequency
    return torch.where(hit > 0, by_chance / (known + by_chance), 1.0)


def estimate_lost(fitted: Tensor, cautious: Tensor, S: Tensor, kept: Tensor, uninformed: Tensor) -> Estimate:
    """Guess the fraction of rows whose true label was removed.

    The networks' own account is the sum of the probabilities that removed candidates are true, at both temperatures
    (`fitted` and `cautious`). A second account does not use these probabilities: in rows that the networks know nothing
    about (`uninformed`), the removed candidates have the true label among them as often as chance. The guess is the
    geometric mean of the two sums. The interval goes from `LOWER_FACTOR` times the lower sum to `UPPER_FACTOR` times
    the largest account, and is widened by chance. It never exceeds the fraction of rows that lost a candidate.
    """
    return widen(account(fitted, cautious, S, kept, uninformed), len(S))


class Account(NamedTuple):
    """A fraction of rows by the networks' probabilities, at both temperatures, and by chance; and its upper bound."""

    own: float
    safe: float
    by_chance: float
    most: float


def account(fitted: Tensor, cautious: Tensor, S: Tensor, kept: Tensor, uninformed: Tensor) -> Account:
    """Return the accounts of the fraction of rows whose true label was removed, which `estimate_lost` explains."""
    n, sums = len(S), [0.0, 0.0, 0.0]
    changed = 0
    for *q, s, k, unknown in conformal.blocks(fitted, cautious, S, kept, uninformed):
        gone = s & ~k
        parts = [*(part[gone].sum(dtype=torch.float64) for part in q), (unknown * gone.sum(-1) / s.sum(-1)).sum()]
        sums = [total + float(part) for total, part in zip(sums, parts, strict=True)]
        changed += int(gone.any(-1).sum())
    own, safe, by_chance = (total / n for total in sums)
    return Account(own, safe, by_chance, changed / n)


def estimate_error(fitted: Tensor, cautious: Tensor, S: Tensor, uninformed: Tensor) -> Estimate:
    """Guess the fraction of rows whose most likely candidate is wrong; the accounts are those of `estimate_lost`."""
    sizes = S.sum(-1).double()
    own, safe = (float(1 - q.amax(-1).double().mean()) for q in (fitted, cautious))
    by_chance = float((uninformed * (1 - 1 / sizes)).mean())
    return widen(Account(own, safe, by_chance, float((sizes > 1).double().mean())), len(S))


def widen(found: Account, n: int, lower: float = LOWER_FACTOR, upper: float = UPPER_FACTOR) -> Estimate:
    """Return the guess, and the interval that the accounts of n rows, the factors and chance allow."""
    bounds = sorted((found.own, found.safe))
    low, high = (min(max(share, 0.0), found.most) for share in bounds)  # rounding may exceed the bounds
    lowest, highest = lower * low, min(upper * max(high, found.by_chance), found.most)
    lowest -= NORMAL_90 * math.sqrt(lowest * (1 - lowest) / n)
    highest += NORMAL_90 * math.sqrt(highest * (1 - highest) / n)
    return Estimate(math.sqrt(low * high), max(lowest, 0.0), min(highest, found.most))


def expected_error(log_p: Tensor, S: Tensor, temperature: float) -> float:
    """Return the expected fraction of rows whose most likely candidate is wrong, ``mean_i (1 − max_j q_ij)``.

    Examples
    --------
    >>> p, S = torch.tensor([[0.6, 0.2, 0.2], [0.1, 0.8, 0.1]]), torch.tensor([[1, 1, 0], [0, 1, 0]]).bool()
    >>> round(expected_error(p.log(), S, 1.0), 3)
    0.125
    """
    return _error(_gaps(log_p, S), temperature) / len(S)


def _gaps(log_p: Tensor, S: Tensor) -> list[Tensor]:
    """Return log-probabilities relative to the row's most likely candidate, (k, n) for blocks of n rows with k ≥ 2."""
    count = S.sum(-1)
    found = []
    for k in count[count > 1].unique().tolist():
        for rows in (count == k).nonzero()[:, 0].split(_BLOCK_ROWS):
            z = log_p[rows][S[rows]].view(-1, k).T.double().contiguous()
            found.append(z - z.amax(0))
    return found


def _error(gaps: list[Tensor], temperature: float) -> float:
    """Return the expected number of rows whose most likely candidate is wrong."""
    return sum(float((1 - 1 / (block / temperature).exp_().sum(0)).sum()) for block in gaps)


def excess_membership(log_p: Tensor, S: Tensor, temperature: float, low: float = UNLIKELY_FRACTION) -> float:
    """Return the number of candidates per row, among likely classes, that chance does not explain.

    Let t be a row's most likely candidate and k any other class. If wrong candidates do not depend on the features
    given the true label, then k is a candidate with a probability d_tk that does not depend on how likely k is. d_tk is
    estimated where k is too unlikely to be true: on the fraction `low` of the pairs (row, k) with the smallest
    ``p_k / (p_k + Σ_{j∈S, j≠k} p_j)``, a quantity that does not depend on whether k is a candidate. The measure is

        Σ (1[k ∈ S] − d_tk) / (1 − mean of d_tk) / N   over the other pairs.

    It is about 0 if wrong candidates do not depend on the features, however large `expected_error` is: where t is
    wrong, the true label is a candidate for certain, but t was drawn by chance and makes up for it. It is positive,
    often many times `expected_error`, if wrong candidates resemble the true label. It is smaller if true labels are
    missing. The rows must be held out.
    """
    C = S.shape[1]
    if C == 1:
        return 0.0  # the most likely candidate is the only class
    limit = _limit(log_p, S, temperature, low)

    def count() -> Iterator[Tensor]:
        return _count_members(log_p, S, temperature, limit)

    once = list(count()) if C * C <= _MAX_PAIRS else None  # with many classes, counting twice saves memory
    # Rows and members of each class k, of all t together, where k is unlikely; then d_tk, shrunk to their ratio.
    total, member = sum((counts[0].sum(1) for counts in once or count()), torch.zeros(2, C).double().to(S.device))
    overall = member.sum() / total.sum().clamp_min(1)
    prior = (member + _PRIOR_ROWS * overall) / (total + _PRIOR_ROWS)
    rows = expected = extra = 0.0
    for (unlikely_total, unlikely_member), (likely_total, likely_member) in once or count():
        d = (unlikely_member + _PRIOR_ROWS * prior) / (unlikely_total + _PRIOR_ROWS)
        rows += float(likely_total.sum())
        expected += float((likely_total * d).sum())
        extra += float((likely_member - likely_total * d).sum())
    return extra / (1 - min(expected / max(rows, 1), 0.9)) / len(S)


def _count_members(log_p: Tensor, S: Tensor, temperature: float, limit: Tensor) -> Iterator[Tensor]:
    """Yield counts of pairs (row, k) by their classes t and k, (2, 2, t, k), for groups of t with few enough pairs.

    The first axis is whether k is likely. On the second, all pairs come first, then those with k in S.
    """
    C = S.shape[1]
    classes = torch.arange(C, device=S.device)
    groups = [classes]
    if C * C > _MAX_PAIRS:
        tops = torch.cat([_shares(z, s, temperature)[1] for z, s in conformal.blocks(log_p, S)])
        groups = list(tops.unique().split(max(_MAX_PAIRS // C, 1)))
    for group in groups:
        place = torch.full_like(classes, -1)
        place[group] = torch.arange(len(group), device=S.device)
        some_p, some_S = log_p, S
        if len(group) < C:
            rows = (place[tops] >= 0).nonzero()[:, 0]
            some_p, some_S = log_p[rows], S[rows]
        pairs = len(group) * C
        counts = torch.zeros(2, 2, pairs, dtype=torch.float64, device=S.device)
        for z, s in conformal.blocks(some_p, some_S):
            share, top = _shares(z, s, temperature)
            pair = place[top][:, None] * C + classes
            for part, chosen in zip(counts, (share < limit, share >= limit), strict=True):
                part[0] += pair[chosen].bincount(minlength=pairs)
                part[1] += pair[chosen & s].bincount(minlength=pairs)
        yield counts.view(2, 2, -1, C)


def _shares(log_p: Tensor, S: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return each class's fraction of the probability of it and the other candidates, and the most likely candidate.

    The fraction is NaN for the most likely candidate.
    """
    p = (log_p.double() / temperature).softmax(-1)
    inside = (p * S).sum(-1, keepdim=True)
    share = p / torch.where(S, inside, inside + p).clamp_min(torch.finfo(p.dtype).tiny)
    top = p.masked_fill(~S, -1).argmax(-1)
    return share.scatter_(1, top[:, None], torch.nan), top


def _limit(log_p: Tensor, S: Tensor, temperature: float, low: float) -> Tensor:
    """Return the quantile `low` of the fractions that `_shares` returns; of a regular subset if there are very many."""
    N, C = S.shape
    step = 1 + N * (C - 1) // _MAX_QUANTILE_VALUES
    done = 0  # (row, class) pairs of earlier blocks
    some = []
    for z, s in conformal.blocks(log_p, S):
        share, top = _shares(z, s, temperature)
        pair = torch.arange(-done % step, len(s) * (C - 1), step, device=S.device)
        row = pair // (C - 1)
        k = pair % (C - 1)
        some.append(share[row, k + (k >= top[row])])  # all classes but the most likely candidate
        done += len(s) * (C - 1)
    values = torch.cat(some)
    return values.kthvalue(int(low * (len(values) - 1)) + 1).values


def raise_temperature(log_p: Tensor, S: Tensor, temperature: float, error: float) -> float:
    """Return the smallest T, from `temperature` to 100, at which `expected_error` is at least `error`."""
    gaps = _gaps(log_p, S)
    if _error(gaps, temperature) / len(S) >= error:
        return temperature
    low, high = math.log(temperature), math.log(HOTTEST)
    for _ in range(30):
        middle = (low + high) / 2
        if _error(gaps, math.exp(middle)) / len(S) < error:
            low = middle
        else:
            high = middle
    return math.exp(high)
