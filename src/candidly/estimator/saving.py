"""Estimators on disk: what `candidly.estimator.classifier.PartialLabelClassifier` adds to a model's folder."""

import hashlib
import math
import platform
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch

from candidly import __version__
from candidly.candidates import Candidates
from candidly.cleaning import KINDS, Cleaner
from candidly.conformal.calibration import Calibration
from candidly.engine.description import describe
from candidly.engine.device import find_device
from candidly.engine.model import Model
from candidly.engine.nets.build import Factory
from candidly.methods import METHODS, Method
from candidly.store import states
from candidly.tables.features import Features

_SIMPLE = (str, int, float, bool, type(None))


def save(estimator: Any, folder: str | Path, more: Mapping[str, bytes]) -> None:
    """Write a fitted estimator: `model.safetensors`, `model.json` and further files by name."""
    for name in estimator.model_.problem.classes:
        if not isinstance(name, _SIMPLE):
            raise ValueError(f"class {name!r} is a {type(name).__name__}; models keep names that are texts or numbers")
    tensors, facts = estimator.model_.parts()
    facts["estimator"] = {
        "parameters": {name: _plain(value) for name, value in estimator.get_params(deep=False).items()},
        "features": estimator.features_.to_json(),
        "trained_on": estimator.trained_on_,
        "versions": {
            "candidly": __version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
            "python": platform.python_version(),
        },
    }
    states.write_folder(folder, tensors | estimator.calibration_.tensors(), facts, stem="model", more=more)


def load(kind: type, folder: str | Path, net: Factory | None = None, method: Method | None = None) -> Any:
    """Read what `save` wrote."""
    tensors, facts = states.read(folder, stem="model")
    known = facts.get("estimator")
    if not isinstance(known, dict):
        raise ValueError(f"{folder} holds no estimator; if a Model was saved there, use candidly.Model.load")
    ours = {name: value for name, value in tensors.items() if name.startswith("calibration.")}
    theirs = {name: value for name, value in tensors.items() if name not in ours}
    model = Model.of_parts(theirs, facts, net=net, method=method)
    features, calibration = Features.from_json(known.get("features")), Calibration.of_tensors(ours)
    if features.width != math.prod(model.problem.X.shape[1:]):
        raise ValueError(f"{folder} has features that do not fit its network; restore a copy or save the model again")
    if model.problem.runs % len(calibration.counts):
        raise ValueError(f"{folder} has scores that do not fit its networks; restore a copy or save the model again")
    given = {name: value for name, value in (("net", net), ("method", method)) if value is not None}
    estimator = kind(**(_parameters(kind, known.get("parameters")) | given))
    place = find_device("cpu" if estimator.device == "cpu" else "auto")  # a model from a GPU also works without one
    estimator.model_, estimator.calibration_ = model.to(place), calibration
    estimator.classes_ = as_array(model.problem.classes)
    estimator.history_ = dict(model.history)
    estimator.n_iter_ = len(estimator.history_["loss"])
    estimator.trained_on_ = known.get("trained_on")
    estimator._note_features(features)
    return estimator


def fingerprint(X: np.ndarray[Any, Any], S: Candidates) -> str:
    """Hash the rows an estimator was trained on: 16 hexadecimal digits."""
    digest = hashlib.sha256(f"{X.dtype}{X.shape}{S.matrix.shape}".encode())
    digest.update(np.ascontiguousarray(X).data)
    digest.update(np.packbits(S.matrix).data)
    return digest.hexdigest()[:16]


def as_array(names: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """Return class names as an array, of objects only where they are of several types or of none that arrays have."""
    plain = len({type(name) for name in names}) == 1 and isinstance(names[0], str | int | float)
    if plain and not any(isinstance(name, str) and name.endswith("\0") for name in names):  # which arrays of text drop
        return np.array(names)
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array


def _plain(value: Any) -> Any:
    """Return a parameter in JSON types; None for what cannot be written, such as a function."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _SIMPLE):
        return value
    if isinstance(value, Method | Cleaner):
        settings: list[Any] = list(vars(value).values())
        if type(value) in {*METHODS.values(), *KINDS.values()} and all(isinstance(one, _SIMPLE) for one in settings):
            return describe(value)
        warnings.warn(f"{type(value).__name__} is not saved; to train a loaded model again, set it anew", stacklevel=6)
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    return None


def _parameters(kind: type, saved: Any) -> dict[str, Any]:
    """Return the constructor's arguments; methods and cleaners are made anew from their settings."""
    names = kind._get_param_names()  # type: ignore[attr-defined]
    if not isinstance(saved, dict) or not saved.keys() <= set(names):
        raise ValueError("the model's parameters are those of another version of candidly; save it again")
    return {name: _made(value) if isinstance(value, Mapping) else value for name, value in saved.items()}


def _made(settings: Mapping[str, Any]) -> Any:
    """Make a method or cleaner from its description; None where it is one of the user's own."""
    arguments = dict(settings)
    kind = {**METHODS, **KINDS}.get(arguments.pop("name", ""))
    try:
        return None if kind is None else kind(**arguments)
    except TypeError as error:
        raise ValueError(f"the model's parameters are those of another version of candidly ({error})") from None
