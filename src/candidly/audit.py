"""What cleaning would cost: estimated from candidate sets and held-out probabilities, before anything is removed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from candidly import conformal, metrics
from candidly.budget import NORMAL, Budget, Estimate

__all__ = ["ALPHAS", "Audit", "Doubt", "Level", "Pair", "audit"]

ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
NOISY, TOO_NOISY = (
    0.04,
    0.08,
)  # share of rows whose true label is missing that is worth a word, and that spoils estimates
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
        Candidates per row that chance does not explain (`candidly.budget.excess_membership`): about 0, and the larger,
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
    levels = tuple(_level(log_p, S, budget, alpha, declined, y) for alpha in sorted(alphas))
    q = conformal.candidate_probabilities(log_p, S, budget.temperature).double()
    classes, pairs = _doubt(q), _pairs(q, S, budget.inseparable)
    words = tuple(_words(budget, missing, classes, pairs))
    return Audit(levels, missing, budget.error, budget.excess, classes, pairs, words)


def estimate_missing(log_p: Tensor, S: Tensor) -> Estimate:
    """Estimate the share η of rows whose true label is no candidate, with the interval of its profile likelihood.

    Of a row with the true label among its candidates the candidate likelihood is ``Σ_{j∈S} softmax(z/T)_j``; of another
    its candidates say nothing about z, and it is their share of all classes. η and T ≥ 1 maximise the mixture. The
    estimate tells noisy sets from clean ones, not how noisy they are: it is as a rule half as large again as the truth,
    or twice as large, and with few rows of classes that are hard to tell apart it may see nothing.
    """
    chance = S.double().mean(-1)
    shares = torch.arange(0, 0.501, 0.01, dtype=torch.float64)
    profile = torch.full_like(shares, -torch.inf)
    for T in (10 ** (k / 24) for k in range(25)):
        inside = (log_p.double() / T).softmax(-1).masked_fill(~S, 0).sum(-1)
        fits = [((1 - share) * inside + share * chance).clamp_min(1e-300).log().sum() for share in shares.tolist()]
        profile = torch.maximum(profile, torch.stack(fits))
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


def _level(log_p: Tensor, S: Tensor, budget: Budget, alpha: float, declined: str | None, y: Tensor | None) -> Level:
    kept = budget.keep(log_p, S, alpha)
    gone, wrong = int((S & ~kept).sum()), int(S.sum()) - len(S)
    lost = removed = None
    if declined is None:
        lost = budget.lost(log_p, S, kept)
        shares = [min(max((gone - share * len(S)) / max(wrong, 1), 0.0), 1.0) for share in lost]
        removed = Estimate(shares[0], shares[2], shares[1])
    true_lost, true_removed = _truth(S, kept, y)
    return Level(alpha, lost, removed, gone, declined, true_lost, true_removed)


def _truth(S: Tensor, kept: Tensor, y: Tensor | None) -> tuple[float | None, float | None]:
    """Return the share of rows that lose their true label, and that of wrong candidates that go, of rows that tell."""
    if y is None:
        return None, None
    rows = (y >= 0) & S.gather(1, y.clamp_min(0)[:, None])[:, 0]
    if not rows.any():
        return None, None
    S, kept, y = S[rows], kept[rows], y[rows]
    wrong = S & ~torch.nn.functional.one_hot(y, S.shape[1]).bool()
    return float(metrics.pruning_error(S, kept, y)), int((wrong & ~kept).sum()) / max(int(wrong.sum()), 1)


def _doubt(q: Tensor) -> tuple[Doubt, ...]:
    rows, top = q.sum(0), q.argmax(-1)
    hidden = torch.stack([q[top != k, k].sum() for k in range(q.shape[1])])
    found = []
    for k, (total, behind) in enumerate(zip(rows.tolist(), hidden.tolist(), strict=True)):
        if total < FEW_OF_CLASS:
            found.append(Doubt(k, total, f"about {total:.0f} rows are too few to learn from"))
        elif behind > total / 2:
            found.append(Doubt(k, total, f"{behind / total:.0%} of its rows look more like another class"))
    return tuple(found)


def _pairs(q: Tensor, S: Tensor, inseparable: Tensor) -> tuple[Pair, ...]:
    found = []
    for j, k in inseparable.triu().nonzero().tolist():
        both = S[:, j] & S[:, k]
        rows = float(q[both][:, [j, k]].sum())
        apart = min(float(q[S[:, a] & ~S[:, b], a].sum()) for a, b in ((j, k), (k, j)))
        found.append(Pair((j, k), rows, f"one of them is likely in about {apart:.0f} rows without the other"))
    return tuple(sorted(found, key=lambda pair: -pair.rows))


def _words(budget: Budget, missing: Estimate, classes: Sequence[Doubt], pairs: Sequence[Pair]) -> list[str]:
    words = [
        f"The most likely candidate of about {budget.error:.1%} of the rows is wrong, if wrong candidates are drawn "
        "without regard to the features."
    ]
    if budget.cautious > budget.temperature:
        words.append(
            f"They are not: {budget.excess:.2f} candidates per row are there because they resemble the true label. "
            "Probabilities are tempered for it, fewer candidates go, and the intervals are wide."
        )
    if missing.low > NOISY:
        words.append(
            f"Candidate sets look noisy: in {missing.low:.0%} to {missing.high:.0%} of the rows "
            "the true label seems to be no candidate. What is missing cannot be kept."
        )
    if pairs:
        several = "pairs" if len(pairs) > 1 else "pair"
        words.append(f"{len(pairs)} {several} of classes cannot be told apart; neither is removed for the other.")
    if classes:
        several = "classes have" if len(classes) > 1 else "class has"
        words.append(f"{len(classes)} {several} too few rows, or too few that look like it, to be trusted.")
    return words


def _plain(estimate: Estimate | None) -> list[float] | None:
    return None if estimate is None else list(estimate)
