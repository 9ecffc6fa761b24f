"""Descriptions of methods, cleaners, networks and problems in JSON types, for saved models, checkpoints and hashes."""

import dataclasses
import hashlib
from collections.abc import Mapping
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


def fingerprint(problem: Problem) -> str:
    """Return a hash of everything a problem holds."""
    parts = {name: describe(value) for name, value in vars(problem).items() if isinstance(value, Tensor)}
    rows = [describe(rows) for rows in problem.rows]
    return store.digest(parts | {"rows": rows, "seeds": list(problem.seeds)})
