"""Slow literal twin of POP."""

from collections import deque
from statistics import fmean

from torch import Tensor

from tests.oracles.labels import cross_entropy, softmax
from tests.oracles.runs import Rows, Weights
from tests.oracles.twin import Twin


class Pop(Twin):
    def setup(self) -> None:
        super().setup()
        self.support = list(self.run.S)
        self.theta = self.settings["theta"]
        self.ring: deque[list[Weights]] = deque(maxlen=self.settings["every"])
        self.removed: list[int] = []

    def phase(self, epoch: int) -> str:
        return "purged" if any(self.removed) else "before the purge"

    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        z = self.nets["net"](self.run.X[rows])
        loss = cross_entropy([self.q[i] for i in rows], z)
        kept = self.candidates(rows, [softmax(z_i) for z_i in z.tolist()], [self.support[i] for i in rows])
        for i, z_i, kept_i in zip(rows, z.tolist(), kept, strict=True):
            self.q[i] = softmax(z_i, kept_i)
        return loss

    def epoch_end(self, epoch: int) -> None:
        self.ring.append(list(self.q))
        if epoch < self.settings["start"] or epoch % self.settings["every"] != 0:
            return
        removed = 0
        for i in self.run.rows:
            f = [fmean(q[i][j] for q in self.ring) for j in range(self.run.classes)]
            f = [f_j / sum(f) for f_j in f]
            for j in self.support[i]:
                if f[j] / max(f) < self.theta:
                    self.support[i] = self.support[i] - {j}
                    removed += 1
            total = sum(f[j] for j in self.support[i])
            self.q[i] = [f[j] / total if j in self.support[i] else 0.0 for j in range(self.run.classes)]
        self.removed.append(removed)
        if removed < 1e-4 * len(self.run.rows) * self.run.classes and self.theta < self.settings["theta_end"]:
            self.theta += self.settings["step_size"]
