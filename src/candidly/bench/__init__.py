"""Experiments: specs, runs in hashed folders, sweeps that can be killed and resumed, and tables of their results.

Public names are imported on first use: reading results and making tables does not import torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from candidly.bench.collect import read, read_csv
    from candidly.bench.engines import find_executor
    from candidly.bench.own import read_own
    from candidly.bench.scores import Scores
    from candidly.bench.spec import SUITES, Spec, read_spec
    from candidly.bench.sweeps import Outcome, sweep
    from candidly.bench.table import render

__all__ = [
    "SUITES",
    "Outcome",
    "Scores",
    "Spec",
    "find_executor",
    "read",
    "read_csv",
    "read_own",
    "read_spec",
    "render",
    "sweep",
]

_HOMES = {
    "SUITES": "spec",
    "Outcome": "sweeps",
    "Scores": "scores",
    "Spec": "spec",
    "find_executor": "engines",
    "read": "collect",
    "read_csv": "collect",
    "read_own": "own",
    "read_spec": "spec",
    "render": "table",
    "sweep": "sweeps",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"candidly.bench.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'candidly.bench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
