"""Optimisers with all learning rates and momenta computed before training.

A captured CUDA graph freezes Python numbers, and torch's Adam takes β1 as one. `Adam` therefore reads its numbers from
a table on the device. On a CPU nothing is captured, and torch's fused kernel makes one pass over the memory instead of
nine: `HostAdam`. Tests assert that both equal torch.optim.Adam with OneCycleLR.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from candidly.engine.nets import kernels

BETA2, EPSILON = 0.999, 1e-8
MOMENTUM = 0.9
HEAD_INPUTS = 16
"""A head with n inputs takes steps that are `HEAD_INPUTS` / n times as long with `Nesterov`, if n is larger."""

_RISING = 0.2  # fraction of the steps in which the triangular schedule rises

NUMBERS_PER_WEIGHT = {"sgd": 2, "nesterov": 3, "adam": 4}
"""Numbers in memory per weight: itself, its gradient and the optimiser's averages."""


def one_cycle(steps: int, max_lr: float) -> tuple[list[float], list[float]]:
    """Return learning rates and β1 of the one-cycle schedule (Smith and Topin, 2019), as in torch's OneCycleLR."""
    turn = 0.3 * steps - 1

    def anneal(start: float, middle: float, end: float) -> list[float]:
        def between(a: float, b: float, x: float) -> float:
            return b + (a - b) * (1 + math.cos(math.pi * x)) / 2

        return [
            between(start, middle, t / turn) if t <= turn else between(middle, end, (t - turn) / (steps - 1 - turn))
            for t in range(steps)
        ]

    return anneal(max_lr / 25, max_lr, max_lr / 25 / 1e4), anneal(0.95, 0.85, 0.95)


def triangular(steps: int, max_lr: float) -> list[float]:
    """Return learning rates that rise linearly for a fifth of the steps and then fall linearly to 0."""
    turn = max(1, round(_RISING * steps))
    return [max_lr * min((t + 1) / turn, (steps - t) / (steps - turn + 1)) for t in range(steps)]


def schedule(
    kind: Literal["one-cycle", "constant", "triangular"], steps: int, max_lr: float
) -> tuple[list[float], list[float]]:
    """Return the learning rate and β1 of every step."""
    if kind == "triangular":
        return triangular(steps, max_lr), [0.9] * steps
    if kind == "constant" or steps < 4:  # one-cycle has no rising part with fewer steps
        return [max_lr] * steps, [0.9] * steps
    return one_cycle(steps, max_lr)


class Optimiser(Protocol):
    """Updates the parameters of one network that require a gradient."""

    parameters: list[nn.Parameter]

    def update(self, grads: Sequence[Tensor], clock: Tensor, index: int) -> None:
        """Apply the gradients of step `index`; `clock`, an integer tensor of shape (1,), holds the same number."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return the buffers to save, besides the network's."""
        ...


def _trainable(net: nn.Module) -> list[nn.Parameter]:
    found = [parameter for parameter in net.parameters() if parameter.requires_grad]
    for parameter in found:
        if torch.empty_like(parameter, device="meta").stride() != parameter.stride():  # its memory has gaps
            parameter.data = torch.empty_like(parameter).copy_(parameter)
    return found


def _as_laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """Return the tensor in the memory order of `like`, which has the same shape; a copy if necessary."""
    same = tensor.stride() == like.stride() or (tensor.is_contiguous() and like.is_contiguous())
    return tensor if same else torch.empty_like(like).copy_(tensor)


def _concatenated(tensors: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return tensors shaped like the parameters as one vector, in the parameters' memory order."""
    pairs = zip(tensors, parameters, strict=True)
    return torch.cat(
        [_as_laid_out(tensor, parameter).as_strided((tensor.numel(),), (1,)) for tensor, parameter in pairs]
    )


def _flattened(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return all parameters as one vector; they become views of it."""
    flat = _concatenated([parameter.detach() for parameter in parameters], parameters)
    views = flat.split([parameter.numel() for parameter in parameters])
    for parameter, view in zip(parameters, views, strict=True):
        parameter.data = view.as_strided(parameter.shape, parameter.stride())
    return flat


def _inputs(layer: Any) -> float:
    """Return the number of inputs of each output of a layer, which may be stacked over runs if it has a bias."""
    bias = getattr(layer, "bias", None)
    return layer.weight[0].numel() if bias is None else layer.weight.numel() / bias.numel()


def head_inputs(net: nn.Module) -> dict[int, float]:
    """Return the number of inputs of each head, by the id of its weights.

    A head is a layer called `head`, or the last linear layer within a module of that name.
    """
    found: dict[int, float] = {}
    for name, part in net.named_modules():
        if name.split(".")[-1] == "head":
            own = isinstance(getattr(part, "weight", None), nn.Parameter)
            layers: list[Any] = [part] if own else [one for one in part.modules() if isinstance(one, nn.Linear)]
            heads = [layer for layer in layers[-1:] if isinstance(layer.weight, nn.Parameter)]
            found |= {id(layer.weight): _inputs(layer) for layer in heads}
    return found


def _heads(net: nn.Module, parameters: Sequence[nn.Parameter]) -> Iterator[tuple[slice, float]]:
    """Yield where the weights of heads are among the parameters, as one vector, and the factor of their rate."""
    inputs = head_inputs(net)
    stop = 0
    for parameter in parameters:
        start, stop = stop, stop + parameter.numel()
        if inputs.get(id(parameter), 0) > HEAD_INPUTS:
            yield slice(start, stop), HEAD_INPUTS / inputs[id(parameter)]


class Sgd:
    """Plain stochastic gradient descent: no momentum, no decay."""

    def __init__(self, net: nn.Module, rates: Sequence[float]):
        self.parameters = _trainable(net)
        self.table = torch.tensor(rates, dtype=torch.float64).to(self.parameters[0])

    def update(self, grads: Sequence[Tensor], clock: Tensor, index: int) -> None:
        """Apply the gradients with the table's entry at `clock`."""
        rate = self.table.index_select(0, clock)
        for parameter, grad in zip(self.parameters, grads, strict=True):
            parameter.sub_(grad * rate)

    def state(self) -> dict[str, Tensor]:
        """Return nothing: there is no state."""
        return {}


class Nesterov:
    """Gradient descent with Nesterov momentum and coupled L2 decay, as torch.optim.SGD has it, and a slow head.

    Layers that are followed by batch normalisation can take steps of any length, but the last one cannot: a step moves
    the logits by the squared length of its inputs, which grows with their number n. The weights of a layer called
    `head`, or of the last linear layer within a module of that name, therefore have a smaller learning rate, by the
    factor 16 / n (n > 16). It is in the manner of G. Yang et al., *Tensor Programs V*, NeurIPS 2021, where the rates of
    output layers fall with 1 / n.

    Over flat buffers that the parameters become views of; rates are read from a table on the device.
    """

    def __init__(self, net: nn.Module, rates: Sequence[float], weight_decay: float):
        self.parameters = _trainable(net)
        self.weight_decay = weight_decay
        self.flat = _flattened(self.parameters)
        self.heads = list(_heads(net, self.parameters))
        self.velocity = torch.zeros_like(self.flat)
        self.table = torch.tensor(rates, dtype=torch.float64).to(self.flat)

    def update(self, grads: Sequence[Tensor], clock: Tensor, index: int) -> None:
        """Apply the gradients with the table's entry at `clock`."""
        gradient = _concatenated(grads, self.parameters).add_(self.flat, alpha=self.weight_decay)
        self.velocity.mul_(MOMENTUM).add_(gradient)
        step = gradient.add_(self.velocity, alpha=MOMENTUM)
        for place, factor in self.heads:
            step[place].mul_(factor)
        self.flat.addcmul_(step, self.table.index_select(0, clock), value=-1)

    def state(self) -> dict[str, Tensor]:
        """Return the buffers to save, besides the network's."""
        return {"velocity": self.velocity}


class Adam:
    """Adam (Kingma and Ba, 2015) with coupled L2 decay, over flat buffers that the parameters become views of.

    The bias corrections are folded into the table: with c steps taken, b1 = 1 - β1^c and b2 = 1 - β2^c, the update
    ``lr/b1 · m / (√v/√b2 + ε)`` is ``(lr·√b2/b1) · m / (√v + ε·√b2)``.

    Parameters
    ----------
    net : nn.Module
        The network.
    rates, momenta : sequences of float
        Learning rate and β1 of every step of the whole training.
    active : sequence of bool
        In which steps this network trains. The other steps change nothing, including the step count.
    weight_decay : float
        Weight of the L2 term.
    """

    def __init__(
        self,
        net: nn.Module,
        rates: Sequence[float],
        momenta: Sequence[float],
        active: Sequence[bool],
        weight_decay: float,
    ):
        self.parameters = _trainable(net)
        self.weight_decay = weight_decay
        self.flat = _flattened(self.parameters)
        self.mean = torch.zeros_like(self.flat)
        self.square = torch.zeros_like(self.flat)
        rows = []
        count = 0
        for rate, beta1, trains in zip(rates, momenta, active, strict=True):
            count += trains
            b1 = 1 - beta1 ** max(count, 1)
            b2 = 1 - BETA2 ** max(count, 1)
            rows.append((-rate * math.sqrt(b2) / b1, EPSILON * math.sqrt(b2), 1 - beta1))
        self.table = torch.tensor(rows, dtype=torch.float64).to(self.flat)

    def update(self, grads: Sequence[Tensor], clock: Tensor, index: int) -> None:
        """Apply the gradients with the table's row at `clock`."""
        gradient = _concatenated(grads, self.parameters)
        if gradient.dtype == torch.float32 and kernels.usable(gradient):
            from candidly.engine.nets.kernels import dense

            buffers = (self.flat, self.mean, self.square, gradient)
            dense.adam(*buffers, self.table, clock, self.weight_decay, BETA2)
            return
        step, epsilon, weight = self.table.index_select(0, clock).unbind(1)
        gradient.add_(self.flat, alpha=self.weight_decay)
        self.mean.lerp_(gradient, weight)
        self.square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        self.flat.addcmul_(self.mean / self.square.sqrt().add_(epsilon), step)

    def state(self) -> dict[str, Tensor]:
        """Return the buffers to save, besides the network's."""
        return {"mean": self.mean, "square": self.square}


class HostAdam:
    """torch's Adam on a CPU; parameters as for `Adam`. It counts only the steps in which it is called.

    It calls the function behind torch.optim.Adam: the class takes 5 % of a step's time, and two seconds to import
    modules that are not needed.
    """

    def __init__(
        self,
        net: nn.Module,
        rates: Sequence[float],
        momenta: Sequence[float],
        active: Sequence[bool],
        weight_decay: float,
    ):
        self.parameters = _trainable(net)
        self.rates = rates
        self.momenta = momenta
        self.weight_decay = weight_decay
        self.means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = [torch.zeros((), dtype=torch.float32) for _ in self.parameters]

    def update(self, grads: Sequence[Tensor], clock: Tensor, index: int) -> None:
        """Apply the gradients with the numbers of step `index`."""
        pairs = zip(grads, self.parameters, strict=True)
        laid_out = [
            _as_laid_out(grad, parameter) for grad, parameter in pairs
        ]  # the kernel expects one memory order for all
        adam(
            list(self.parameters),
            laid_out,
            self.means,
            self.squares,
            [],
            self.steps,
            fused=True,
            amsgrad=False,
            maximize=False,
            lr=self.rates[index],
            beta1=self.momenta[index],
            beta2=BETA2,
            eps=EPSILON,
            weight_decay=self.weight_decay,
        )

    def state(self) -> dict[str, Tensor]:
        """Return the buffers to save, besides the network's."""
        lists = {"mean": self.means, "square": self.squares, "step": self.steps}
        return {f"{name}.{i}": value for name, values in lists.items() for i, value in enumerate(values)}
