"""Building a method's networks for a problem, and listing and copying their tensors."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from candidly.checks.arguments import shown
from candidly.checks.machine import fault
from candidly.engine.batches import scaled
from candidly.engine.contract import BuildNet, Method
from candidly.engine.memory import require_networks
from candidly.engine.nets.build import Factory, Separate, build, factory_name
from candidly.engine.problem import Problem, stream
from candidly.messages import warn

CHANGED = "the model was written by another version of candidly, or changed since; save it again"


def builder(
    problem: Problem, net: str | Factory, half: bool = False, room: int | None = None, numbers: int = 1
) -> BuildNet:
    """Return the function that a method builds its networks with; each network is initialised independently.

    With `room`, networks are built to be filled with that many saved numbers: they are not initialised, and memory is
    allocated only after checking that they are not larger. Otherwise it is checked that there is memory for `numbers`
    numbers per weight.
    """
    built = 0

    def build_net(
        name: str | None = None, *, inputs: int = 0, outputs: int = 0, features: bool = False, copies: int = 1
    ) -> nn.Module:
        nonlocal built
        shape = tuple(problem.X.shape[1:]) if name is None else (inputs,)
        width = problem.num_classes if name is None else outputs
        kind = net if name is None else name
        if room is None and not callable(kind):
            with torch.device("meta"):
                one = build(kind, shape, width, [torch.Generator()], features, half)
            weights = sum(parameter.numel() for parameter in one.parameters())
            size = numbers * problem.dtype.itemsize
            require_networks(problem.runs * copies, weights, size, problem.X.device)
        generators = [stream(seed, "network", built + copy) for seed in problem.seeds for copy in range(copies)]
        built += copies
        with nullcontext() if room is None or callable(kind) else torch.device("meta"):
            network = build(kind, shape, width, generators, features, half)
        if room is not None:
            return _fitting(network, problem, room)
        if callable(kind) and any(value.is_meta for value in network.state_dict().values()):
            raise ValueError(f"net={factory_name(kind)} returned a network on the meta device; create it on the CPU")
        network = network.to(problem.X.device, problem.dtype)
        if isinstance(network, Separate) and callable(kind):
            _check_custom(network, kind, problem, features)
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


def _check_custom(network: Separate, factory: Factory, problem: Problem, features: bool) -> None:
    """Check custom networks and what they return for two rows, and warn of dropout."""
    name = f"net={factory_name(factory)}"
    parameters = [parameter for net in network.nets for parameter in net.parameters()]
    if len({id(parameter) for parameter in parameters}) < len(parameters):
        raise ValueError(f"{name} returned networks that share parameters; return a new module in every call")
    copies = len(network.nets) // problem.runs
    x = scaled(problem.X[:2].expand(problem.runs, *problem.X[:2].shape), problem)
    network.eval()
    for run, net in enumerate(network.nets):
        _check_output(net, x[run // copies].clone(), problem, name)
        if features:
            _check_features(net, x[run // copies].clone(), problem, name)
    network.train()
    if any(isinstance(module, nn.modules.dropout._DropoutNd) for module in network.modules()):
        warn(
            "the network has dropout, which draws from torch's global generator: training and resuming are not "
            "reproducible to the bit"
        )


def _check_output(net: nn.Module, x: Tensor, problem: Problem, name: str) -> None:
    """Raise ValueError unless a custom network maps two rows to logits, without changing the rows."""
    wanted = (len(x), problem.num_classes)
    task = f"rows of shape {tuple(x.shape)} must become logits of shape {wanted}"
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise ValueError(f"{name} returned a {type(net).__name__} without trainable parameters; nothing can be learned")
    before = x.clone()
    found = _applied(net, x, name, task)
    if found.shape != wanted or found.dtype != problem.dtype:
        kind = f"a tensor of shape {tuple(found.shape)} and dtype {found.dtype}"
        raise ValueError(f"{name} returns {kind}; {task} and dtype {problem.dtype}")
    if not found.requires_grad:
        raise ValueError(f"{name} returns logits without a gradient, so nothing can be learned; leave out detach()")
    if not torch.equal(x, before):
        raise ValueError(f"{name} changes its input, the rows, in place; use inplace=False in its first layers")


def _check_features(net: Any, x: Tensor, problem: Problem, name: str) -> None:
    """Raise ValueError unless ``.features(x)`` of a custom network maps two rows to vectors."""
    name = f".features(x) of {name}"
    task = f"rows of shape {tuple(x.shape)} must become one vector each, of shape ({len(x)}, D)"
    found = _applied(net.features, x, name, task)
    if found.ndim != 2 or len(found) != len(x) or found.dtype != problem.dtype:
        kind = f"a tensor of shape {tuple(found.shape)} and dtype {found.dtype}"
        raise ValueError(f"{name} returns {kind}; {task} and dtype {problem.dtype}, such as the last layer's input")


def _applied(function: Callable[[Tensor], Any], x: Tensor, name: str, task: str) -> Tensor:
    """Return what a custom function makes of rows; raise ValueError if it fails or returns no tensor."""
    try:
        found = function(x)
    except Exception as error:
        if fault(error):
            raise
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{name} failed with {type(error).__name__} ({reason}); {task}") from error
    if not isinstance(found, Tensor):
        raise ValueError(f"{name} returns {shown(found)} instead of a tensor; {task}")
    return found


def check_networks(method: Method) -> dict[str, nn.Module]:
    """Return the networks of a method; raise ValueError unless there is one."""
    nets = method.networks()
    if not isinstance(nets, dict) or not nets or not all(isinstance(net, nn.Module) for net in nets.values()):
        wanted = "setup must store a network of build_net() as an attribute"
        raise ValueError(f"networks of the method {type(method).__name__} returned {shown(nets)}; {wanted}")
    return nets


def check_trained(method: Method, phase: Any) -> Sequence[nn.Module]:
    """Return the networks that a phase trains; raise ValueError unless there is one, and all are the method's."""
    name = type(method).__name__
    if not isinstance(phase, Hashable):
        raise ValueError(f"phase of the method {name} returned {shown(phase)}; return a text or another hashable value")
    nets = method.trains(phase)
    known = [id(net) for net in method.networks().values()]
    if not isinstance(nets, Sequence) or not nets or not all(id(net) in known for net in nets):
        raise ValueError(f"trains of the method {name} returned {shown(nets)}; return a list of some of its networks")
    return nets


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
