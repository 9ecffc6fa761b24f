"""Stacked networks: R independent networks evaluated together, from inputs (R, B, ...) to logits (R, B, C).

Multi-layer perceptrons are stacked by batched matrix products; convolutional networks and custom modules are kept as
one module per run. Each run is initialised from its own generator, so it has the same initialisation alone and together
with others.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from candidly.engine.nets import kernels
from candidly.engine.nets.resnet import FEATURES
from candidly.engine.ranks import ALONE, Group

HIDDEN = 300  # width of a hidden layer
DEPTH = 3  # number of hidden layers
# Matrix products with fewer outputs than this are padded in evaluation mode on the CPU: the kernels for narrow products
# round the first and the last rows of a block differently.
_NARROW = 16
_EPSILON = 1e-5
_MOMENTUM = 0.1


class Linear(nn.Module):
    """R linear layers, initialised as torch.nn.Linear; with `xavier`, Xavier-normal weights and biases of 0.01."""

    def __init__(self, inputs: int, outputs: int, generators: Sequence[torch.Generator], xavier: bool = False):
        super().__init__()
        weight = torch.empty(len(generators), inputs, outputs)
        bias = torch.empty(len(generators), 1, outputs)
        # On the meta device there is nothing to draw, and arithmetic would import torch's compiler: that takes seconds.
        for r, generator in enumerate(() if weight.is_meta else generators):
            if xavier:
                weight[r].normal_(generator=generator).mul_((2 / (inputs + outputs)) ** 0.5)
                bias[r] = 0.01
            else:
                weight[r].uniform_(generator=generator).mul_(2).sub_(1).mul_(inputs**-0.5)
                bias[r].uniform_(generator=generator).mul_(2).sub_(1).mul_(inputs**-0.5)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (R, B, inputs) to (R, B, outputs)."""
        outputs = self.weight.shape[-1]
        if self.training or x.device.type != "cpu" or outputs >= _NARROW:
            return torch.baddbmm(self.bias, x, self.weight)
        missing = (0, _NARROW - outputs)
        return torch.baddbmm(F.pad(self.bias, missing), x, F.pad(self.weight, missing))[..., :outputs].contiguous()


class _Normalise(torch.autograd.Function):
    """Batch normalisation over the rows of each run on all ranks, with the closed form of its gradient.

    The mean and the unbiased variance are returned, too.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, group: Group
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows: Any = x.shape[1]
        if group.alone:
            mean = x.mean(1, keepdim=True)
            centred = x - mean
            variance = centred.square().mean(1, keepdim=True)
            unbiased = variance * (rows / max(rows - 1, 1))
        else:
            own = x.mean(1, keepdim=True)
            squares = (x - own).square().sum(1, keepdim=True)
            parts = group.stack(torch.stack([own, squares, torch.full_like(own, rows)]))  # in one message
            means, squares, counts = parts.unbind(1)  # (W, R, 1, width) each
            rows = counts.sum(0)
            mean = (counts * means).sum(0) / rows
            variance = (squares + counts * (means - mean).square()).sum(0) / rows
            unbiased = variance * (rows / (rows - 1).clamp_min(1))
            centred = x - mean
        inverse = (variance + epsilon).rsqrt()
        standard = centred.mul_(inverse)
        ctx.save_for_backward(standard, inverse, weight, *([] if group.alone else [rows]))
        ctx.group = group
        ctx.mark_non_differentiable(mean, unbiased)
        ctx.set_materialize_grads(False)
        return torch.addcmul(bias, standard, weight), mean, unbiased

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        gradient = grads[0]
        if gradient is None:
            return None, None, None, None, None
        standard, inverse, weight, *counted = ctx.saved_tensors
        to_bias = gradient.sum(1, keepdim=True)
        to_weight = (gradient * standard).sum(1, keepdim=True)
        if not counted:
            rows = gradient.shape[1]
            to_x = torch.addcmul(gradient - to_bias / rows, standard, to_weight, value=-1 / rows)
        else:  # the gradients of weight and bias are those of this rank's rows; the engine sums them over ranks
            slope, offset = (ctx.group.total(torch.stack([to_weight, to_bias])) / counted[0]).unbind()
            to_x = gradient - offset - standard * slope
        return to_x.mul_(weight * inverse), to_weight, to_bias, None, None


class BatchNorm(nn.Module):
    """R batch normalisations; training and running statistics as in torch.nn.BatchNorm1d.

    Statistics are those of the rows of all ranks in `group`.
    """

    running_mean: Tensor
    running_variance: Tensor
    group: Group = ALONE

    def __init__(self, width: int, runs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(runs, 1, width))
        self.bias = nn.Parameter(torch.zeros(runs, 1, width))
        self.register_buffer("running_mean", torch.zeros(runs, 1, width))
        self.register_buffer("running_variance", torch.ones(runs, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (R, B, width) over B in training mode, with the running statistics in evaluation mode."""
        if not self.training:
            factor = self.weight * (self.running_variance + _EPSILON).rsqrt()
            return torch.addcmul(self.bias - self.running_mean * factor, x, factor)
        out, mean, variance = normalise(x, self.weight, self.bias, _EPSILON, self.group)
        with torch.no_grad():
            self.running_mean.lerp_(mean, _MOMENTUM)
            self.running_variance.lerp_(variance, _MOMENTUM)
        return out


def normalise(
    x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, group: Group = ALONE
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x (R, B, width) normalised over B, and the mean and unbiased variance (R, 1, width), over all ranks."""
    return _Normalise.apply(x, weight, bias, epsilon, group)  # type: ignore[no-untyped-call]


def hidden_layer(linear: Linear, norm: BatchNorm, x: Tensor) -> Tensor:
    """Linear → ReLU → BatchNorm; in training on CUDA as one matrix product and one kernel."""
    if norm.training and norm.group.alone and x.dtype == torch.float32 and kernels.usable(x):
        from candidly.engine.nets.kernels import dense

        if x.shape[1] <= dense.MAX_ROWS:
            running = (norm.running_mean, norm.running_variance)
            product = torch.bmm(x, linear.weight)
            return dense.relu_norm(product, linear.bias, norm.weight, norm.bias, *running, _EPSILON, _MOMENTUM)
    return norm(linear(x).relu())


class Mlp(nn.Module):
    """d-300-300-300-C, each hidden layer Linear → ReLU → BatchNorm; with `features` d-300-300-300-128-C."""

    def __init__(self, inputs: int, outputs: int, generators: Sequence[torch.Generator], features: bool = False):
        super().__init__()
        widths = [inputs] + [HIDDEN] * DEPTH
        self.hidden = nn.ModuleList(Linear(a, b, generators) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(BatchNorm(HIDDEN, len(generators)) for _ in range(DEPTH))
        self.project = Linear(HIDDEN, FEATURES, generators) if features else nn.Identity()
        self.head = Linear(FEATURES if features else HIDDEN, outputs, generators)

    def embed(self, x: Tensor) -> Tensor:
        """Map to the inputs of the head."""
        h = x.flatten(2)
        for linear, norm in zip(self.hidden, self.norms, strict=True):
            h = hidden_layer(linear, norm, h)  # type: ignore[arg-type]
        return self.project(h)

    def features(self, x: Tensor) -> Tensor:
        """Map to the L2-normalised features φ, (R, B, 128)."""
        return F.normalize(self.embed(x), dim=-1)

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map to logits and features, in one pass."""
        h = self.embed(x)
        return self.head(h), F.normalize(h, dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        """Map to logits."""
        return self.head(self.embed(x))


class LinearNet(nn.Module):
    """A linear classifier: multinomial logistic regression."""

    def __init__(self, inputs: int, outputs: int, generators: Sequence[torch.Generator]):
        super().__init__()
        self.head = Linear(inputs, outputs, generators)

    def forward(self, x: Tensor) -> Tensor:
        """Map to logits."""
        return self.head(x.flatten(2))


class Decoder(nn.Module):
    """VALEN's decoder, Linear(C, D)-ReLU-Linear(D, D), Xavier-normal weights and biases of 0.01."""

    def __init__(self, inputs: int, outputs: int, generators: Sequence[torch.Generator]):
        super().__init__()
        self.first = Linear(inputs, outputs, generators, xavier=True)
        self.second = Linear(outputs, outputs, generators, xavier=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map (R, B, C) to (R, B, D)."""
        return self.second(self.first(x).relu())
