"""Building a stacked network by name, or from a custom factory."""

import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from candidly.engine.nets.mlp import Decoder, LinearNet, Mlp
from candidly.engine.nets.resnet import Resnet9

Factory = Callable[[], nn.Module]

_default_generator_lock = threading.Lock()


class Separate(nn.Module):
    """R separate modules, one per run, each from (B, ...) to logits (B, C)."""

    def __init__(self, factory: Factory, generators: Sequence[torch.Generator]):
        super().__init__()
        self.nets = nn.ModuleList()
        with _default_generator_lock, torch.random.fork_rng(devices=[]):
            for generator in generators:  # modules draw from the default generator, which gets the run's seed
                torch.default_generator.manual_seed(generator.initial_seed())
                self.nets.append(factory())

    def features(self, x: Tensor) -> Tensor:
        """Map to the networks' features."""
        return torch.stack([net.features(rows) for net, rows in zip(self.nets, x, strict=True)])  # type: ignore[operator]

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
    inputs = int(torch.Size(shape).numel())
    if callable(net):
        stacked = Separate(net, generators)
        if features and not all(hasattr(one, "features") for one in stacked.nets):
            raise ValueError("this method needs .features(x) from the network; add it to your module or use net='mlp'")
        return stacked
    if net == "mlp":
        return Mlp(inputs, outputs, generators, features)
    if net == "resnet9":
        return Separate(lambda: Resnet9(shape, outputs, features, half), generators)
    if net == "decoder":
        return Decoder(inputs, outputs, generators)
    if net != "linear":
        raise ValueError(f"unknown network {net!r}; use 'linear', 'mlp', 'resnet9' or a factory")
    if features:
        raise ValueError("this method needs .features(x), which net='linear' does not have; use net='mlp'")
    return LinearNet(inputs, outputs, generators)
