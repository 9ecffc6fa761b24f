"""Certified cleaning: a bound on lost labels that holds for the rows at hand, from a random sample checked by hand.

**Setting.** A table has n rows with candidate sets. Rules that remove candidates are nested in a limit λ: a larger λ
removes more. `Budget.levels` gives the λ at which each candidate is removed, and rules above ``CAP · alpha`` are not
used. All rules are fixed before any label is looked at. A is the set of rows in which the largest λ removes anything.
No other row can lose its true label, and a row whose true label is not a candidate cannot lose it either. V is a sample
of m rows, drawn from A one by one, uniformly and without replacement. A person names the true labels of V, and V keeps
these labels whatever the rules remove. With k(λ) the number of rows of V whose true label is removed at λ, and
``a = ⌊alpha · n⌋``, let

    p(k) = P(Hyp(|A|, a + 1 + k, m) ≤ k)                                                              (`exact.p_value`)

where Hyp(N, K, m) is the number of marked rows in a sample of m out of N rows, K of them marked. The certificate uses
the largest λ with ``k(λ) ≤ K``, where K is the largest k with ``p(k) ≤ δ`` (`tolerated`).

**Statement.** With probability at least 1 − δ over the draw of V, at most a rows outside V lose their true label. So
at most a fraction alpha of all n rows do, because V keeps its labels.

**Proof.** Order the rows of A by the λ at which they lose their label, ties in any fixed order, rows that never lose it
last. Let B be the first a + 1 + K rows of A, or all of A if it has fewer. B does not depend on V. If A has fewer rows,
then p(K) = 0 can only be because at most a rows of A are outside V, and there is nothing to prove. Otherwise |B ∩ V|
has the distribution Hyp(|A|, a + 1 + K, m), so |B ∩ V| > K with probability at least 1 − p(K) ≥ 1 − δ. Then the rules
up to the chosen λ do not remove the labels of all rows of B, because k(λ) ≤ K < |B ∩ V|. The rows that lose their label
come first in the order, so all of them are in B, and those outside V are among
``a + 1 + K − |B ∩ V| ≤ a`` rows. ∎

Nothing is assumed about networks, groups, or how candidates came about, and no row needs to resemble another. K may be
found by bisection, because p increases: marking one more row adds at most one marked row to a sample, so
``P(Hyp(N, M, m) ≤ k) ≤ P(Hyp(N, M + 1, m) ≤ k + 1)``. Every distinct λ is used, and this costs nothing: fixed-sequence
testing needs no correction (A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan and L. Lei, *Learn then Test*,
2021).

**Conditions.** The rows are drawn by a seed and one by one, not chosen, and not by groups. The number of rows, alpha
and the confidence are fixed before the first answer. Rows without an answer count as lost from the smallest λ that
changes them: this can only increase k(λ). Answers are right; a person who sees the model's opinion may copy its errors.
Another family of rules, after a new training, needs another sample. docs/evidence/certify.md shows what happens
otherwise.

**Stopping early.** With ``sequential``, the certificate may be asked for after any number t of rows, in the order in
which they were drawn. `tolerated_by_prefix` gives the tolerated losses K_t, which do not fall with t. With B_t the
first a + 1 + K_t rows in the order above, and V_t the first t rows that were drawn, they are chosen such that
``P(|B_t ∩ V_t| ≤ K_t for some t) ≤ δ``. The same proof then holds for all t together.
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from candidly.candidates import Candidates
from candidly.checks import arguments
from candidly.cleaning.estimates import Estimate
from candidly.cleaning.exact import count_allowed, interval, risk, rows_needed, tolerated, tolerated_by_prefix
from candidly.messages import cut, visible
from candidly.store import validation

CAP = 4.0
"""Largest level that is used, as a multiple of alpha, so that rows in which nothing will be removed are not drawn.

It was chosen on synthetic candidate sets (docs/evidence/certify.md).
"""

CANNOT_TELL = -1
"""Answer of somebody who cannot tell the true label, in place of a class number."""

NONE_OF_THESE = -2
"""Answer that the true label is not a candidate, if its class is not known."""

MOST_SPENT = 0.5
"""The probabilities of error of all plans for one family must sum to less."""

_WIDTH = 79
_LONGEST_NAME = 40
_MOST_CLASSES = 10


def use_levels(levels: Tensor, alpha: float) -> Tensor:
    """Return the levels with inf for those above ``CAP · alpha``."""
    return levels.masked_fill(levels > CAP * alpha, torch.inf)


def loss_levels(levels: Tensor, S: Tensor, y: Tensor) -> Tensor:
    """Return the level at which each row loses its true label, (N,); inf if never.

    Parameters
    ----------
    levels : Tensor, shape (N, C)
        The level at which each candidate is removed; inf if never (`use_levels`).
    S : Tensor of bool, shape (N, C)
        Candidates.
    y : Tensor of int, shape (N,)
        True labels, `NONE_OF_THESE`, or `CANNOT_TELL`, which counts as lost when anything is removed from the row.
    """
    own = y.clamp_min(0)[:, None]
    of_label = torch.where(S.gather(1, own)[:, 0] & (y >= 0), levels.gather(1, own)[:, 0], torch.inf)
    return torch.where(y == CANNOT_TELL, levels.amin(1), of_label)


def largest_limit(levels: Tensor, lost: Tensor, most: int) -> float | None:
    """Return the largest level at which at most `most` checked rows lose their label; None if there is none.

    Parameters
    ----------
    levels : Tensor
        All levels; every distinct one is a rule.
    lost : Tensor, shape (m,)
        The level at which each checked row loses its label.
    most : int
        Tolerated losses, or -1.
    """
    if most < 0:
        return None
    possible = levels[levels.isfinite()]
    if most < len(lost):
        possible = possible[possible < lost.sort().values[most]]
    return float(possible.max()) if len(possible) else None


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is fixed before rows are drawn.

    Attributes
    ----------
    alpha : float
        Level: the fraction of all rows that may lose their true label.
    confidence : float
        Probability, over the draw, with which a plan alone gives a certificate that holds.
    seed : int
        The seed of the draw.
    sequential : bool
        Whether the certificate may be asked for after any number of rows, in the order in which they were drawn.
    family : str
        A hash of the cleaning rules: candidates, their probabilities, and the rule that orders them.
    """

    alpha: float
    confidence: float
    seed: int
    sequential: bool
    family: str

    @classmethod
    def of(cls, alpha: float, confidence: float, seed: int, sequential: bool, family: str) -> "Terms":
        """Return the terms after checking them; raise ValueError if one cannot be used."""
        return cls(
            alpha=arguments.fraction("alpha", alpha),
            confidence=arguments.fraction("confidence", confidence),
            seed=arguments.integer("seed", seed, least=0),
            sequential=arguments.flag("sequential", sequential),
            family=family,
        )


@dataclass(frozen=True, kw_only=True)
class VerificationPlan(Terms):
    """Rows to check by hand, drawn at random, and what will be certified from the answers.

    Attributes
    ----------
    alpha, confidence, seed, sequential, family
        The terms of the draw: the level, the confidence of this plan alone, the seed, whether the certificate may be
        asked for after any number of rows, and a hash of the cleaning rules.
    rows : tuple of int
        The rows to check, in the order in which they were drawn.
    number : int
        Position of the plan among those for the same rules, from 1.
    n : int
        Number of rows of the table, checked or not, whether or not they can lose a candidate.
    population : int
        Number of rows that can lose a candidate; `rows` were drawn from these.
    """

    rows: tuple[int, ...]
    number: int
    n: int
    population: int

    @property
    def m(self) -> int:
        """Number of rows to check; with `sequential`, the largest number."""
        return len(self.rows)

    @property
    def allowed(self) -> int:
        """Number of rows that may lose their true label."""
        return count_allowed(self.n, self.alpha)

    @cached_property
    def tolerated(self) -> tuple[int, ...]:
        """How many losses among the first t rows are tolerated, for t = 0 … m; only the last counts unless sequential.

        It is -1 where nothing can be certified.
        """
        delta = risk(self.confidence)
        if self.sequential:
            return tuple(tolerated_by_prefix(self.population, self.allowed, self.m, delta).tolist())
        return (*(-1 for _ in self.rows), tolerated(self.population, self.allowed, self.m, delta))

    def to_json(self) -> dict[str, Any]:
        """Return all fields in JSON types."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"rows": list(self.rows)}

    @classmethod
    def from_json(cls, facts: Any) -> "VerificationPlan":
        """Return the plan whose `to_json` returned these facts; raise ValueError if they are damaged."""
        count, share = validation.count, validation.share
        parts = {"alpha": share, "confidence": share, "seed": count(0), "sequential": validation.flag}
        parts |= {"family": validation.text, "number": count(1), "n": count(1), "population": count(1)}
        parts["rows"] = validation.distinct(validation.list_of(count(0), 1))
        validation.record(parts)(facts, "a plan")
        plan = cls(**(facts | {"rows": tuple(facts["rows"])}))
        sizes = plan.m <= plan.population <= plan.n and max(plan.rows) < plan.n
        validation.require(sizes and 0 < plan.alpha < 1 and 0 < plan.confidence < 1, "a plan", facts)
        return plan

    def __str__(self) -> str:
        least = next((t for t, most in enumerate(self.tolerated) if most >= 0), self.m)
        order = f", in this order; from {least} rows on, a certificate may be asked for" if self.sequential else ""
        earlier = " Earlier plans lower this confidence: the risks of all plans add up." if self.number > 1 else ""
        return (
            f"Plan {self.number}: check {self.m} rows{order}. They were drawn at random (seed {self.seed}) from the "
            f"{self.population} of {self.n} rows that can lose a candidate. As many candidates are removed as lose at "
            f"most {self.tolerated[-1]} true labels of these rows; then at most {self.allowed} of all rows "
            f"({_percent(self.alpha)}) lose theirs, with {_percent(self.confidence)} confidence.{earlier}"
        )


def left(plans: Sequence[Terms]) -> float:
    """Return the confidence of statements after all these plans for one family: 1 minus the sum of their risks.

    Examples
    --------
    >>> terms = {"alpha": 0.05, "confidence": 0.9, "seed": 0, "sequential": False, "family": ""}
    >>> plan = VerificationPlan(rows=(0, 1), number=1, n=10, population=5, **terms)
    >>> left([plan, plan])
    0.8
    """
    return float(1 - sum((1 - Decimal(repr(one.confidence)) for one in plans), Decimal(0)))


def draw(
    levels: Tensor, rows: Tensor, n: int, m: int, terms: Terms, earlier: Sequence[VerificationPlan]
) -> VerificationPlan:
    """Draw the rows to check, and return the plan.

    Parameters
    ----------
    levels : Tensor, shape (N, C)
        The level at which each candidate of some rows is removed (`Budget.levels`).
    rows : Tensor of int, shape (N,)
        Their numbers. Other rows lose no candidate.
    n : int
        Number of all rows.
    m : int
        Number of rows to check.
    terms : Terms
    earlier : sequence of VerificationPlan
        All earlier plans for the same family. A new draw does not depend on them, and their probabilities of error are
        added to the one of this plan.

    Raises
    ------
    ValueError
        If nothing could be certified, or nothing needs to be.
    """
    members = rows[use_levels(levels, terms.alpha).isfinite().any(1)].sort().values.numpy()
    return draw_from(len(members), n, m, terms, earlier, lambda rng: rng.permutation(members)[:m])


def draw_from(
    population: int,
    n: int,
    m: int,
    terms: Terms,
    earlier: Sequence[VerificationPlan],
    choose: Callable[[np.random.Generator], NDArray[np.integer[Any]]],
) -> VerificationPlan:
    """Draw the rows to check, as `draw`, if only the number of rows that can lose a candidate is in memory.

    Parameters
    ----------
    population : int
        The number of rows that can lose a candidate.
    n, m, terms, earlier
        As in `draw`.
    choose : callable
        Draws `m` of them, one by one and without replacement, and returns their numbers.
    """
    alpha, confidence = terms.alpha, terms.confidence
    allowed, delta = count_allowed(n, alpha), risk(confidence)
    if not population:
        raise ValueError("no candidate can be removed from any held-out row, so there is nothing to certify")
    if population <= allowed:
        raise ValueError(
            f"alpha is {alpha}, which allows {allowed} of {n} rows to lose their true label, but only {population} "
            "rows can lose a candidate at all, so a certificate would say nothing; use a smaller alpha"
        )
    if m > population:
        raise ValueError(f"m is {m}, but only {population} rows can lose a candidate; check at most {population}")
    if (rest := left([*earlier, terms])) <= 1 - MOST_SPENT:
        before = f" after {len(earlier)} earlier plans for this model, whose risks are added" if earlier else ""
        raise ValueError(
            f"confidence is {confidence}, which leaves {rest:.4g}{before}; more than {1 - MOST_SPENT} must be left, so "
            "use a higher confidence"
        )
    number = len(earlier) + 1
    chosen = tuple(choose(np.random.default_rng([terms.seed, number])).tolist())
    plan = VerificationPlan(rows=chosen, number=number, n=n, population=population, **vars(terms))
    if plan.tolerated[-1] < 0:
        needed = rows_needed(population, allowed, delta)
        raise ValueError(
            f"m is {m}, which is too few: even if none of them loses its true label, at least {needed} rows"
            f"{', and more with sequential,' * terms.sequential} must be checked at alpha {alpha} and confidence "
            f"{confidence}"
        )
    return plan


@dataclass(frozen=True, eq=False)
class Bound:
    """What is certified about cleaned candidates. Print it to see a summary.

    Attributes
    ----------
    plan : VerificationPlan
        The rows that were drawn.
    confidence : float
        Probability, over the draws, with which the statement holds: 1 minus the risks of all plans so far.
    limit : float or None
        The level of the rule that is used (`Budget.keep`); None if nothing may be removed.
    checked : int
        Number of drawn rows that count: all, or with `sequential` those up to the last answer.
    unknown : int
        How many of these have no answer.
    losses, tolerated : int
        How many checked rows would lose their true label by the rule, rows without an answer included, and how many
        were tolerated.
    changed : int
        Number of unchecked rows that lose a candidate.
    removed : int
        Number of candidates that they lose.
    removed_with_one_more : int
        How many they would lose if one more checked row would lose its true label at the smallest level.
    by_class : tuple of (name, int, int)
        For each class that was an answer in a checked row: its name, the number of these rows, and how many would lose
        it. A rare class may be lost completely within alpha.
    missing : Estimate
        Fraction of rows whose true label is not a candidate, among the rows that can lose a candidate; an exact
        interval at the confidence of the plan.
    """

    plan: VerificationPlan = field(repr=False)
    confidence: float
    limit: float | None
    checked: int
    unknown: int
    losses: int
    tolerated: int
    changed: int
    removed: int
    removed_with_one_more: int
    by_class: tuple[tuple[Any, int, int], ...]
    missing: Estimate

    @property
    def allowed(self) -> int:
        """Number of rows that may have lost their true label; 0 if nothing was removed."""
        return 0 if self.limit is None else min(self.plan.allowed, self.changed)

    @property
    def share_of_changed(self) -> float:
        """The bound as a fraction of the unchecked rows that lost a candidate; at most 1."""
        return self.allowed / self.changed if self.changed else 0.0

    @property
    def statement(self) -> str:
        """What is certified, in one sentence."""
        plan = self.plan
        of = f"{self.checked} rows drawn at random were checked, and {self.losses} of them would have lost it"
        if self.limit is None:
            return (
                f"Nothing can be removed at level alpha {plan.alpha:g}: {self.checked} rows drawn at random were "
                f"checked, and even the smallest change would lose more than the {max(self.tolerated, 0)} true labels "
                "that are tolerated among them."
            )
        return (
            f"With {_percent(self.confidence)} confidence, at most {self.allowed} of {plan.n} rows "
            f"({_percent(self.allowed / plan.n)}; alpha {plan.alpha:g}) have lost their true label: {of}."
        )

    def __str__(self) -> str:
        lines = [textwrap.fill(line, _WIDTH, subsequent_indent="  ") for line in self.lines()]
        return "\n".join(lines)

    def lines(self) -> list[str]:
        """Return the summary that printing shows, line by line; the first one is the statement."""
        lines = [self.statement]
        if self.limit is not None:
            lines.append(
                f"That is at most {_percent(self.share_of_changed)} of the {self.changed} unchecked rows that lost a "
                f"candidate ({self.removed} candidates)."
            )
        lines.append(
            "The confidence is over the draw of the rows. It assumes that the answers are right and were given without "
            "knowing what the model predicts."
        )
        if self.unknown:
            lines.append(f"{self.unknown} drawn rows have no answer. They count as lost, and keep all candidates.")
        if self.limit is not None:
            tolerated = f"{self.tolerated} {'loss was' if self.tolerated == 1 else 'losses were'} tolerated."
            fewer, removed = self.removed_with_one_more, self.removed
            change = f"{fewer} instead of {removed} candidates" if fewer < removed else "the same candidates"
            lines.append(f"{tolerated} With one more lost label, {change} would have been removed.")
        lost = [
            f"{cut(visible(str(name)), _LONGEST_NAME)} {gone} of {total}" for name, total, gone in self.by_class if gone
        ]
        if lost:
            more = f" and {len(lost) - _MOST_CLASSES} more classes" if len(lost) > _MOST_CLASSES else ""
            lines.append(f"Lost among the checked rows, by class: {', '.join(lost[:_MOST_CLASSES])}{more}.")
        if self.missing.value:
            low, high = self.missing.low, self.missing.high
            lines.append(
                f"The true label is not a candidate in {_percent(self.missing.value)} of the rows with an answer "
                f"({_percent(low)} to {_percent(high)} of the {self.plan.population} rows that they were drawn from). "
                "Such rows lose nothing, but have no right candidate."
            )
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return everything but the candidates, in JSON types; class names as text."""
        names = [one.name for one in fields(self) if one.name not in ("candidates", "plan", "by_class", "missing")]
        return {
            "statement": self.statement,
            **{name: getattr(self, name) for name in (*names, "allowed", "share_of_changed")},
            "by_class": [{"name": str(name), "checked": total, "lost": lost} for name, total, lost in self.by_class],
            "missing": list(self.missing),
            "plan": self.plan.to_json(),
        }


@dataclass(frozen=True, eq=False)
class Certificate(Bound):
    """Candidates after certified cleaning, and what is certified about them (`Bound`). Print it to see a summary.

    Attributes
    ----------
    candidates : Candidates
        The cleaned candidates of all rows. Rows with an answer have only the class that was named. Rows that were
        drawn but have no answer, and rows with none of the candidates as their true label, keep all candidates.
    """

    candidates: Candidates = field(repr=False)


@dataclass(frozen=True, eq=False)
class Decision:
    """Which rule the answers to a plan allow. Create it with `decide`.

    Attributes
    ----------
    plan : VerificationPlan
        The rows that were drawn.
    rows, y : Tensor of int, shape (t,)
        The drawn rows that count, and their answers.
    S : Tensor of bool, shape (t, C)
        Their candidates.
    lost : Tensor, shape (t,)
        The level at which each of them loses its true label.
    limit, fewer : float or None
        The largest level at which not too many of them do, and what it would be with one more lost label.
    """

    plan: VerificationPlan
    rows: Tensor
    y: Tensor
    S: Tensor
    lost: Tensor
    limit: float | None
    fewer: float | None

    def is_removed(self, usable: Tensor, *, with_one_more: bool = False) -> Tensor:
        """Return which candidates the rule removes, given their levels (`use_levels`)."""
        limit = self.fewer if with_one_more else self.limit
        return usable <= (-1.0 if limit is None else limit)

    def facts(
        self, classes: Sequence[Any], confidence: float, changed: int, removed: int, removed_with_one_more: int
    ) -> dict[str, Any]:
        """Return the fields of a `Bound`, given what was counted over all rows whose labels are not fixed."""
        plan, y, checked = self.plan, self.y, len(self.rows)
        is_lost = self.is_removed(self.lost)
        inside = self.S.gather(1, y.clamp_min(0)[:, None])[:, 0]
        outside = int(((y == NONE_OF_THESE) | ((y >= 0) & ~inside)).sum())
        unknown = int((y == CANNOT_TELL).sum())
        missing = Estimate(0.0, 0.0, 1.0)
        if checked:
            missing = interval(outside, outside + unknown, checked, plan.population, plan.confidence)
        return {
            "plan": plan,
            "confidence": confidence,
            "limit": self.limit,
            "checked": checked,
            "unknown": unknown,
            "losses": int(is_lost.sum()),
            "tolerated": plan.tolerated[checked],
            "changed": changed,
            "removed": removed,
            "removed_with_one_more": removed_with_one_more,
            "by_class": tuple(
                (classes[j], int((y == j).sum()), int((is_lost & (y == j)).sum())) for j in y[y >= 0].unique().tolist()
            ),
            "missing": missing,
        }


def count_checked(plan: VerificationPlan, answers: Mapping[int, int]) -> int:
    """Return how many drawn rows count: all, or with `sequential` those up to the last answer."""
    if not plan.sequential:
        return plan.m
    return max((t for t, row in enumerate(plan.rows, 1) if row in answers), default=0)


def decide(plan: VerificationPlan, usable: Tensor, S: Tensor, answers: Mapping[int, int], possible: Tensor) -> Decision:
    """Return which rule the answers to a plan allow.

    Parameters
    ----------
    plan : VerificationPlan
        What `draw` returned.
    usable, S : Tensor, shape (t, C)
        The levels (`use_levels`) and the candidates of the drawn rows that count (`count_checked`), in their order.
    answers : mapping of int to int
        As in `certify`.
    possible : Tensor
        All levels of rules, usable or not.
    """
    counted = torch.tensor(plan.rows[: len(S)], dtype=torch.int64)
    y = torch.tensor([answers.get(row, CANNOT_TELL) for row in counted.tolist()], dtype=torch.int64)
    lost = loss_levels(usable, S, y)
    most = plan.tolerated[len(S)]
    one_more = torch.cat([lost, torch.tensor([-1.0], dtype=lost.dtype)])
    possible = use_levels(possible, plan.alpha)
    return Decision(
        plan, counted, y, S, lost, largest_limit(possible, lost, most), largest_limit(possible, one_more, most)
    )


def certify(
    plan: VerificationPlan,
    levels: Tensor,
    rows: Tensor,
    candidates: Candidates,
    answers: Mapping[int, int],
    confidence: float,
) -> Certificate:
    """Return the certificate that the answers to a plan give.

    Parameters
    ----------
    plan : VerificationPlan
        What `draw` returned.
    levels, rows : Tensor
        As in `draw`.
    candidates : Candidates
        The candidates of all rows, before cleaning.
    answers : mapping of int to int
        The number of the true class by row, `CANNOT_TELL` or `NONE_OF_THESE`. Rows outside the plan do not count, but
        their labels are fixed.
    confidence : float
        What all plans so far leave (`left`).
    """
    S = torch.from_numpy(candidates.matrix.copy())
    place = torch.full((plan.n,), -1)
    place[rows] = torch.arange(len(rows))
    usable = use_levels(levels, plan.alpha)
    changes = usable.isfinite().any(1)
    drawn = place[list(plan.rows)]
    if int(changes.sum()) != plan.population or bool((drawn < 0).any()) or not bool(changes[drawn].all()):
        raise ValueError("the plan was made for other rows; plan a new verification")
    counted = torch.tensor(plan.rows[: count_checked(plan, answers)], dtype=torch.int64)
    found = decide(plan, usable[place[counted]], S[counted], answers, levels)
    kept, is_fixed = S.clone(), torch.zeros(plan.n, dtype=torch.bool)
    kept[rows] &= ~found.is_removed(usable)
    for row, fixed in fix_labels(found, S, answers).items():
        kept[row], is_fixed[row] = fixed, True
    gone = (S & ~kept)[~is_fixed]
    fewer = found.is_removed(usable[~is_fixed[rows]], with_one_more=True)
    counts = (int(gone.any(1).sum()), int(gone.sum()), int(fewer.sum()))
    return Certificate(
        **found.facts(candidates.classes, confidence, *counts),
        candidates=Candidates(kept.numpy(), candidates.classes, candidates.index),
    )


def fix_labels(found: Decision, S: Tensor | Mapping[int, Tensor], answers: Mapping[int, int]) -> dict[int, Tensor]:
    """Return what rows keep whose labels the rule does not touch, by row, (C,) each: those that count, and answers.

    Parameters
    ----------
    found : Decision
    S : Tensor of bool, shape (n, C), or mapping of int to Tensor
        The candidates of all these rows.
    answers : mapping of int to int
        As in `certify`.
    """
    fixed = {row: S[row] for row in found.rows.tolist()}
    for row, label in answers.items():
        if label >= 0:
            fixed[row] = torch.nn.functional.one_hot(torch.tensor(label), S[row].shape[0]).bool()
        elif label == NONE_OF_THESE:
            fixed[row] = S[row]
    return fixed


def _percent(share: float) -> str:
    """Return a fraction as a percentage with as few digits as needed.

    Examples
    --------
    >>> _percent(0.9), _percent(0.0499)
    ('90%', '5.0%')
    """
    text = f"{100 * share:.1f}"
    return f"{text.removesuffix('.0') if abs(100 * share - round(100 * share)) < 1e-9 else text}%"
