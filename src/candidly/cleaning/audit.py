"""What cleaning would cost at several levels: guesses from candidates alone, and what true labels show about it."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from candidly import conformal, metrics
from candidly.cleaning import exact
from candidly.cleaning.budget import EXCESS_AS_ERROR, Budget
from candidly.cleaning.certify import CANNOT_TELL, CAP
from candidly.cleaning.estimates import Estimate, estimate_error, estimate_lost, uninformed
from candidly.messages import cut, visible

__all__ = [
    "ALPHAS",
    "ASSUMPTIONS",
    "CONFIDENCE",
    "NOT_CHECKED",
    "Audit",
    "Doubt",
    "Known",
    "Level",
    "Pair",
    "Verified",
    "audit",
    "format_estimate",
    "format_guess",
]

ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
"""Levels that are audited by default."""

CONFIDENCE = 0.9
"""Probability with which intervals from checked rows hold the truth, and of the certificate that an audit asks for."""

NOT_CHECKED = -3
"""In place of a class number: the row was not drawn."""

ASSUMPTIONS = (
    "Guesses are not measurements: they come from candidates and networks, without true labels and without a "
    "guarantee. The ranges held nearly all losses where labels are known; on other data losses may lie outside."
)
"""What to think of the guesses of an audit."""

NOISY = 0.03
"""Fraction of rows without their true label above which an audit warns."""

WORTH_SAYING = 0.005
"""Increase of the assumed error, by wrong candidates that depend on the features, from which an audit mentions it."""

FEW_OF_CLASS = 20
"""Rows below which a class is reported as doubtful."""

_WIDTH = 79  # columns at which printing wraps sentences
_MOST_NAMED = 10  # doubtful classes, or pairs, that `Audit.lines` lists
_LONGEST_NAME = 40  # columns of a class name that it shows
_ROUNDING = 1e-9  # percents that are whole but for rounding stay as they are
_USUAL = 0.05  # the level that the first line is about, if none is used


@dataclass(frozen=True)
class Level:
    """The effect of the default rule at one level. All fractions of rows are of all audited rows.

    Attributes
    ----------
    alpha : float
        The level.
    lost : Estimate or None
        Guessed fraction of rows that would lose their true label; None where it cannot be guessed.
    removed : Estimate or None
        Guessed fraction of the wrong candidates that would be removed.
    candidates : int
        Number of candidates that would be removed, true or wrong.
    declined : str or None
        Why there is no guess.
    true_lost, true_removed : float or None
        If true labels were given: the actual fraction of the rows with a known true label that would lose it, and of
        wrong candidates that would be removed (`candidly.metrics.pruning_error` and `candidly.metrics.wrong_removed`).
    check : int or None
        Number of rows to check by hand to certify the level, if none of them loses its true label; None if so few rows
        can lose a candidate that a certificate would say nothing.
    verified : Estimate or None
        Fraction of rows that would lose their true label, with its exact interval, from rows that were checked by hand.
    """

    alpha: float
    lost: Estimate | None
    removed: Estimate | None
    candidates: int
    declined: str | None
    true_lost: float | None
    true_removed: float | None
    check: int | None
    verified: Estimate | None


@dataclass(frozen=True)
class Known:
    """Audited rows whose true label is known; in `outside` of them it is not a candidate, so it cannot be lost."""

    rows: int
    outside: int


@dataclass(frozen=True)
class Verified:
    """Rows that were checked by hand.

    Attributes
    ----------
    rows, unanswered : int
        Number of these rows, and of those whose true label nobody could tell.
    outside : int
        Rows whose true label is not a candidate, so that it cannot be lost.
    population : int
        Number of audited rows that `missing` is a fraction of: those that the checked rows were drawn from. If that is
        not known, all rows, or those with several candidates if no other row was checked.
    missing : Estimate
        Fraction of these whose true label is not a candidate, with its exact interval.
    """

    rows: int
    unanswered: int
    outside: int
    population: int
    missing: Estimate


@dataclass(frozen=True)
class Doubt:
    """A class, by number, whose predictions are doubtful; `rows` is its estimated number of rows."""

    number: int
    rows: float
    why: str


@dataclass(frozen=True)
class Pair:
    """Two classes, by number, that cannot be told apart; `rows` is the estimated number of their rows with both."""

    numbers: tuple[int, int]
    rows: float
    why: str


@dataclass(frozen=True)
class Audit:
    """What cleaning would cost at several levels, and which classes are doubtful. Print it to see a summary.

    Attributes
    ----------
    levels : tuple of Level
        By increasing alpha.
    missing : Estimate
        Guessed fraction of rows whose true label is not a candidate, as far as predictions show.
    error : Estimate
        Guessed fraction of rows whose most likely candidate is wrong.
    excess : float
        Candidates per row that chance does not explain (`candidly.cleaning.budget.excess_membership`): about 0, and
        larger the more wrong candidates resemble true labels.
    classes : tuple of Doubt
        Classes whose predictions are doubtful.
    pairs : tuple of Pair
        Classes that cannot be told apart.
    words : tuple of str
        Findings and advice in sentences that name no class.
    known : Known or None
        The rows whose true label was given; None if there is none.
    verified : Verified or None
        The rows that were checked by hand; None if there is none.
    class_names : tuple of str or None
        Class names by number, for printing.
    """

    levels: tuple[Level, ...]
    missing: Estimate
    error: Estimate
    excess: float
    classes: tuple[Doubt, ...]
    pairs: tuple[Pair, ...]
    words: tuple[str, ...]
    known: Known | None = None
    verified: Verified | None = None
    class_names: tuple[str, ...] | None = None

    def __str__(self) -> str:
        lines = self.lines()
        end = len(self.levels) + 2  # of the table, which is not wrapped
        wrapped = [textwrap.fill(line, _WIDTH, subsequent_indent="  ") for line in (lines[0], *lines[end:])]
        return "\n".join([wrapped[0], *lines[1:end], *wrapped[1:]])

    def status(self, used: float | None = None) -> str:
        """Return whether the audit is verified, and how many rows to check at the level `used` if it is not."""
        if self.verified is not None:
            return f"verified with {self.verified.rows} rows that were checked by hand"
        nearest = min(self.levels, key=lambda one: abs(one.alpha - (_USUAL if used is None else used)))
        if nearest.check is None:
            return f"not verified: at alpha {nearest.alpha:g} there is nothing to certify, too few rows can change"
        return f"not verified: check {nearest.check} rows to certify alpha {nearest.alpha:g} (candidly verify plan)"

    def lines(self, used: float | None = None) -> list[str]:
        """Return the summary that printing shows, line by line; the level `used` is marked with an asterisk."""
        reasons = dict.fromkeys(one.declined for one in self.levels if one.declined is not None)
        pairs = [f"{self._name(one.numbers[0])} and {self._name(one.numbers[1])}: {one.why}" for one in self.pairs]
        doubts = [f"{self._name(one.number)}: {one.why}" for one in self.classes]
        marked = any(one.alpha == used for one in self.levels)
        return [
            self.status(used),
            *_table(self.levels, used),
            "Fractions of rows are of all rows. Rows to check: enough to certify the level if none has lost its label."
            + " *: the level alpha at which candidates are removed." * marked,
            *(f"No guess: {reason}." for reason in reasons),
            *self.truths(),
            ASSUMPTIONS,
            *self.words,
            *_listed("Classes that cannot be told apart:", pairs),
            *_listed("Doubtful classes:", doubts),
        ]

    def truths(self) -> list[str]:
        """Return sentences on the rows whose true label is known or was checked."""
        found = []
        if self.known is not None:
            found.append(
                f"Actual fractions are of {self.known.rows} rows with a known true label. {_describe(self.known)}"
            )
        if self.verified is not None:
            one = self.verified
            unanswered = f", {one.unanswered} of them without an answer" if one.unanswered else ""
            found.append(
                f"Verified intervals are exact 90% intervals from {one.rows} checked rows{unanswered}, if these were "
                f"drawn at random and not chosen. {_describe(one)} So it is not a candidate in "
                f"{format_estimate(one.missing)} of the {one.population} rows that they were drawn from."
            )
        return found

    def _name(self, number: int) -> str:
        return f"class {number}" if self.class_names is None else cut(visible(self.class_names[number]), _LONGEST_NAME)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the class names, in JSON types."""
        return {
            "levels": [vars(one) | {name: _plain(getattr(one, name)) for name in _ESTIMATES} for one in self.levels],
            "missing": _plain(self.missing),
            "error": _plain(self.error),
            "excess": self.excess,
            "classes": [vars(one) for one in self.classes],
            "pairs": [vars(one) | {"numbers": list(one.numbers)} for one in self.pairs],
            "words": list(self.words),
            "known": None if self.known is None else asdict(self.known),
            "verified": None
            if self.verified is None
            else vars(self.verified) | {"missing": _plain(self.verified.missing)},
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any], class_names: Sequence[str] | None = None) -> "Audit":
        """Return the audit whose `to_json` returned these facts."""
        known, verified = facts["known"], facts["verified"]
        return cls(
            levels=tuple(
                Level(**{**one, **{name: _estimate(one[name]) for name in _ESTIMATES}}) for one in facts["levels"]
            ),
            missing=Estimate(*facts["missing"]),
            error=Estimate(*facts["error"]),
            excess=facts["excess"],
            classes=tuple(Doubt(**one) for one in facts["classes"]),
            pairs=tuple(Pair(**{**one, "numbers": tuple(one["numbers"])}) for one in facts["pairs"]),
            words=tuple(facts["words"]),
            known=None if known is None else Known(**known),
            verified=None if verified is None else Verified(**{**verified, "missing": Estimate(*verified["missing"])}),
            class_names=None if class_names is None else tuple(class_names),
        )


_ESTIMATES = ("lost", "removed", "verified")  # of a level


def audit(
    log_p: Tensor,
    S: Tensor,
    budget: Budget,
    *,
    alphas: Sequence[float] = ALPHAS,
    top: Tensor | None = None,
    n: int | None = None,
    y: Tensor | None = None,
    verified: Tensor | None = None,
    drawn_from: Tensor | None = None,
    class_names: Sequence[Any] | None = None,
) -> Audit:
    """Guess what cleaning would cost at several levels, from held-out rows.

    Parameters
    ----------
    log_p, S : Tensor, shape (N, C)
        Log-probabilities of held-out rows, and their candidates.
    budget : Budget
        The rule, fitted to the same rows.
    alphas : sequence of float
        Levels.
    top : Tensor of int, shape (N,), optional
        The most probable class of each row, candidate or not; needed if `log_p` is that of candidates only.
    n : int, optional
        Number of all rows, held out or not, for the number of rows to check; by default N.
    y : Tensor of int, shape (N,), optional
        True labels, -1 where unknown and -2 where they are not a class, to show the actual fractions beside the
        guesses. They change no guess.
    verified : Tensor of int, shape (N,), optional
        True labels of rows that were drawn at random, from all rows or from those with several candidates, and checked
        by hand: a class number, `candidly.cleaning.certify.NONE_OF_THESE`, `candidly.cleaning.certify.CANNOT_TELL`, or
        `NOT_CHECKED`. They give exact intervals beside the guesses.
    drawn_from : Tensor of bool, shape (N,), optional
        Which rows they were drawn from, if not as above, such as those of a verification plan. Levels that change other
        rows get no interval.
    class_names : sequence, optional
        Class names by number, for printing.

    Notes
    -----
    Only rows from which a level removes a candidate can lose their label. The checked rows among these are a random
    sample of them, because rows were drawn without looking at what the rule does. So the number of lost labels has the
    exact interval of `candidly.cleaning.exact.interval`, for this population and sample. A checked row without an
    answer counts as lost at the upper end of the interval, and as kept at the lower.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> log_p = 2 * torch.randn(500, 4, generator=generator)
    >>> y = log_p.softmax(-1).multinomial(1, generator=generator)[:, 0]  # probabilities that are right
    >>> S = (torch.rand(500, 4, generator=generator) < 0.3) | torch.eye(4).bool()[y]
    >>> checked = y.where(torch.arange(500) % 5 == 0, NOT_CHECKED)
    >>> level = audit(log_p, S, Budget.of(log_p, S), alphas=[0.05], y=y, verified=checked).levels[0]
    >>> level.lost.low <= level.true_lost <= level.lost.high, level.check
    (True, 26)
    >>> level.verified.low <= level.true_lost <= level.verified.high
    True
    """
    declined = budget.declined
    fitted = conformal.candidate_probabilities(log_p, S, budget.temperature)
    cautious = conformal.candidate_probabilities(log_p, S, budget.cautious)
    unknown = uninformed(log_p.argmax(-1) if top is None else top, S)
    alphas = sorted(alphas)
    largest = [CAP * alpha for alpha in alphas]  # what a certificate of the level may use
    populations = [int((S & ~kept).any(-1).sum()) for kept in budget.keep_each(cautious, S, largest)]
    levels = []
    for alpha, population, kept in zip(alphas, populations, budget.keep_each(cautious, S, alphas), strict=True):
        lost = None if declined else estimate_lost(fitted, cautious, S, kept, unknown)
        candidates = int((S & ~kept).count_nonzero())
        levels.append(
            Level(
                alpha,
                lost,
                None if lost is None else _removed(S, candidates, lost),
                candidates,
                declined,
                *_truth(S, kept, y),
                check=_rows_to_check(population, alpha, len(S) if n is None else n),
                verified=None if verified is None else _verify(S & ~kept, verified, drawn_from),
            )
        )
    error = estimate_error(fitted, cautious, S, unknown)
    classes = _doubt(fitted)
    pairs = _pairs(fitted, S, budget.inseparable)
    names = None if class_names is None else tuple(map(str, class_names))
    return Audit(
        tuple(levels),
        budget.missing,
        error,
        budget.excess,
        classes,
        pairs,
        tuple(_words(budget, S, error, classes, pairs)),
        _count_known(S, y),
        None if verified is None else _count_verified(S, verified, drawn_from),
        names,
    )


def _removed(S: Tensor, candidates: int, lost: Estimate) -> Estimate:
    """Guess the fraction of wrong candidates that are removed: the more true labels are lost, the fewer these are."""
    wrong = int(S.count_nonzero()) - len(S)
    values = [(candidates - share * len(S)) / max(wrong, 1) for share in (lost.value, lost.high, lost.low)]
    return Estimate(*(min(max(value, 0.0), 1.0) for value in values))


def _truth(S: Tensor, kept: Tensor, y: Tensor | None) -> tuple[float | None, float | None]:
    """Return the actual fractions of lost true labels and removed wrong candidates; None for both without labels."""
    known = None if y is None else y != CANNOT_TELL
    if y is None or known is None or not known.any():
        return None, None
    S, kept, y = S[known], kept[known], y[known]
    removed = float(metrics.wrong_removed(S, kept, y))
    lost = int(metrics.contains(S & ~kept, y).count_nonzero()) / len(y)
    return lost, 0.0 if math.isnan(removed) else removed  # without wrong candidates, none was removed


def _rows_to_check(population: int, alpha: float, n: int) -> int | None:
    """Return the number of rows that a certificate of the level needs, if no checked row loses its label."""
    allowed = exact.count_allowed(n, alpha)
    return exact.rows_needed(population, allowed, exact.risk(CONFIDENCE)) if population > allowed else None


def _verify(removed: Tensor, y: Tensor, drawn_from: Tensor | None) -> Estimate | None:
    """Return the fraction of rows that lose their label, with its exact interval, from the rows that were checked.

    Return None if some rows that lose a candidate could not be drawn.
    """
    changed = removed.any(-1)
    if drawn_from is not None and (changed & ~drawn_from).any():
        return None
    checked = changed & (y != NOT_CHECKED)
    low = int(metrics.contains(removed, y).count_nonzero())
    high = low + int((checked & (y == CANNOT_TELL)).count_nonzero())
    return _scale(low, high, int(checked.count_nonzero()), int(changed.count_nonzero()), len(y))


def _scale(low: int, high: int, checked: int, population: int, rows: int) -> Estimate:
    """Return the interval of the marked rows of a population as a fraction of all rows."""
    if not population:
        return Estimate(0.0, 0.0, 0.0)
    share = population / rows
    return Estimate(*(value * share for value in exact.interval(low, high, checked, population, CONFIDENCE)))


def _count_known(S: Tensor, y: Tensor | None) -> Known | None:
    rows = 0 if y is None else int((y != CANNOT_TELL).count_nonzero())
    if y is None or not rows:
        return None
    return Known(rows, rows - int(metrics.contains(S, y).count_nonzero()))


def _count_verified(S: Tensor, y: Tensor, drawn_from: Tensor | None) -> Verified:
    checked, unanswered = y != NOT_CHECKED, int((y == CANNOT_TELL).count_nonzero())
    several = S.sum(-1) > 1
    population = torch.ones_like(several) if (checked & ~several).any() else several
    if drawn_from is not None:
        population = drawn_from
    rows, total = int(checked.count_nonzero()), int(population.count_nonzero())
    outside = rows - unanswered - int(metrics.contains(S, y).count_nonzero())
    missing = _scale(outside, outside + unanswered, rows, total, total)
    return Verified(rows, unanswered, outside, total, missing)


def _describe(labels: Known | Verified) -> str:
    """Return a sentence on the rows whose true label is not a candidate."""
    if not labels.outside:
        return "In all of them it is a candidate."
    return f"In {labels.outside} of them it is not a candidate, so it cannot be lost."


def _doubt(q: Tensor) -> tuple[Doubt, ...]:
    """Return the classes with few rows, or with rows that mostly look like another class."""
    rows = q.sum(0, dtype=torch.float64)
    highest, top = q.max(-1)
    hidden = rows - top.bincount(highest.double(), len(rows))
    found = []
    for k, (total, behind) in enumerate(zip(rows.tolist(), hidden.tolist(), strict=True)):
        if total < FEW_OF_CLASS:
            found.append(Doubt(k, total, f"about {total:.0f} rows are too few to learn from"))
        elif behind > total / 2:
            found.append(Doubt(k, total, f"{behind / total:.0%} of its rows look more like another class"))
    return tuple(found)


def _pairs(q: Tensor, S: Tensor, inseparable: Tensor) -> tuple[Pair, ...]:
    """Return the inseparable pairs of classes, those with the most rows first."""
    found = []
    for j, k in inseparable[inseparable[:, 0] < inseparable[:, 1]].tolist():
        both = S[:, j] & S[:, k]
        rows = q[both][:, [j, k]].sum(dtype=torch.float64)
        without = q[~both][:, [j, k]].sum(0, dtype=torch.float64)
        why = f"one of them is likely in only about {float(without.min()):.0f} rows without the other"
        found.append(Pair((j, k), float(rows), why))
    return tuple(sorted(found, key=lambda pair: -pair.rows))


def _words(budget: Budget, S: Tensor, error: Estimate, classes: Sequence[Doubt], pairs: Sequence[Pair]) -> list[str]:
    """Return findings and what to do about them, in sentences."""
    ambiguous, missing = int((S.sum(-1) > 1).sum()), budget.missing
    words = [
        f"{ambiguous} of {len(S)} rows have several candidates. Only these can lose one.",
        f"The most likely candidate is wrong in a guessed {format_guess(error)} of the rows.",
    ]
    if EXCESS_AS_ERROR * (budget.excess - budget.error) > WORTH_SAYING:
        words.append(
            f"Wrong candidates appear to depend on the features ({budget.excess:.2f} extra plausible candidates per "
            "row). Probabilities were softened: fewer candidates are removed and the guessed ranges are wider."
        )
    if missing.low > NOISY:
        words.append(
            f"Candidate sets look noisy: the true label seems to be missing from {missing.low:.0%} to "
            f"{missing.high:.0%} of them, which is usually an overestimate. Cleaning cannot restore it: check how the "
            "candidates were collected."
        )
    if pairs:
        several = "pairs" if len(pairs) > 1 else "pair"
        words.append(
            f"{len(pairs)} {several} of classes cannot be told apart, so neither class is removed in favour of the "
            "other. Merge them, or label some of their rows by hand."
        )
    if classes:
        have = "classes have" if len(classes) > 1 else "class has"
        words.append(
            f"{len(classes)} {have} too few rows, or too few that look like the class. Add rows, or check the "
            "predictions by hand."
        )
    return words


def _table(levels: Sequence[Level], used: float | None) -> list[str]:
    """Return one line per level; what true labels show stands beside the guesses."""
    checked = any(one.verified is not None for one in levels)
    known = any(one.true_lost is not None for one in levels)
    lost, removed = ["true labels lost (guess)"], ["wrong candidates removed (guess)"]
    lost += ["verified"] * checked + ["actual"] * known
    removed += ["actual"] * known
    rows = [["alpha", *lost, *removed, "candidates removed", "rows to check"]]
    for one in levels:
        lost, removed = [format_guess(one.lost)], [format_guess(one.removed)]
        lost += [format_estimate(one.verified)] * checked + [_percent(one.true_lost)] * known
        removed += [_percent(one.true_removed)] * known
        check = "–" if one.check is None else str(one.check)
        rows.append([f"{one.alpha:g}" + " *" * (one.alpha == used), *lost, *removed, str(one.candidates), check])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def format_guess(guess: Sequence[float] | None) -> str:
    """Return the range of a guess (value, low, high) in whole percents, rounded outwards.

    Examples
    --------
    >>> format_guess(Estimate(0.021, 0.009, 0.081)), format_guess(None)
    ('0 to 9%', '–')
    """
    if guess is None:
        return "–"
    _, low, high = guess
    return f"{math.floor(100 * low + _ROUNDING)} to {math.ceil(100 * high - _ROUNDING)}%"


def format_estimate(estimate: Sequence[float] | None) -> str:
    """Return a measured fraction (value, low, high) as text.

    Examples
    --------
    >>> format_estimate(Estimate(0.021, 0.009, 0.044)), format_estimate(None)
    ('2.1% (0.9 to 4.4%)', '–')
    """
    if estimate is None:
        return "–"
    value, low, high = estimate
    return f"{value:.1%} ({100 * low:.1f} to {high:.1%})"


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else f"{fraction:.1%}"


def _listed(head: str, lines: Sequence[str]) -> list[str]:
    """Return a heading and a few of the lines below it; nothing if there are no lines."""
    if not lines:
        return []
    more = len(lines) - _MOST_NAMED
    rest = [f"  … and {more} more"] if more > 0 else []
    return [head, *(f"  {line}" for line in lines[:_MOST_NAMED]), *rest]


def _plain(estimate: Estimate | None) -> list[float] | None:
    return None if estimate is None else list(estimate)


def _estimate(values: Sequence[float] | None) -> Estimate | None:
    return None if values is None else Estimate(*values)
