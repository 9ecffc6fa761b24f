"""Conformal candidate cleaning.

T. Fuchs and F. Kalinke, *Partial-Label Learning with Conformal Candidate Cleaning*, UAI 2025 ("UAI").
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor

from candidly import conformal
from candidly.engine.contract import Batch, Cleaner, Predict
from candidly.engine.problem import Problem, stream

_ALPHA = {"off_candidate_mass": 0.0, "fixed": 0.05, "remark": 0.1}
_SCORES = {"best": conformal.best, "worst": conformal.worst, "mean": conformal.mean, "singletons": conformal.best}


@dataclass
class Conformal(Cleaner):
    """Conformal candidate cleaning: keep the labels that conform with the calibration rows' scores.

    A label is kept when its rank among the calibration scores, as a share, exceeds the level α_r; where no candidate
    would remain, all stay. The calibration scores are taken in evaluation mode before each epoch.

    From the warm-up on the history has ``estimated_lost``, an estimate from data alone of the share of rows whose true
    label the cleaner removes, or has removed ("permanent"). It is made on the randomly drawn calibration rows: the mean
    weight of their removed candidates, ``Σ_{j∈S removed} q_j`` with ``q = norm_S(p^(1/T))``, S the original candidates
    and T ≥ 1 the temperature at which the candidates are the most probable. It is an estimate and no bound. With
    "holdout" these rows did not train. With "reuse" they did, the network has learned what was left of them, and the
    estimate is far too low after some epochs.

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
    stop : float
        With "permanent", a run whose next removal would lift ``estimated_lost`` above this removes nothing from then
        on. It is the same number for all three levels, which mean different things; 1 never stops.

    Examples
    --------
    >>> Conformal.algorithm1().rule
    'permanent'
    >>> Conformal(rule="permanent", calibration="holdout", stop=0.02).stop
    0.02
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
    stop: float = 0.05

    def __post_init__(self) -> None:
        options = {"rule": ("revocable", "permanent"), "level": _ALPHA, "score": _SCORES}
        for name, known in (options | {"calibration": ("reuse", "holdout", "auto")}).items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r} is unknown; use one of {', '.join(known)}")
        if self.alpha is not None and not 0 <= self.alpha < 1:
            raise ValueError(f"alpha is {self.alpha}; it must lie in [0, 1)")
        if not 0 < self.fraction < 1:
            raise ValueError(f"fraction is {self.fraction}; it must lie between 0 and 1")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta is {self.delta}; it must lie between 0 and 1")
        if self.warmup < 0:
            raise ValueError(f"warmup is {self.warmup}; it must not be negative")
        if isinstance(self.stop, bool) or not 0 < self.stop <= 1:
            raise ValueError(f"stop is {self.stop}; give a share of lost labels above 0, or 1 to never stop")
        if self.per_batch and (self.rule, self.level) != ("revocable", "off_candidate_mass"):
            raise ValueError("per_batch needs rule='revocable' and level='off_candidate_mass'")
        if self.shrink and self.rule == "permanent":
            raise ValueError("shrink needs rule='revocable'; what is removed for good is not eased in")

    @classmethod
    def published(cls, correction: bool = True) -> Self:
        """Return the rule of UAI's published experiments; without `correction`, its ablation (β = 0 and ε = 0)."""
        level: Any = "off_candidate_mass" if correction else "fixed"
        return cls(level=level, alpha=0.05, calibration="auto", finite=True, per_batch=correction, shrink=correction)

    @classmethod
    def algorithm1(cls) -> Self:
        """Return the rule of UAI's Algorithm 1, which never stops.

        Line 4, the update of q, is the method's own: the pruned sets reach a row's weights at its next visit. At least
        100 rows calibrate, also where that is more than a fifth.
        """
        return cls(rule="permanent", calibration="holdout", stop=1.0)

    def setup(self, problem: Problem) -> Problem:
        """Choose the calibration rows of each run."""
        runs = zip(problem.seeds, problem.rows, problem.sets, strict=True)
        chosen, drawn, trained = zip(*(self._choose(*run) for run in runs), strict=True)
        fewest = min(len(rows) for rows in chosen)
        if fewest == 0:
            raise ValueError("no calibration row has a single candidate; use another score, such as 'best'")
        self._check_level(fewest)
        self.rows, self.valid = _pad(chosen)
        # Rows with a single candidate cannot lose it, so where they calibrate, losses are looked for in other rows.
        self.audit, self.audit_valid = _pad(drawn)
        self.apart = any(one is not other for one, other in zip(chosen, drawn, strict=True))
        new, m = problem.new_zeros, self.rows.shape[1]
        self.counts = self.valid.sum(-1)
        self.shares = conformal.shares(m, self.counts, problem.dtype, self.finite)
        self.limits = new(problem.runs, m + 2) + torch.inf  # of p, by how many ranks are not kept
        self.level_r = new(problem.runs) - 1  # no share is below -1: nothing is pruned
        self.base, self.slope = new(1) - 1, new(1)  # the level of a batch by its mass outside the sets
        self.mass, self.seen = new(problem.runs), new(1)
        if self.rule == "permanent":
            self.pruned, self.limit = problem.sets.clone(), new(problem.runs)
            self.shadow = _take(problem.sets, self.audit)  # what the same thresholds leave of rows that may not train
            self.stopped = new(problem.runs, dtype=torch.bool)
        self.lost = new(problem.runs)
        self.problem = replace(problem, rows=trained)
        return self.problem

    def _choose(self, seed: int, rows: Tensor, S: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return one run's calibration rows, the rows drawn at random to be such, and the training rows."""
        n = len(rows)
        m = min(max(100, int(self.fraction * n)), n // 2)
        shuffled = rows[torch.randperm(n, generator=stream(seed, "calibration")).to(rows.device)]
        drawn = shuffled[:m].sort().values
        hold = self.calibration == "holdout" or (self.calibration == "auto" and n / S.shape[-1] >= 1000)
        trained = shuffled[m:].sort().values if hold else rows
        single = S.sum(-1) == 1
        if self.score == "singletons":
            pool = drawn if hold else rows
            return pool[single[pool]], drawn, trained
        enough = self.calibration == "auto" and int(single[rows].sum()) >= m
        return (rows[single[rows]] if enough else drawn), drawn, trained

    def _check_level(self, m: int) -> None:
        alpha = _ALPHA[self.level] if self.alpha is None else self.alpha
        if self.level == "remark":
            alpha = float(conformal.remark_level(alpha, torch.zeros(1), torch.tensor([m]), self.delta, self.dkw))
            if alpha <= 0:
                warnings.warn(
                    f"with {m} calibration rows the Remark's level is never positive ({alpha:.3f} at best), so nothing "
                    "will be pruned; use a larger alpha, more rows or dkw=False",
                    stacklevel=5,
                )
        elif self.level == "fixed" and 1 / (m + 1) >= alpha:
            warnings.warn(
                f"{m} calibration rows are too few for alpha = {alpha}, which 1/(m+1) = {1 / (m + 1):.3f} should be "
                "below; use more calibration rows or a larger alpha",
                stacklevel=5,
            )

    def calibrate(self, predict: Predict, epoch: int) -> None:
        """Prune for good by the last epoch's scores (permanent rule), then score the calibration rows anew."""
        if epoch >= self.warmup:
            self._set_level(predict, epoch)
        p = predict(self.rows)
        sets = _take(self.pruned if self.rule == "permanent" else self.problem.sets, self.rows)
        scores, _ = conformal.sort_scores(_SCORES[self.score](p, sets), self.valid)
        # p·factor + slack is what is ranked. So that a step need not compute it, the scores are changed instead.
        factor = 1 - 0.5 ** (max(epoch - self.warmup, 0) + 1) if self.shrink else 1.0
        self.limits.copy_(conformal.with_ends((scores - self.slack) / factor))
        if self.per_batch and epoch >= self.warmup:
            self.base.fill_(_ALPHA[self.level] if self.alpha is None else self.alpha)
            self.slope.fill_(1.0)
        if self.rule == "revocable" and epoch >= self.warmup:
            self._account(predict(self.audit) if self.apart else p)
        self.mass.zero_()
        self.seen.zero_()

    def _set_level(self, predict: Predict, epoch: int) -> None:
        if self.rule == "permanent" and epoch > 0:  # `epoch` epochs are over: r = epoch in Algorithm 1
            self._prune(predict(None))
        elif self.rule == "revocable" and not self.per_batch:
            self.level_r.copy_(self._level(self.mass / self.seen.clamp_min(1)))

    def _prune(self, p: Tensor) -> None:
        """Remove labels for good, given all rows' p; not in runs that would, or once would, have lost too many."""
        member = self.problem.training_mask
        off = conformal.off_candidate_mass(p, self.pruned)
        self.level_r.copy_(self._level(off.masked_fill(~member, 0).sum(-1) / member.sum(-1)))
        self.limit.copy_(self._threshold(self.level_r))
        S, audit_p = _take(self.problem.sets, self.audit), _take(p, self.audit)
        q = conformal.fit_candidate_probabilities(audit_p, S, self.audit_valid)
        if self.stop < 1:
            self.stopped |= self._lost(q, S & ~_intersect(self.shadow, audit_p, self.limit)) > self.stop
            self.limit.masked_fill_(self.stopped, -torch.inf)
        self.shadow.copy_(_intersect(self.shadow, audit_p, self.limit))
        self.lost.copy_(self._lost(q, S & ~self.shadow))
        self.pruned.copy_(torch.where(member.unsqueeze(-1), _intersect(self.pruned, p, self.limit), self.pruned))

    def _account(self, p: Tensor) -> None:
        """Estimate what the revocable rule loses, from the audited rows' p, as if each were visited now."""
        S, level = _take(self.problem.sets, self.audit), self.level_r
        if self.per_batch:  # the batches' own levels are not known yet: take that of these rows
            mass = conformal.off_candidate_mass(p, S).masked_fill(~self.audit_valid, 0).sum(-1)
            level = self.base + self.slope * mass / self.audit_valid.sum(-1)
        removed = S & ~_intersect(S, p, self._threshold(level))
        self.lost.copy_(self._lost(conformal.fit_candidate_probabilities(p, S, self.audit_valid), removed))

    def _lost(self, q: Tensor, removed: Tensor) -> Tensor:
        """Mean over the audited rows of the weight of their removed labels."""
        counted = removed & self.audit_valid.unsqueeze(-1)
        return q.masked_fill(~counted, 0).sum((1, 2)) / self.audit_valid.sum(-1)

    def _level(self, error: Tensor) -> Tensor:
        alpha = _ALPHA[self.level] if self.alpha is None else self.alpha
        if self.level == "off_candidate_mass":
            return alpha + error
        if self.level == "fixed":
            return torch.full_like(error, alpha)
        level = conformal.remark_level(alpha, error, self.counts, self.delta, self.dkw)
        return level.masked_fill(level <= 0, -1)

    def keep(self, p: Tensor, S: Tensor, batch: Batch) -> Tensor:
        """Intersect with the conforming labels, or with what Algorithm 1 has left; never empty a row."""
        outside, rows = p.masked_fill(batch.S, 0).sum((1, 2)), p.shape[1]  # conformal.off_candidate_mass, summed
        if self.per_batch:
            torch.addcmul(self.base, outside, self.slope, value=1 / rows, out=self.level_r)
        else:
            self.mass.add_(outside, alpha=1 / rows)
            self.seen += 1
        if self.rule == "revocable":
            return _intersect(S, p, self._threshold(self.level_r))
        kept = S & batch.take(self.pruned)
        return torch.where(kept.any(-1, keepdim=True), kept, S)

    def facts(self) -> dict[str, Tensor]:
        """Return the level α_r, the smallest probability it keeps and the estimated share of lost labels.

        All are 0 during the warm-up; a run that has stopped has the threshold 0.
        """
        limit = self.limit if self.rule == "permanent" else self._threshold(self.level_r)
        return {"alpha": self.level_r.clamp_min(0), "threshold": limit.clamp(0, 1), "estimated_lost": self.lost}

    def _threshold(self, level: Tensor) -> Tensor:
        pruned = torch.searchsorted(self.shares, level[:, None], right=True)  # so many ranks are
        return self.limits.gather(1, pruned).squeeze(1)


def _intersect(S: Tensor, p: Tensor, limit: Tensor) -> Tensor:
    """Remove what is less probable than the run's limit; where nothing would remain, all stays."""
    kept = S & (p >= limit[:, None, None])
    return torch.where(kept.any(-1, keepdim=True), kept, S)


def _take(state: Tensor, rows: Tensor) -> Tensor:
    """Rows (R, M) of a tensor (R, N, C)."""
    return state.gather(1, rows[..., None].expand(*rows.shape, state.shape[-1]))


def _pad(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Stack the runs' rows, and say which entries are theirs."""
    padded = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    counts = padded.new_tensor([len(one) for one in rows])
    return padded, torch.arange(padded.shape[1], device=padded.device) < counts[:, None]
