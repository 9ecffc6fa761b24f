"""Slow literal twin of RC."""

from torch import Tensor

from tests.oracles.labels import cross_entropy, softmax
from tests.oracles.runs import Rows
from tests.oracles.twin import Twin


class Rc(Twin):
    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        return cross_entropy([self.q[i] for i in rows], self.nets["net"](self.run.X[rows]))

    def after_step(self, rows: Rows) -> None:
        z = self.nets["net"](self.run.X[rows]).tolist()
        kept = self.candidates(rows, [softmax(z_i) for z_i in z])
        for i, z_i, kept_i in zip(rows, z, kept, strict=True):
            self.q[i] = softmax(z_i, kept_i)
