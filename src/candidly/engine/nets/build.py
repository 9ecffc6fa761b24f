"""Building a stacked network by name, or from a custom factory."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from candidly.checks.arguments import shown
from candidly.engine.nets.mlp import Decoder, LinearNet, Mlp
from candidly.engine.nets.resnet import Resnet9

Factory = Callable[[], nn.Module]

_defaults = threading.RLock()  # while torch's default generator and default dtype are changed: they are process-wide

if hasattr(os, "register_at_fork"):  # a process that is forked while another thread holds the lock must not wait for it
    os.register_at_fork(before=_defaults.acquire, after_in_parent=_defaults.release, after_in_child=_defaults.release)


def factory_name(factory: Factory) -> str:
    """Return how messages call a custom factory."""
    return getattr(factory, "__qualname__", type(factory).__qualname__)


@contextmanager
def _float32_by_default() -> Iterator[None]:
    """Create networks in float32, also after `torch.set_default_dtype`: another dtype gives other random numbers."""
    with _defaults:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def _make(factory: Factory) -> nn.Module:
    """Call a factory; raise ValueError unless it takes no arguments and returns a module."""
    name = f"net={factory_name(factory)}"
    try:
        net: Any = factory()
    except TypeError as error:
        raise ValueError(f"{name} cannot be called without arguments ({error}); it must return a new module") from error
    if not isinstance(net, nn.Module):
        raise ValueError(f"{name} returned {shown(net)}; it must return a new torch.nn.Module")
    return net


class Separate(nn.Module):
    """R separate modules, one per run, each from (B, ...) to logits (B, C)."""

    def __init__(self, factory: Factory, generators: Sequence[torch.Generator]):
        super().__init__()
        self.nets = nn.ModuleList()
        with _defaults, torch.random.fork_rng(devices=[]):
            for generator in generators:  # modules draw from the default generator, which gets the run's seed
                torch.default_generator.manual_seed(generator.initial_seed())
                self.nets.append(_make(factory))

    def features(self, x: Tensor) -> Tensor:
        """Map to the networks' features."""
        return torch.stack([net.features(rows) for net, rows in zip(self.nets, x, strict=True)])  # type: ignore[operator]

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map to logits and features; a custom module computes them one after the other."""
        pairs = [
            net.both(rows) if hasattr(net, "both") else (net(rows), net.features(rows))  # type: ignore[operator]
            for net, rows in zip(self.nets, x, strict=True)
        ]
        logits, features = zip(*pairs, strict=True)
        return torch.stack(logits), torch.stack(features)

    def forward(self, x: Tensor) -> Tensor:
        """Map to logits."""
        return torch.stack([net(rows) for net, rows in zip(self.nets, x, strict=True)])


def build(
    net: str | Factory,
    shape: tuple[int, ...],
    outputs: int,
    generators: Sequence[torch.Generator],
    features: bool = False,
    half: bool = False,
) -> nn.Module:
    """Return one stacked network for ``len(generators)`` runs.

    Parameters
    ----------
    net : str or callable
        "linear", "mlp", "resnet9", "decoder", or a factory that is called once per run and returns a module from
        (B, ...) to logits (B, C).
    shape : tuple of int
        Shape of one row.
    outputs : int
        Number of classes.
    generators : sequence of torch.Generator
        One per run, for its initialisation.
    features : bool
        Whether the network must have ``.features(x)``.
    half : bool
        Whether ResNet-9 computes in bfloat16.
    """
    with _float32_by_default():
        return _build(net, shape, outputs, generators, features, half)


def _build(
    net: str | Factory,
    shape: tuple[int, ...],
    outputs: int,
    generators: Sequence[torch.Generator],
    features: bool,
    half: bool,
) -> nn.Module:
    inputs = int(torch.Size(shape).numel())
    if callable(net):
        stacked = Separate(net, generators)
        if features and not all(hasattr(one, "features") for one in stacked.nets):
            raise ValueError("this method needs .features(x) from the network; add it to your module or use net='mlp'")
        return stacked
    if not isinstance(net, str) or net not in ("linear", "mlp", "resnet9", "decoder"):
        raise ValueError(f"unknown network {shown(net)}; use 'linear', 'mlp', 'resnet9' or a factory")
    if net == "mlp":
        return Mlp(inputs, outputs, generators, features)
    if net == "resnet9":
        return Separate(lambda: Resnet9(shape, outputs, features, half), generators)
    if net == "decoder":
        return Decoder(inputs, outputs, generators)
    if features:
        raise ValueError("this method needs .features(x), which net='linear' does not have; use net='mlp'")
    return LinearNet(inputs, outputs, generators)
