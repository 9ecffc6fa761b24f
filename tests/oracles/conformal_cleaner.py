"""Slow literal twins of the conformal cleaners."""

import math
from statistics import fmean

import torch

from candidly.engine.problem import stream
from tests.oracles.labels import off_candidate_mass
from tests.oracles.runs import Rows, Run, Set, Weights
from tests.oracles.twin import NoCleaning, Predict


class Conformal(NoCleaning):
    """What the conformal cleaners share: a split and the best candidate's score."""

    def __init__(self, warmup: int):
        super().__init__()
        self.warmup = warmup

    def draw(self, run: Run) -> tuple[Rows, Rows]:
        """Draw a fifth of the rows, but at least 100, though never more than half; return them and the others."""
        n = len(run.rows)
        m = min(max(100, int(0.2 * n)), n // 2)
        order = torch.randperm(n, generator=stream(run.seed, "calibration")).tolist()
        return sorted(run.rows[i] for i in order[:m]), sorted(run.rows[i] for i in order[m:])

    def setup(self, run: Run) -> Rows:
        self.run = run
        self.calibration, _ = self.draw(run)
        return run.rows

    def begin(self, epoch: int, predict: Predict) -> None:
        p = predict(self.calibration)
        S = self.run.S
        self.scores = sorted(max(p_v[j] for j in S[v]) for v, p_v in zip(self.calibration, p, strict=True))
        self.cleaning = epoch >= self.warmup

    def threshold(self, level: float) -> float:
        """t = sup{t : F̂(t) ≤ α}, the (⌊α m⌋+1)-th smallest score, 1 if there is none."""
        rank = math.floor(level * len(self.scores)) + 1
        return self.scores[rank - 1] if rank <= len(self.scores) else 1.0


def intersect(within: Set, conforming: Set) -> Set:
    """Where S ∩ C is not empty, S ∩ C; otherwise S."""
    return within & conforming or within


class Published(Conformal):
    """The published experiments' rule, with or without its correction."""

    def __init__(self, warmup: int, correction: bool = True):
        super().__init__(warmup)
        self.correction = correction

    def setup(self, run: Run) -> Rows:
        self.run = run
        drawn, others = self.draw(run)
        single = [i for i in run.rows if len(run.S[i]) == 1]
        self.calibration = single if len(single) >= len(drawn) else drawn
        return run.rows if len(run.rows) / run.classes < 1000 else others

    def begin(self, epoch: int, predict: Predict) -> None:
        super().begin(epoch, predict)
        self.epsilon = 0.5 ** (epoch - self.warmup + 1) if self.correction else 0.0
        self.level = -1.0

    def keep(self, rows: Rows, p: list[Weights], within: list[Set]) -> list[Set]:
        if not self.cleaning:
            return within
        beta = off_candidate_mass(p, [self.run.S[i] for i in rows]) if self.correction else 0.0
        self.level = 0.05 + beta
        kept = []
        for p_i, S_i in zip(p, within, strict=True):
            values = [self.p_value(p_ij) for p_ij in p_i]
            kept.append(intersect(S_i, frozenset(j for j, value in enumerate(values) if value > self.level)))
        return kept

    def p_value(self, p: float) -> float:
        """(1 + #{v : 1 − s_v ≥ 1 − (1−ε) p})/(n_v + 1).

        Scores are in evaluation mode and p in training mode, so that no two are equal and the literal comparison is
        as good as s_v ≤ (1−ε) p, which does not round at 1.
        """
        at_least = sum(1 - score >= 1 - (1 - self.epsilon) * p for score in self.scores)
        return (1 + at_least) / (len(self.scores) + 1)

    def end(self, epoch: int, predict: Predict) -> None:
        self.levels.append(self.level)


class Revocable(Conformal):
    """The library's default: Algorithm 1's sets, but from the original S and the step's own p at every visit.

    The level is the mean over the previous epoch's steps of the mass outside S.
    """

    def begin(self, epoch: int, predict: Predict) -> None:
        super().begin(epoch, predict)
        self.level = fmean(self.masses) if self.cleaning else -1.0
        self.masses: list[float] = []

    def keep(self, rows: Rows, p: list[Weights], within: list[Set]) -> list[Set]:
        self.masses.append(off_candidate_mass(p, [self.run.S[i] for i in rows]))
        if not self.cleaning:
            return within
        t = self.threshold(self.level)
        sets = [frozenset(j for j, p_ij in enumerate(p_i) if p_ij >= t) for p_i in p]
        return [intersect(S_i, C_i) for S_i, C_i in zip(within, sets, strict=True)]

    def end(self, epoch: int, predict: Predict) -> None:
        self.levels.append(self.level)


class Algorithm1(Conformal):
    """UAI's Algorithm 1. Of line 4, the method's own update of q at the row's next visit takes the place."""

    def setup(self, run: Run) -> Rows:
        self.run = run
        self.S = list(run.S)
        self.calibration, self.training = self.draw(run)
        self.level = -1.0
        return self.training

    def keep(self, rows: Rows, p: list[Weights], within: list[Set]) -> list[Set]:
        return [intersect(S_i, self.S[i]) for i, S_i in zip(rows, within, strict=True)]

    def end(self, epoch: int, predict: Predict) -> None:
        self.levels.append(self.level)
        r = epoch + 1
        if r < self.warmup:
            return
        p = predict(self.training)
        self.level = off_candidate_mass(p, [self.S[i] for i in self.training])
        t = self.threshold(self.level)
        for i, p_i in zip(self.training, p, strict=True):
            self.S[i] = intersect(self.S[i], frozenset(j for j, p_ij in enumerate(p_i) if p_ij >= t))
