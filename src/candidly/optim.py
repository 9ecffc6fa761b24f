"""Adam and plain SGD over flat buffers, with every number that changes during training in a table on the device.

A captured CUDA graph freezes Python numbers, and torch's fused Adam takes β1 as one; hence these few lines. They equal
torch.optim.Adam with OneCycleLR, which a test asserts.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

BETA2, EPSILON = 0.999, 1e-8


def one_cycle(steps: int, max_lr: float) -> tuple[list[float], list[float]]:
    """Learning rates and β1 of the one-cycle schedule (Smith and Topin, 2019), as torch's OneCycleLR computes them."""
    turn = 0.3 * steps - 1

    def anneal(start: float, middle: float, end: float) -> list[float]:
        def between(a: float, b: float, x: float) -> float:
            return b + (a - b) * (1 + math.cos(math.pi * x)) / 2

        return [
            between(start, middle, t / turn) if t <= turn else between(middle, end, (t - turn) / (steps - 1 - turn))
            for t in range(steps)
        ]

    return anneal(max_lr / 25, max_lr, max_lr / 25 / 1e4), anneal(0.95, 0.85, 0.95)


def schedule(kind: Literal["one-cycle", "constant"], steps: int, max_lr: float) -> tuple[list[float], list[float]]:
    """Learning rate and β1 of every step."""
    if kind == "constant" or steps < 4:  # one-cycle has no rising part with fewer steps
        return [max_lr] * steps, [0.9] * steps
    return one_cycle(steps, max_lr)


class Optimiser:
    """Steps one network's parameters, which become views of one flat buffer.

    Parameters
    ----------
    net : nn.Module
        The network; parameters that do not require a gradient are left alone.
    rates, momenta : sequences of float
        Learning rate and β1 of every step of the whole training.
    active : sequence of bool
        In which steps this network trains. In the others it takes no step, no decay and no count.
    """

    def __init__(self, net: nn.Module, rates: Sequence[float], momenta: Sequence[float], active: Sequence[bool]):
        self.parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
        self.flat = torch.cat([parameter.detach().flatten() for parameter in self.parameters])
        views = self.flat.split([parameter.numel() for parameter in self.parameters])
        for parameter, view in zip(self.parameters, views, strict=True):
            parameter.data = view.view_as(parameter)
        self.table = torch.tensor(self._rows(rates, momenta, active), dtype=torch.float64).to(self.flat)

    def _rows(self, rates: Sequence[float], momenta: Sequence[float], active: Sequence[bool]) -> list[tuple[float, ...]]:
        raise NotImplementedError

    def update(self, grads: Sequence[Tensor], clock: Tensor) -> None:
        """Apply the gradients with the table's row at `clock`, an integer tensor of shape (1,)."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """Buffers to save beside the network's own."""
        return {}


class Sgd(Optimiser):
    """Plain stochastic gradient descent: no momentum, no decay."""

    def _rows(self, rates: Sequence[float], momenta: Sequence[float], active: Sequence[bool]) -> list[tuple[float, ...]]:
        return [(-rate,) for rate in rates]

    def update(self, grads: Sequence[Tensor], clock: Tensor) -> None:
        """Apply the gradients with the table's row at `clock`."""
        gradient = torch.cat([grad.flatten() for grad in grads])
        self.flat.addcmul_(gradient, self.table.index_select(0, clock)[:, 0])


class Adam(Optimiser):
    """Adam (Kingma and Ba, 2015) with coupled L2 decay.

    The bias corrections are folded into the table: with c steps taken, b1 = 1 - β1^c and b2 = 1 - β2^c, the update
    ``lr/b1 · m / (√v/√b2 + ε)`` is ``(lr·√b2/b1) · m / (√v + ε·√b2)``.
    """

    def __init__(
        self,
        net: nn.Module,
        rates: Sequence[float],
        momenta: Sequence[float],
        active: Sequence[bool],
        weight_decay: float = 0.0,
    ):
        super().__init__(net, rates, momenta, active)
        self.weight_decay = weight_decay
        self.mean, self.square = torch.zeros_like(self.flat), torch.zeros_like(self.flat)

    def _rows(self, rates: Sequence[float], momenta: Sequence[float], active: Sequence[bool]) -> list[tuple[float, ...]]:
        rows, count = [], 0
        for rate, beta1, trains in zip(rates, momenta, active, strict=True):
            count += trains
            b1, b2 = 1 - beta1 ** max(count, 1), 1 - BETA2 ** max(count, 1)
            rows.append((-rate * math.sqrt(b2) / b1, EPSILON * math.sqrt(b2), 1 - beta1))
        return rows

    def update(self, grads: Sequence[Tensor], clock: Tensor) -> None:
        """Apply the gradients with the table's row at `clock`."""
        step, epsilon, weight = self.table.index_select(0, clock).unbind(1)
        gradient = torch.cat([grad.flatten() for grad in grads]).add_(self.flat, alpha=self.weight_decay)
        self.mean.lerp_(gradient, weight)
        self.square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        self.flat.addcmul_(self.mean / self.square.sqrt().add_(epsilon), step)

    def state(self) -> dict[str, Tensor]:
        """Buffers to save beside the network's own."""
        return {"mean": self.mean, "square": self.square}
