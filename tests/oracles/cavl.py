"""Slow literal twin of CAVL."""

from torch import Tensor

from tests.oracles.labels import cross_entropy, softmax
from tests.oracles.runs import Rows
from tests.oracles.twin import Twin


class Cavl(Twin):
    """The official variant: the target is stored from a second pass. Rows that wrap round see it within the epoch."""

    def phase(self, epoch: int) -> str:
        return "uniform" if epoch == 0 else "main"

    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        return cross_entropy([self.q[i] for i in rows], self.nets["net"](self.run.X[rows]))

    def after_step(self, rows: Rows) -> None:
        z = self.nets["net"](self.run.X[rows]).tolist()
        kept = self.candidates(rows, [softmax(z_i) for z_i in z])
        for i, z_i, kept_i in zip(rows, z, kept, strict=True):
            value = {j: z_i[j] * abs(1 - z_i[j]) for j in kept_i}
            best = max(value, key=lambda j: value[j])
            self.q[i] = [1.0 if j == best else 0.0 for j in range(self.run.classes)]
