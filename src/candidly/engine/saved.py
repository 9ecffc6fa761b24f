"""Validation of a saved model's tensors and facts, which may come from an untrusted file."""

import dataclasses
import math
import reprlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from candidly.candidates.labels import class_names
from candidly.engine.building import CHANGED
from candidly.engine.contract import Method
from candidly.engine.memory import MOST_RUNS
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.store.validation import Check, count, expect, flag, instance, list_of, one_of, record, require, text

KNOWN_METHODS: dict[str, type[Method]] = {}
"""Methods that saved models can be loaded with, by name. `candidly.methods` adds the library's methods on import."""

# Upper bounds when loading untrusted files: the memory that rows need is not implied by the file size.
_MOST_NUMBERS_PER_ROW = 2**31
_MOST_AXES = 8

_DTYPES = {
    "uint8": torch.uint8,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
}


def _named_settings(value: Any, what: str) -> None:
    require(isinstance(value, dict) and isinstance(value.get("name"), str), what, value)


_FACTS: dict[str, Check] = {
    "method": expect(_named_settings, "a name and settings"),
    "net": expect(instance(str), "a name"),
    "own_net": expect(flag, "true or false"),
    "recipe": expect(instance(dict), "settings by name"),
    "cleaner": expect(instance(dict), "settings by name"),
    "seeds": expect(list_of(count(0), 1, MOST_RUNS), f"1 to {MOST_RUNS} whole numbers"),
    "classes": expect(list_of(instance(str, int, float), 0), "a list of names"),
    "shape": expect(list_of(count(1), 1, _MOST_AXES), f"1 to {_MOST_AXES} whole numbers"),
    "dtype": expect(one_of(_DTYPES), f"one of {', '.join(_DTYPES)}"),
}
_OPTIONAL_FACTS: dict[str, Check] = {
    "standardised": expect(flag, "true or false"),
    "code": expect(record({"net": text, "method": text}), "hashes of the code of net and method"),
}


def check_facts(facts: Mapping[str, Any]) -> None:
    """Raise ValueError unless `facts` has everything that `Model.parts` describes a model by, with the right types."""
    for name in _FACTS:
        if name not in facts:
            raise ValueError(f"the model's facts lack {name!r}: {CHANGED}")
    try:
        for name, check in (_FACTS | _OPTIONAL_FACTS).items():
            if name in facts:
                check(facts[name], f"the model's {name}")
    except ValueError as error:
        raise ValueError(f"{error}: {CHANGED}") from None
    known = {field.name for field in dataclasses.fields(Recipe)}
    unknown = sorted(set(facts["recipe"]) - known)
    if unknown:
        raise ValueError(f"the model's recipe has the unknown setting {unknown[0]!r}: {CHANGED}")
    if not isinstance(facts["recipe"].get("name", ""), str):
        raise ValueError(f"the model's recipe has the name {facts['recipe']['name']!r}, which is not a text: {CHANGED}")


def shapes(tensors: Mapping[str, Tensor], facts: Mapping[str, Any], most_runs: int) -> Problem:
    """Return a problem with two rows and the shapes of the one that the model was trained on, after checking them."""
    classes = class_names(facts["classes"])
    seeds = tuple(facts["seeds"])
    shape = tuple(facts["shape"])
    runs = len(seeds)
    stored = sum(value.nbytes for value in tensors.values())
    if math.prod(shape) > _MOST_NUMBERS_PER_ROW or runs * len(classes) > stored or runs > most_runs:
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
    standardised = facts.get("standardised", True)  # files without the entry were standardised
    return dataclasses.replace(problem, shift=scaling[0], scale=scaling[1], standardised=standardised)


def _broadcasts(value: Tensor, shape: tuple[int, ...]) -> bool:
    """Return whether a shift or scale has one entry per run and broadcasts against a row."""
    axes = zip(value.shape[2:], shape[2:], strict=False)
    return value.ndim == len(shape) and value.shape[:2] == shape[:2] and all(n in (1, full) for n, full in axes)


def known_method(described: Mapping[str, Any]) -> Method:
    """Return one of `KNOWN_METHODS` with the settings that `describe` wrote."""
    name = described["name"]
    if name not in KNOWN_METHODS:
        raise ValueError(
            f"this model was trained with the method {name!r}, which candidly does not know; if it is a custom method, "
            "pass load(..., method=MyMethod()); if it is candidly's, import candidly.methods or update candidly"
        )
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
    """Return whether a setting has the type of its default; 3.0 counts as a whole number."""
    if type(default) not in (int, float):
        return type(value) is type(default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < 2**63 and (isinstance(default, float) or value == int(value))
