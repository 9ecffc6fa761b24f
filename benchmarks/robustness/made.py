"""Good inputs that cases start from, and comparisons of results. Everything is made once per process."""

import functools
import hashlib
import json
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

import candidly
from candidly import PartialLabelClassifier
from candidly.tables import Features

CLASSES = ("cat", "dog", "emu")
ROWS = 120
SMALL: Mapping[str, Any] = {"members": 1, "folds": 2, "max_epochs": 4, "random_state": 0, "device": "cpu"}
TINY = ("--members", "1", "--epochs", "4", "--folds", "2", "--device", "cpu")


def encoding() -> dict[str, Any]:
    """Return how the columns of X are encoded, as a model stores it."""
    return Features.fit(features()).to_json()


@functools.cache
def features() -> np.ndarray:
    """Return X, shape (120, 3). Values are multiples of 1/64, so that float32 and text hold them exactly."""
    X = np.random.default_rng(0).normal(size=(ROWS, 3))
    X[np.arange(ROWS), np.arange(ROWS) % 3] += 4
    X = np.round(X * 64) / 64
    X.setflags(write=False)
    return X


@functools.cache
def truth() -> np.ndarray:
    """Return the true labels: 0, 1, 2, 0 and so on."""
    return np.arange(ROWS) % 3


@functools.cache
def matrix() -> np.ndarray:
    """Return the candidates as a boolean matrix (120, 3)."""
    S = candidly.corrupt.uniform(truth(), 3, 0.3, 0)
    S.setflags(write=False)
    return S


def names() -> list[list[str]]:
    """Return the candidates as lists of class names."""
    return [[CLASSES[j] for j in np.flatnonzero(row)] for row in matrix()]


def texts(separator: str = "|") -> list[str]:
    """Return the candidates as texts."""
    return [separator.join(row) for row in names()]


def fit(X: Any = None, y: Any = None, **given: Any) -> Any:
    """Fit a small classifier; X and y are the good ones by default. `given` is for the constructor and for `fit`."""
    by_row = {name: given.pop(name, None) for name in ("sample_weight", "weights", "groups")}
    small = SMALL if given.get("base") is None else {"folds": 2, "rounds": 1, "random_state": 0}
    classifier = PartialLabelClassifier(**{**small, **given})
    return classifier.fit(features() if X is None else X, names() if y is None else y, **by_row)


@functools.cache
def fitted() -> PartialLabelClassifier:
    """Return a classifier that was fitted on the good rows. Cases must not change it."""
    return fit()


@functools.cache
def fitted_on_frame() -> PartialLabelClassifier:
    """Return a classifier that was fitted on the good rows as a data frame with named columns and a category."""
    return fit(frame())


def frame() -> Any:
    """Return the good rows as a pandas table: two numbers a and b, and a category c."""
    import pandas as pd

    X = features()
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": [("red", "blue", "green")[i] for i in truth()]})


def problem(**changes: Any) -> Any:
    """Return the good rows as a problem of the engine."""
    given: dict[str, Any] = {"X": features(), "S": matrix()} | changes
    return candidly.Problem.of(given.pop("X"), given.pop("S"), **given)


def recipe(**changes: Any) -> candidly.Recipe:
    """Return a recipe of one epoch."""
    return candidly.Recipe(**({"epochs": 1, "batch_size": 32} | changes))


def train(problem_: Any = None, method: Any = None, cleaner: Any = None, **options: Any) -> Any:
    """Train with the engine; everything is good and small by default."""
    options = {"recipe": recipe(), "device": "cpu"} | options
    return candidly.fit(
        problem() if problem_ is None else problem_, candidly.Proden() if method is None else method, cleaner, **options
    )


@functools.cache
def trained() -> candidly.Model:
    """Return a model of the engine. Cases must not change it."""
    return train()


def columns(**changes: Any) -> dict[str, list[Any]]:
    """Return the good table as columns of texts; a change is a new column, new cells by row, or None for no column."""
    X = features()
    table: dict[str, list[Any]] = {
        "id": [f"r{i:03}" for i in range(ROWS)],
        "size": [str(value) for value in X[:, 0]],
        "age": [str(value) for value in X[:, 1]],
        "colour": [("red", "blue", "green")[i] for i in truth()],
        "tags": texts(),
        "truth": [CLASSES[i] for i in truth()],
    }
    return _changed(table, changes)


def _changed(table: dict[str, list[Any]], changes: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return a table with other cells by row, other columns, or, for None, without a column."""
    for name, change in changes.items():
        if isinstance(change, Mapping):
            table[name] = [change.get(i, cell) for i, cell in enumerate(table[name])]
        elif change is None:
            del table[name]
        else:
            table[name] = list(change)
    return table


def csv(table: Mapping[str, Iterable[Any]] | None = None, delimiter: str = ",", end: str = "\n") -> str:
    """Return columns as the text of a CSV file, without quoting."""
    table = columns() if table is None else table
    rows = [list(table), *map(list, zip(*table.values(), strict=True))]
    return "".join(delimiter.join(map(str, row)) + end for row in rows)


def votes(**changes: Any) -> dict[str, list[Any]]:
    """Return a table of votes: three annotators on each of the 120 tasks."""
    cells = [
        (f"r{i:03}", worker, CLASSES[(truth()[i] + (worker == "eve") * (i % 4 == 0)) % 3])
        for i in range(ROWS)
        for worker in ("ann", "bob", "eve")
    ]
    table: dict[str, list[Any]] = dict(
        zip(("task", "worker", "label"), map(list, zip(*cells, strict=True)), strict=True)
    )
    return _changed(table, changes)


def put(name: str, content: str | bytes) -> str:
    """Write a file in the current folder, and return its name."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return name


def arrow(**changes: Any) -> pa.Table:
    """Return the good table in Arrow, with numbers as numbers and candidates as lists."""
    table = columns()
    plain: dict[str, Any] = table | {"size": list(map(float, table["size"])), "age": list(map(float, table["age"]))}
    return pa.table({name: value for name, value in (plain | {"tags": names()} | changes).items() if value is not None})


def parquet(name: str = "rows.parquet", **changes: Any) -> str:
    """Write the good table as Parquet."""
    pyarrow.parquet.write_table(arrow(**changes), name)
    return name


@functools.cache
def _shared() -> Path:
    return Path(tempfile.mkdtemp(prefix="shared-"))  # in the worker's folder, which is removed with it


@functools.cache
def _model() -> Path:
    """Fit a model with the command line, once."""
    from benchmarks.robustness.case import HarnessError, run

    folder = _shared() / "fit"
    folder.mkdir(parents=True)
    (folder / "rows.csv").write_text(csv())
    ended = run(
        "fit",
        str(folder / "rows.csv"),
        "--candidates",
        "tags",
        "--id",
        "id",
        "--labels",
        "truth",
        "--out",
        str(folder / "model"),
        "--quiet",
        *TINY,
    )
    if ended.status:
        raise HarnessError(f"the good table cannot be fitted: {ended}")
    return folder / "model"


def model(name: str = "model") -> Path:
    """Copy a fitted model into the current folder. It has the features size, age and colour."""
    shutil.copytree(_model(), name, dirs_exist_ok=True)
    return Path(name)


def new_rows(**changes: Any) -> str:
    """Return the text of a CSV file with new rows for `model`."""
    return csv(columns(**({"tags": None, "truth": None} | changes)))


class Stopping(candidly.Proden):
    """A method that stops its training after four epochs while `armed` is set."""

    armed = False
    stop = threading.Event()

    def epoch_end(self, epoch: int, sweep: Any) -> None:
        """Stop the training."""
        if epoch == 3 and Stopping.armed:
            Stopping.stop.set()


@functools.cache
def _checkpoint() -> Path:
    folder = _shared() / "checkpoint"
    Stopping.armed = True
    try:
        train(method=Stopping(), recipe=recipe(epochs=8), checkpoint=folder, every=1, stop=Stopping.stop)
    except KeyboardInterrupt:
        pass
    finally:
        Stopping.armed = False
    return folder


def checkpoint(name: str = "checkpoint") -> Path:
    """Copy a checkpoint of an interrupted training into the current folder."""
    shutil.copytree(_checkpoint(), name)
    return Path(name)


@functools.cache
def _runs() -> Path:
    from candidly import bench

    folder = _shared() / "runs"
    dataset = _shared() / "toy.npz"
    np.savez(dataset, X=features(), S=matrix(), y=truth())
    spec = bench.Spec((str(dataset),), ("proden", "cc"), seeds=(0, 1), recipe=recipe())
    bench.sweep(spec, folder, device="cpu", progress=False)
    return folder


def runs(name: str = "runs") -> Path:
    """Copy the folder of a finished sweep into the current folder: proden and cc on one dataset, two seeds."""
    shutil.copytree(_runs(), name, dirs_exist_ok=True)
    return Path(name)


def npz(name: str = "toy.npz", **changes: Any) -> str:
    """Write the good rows as an .npz file."""
    arrays = {"X": features(), "S": matrix(), "y": truth()} | changes
    np.savez(name, **{key: value for key, value in arrays.items() if value is not None})
    return name


def edit_json(path: Path | str, *keys: Any, to: Any = None, text: str | None = None, honest: bool = False) -> None:
    """Change a value in the index of a saved state.

    With `text`, the value is written as this text, which need not be JSON. An honest change corrects the checksum, as
    somebody does who wants the change to be accepted.
    """
    facts = json.loads(Path(path).read_text())
    inner = facts
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = json.loads(text) if text is not None and honest else "\0mark\0" if text is not None else to
    if honest:
        del facts["checksum"]
        canonical = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        facts = {"checksum": hashlib.sha256(canonical.encode()).hexdigest()} | facts
    written = json.dumps(facts)
    if text is not None and not honest:
        written = written.replace(json.dumps("\0mark\0"), text)
    Path(path).write_text(written)


# Comparisons


def same(a: Any, b: Any) -> bool:
    """Return whether two results are equal to the bit: arrays, tensors, classifiers, models, candidates, containers."""
    if isinstance(a, PartialLabelClassifier):
        return (
            same(a.candidates_, b.candidates_)
            and same(a.candidate_proba_, b.candidate_proba_)
            and same(list(a.classes_), list(b.classes_))
        )
    if isinstance(a, candidly.Model):
        return same(a.parts()[0], b.parts()[0])
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and bool(((a == b) | ((a != a) & (b != b))).all())
        )
    if isinstance(a, np.ndarray):
        return (
            a.dtype.kind == np.asarray(b).dtype.kind
            and a.shape == np.shape(b)
            and bool(np.all((a == b) | ((a != a) & (b != b))))
        )
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "__dataclass_fields__") and type(a) is type(b) and not isinstance(a, candidly.Candidates):
        return same(vars(a), vars(b))
    if hasattr(a, "__next__"):
        return same(list(a), list(b))
    return (type(a).__eq__ is object.__eq__ and type(a) is type(b)) or bool(a == b)
