"""Speed on a CPU or a GPU: the measurements of docs/evidence/speed.md.

    python -m benchmarks.speed --data DIR                        # all sections but profile
    python -m benchmarks.speed --data DIR --sections stacked     # one; the others stay in the file
    python -m benchmarks.speed --page                            # the page from the files

Sections:

- textbook: five stacked PRODEN runs against a textbook loop, on one CPU thread, taking turns
- stacked: complete fits of 1 to 65 PRODEN runs on dataset lost
- methods: complete fits of five runs of every method on lost
- mnist, cifar10: PRODEN on images
- rates: the peak rates of the device, which give the least possible time of each case
- growth: seconds per epoch by rows, classes, features and runs
- profile: the time of each part of a step

Results go to speed-cpu.json or speed-cuda.json after every case. On a CPU everything is smaller and on one thread.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import growth, profiles, rates, speed_page
from benchmarks.measure import MissingData, Setting, lost, run_epoch, say, time_fits
from benchmarks.textbook import Textbook
from candidly import __version__
from candidly.cleaning import Cleaner, Conformal
from candidly.data import corrupt, protocols
from candidly.engine.device import find_device
from candidly.engine.model import Model
from candidly.engine.problem import Problem
from candidly.engine.recipe import RECIPES
from candidly.engine.training import Training
from candidly.methods import METHODS, Proden

RUNS, ROUNDS, EPOCHS = 5, 7, 4  # of section textbook: each round times EPOCHS epochs of either side
Results = dict[str, Any]


class Stacked:
    """An epoch of the engine, with all runs."""

    def __init__(self, X: np.ndarray, S: np.ndarray, epochs: int):
        recipe = dataclasses.replace(RECIPES["uai2025"], epochs=epochs)
        self.training = Training(Problem.of(X, S, seeds=range(RUNS)), Proden(), Cleaner(), recipe, "mlp")

    def epoch(self) -> None:
        """Train one epoch."""
        run_epoch(self.training, capture=False)


def textbook(setting: Setting, results: Results) -> None:
    """Time both with the recipe uai2025; if lost is missing, on synthetic data of its size."""
    X, S, source = _rows_of_lost(setting)
    rounds, each = (2, 1) if setting.quick else (ROUNDS, EPOCHS)
    epochs = each * (rounds + 1)
    sides: dict[str, tuple[Textbook | Stacked, int]] = {
        "textbook": (Textbook(torch.tensor(X, dtype=torch.float32), torch.tensor(S, dtype=torch.float32), epochs), 1),
        "stacked": (Stacked(X, S, epochs), RUNS),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for round_ in range(rounds + 1):
        say(f"textbook: round {round_} of {rounds}" + ("" if round_ else ", which warms up"))
        for name, (side, models) in sides.items():
            start = time.perf_counter()
            for _ in range(each):
                side.epoch()
            if round_:
                times[name].append((time.perf_counter() - start) / each / models)
    torch.set_num_threads(threads)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    results |= {"data": source, "rows": len(X), "features": X.shape[1], "classes": S.shape[1], "runs": RUNS}
    results |= {"rounds": rounds, "epochs_per_round": each, "seconds_per_model_and_epoch": times, "medians": medians}
    results["ratio"] = medians["textbook"] / medians["stacked"]
    say(f"  {RUNS} stacked runs on {source} are {results['ratio']:.2f}x faster per model than the textbook loop")


def _rows_of_lost(setting: Setting) -> tuple[np.ndarray, np.ndarray, str]:
    try:
        problem = lost(setting, 1)
    except MissingData:
        generator = np.random.default_rng(0)
        S = generator.random((896, 14)) < 0.1
        S[np.arange(896), generator.integers(14, size=896)] = True
        return generator.random((896, 108)), S, "made-up data of lost's size"
    rows = problem.rows[0]
    return problem.X[rows].numpy(), problem.S[rows].numpy(), "lost"


def stacked(setting: Setting, results: Results) -> None:
    """PRODEN on lost, by the number of runs."""
    for runs in setting.choose((1, 5, 20, 65), (1, 5, 20), (1, 2)):
        say(f"stacked: PRODEN, {runs} runs")
        found, _ = time_fits(setting, lost(setting, runs), Proden(), epochs=setting.choose(200, 20, 3))
        results[str(runs)] = {"method": "proden"} | found


def methods(setting: Setting, results: Results) -> None:
    """Every method on lost, five runs."""
    problem = lost(setting, setting.choose(5, 5, 2))
    for name in ("proden", "conf+proden", "crosel", "valen", "cc", "cavl", "pop", "rc"):
        say(f"methods: {name}, {problem.runs} runs")
        cleaner = Conformal.published() if name.startswith("conf+") else None
        method = name.removeprefix("conf+")
        epochs = setting.choose(200, 20, 3)
        found, _ = time_fits(setting, problem, METHODS[method](), cleaner, epochs=epochs)
        ratio = found["median_seconds"] / results.get("proden", found)["median_seconds"]
        results[name] = {"method": method, "ratio_to_proden": ratio} | found


def mnist(setting: Setting, results: Results) -> None:
    """PRODEN on mnist with uniform candidate sets, which need no other network."""
    problem, X, y = _images(setting, "mnist", 0.5, setting.choose(5, 5, 2), setting.choose(None, 2560, 512))
    say(f"mnist: PRODEN, {problem.runs} runs, {len(problem.X)} rows")
    recipe = dataclasses.replace(RECIPES["uai2025"], batch_size=256)
    found, model = time_fits(setting, problem, Proden(), epochs=setting.choose(200, 3, 2), recipe=recipe)
    results["proden"] = {"method": "proden", "test_accuracy": _accuracy(model, X, y)} | found


def cifar10(setting: Setting, results: Results) -> None:
    """PRODEN on cifar10 with ResNet-9: a few epochs, or with --full 200."""
    problem, X, y = _images(setting, "cifar10", 0.1, 1, setting.choose(None, 32, 32))
    recipe = dataclasses.replace(RECIPES["uai2025"], batch_size=setting.choose(256, 16, 16))
    fixed: dict[str, Any] = {"recipe": recipe, "net": "resnet9"}
    common = {"method": "proden", "net": "resnet9"}
    has_precision = any(field.name == "precision" for field in dataclasses.fields(recipe))
    for precision in ("auto", "float32") if has_precision and setting.cuda else ("auto",):
        computes = "bfloat16" if has_precision and setting.cuda and precision == "auto" else "float32"
        say(f"cifar10: PRODEN in {computes}, {len(problem.X)} rows")
        if has_precision:
            fixed["recipe"] = dataclasses.replace(recipe, precision=precision)
        found, _ = time_fits(setting, problem, Proden(), epochs=setting.choose(4, 2, 2), warm_up=2, **fixed)
        results[computes] = common | {"computes": computes} | found
    if setting.full and setting.cuda:
        say("cifar10: PRODEN, 200 epochs")
        fixed["recipe"] = recipe
        found, model = time_fits(setting, problem, Proden(), epochs=200, warm_up=2, repeats=1, **fixed)
        computes = "bfloat16" if has_precision else "float32"
        results["full"] = common | {"computes": computes, "test_accuracy": _accuracy(model, X, y)} | found
    elif setting.full:
        say("cifar10: 200 epochs are trained on a GPU only")


def _images(
    setting: Setting, name: str, q: float, runs: int, rows: int | None
) -> tuple[Problem, np.ndarray, np.ndarray]:
    """Return the problem of the training images, or of the first ones, and the test images with their labels."""
    images = protocols.default(setting.load(name))
    assert images.y is not None
    assert images.num_train is not None
    train, test = slice(rows or images.num_train), slice(images.num_train, images.num_train + (rows or len(images.X)))
    S = corrupt.uniform(images.y[train], len(images.classes), q, seed=0)
    shift, scale = protocols.scaling(images)
    problem = Problem.of(images.X[train], S, seeds=range(runs), shift=shift, scale=scale)
    return problem, images.X[test], images.y[test]


def _accuracy(model: Model, X: np.ndarray, y: np.ndarray) -> list[float]:
    """Return the test accuracy of every run."""
    best = [model.predict(X[start : start + 1000]).argmax(-1) for start in range(0, len(X), 1000)]
    return (torch.cat(best, 1).numpy() == y).mean(1).tolist()


SECTIONS: dict[str, Callable[[Setting, Results], None]] = {
    "textbook": textbook,
    "rates": rates.measure,
    "stacked": stacked,
    "methods": methods,
    "mnist": mnist,
    "cifar10": cifar10,
    "growth": growth.measure,
    "profile": profiles.measure,
}


class Saved(dict[str, Any]):
    """A section's results, written to the file whenever something is added."""

    def __init__(self, save: Callable[[], None]):
        super().__init__()
        self._save = save

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._save()

    def __ior__(self, other: Any) -> "Saved":  # type: ignore[misc,override]
        self.update(other)
        self._save()
        return self


class Book:
    """The file of one kind of device."""

    def __init__(self, path: Path, setting: Setting):
        self.path, self.setting = path, setting
        self.content: Results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def section(self, name: str) -> Results:
        """Start a section, with a record of the machine and the versions."""
        self.content[name] = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": machine(self.setting),
            "versions": versions(),
            "repeats": self.setting.repeats,
            **({"quick": True} if self.setting.quick else {}),
        }
        self.content[name]["results"] = found = Saved(self.save)
        return found

    def save(self) -> None:
        """Write the file, with the least possible times of the cases so far."""
        known = self.content.get("rates", {}).get("results", {})
        if {"cache_bytes", "smallest_kernel_us"} <= known.keys():  # the first and the last of them
            for name in ("stacked", "methods", "mnist", "cifar10"):
                for case in self.content.get(name, {}).get("results", {}).values():
                    case["floor"] = rates.floor(case, known)
        order = [name for name in SECTIONS if name in self.content]
        text = json.dumps({name: _rounded(self.content[name]) for name in order}, indent=1)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".tmp")
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(self.path)


def _rounded(value: Any) -> Any:
    """Keep five digits of every measurement."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def machine(setting: Setting) -> Results:
    cpu = platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    device = torch.cuda.get_device_name(setting.place) if setting.cuda else "CPU"
    return {"device": device, "cpu": cpu, "cores": os.cpu_count(), "threads": torch.get_num_threads()}


def versions() -> dict[str, str]:
    known = {"candidly": __version__, "python": platform.python_version(), "torch": torch.__version__}
    try:
        return known | {"triton": importlib.metadata.version("triton")}
    except importlib.metadata.PackageNotFoundError:
        return known


def run(setting: Setting, names: list[str], folder: Path) -> bool:
    """Measure sections; return whether all of them succeeded."""
    book, failed = Book(folder / f"speed-{setting.place.type}.json", setting), []
    for name in names:
        before = book.content.get(name)
        start = time.perf_counter()
        try:
            SECTIONS[name](setting, book.section(name))
        except MissingData as error:
            say(f"{name}: skipped, {error}")
            if before is None:
                del book.content[name]
            else:
                book.content[name] = before
        except Exception as error:  # an error in one section must not stop the others
            traceback.print_exc()
            book.content[name]["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
            failed.append(name)
        book.save()
        say(f"{name}: {time.perf_counter() - start:.0f} s")
    if failed:
        say(f"failed: {', '.join(failed)}")
    return not failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the datasets' files")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    default = [name for name in SECTIONS if name != "profile"]
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=default, metavar="SECTION")
    parser.add_argument("--repeats", type=int, default=3, help="fits per case; the median is reported")
    parser.add_argument("--full", action="store_true", help="also train cifar10 for all 200 epochs")
    parser.add_argument("--out", type=Path, default=speed_page.FOLDER, help="folder of the result files")
    parser.add_argument("--page", action="store_true", help="only write docs/evidence/speed.md from the files")
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)  # tiny sizes, to try the script
    args = parser.parse_args()
    if args.page:
        speed_page.write(args.out)
        return
    if args.quick and args.out == speed_page.FOLDER:
        parser.error("--quick measures nothing worth keeping; give another folder with --out")
    if args.repeats < 1:
        parser.error("--repeats must be at least 1")
    setting = Setting(find_device(args.device), args.data, args.repeats, args.quick, args.full)
    if not setting.cuda:
        torch.set_num_threads(1)
    sys.exit(0 if run(setting, args.sections, args.out) else 1)


if __name__ == "__main__":
    main()
