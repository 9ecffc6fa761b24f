"""Experiments: specs, runs in hashed folders, sweeps that can be killed and resumed, and tables of their results.

Public names are resolved on first use: tables need none of what training needs.
"""

import importlib
from typing import Any

_HOMES = {
    "CLEANERS": "spec",
    "Outcome": "sweeps",
    "SUITES": "spec",
    "Scores": "scores",
    "Spec": "spec",
    "read": "collect",
    "read_csv": "collect",
    "read_spec": "spec",
    "render": "table",
    "sweep": "sweeps",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"candidly.bench.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'candidly.bench' has no attribute {name!r}")
