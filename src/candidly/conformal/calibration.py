"""Calibration on held-out rows: conformity scores by fold, the p-values they give, and estimated error rates.

Error rates are estimated without true labels, from probabilities and candidates.
"""

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from candidly import conformal, metrics
from candidly.checks import arguments

Kind = Literal["split", "cv+", "averaged"]
Score = Literal["lac", "aps"]
Candidate = Literal["best", "mean", "pooled", "worst", "singletons"]
KINDS = get_args(Kind)
SCORES = get_args(Score)
CANDIDATES = {
    "best": conformal.best,
    "mean": conformal.mean,
    "pooled": conformal.pooled,
    "worst": conformal.worst,
    "singletons": conformal.singletons,
}
MOST_LEVELS = 100
"""Largest number of levels of an audit, the classifier's own included."""

_MOST_POINTS = 200  # of a risk curve
_DAMAGED = "the scores of held-out rows are missing or damaged; fit and save the model again"


@dataclass(frozen=True)
class Rule:
    """How p-values are computed; `candidly.PartialLabelClassifier.predict_p` says what each choice guarantees.

    Attributes
    ----------
    kind : {"split", "cv+", "averaged"}
        "split" uses the first fold only: its held-out rows and the networks that were not trained on them. "cv+"
        compares each fold's networks with the fold's held-out rows and adds up the counts. "averaged" compares the
        mean of all networks with the held-out rows of all folds.
    score : {"lac", "aps"}
        The conformity score of a class: its probability, or the randomised score of adaptive prediction sets.
    candidate : {"best", "mean", "pooled", "worst", "singletons"}
        How the scores of a held-out row's candidates become its calibration score: the largest, their mean, each one
        separately, the smallest, or only rows with a single candidate.
    smooth : bool
        Whether ties are broken at random.

    Examples
    --------
    >>> Rule(score="raps")
    Traceback (most recent call last):
        ...
    ValueError: score is 'raps'; use one of lac, aps
    """

    kind: Kind = "cv+"
    score: Score = "lac"
    candidate: Candidate = "best"
    smooth: bool = False

    def __post_init__(self) -> None:
        arguments.settings(self)

    @property
    def key(self) -> str:
        """Name of the calibration scores that it compares with, in `Calibration.scores`."""
        return f"{self.score}.{self.candidate}"


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of held-out rows, by networks that were not trained on them.

    Attributes
    ----------
    scores : dict of Tensor, shape (K, M)
        The scores of each fold's rows, ascending, padded with +inf, by score and candidate, such as "lac.best". There
        is one per row, with "pooled" one per candidate, and with "singletons" one per row that has a single candidate.
    counts : Tensor of int, shape (K,)
        Number of held-out rows of each fold.
    risk : Tensor, shape (3, T)
        Probability of the predicted class, in decreasing order; fraction of held-out rows with at least that
        probability; and their estimated error rate.
    seed : int
        Seed of `uniforms`.

    Examples
    --------
    >>> X, p, S = np.eye(3), torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]), torch.eye(2)[[0, 1, 1]].bool()
    >>> calibration = Calibration.of(X, p, S, torch.tensor([0, 0, 0]), 1)
    >>> calibration.p_values(np.ones((1, 3)), torch.tensor([[[0.7, 0.3]]]), Rule())
    tensor([[0.5000, 0.2500]], dtype=torch.float64)
    """

    scores: Mapping[str, Tensor]
    counts: Tensor
    risk: Tensor
    seed: int

    @classmethod
    def of(
        cls,
        X: NDArray[Any],
        p: Tensor,
        S: Tensor,
        fold: Tensor,
        folds: int,
        seed: int = 0,
        temperature: float = 1.0,
    ) -> "Calibration":
        """Calibrate on held-out rows.

        Parameters
        ----------
        X : ndarray, shape (N, ...)
            Encoded rows; their content seeds the random numbers of `uniforms`.
        p : Tensor, shape (N, C)
            Probabilities by networks that were not trained on the row.
        S : Tensor of bool, shape (N, C)
            Candidates.
        fold : Tensor of int, shape (N,)
            The fold in which each row was held out; -1 if it was not, and the row is left out.
        folds : int
            Number of folds.
        seed : int
            Seed of `uniforms`.
        temperature : float
            Temperature of `row_errors`.
        """
        conformities = {"lac": p, "aps": conformal.aps(p, uniforms(X, seed)[:, 0])}
        found = {
            f"{score}.{name}": _by_fold(function(conformities[score], S), fold, folds)
            for score in SCORES
            for name, function in CANDIDATES.items()
        }
        held_out = fold >= 0
        counts = torch.stack([(fold == k).sum() for k in range(folds)])
        return cls(found, counts, risk_curve(p[held_out], S[held_out], temperature), seed)

    def p_values(self, X: NDArray[Any], p: Tensor, rule: Rule) -> Tensor:
        """Return the p-values (n, C) of new rows X with each fold's probabilities p (K, n, C)."""
        scores = self.scores[rule.key]
        if rule.kind == "split":
            scores, p = scores[:1], p[:1]
        elif rule.kind == "averaged":
            p = p.mean(0, keepdim=True).expand_as(p)
        p = p.float()  # float32 like the stored scores, so that equal rows have exactly equal scores
        counts = _scores_per_fold(scores)
        u = uniforms(X, self.seed) if rule.smooth or rule.score == "aps" else torch.empty(0, 2)  # if it is used
        conformity = p if rule.score == "lac" else conformal.aps(p, u[:, 0])
        if rule.smooth:
            return conformal.smoothed_p_values(scores, counts, conformity, u[:, 1:])
        return conformal.cross_p_values(scores, counts, conformity)

    def number_of_scores(self, rule: Rule) -> int:
        """Return the number of scores that a rule compares with."""
        scores = self.scores[rule.key]
        return int(_scores_per_fold(scores[:1] if rule.kind == "split" else scores).sum())

    def check(self, rule: Rule) -> None:
        """Raise ValueError for a rule that has no scores to compare with."""
        self._check_rows("calibrate on")
        if not self.number_of_scores(rule):
            raise ValueError(
                f"no held-out row has a single candidate, which candidate={rule.candidate!r} compares with; use "
                "candidate='worst', or give more rows"
            )

    def check_level(self, alpha: float, rule: Rule) -> None:
        """Warn if a level is so small that every prediction set holds all classes."""
        number = self.number_of_scores(rule)
        if not rule.smooth and 1 / (number + 1) > alpha:  # the smallest p-value there can be
            what = {"pooled": "candidates of held-out rows", "singletons": "held-out rows with one candidate"}
            warnings.warn(
                f"{number} {what.get(rule.candidate, 'held-out rows')} are too few for alpha = {alpha}: every set "
                "holds all classes; use a larger alpha or hold out more rows",
                stacklevel=3,
            )

    def threshold(self, max_risk: float) -> float:
        """Return the lowest probability above which the estimated error rate is at most `max_risk`, or +inf."""
        self._check_rows("estimate errors on")
        threshold, _, risk = self.risk
        low = threshold[risk <= max_risk]
        if len(low):
            return float(low[-1])
        warnings.warn(
            f"max_risk is {max_risk}, but the estimated error rate is at least {risk.min():.3g} at any "
            "probability, so no row is predicted; use a larger max_risk",
            stacklevel=3,
        )
        return float("inf")

    def _check_rows(self, purpose: str) -> None:
        if not self.counts.any():
            raise ValueError(
                f"no rows were held out to {purpose}; set folds=5, or validation_fraction=0.2 with folds=1, and fit"
            )

    def tensors(self) -> dict[str, Tensor]:
        """Return everything by name, for a file."""
        named = {**self.scores, "counts": self.counts, "risk": self.risk, "seed": torch.tensor(self.seed, device="cpu")}
        return {f"calibration.{name}": value for name, value in named.items()}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor]) -> "Calibration":
        """Return a calibration from what `tensors` returned; raise ValueError if it is damaged."""
        found = {name.removeprefix("calibration."): value for name, value in tensors.items()}
        names = {f"{score}.{name}" for score in SCORES for name in CANDIDATES}
        if found.keys() != names | {"counts", "risk", "seed"}:
            raise ValueError(_DAMAGED)
        counts = found.pop("counts")
        risk = found.pop("risk")
        seed = found.pop("seed")
        intact = seed.dtype == torch.int64 and seed.ndim == 0 and _is_curve(risk)
        if not intact or not all(_are_scores(name.partition(".")[2], value, counts) for name, value in found.items()):
            raise ValueError(_DAMAGED)
        return cls(found, counts, risk, int(seed))


def read_levels(alphas: Iterable[float]) -> tuple[float, ...]:
    """Return levels in increasing order, without duplicates; raise ValueError if one is invalid.

    Examples
    --------
    >>> read_levels([0.1, 0.05, 0.1])
    (0.05, 0.1)
    """
    wanted = "a list of levels, such as [0.05, 0.1]"
    levels = [arguments.fraction("one of alphas", alpha) for alpha in arguments.items("alphas", alphas, wanted)]
    if not 0 < len(levels) < MOST_LEVELS:
        raise ValueError(f"alphas has {len(levels)} levels; give at least one and fewer than {MOST_LEVELS}")
    return tuple(sorted(set(levels)))


def uniforms(X: NDArray[Any], seed: int) -> Tensor:
    """Return two numbers on [0, 1) for each row, (n, 2), computed from its content and the seed.

    The first randomises the score "aps", the second breaks ties of smoothed p-values. A row gets the same numbers in
    any order and together with any other rows.

    Examples
    --------
    >>> u = uniforms(np.array([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0]]), 0)
    >>> bool((u[0] == u[2]).all()), bool((u[0] == u[1]).any())
    (True, False)
    """
    plain = X + 0.0 if X.dtype.kind == "f" else X  # -0.0 becomes 0.0
    key = int(seed).to_bytes(8, "little", signed=True)
    rows = np.ascontiguousarray(plain)
    digests = b"".join(hashlib.blake2b(row.data, digest_size=16, key=key).digest() for row in rows)
    bits = np.frombuffer(digests, "<u8").reshape(-1, 2) >> np.uint64(11)
    return torch.from_numpy(bits * 2.0**-53)


def row_errors(p: Tensor, S: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the estimated probability that the most probable class of each row is wrong, (N,), without true labels.

    It is 1 if that class is not a candidate, and otherwise 1 − q of it, with q the probability among the candidates at
    a temperature (`candidly.conformal.candidate_probabilities`). At temperature 1 the mean equals
    1 − `candidly.metrics.approximated_accuracy`; overconfident networks make this estimate too low.

    Examples
    --------
    >>> p = torch.tensor([[0.6, 0.2, 0.2], [0.1, 0.3, 0.6]])
    >>> row_errors(p, torch.tensor([[True, True, False], [True, True, False]]))
    tensor([0.2500, 1.0000])
    """
    best = p.argmax(-1, keepdim=True)
    q = conformal.candidate_probabilities(conformal.log(p), S, temperature)
    return (1 - q.gather(-1, best)).squeeze(-1).clamp_min(0)


def risk_curve(p: Tensor, S: Tensor, temperature: float = 1.0) -> Tensor:
    """Return probability, coverage and estimated error rate of held-out rows, at up to 200 points, (3, T), float64."""
    points = torch.stack(metrics.risk_coverage(p.amax(-1).double(), row_errors(p.double(), S, temperature)))
    m = points.shape[1]
    some = torch.linspace(0, m - 1, min(m, _MOST_POINTS), dtype=torch.float32).round().long()
    return points[:, some].unique_consecutive(dim=1)


def _is_curve(risk: Tensor) -> bool:
    """Return whether this is a risk curve."""
    if risk.dtype != torch.float64 or risk.ndim != 2 or len(risk) != 3 or risk.shape[1] > _MOST_POINTS:
        return False
    falls = (risk[0].diff() <= 0).all()
    rises = (risk[1].diff() >= 0).all()
    return bool(falls & rises & ((risk >= 0) & (risk <= 1.001)).all())  # rounding may exceed 1


def _are_scores(candidate: str, scores: Tensor, counts: Tensor) -> bool:
    """Return whether a tensor has the shape, order and number of scores that folds of `counts` rows give."""
    types = scores.dtype == torch.float32 and counts.dtype == torch.int64
    if not types or scores.ndim != 2 or counts.ndim != 1 or not len(scores) == len(counts) > 0:
        return False
    number = scores.isfinite().sum(1)
    plausible = {"pooled": number >= counts, "singletons": number <= counts}.get(candidate, number == counts)
    sorted_ = (scores[:, 1:] >= scores[:, :-1]).all() & ~scores.isnan().any() & ~scores.isneginf().any()
    return bool((plausible & (counts >= 0)).all() & sorted_)


def _scores_per_fold(scores: Tensor) -> Tensor:
    """Return the number of scores of each fold before the padding, (K,), by bisection."""
    return torch.searchsorted(scores, scores.new_full((len(scores), 1), torch.inf))[:, 0]


def _by_fold(scores: Tensor, fold: Tensor, folds: int) -> Tensor:
    """Return the scores of each fold, sorted and padded with +inf, (K, M); what is infinite is not a score."""
    parts = [scores[fold == k] for k in range(folds)]
    parts = [part[part.isfinite()].sort().values for part in parts]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=torch.inf)
