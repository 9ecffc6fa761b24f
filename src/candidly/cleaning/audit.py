"""What cleaning would cost: estimated from candidate sets and held-out probabilities, before anything is removed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from candidly import conformal, metrics
from candidly.cleaning.budget import NORMAL, Budget, Estimate, count_together, estimate_lost

__all__ = ["ALPHAS", "Audit", "Doubt", "Level", "Pair", "audit"]

ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
NOISY = 0.03  # share of rows whose true label is missing that is worth a word
TOO_NOISY = 0.08  # share of rows whose true label is missing that spoils estimates
FEW_OF_CLASS = 20


@dataclass(frozen=True)
class Level:
    """What the default rule would do at one level.

    Attributes
    ----------
    alpha : float
        The level.
    lost : Estimate or None
        Share of rows that would lose their true label; None where it cannot be estimated.
    removed : Estimate or None
        Share of the wrong candidates that would go.
    candidates : int
        How many candidates would go, right or wrong.
    declined : str or None
        Why there is no estimate.
    true_lost, true_removed : float or None
        What is estimated, counted on the rows whose true label is known and a candidate.
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
    """A class, by number, whose rows cannot be trusted; `rows` is how many it has, estimated."""

    number: int
    rows: float
    why: str


@dataclass(frozen=True)
class Pair:
    """Two classes, by number, that cannot be told apart; `rows` is how many are of either and have both, estimated."""

    numbers: tuple[int, int]
    rows: float
    why: str


@dataclass(frozen=True)
class Audit:
    """What cleaning would cost, and where it cannot be trusted.

    Attributes
    ----------
    levels : tuple of Level
        By rising alpha.
    missing : Estimate
        Share of rows whose true label is no candidate, as far as confident predictions show.
    error : float
        Expected share of rows whose most likely candidate is wrong.
    excess : float
        Candidates per row that chance does not explain (`candidly.cleaning.budget.excess_membership`): about 0, and the larger,
        the more wrong candidates resemble true labels.
    classes, pairs : tuple of Doubt, tuple of Pair
        Where not to trust it.
    words : tuple of str
        All this in sentences that name no class.
    """

    levels: tuple[Level, ...]
    missing: Estimate
    error: float
    excess: float
    classes: tuple[Doubt, ...]
    pairs: tuple[Pair, ...]
    words: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON types."""
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


def audit(
    log_p: Tensor, S: Tensor, budget: Budget, *, alphas: Sequence[float] = ALPHAS, y: Tensor | None = None
) -> Audit:
    """Estimate what cleaning costs, from log-probabilities (N, C) of rows that did not train and their candidates.

    Parameters
    ----------
    log_p, S : Tensor, shape (N, C)
        Log-probabilities and candidates.
    budget : Budget
        The rule, fitted to the same rows.
    alphas : sequence of float
        Levels.
    y : Tensor of int, shape (N,), optional
        True labels, -1 where unknown, to show the truth beside the estimates. They change no estimate.

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
    missing = estimate_missing(log_p, S)
    declined = _decline(missing)
    fitted, cautious = (conformal.candidate_probabilities(log_p, S, T) for T in (budget.temperature, budget.cautious))
    alphas = sorted(alphas)
    kept = budget.keep_each(cautious, S, alphas)
    levels = []
    for alpha, stay in zip(alphas, kept, strict=True):
        removed = S & ~stay
        lost = None if declined else estimate_lost(fitted, cautious, removed)
        levels.append(_level(alpha, S, removed, lost, declined, y))
    classes, pairs = _doubt(fitted), _pairs(fitted, S, budget.inseparable)
    words = tuple(_words(budget, S, missing, classes, pairs))
    return Audit(tuple(levels), missing, budget.error, budget.excess, classes, pairs, words)


def estimate_missing(log_p: Tensor, S: Tensor) -> Estimate:
    """Estimate the share η of rows whose true label is no candidate, with the interval of its profile likelihood.

    Of a row with the true label among its candidates the candidate likelihood is ``Σ_{j∈S} softmax(z/T)_j``; of another
    its candidates say nothing about z, and it is their share of all classes. η and T ≥ 1 maximise the mixture. The
    estimate tells noisy sets from clean ones, not how noisy they are: it is as a rule half as large again as the truth,
    or twice as large, and with few rows of classes that are hard to tell apart it may see nothing.
    """
    shares = torch.arange(0, 0.501, 0.01, dtype=torch.float64)
    temperatures = [10 ** (k / 24) for k in range(25)]
    fits = torch.zeros(len(shares), len(temperatures), dtype=torch.float64)
    for odds, (s,) in zip(conformal.candidate_log_odds(log_p, S, temperatures), conformal.blocks(S), strict=True):
        inside, chance = odds.sigmoid_(), s.double().mean(-1)
        for share, fit in zip(shares.tolist(), fits, strict=True):
            fit += inside.lerp(chance, share).clamp_min_(1e-300).log_().sum(-1).cpu()
    profile = fits.amax(1)
    within = shares[profile >= profile.max() - NORMAL**2 / 2]
    best = shares[profile >= profile.max() - 1e-6]  # of those that fit alike, as where all classes are candidates
    return Estimate(float(best[0]), float(within[0]), float(within[-1]))


def _decline(missing: Estimate) -> str | None:
    if missing.low > TOO_NOISY:
        return (
            f"in about {missing.value:.0%} of the rows the true label seems to be missing, so that what is lost "
            "cannot be told from what was never there"
        )
    return None


def _level(
    alpha: float, S: Tensor, removed: Tensor, lost: Estimate | None, declined: str | None, y: Tensor | None
) -> Level:
    gone, wrong, right = int(removed.count_nonzero()), int(S.count_nonzero()) - len(S), None
    if lost is not None:
        shares = [min(max((gone - share * len(S)) / max(wrong, 1), 0.0), 1.0) for share in lost]
        right = Estimate(shares[0], shares[2], shares[1])
    true_lost, true_removed = _truth(S, S & ~removed, y)
    return Level(alpha, lost, right, gone, declined, true_lost, true_removed)


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
    rows, (highest, top) = q.sum(0, dtype=torch.float64), q.max(-1)
    hidden = rows - top.bincount(highest.double(), len(rows))
    found = []
    for k, (total, behind) in enumerate(zip(rows.tolist(), hidden.tolist(), strict=True)):
        if total < FEW_OF_CLASS:
            found.append(Doubt(k, total, f"about {total:.0f} rows are too few to learn from"))
        elif behind > total / 2:
            found.append(Doubt(k, total, f"{behind / total:.0%} of its rows look more like another class"))
    return tuple(found)


def _pairs(q: Tensor, S: Tensor, inseparable: Tensor) -> tuple[Pair, ...]:
    if not inseparable.any():
        return ()
    both = count_together(q, S)
    without = (q.sum(0, dtype=torch.float64)[:, None] - both).clamp_min(0)  # rounding may leave less than nothing
    found = []
    for j, k in inseparable.triu().nonzero().tolist():
        apart = float(torch.minimum(without[j, k], without[k, j]))
        why = f"one of them is likely in about {apart:.0f} rows without the other"
        found.append(Pair((j, k), float(both[j, k] + both[k, j]), why))
    return tuple(sorted(found, key=lambda pair: -pair.rows))


def _words(budget: Budget, S: Tensor, missing: Estimate, classes: Sequence[Doubt], pairs: Sequence[Pair]) -> list[str]:
    ambiguous = int((S.sum(-1) > 1).sum())
    words = [
        f"{ambiguous} of {len(S)} rows have several candidates. Only these can lose one, but shares are of all rows.",
        f"The most likely candidate of about {budget.error:.1%} of the rows is wrong, if wrong candidates are drawn "
        "without regard to the features.",
    ]
    if budget.cautious > budget.temperature:
        words.append(
            f"They seem not to be: {budget.excess:.2f} more candidates per row than chance explains are among likely "
            "classes. Probabilities are tempered for it, fewer candidates go, and intervals are wide."
        )
    if missing.low > NOISY:
        words.append(
            f"Candidate sets look noisy: in {missing.low:.0%} to {missing.high:.0%} of the rows, as a rule too high an "
            "estimate, the true label seems to be no candidate. What is missing cannot be kept."
        )
    if pairs:
        several = "pairs" if len(pairs) > 1 else "pair"
        words.append(f"{len(pairs)} {several} of classes cannot be told apart; neither is removed for the other.")
    if classes:
        several = "classes" if len(classes) > 1 else "class"
        words.append(f"{len(classes)} {several} cannot be trusted: too few rows, or too few that look like the class.")
    return words


def _plain(estimate: Estimate | None) -> list[float] | None:
    return None if estimate is None else list(estimate)
