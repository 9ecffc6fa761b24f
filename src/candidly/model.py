"""What a fit returns: networks that predict for every run, the history, and the candidate sets that were kept."""

import copy
import dataclasses
import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from candidly import store
from candidly.batches import Sweep, scaled
from candidly.cleaning import Cleaner
from candidly.methods import METHODS, Supervised
from candidly.methods.base import Method
from candidly.nets import BuildNet, Factory, build
from candidly.problem import Problem, as_tensor, check_finite, stream
from candidly.recipe import Recipe

_KNOWN = METHODS | {"supervised": Supervised}


def builder(problem: Problem, net: str | Factory, half: bool = False) -> BuildNet:
    """Return the function that a method builds its networks with; each one it builds has weights of its own."""
    built = 0

    def build_net(
        name: str | None = None, *, inputs: int = 0, outputs: int = 0, features: bool = False, copies: int = 1
    ) -> nn.Module:
        nonlocal built
        generators = [stream(seed, "network", built + copy) for seed in problem.seeds for copy in range(copies)]
        built += copies
        if name is None:
            network = build(net, tuple(problem.X.shape[1:]), problem.num_classes, generators, features, half)
        else:
            network = build(name, (inputs,), outputs, generators)
        network = network.to(problem.X.device, problem.dtype)
        if name is None and callable(net):
            _check_own(network, problem, copies)
        return network

    return build_net


def _check_own(network: nn.Module, problem: Problem, copies: int) -> None:
    """Check what a user's network returns for two rows, and warn of what cannot be repeated."""
    x = scaled(problem.X[:2].expand(problem.runs, *problem.X[:2].shape), problem)
    x = x.repeat_interleave(copies, 0)
    with torch.no_grad():
        found = tuple(network.eval()(x).shape[2:])
    network.train()
    if found != (problem.num_classes,):
        raise ValueError(f"the network returns {found} numbers per row; it must return {problem.num_classes} logits")
    if any(isinstance(module, nn.modules.dropout._DropoutNd) for module in network.modules()):
        warnings.warn(
            "the network has dropout, which draws from torch's global generator: training it is not repeatable to the "
            "bit, nor is resuming it",
            stacklevel=2,
        )


def network_tensors(method: Method) -> dict[str, Tensor]:
    """Parameters and buffers of all networks, by name."""
    nets = method.networks().items()
    return {f"net.{name}.{key}": value for name, net in nets for key, value in net.state_dict().items()}


def copy_tensors(source: Mapping[str, Tensor], target: Mapping[str, Tensor], advice: str) -> None:
    """Copy tensors by name, in place; their names and shapes must agree."""
    for name, value in target.items():
        if name not in source or source[name].shape != value.shape:
            found = f"has shape {tuple(source[name].shape)}" if name in source else "is missing"
            raise ValueError(f"{name} {found} instead of having shape {tuple(value.shape)}: {advice}")
    for name, value in target.items():
        value.copy_(source[name])


def describe(part: Any) -> Any:
    """Describe a method, cleaner, network or setting in JSON types; arrays by their hash."""
    if isinstance(part, Method | Cleaner) or (dataclasses.is_dataclass(part) and not isinstance(part, type)):
        fields: tuple[Any, ...] = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
        values = {field.name: describe(getattr(part, field.name)) for field in fields}
        return {"name": type(part).__name__.lower(), **values}
    if isinstance(part, Mapping):
        return {str(key): describe(value) for key, value in part.items()}
    if isinstance(part, set | frozenset):
        return sorted((describe(value) for value in part), key=repr)
    if isinstance(part, np.generic):
        return part.item()
    if isinstance(part, Tensor):
        part = part.cpu().numpy()
    if isinstance(part, list | tuple) and not all(isinstance(value, str | int | float) for value in part):
        return [describe(value) for value in part]
    if isinstance(part, np.ndarray | list | tuple):
        array = np.ascontiguousarray(part)
        return f"{array.dtype}{list(array.shape)}:{hashlib.sha256(array.tobytes()).hexdigest()[:16]}"
    if part is None or isinstance(part, str | int | float):
        return part
    return getattr(part, "__qualname__", type(part).__qualname__)


def fingerprint(problem: Problem) -> str:
    """Hash everything a problem holds."""
    parts = {name: describe(value) for name, value in vars(problem).items() if isinstance(value, Tensor)}
    rows = [describe(rows) for rows in problem.rows]
    return store.digest(parts | {"rows": rows, "seeds": list(problem.seeds)})


@dataclasses.dataclass(frozen=True)
class Model:
    """R trained models, one per run.

    Attributes
    ----------
    method : Method
        The trained copy of the method, with its networks.
    problem : Problem
        The problem's shape and scaling, without its rows.
    net : str or callable
        What networks were built with.
    recipe : Recipe
        How it was trained.
    cleaner : dict
        The cleaner's name and settings.
    history : dict of arrays (epochs, R)
        loss, mean_candidates and share_changed; alpha and threshold with a conformal cleaner; accuracy and true_kept,
        over the training rows and in training mode, when true labels were given.
    kept : Tensor of bool (R, N, C)
        The candidates of each training row as the method last saw them; other rows keep their original ones.
    """

    method: Method
    problem: Problem
    net: str | Factory
    recipe: Recipe
    cleaner: Mapping[str, Any]
    history: Mapping[str, np.ndarray[Any, Any]]
    kept: Tensor

    def predict(self, X: Any) -> Tensor:
        """Return each run's class probabilities (R, n, C) for rows X (n, ...), on the CPU."""
        like = self.problem.X
        rows = as_tensor(X)
        if rows.dtype != like.dtype:
            rows = rows.to(self.problem.dtype)
        if rows.shape[1:] != like.shape[1:]:
            shapes = f"{tuple(rows.shape[1:])} but the model was trained on {tuple(like.shape[1:])}"
            raise ValueError(f"rows of X have shape {shapes}; give the same features")
        check_finite(rows)
        sweep = Sweep(dataclasses.replace(self.problem, X=rows.to(like.device)), self.method)
        return sweep(self.method.predict).cpu()

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder: one safetensors file and one JSON file."""
        tensors = network_tensors(self.method) | {"kept": self.kept}
        tensors |= {f"history.{name}": torch.from_numpy(value) for name, value in self.history.items()}
        if self.problem.scale is not None and self.problem.shift is not None:
            tensors |= {"shift": self.problem.shift, "scale": self.problem.scale}
        facts = {
            "method": describe(self.method),
            "net": describe(self.net),
            "own_net": callable(self.net),
            "recipe": dataclasses.asdict(self.recipe),
            "cleaner": dict(self.cleaner),
            "seeds": list(self.problem.seeds),
            "classes": list(self.problem.classes),
            "shape": list(self.problem.X.shape[1:]),
            "dtype": str(self.problem.X.dtype).removeprefix("torch."),
            "standardised": self.problem.standardised,
        }
        store.write(folder, tensors, facts, stem="model")

    @classmethod
    def load(cls, folder: str | Path, net: Factory | None = None, method: Method | None = None) -> "Model":
        """Read a model; `net` and `method` are needed when they were the user's own."""
        tensors, facts = store.read(folder, stem="model")
        if facts["own_net"] and net is None:
            raise ValueError(f"this model uses the network {facts['net']!r} of your own; pass load(..., net=factory)")
        arguments = dict(facts["method"])
        name = arguments.pop("name")
        if method is None and name not in _KNOWN:
            raise ValueError(f"this model uses the method {name!r} of your own; pass load(..., method=...)")
        method = _KNOWN[name](**arguments) if method is None else copy.copy(method)
        classes = tuple(facts["classes"])
        X = torch.zeros(2, *facts["shape"], dtype=getattr(torch, facts["dtype"]))
        S = torch.ones(2, len(classes), dtype=torch.bool)
        seeds = tuple(facts["seeds"])
        rows = (torch.arange(2),) * len(seeds)
        scaling = {"shift": tensors.get("shift"), "scale": tensors.get("scale")}
        standardised = facts.get("standardised", "scale" in tensors)  # older files hold no scaling but this
        problem = Problem(X, S, rows, seeds, classes=classes, standardised=standardised, **scaling)
        network = net if net is not None else facts["net"]
        method.setup(problem, builder(problem, network))
        saved = {key: value for key, value in tensors.items() if key.startswith("net.")}
        copy_tensors(
            saved, network_tensors(method), "the saved network is another one; pass the net it was trained with"
        )
        history = {key[8:]: value.numpy() for key, value in tensors.items() if key.startswith("history.")}
        recipe = Recipe(**facts["recipe"])
        return cls(method, problem.without_rows(), network, recipe, facts["cleaner"], history, tensors["kept"])
