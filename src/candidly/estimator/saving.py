"""Read and write the folder of a `candidly.PartialLabelClassifier`."""

import csv
import hashlib
import json
import math
import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch

from candidly import __version__, store
from candidly.candidates import Candidates
from candidly.checks.machine import in_bytes
from candidly.cleaning import KINDS, Cleaner
from candidly.conformal.calibration import Calibration
from candidly.engine.description import describe
from candidly.engine.model import Model
from candidly.engine.nets.build import Factory
from candidly.estimator import learner_files
from candidly.estimator.learners import Learners
from candidly.messages import warn
from candidly.methods import METHODS, Method
from candidly.store import states
from candidly.store.files import MOST_JSON
from candidly.store.validation import require
from candidly.tables.features import Features
from candidly.tables.schema import Schema

_SIMPLE = (str, int, float, bool, type(None))


@dataclass(frozen=True, eq=False)
class SavedClassifier:
    """What the folder of a classifier holds.

    Attributes
    ----------
    parameters : dict
        Constructor arguments.
    model : Model or Learners
        The networks, or fitted scikit-learn classifiers.
    calibration : Calibration
        Scores of the held-out rows.
    features : Features
        How the columns of X are encoded.
    schema : Schema or None
        The columns of the table that the classifier was trained on.
    trained_on : str or None
        `fingerprint` of the training rows.
    """

    parameters: Mapping[str, Any]
    model: Model | Learners
    calibration: Calibration
    features: Features
    schema: Schema | None
    trained_on: str | None

    def write(self, folder: str | Path, more: Mapping[str, bytes]) -> None:
        """Write `model.json`, a file of tensors and further files, given by name."""
        for name in self.model.classes:
            if not isinstance(name, _SIMPLE):
                kind = type(name).__name__
                raise ValueError(f"class {name!r} is a {kind}; only names that are text or numbers can be saved")
        if isinstance(self.model, Learners):
            tensors, facts, files = learner_files.to_parts(self.model)
            more = {**more, **files}
        else:
            tensors, facts = self.model.parts()
        facts["estimator"] = {
            "parameters": {name: _to_json(value) for name, value in self.parameters.items()},
            "features": self.features.to_json(),
            "schema": None if self.schema is None else self.schema.to_json(),
            "trained_on": self.trained_on,
            "versions": {
                "candidly": __version__,
                "torch": str(torch.__version__),
                "numpy": np.__version__,
                "scikit-learn": sklearn.__version__,
                "python": platform.python_version(),
            },
        }
        states.write_folder(folder, tensors | self.calibration.tensors(), facts, stem="model", more=more)

    @classmethod
    def read(
        cls,
        folder: str | Path,
        known: Collection[str],
        net: Factory | None = None,
        method: Method | None = None,
    ) -> "SavedClassifier":
        """Read what `write` wrote, and validate it.

        Parameters
        ----------
        folder : path
        known : collection of str
            Names of the constructor's arguments.
        net, method
            As in `candidly.Model.load`.
        """
        tensors, facts = states.read(folder, stem="model")
        own = facts.get("estimator")
        if not isinstance(own, dict):
            raise ValueError(f"{folder} holds no classifier; if it holds a Model, use candidly.Model.load")
        scores = {name: value for name, value in tensors.items() if name.startswith("calibration.")}
        others = {name: value for name, value in tensors.items() if name not in scores}
        if "learners" in facts:
            data = states.read_more(folder, learner_files.FILE)
            model: Model | Learners = learner_files.of_parts(others, facts["learners"], data)
        else:
            model = Model.of_parts(others, facts, net=net, method=method)
        features, calibration = Features.from_json(own.get("features")), Calibration.of_tensors(scores)
        if features.width != math.prod(model.shape):
            raise ValueError(f"{folder}: the features do not fit the network; restore a copy or save the model again")
        if model.runs % len(calibration.counts):
            raise ValueError(f"{folder}: the scores do not fit the networks; restore a copy or save the model again")
        given = {name: value for name, value in (("net", net), ("method", method)) if value is not None}
        parameters = _parameters(own.get("parameters"), known) | given
        if isinstance(model, Learners) and parameters.get("base") is None:
            parameters["base"] = model.base
        if "schema" not in own:
            schema = _read_schema_0_1(Path(folder))
        else:
            schema = None if own["schema"] is None else Schema.from_json(own["schema"])
        return cls(parameters, model, calibration, features, schema, own.get("trained_on"))


def check_size(features: Features, classes: tuple[Any, ...]) -> None:
    """Raise ValueError if names and categories are too long for the files of a model, before it is trained."""
    columns = len(json.dumps(features.to_json()))
    names = sum(len(json.dumps(str(name))) + 2 for name in classes)
    # A file also holds line breaks and other facts, and class names that were passed to the constructor twice.
    if 2 * (columns + 2 * names) > MOST_JSON:
        raise ValueError(
            f"a model with these columns and classes cannot be saved: names and categories take {in_bytes(columns)} "
            f"for the columns and {in_bytes(names)} for the classes; use shorter names or fewer columns"
        )


def fingerprint(X: np.ndarray[Any, Any], S: Candidates) -> str:
    """Return a hash of the training rows: 16 hexadecimal digits."""
    digest = hashlib.sha256(f"{X.dtype}{X.shape}{S.matrix.shape}".encode())
    digest.update(np.ascontiguousarray(X).data)
    digest.update(np.packbits(S.matrix).data)
    return digest.hexdigest()[:16]


def as_array(names: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """Return class names as an array: of text or numbers if all names have that type, else of objects."""
    plain = len({type(name) for name in names}) == 1 and isinstance(names[0], str | int | float)
    found = np.array(names) if plain else None
    # NumPy drops \0 at the end of text, and makes integers that do not fit into 64 bits floating-point numbers.
    if found is not None and found.tolist() == list(names) and type(found.tolist()[0]) is type(names[0]):
        return found
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array


def _read_schema_0_1(folder: Path) -> Schema | None:
    """Read the schema of a model that version 0.1 wrote: as settings in `findings.json`, if the file exists."""
    path = folder / "findings.json"
    if not path.is_file():
        return None
    settings = store.read_json(path).get("settings", {})
    try:
        require(isinstance(settings, dict), "settings", settings)
        columns = {role: settings.get(f"{role} column") for role in ("candidates", "id", "labels")}
        dropped = settings.get("dropped columns") or ""
        require(isinstance(dropped, str), "dropped columns", dropped)
        drop = next(csv.reader([dropped]), [])
        return Schema.from_json(columns | {"drop": drop, "separator": "|", "delimiter": None})
    except (csv.Error, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}; restore a copy or train the model again") from None


def _to_json(value: Any) -> Any:
    """Return an argument in JSON types; None where that is impossible, as for a function."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _SIMPLE):
        return value
    if isinstance(value, Method | Cleaner):
        settings: list[Any] = list(vars(value).values())
        if type(value) in {*METHODS.values(), *KINDS.values()} and all(isinstance(one, _SIMPLE) for one in settings):
            return describe(value)
        warn(f"{type(value).__name__} is not saved; to train the loaded model again, pass it with set_params")
    if isinstance(value, list | tuple | np.ndarray):
        return [_to_json(item) for item in value]
    return None


def _parameters(saved: Any, known: Collection[str]) -> dict[str, Any]:
    """Return the constructor arguments, with methods and cleaners made from their settings."""
    if not isinstance(saved, dict) or not saved.keys() <= set(known):
        raise ValueError("the model's parameters are those of another version of candidly; save it again")
    return {name: _from_settings(value) if isinstance(value, Mapping) else value for name, value in saved.items()}


def _from_settings(settings: Mapping[str, Any]) -> Any:
    """Return the method or cleaner with these settings; None for a user-defined one."""
    arguments = dict(settings)
    kind = {**METHODS, **KINDS}.get(arguments.pop("name", ""))
    try:
        return None if kind is None else kind(**arguments)
    except TypeError as error:
        raise ValueError(f"the model's parameters are those of another version of candidly ({error})") from None
