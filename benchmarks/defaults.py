"""The default settings of the classifier: accuracy and time of methods, cleaning, steps, ensembles and networks.

    python -m benchmarks.defaults measure --data DIR --jobs 3      # fills runs/defaults, a file per cell
    python -m benchmarks.defaults collect                          # benchmarks/results/defaults.json from it
    python -m benchmarks.defaults page                             # the tables of docs/evidence/defaults.md

A cell is a setting on a dataset: five folds × members networks for each of ten splits, as one stacked fit. Settings are
chosen by splits 5 to 9 and reported on splits 0 to 4. Cells that have a file are skipped, and several processes, also
on several machines with one folder, share the work.
"""

import argparse
import dataclasses
import functools
import itertools
import platform
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.cells import collect, fill, read, share
from candidly import __version__
from candidly.bench import datasets as sets
from candidly.data.dataset import Dataset
from candidly.data.protocols import PROTOCOLS, Rows
from candidly.engine.device import find_device
from candidly.engine.fitting import fit
from candidly.engine.nets import mlp
from candidly.engine.problem import Problem
from candidly.estimator import crossfit

SPLITS, CHOICE, REPORT = range(10), slice(5, 10), slice(0, 5)
FOLDS = 5
NEXT_MEMBER = 1000  # member k of a network with seed s has the seed s + 1000 k
SUBSET = 5000  # rows of an image dataset
RESULTS, RUNS, PAGE = Path("benchmarks/results/defaults.json"), Path("runs/defaults"), Path("docs/evidence/defaults.md")

PLACES = (
    "mnist-5000",
    "fmnist-5000",
    "bird-song",
    "bird-song grouped",
    "msrc-v2",
    "msrc-v2 grouped",
    "lost",
    "lost grouped",
    "digits",
)
"""Datasets by name; after some, a protocol instead of uai2025."""

WHOLE = ("mnist", "fmnist")
"""Datasets of 60,000 rows, on which few settings are measured."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How to train, as a text such as ``conformal+crosel 3200 steps x4 lr 0.003 width 512``.

    ``conformal+proden&crosel`` is the mean of the networks of both methods.
    """

    name: str
    steps: int = 3200
    members: int = 1
    lr: float = 0.01
    width: int = 300

    def __str__(self) -> str:
        parts = [f"{self.name} {self.steps} steps"]
        for field, text in (("members", "x{}"), ("lr", "lr {}"), ("width", "width {}")):
            value = getattr(self, field)
            if value != type(self).__dataclass_fields__[field].default:
                parts.append(text.format(value))
        return " ".join(parts)


METHODS = ("crosel", "proden", "cc", "pop")
NAMES = tuple(f"{cleaner}{method}" for method in METHODS for cleaner in ("conformal+", ""))
SETTINGS = (
    *(Setting(name) for name in NAMES),
    *(Setting(name, steps) for steps in (1600, 6400) for name in NAMES[:4]),
    Setting("conformal+proden&crosel", 6400, members=2),
    Setting("conformal+proden", 6400, members=4),
    Setting("conformal+crosel", 6400, members=4),
    Setting("conformal+pop", 6400),
    Setting("conformal+proden", 12800),
    Setting("conformal+crosel", 12800),
    *(Setting("conformal+balanced", steps) for steps in (3200, 6400, 12800)),
    Setting("balanced"),
)


def cells(settings: tuple[Setting, ...] = SETTINGS) -> Iterator[tuple[str, Setting]]:
    """Return all cells, the most important settings first."""
    return itertools.chain.from_iterable(((place, setting) for place in PLACES + WHOLE) for setting in settings)


@functools.cache
def load(place: str, data: str | None, device: str) -> tuple[Dataset, tuple[tuple[Rows, Rows], ...]]:
    """Return a dataset and its splits."""
    name, _, protocol_name = place.partition(" ")
    name, subset, _ = name.partition(f"-{SUBSET}")
    protocol = PROTOCOLS[protocol_name or "uai2025"]
    dataset = protocol.prepare(sets.load(name, RUNS / "sets", data, device=device))
    splits = [protocol.rows(dataset, seed) for seed in SPLITS]
    if subset:
        streams = [np.random.default_rng(seed) for seed in SPLITS]
        splits = [(rng.choice(train, SUBSET, False), test) for rng, (train, test) in zip(streams, splits, strict=True)]
    return dataset, tuple(splits)


def prepare(dataset: Dataset, splits: tuple[tuple[Rows, Rows], ...], members: int) -> Problem:
    """Stack members × splits × folds as the classifier trains them; features are scaled over all training rows."""
    runs = list(itertools.product(range(members), range(len(splits)), range(FOLDS)))
    images = dataset.X.dtype == np.uint8
    problem = Problem.of(
        dataset.X,
        dataset.S,
        rows=[splits[split][0] for _, split, _ in runs],
        seeds=[split + 100 * fold + NEXT_MEMBER * member for member, split, fold in runs],
        standardise=not images,
        shift=0.0 if images else None,
        scale=1 / 255 if images else None,
    )
    if not images:
        assert problem.shift is not None
        assert problem.scale is not None
        problem = dataclasses.replace(problem, shift=problem.shift - 4 / problem.scale, scale=problem.scale / 8)
    shuffled = [np.random.default_rng(seed).permutation(train) for seed, (train, _) in enumerate(splits)]
    left = [np.delete(shuffled[split], np.s_[fold::FOLDS]) for _, split, fold in runs]
    return dataclasses.replace(problem, rows=tuple(torch.from_numpy(np.sort(rows)) for rows in left))


def measure(place: str, setting: Setting, data: str | None, device: str) -> dict[str, Any]:
    """Train and score one cell."""
    torch.set_num_threads(1)
    dataset, splits = load(place, data, device)
    assert dataset.y is not None
    problem = prepare(dataset, splits, setting.members)
    rows = len(splits[0][0])
    recipe = crossfit.make_recipe(rows, crossfit.Quality(setting.steps, 400, 1), None, None, setting.lr, 1e-4)
    cleaner_name, _, method_names = setting.name.rpartition("+")
    mlp.HIDDEN = setting.width
    crossfit.WARMUP_PART = 5  # as in the first measurements, so that cells can be compared
    tests = [test for _, test in splits]
    used = np.unique(np.concatenate(tests))
    p = torch.zeros(setting.members, len(splits), len(used), len(dataset.classes), dtype=torch.float64)
    start = time.perf_counter()
    for name in method_names.split("&"):
        method, cleaner = crossfit.find_parts(name, cleaner_name or None, recipe.epochs)
        model = fit(problem, method, cleaner, recipe, device=device, progress=False)
        p += model.predict(dataset.X[used]).unflatten(0, (setting.members, len(splits), FOLDS)).double().mean(2)
    seconds = time.perf_counter() - start
    accuracy: dict[str, list[float]] = {}
    for members in (1, 2, 4, 8):
        if members <= setting.members:
            mean = p[:members].mean(0).numpy()
            accuracy[str(members)] = [
                float((mean[split][np.searchsorted(used, test)].argmax(-1) == dataset.y[test]).mean())
                for split, test in enumerate(tests)
            ]
    facts = {"epochs": recipe.epochs, "batch": recipe.batch_size, "rows": rows, "networks": problem.runs}
    found = {"place": place, "setting": dataclasses.asdict(setting), "accuracy": accuracy, "seconds": seconds}
    found["shown"] = f"{100 * np.mean(list(accuracy.values())[-1][CHOICE]):.2f}"
    return found | facts | {"machine": machine(device)}


def machine(device: str) -> dict[str, Any]:
    place = find_device(device)
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else "CPU, one thread"
    return {"device": name, "python": platform.python_version(), "torch": torch.__version__, "candidly": __version__}


def tables(cells: list[dict[str, Any]]) -> str:
    """Return two tables in Markdown: accuracy on the splits that decide and on those reported, by setting."""
    lines = []
    for title, splits in (("Splits 5 to 9, which decide", CHOICE), ("Splits 0 to 4, reported", REPORT)):
        rows: dict[str, dict[str, NDArray[np.float64]]] = {}
        seconds: dict[str, dict[str, float]] = {}
        for cell in cells:
            for members, values in cell["accuracy"].items():
                setting = Setting(**{**cell["setting"], "members": int(members)})
                rows.setdefault(str(setting), {})[cell["place"]] = 100 * np.array(values[splits])
                if int(members) == cell["setting"]["members"]:
                    seconds.setdefault(str(setting), {})[cell["place"]] = cell["seconds"] / cell["networks"]
        order = sorted(rows, key=lambda key: -np.mean([values.mean() for values in rows[key].values()]))
        head = ["setting", *PLACES, "mean", *WHOLE, "s per network"]
        lines += [f"### {title}", "", f"| {' | '.join(head)} |"]
        lines.append("|---" * len(head) + "|")
        for key in order:
            found = rows[key]
            text = {place: f"{values.mean():.1f} ± {values.std(ddof=1):.1f}" for place, values in found.items()}
            shown, whole = ([text.get(place, "") for place in places] for places in (PLACES, WHOLE))
            full = all(place in found for place in PLACES)
            mean = f"{np.mean([found[place].mean() for place in PLACES]):.2f}" if full else ""
            times = list(seconds.get(key, {}).values())
            row = [key, *shown, mean, *whole, f"{np.mean(times):.2g}" if times else ""]
            lines.append(f"| {' | '.join(row)} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def main() -> None:
    """Measure, collect, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("measure", "collect", "page"))
    parser.add_argument("--data", help="folder with the datasets' files")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no cell after this time")
    parser.add_argument("--match", default="", help="only cells whose name contains this regular expression")
    args = parser.parse_args()
    if args.part == "collect":
        collect(RUNS, RESULTS, lambda cell: str((cell["place"], cell["setting"])))
    elif args.part == "page":
        fill(PAGE, tables(read(RESULTS)))
    else:
        chosen = [cell for cell in cells() if re.search(args.match, f"{cell[0]}, {cell[1]}")]
        # The kernels of several threads of one process run on a GPU at the same time, those of processes in turn.
        on_gpu = find_device(args.device).type == "cuda"
        work = functools.partial(measure, data=args.data, device=args.device)
        share(chosen, work, RUNS, args.jobs, args.minutes, threads=on_gpu)


if __name__ == "__main__":
    main()
