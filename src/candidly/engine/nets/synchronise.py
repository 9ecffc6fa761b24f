"""Batch normalisation over the rows of all ranks, also in custom networks; torch's own version refuses CPU tensors."""

from typing import Any

import torch
from torch import Tensor, nn

from candidly.engine.nets.mlp import BatchNorm, normalise
from candidly.engine.ranks import ALONE, Group


class _Synchronised(nn.modules.batchnorm._BatchNorm):
    """A layer of torch whose statistics are those of all ranks; `synchronise` makes it."""

    group: Group

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (B, channels, ...) as torch does, over all ranks."""
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        x = input.movedim(1, -1)
        unit = torch.ones_like(self.running_mean) if self.running_mean is not None else x.new_ones(x.shape[-1])
        weight = unit if self.weight is None else self.weight
        bias = unit * 0 if self.bias is None else self.bias
        out, mean, variance = normalise(x.reshape(1, -1, x.shape[-1]), weight, bias, self.eps, self.group)
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked.add_(1)
                momentum: Any = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean.flatten(), momentum)
                self.running_var.lerp_(variance.flatten(), momentum)
        return out.view(x.shape).movedim(-1, 1)


def synchronise(net: nn.Module, group: Group) -> None:
    """Let all batch normalisations of a network compute statistics over a group; with `ALONE`, by themselves."""
    for module in net.modules():
        if isinstance(module, BatchNorm):
            module.group = group
        elif isinstance(module, _Synchronised):
            module.group = group
            if group is ALONE:
                module.__class__ = type(module).__mro__[2]
        elif isinstance(module, nn.modules.batchnorm._BatchNorm) and not group.alone:
            kind = type(module)
            module.__class__ = type(kind.__name__, (_Synchronised, kind), {"__module__": kind.__module__})
            module.group = group  # type: ignore[assignment]
