"""Checks of a saved model's tensors and facts, which are trusted in nothing."""

import dataclasses
import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from candidly.candidates.labels import class_names
from candidly.engine.building import CHANGED
from candidly.engine.contract import Method
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe

KNOWN_METHODS: dict[str, type[Method]] = {}
"""Methods by the name that saved models have for them; `candidly.methods` adds its own."""


_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.uint8, torch.half, torch.float, torch.double)}
_DTYPES |= {"bfloat16": torch.bfloat16}


MOST_RUNS, _MOST_NUMBERS = 10_000, 2**31  # of a saved model, and of one row: what they cost is no part of the files


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


_FACTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "method": (lambda value: isinstance(value, dict) and isinstance(value.get("name"), str), "a name and settings"),
    "net": (lambda value: isinstance(value, str), "a name"),
    "own_net": (lambda value: isinstance(value, bool), "true or false"),
    "recipe": (lambda value: isinstance(value, dict), "settings by name"),
    "cleaner": (lambda value: isinstance(value, dict), "settings by name"),
    "seeds": (
        lambda value: isinstance(value, list) and 0 < len(value) <= MOST_RUNS and all(_whole(one, 0) for one in value),
        f"1 to {MOST_RUNS} whole numbers",
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


def check_facts(facts: Mapping[str, Any]) -> None:
    for name, (right, wanted) in _FACTS.items():
        if name not in facts:
            raise ValueError(f"the model's facts lack {name!r}: {CHANGED}")
        if not right(facts[name]):
            raise ValueError(f"the model's {name} is {reprlib.repr(facts[name])} instead of {wanted}: {CHANGED}")
    if not isinstance(facts.get("standardised", True), bool):
        raise ValueError(f"the model's standardised is {facts['standardised']!r} instead of true or false: {CHANGED}")
    known = {field.name for field in dataclasses.fields(Recipe)}
    unknown = sorted(set(facts["recipe"]) - known)
    if unknown:
        raise ValueError(f"the model's recipe has the unknown setting {unknown[0]!r}: {CHANGED}")
    if not isinstance(facts["recipe"].get("name", ""), str):
        raise ValueError(f"the model's recipe is called {facts['recipe']['name']!r}, which is no text: {CHANGED}")


def shapes(tensors: Mapping[str, Tensor], facts: Mapping[str, Any], most_runs: int) -> Problem:
    """Return a problem of two rows that the model could have been trained on."""
    classes, seeds, shape = class_names(facts["classes"]), tuple(facts["seeds"]), tuple(facts["shape"])
    runs, stored = len(seeds), sum(value.nbytes for value in tensors.values())
    if math.prod(shape) > _MOST_NUMBERS or runs * len(classes) > stored or runs > most_runs:
        sizes = f"rows of shape {shape}, {len(classes)} classes and {runs} runs"
        raise ValueError(f"the model claims {sizes}, more than its {stored} bytes can hold: {CHANGED}")
    dtype = _DTYPES[facts["dtype"]]
    X = torch.zeros((), dtype=dtype).expand(2, *shape)
    S = torch.ones(2, len(classes), dtype=torch.bool)
    problem = Problem(X, S, (torch.arange(2),) * runs, seeds, classes=classes)
    scaling = [tensors[name].cpu() for name in ("shift", "scale") if name in tensors]
    wanted = [value for value in scaling if value.dtype == problem.dtype and _broadcasts(value, (runs, 1, *shape))]
    if len(scaling) == 1 or len(wanted) < len(scaling):
        raise ValueError(f"the model's shift and scale do not fit rows of shape {shape} and {runs} runs: {CHANGED}")
    kept = tensors.get("kept", S)
    if kept.dtype != torch.bool or kept.ndim != 3 or (kept.shape[0], kept.shape[2]) != (runs, len(classes)):
        found = f"kept has shape {tuple(kept.shape)}" if "kept" in tensors else "kept is missing"
        raise ValueError(f"{found}, but the model has {runs} runs and {len(classes)} classes: {CHANGED}")
    for name, value in tensors.items():
        if name.startswith("history.") and (value.ndim != 2 or value.shape[1] != runs or value.dtype != torch.float64):
            raise ValueError(f"{name} has shape {tuple(value.shape)}, but the model has {runs} runs: {CHANGED}")
    if not scaling:
        return dataclasses.replace(problem, standardised=facts.get("standardised", False))
    standardised = facts.get("standardised", True)  # older files hold no scaling but this
    return dataclasses.replace(problem, shift=scaling[0], scale=scaling[1], standardised=standardised)


def _broadcasts(value: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a scaling has a number for each run, and for the rest of a row or an axis of it."""
    axes = zip(value.shape[2:], shape[2:], strict=False)
    return value.ndim == len(shape) and value.shape[:2] == shape[:2] and all(n in (1, full) for n, full in axes)


def known_method(described: Mapping[str, Any]) -> Method:
    """Return a method of the library by its name and settings."""
    name = described["name"]
    if name not in KNOWN_METHODS:
        raise ValueError(f"this model uses the method {name!r} of your own; pass load(..., method=...)")
    fields: tuple[Any, ...] = dataclasses.fields(KNOWN_METHODS[name])  # type: ignore[arg-type]
    defaults = {field.name: field.default for field in fields}
    settings = {key: value for key, value in described.items() if key != "name"}
    for key, value in settings.items():
        if key not in defaults or not _alike(value, defaults[key]):
            raise ValueError(f"the method {name!r} has no setting {key}={reprlib.repr(value)}: {CHANGED}")
        if isinstance(defaults[key], int | float):
            settings[key] = type(defaults[key])(value)
    return KNOWN_METHODS[name](**settings)


def _alike(value: Any, default: Any) -> bool:
    """Whether a setting has its default's type; 3.0 is a whole number, too."""
    if type(default) not in (int, float):
        return type(value) is type(default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < 2**63 and (isinstance(default, float) or value == int(value))
