"""candidly: learning from ambiguous labels.

Give it rows with candidate sets of classes; get back a classifier, cleaned labels and the evidence. Public names are
resolved on first use, so that ``import candidly`` and ``candidly --help`` are immediate.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Candidates": "candidates",
    "Clsp": "cleaning",
    "Conformal": "cleaning",
    "METHODS": "methods",
    "Model": "model",
    "Oracle": "cleaning",
    "PartialLabelClassifier": "estimator",
    "Problem": "problem",
    "RECIPES": "recipe",
    "Random": "cleaning",
    "Recipe": "recipe",
    "fit": "engine",
}
_MODULES = (
    "bench",
    "candidates",
    "cleaning",
    "conformal",
    "corrupt",
    "data",
    "engine",
    "estimator",
    "evaluation",
    "methods",
    "metrics",
    "nets",
    "report",
    "scoring",
    "store",
)

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"candidly.{_HOMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"candidly.{name}")
    raise AttributeError(f"module 'candidly' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
