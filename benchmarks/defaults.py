"""The default settings of the classifier: accuracy and time of methods, cleaning, recipes and ensembles.

    python -m benchmarks.defaults --data DIR --out benchmarks/results/defaults.json
    python -m benchmarks.defaults --page                    # the tables of docs/evidence/defaults.md from that file

Every cell trains five networks for each of five splits as one stacked fit, and is written to the file when it is done;
cells in the file are skipped. After `--minutes`, no further cell is started.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from candidly import __version__, store
from candidly.bench import datasets as sets
from candidly.cleaning import Conformal
from candidly.data.dataset import Dataset
from candidly.data.protocols import PROTOCOLS, Rows
from candidly.engine.device import find_device
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.engine.training import fit
from candidly.methods import METHODS

PROTOCOL = PROTOCOLS["uai2025"]
DIGITS = ("digits+instance-dependent-0.4", "digits+uniform-0.3")
CLEANERS = {"none": None, "conformal": Conformal()}
MIDDLE, SHORT = (50, 16), (25, 16)  # epochs and batch size
MIDDLE_LARGE, SHORT_LARGE = (50, 64), (25, 64)
INPUTS = {"z": (0.0, 1.0), "unit": (4.0, 0.125)}  # networks see (z + shift) · scale of a standardised z
SEEDS, MEMBERS = 5, 5
NEXT_MEMBER = 1000  # member k of seed s trains with the seed s + 1000 k
PAGE = Path("docs/evidence/defaults.md")
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One stacked fit: five networks per seed, on the same rows or, with `folds`, each without a fifth of them."""

    dataset: str
    method: str
    cleaner: str
    epochs: int
    batch: int
    inputs: str = "unit"
    folds: bool = False

    @property
    def key(self) -> str:
        """The name of the cell in the file."""
        recipe = f"{self.epochs} epochs, batch {self.batch}"
        kind = "folds" if self.folds else "members"
        return " | ".join([self.dataset, self.method, self.cleaner, recipe, self.inputs, kind])


def cells() -> Iterator[Cell]:
    """Return all cells, the most important ones first."""
    both, unit = (False, True), ("unit",)
    parts = [
        (("lost",), ("proden",), (MIDDLE,), INPUTS, (False,)),
        (("lost",), ("proden",), (MIDDLE,), unit, (True,)),
        (("lost",), ("proden",), (SHORT, MIDDLE_LARGE, SHORT_LARGE), unit, (False,)),
        (("bird-song",), ("proden",), (SHORT_LARGE,), INPUTS, (False,)),
        (("bird-song",), ("proden",), (SHORT_LARGE,), unit, (True,)),
        (("bird-song",), ("proden",), (SHORT,), unit, both),
        (("bird-song",), ("proden",), (MIDDLE_LARGE,), unit, (True, False)),
        (DIGITS, ("proden",), (MIDDLE,), unit, both),
        (("lost",), ("cc", "pop"), (MIDDLE,), unit, (False,)),
        (("bird-song",), ("cc", "pop"), (SHORT_LARGE,), unit, (False,)),
        (DIGITS, ("proden",), (MIDDLE,), ("z",), (False,)),
        (("lost",), ("crosel",), (MIDDLE,), unit, (False,)),
    ]
    for datasets, methods, recipes, inputs, folds in parts:
        for one in itertools.product(datasets, methods, recipes, inputs, folds, CLEANERS):
            dataset, method, recipe, seen, fold, cleaner = one
            yield Cell(dataset, method, cleaner, *recipe, seen, fold)


@dataclasses.dataclass(frozen=True)
class Setting:
    """Settings that all cells share."""

    data: str | None
    device: str
    seeds: int = SEEDS
    shorter: int = 1  # divides epochs
    kept: Path = Path("runs/defaults")  # generated candidate sets


def prepare(dataset: Dataset, splits: list[tuple[Rows, Rows]], inputs: str, folds: bool) -> Problem:
    """Standardise over all training rows of a split, also for networks that do not see one fold."""
    runs = [(seed, member) for seed in range(len(splits)) for member in range(MEMBERS)]
    problem = Problem.of(
        dataset.X,
        dataset.S,
        rows=[splits[seed][0] for seed, _ in runs],
        seeds=[seed + NEXT_MEMBER * member for seed, member in runs],
        standardise=True,
    )
    assert problem.shift is not None
    assert problem.scale is not None
    shift, scale = INPUTS[inputs]
    problem = dataclasses.replace(problem, shift=problem.shift - shift / problem.scale, scale=problem.scale * scale)
    if not folds:
        return problem
    shuffled = [np.random.default_rng(seed).permutation(train) for seed, (train, _) in enumerate(splits)]
    left = [np.delete(shuffled[seed], np.s_[member::MEMBERS]) for seed, member in runs]
    return dataclasses.replace(problem, rows=tuple(torch.from_numpy(np.sort(rows)) for rows in left))


def accuracies(p: NDArray[Any], splits: list[tuple[Rows, Rows]], y: NDArray[Any]) -> dict[str, list[float]]:
    """Return the test accuracy of each seed: of one network, and of five with averaged probabilities."""
    found: dict[str, list[float]] = {"one": [], "five": []}
    for own, (_, test) in zip(p.reshape(len(splits), MEMBERS, *p.shape[1:]), splits, strict=True):
        for name, size in (("one", 1), ("five", MEMBERS)):
            groups = own[:, test].reshape(-1, size, len(test), p.shape[-1]).mean(1)
            found[name].append(float((groups.argmax(-1) == y[test]).mean()))
    return found


@functools.cache
def load(name: str, setting: Setting) -> Dataset:
    """Load a dataset with its candidate sets, once."""
    return PROTOCOL.prepare(sets.load(name, setting.kept, setting.data, device=setting.device))


def measure(cell: Cell, setting: Setting) -> dict[str, Any]:
    """Train and score one cell."""
    dataset = load(cell.dataset, setting)
    assert dataset.y is not None
    splits = [PROTOCOL.rows(dataset, seed) for seed in range(setting.seeds)]
    problem = prepare(dataset, splits, cell.inputs, cell.folds)
    recipe = Recipe("custom", max(1, cell.epochs // setting.shorter), cell.batch)
    start = time.perf_counter()
    model = fit(problem, METHODS[cell.method](), CLEANERS[cell.cleaner], recipe, device=setting.device, progress=False)
    seconds = time.perf_counter() - start  # reading the history waited for the device
    found = accuracies(model.predict(dataset.X).numpy(), splits, dataset.y)
    if cell.folds:
        del found["one"]  # a single network without one fold is not an option of the classifier
    return dataclasses.asdict(cell) | {"accuracy": found, "seconds": seconds, "networks": problem.runs}


def run(setting: Setting, out: Path, minutes: float, chosen: list[Cell]) -> None:
    """Measure the cells that are not in the file yet."""
    content = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"cells": {}}
    facts = {"seeds": setting.seeds, "shorter": setting.shorter, "members": MEMBERS}
    if content.get("setting", facts) != facts:
        raise SystemExit(f"{out} holds results of other settings ({content['setting']}); choose another --out")
    content = {"machine": machine(setting), "setting": facts, "cells": content["cells"]}
    left = [cell for cell in chosen if cell.key not in content["cells"]]
    out.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    if left:
        measure(dataclasses.replace(left[0], epochs=1), setting)  # do not count what happens only once per process
    for number, cell in enumerate(left):
        if time.monotonic() - begun > 60 * minutes:
            print(f"{minutes:g} minutes are over; {len(left) - number} of {len(chosen)} cells are left", flush=True)
            return
        content["cells"][cell.key] = found = measure(cell, setting)
        store.replace(out, (json.dumps(content, indent=1) + "\n").encode())
        scores = ", ".join(f"{name} {100 * np.mean(values):.2f}" for name, values in found["accuracy"].items())
        print(f"{number + 1}/{len(left)} {cell.key}: {scores}; {found['seconds']:.1f} s", flush=True)


def machine(setting: Setting) -> dict[str, Any]:
    place = find_device(setting.device)
    device = (
        torch.cuda.get_device_name(place) if place.type == "cuda" else f"a CPU, {torch.get_num_threads()} thread(s)"
    )
    return {"device": device, "python": platform.python_version(), "torch": torch.__version__, "candidly": __version__}


def tables(content: dict[str, Any]) -> str:
    """Return a Markdown table for each dataset."""
    found: dict[str, dict[tuple[str, str, str, int, int], dict[str, str]]] = {}
    for cell in content["cells"].values():
        row = (cell["method"], cell["inputs"], cell["cleaner"], -cell["epochs"], cell["batch"])
        columns = found.setdefault(cell["dataset"], {}).setdefault(row, {})
        for name, values in cell["accuracy"].items():
            spread = f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
            columns[f"{name}, folds" if cell["folds"] else name] = f"{100 * np.mean(values):.2f}{spread}"
        if not cell["folds"]:
            columns["seconds"] = f"{cell['seconds'] / cell['networks']:.2g}"
    heads = {"one": "1 network", "five": "mean of 5", "five, folds": "5 folds", "seconds": "s per network"}
    lines = [f"Measured on {content['machine']['device']}, torch {content['machine']['torch']}.", ""]
    for dataset, rows in found.items():
        lines += [
            f"### {dataset}",
            "",
            f"| method | inputs | cleaner | epochs | batch | {' | '.join(heads.values())} |",
        ]
        lines.append("|---" * (5 + len(heads)) + "|")
        for (method, inputs, cleaner, epochs, batch), columns in sorted(rows.items(), key=_order):
            values = " | ".join(columns.get(name, "") for name in heads)
            lines.append(f"| {method} | {inputs} | {cleaner} | {-epochs} | {batch} | {values} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def _order(item: tuple[tuple[str, str, str, int, int], Any]) -> tuple[Any, ...]:
    method, inputs, cleaner, epochs, batch = item[0]
    return list(METHODS).index(method), -len(inputs), list(CLEANERS).index(cleaner), epochs, batch


def write_page(out: Path, page: Path = PAGE) -> None:
    """Replace the tables between the markers of the page."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    text = tables(json.loads(out.read_text(encoding="utf-8")))
    store.replace(page, f"{before}{BEGIN}\n\n{text}\n\n{END}{after}".encode())


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the datasets' files")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/defaults.json"))
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no cell after this time")
    parser.add_argument(
        "--quick", action="store_true", help="to try it out: lost, two seeds, a hundredth of the epochs"
    )
    parser.add_argument("--page", action="store_true", help="write docs/evidence/defaults.md and measure nothing")
    args = parser.parse_args()
    if args.page:
        write_page(args.out)
        return
    chosen = [cell for cell in cells() if not args.quick or cell.dataset == "lost"]
    setting = Setting(args.data, args.device, *((2, 100) if args.quick else ()))
    run(setting, args.out, args.minutes, chosen)


if __name__ == "__main__":
    main()
