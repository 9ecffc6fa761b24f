"""Slow literal twin of PRODEN."""

from torch import Tensor

from tests.oracles.labels import cross_entropy, softmax
from tests.oracles.runs import Rows
from tests.oracles.twin import Twin


class Proden(Twin):
    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        z = self.nets["net"](self.run.X[rows])
        loss = cross_entropy([self.q[i] for i in rows], z)
        self.update(rows, z.tolist())
        return loss

    def update(self, rows: Rows, z: list[list[float]]) -> None:
        """q_i ← norm_{S_i}(p_i)."""
        kept = self.candidates(rows, [softmax(z_i) for z_i in z])
        for i, z_i, kept_i in zip(rows, z, kept, strict=True):
            self.q[i] = softmax(z_i, kept_i)
