"""Building a method's networks for a problem, and listing and copying their tensors."""

import warnings
from collections.abc import Mapping
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from candidly.engine.batches import scaled
from candidly.engine.contract import BuildNet, Method
from candidly.engine.nets.build import Factory, build
from candidly.engine.problem import Problem, stream

CHANGED = "the model was written by another version of candidly, or changed since; save it again"


def builder(problem: Problem, net: str | Factory, half: bool = False, room: int | None = None) -> BuildNet:
    """Return the function that a method builds its networks with; each network is initialised independently.

    With `room`, networks are built to be filled with that many saved numbers: they are not initialised, and memory is
    allocated only after checking that they are not larger.
    """
    built = 0

    def build_net(
        name: str | None = None, *, inputs: int = 0, outputs: int = 0, features: bool = False, copies: int = 1
    ) -> nn.Module:
        nonlocal built
        generators = [stream(seed, "network", built + copy) for seed in problem.seeds for copy in range(copies)]
        built += copies
        custom = name is None and callable(net)
        with nullcontext() if room is None or custom else torch.device("meta"):
            if name is None:
                network = build(net, tuple(problem.X.shape[1:]), problem.num_classes, generators, features, half)
            else:
                network = build(name, (inputs,), outputs, generators)
        if room is not None:
            return _fitting(network, problem, room)
        network = network.to(problem.X.device, problem.dtype)
        if custom:
            _check_custom(network, problem, copies)
        return network

    return build_net


def _fitting(network: nn.Module, problem: Problem, room: int) -> nn.Module:
    """Raise ValueError for a network that is larger than what was saved; otherwise allocate it on the device."""
    needed = sum(value.numel() for value in network.state_dict().values())
    if needed > room:
        raise ValueError(f"the model's networks would hold {needed} numbers, but {room} were saved: {CHANGED}")
    network = network.to(problem.dtype)
    unfilled = next(network.parameters()).is_meta and not problem.X.is_meta
    return network.to_empty(device=problem.X.device) if unfilled else network


def _check_custom(network: nn.Module, problem: Problem, copies: int) -> None:
    """Check what a custom network returns for two rows, and warn of dropout."""
    x = scaled(problem.X[:2].expand(problem.runs, *problem.X[:2].shape), problem)
    x = x.repeat_interleave(copies, 0)
    with torch.no_grad():
        found = tuple(network.eval()(x).shape[2:])
    network.train()
    if found != (problem.num_classes,):
        raise ValueError(f"the network returns {found} numbers per row; it must return {problem.num_classes} logits")
    if any(isinstance(module, nn.modules.dropout._DropoutNd) for module in network.modules()):
        warnings.warn(
            "the network has dropout, which draws from torch's global generator: training and resuming are not "
            "reproducible to the bit",
            stacklevel=2,
        )


def network_tensors(method: Method) -> dict[str, Tensor]:
    """Return the parameters and buffers of all networks, by name."""
    nets = method.networks().items()
    return {f"net.{name}.{key}": value for name, net in nets for key, value in net.state_dict().items()}


def copy_tensors(source: Mapping[str, Tensor], target: Mapping[str, Tensor], advice: str) -> None:
    """Copy tensors by name, in place; raise ValueError unless their names, shapes and dtypes agree."""
    for name, value in target.items():
        if name not in source or source[name].shape != value.shape:
            found = f"has shape {tuple(source[name].shape)}" if name in source else "is missing"
            raise ValueError(f"{name} {found} instead of having shape {tuple(value.shape)}: {advice}")
        if source[name].dtype != value.dtype:
            raise ValueError(f"{name} has dtype {source[name].dtype} instead of {value.dtype}: {advice}")
    for name, value in target.items():
        value.copy_(source[name])
