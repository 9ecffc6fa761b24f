"""Descriptions of methods, cleaners, networks and problems in JSON types, for saved models, checkpoints and hashes."""

import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from torch import Tensor

from candidly import store
from candidly.engine.contract import Cleaner, Method
from candidly.engine.problem import Problem


def describe(part: Any) -> Any:
    """Return a method, cleaner, network or setting in JSON types; arrays as their hash."""
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


def source_hash(part: type | Callable[..., Any]) -> str | None:
    """Return a hash of the source code of a class or function; None if the source is unknown."""
    try:
        return hashlib.sha256(inspect.getsource(part).encode()).hexdigest()[:16]
    except (OSError, TypeError):  # a class that was defined in an interactive session has no file
        return None


def code_hash(*parts: Any) -> str:
    """Return a hash of the code of custom functions, and of the classes of custom objects and their bases.

    It covers the values that functions captured when they were defined. Code of candidly, torch and Python is ignored.
    """
    return hashlib.sha256(repr([_code(part) for part in parts]).encode()).hexdigest()[:16]


def method_code(method: Method) -> str:
    """Return a hash of the code and settings of a method."""
    return hashlib.sha256(repr([code_hash(method), describe(method)]).encode()).hexdigest()[:16]


def networks_code(method: Method) -> str:
    """Return a hash of the layers of a method's networks and of the code of all custom modules in them."""
    networks = method.networks().values()
    kinds = {type(module) for network in networks for module in network.modules()}
    code = code_hash(*sorted(kinds, key=lambda kind: (kind.__module__, kind.__qualname__)))
    return hashlib.sha256(repr([code, *map(repr, networks)]).encode()).hexdigest()[:16]


_LIBRARIES = {"abc", "builtins", "candidly", "torch", "typing"}


def _code(part: Any) -> Any:
    if isinstance(part, functools.partial):
        return [_code(part.func), describe(part.args), describe(part.keywords)]
    if inspect.ismethod(part):
        part = part.__func__
    if inspect.isfunction(part):
        return [source_hash(part), _captured(part)]
    kind = part if isinstance(part, type) else type(part)
    own = [one for one in kind.__mro__ if one.__module__.partition(".")[0] not in _LIBRARIES]
    functions = [[_captured(value) for value in vars(one).values() if inspect.isfunction(value)] for one in own]
    return [[source_hash(one) for one in own], functions]


def _captured(function: Any) -> list[Any]:
    """Describe the values of a function that its source does not show: its closure and its defaults."""
    found = [describe(function.__defaults__), describe(function.__kwdefaults__)]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # the cell is empty
            found.append(describe(cell.cell_contents))
    return found


def fingerprint(problem: Problem) -> str:
    """Return a hash of everything a problem holds."""
    parts = {name: describe(value) for name, value in vars(problem).items() if isinstance(value, Tensor)}
    rows = [describe(rows) for rows in problem.rows]
    return store.digest(parts | {"rows": rows, "seeds": list(problem.seeds)})
