"""candidly: learning from ambiguous labels.

Rows with candidate sets of classes in; a classifier, cleaned labels and prediction sets out, with estimates of how far
to trust them. Public names are imported on first use, so that ``import candidly`` and ``candidly --help`` are fast.
Type checkers and editors see all names with their types.
"""

import importlib

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` would delay the handling of signals
if TYPE_CHECKING:
    from candidly import (
        bench,
        candidates,
        cleaning,
        conformal,
        data,
        encoders,
        engine,
        estimator,
        methods,
        metrics,
        report,
        review,
        tables,
    )
    from candidly.candidates import Candidates, encode, from_annotations
    from candidly.cleaning import CLEANERS, Clsp, Conformal, Oracle, Random
    from candidly.data import corrupt
    from candidly.engine import (
        RECIPES,
        Batch,
        BuildNet,
        Cleaner,
        Method,
        Model,
        OneNetwork,
        Predict,
        Problem,
        Recipe,
        Sweep,
        candidate_nll,
        fit,
        masked_softmax,
        soft_ce,
        uniform_weights,
    )
    from candidly.estimator import PartialLabelClassifier, evaluate, scoring
    from candidly.methods import METHODS, Balanced, Cavl, Cc, Crosel, Lws, Pico, Plcr, Pop, Proden, Rc, Valen

__version__ = "0.2.0"

__all__ = [
    "CLEANERS",
    "METHODS",
    "RECIPES",
    "Balanced",
    "Batch",
    "BuildNet",
    "Candidates",
    "Cavl",
    "Cc",
    "Cleaner",
    "Clsp",
    "Conformal",
    "Crosel",
    "Lws",
    "Method",
    "Model",
    "OneNetwork",
    "Oracle",
    "PartialLabelClassifier",
    "Pico",
    "Plcr",
    "Pop",
    "Predict",
    "Problem",
    "Proden",
    "Random",
    "Rc",
    "Recipe",
    "Sweep",
    "Valen",
    "__version__",
    "bench",
    "candidate_nll",
    "candidates",
    "cleaning",
    "conformal",
    "corrupt",
    "data",
    "encode",
    "encoders",
    "engine",
    "estimator",
    "evaluate",
    "fit",
    "from_annotations",
    "masked_softmax",
    "methods",
    "metrics",
    "report",
    "review",
    "scoring",
    "soft_ce",
    "tables",
    "uniform_weights",
]

# The room of each name. `Model` comes with the methods, so that a loaded model finds them.
_NAMES = {
    "candidates": ("Candidates", "encode", "from_annotations"),
    "cleaning": ("CLEANERS", "Clsp", "Conformal", "Oracle", "Random"),
    "engine": (
        *("RECIPES", "Batch", "BuildNet", "Cleaner", "Method", "OneNetwork", "Predict", "Problem", "Recipe", "Sweep"),
        *("candidate_nll", "fit", "masked_softmax", "soft_ce", "uniform_weights"),
    ),
    "estimator": ("PartialLabelClassifier", "evaluate"),
    "methods": (
        "METHODS",
        "Balanced",
        "Cavl",
        "Cc",
        "Crosel",
        "Lws",
        "Model",
        "Pico",
        "Plcr",
        "Pop",
        "Proden",
        "Rc",
        "Valen",
    ),
}
_ROOM_OF = {name: room for room, names in _NAMES.items() for name in names}
_MODULES = {
    **{room: room for room in ("bench", "candidates", "cleaning", "conformal", "data", "encoders", "engine")},
    **{room: room for room in ("estimator", "methods", "metrics", "report", "review", "tables")},
    "corrupt": "data.corrupt",
    "scoring": "estimator.scoring",
}

if not TYPE_CHECKING:  # a type checker would take every unknown name for Any

    def __getattr__(name: str) -> object:
        if name in _ROOM_OF:
            return getattr(importlib.import_module(f"candidly.{_ROOM_OF[name]}"), name)
        if name in _MODULES:
            return importlib.import_module(f"candidly.{_MODULES[name]}")
        raise AttributeError(f"module 'candidly' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
