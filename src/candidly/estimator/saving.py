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
from torch import Tensor

from candidly import __version__, store
from candidly.candidates import Candidates
from candidly.checks.machine import in_bytes
from candidly.cleaning import KINDS, Budget, Cleaner, VerificationPlan
from candidly.conformal.calibration import Calibration
from candidly.engine.description import describe
from candidly.engine.model import Model
from candidly.engine.nets.build import Factory
from candidly.estimator import learner_files
from candidly.estimator.crossfit import Trained
from candidly.estimator.learners import Learners
from candidly.estimator.record import FitRecord
from candidly.estimator.verification import read_ledger
from candidly.messages import warn
from candidly.methods import METHODS, Method
from candidly.store import states
from candidly.store.files import MOST_JSON
from candidly.store.validation import instance, number, require, share
from candidly.store.validation import record as validate
from candidly.tables.features import Features
from candidly.tables.schema import Schema

_CLEANING = "cleaning."
_COMPONENTS = "features.components"
_LEDGER = "ledger"
_SIMPLE = (str, int, float, bool, type(None))


@dataclass(frozen=True, eq=False)
class Cleaning:
    """The rule that cleans candidates, at one level.

    Attributes
    ----------
    budget : Budget
        The rule, fitted to the held-out rows.
    alpha : float
        The level.
    limits : Tensor, shape (C,)
        The class limits of the held-out rows at this level (`Budget.limits`).
    """

    budget: Budget
    alpha: float
    limits: Tensor

    def parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors and the other fields, in JSON types, for a file."""
        tensors, facts = self.budget.parts()
        named = {f"{_CLEANING}{name}": value for name, value in (tensors | {"limits": self.limits}).items()}
        return named, {"alpha": self.alpha, "budget": facts}

    @classmethod
    def of_parts(cls, tensors: Mapping[str, Tensor], facts: Any, num_classes: int) -> "Cleaning":
        """Return the rule whose `parts` returned these; raise ValueError if they are damaged."""
        found = {name.removeprefix(_CLEANING): value for name, value in tensors.items()}
        validate({"alpha": share, "budget": instance(dict)})(facts, "the cleaning rule")
        limits = found.pop("limits", None)
        shaped = limits is not None and limits.dtype == torch.float32 and limits.shape == (num_classes,)
        if limits is None or not shaped or not ((limits == -1) | ((limits >= 0) & (limits <= 1))).all():
            raise ValueError("the class limits are missing or damaged")
        return cls(Budget.of_parts(found, facts["budget"], num_classes), float(facts["alpha"]), limits)


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
    cleaning : Cleaning or None
        The rule that cleans candidates; None if there were too few held-out rows, and in older models.
    record : FitRecord or None
        The training rows; None if they were left out, and in older models.
    ledger : tuple of VerificationPlan
        The verifications of the training rows that were planned; empty without `record`.
    """

    parameters: Mapping[str, Any]
    model: Trained
    calibration: Calibration
    features: Features
    schema: Schema | None
    trained_on: str | None
    cleaning: Cleaning | None
    record: FitRecord | None
    ledger: tuple[VerificationPlan, ...] = ()

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
        tensors |= self.calibration.tensors()
        if self.features.reduction is not None:
            tensors[_COMPONENTS] = torch.from_numpy(self.features.reduction.components)
        cleaning, rows, ledger = None, None, []
        if self.cleaning is not None:
            limits, cleaning = self.cleaning.parts()
            tensors |= limits
        if self.record is not None:
            tensors |= self.record.tensors()
            given = self.record.parameters.items()
            changed = {name: _to_json(value) for name, value in given if value is not self.parameters[name]}
            rows = {"seconds": self.record.seconds, "parameters": changed}  # at the time of `fit`, where they differ
            if self.record.voted is not None:
                rows["votes"] = self.record.voted.to_json()
            ledger = [plan.to_json() for plan in self.ledger]
        facts["estimator"] = {
            "parameters": {name: _to_json(value) for name, value in self.parameters.items()},
            "features": self.features.to_json(),
            "schema": None if self.schema is None else self.schema.to_json(),
            "trained_on": self.trained_on,
            "cleaning": cleaning,
            "rows": rows,
            _LEDGER: ledger,
            "versions": {
                "candidly": __version__,
                "torch": str(torch.__version__),
                "numpy": np.__version__,
                "scikit-learn": sklearn.__version__,
                "python": platform.python_version(),
            },
        }
        states.write_folder(folder, tensors, facts, stem="model", more=more)

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
        size = sum(value.nbytes for value in tensors.values())
        scores, limits, rows = (_take(tensors, prefix) for prefix in ("calibration.", _CLEANING, "rows."))
        rows |= _take(tensors, "votes.")
        components = _take(tensors, _COMPONENTS).get(_COMPONENTS)
        if "learners" in facts:
            data = states.read_more(folder, learner_files.FILE)
            model: Trained = learner_files.of_parts(tensors, facts["learners"], data)
        else:
            model = Model.of_parts(tensors, facts, net=net, method=method)
        features = Features.from_json(own.get("features"), None if components is None else components.cpu().numpy())
        calibration = Calibration.of_tensors(scores)
        if features.width != math.prod(model.shape):
            raise ValueError(f"{folder}: the features do not fit the network; restore a copy or save the model again")
        if model.runs % len(calibration.counts):
            raise ValueError(f"{folder}: the scores do not fit the networks; restore a copy or save the model again")
        given = {name: value for name, value in (("net", net), ("method", method)) if value is not None}
        parameters = _parameters(own.get("parameters"), known) | given
        if isinstance(model, Learners) and parameters.get("base") is None:
            parameters["base"] = model.base
        classes = model.classes
        try:
            for name, found in (("cleaning", limits), ("rows", rows)):
                require(bool(found) == (own.get(name) is not None), f"the number of tensors for {name!r}", len(found))
            cleaning = Cleaning.of_parts(limits, own["cleaning"], len(classes)) if limits else None
            kept = _read_record(rows, own["rows"], classes, calibration, parameters, size) if rows else None
            ledger = read_ledger(own.get(_LEDGER, []), 0 if kept is None else len(kept.candidates))
        except ValueError as error:
            raise ValueError(f"{folder} is damaged ({error}); restore a copy or save the model again") from None
        if "schema" not in own:
            schema = _read_schema_0_1(Path(folder))
        else:
            schema = None if own["schema"] is None else Schema.from_json(own["schema"])
        return cls(parameters, model, calibration, features, schema, own.get("trained_on"), cleaning, kept, ledger)


def record_plan(folder: str | Path, plan: VerificationPlan) -> None:
    """Add a plan to the ledger of a saved model, in one step; raise ValueError if another was added in the meantime."""

    def add(facts: dict[str, Any]) -> dict[str, Any]:
        own = facts["estimator"]
        ledger = own.get(_LEDGER, [])
        if len(ledger) != plan.number - 1:
            raise ValueError(f"{folder} was changed while a verification was planned; run the command again")
        return facts | {"estimator": own | {_LEDGER: [*ledger, plan.to_json()]}}

    states.change_facts(folder, add, stem="model")


def _read_record(
    tensors: Mapping[str, Tensor],
    facts: Any,
    classes: tuple[Any, ...],
    calibration: Calibration,
    parameters: Mapping[str, Any],
    size: int,
) -> FitRecord:
    """Return the record of the training rows; `parameters` are those that were saved with the model."""
    votes = facts.get("votes") if isinstance(facts, dict) else None
    known = {"seconds": number, "parameters": instance(dict)} | ({} if votes is None else {"votes": instance(dict)})
    validate(known)(facts, "rows")
    given = {**parameters, **_parameters(facts["parameters"], parameters)}
    return FitRecord.of_tensors(tensors, classes, calibration.counts, given, facts["seconds"], size, votes)


def _take(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Remove the tensors whose names begin with a prefix, and return them."""
    return {name: tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}


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
    found = Fingerprint(len(X), len(S.classes))
    found.add(X, S.matrix)
    return found.hexdigest()


class Fingerprint:
    """The hash of rows that are added block by block; candidates are kept, one bit each, until all rows are added.

    Examples
    --------
    >>> X, S = np.eye(3, dtype=np.float32), Candidates(np.eye(3, 2, dtype=bool) | True, ("a", "b"))
    >>> parts = Fingerprint(3, 2)
    >>> for rows in (slice(0, 1), slice(1, 3)):
    ...     parts.add(X[rows], S.matrix[rows])
    >>> parts.hexdigest() == fingerprint(X, S)
    True
    """

    def __init__(self, rows: int, classes: int) -> None:
        self._shape = (rows, classes)
        self._digest: Any = None
        self._bits: list[np.ndarray[Any, Any]] = []
        self._rest = np.zeros(0, dtype=bool)

    def add(self, X: np.ndarray[Any, Any], matrix: np.ndarray[Any, Any]) -> None:
        """Add encoded rows and their candidates."""
        if self._digest is None:
            whole = (self._shape[0], *X.shape[1:])
            self._digest = hashlib.sha256(f"{X.dtype}{whole}{self._shape}".encode())
        self._digest.update(np.ascontiguousarray(X).data)
        flat = np.concatenate([self._rest, matrix.reshape(-1)])
        whole_bytes = len(flat) - len(flat) % 8
        self._bits.append(np.packbits(flat[:whole_bytes]))
        self._rest = flat[whole_bytes:]

    def hexdigest(self) -> str:
        """Return 16 hexadecimal digits."""
        digest = self._digest.copy()
        for bits in (*self._bits, np.packbits(self._rest)):
            digest.update(bits.data)
        return str(digest.hexdigest()[:16])


def identify(folder: str | Path) -> str:
    """Return a hash of a saved model: 16 hexadecimal digits.

    Two models with the same hash give the same results. The hash does not depend on how long training took, on plans of
    verifications, and on versions.
    """
    tensors, facts = states.read(folder, stem="model")
    own = {
        name: value for name, value in facts.get("estimator", {}).items() if name not in (_LEDGER, "versions", "rows")
    }
    digest = hashlib.sha256(json.dumps([facts | {"estimator": own}], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data)
    if "learners" in facts:
        digest.update(states.read_more(folder, learner_files.FILE))
    return digest.hexdigest()[:16]


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
