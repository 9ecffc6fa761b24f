"""Slow literal twin of balanced PRODEN."""

import math

from tests.oracles.labels import softmax
from tests.oracles.proden import Proden
from tests.oracles.runs import Rows


class Balanced(Proden):
    def setup(self) -> None:
        super().setup()
        self.measure()

    def update(self, rows: Rows, z: list[list[float]]) -> None:
        """q_i ← norm_{S_i}(p_i / π^τ)."""
        kept = self.candidates(rows, [softmax(z_i) for z_i in z])
        for i, z_i, kept_i in zip(rows, z, kept, strict=True):
            p_i = softmax(z_i)
            odds = [p_ij / pi_j ** self.settings["tau"] for p_ij, pi_j in zip(p_i, self.pi, strict=True)]
            total = sum(odds[j] for j in kept_i)
            self.q[i] = [odds[j] / total if j in kept_i else 0.0 for j in range(len(odds))]

    def epoch_end(self, epoch: int) -> None:
        self.measure()

    def measure(self) -> None:
        """π ← mean of q_i over the training rows, with at least half a row for a class."""
        sums = [sum(self.q[i][j] for i in self.run.rows) for j in range(self.run.classes)]
        self.pi = [max(total, 0.5) / len(self.run.rows) for total in sums]

    @property
    def adjustment(self) -> list[float]:
        return [self.settings["tau"] * math.log(pi_j) for pi_j in self.pi]
