"""Slow literal twin of PLCR on rows that are not images: the only view is the row."""

import math

import torch
from torch import Tensor

from tests.oracles.labels import log_softmax, softmax
from tests.oracles.runs import Rows
from tests.oracles.twin import Twin


def loss_of_row(log_p: list[list[Tensor]], kept: frozenset[int], ramp: float) -> Tensor:
    """−Σ_{j∉S} log(1 − p_0j) + λ Σ_v KL(q ‖ p_v), given the log-probabilities of a row's views."""
    classes = range(len(log_p[0]))
    geometric = {j: math.exp(sum(view[j].item() for view in log_p) / len(log_p)) for j in kept}
    q = {j: value / sum(geometric.values()) for j, value in geometric.items()}
    loss = -sum((1 - log_p[0][j].exp()).log() for j in classes if j not in kept)
    for view in log_p:
        loss = loss + ramp * sum(q[j] * (math.log(q[j]) - view[j]) for j in kept)
    return loss


class Plcr(Twin):
    def setup(self) -> None:
        self.ramp = 0.0

    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        z = self.nets["net"](self.run.X[rows])
        kept = self.candidates(rows, [softmax(z_i) for z_i in z.tolist()])
        losses = [loss_of_row([log_softmax(z_i)], kept_i, self.ramp) for z_i, kept_i in zip(z, kept, strict=True)]
        return torch.stack(losses).mean()

    def epoch_end(self, epoch: int) -> None:
        self.ramp = min(1.0, (epoch + 1) / (self.run.epochs / 2))
