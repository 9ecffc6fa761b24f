"""The default rule that removes candidates after training: a risk budget, spent more cautiously on harder data.

Networks that learn from candidate sets are overconfident if wrong candidates look like the true label. Held-out rows
cannot show it directly, because the true label is unknown. They do show which classes are candidates: likely classes
besides the most likely candidate are then candidates more often than the probabilities and chance explain
(`excess_membership`). `Budget` counts a fraction of that excess as error, raises the temperature of the probabilities
accordingly and spends a `risk_budget` on each class. If two classes are hardly ever likely without each other
(`find_inseparable`), neither is removed in favour of the other. The experiments behind the rule are in
docs/evidence/trust.md.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from candidly import conformal
from candidly.checks.arguments import real
from candidly.store import validation

# All constants were chosen on synthetic candidate sets (docs/evidence/trust.md).

MIN_ROWS = 100
"""Smallest number of held-out rows that the rule is fitted to; with fewer, no candidate is removed."""

EXCESS_AS_ERROR = 0.15
"""Fraction of the excess (`excess_membership`) that counts as error."""

UNLIKELY_FRACTION = 0.4
"""Fraction of the (row, class) pairs, the least likely ones, that show how often a wrong class is a candidate."""

SEPARATE_FRACTION = 0.05
"""Two classes are inseparable if one has less than this fraction of its likely rows without the other …"""

TOGETHER_ODDS_RATIO = 4.0
"""… and the odds of being candidates together are at least this multiple of those in other rows."""

LOWER_FACTOR, UPPER_FACTOR = 0.5, 1.5
"""Guessed losses may be that much too high or too low, in addition to chance (`benchmarks.trust audit`)."""

TOO_NOISY = 0.08
"""Fraction of rows without their true label above which losses cannot be estimated."""

NORMAL_90 = 1.6448536269514722
"""A standard normal variable lies within ± this with probability 90 %."""

_HOTTEST = 100.0  # largest temperature of the search: all candidates of a row are then about equally likely
_MAX_QUANTILE_VALUES = 2**23
_MAX_PAIRS = 2**22  # pairs of classes to count at a time
_BLOCK_ROWS = 2**14
_MIN_ROWS_TOGETHER = 8.0  # rows that two classes must share before they can be inseparable
_MIN_PERCENT_TOGETHER = 1  # and the percentage of all rows
_PRIOR_ROWS = 5.0  # weight of the prior when fractions of few rows are shrunk


class Estimate(NamedTuple):
    """A guessed or measured fraction with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Budget:
    """The rule that removes candidates, fitted to held-out rows.

    Attributes
    ----------
    temperature : float
        The temperature of the largest candidate likelihood (`conformal.fit_temperature`).
    cautious : float
        The temperature that the rule uses, at least as high.
    error : float
        Expected fraction of rows whose most likely candidate is wrong, at `temperature`.
    excess : float
        Candidates per row that chance does not explain (`excess_membership`): about 0, unless wrong candidates resemble
        the true label.
    inseparable : Tensor of int, shape (P, 2)
        Pairs of classes that cannot be told apart, by number, in both orders (`find_inseparable`).
    missing : Estimate
        Fraction of rows whose true label is not a candidate (`estimate_missing`).
    at_chance : bool
        Whether the networks predict held-out rows no better than chance (`predicts_by_chance`).

    Notes
    -----
    There is no guarantee, only measurements. On average over rows, a fraction of about α or less lose their true label
    if the probabilities are those of held-out rows, the true label is a candidate, and wrong candidates do not depend
    on the features given the true label, or not more than in the synthetic sets that the constants were chosen on.

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
    missing: Estimate
    at_chance: bool

    @classmethod
    def of(
        cls, log_p: Tensor, S: Tensor, caution: float = EXCESS_AS_ERROR, alone: float = SEPARATE_FRACTION
    ) -> "Budget":
        """Fit the rule to log-probabilities (N, C) of held-out rows and to their candidates.

        Rows with all classes as candidates are unlabelled, so only the other rows tell how candidates depend on the
        features.
        """
        caution, alone = real("caution", caution, least=0), real("alone", alone, least=0, most=1)
        temperature = conformal.fit_temperature(log_p, S)
        error = expected_error(log_p, S, temperature)
        checks = (estimate_missing(log_p, S), predicts_by_chance(log_p, S))
        labelled = ~S.all(-1)
        if not labelled.any():
            none = torch.zeros(0, 2, dtype=torch.int64, device=S.device)
            return cls(temperature, temperature, error, 0.0, none, *checks)
        labelled_error = error
        if not labelled.all():
            log_p, S = log_p[labelled], S[labelled]
            labelled_error = expected_error(log_p, S, temperature)
        excess = excess_membership(log_p, S, temperature)
        assumed_error = labelled_error + caution * max(excess - labelled_error, 0.0)
        cautious = raise_temperature(log_p, S, temperature, assumed_error)
        inseparable = find_inseparable(conformal.candidate_probabilities(log_p, S, temperature), S, alone)
        return cls(temperature, cautious, error, excess, inseparable, *checks)

    @property
    def declined(self) -> str | None:
        """Why lost labels cannot be estimated and no candidate should be removed; None if they can."""
        if self.at_chance:
            return (
                "the networks predict held-out rows no better than chance, so they cannot tell which candidates are "
                "wrong; use a smaller learning rate, more epochs, or features that tell the classes apart"
            )
        if self.missing.low > TOO_NOISY:
            return (
                f"the true label seems to be missing from about {self.missing.value:.0%} of the candidate sets, so "
                "lost labels cannot be told from labels that were never there; check how the candidates were "
                "collected, or use a smaller learning rate if the held-out covering rate is low"
            )
        return None

    def probabilities(self, log_p: Tensor, S: Tensor) -> Tensor:
        """Return the cautious probability that each candidate is the true label, (N, C)."""
        return conformal.candidate_probabilities(log_p, S, self.cautious)

    def keep(self, log_p: Tensor, S: Tensor, alpha: float) -> Tensor:
        """Return the candidates that are kept at level `alpha`: `apply` with the `limits` of the same rows."""
        alpha = real("alpha", alpha, least=0, most=1)
        return next(self.keep_each(self.probabilities(log_p, S), S, [alpha]))

    def keep_each(self, q: Tensor, S: Tensor, alphas: Sequence[float]) -> Iterator[Tensor]:
        """Yield the candidates that are kept at each level, given their cautious probabilities."""
        return risk_budgets(q, S, alphas, by_class=True, protected=self._protect(q))

    def limits(self, log_p: Tensor, S: Tensor, alpha: float) -> Tensor:
        """Return the class limits at level `alpha`, (C,): `apply` removes candidates up to these probabilities.

        The limit of a class is -1 if none of its candidates can be removed.
        """
        alpha = real("alpha", alpha, least=0, most=1)
        q = self.probabilities(log_p, S)
        removable = find_removable(q, S, self._protect(q))
        return class_limits(q, removable, torch.tensor([alpha], dtype=torch.float64, device=q.device))[0]

    def levels(self, log_p: Tensor, S: Tensor) -> Tensor:
        """Return the smallest level at which `keep` removes each candidate, (N, C) in float64; inf if there is none.

        ``levels(log_p, S) > alpha`` is what ``keep(log_p, S, alpha)`` keeps of S, at every level `alpha`. The level is
        inf for a row's most likely candidate, for candidates that cannot be told from it, and for other classes.
        """
        q = self.probabilities(log_p, S)
        return self.class_levels(log_p, S).of(q, self.removable(q, S))

    def class_levels(self, log_p: Tensor, S: Tensor) -> "ClassLevels":
        """Return the smallest level at which `apply`, with the `limits` of these rows, removes each probability."""
        q = self.probabilities(log_p, S)
        values, levels = [], []
        for column, rows, total in zip(q.T, self.removable(q, S).T, q.sum(0, dtype=torch.float64), strict=True):
            distinct, spent = _add_up(column[rows])
            values.append(distinct)
            levels.append(_smallest_level(spent, total))
        return ClassLevels(torch.cat(values), torch.cat(levels), torch.tensor([len(one) for one in values]))

    def removable(self, q: Tensor, S: Tensor) -> Tensor:
        """Return the candidates that may be removed, given their cautious probabilities, (N, C)."""
        return find_removable(q, S, self._protect(q))

    def apply(self, log_p: Tensor, S: Tensor, limits: Tensor) -> Tensor:
        """Return the candidates that are kept, given the class limits of these or of other rows; no row is emptied.

        Only the log-probabilities of candidates are used.
        """
        q = self.probabilities(log_p, S)
        return _remove(q, S, find_removable(q, S, self._protect(q)), limits)

    def parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors and the other fields, in JSON types, for a file."""
        facts = {name: value for name, value in vars(self).items() if name != "inseparable"}
        return {"inseparable": self.inseparable}, facts | {"missing": list(self.missing)}

    @classmethod
    def of_parts(cls, tensors: Mapping[str, Tensor], facts: Any, num_classes: int) -> "Budget":
        """Return the rule whose `parts` returned these; raise ValueError if they are damaged."""
        number, share, flag = validation.number, validation.share, validation.flag
        fields = {"temperature": number, "cautious": number, "error": share, "excess": number, "at_chance": flag}
        validation.record(fields | {"missing": validation.list_of(share, 3, 3)})(facts, "the rule")
        temperature, cautious, (missing, low, high) = facts["temperature"], facts["cautious"], facts["missing"]
        rising = 1 <= temperature <= cautious <= _HOTTEST * (1 + 1e-9)  # exp and log round
        validation.require(rising, "temperature and cautious", (temperature, cautious))
        validation.require(low <= missing <= high, "missing", facts["missing"])
        pairs = tensors.get("inseparable")
        shaped = pairs is not None and pairs.dtype == torch.int64 and pairs.ndim == 2 and pairs.shape[1] == 2
        if pairs is None or not shaped or not ((pairs >= 0) & (pairs < num_classes)).all():
            raise ValueError("the pairs of classes that cannot be told apart are missing or damaged")
        return cls(**(facts | {"missing": Estimate(*facts["missing"]), "inseparable": pairs}))

    def _protect(self, q: Tensor) -> Tensor:
        """Return the classes that cannot be told from a row's most likely candidate, (N, C)."""
        top = q.argmax(-1)
        protected = torch.zeros_like(q, dtype=torch.bool)
        for j in self.inseparable[:, 0].unique():
            others = self.inseparable[self.inseparable[:, 0] == j, 1]
            protected[(top == j).nonzero(), others] = True
        return protected

    def lost(self, log_p: Tensor, S: Tensor, kept: Tensor) -> Estimate:
        """Guess the fraction of rows whose true label is a candidate that was removed (`estimate_lost`)."""
        fitted = conformal.candidate_probabilities(log_p, S, self.temperature)
        cautious = conformal.candidate_probabilities(log_p, S, self.cautious)
        return estimate_lost(fitted, cautious, S, kept, uninformed(log_p.argmax(-1), S))


@dataclass(frozen=True, eq=False)
class ClassLevels:
    """The smallest level at which candidates are removed, by class and cautious probability, fitted to held-out rows.

    Attributes
    ----------
    values : Tensor, shape (V,)
        The distinct probabilities of removable candidates: those of the first class in increasing order, then those of
        the second, and so on.
    levels : Tensor of float64, shape (V,)
        The smallest level at which each is removed.
    counts : Tensor of int, shape (C,)
        How many there are of each class.
    """

    values: Tensor
    levels: Tensor
    counts: Tensor

    def of(self, q: Tensor, removable: Tensor) -> Tensor:
        """Return the smallest level at which each candidate is removed, (N, C) in float64; inf if there is none.

        Parameters
        ----------
        q : Tensor, shape (N, C)
            Cautious probabilities, of the same rows or of others. A level depends on the candidate's own row only.
        removable : Tensor of bool, shape (N, C)
            `Budget.removable`; other candidates are not removed at any level.
        """
        found = torch.full(q.shape, torch.inf, dtype=torch.float64, device=q.device)
        sizes = self.counts.tolist()
        classes = zip(self.values.split(sizes), self.levels.split(sizes), strict=True)
        for level, column, rows, (values, levels) in zip(found.T, q.T, removable.T, classes, strict=True):
            never = torch.cat([levels, levels.new_tensor([torch.inf])])  # probabilities above all that were seen
            level[rows] = never[torch.searchsorted(values, column[rows].contiguous())]
        return found


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
    low, high = math.log(temperature), math.log(_HOTTEST)
    for _ in range(30):
        middle = (low + high) / 2
        if _error(gaps, math.exp(middle)) / len(S) < error:
            low = middle
        else:
            high = middle
    return math.exp(high)


def find_inseparable(q: Tensor, S: Tensor, alone: float = SEPARATE_FRACTION) -> Tensor:
    """Return the pairs of classes of which one is hardly ever likely without the other being a candidate, (P, 2).

    The data cannot tell such classes apart: all rows of one would look the same if they were rows of the other. With W
    the sum of both classes' q (N, C) over the rows with both, and A the smaller of the two classes' sums over the rows
    without the other, a pair is inseparable if ``A < alone·(A + W)``. Rare classes, and classes together by chance, are
    excluded: W must be at least 8 rows and 1 % of all rows, and the odds that one class is a candidate where the other
    is the most likely candidate must be at least 4 times the odds in rows where neither is. Each pair is returned in
    both orders.

    Examples
    --------
    >>> S = torch.tensor([[1, 1, 0]] * 40 + [[0, 1, 1], [0, 0, 1]] * 20).bool()
    >>> find_inseparable(S / S.sum(1, keepdim=True), S)
    tensor([[0, 1],
            [1, 0]])
    """
    n = len(S)
    least = max(_MIN_ROWS_TOGETHER, _MIN_PERCENT_TOGETHER * n / 100)
    weight = q.sum(0, dtype=torch.float64)
    # W is at most the sum of both weights, so one of the classes has half of it. These are at most 200 classes.
    heavy = (weight >= least / 2 * (1 - 1e-9)).nonzero()[:, 0]
    heavy_with, with_heavy = _count_together(q, S, heavy)
    together = heavy_with + with_heavy  # W
    apart = torch.minimum(weight[heavy, None] - heavy_with, weight - with_heavy)  # A
    few_apart = apart < alone * (apart + together)
    top = torch.zeros_like(S).scatter_(1, q.argmax(-1, keepdim=True), True)
    rows = top.sum(0)  # by the most likely candidate
    others = S.sum(0) - (top & S).sum(0)  # rows of other classes with the candidate
    top_heavy_with, top_with_heavy = _count_together(top, S, heavy)
    rows_elsewhere = n - rows[heavy, None] - rows
    ratio = torch.maximum(
        _odds(top_heavy_with, rows[heavy, None]) / _odds(others - top_heavy_with, rows_elsewhere),
        _odds(top_with_heavy, rows) / _odds(others[heavy, None] - top_with_heavy, rows_elsewhere),
    )
    found = (together >= least) & few_apart & (ratio >= TOGETHER_ODDS_RATIO)
    found[torch.arange(len(heavy)), heavy] = False
    i, k = found.nonzero().unbind(1)
    pairs = torch.stack([heavy[i], k], 1)
    return torch.cat([pairs, pairs.flip(1)]).unique(dim=0)


def _count_together(q: Tensor, S: Tensor, some: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for each pair of one of some classes and any class, two sums over the rows with both, (some, C).

    The first is the sum of q of some over the rows with the candidate, the second the other way around.
    """
    first = torch.zeros(len(some), S.shape[1], dtype=torch.float64, device=S.device)
    second = torch.zeros_like(first)
    for part, s in conformal.blocks(q, S):
        first.addmm_(part[:, some].double().T, s.double())
        second.addmm_(s[:, some].double().T, part.double())
    return first, second


def _odds(count: Tensor, total: Tensor) -> Tensor:
    """Return the odds of `count` out of `total`, kept finite by half an observation each way."""
    return (count + 0.5) / (total - count + 0.5)


def risk_budget(
    q: Tensor, S: Tensor, alpha: float, *, by_class: bool = False, protected: Tensor | None = None
) -> Tensor:
    """Return the candidates to keep: all but the least likely ones, whose summed probability is at most ``alpha·N``.

    If q (N, C) is the probability that a candidate is true, given features and candidate sets, then at most a fraction
    `alpha` of the rows are expected to lose their true label: on average over these rows, not for each row or for new
    rows. With `by_class`, the removed candidates of each class j sum to at most ``alpha·Σ_i q_ij``, so that a rare
    class does not pay for the others; in total that is ``alpha·N`` again. A row's most likely candidate is always kept,
    and so is every candidate that is `protected` (N, C). Equally likely candidates are removed together or not at all,
    so the order of rows and classes does not matter. The sets are nested in `alpha`.

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
    """Yield what `risk_budget` keeps at each level; the removable candidates are sorted only once."""
    removable = find_removable(q, S, protected)
    levels = torch.tensor(alphas, dtype=torch.float64, device=q.device)
    limits = class_limits(q, removable, levels) if by_class else _spend(q[removable], levels * len(S))[:, None]
    for limit in limits:
        yield _remove(q, S, removable, limit)


def find_removable(q: Tensor, S: Tensor, protected: Tensor | None = None) -> Tensor:
    """Return the candidates that may be removed, (N, C): all but a row's most likely one and protected ones."""
    removable = torch.empty_like(S)
    for part, q_part, s in conformal.blocks(removable, q, S):
        torch.logical_and(s, q_part < q_part.masked_fill(~s, -1).amax(-1, keepdim=True), out=part)
    if protected is not None:
        removable &= ~protected
    return removable


def class_limits(q: Tensor, removable: Tensor, levels: Tensor) -> Tensor:
    """Return the largest probability of each class that is removed at each level, (levels, C); -1 if there is none."""
    sums = q.sum(0, dtype=torch.float64)
    columns = zip(q.T, removable.T, sums, strict=True)
    return torch.stack([_spend(column[rows], levels * total) for column, rows, total in columns], 1)


def _remove(q: Tensor, S: Tensor, removable: Tensor, limits: Tensor) -> Tensor:
    """Return the candidates that are left when removable ones up to the limits of their classes are removed."""
    return S & ~(removable & (q <= limits))


def _spend(values: Tensor, amounts: Tensor) -> Tensor:
    """Return for each amount the largest value whose sum with all values up to it is at most the amount; -1 if none."""
    values, spent = _add_up(values)
    fits = torch.searchsorted(spent, _allow(amounts), right=True)
    return torch.cat([values.new_full((1,), -1), values])[fits]


def _add_up(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct values in increasing order, and for each the sum of all values up to it."""
    values = values.sort().values
    last = torch.cat([values[1:] != values[:-1], values.new_ones(len(values[:1]), dtype=torch.bool)])  # of equal values
    return values[last], values.cumsum(0, dtype=torch.float64)[last]


def _allow(amounts: Tensor) -> Tensor:
    return amounts * (1 + 1e-9)  # sums depend on their order


def _smallest_level(spent: Tensor, total: Tensor) -> Tensor:
    """Return the smallest level at which each sum is allowed, in the arithmetic of `_spend`."""
    level = torch.where(spent > 0, spent / _allow(total), 0.0)
    up, down = torch.full_like(level, torch.inf), torch.zeros_like(level)
    while (short := _allow(level * total) < spent).any():  # division rounds
        level = torch.where(short, level.nextafter(up), level)
    while (long := (level > 0) & (_allow((lower := level.nextafter(down)) * total) >= spent)).any():
        level = torch.where(long, lower, level)
    return level
