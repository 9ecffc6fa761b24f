"""Slow literal twin of CC."""

from torch import Tensor

from tests.oracles.labels import candidate_loss, softmax
from tests.oracles.runs import Rows
from tests.oracles.twin import Twin


class Cc(Twin):
    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        z = self.nets["net"](self.run.X[rows])
        return candidate_loss(self.candidates(rows, [softmax(z_i) for z_i in z.tolist()]), z)
