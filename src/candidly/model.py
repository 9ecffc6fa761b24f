"""What a fit returns: networks that predict for every run, the history, and the candidate sets that were kept."""

import copy
import dataclasses
import hashlib
import math
import reprlib
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from candidly import store
from candidly.batches import Sweep, scaled
from candidly.cleaning import Cleaner
from candidly.device import find_device
from candidly.labels import class_names
from candidly.methods import METHODS, Supervised
from candidly.methods.base import Method
from candidly.nets import BuildNet, Factory, build
from candidly.problem import Problem, as_tensor, check_finite, stream
from candidly.recipe import Recipe

_KNOWN = METHODS | {"supervised": Supervised}
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.uint8, torch.half, torch.float, torch.double)}
_DTYPES |= {"bfloat16": torch.bfloat16}
_MOST_RUNS, _MOST_NUMBERS = 10_000, 2**31  # of a saved model, and of one row: what they cost is no part of the files
_CHANGED = "the model was written by another version of candidly, or changed since; save it again"


def builder(problem: Problem, net: str | Factory, half: bool = False, room: int | None = None) -> BuildNet:
    """Return the function that a method builds its networks with; each one it builds has weights of its own.

    With `room`, networks are built to be filled with that many saved numbers: they get no initial weights, and no
    memory before it is known that they are not larger.
    """
    built = 0

    def build_net(
        name: str | None = None, *, inputs: int = 0, outputs: int = 0, features: bool = False, copies: int = 1
    ) -> nn.Module:
        nonlocal built
        generators = [stream(seed, "network", built + copy) for seed in problem.seeds for copy in range(copies)]
        built += copies
        own = name is None and callable(net)
        with nullcontext() if room is None or own else torch.device("meta"):
            if name is None:
                network = build(net, tuple(problem.X.shape[1:]), problem.num_classes, generators, features, half)
            else:
                network = build(name, (inputs,), outputs, generators)
        if room is not None:
            return _fitting(network, problem, room)
        network = network.to(problem.X.device, problem.dtype)
        if own:
            _check_own(network, problem, copies)
        return network

    return build_net


def _fitting(network: nn.Module, problem: Problem, room: int) -> nn.Module:
    """Refuse a network that is larger than what was saved; a user's own stays where the user built it."""
    needed = sum(value.numel() for value in network.state_dict().values())
    if needed > room:
        raise ValueError(f"the model's networks would hold {needed} numbers, but {room} were saved: {_CHANGED}")
    network = network.to(problem.dtype)
    unfilled = next(network.parameters()).is_meta and not problem.X.is_meta
    return network.to_empty(device=problem.X.device) if unfilled else network


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
    """Copy tensors by name, in place; their names, shapes and types must agree."""
    for name, value in target.items():
        if name not in source or source[name].shape != value.shape:
            found = f"has shape {tuple(source[name].shape)}" if name in source else "is missing"
            raise ValueError(f"{name} {found} instead of having shape {tuple(value.shape)}: {advice}")
        if source[name].dtype != value.dtype:
            raise ValueError(f"{name} has dtype {source[name].dtype} instead of {value.dtype}: {advice}")
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
        over the training rows and in training mode, when true labels were given; covering_rate when rows were held out.
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

    def to(self, device: str | torch.device) -> "Model":
        """Return the same model with its networks on another device, where it will predict."""
        place = find_device(device)
        method = copy.copy(self.method)
        for name, net in self.method.networks().items():
            setattr(method, name, copy.deepcopy(net).to(place))
        for name, value in self.method.state().items():
            setattr(method, name, value.to(place))
        return dataclasses.replace(self, method=method, problem=self.problem.to(place))

    def parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that makes up the model: tensors by name, and facts in JSON types."""
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
        return tensors, facts

    @classmethod
    def of_parts(
        cls,
        tensors: Mapping[str, Tensor],
        facts: Mapping[str, Any],
        net: Factory | None = None,
        method: Method | None = None,
    ) -> "Model":
        """Make a model of what `parts` returned, on the CPU and without what its method stored per row.

        Parameters
        ----------
        tensors, facts : mappings
            They are trusted in nothing: whatever sizes they claim, no more memory is used than the tensors take.
        net : callable, optional
            Needed when the network was the user's own.
        method : Method, optional
            Needed when the method was the user's own.

        Raises
        ------
        ValueError
            If they are no model's parts, or `net` or `method` is needed.

        Examples
        --------
        >>> from candidly import METHODS, Recipe, fit
        >>> problem = Problem.of([[0.0], [1.0]], [[True, False], [False, True]])
        >>> model = fit(problem, METHODS["proden"](), recipe=Recipe(epochs=1), net="linear", device="cpu")
        >>> again = Model.of_parts(*model.parts())
        >>> torch.equal(again.predict([[0.5]]), model.predict([[0.5]]))
        True
        """
        _check_facts(facts)
        if facts["own_net"] and net is None:
            raise ValueError(f"this model uses the network {facts['net']!r} of your own; pass load(..., net=factory)")
        network = facts["net"] if net is None else net
        saved = {key: value for key, value in tensors.items() if key.startswith("net.")}
        problem = _shapes(tensors, facts, len(saved) if callable(network) else _MOST_RUNS)
        trained = _known(facts["method"]) if method is None else copy.copy(method)
        room = sum(value.numel() for value in saved.values())
        # A method of the library's own needs no memory to be set up: its networks are filled and the rest goes.
        outline = problem.to(torch.device("meta")) if method is None else problem
        try:
            trained.setup(outline, builder(outline, network, room=room))
        except RuntimeError as error:  # torch's, of sizes that are negative or whose product has too many digits
            if method is not None or callable(network):
                raise
            reason = str(error).partition("\n")[0]
            raise ValueError(f"networks of the model's sizes cannot be built ({reason}): {_CHANGED}") from None
        for one in trained.networks().values():
            if next(one.parameters()).is_meta:
                one.to_empty(device="cpu")
        advice = "the saved network is another one; pass the net it was trained with"
        copy_tensors(saved, network_tensors(trained), advice)
        for name in trained.state() if method is None else ():
            delattr(trained, name)
        history = {key[8:]: value.cpu().numpy() for key, value in tensors.items() if key.startswith("history.")}
        recipe, kept = Recipe(**facts["recipe"]), tensors["kept"].cpu()
        return cls(trained, problem.without_rows(), network, recipe, facts["cleaner"], history, kept)

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder of its own, which holds ``model.safetensors`` and ``model.json``."""
        store.write_folder(folder, *self.parts())

    @classmethod
    def load(cls, folder: str | Path, net: Factory | None = None, method: Method | None = None) -> "Model":
        """Read a model; `net` and `method` are needed when they were the user's own."""
        return cls.of_parts(*store.read(folder, stem="model"), net, method)


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


_FACTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "method": (lambda value: isinstance(value, dict) and isinstance(value.get("name"), str), "a name and settings"),
    "net": (lambda value: isinstance(value, str), "a name"),
    "own_net": (lambda value: isinstance(value, bool), "true or false"),
    "recipe": (lambda value: isinstance(value, dict), "settings by name"),
    "cleaner": (lambda value: isinstance(value, dict), "settings by name"),
    "seeds": (
        lambda value: isinstance(value, list) and 0 < len(value) <= _MOST_RUNS and all(_whole(one, 0) for one in value),
        f"1 to {_MOST_RUNS} whole numbers",
    ),
    "classes": (
        lambda value: isinstance(value, list) and all(isinstance(one, str | int | float) for one in value),
        "a list of names",
    ),
    "shape": (
        lambda value: isinstance(value, list) and all(_whole(one, 1) for one in value) and 0 < len(value) <= 8,
        "1 to 8 whole numbers",
    ),
    "dtype": (lambda value: isinstance(value, str) and value in _DTYPES, f"one of {', '.join(_DTYPES)}"),
}


def _check_facts(facts: Mapping[str, Any]) -> None:
    for name, (right, wanted) in _FACTS.items():
        if name not in facts:
            raise ValueError(f"the model's facts lack {name!r}: {_CHANGED}")
        if not right(facts[name]):
            raise ValueError(f"the model's {name} is {reprlib.repr(facts[name])} instead of {wanted}: {_CHANGED}")
    if not isinstance(facts.get("standardised", True), bool):
        raise ValueError(f"the model's standardised is {facts['standardised']!r} instead of true or false: {_CHANGED}")
    known = {field.name for field in dataclasses.fields(Recipe)}
    unknown = sorted(set(facts["recipe"]) - known)
    if unknown:
        raise ValueError(f"the model's recipe has the unknown setting {unknown[0]!r}: {_CHANGED}")
    if not isinstance(facts["recipe"].get("name", ""), str):
        raise ValueError(f"the model's recipe is called {facts['recipe']['name']!r}, which is no text: {_CHANGED}")


def _shapes(tensors: Mapping[str, Tensor], facts: Mapping[str, Any], most_runs: int) -> Problem:
    """Return a problem of two rows that the model could have been trained on."""
    classes, seeds, shape = class_names(facts["classes"]), tuple(facts["seeds"]), tuple(facts["shape"])
    runs, stored = len(seeds), sum(value.nbytes for value in tensors.values())
    if math.prod(shape) > _MOST_NUMBERS or runs * len(classes) > stored or runs > most_runs:
        sizes = f"rows of shape {shape}, {len(classes)} classes and {runs} runs"
        raise ValueError(f"the model claims {sizes}, more than its {stored} bytes can hold: {_CHANGED}")
    dtype = _DTYPES[facts["dtype"]]
    X = torch.zeros((), dtype=dtype).expand(2, *shape)
    S = torch.ones(2, len(classes), dtype=torch.bool)
    problem = Problem(X, S, (torch.arange(2),) * runs, seeds, classes=classes)
    scaling = [tensors[name].cpu() for name in ("shift", "scale") if name in tensors]
    wanted = [value for value in scaling if value.dtype == problem.dtype and _broadcasts(value, (runs, 1, *shape))]
    if len(scaling) == 1 or len(wanted) < len(scaling):
        raise ValueError(f"the model's shift and scale do not fit rows of shape {shape} and {runs} runs: {_CHANGED}")
    kept = tensors.get("kept", S)
    if kept.dtype != torch.bool or kept.ndim != 3 or (kept.shape[0], kept.shape[2]) != (runs, len(classes)):
        found = f"kept has shape {tuple(kept.shape)}" if "kept" in tensors else "kept is missing"
        raise ValueError(f"{found}, but the model has {runs} runs and {len(classes)} classes: {_CHANGED}")
    for name, value in tensors.items():
        if name.startswith("history.") and (value.ndim != 2 or value.shape[1] != runs or value.dtype != torch.float64):
            raise ValueError(f"{name} has shape {tuple(value.shape)}, but the model has {runs} runs: {_CHANGED}")
    if not scaling:
        return dataclasses.replace(problem, standardised=facts.get("standardised", False))
    standardised = facts.get("standardised", True)  # older files hold no scaling but this
    return dataclasses.replace(problem, shift=scaling[0], scale=scaling[1], standardised=standardised)


def _broadcasts(value: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a scaling has a number for each run, and for the rest of a row or an axis of it."""
    axes = zip(value.shape[2:], shape[2:], strict=False)
    return value.ndim == len(shape) and value.shape[:2] == shape[:2] and all(n in (1, full) for n, full in axes)


def _known(described: Mapping[str, Any]) -> Method:
    """Return a method of the library by its name and settings."""
    name = described["name"]
    if name not in _KNOWN:
        raise ValueError(f"this model uses the method {name!r} of your own; pass load(..., method=...)")
    fields: tuple[Any, ...] = dataclasses.fields(_KNOWN[name])  # type: ignore[arg-type]
    defaults = {field.name: field.default for field in fields}
    settings = {key: value for key, value in described.items() if key != "name"}
    for key, value in settings.items():
        if key not in defaults or not _alike(value, defaults[key]):
            raise ValueError(f"the method {name!r} has no setting {key}={reprlib.repr(value)}: {_CHANGED}")
        if isinstance(defaults[key], int | float):
            settings[key] = type(defaults[key])(value)
    return _KNOWN[name](**settings)


def _alike(value: Any, default: Any) -> bool:
    """Whether a setting has its default's type; 3.0 is a whole number, too."""
    if type(default) not in (int, float):
        return type(value) is type(default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < 2**63 and (isinstance(default, float) or value == int(value))
