"""Estimates of what cleaning would cost, from candidate sets and held-out probabilities, before it is done."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from candidly import conformal, metrics
from candidly.cleaning.budget import EXCESS_AS_ERROR, Budget, Estimate, estimate_lost
from candidly.messages import cut, visible

__all__ = ["ALPHAS", "ASSUMPTIONS", "Audit", "Doubt", "Level", "Pair", "audit", "format_estimate"]

ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
"""Levels that are audited by default."""

ASSUMPTIONS = (
    "These are estimates without a guarantee. They assume that the true label is a candidate, and that wrong "
    "candidates depend on the features no more than in the synthetic sets that the rule was tested on."
)
"""What all estimates of an audit assume."""

NOISY = 0.03
"""Fraction of rows without their true label above which an audit warns."""

WORTH_SAYING = 0.005
"""Increase of the assumed error, by wrong candidates that depend on the features, from which an audit mentions it."""

FEW_OF_CLASS = 20
"""Rows below which a class is reported as doubtful."""

_WIDTH = 79  # columns at which printing wraps sentences
_MOST_NAMED = 10  # doubtful classes, or pairs, that `Audit.lines` lists
_LONGEST_NAME = 40  # columns of a class name that it shows


@dataclass(frozen=True)
class Level:
    """The effect of the default rule at one level.

    Attributes
    ----------
    alpha : float
        The level.
    lost : Estimate or None
        Estimated fraction of rows that would lose their true label; None where it cannot be estimated.
    removed : Estimate or None
        Estimated fraction of the wrong candidates that would be removed.
    candidates : int
        Number of candidates that would be removed, true or wrong.
    declined : str or None
        Why there is no estimate.
    true_lost, true_removed : float or None
        The actual fractions (`candidly.metrics.true_lost` and `candidly.metrics.wrong_removed`), if true labels were
        given.
    """

    alpha: float
    lost: Estimate | None
    removed: Estimate | None
    candidates: int
    declined: str | None
    true_lost: float | None
    true_removed: float | None


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
        Fraction of rows whose true label is not a candidate, as far as confident predictions show.
    error : float
        Expected fraction of rows whose most likely candidate is wrong.
    excess : float
        Candidates per row that chance does not explain (`candidly.cleaning.budget.excess_membership`): about 0, and
        larger the more wrong candidates resemble true labels.
    classes : tuple of Doubt
        Classes whose predictions are doubtful.
    pairs : tuple of Pair
        Classes that cannot be told apart.
    words : tuple of str
        Findings and advice in sentences that name no class.
    class_names : tuple of str or None
        Class names by number, for printing.
    """

    levels: tuple[Level, ...]
    missing: Estimate
    error: float
    excess: float
    classes: tuple[Doubt, ...]
    pairs: tuple[Pair, ...]
    words: tuple[str, ...]
    class_names: tuple[str, ...] | None = None

    def __str__(self) -> str:
        lines = self.lines()
        end = len(self.levels) + 1  # of the table, which is not wrapped
        wrapped = [textwrap.fill(line, _WIDTH, subsequent_indent="  ") for line in lines[end:]]
        return "\n".join([*lines[:end], *wrapped])

    def lines(self, used: float | None = None) -> list[str]:
        """Return the summary that printing shows, line by line; the level `used` is marked with an asterisk."""
        reasons = dict.fromkeys(one.declined for one in self.levels if one.declined is not None)
        pairs = [f"{self._name(one.numbers[0])} and {self._name(one.numbers[1])}: {one.why}" for one in self.pairs]
        doubts = [f"{self._name(one.number)}: {one.why}" for one in self.classes]
        marked = any(one.alpha == used for one in self.levels)
        return [
            *_table(self.levels, used),
            "Intervals are 90% intervals." + " *: the level alpha at which candidates are removed." * marked,
            *(f"No estimate: {reason}." for reason in reasons),
            ASSUMPTIONS,
            *self.words,
            *_listed("Classes that cannot be told apart:", pairs),
            *_listed("Doubtful classes:", doubts),
        ]

    def _name(self, number: int) -> str:
        return f"class {number}" if self.class_names is None else cut(visible(self.class_names[number]), _LONGEST_NAME)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the class names, in JSON types."""
        return {
            "levels": [
                vars(one) | {name: _plain(getattr(one, name)) for name in ("lost", "removed")} for one in self.levels
            ],
            "missing": _plain(self.missing),
            "error": self.error,
            "excess": self.excess,
            "classes": [vars(one) for one in self.classes],
            "pairs": [vars(one) | {"numbers": list(one.numbers)} for one in self.pairs],
            "words": list(self.words),
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any], class_names: Sequence[str] | None = None) -> "Audit":
        """Return the audit whose `to_json` returned these facts."""
        return cls(
            levels=tuple(
                Level(**{**one, "lost": _estimate(one["lost"]), "removed": _estimate(one["removed"])})
                for one in facts["levels"]
            ),
            missing=Estimate(*facts["missing"]),
            error=facts["error"],
            excess=facts["excess"],
            classes=tuple(Doubt(**one) for one in facts["classes"]),
            pairs=tuple(Pair(**{**one, "numbers": tuple(one["numbers"])}) for one in facts["pairs"]),
            words=tuple(facts["words"]),
            class_names=None if class_names is None else tuple(class_names),
        )


def audit(
    log_p: Tensor,
    S: Tensor,
    budget: Budget,
    *,
    alphas: Sequence[float] = ALPHAS,
    y: Tensor | None = None,
    class_names: Sequence[Any] | None = None,
) -> Audit:
    """Estimate what cleaning would cost at several levels, from held-out rows.

    Parameters
    ----------
    log_p, S : Tensor, shape (N, C)
        Log-probabilities of held-out rows, and their candidates.
    budget : Budget
        The rule, fitted to the same rows.
    alphas : sequence of float
        Levels.
    y : Tensor of int, shape (N,), optional
        True labels, -1 where unknown, to show the actual fractions beside the estimates. They change no estimate.
    class_names : sequence, optional
        Class names by number, for printing.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> log_p = 2 * torch.randn(500, 4, generator=generator)
    >>> y = log_p.softmax(-1).multinomial(1, generator=generator)[:, 0]  # probabilities that are right
    >>> S = (torch.rand(500, 4, generator=generator) < 0.3) | torch.eye(4).bool()[y]
    >>> level = audit(log_p, S, Budget.of(log_p, S), alphas=[0.05], y=y).levels[0]
    >>> level.lost.low <= level.true_lost <= level.lost.high
    True
    """
    missing, declined = budget.missing, budget.declined
    fitted = conformal.candidate_probabilities(log_p, S, budget.temperature)
    cautious = conformal.candidate_probabilities(log_p, S, budget.cautious)
    alphas = sorted(alphas)
    levels = []
    for alpha, kept in zip(alphas, budget.keep_each(cautious, S, alphas), strict=True):
        lost = None if declined else estimate_lost(fitted, cautious, S & ~kept)
        levels.append(_level(alpha, S, kept, lost, declined, y))
    classes = _doubt(fitted)
    pairs = _pairs(fitted, S, budget.inseparable)
    words = tuple(_words(budget, S, missing, classes, pairs))
    names = None if class_names is None else tuple(map(str, class_names))
    return Audit(tuple(levels), missing, budget.error, budget.excess, classes, pairs, words, names)


def _level(
    alpha: float, S: Tensor, kept: Tensor, lost: Estimate | None, declined: str | None, y: Tensor | None
) -> Level:
    candidates_removed = int((S & ~kept).count_nonzero())
    wrong = int(S.count_nonzero()) - len(S)

    def wrong_removed(fraction_lost: float) -> float:
        removed = candidates_removed - fraction_lost * len(S)
        return min(max(removed / max(wrong, 1), 0.0), 1.0)

    removed = None
    if lost is not None:  # the more true labels are lost, the fewer wrong candidates were removed
        removed = Estimate(wrong_removed(lost.value), wrong_removed(lost.high), wrong_removed(lost.low))
    true_lost, true_removed = _truth(S, kept, y)
    return Level(alpha, lost, removed, candidates_removed, declined, true_lost, true_removed)


def _truth(S: Tensor, kept: Tensor, y: Tensor | None) -> tuple[float | None, float | None]:
    """Return `metrics.true_lost` and `metrics.wrong_removed`, or None for both if no row counts for them."""
    if y is None:
        return None, None
    lost = float(metrics.true_lost(S, kept, y))
    if math.isnan(lost):
        return None, None
    removed = float(metrics.wrong_removed(S, kept, y))
    return lost, 0.0 if math.isnan(removed) else removed  # without wrong candidates, none was removed


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


def _words(budget: Budget, S: Tensor, missing: Estimate, classes: Sequence[Doubt], pairs: Sequence[Pair]) -> list[str]:
    """Return findings and what to do about them, in sentences."""
    ambiguous = int((S.sum(-1) > 1).sum())
    words = [
        f"{ambiguous} of {len(S)} rows have several candidates. Only these can lose one; fractions are of all rows.",
        f"The most likely candidate is wrong in about {budget.error:.1%} of the rows, if wrong candidates do not "
        "depend on the features.",
    ]
    if EXCESS_AS_ERROR * (budget.excess - budget.error) > WORTH_SAYING:
        words.append(
            f"Wrong candidates appear to depend on the features ({budget.excess:.2f} extra plausible candidates per "
            "row). Probabilities were softened: fewer candidates are removed and intervals are wider. Check some rows "
            "by hand."
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
    """Return one line per level; actual fractions stand beside the estimates if true labels are known."""
    known = any(one.true_lost is not None for one in levels)
    actual = ["actual"] if known else []
    rows = [["alpha", "true labels lost", *actual, "wrong candidates removed", *actual, "candidates removed"]]
    for one in levels:
        lost, removed = [format_estimate(one.lost)], [format_estimate(one.removed)]
        if known:
            lost.append(_percent(one.true_lost))
            removed.append(_percent(one.true_removed))
        rows.append([f"{one.alpha:g}" + " *" * (one.alpha == used), *lost, *removed, str(one.candidates)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def format_estimate(estimate: Sequence[float] | None) -> str:
    """Return an estimate (value, low, high) as text.

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
