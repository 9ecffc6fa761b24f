"""The cases, one module per family."""

import functools
import importlib

from benchmarks.robustness.case import Case

FAMILIES = (
    "parameters",
    "tensors",
    "features",
    "labels",
    "weights",
    "votes",
    "prediction",
    "tables",
    "datasets",
    "saved",
    "experiments",
    "custom",
    "training",
    "tools",
    "commands",
    "terminal",
)


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """Return all cases. Raise if two have the same family and name."""
    modules = [importlib.import_module(f"benchmarks.robustness.families.{family}") for family in FAMILIES]
    cases = tuple(case for module in modules for case in module.cases())
    keys = [(case.family, case.name) for case in cases]
    twice = {key for key in keys if keys.count(key) > 1} if len(set(keys)) < len(keys) else set()
    if twice:
        raise ValueError(f"several cases have the same name: {sorted(twice)}")
    return cases
