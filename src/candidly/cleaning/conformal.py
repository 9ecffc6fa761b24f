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
from candidly.checks import arguments
from candidly.engine.contract import Batch, Cleaner, Predict
from candidly.engine.problem import Problem, stream
from candidly.engine.ranks import Shard

_DEFAULT_ALPHA = {"off_candidate_mass": 0.0, "fixed": 0.05, "remark": 0.1}  # by level
_SCORES = {"best": conformal.best, "worst": conformal.worst, "mean": conformal.mean, "singletons": conformal.best}
_MIN_CALIBRATION_ROWS = 100
_ROWS_PER_CLASS_TO_HOLD_OUT = 1000  # what "auto" needs, as in the published experiments
_KEEP_ALL = -1.0  # a level below every p-value
_DRAWN = ("rows", "valid", "audit", "audit_valid", "counts", "audited", "shares")  # tensors that `setup` determines


@dataclass
class Conformal(Cleaner):
    """Conformal candidate cleaning: keep the candidates that conform with the calibration rows' scores.

    A candidate is kept when the fraction of calibration scores that are at most its probability exceeds the level α_r;
    where no candidate would remain, all are kept. The calibration scores are computed in evaluation mode before each
    epoch.

    From the warm-up on the history has ``estimated_lost``: an estimate, from candidate sets alone, of the fraction of
    rows whose true label the cleaner removes, or has removed ("permanent"). It is computed on the randomly drawn
    calibration rows as the mean weight of their removed candidates, ``Σ_{j∈S removed} q_j`` with
    ``q = norm_S(p^(1/T))``, S the original candidates and T ≥ 1 the temperature of the largest candidate likelihood. It
    is an estimate, not a bound. With "holdout" these rows are held out. With "reuse" the networks train on them, and
    the estimate is far too low after some epochs.

    Parameters
    ----------
    rule : {"revocable", "permanent"}
        "revocable" decides again at every visit, from the original candidates and the step's own probabilities.
        "permanent" removes candidates for good after each epoch, from one pass in evaluation mode (UAI, Algorithm 1).
    level : {"off_candidate_mass", "fixed", "remark"}
        α_r is `alpha` plus the mean probability outside the candidate sets (UAI's; over the previous epoch's steps, or
        over the evaluation pass with "permanent"), `alpha` itself, or UAI's Remark (`conformal.remark_level`).
    alpha : float, optional
        By default 0, 0.05 and 0.1 for the three levels.
    score : {"best", "worst", "mean", "singletons"}
        The score of a calibration row. With "singletons" only rows with a single candidate calibrate.
    calibration : {"reuse", "holdout", "auto"}
        Whether the networks also train on the calibration rows. "auto" is the choice of the published experiments: all
        single-candidate rows calibrate if there are enough of them; rows are held out only if there are at least 1000
        per class. Where the rows have groups, whole groups are held out. With "reuse" no row is held out, so groups
        make no difference.
    fraction : float
        Fraction of the rows that calibrate. At least 100 rows do, or half of the rows if there are fewer than 200.
    warmup : int
        Epochs before the first cleaning.
    finite : bool
        Compare p-values ``(1 + rank)/(m + 1)`` with the level, the finite-sample rule, instead of ``rank/m``, UAI's.
    per_batch : bool
        Compute the probability outside the sets from the step's own minibatch.
    shrink : bool
        Multiply probabilities by ``1 − 0.5^(epoch − warmup + 1)`` before they are ranked, as published.
    slack : float
        UAI's δ_3: how far below the threshold a candidate may be.
    delta : float
        δ_4 of the Remark.
    dkw : bool
        Whether the Remark's level has its DKW term.
    stop : float
        With "permanent", a run whose next removal would raise ``estimated_lost`` above this fraction removes nothing
        from then on. 1 never stops.

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
        between = {"above": 0, "below": 1}
        arguments.settings(
            self,
            alpha={"least": 0, "below": 1},
            fraction=between,
            warmup={"least": 0},
            slack={"least": 0},
            delta=between,
            stop={"above": 0, "most": 1},
        )
        if self.per_batch and (self.rule, self.level) != ("revocable", "off_candidate_mass"):
            raise ValueError("per_batch needs rule='revocable' and level='off_candidate_mass'")
        if self.shrink and self.rule == "permanent":
            raise ValueError("shrink needs rule='revocable', because a permanent removal cannot be phased in")

    @classmethod
    def published(cls, correction: bool = True) -> Self:
        """Return the rule of UAI's published experiments; without `correction`, its ablation (β = 0 and ε = 0)."""
        correction = arguments.flag("correction", correction)
        level: Any = "off_candidate_mass" if correction else "fixed"
        return cls(level=level, alpha=0.05, calibration="auto", finite=True, per_batch=correction, shrink=correction)

    @classmethod
    def algorithm1(cls) -> Self:
        """Return the rule of UAI's Algorithm 1, which never stops.

        Line 4, the update of q, is left to the method: it uses the pruned sets when it next visits a row. At least 100
        rows calibrate, even if that is more than a fifth.
        """
        return cls(rule="permanent", calibration="holdout", stop=1.0)

    def setup(self, problem: Problem) -> Problem:
        """Choose the calibration rows of each run."""
        chosen, drawn, trained = zip(*(self._choose(problem, run) for run in range(problem.runs)), strict=True)
        fewest = int(problem.group.total(torch.tensor([len(rows) for rows in chosen])).min())
        if fewest == 0:
            raise ValueError("no calibration row has a single candidate; use another score, such as 'best'")
        self._check_level(fewest)
        self.problem = replace(problem, rows=trained)
        self._allocate(problem, chosen, drawn)
        return self.problem

    def _allocate(self, problem: Problem, chosen: Sequence[Tensor], drawn: Sequence[Tensor]) -> None:
        """Allocate all state. M is the largest number of calibration rows of a run, on all ranks."""
        new, R = problem.new_zeros, problem.runs
        self.rows, self.valid = _pad(chosen)  # (R, M or fewer): calibration rows here, and which are not padding
        # Rows with a single candidate cannot lose it, so where those calibrate, losses are estimated on other rows.
        self.audit, self.audit_valid = _pad(drawn)  # (R, M'): the rows of `estimated_lost`
        self.apart = any(one is not other for one, other in zip(chosen, drawn, strict=True))
        self.counts = problem.group.total(self.valid.sum(-1))  # (R,): calibration rows of each run
        self.audited = problem.group.total(self.audit_valid.sum(-1))  # (R,): audit rows of each run
        m = int(self.counts.max())
        self.shares = conformal.p_values_by_rank(m, self.counts, problem.dtype, self.finite)  # (R, M + 1)
        self.limits = new(R, 1, m + 2) + torch.inf  # (R, 1, M + 2): smallest p that is kept, by number of ranks removed
        self.limits[..., 0] = -torch.inf
        self.level_r = new(R) + _KEEP_ALL  # (R,): α_r
        self.base = new(1) + _KEEP_ALL  # (1,): with `per_batch`, α_r = base + slope · probability outside the sets
        self.slope = new(1)  # (1,)
        self.mass = new(R)  # (R,): probability outside the sets, summed over the epoch's steps
        self.seen = new(1)  # (1,): steps of the epoch
        self.lost = new(R)  # (R,): `estimated_lost`
        if self.rule == "permanent":
            self.pruned = problem.sets.clone()  # (R, N, C): candidates that are left
            self.limit = new(R)  # (R,): the last threshold
            self.shadow = problem.sets.clone()  # (R, N, C): `pruned` as if no row were held out, for audit rows
            self.stopped = new(R, dtype=torch.bool)  # (R,)

    def _choose(self, problem: Problem, run: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return one run's calibration rows, those drawn at random for calibration, and the training rows."""
        rows, total = problem.rows[run], problem.group.total
        single = problem.sets[run].sum(-1) == 1
        n, singles = total(torch.tensor([len(rows), int(single[rows].sum())])).tolist()
        many = n / problem.num_classes >= _ROWS_PER_CLASS_TO_HOLD_OUT
        hold_out = self.calibration == "holdout" or (self.calibration == "auto" and many)
        parts = [self._draw(problem, run, shard, hold_out) for shard in problem.parts]
        drawn = torch.cat([part for part, _ in parts])
        trained = torch.cat([part for _, part in parts]) if hold_out else rows
        if self.score == "singletons":
            pool = drawn if hold_out else rows
            return pool[single[pool]], drawn, trained
        enough_singles = self.calibration == "auto" and singles >= int(total(torch.tensor(len(drawn))))
        return (rows[single[rows]] if enough_singles else drawn), drawn, trained

    def _draw(self, problem: Problem, run: int, shard: Shard, hold_out: bool) -> tuple[Tensor, Tensor]:
        """Return rows of a shard that are drawn at random for calibration, and the others, both ascending."""
        rows = shard.of(problem.rows[run])
        m = min(max(_MIN_CALIBRATION_ROWS, int(self.fraction * len(rows))), len(rows) // 2)
        generator = stream(problem.seeds[run], "calibration", *shard.key)
        shuffled = rows[torch.randperm(len(rows), generator=generator).to(rows.device)]
        if hold_out and problem.groups is not None:
            shuffled, m = _by_group(shuffled, problem.groups, m)
        return shuffled[:m].sort().values, shuffled[m:].sort().values

    @property
    def _alpha(self) -> float:
        return _DEFAULT_ALPHA[self.level] if self.alpha is None else self.alpha

    def _check_level(self, m: int) -> None:
        """Warn if m calibration rows are too few for the level."""
        if self.level == "remark":
            best = float(conformal.remark_level(self._alpha, torch.zeros(1), torch.tensor([m]), self.delta, self.dkw))
            if best <= 0:
                warnings.warn(
                    f"with {m} calibration rows the Remark's level is never positive ({best:.3f} at best), so no "
                    "candidate will be removed; use a larger alpha, more rows or dkw=False",
                    stacklevel=5,
                )
        elif self.level == "fixed" and 1 / (m + 1) >= self._alpha:
            warnings.warn(
                f"{m} calibration rows are too few for alpha = {self._alpha}, which must exceed 1/(m+1) = "
                f"{1 / (m + 1):.3f}; use more calibration rows or a larger alpha",
                stacklevel=5,
            )

    def calibrate(self, predict: Predict, epoch: int) -> None:
        """Prune by the last epoch's scores (permanent rule), then compute the calibration rows' new scores."""
        if epoch >= self.warmup:
            self._set_level(predict, epoch)
        if epoch >= self.warmup or self.rule == "permanent":  # which prunes by the scores of the epoch before
            self._set_limits(predict, epoch)
        self.mass.zero_()
        self.seen.zero_()

    def _set_limits(self, predict: Predict, epoch: int) -> None:
        """Compute the calibration rows' scores and, with the revocable rule, what it loses."""
        p = predict(self.rows)
        sets = _take(self.pruned if self.rule == "permanent" else self.problem.sets, self.rows)
        own = _SCORES[self.score](p, sets).masked_fill(~self.valid, torch.inf)
        scores = self.problem.group.gather(own, torch.inf).sort(-1).values[:, : self.shares.shape[1] - 1]
        # p·factor + slack is ranked. The scores are changed instead, so that a step need not compute it.
        factor = 1 - 0.5 ** (max(epoch - self.warmup, 0) + 1) if self.shrink else 1.0
        self.limits.copy_(conformal.with_ends((scores - self.slack) / factor).unsqueeze(1))
        if self.per_batch and epoch >= self.warmup:
            self.base.fill_(self._alpha)
            self.slope.fill_(1.0)
        if self.rule == "revocable" and epoch >= self.warmup:
            self._estimate_revocable(predict(self.audit) if self.apart else p)

    def _set_level(self, predict: Predict, epoch: int) -> None:
        """Set α_r of this epoch; with the permanent rule, prune."""
        if self.rule == "permanent" and epoch > 0:  # `epoch` epochs are over: r = epoch in Algorithm 1
            self._prune(predict(None))
        elif self.rule == "revocable" and not self.per_batch:
            self.level_r.copy_(self._level(self.mass / self.seen.clamp_min(1)))

    def _prune(self, p: Tensor) -> None:
        """Remove candidates for good, given all rows' p, except in runs that would lose, or have lost, too many."""
        trains = self.problem.training_mask
        outside = conformal.off_candidate_mass(p, self.pruned)
        total = self.problem.group.total
        self.level_r.copy_(self._level(total(outside.masked_fill(~trains, 0).sum(-1)) / total(trains.sum(-1))))
        self.limit.copy_(self._threshold(self.level_r))
        S = _take(self.problem.sets, self.audit)
        audit_p = _take(p, self.audit)
        q = conformal.fit_candidate_probabilities(audit_p, S, self.audit_valid, total)
        left = _take(self.shadow, self.audit)
        if self.stop < 1:
            next_lost = self._lost(q, S & ~_intersect(left, audit_p, self.limit))
            self.stopped |= next_lost > self.stop
            self.limit.masked_fill_(self.stopped, -torch.inf)
        self.lost.copy_(self._lost(q, S & ~_intersect(left, audit_p, self.limit)))
        self.shadow.copy_(_intersect(self.shadow, p, self.limit))
        self.pruned.copy_(torch.where(trains.unsqueeze(-1), _intersect(self.pruned, p, self.limit), self.pruned))

    def _estimate_revocable(self, p: Tensor) -> None:
        """Estimate what the revocable rule loses, from the audit rows' p, as if each were visited now."""
        S = _take(self.problem.sets, self.audit)
        level, total = self.level_r, self.problem.group.total
        if self.per_batch:  # the batches' levels are not known yet: use the level of these rows
            outside = conformal.off_candidate_mass(p, S).masked_fill(~self.audit_valid, 0).sum(-1)
            level = self.base + self.slope * total(outside) / self.audited
        removed = S & ~_intersect(S, p, self._threshold(level))
        self.lost.copy_(self._lost(conformal.fit_candidate_probabilities(p, S, self.audit_valid, total), removed))

    def _lost(self, q: Tensor, removed: Tensor) -> Tensor:
        """Return the mean weight of the removed candidates over the audit rows, (R,)."""
        counted = removed & self.audit_valid.unsqueeze(-1)
        return self.problem.group.total(q.masked_fill(~counted, 0).sum((1, 2))) / self.audited

    def _level(self, error: Tensor) -> Tensor:
        """Return α_r (R,) given the mean probability outside the candidate sets (R,)."""
        if self.level == "off_candidate_mass":
            return self._alpha + error
        if self.level == "fixed":
            return torch.full_like(error, self._alpha)
        level = conformal.remark_level(self._alpha, error, self.counts, self.delta, self.dkw)
        return level.masked_fill(level <= 0, _KEEP_ALL)

    def keep(self, p: Tensor, S: Tensor, batch: Batch) -> Tensor:
        """Keep the candidates above the threshold, or those that Algorithm 1 has left; never empty a row."""
        outside = p.masked_fill(batch.S, 0).sum((1, 2))  # conformal.off_candidate_mass, summed over the rows
        outside = self.problem.group.total(outside)
        rows = batch.size
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
        """Return the level α_r, the smallest probability it keeps and the estimated fraction of lost labels.

        All are 0 during the warm-up; a run that has stopped has the threshold 0.
        """
        limit = self.limit if self.rule == "permanent" else self._threshold(self.level_r)
        return {"alpha": self.level_r.clamp_min(0), "threshold": limit.clamp(0, 1), "estimated_lost": self.lost}

    def _threshold(self, level: Tensor) -> Tensor:
        """Return the smallest p that is kept at a level, (R,)."""
        ranks_removed = torch.searchsorted(self.shares, level[:, None], right=True)
        return self.limits.squeeze(1).gather(1, ranks_removed).squeeze(1)

    def state(self) -> dict[str, Tensor]:
        """Return what changes while training; the calibration rows are drawn again from the seed."""
        return {name: value for name, value in super().state().items() if name not in _DRAWN}


def _by_group(shuffled: Tensor, groups: Tensor, m: int) -> tuple[Tensor, int]:
    """Reorder shuffled rows such that groups are consecutive, and return where to cut, between groups and nearest to m.

    A group has the place of its first row by number, so that the order of groups does not depend on their sizes.
    """
    _, group, sizes = groups[shuffled].unique(return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        raise ValueError(
            "the cleaner holds calibration rows out of training, but a run's training rows all have one group; use "
            "calibration='reuse', or more groups"
        )
    places = torch.arange(len(shuffled), device=shuffled.device)
    lowest = torch.full_like(sizes, int(shuffled.max())).scatter_reduce_(0, group, shuffled, "amin")
    leads = shuffled == lowest[group]
    place = torch.zeros_like(sizes).scatter_(0, group[leads], places[leads])
    ends = sizes[place.argsort()].cumsum(0)[:-1]
    cut = int(ends[(ends - m).abs().argmin()])
    return shuffled[place[group].argsort(stable=True)], cut


def _intersect(S: Tensor, p: Tensor, limit: Tensor) -> Tensor:
    """Remove the candidates that are less probable than the run's limit; where none would remain, keep all."""
    kept = S & (p >= limit[:, None, None])
    return torch.where(kept.any(-1, keepdim=True), kept, S)


def _take(state: Tensor, rows: Tensor) -> Tensor:
    """Return the rows (R, M) of a tensor (R, N, C)."""
    return state.gather(1, rows[..., None].expand(*rows.shape, state.shape[-1]))


def _pad(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Stack the runs' row numbers, padded to equal length, and return which entries are not padding."""
    padded = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    counts = padded.new_tensor([len(one) for one in rows])
    return padded, torch.arange(padded.shape[1], device=padded.device) < counts[:, None]
