"""Slow literal twin of LWS."""

import math

import torch
from torch import Tensor

from tests.oracles.labels import softmax
from tests.oracles.runs import Rows
from tests.oracles.twin import Twin


def psi(u: Tensor) -> Tensor:
    """ψ(u) = sigmoid(−u)."""
    return 1 / (1 + math.e**u)


class Lws(Twin):
    max_lr = 0.001

    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        z = self.nets["net"](self.run.X[rows])
        kept = self.candidates(rows, [softmax(z_i) for z_i in z.tolist()])
        total = torch.zeros((), dtype=torch.float64)
        for z_i, kept_i in zip(z, kept, strict=True):
            others = frozenset(range(self.run.classes)) - kept_i
            w = softmax(z_i.tolist(), kept_i)
            for j in kept_i:
                total = total + w[j] * psi(z_i[j])
            w = softmax(z_i.tolist(), others) if others else []
            for j in others:
                total = total + self.settings["beta"] * w[j] * psi(-z_i[j])
        return total / len(rows)
