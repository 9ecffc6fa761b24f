"""The default rule that removes candidates after training: a risk budget, spent more cautiously on harder data.

Networks that learn from candidate sets are overconfident if wrong candidates look like the true label. Held-out rows
cannot show it directly, because the true label is unknown. They do show which classes are candidates: likely classes
besides the most likely candidate are then candidates more often than the probabilities and chance explain
(`excess_membership`). `Budget` counts a fraction of that excess as error, raises the temperature of the probabilities
accordingly and spends a `risk_budget` on each class. If two classes are hardly ever likely without each other
(`find_inseparable`), neither is removed in favour of the other. The experiments behind the rule are in
docs/evidence/trust.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from candidly import conformal
from candidly.checks.arguments import real
from candidly.cleaning.estimates import (
    HOTTEST,
    Estimate,
    estimate_lost,
    estimate_missing,
    excess_membership,
    expected_error,
    predicts_by_chance,
    raise_temperature,
    uninformed,
)
from candidly.store import validation

# All constants were chosen on synthetic candidate sets (docs/evidence/trust.md).

MIN_ROWS = 100
"""Smallest number of held-out rows that the rule is fitted to; with fewer, no candidate is removed."""

EXCESS_AS_ERROR = 0.15
"""Fraction of the excess (`excess_membership`) that counts as error."""

SEPARATE_FRACTION = 0.05
"""Two classes are inseparable if one has less than this fraction of its likely rows without the other …"""

TOGETHER_ODDS_RATIO = 4.0
"""… and the odds of being candidates together are at least this multiple of those in other rows."""

TOO_NOISY = 0.08
"""Fraction of rows without their true label above which losses cannot be estimated."""

_MIN_ROWS_TOGETHER = 8.0  # rows that two classes must share before they can be inseparable
_MIN_PERCENT_TOGETHER = 1  # and the percentage of all rows


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
        rising = 1 <= temperature <= cautious <= HOTTEST * (1 + 1e-9)  # exp and log round
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
