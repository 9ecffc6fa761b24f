"""One run of a problem and its networks as textbook torch modules.

The twins in this folder share with the library the data only: initial weights, the order of rows and the uniforms of
each step.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from candidly.engine.problem import Problem, stream
from candidly.methods import Method

Rows = list[int]

Weights = list[float]

Set = frozenset[int]


@dataclass
class Run:
    """One run's share of a problem: features, candidate sets, training rows, seed; and the recipe's two numbers."""

    X: Tensor
    S: list[Set]
    rows: Rows
    seed: int
    classes: int
    epochs: int
    batch_size: int

    @classmethod
    def of(cls, problem: Problem, index: int, epochs: int, batch_size: int) -> "Run":
        S = [frozenset(j for j, inside in enumerate(row) if inside) for row in problem.sets[index].tolist()]
        rows, seed = problem.rows[index].tolist(), problem.seeds[index]
        return cls(problem.X, S, rows, seed, problem.num_classes, epochs, batch_size)

    @property
    def steps(self) -> int:
        return math.ceil(len(self.rows) / self.batch_size)

    def batches(self, epoch: int, noise: int) -> Iterator[tuple[Rows, Tensor]]:
        """Rows and uniforms of each step: a permutation of the run's rows, then its own first rows again."""
        order = torch.randperm(len(self.rows), generator=stream(self.seed, "order", epoch)).tolist()
        u = torch.zeros(self.steps, self.batch_size, noise, dtype=torch.float64)
        if noise:
            u.uniform_(generator=stream(self.seed, "noise", epoch))
        for step in range(self.steps):
            first = step * self.batch_size
            positions = range(first, first + self.batch_size)
            yield [self.rows[order[position % len(order)]] for position in positions], u[step]


def textbook(stacked: nn.Module, run: int) -> nn.Sequential:
    """Copy one run of a stacked d-300-300-300-C or d-300-300-300-128-C perceptron, or of a decoder."""
    layers: list[nn.Module] = []
    if hasattr(stacked, "first"):
        return nn.Sequential(_linear(stacked.first, run), nn.ReLU(), _linear(stacked.second, run))
    for linear, norm in zip(stacked.hidden, stacked.norms, strict=True):
        layers += [_linear(linear, run), nn.ReLU(), _batch_norm(norm, run)]
    if hasattr(stacked.project, "weight"):
        layers.append(_linear(stacked.project, run))
    return nn.Sequential(*layers, _linear(stacked.head, run))


def networks(method: Method, run: int) -> dict[str, nn.Sequential]:
    """Copy one run's networks; CroSel's two, which are stacked like runs, are first and second."""
    nets = method.networks()
    if "nets" in nets:
        return {name: textbook(nets["nets"], 2 * run + index) for index, name in enumerate(("first", "second"))}
    return {name: textbook(net, run) for name, net in nets.items()}


def _linear(stacked: nn.Module, run: int) -> nn.Linear:
    inputs, outputs = stacked.weight[run].shape
    layer = nn.Linear(inputs, outputs, dtype=torch.float64)
    layer.weight.data.copy_(stacked.weight[run].T)
    layer.bias.data.copy_(stacked.bias[run, 0])
    return layer


def _batch_norm(stacked: nn.Module, run: int) -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(stacked.weight.shape[-1], dtype=torch.float64)
    layer.weight.data.copy_(stacked.weight[run, 0])
    layer.bias.data.copy_(stacked.bias[run, 0])
    layer.running_mean.copy_(stacked.running_mean[run, 0])
    layer.running_var.copy_(stacked.running_variance[run, 0])
    return layer
