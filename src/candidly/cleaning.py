"""Cleaners prune candidate sets during training. They act in one place, `batch.candidates`, and know no method.

`Conformal` is the cleaner of Fuchs and Kalinke, *Partial-Label Learning with Conformal Candidate Cleaning*, UAI 2025
("UAI"); `Clsp` is that of He et al., *Candidate Label Set Pruning*, ICLR 2024; `Random` and `Oracle` are controls.
"""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from candidly import conformal
from candidly.methods.base import Batch
from candidly.neighbours import nearest
from candidly.problem import Problem, stream

Predict = Callable[[Tensor | None], Tensor]
"""Probabilities in evaluation mode: of given rows (R, M) or, with None, of all N rows."""


class Cleaner:
    """The contract of a cleaner, and the cleaner that changes nothing.

    A cleaner is a dataclass of settings; `fit` works on a copy of it. Attributes that are Tensors are its state: they
    are allocated in `setup` and afterwards only written in place.
    """

    noise: int = 0
    """How many uniforms `keep` uses per row."""

    def setup(self, problem: Problem) -> Problem:
        """Choose calibration rows and allocate state; return the problem to train on, with fewer rows or labels."""
        return problem

    def calibrate(self, predict: Predict, epoch: int) -> None:
        """Prepare for the steps of `epoch`, before its first one; gradients are off."""

    def keep(self, p: Tensor, S: Tensor, batch: Batch) -> Tensor:
        """Return a non-empty subset of every row of S (R, B, C), given the method's probabilities p."""
        return S

    def facts(self) -> dict[str, Tensor]:
        """Return what the history should record of this epoch, (R,) each."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """All state by attribute name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}


_ALPHA = {"off_candidate_mass": 0.0, "fixed": 0.05, "remark": 0.1}
_SCORES = {"best": conformal.best, "worst": conformal.worst, "mean": conformal.mean, "singletons": conformal.best}


@dataclass
class Conformal(Cleaner):
    """Conformal candidate cleaning: keep the labels that conform with the calibration rows' scores.

    A label is kept when its rank among the calibration scores, as a share, exceeds the level α_r; where no candidate
    would remain, all stay. The calibration scores are taken in evaluation mode before each epoch.

    Parameters
    ----------
    rule : {"revocable", "permanent"}
        "revocable" decides anew at every visit, from the original candidates and the step's own probabilities.
        "permanent" removes labels for good after each epoch, from one pass in evaluation mode (UAI, Algorithm 1).
    level : {"off_candidate_mass", "fixed", "remark"}
        α_r is `alpha` plus the mean probability outside the candidate sets (UAI's, over the previous epoch's steps, or
        over the evaluation pass with "permanent"), `alpha` itself, or UAI's Remark (`conformal.remark_level`).
    alpha : float, optional
        Left out, it is 0, 0.05 and 0.1 for the three levels.
    score : {"best", "worst", "mean", "singletons"}
        The score of a calibration row. With "singletons" only rows with a single candidate calibrate.
    calibration : {"reuse", "holdout", "auto"}
        Whether the calibration rows also train. "auto" is the published experiments' choice: all single-candidate rows
        if there are enough of them; and rows are held out only where there are 1000 or more per class.
    fraction : float
        Share of the rows that calibrate; at least 100 rows do (half of the rows where there are fewer than 200).
    warmup : int
        Epochs before the first cleaning.
    finite : bool
        Compare p-values ``(1 + rank)/(m + 1)`` with the level, the finite-sample rule, instead of ``rank/m``, UAI's.
    per_batch : bool
        Take the mass outside the sets from the step's own minibatch.
    shrink : bool
        Multiply probabilities by ``1 − 0.5^(epoch − warmup + 1)`` before they are ranked, as published.
    slack : float
        UAI's δ_3: how far below the threshold a label may lie.
    delta : float
        δ_4 of the Remark.
    dkw : bool
        Whether the Remark's level has its DKW term.

    Examples
    --------
    >>> Conformal.algorithm1().rule
    'permanent'
    """

    rule: Literal["revocable", "permanent"] = "revocable"
    level: Literal["off_candidate_mass", "fixed", "remark"] = "off_candidate_mass"
    alpha: float | None = None
    score: Literal["best", "worst", "mean", "singletons"] = "best"
    calibration: Literal["reuse", "holdout", "auto"] = "reuse"
    fraction: float = 0.2
    warmup: int = 10
    finite: bool = False
    per_batch: bool = False
    shrink: bool = False
    slack: float = 0.0
    delta: float = 0.05
    dkw: bool = True

    def __post_init__(self) -> None:
        options = {"rule": ("revocable", "permanent"), "level": _ALPHA, "score": _SCORES}
        for name, known in (options | {"calibration": ("reuse", "holdout", "auto")}).items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r} is unknown; use one of {', '.join(known)}")
        if self.alpha is not None and not 0 <= self.alpha < 1:
            raise ValueError(f"alpha is {self.alpha}; it must lie in [0, 1)")
        if not 0 < self.fraction < 1:
            raise ValueError(f"fraction is {self.fraction}; it must lie between 0 and 1")
        if self.per_batch and (self.rule == "permanent" or self.level == "remark"):
            raise ValueError("per_batch needs rule='revocable' and level='off_candidate_mass' or 'fixed'")

    @classmethod
    def published(cls, correction: bool = True) -> Self:
        """Return the rule of UAI's published experiments; without `correction`, its ablation (β = 0 and ε = 0)."""
        level: Any = "off_candidate_mass" if correction else "fixed"
        return cls(
            level=level, alpha=0.05, calibration="auto", finite=True, per_batch=correction, shrink=correction
        )

    @classmethod
    def algorithm1(cls) -> Self:
        """Return the rule of UAI's Algorithm 1.

        Line 4, the update of q, is the method's own: the pruned sets reach a row's weights at its next visit. At least
        100 rows calibrate, also where that is more than a fifth.
        """
        return cls(rule="permanent", calibration="holdout")

    def setup(self, problem: Problem) -> Problem:
        """Choose the calibration rows of each run."""
        runs = zip(problem.seeds, problem.rows, problem.sets, strict=True)
        chosen, trained = zip(*(self._choose(*run) for run in runs), strict=True)
        counts = [len(rows) for rows in chosen]
        if min(counts) == 0:
            raise ValueError("no calibration row has a single candidate; use another score, such as 'best'")
        self._check_level(min(counts))
        self.rows = torch.nn.utils.rnn.pad_sequence(list(chosen), batch_first=True)
        self.valid = torch.arange(max(counts), device=self.rows.device) < self.rows.new_tensor(counts)[:, None]
        new = problem.X.new_zeros
        self.scores, self.counts = new(self.rows.shape) + torch.inf, self.valid.sum(-1)
        self.level_r, self.factor = new(problem.runs) - 1, new(1) + 1  # no rank is below -1: nothing is pruned
        self.active, self.mass, self.seen = new(1), new(problem.runs), new(1)
        if self.rule == "permanent":
            self.pruned = problem.sets.clone()
        self.problem = replace(problem, rows=trained)
        return self.problem

    def _choose(self, seed: int, rows: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
        """Return one run's calibration rows and training rows."""
        n = len(rows)
        m = min(max(100, int(self.fraction * n)), n // 2)
        shuffled = rows[torch.randperm(n, generator=stream(seed, "calibration")).to(rows.device)]
        drawn = shuffled[:m].sort().values
        hold = self.calibration == "holdout" or (self.calibration == "auto" and n / S.shape[-1] >= 1000)
        single = rows[S[rows].sum(-1) == 1]
        if self.score == "singletons":
            single = drawn[S[drawn].sum(-1) == 1] if hold else single
            return single, shuffled[m:].sort().values if hold else rows
        calibrating = single if self.calibration == "auto" and len(single) >= m else drawn
        return calibrating, shuffled[m:].sort().values if hold else rows

    def _check_level(self, m: int) -> None:
        alpha = _ALPHA[self.level] if self.alpha is None else self.alpha
        if self.level == "remark":
            alpha = float(conformal.remark_level(alpha, torch.zeros(1), torch.tensor([m]), self.delta, self.dkw))
            if alpha <= 0:
                warnings.warn(
                    f"with {m} calibration rows the Remark's level is never positive ({alpha:.3f} at best), so nothing "
                    "will be pruned; use a larger alpha, more rows or dkw=False",
                    stacklevel=4,
                )
        elif self.level == "fixed" and 1 / (m + 1) >= alpha:
            warnings.warn(
                f"{m} calibration rows are too few for alpha = {alpha}: 1/(m+1) = {1 / (m + 1):.3f} is not below it; "
                "use more calibration rows or a larger alpha",
                stacklevel=4,
            )

    def calibrate(self, predict: Predict, epoch: int) -> None:
        """Prune for good by the last epoch's scores (permanent rule), then score the calibration rows anew."""
        if epoch >= self.warmup:
            self._set_level(predict, epoch)
        p = predict(self.rows)
        sets = self._sets().gather(1, self.rows[..., None].expand_as(p))
        scores, _ = conformal.sort_scores(_SCORES[self.score](p, sets), self.valid)
        self.scores.copy_(scores)
        self.active.fill_(float(epoch >= self.warmup))
        if self.shrink:
            self.factor.fill_(1 - 0.5 ** (epoch - self.warmup + 1))
        self.mass.zero_()
        self.seen.zero_()

    def _sets(self) -> Tensor:
        return self.pruned if self.rule == "permanent" else self.problem.sets

    def _set_level(self, predict: Predict, epoch: int) -> None:
        if self.rule == "permanent" and epoch > 0:  # `epoch` epochs are over: r = epoch in Algorithm 1
            p = predict(None)
            member = self.problem.members
            off = conformal.off_candidate_mass(p, self.pruned)
            self.level_r.copy_(self._level(off.masked_fill(~member, 0).sum(-1) / member.sum(-1)))
            kept = self.pruned & self._conform(p, self.level_r[:, None, None])
            self.pruned.copy_(torch.where(kept.any(-1, keepdim=True) & member.unsqueeze(-1), kept, self.pruned))
        elif self.rule == "revocable" and not self.per_batch:
            self.level_r.copy_(self._level(self.mass / self.seen.clamp_min(1)))

    def _level(self, error: Tensor) -> Tensor:
        alpha = _ALPHA[self.level] if self.alpha is None else self.alpha
        if self.level == "off_candidate_mass":
            return alpha + error
        if self.level == "fixed":
            return torch.full_like(error, alpha)
        return conformal.remark_level(alpha, error, self.counts, self.delta, self.dkw)

    def _conform(self, p: Tensor, level: Tensor) -> Tensor:
        share = conformal.p_values if self.finite else conformal.cumulative
        return share(self.scores, self.counts, p * self.factor + self.slack) > level

    def keep(self, p: Tensor, S: Tensor, batch: Batch) -> Tensor:
        """Intersect with the conforming labels, or with what Algorithm 1 has left; never empty a row."""
        error = conformal.off_candidate_mass(p, batch.S).mean(-1)
        self.mass += error
        self.seen += 1
        if self.rule == "permanent":
            kept = S & batch.take(self.pruned)
        else:
            level = self.level_r
            if self.per_batch:
                level.copy_(torch.where(self.active > 0, self._level(error), -1.0))
            kept = S & self._conform(p, level[:, None, None])
        return torch.where(kept.any(-1, keepdim=True), kept, S)

    def facts(self) -> dict[str, Tensor]:
        """Return the level α_r and the threshold it stands for."""
        return {
            "alpha": self.level_r.clone(),
            "threshold": conformal.threshold(self.scores, self.counts, self.level_r, self.finite),
        }


@dataclass
class Clsp(Cleaner):
    """Candidate label set pruning (CLSP): before training, drop candidates that a row's neighbours do not share.

    With N_k(i) the k nearest rows by cosine similarity, a candidate j of row i gets ``O_ij = Σ_{v∈N_k(i)} (1 − S_vj)``
    down-votes. At most ``g_i = ⌈τ(|S_i| − 1)⌉`` labels go: those with strictly more down-votes than the g_i-th largest,
    counted from 0. Ties stay, single candidates stay, no row empties.

    Parameters
    ----------
    k : int
        Neighbours per row.
    tau : float
        Pruning strength in [0, 1].
    features : array (N, d), optional
        What neighbours are searched in; the problem's own features when left out.

    Notes
    -----
    The paper searches in features learned by a network; raw features are this library's default. Its settings
    (k, τ) are (150, 0.6) for uniform, (50, 0.6) for label-dependent and (5, 0.2) for instance-dependent candidates.

    Examples
    --------
    >>> Clsp(k=5).tau
    0.2
    """

    k: int = 10
    tau: float = 0.2
    features: Any = field(default=None, repr=False)

    def setup(self, problem: Problem) -> Problem:
        """Prune each run's sets, looking for neighbours among its own rows."""
        X = problem.X if self.features is None else torch.as_tensor(np.asarray(self.features)).to(problem.X)
        if len(X) != len(problem.X):
            raise ValueError(f"features has {len(X)} rows but the problem has {len(problem.X)}; give one row per row")
        unit = F.normalize(X.flatten(1), dim=-1)
        pruned = problem.sets.clone()
        for S, rows in zip(pruned, problem.rows, strict=True):
            S[rows] = self.prune(S[rows], nearest(unit[rows], min(self.k, len(rows) - 1)))
        return replace(problem, S=pruned)

    def prune(self, S: Tensor, neighbours: Tensor) -> Tensor:
        """Prune S (n, C) given each row's neighbours (n, k), one neighbour at a time: no n × k × C array."""
        votes = torch.zeros(S.shape, dtype=torch.int32, device=S.device)
        for column in neighbours.unbind(1):
            votes += ~S[column]
        votes.masked_fill_(~S, 0)
        most = torch.ceil(self.tau * (S.sum(-1) - 1).double() - 1e-9).long()  # 1e-9: τ = 0.2 times 5 is 1, not 1 + ulp
        limit = votes.sort(-1, descending=True).values.gather(-1, most.unsqueeze(-1))
        return S & (votes <= limit)


@dataclass
class Random(Cleaner):
    """A control: remove as many labels from each row as another cleaner would, but at random.

    Parameters
    ----------
    like : Cleaner
        The cleaner that says how many labels go.

    Examples
    --------
    >>> Random(Conformal.published()).like.alpha
    0.05
    """

    like: Cleaner

    def setup(self, problem: Problem) -> Problem:
        """Set up the other cleaner; one that prunes before training is imitated there and then."""
        self.like = copy.copy(self.like)
        self.noise = self.like.noise + problem.num_classes
        trained = self.like.setup(problem)
        if trained.S is problem.S:
            return trained
        keys = [torch.rand(S.shape, generator=stream(s, "control")) for s, S in zip(problem.seeds, problem.sets, strict=True)]
        return replace(trained, S=_at_random(problem.sets, trained.sets, torch.stack(keys).to(problem.X)))

    def calibrate(self, predict: Predict, epoch: int) -> None:
        """Calibrate the other cleaner."""
        self.like.calibrate(predict, epoch)

    def keep(self, p: Tensor, S: Tensor, batch: Batch) -> Tensor:
        """Keep as many labels of each row as the other cleaner."""
        return _at_random(S, self.like.keep(p, S, batch), batch.noise(S.shape[-1]))

    def facts(self) -> dict[str, Tensor]:
        """Return the other cleaner's facts."""
        return self.like.facts()

    def state(self) -> dict[str, Tensor]:
        """Return the other cleaner's state."""
        return self.like.state()


def _at_random(S: Tensor, kept: Tensor, keys: Tensor) -> Tensor:
    """Random subsets of S with as many labels as `kept`."""
    rank = keys.masked_fill(~S, 2).argsort(-1).argsort(-1)
    return S & (rank < kept.sum(-1, keepdim=True))


@dataclass
class Oracle(Cleaner):
    """A control for benchmarks: keep the true label alone wherever it is a candidate.

    Parameters
    ----------
    y : array of int (N,)
        True labels.

    Examples
    --------
    >>> Oracle([0, 1]).y
    [0, 1]
    """

    y: Any = field(repr=False)

    def setup(self, problem: Problem) -> Problem:
        """Move the labels to the device."""
        labels = torch.as_tensor(np.asarray(self.y), dtype=torch.int64, device=problem.X.device)
        if labels.shape != problem.X.shape[:1]:
            raise ValueError(f"y has shape {tuple(labels.shape)} but there are {len(problem.X)} rows")
        self.true = F.one_hot(labels, problem.num_classes).bool().expand(problem.runs, -1, -1).contiguous()
        return problem

    def keep(self, p: Tensor, S: Tensor, batch: Batch) -> Tensor:
        """Keep the true label."""
        kept = S & batch.take(self.true)
        return torch.where(kept.any(-1, keepdim=True), kept, S)
