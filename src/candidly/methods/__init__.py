"""Partial-label learning methods, one file per paper. `METHODS` maps names in commands and tables to classes."""

from candidly.engine import Batch, Method, Model, OneNetwork, Sweep
from candidly.engine.saved import KNOWN_METHODS
from candidly.methods.balanced import Balanced
from candidly.methods.cavl import Cavl
from candidly.methods.cc import Cc
from candidly.methods.crosel import Crosel
from candidly.methods.lws import Lws
from candidly.methods.pico import Pico
from candidly.methods.plcr import Plcr
from candidly.methods.pop import Pop
from candidly.methods.proden import Proden
from candidly.methods.rc import Rc
from candidly.methods.supervised import Supervised
from candidly.methods.valen import Valen

METHODS: dict[str, type[Method]] = {
    "balanced": Balanced,
    "proden": Proden,
    "rc": Rc,
    "cc": Cc,
    "cavl": Cavl,
    "pop": Pop,
    "valen": Valen,
    "crosel": Crosel,
    "lws": Lws,
    "plcr": Plcr,
    "pico": Pico,
}
KNOWN_METHODS.update(METHODS, supervised=Supervised)  # so that saved models find them


def find_method(method: Method | str) -> Method:
    """Return a method by its name, with default hyper-parameters; an instance is returned as it is."""
    if isinstance(method, Method):
        return method
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"unknown method {method!r}; use one of {', '.join(METHODS)}, or an instance")
    return METHODS[method]()


__all__ = [
    "METHODS",
    "Balanced",
    "Batch",
    "Cavl",
    "Cc",
    "Crosel",
    "Lws",
    "Method",
    "Model",
    "OneNetwork",
    "Pico",
    "Plcr",
    "Pop",
    "Proden",
    "Rc",
    "Supervised",
    "Sweep",
    "Valen",
    "find_method",
]
