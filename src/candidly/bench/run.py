"""One run: a method on a dataset, with all seeds and initialisations as one stacked fit.

The name of a run folder has the dataset, the method and a hash of the configuration. The folder contains

- ``summary.json``: the configuration, the metrics of every seed and initialisation, versions and machine;
- ``predictions.parquet``: one record per row, seed and initialisation;
- ``done``: the checksums of these two files, written last; a run without it, or with other files, is trained again;
- ``failed.txt``, instead of these three: why the run failed, and the traceback;
- ``lock``: only while the run trains.

The hash covers everything that results depend on, except the versions of libraries and the device: the content of the
dataset, the settings of method and cleaner, their code unless it is this library's, seeds, protocol and recipe.
"""

import dataclasses
import json
import os
import platform
import re
import threading
import time
import traceback
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from candidly import __version__, metrics, store
from candidly.bench import marker
from candidly.bench.collect import FORMAT
from candidly.bench.datasets import find_net, fingerprint
from candidly.bench.names import stored
from candidly.bench.own import code_of
from candidly.bench.spec import NEXT_INIT, Spec
from candidly.cleaning import Cleaner, Conformal, Random
from candidly.data.dataset import Dataset
from candidly.data.protocols import PROTOCOLS, Rows, scaling
from candidly.engine.description import describe
from candidly.engine.device import find_device
from candidly.engine.fitting import fit
from candidly.engine.memory import require_runs
from candidly.engine.model import Model
from candidly.engine.problem import Problem


@dataclass(frozen=True)
class Run:
    """A method on a dataset, and the folder of its results.

    Attributes
    ----------
    source : str
        The name of the dataset in the spec.
    method : str
        The name of the method, with its cleaner.
    config : dict
        Everything that the results depend on, in JSON types.
    folder : Path
        Its name ends in a hash of `config`.
    """

    source: str
    method: str
    config: dict[str, Any]
    folder: Path

    @classmethod
    def all_of(cls, spec: Spec, dataset: Dataset, source: str, out: Path) -> "list[Run]":
        """Return the runs of a spec's methods on a dataset, whose name in the spec is `source`."""
        recipe = dataclasses.asdict(spec.recipe)
        del recipe["name"]  # the name has no effect on results
        # Settings that were added after many results: left out of the hash where they have no effect.
        for key, default in (("augment", False), ("test_flips", False), ("precision", "auto")):
            if recipe[key] == default:
                del recipe[key]
        content = fingerprint(dataset, grouped=PROTOCOLS[spec.protocol].grouped)
        shared = {
            "dataset": {"name": dataset.name, "content": content},
            "seeds": list(spec.seeds),
            "inits": spec.inits,
            "protocol": spec.protocol,
        }
        runs = []
        for name in spec.combinations():
            method, cleaner = spec.parts(name)
            parts = {"method": describe(method), "cleaner": _settings(cleaner)}
            parts["recipe"] = recipe | {"max_lr": spec.recipe.with_rate(method.max_lr).max_lr}
            kept = stored(name)
            config = shared | parts | {"name": kept, "code": [code_of(part) for part in (method, cleaner)]}
            slug = re.sub(r"[^a-z0-9._+-]+", "-", f"{dataset.name[:60]}-{kept[:60]}".lower()).strip("-")
            runs.append(cls(source, name, config, out / f"{slug}-{store.digest(config)}"))
        return runs

    @property
    def title(self) -> str:
        """Dataset and method, for messages."""
        return f"{self.config['dataset']['name']} {self.method}"

    @property
    def content(self) -> str:
        """Hash of what the dataset holds."""
        return str(self.config["dataset"]["content"])

    @property
    def done(self) -> bool:
        """Whether the results are complete, and as they were written."""
        return marker.is_intact(self.folder)

    @property
    def failed(self) -> bool:
        """Whether the run was tried and failed."""
        return (self.folder / "failed.txt").is_file()


def _settings(cleaner: Cleaner | None) -> Any:
    """Describe a cleaner; a setting that was added after many results is left out where it has no effect."""
    if cleaner is None:
        return None
    if isinstance(cleaner, Random):
        return {**describe(cleaner), "like": _settings(cleaner.like)}
    settings = describe(cleaner)
    if isinstance(cleaner, Conformal) and (cleaner.rule == "revocable" or cleaner.stop == 1):
        del settings["stop"]
    return settings


def execute(
    run: Run,
    spec: Spec,
    dataset: Dataset,
    device: str = "auto",
    progress: bool | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Train a run, compute its metrics and write its folder.

    Parameters
    ----------
    run
        The method and the folder.
    spec
        The experiment that the run belongs to.
    dataset
        The dataset as loaded, with its candidate sets.
    device, progress, stop
        As in `candidly.fit`.
    """
    protocol = PROTOCOLS[spec.protocol]
    dataset = protocol.prepare(dataset)
    require_runs(len(spec.seeds) * spec.inits, len(dataset.X), len(dataset.classes))
    shift, scale = scaling(dataset)
    splits = [protocol.rows(dataset, seed) for seed in spec.seeds for _ in range(spec.inits)]
    seeds = [seed + NEXT_INIT * init for seed in spec.seeds for init in range(spec.inits)]
    train = [rows for rows, _ in splits]
    problem = Problem.of(
        dataset.X,
        dataset.S,
        rows=train,
        seeds=seeds,
        classes=dataset.classes,
        standardise=protocol.inputs == "standardised" and scale is None,
        shift=shift,
        scale=scale,
    )
    if protocol.inputs == "unit range" and scale is None:
        problem = problem.scaled_to_range()
    method, cleaner = spec.parts(run.method)
    start = time.perf_counter()
    net = find_net(dataset.X)
    model = fit(problem, method, cleaner, spec.recipe, net=net, device=device, progress=progress, stop=stop)
    seconds = time.perf_counter() - start
    del problem
    predicted, probability = _predict(model, dataset.X)
    scores = _score(dataset, splits, predicted, model)
    summary = {
        "format": FORMAT,
        "dataset": run.config["dataset"]["name"],
        "method": run.method,
        "seeds": list(spec.seeds),
        "sizes": {"train": mean(map(len, train)), "test": mean(len(rows) for _, rows in splits)},
        "classes": len(dataset.classes),
        "candidates": float(np.mean([dataset.S[rows].sum(axis=1).mean() for rows in train])),
        "metrics": {name: np.reshape(values, (-1, spec.inits)).tolist() for name, values in scores.items()},
        "recipe": spec.recipe.name,
        "seconds": round(seconds, 2),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "config": run.config,
        "versions": _versions(),
        "machine": _machine(device),
    }
    _write(run, summary, _table(run, spec, dataset, splits, predicted, probability))


def _predict(model: Model, X: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the most probable class and its probability for every run and row, (R, N) each."""
    best = [p.max(-1) for _, p in model.predict_blocks(X)]
    predicted = np.concatenate([part.indices.numpy() for part in best], axis=1)
    return predicted, np.concatenate([part.values.float().numpy() for part in best], axis=1)


def _score(
    dataset: Dataset, splits: list[tuple[Rows, Rows]], predicted: NDArray[np.int64], model: Model
) -> dict[str, list[float]]:
    """Return the metrics of every run; those that need true labels only if the dataset has them."""
    scores: dict[str, list[float]] = {}

    def add(name: str, value: Any) -> None:
        scores.setdefault(name, []).append(float(value))

    for best, kept, (train, test) in zip(predicted, model.kept, splits, strict=True):
        before, after = torch.from_numpy(dataset.S[train]), kept[train]
        if dataset.y is not None:
            add("test_accuracy", np.mean(best[test] == dataset.y[test]))
            add("train_accuracy", np.mean(best[train] == dataset.y[train]))
            add("pruning_error", metrics.pruning_error(before, after, torch.from_numpy(dataset.y[train])))
        add("pruning_coverage", metrics.pruning_coverage(before, after))
        covered = metrics.contains(torch.from_numpy(dataset.S[test]), torch.from_numpy(best[test]))
        add("test_covering_rate", covered.double().mean())
    if "estimated_lost" in model.history:  # the estimate of the pruning error
        scores["estimated_lost"] = model.history["estimated_lost"][-1].tolist()
    return scores


def _table(
    run: Run,
    spec: Spec,
    dataset: Dataset,
    splits: list[tuple[Rows, Rows]],
    predicted: NDArray[np.int64],
    probability: NDArray[np.float32],
) -> bytes:
    """Return the predictions as a Parquet file."""
    sink = pa.BufferOutputStream()
    classes = pa.array(dataset.classes, pa.string())

    def names(index: NDArray[Any] | None, values: pa.Array, n: int = 0) -> pa.Array:
        codes = pa.nulls(n, pa.int32()) if index is None else pa.array(index, pa.int32())
        return pa.DictionaryArray.from_arrays(codes, values)

    writer = None
    for index, (train, test) in enumerate(splits):
        rows = np.concatenate([test, train])
        n = len(rows)
        columns = {
            "dataset": names(np.zeros(n), pa.array([run.config["dataset"]["name"]])),
            "method": names(np.zeros(n), pa.array([run.method])),
            "seed": pa.array(np.full(n, spec.seeds[index // spec.inits])),
            "split": names(np.arange(n) >= len(test), pa.array(["test", "train"])),
            "row": pa.array(rows),
            "true": names(None if dataset.y is None else dataset.y[rows], classes, n),
            "predicted": names(predicted[index, rows], classes),
            "probability": pa.array(probability[index, rows]),
            "init": pa.array(np.full(n, index % spec.inits)),
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(sink, table.schema, compression="zstd")
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return sink.getvalue().to_pybytes()


def _versions() -> dict[str, str]:
    known = {"candidly": __version__, "python": platform.python_version(), "torch": torch.__version__}
    return known | {name: version(name) for name in ("numpy", "pyarrow", "scipy")}


def _machine(device: str) -> dict[str, Any]:
    place = find_device(device)
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else place.type
    system = f"{platform.system()} {platform.machine()}"
    return {"device": name, "system": system, "cores": os.cpu_count(), "threads": torch.get_num_threads()}


def _write(run: Run, summary: dict[str, Any], predictions: bytes) -> None:
    run.folder.mkdir(parents=True, exist_ok=True)
    for leftover in (run.folder / "failed.txt", *run.folder.glob("*.tmp")):  # of earlier attempts
        leftover.unlink(missing_ok=True)
    text = (json.dumps(summary, indent=1) + "\n").encode()
    marker.write(run.folder, {"predictions.parquet": predictions, "summary.json": text})


def fail(run: Run, error: BaseException) -> None:
    """Write why a run failed, and the traceback, into its folder."""
    run.folder.mkdir(parents=True, exist_ok=True)
    trace = "".join(traceback.format_exception(error))
    store.replace(run.folder / "failed.txt", f"{one_line(error)}\n\n{trace}".encode())


def one_line(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else '(no message)'}"
