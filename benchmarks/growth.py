"""How the time of an epoch grows with rows, classes, features and runs, one at a time, on synthetic data."""

import dataclasses
import math
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.measure import Setting, run_epoch, say
from candidly.cleaning import Cleaner, Conformal
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.engine.training import Training
from candidly.methods import Proden

BATCH, STEEP = 256, 1.1  # rows per batch; the slope from which growth is reported as faster than linear
BASES = {  # rows, classes, features, runs
    "cuda": {"n": 20_000, "C": 10, "d": 50, "R": 5},
    "cpu": {"n": 2_000, "C": 10, "d": 50, "R": 5},
    "quick": {"n": 1_000, "C": 10, "d": 50, "R": 2},
}
GRIDS = {
    "cuda": {
        "n": (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
        "C": (10, 30, 100, 300, 1000),
        "d": (10, 30, 100, 300, 1000, 4096),
        "R": (1, 2, 5, 13, 40, 130),
    },
    "cpu": {
        "n": (1_000, 3_000, 10_000),
        "C": (10, 30, 100, 300, 1000),
        "d": (10, 30, 100, 300, 1000),
        "R": (1, 2, 5, 10, 20),
    },
    "quick": {"n": (1_000, 3_000), "C": (10, 100), "d": (10, 100), "R": (1, 10)},
}
LABELS = {"n": "rows", "C": "classes", "d": "features", "R": "runs"}


def cleaners() -> dict[str, Cleaner]:
    """Return no cleaner, and the published rule from the first epoch on with calibration rows that also train."""
    return {
        "PRODEN": Cleaner(),
        "Conf+PRODEN": dataclasses.replace(Conformal.published(), warmup=0, calibration="reuse"),
    }


def make(n: int, C: int, d: int, R: int) -> Problem:
    """Return synthetic rows with up to three candidates each."""
    generator = torch.Generator().manual_seed(0)
    S = torch.zeros(n, C, dtype=torch.bool)
    S.scatter_(1, torch.randint(C, (n, 3), generator=generator), True)
    return Problem.of(torch.randn(n, d, generator=generator), S, seeds=range(R))


def epoch_seconds(setting: Setting, problem: Problem, cleaner: Cleaner) -> list[float]:
    """Time all epochs of a training but the first; on CUDA, short epochs are repeated more often."""
    steps = -(-len(problem.X) // BATCH)
    epochs = 12 if setting.cuda and steps <= 50 and not setting.quick else 3
    with setting.stream():
        training = Training(
            problem.to(setting.place), Proden(), cleaner, Recipe(epochs=epochs, batch_size=BATCH), "mlp"
        )
        run_epoch(training, setting.cuda)
        return [setting.seconds(lambda: run_epoch(training, setting.cuda)) for _ in range(epochs - 1)]


def slope(points: list[tuple[float, float]]) -> float:
    """Fit the slope of log seconds over log size, over the last decade of sizes."""
    last = [point for point in points if point[0] >= points[-1][0] / 10.001]
    x, y = np.log([size for size, _ in last]), np.log([seconds for _, seconds in last])
    return float(np.polyfit(x, y, 1)[0])


def measure(setting: Setting, results: dict[str, Any]) -> None:
    """Fill in the seconds per epoch and their slopes."""
    base, grid = (setting.choose(sizes["cuda"], sizes["cpu"], sizes["quick"]) for sizes in (BASES, GRIDS))
    results |= {"base": base, "batch": BATCH, "axes": {}}
    for axis, sizes in grid.items():
        found = results["axes"][axis] = {name: {"points": []} for name in cleaners()}
        for size in sizes:
            problem = make(**(base | {axis: size}))
            for name, cleaner in cleaners().items():
                taken = epoch_seconds(setting, problem, cleaner)
                found[name]["points"].append({"size": size, "seconds": taken, "median": median(taken)})
                say(f"growth: {size} {LABELS[axis]}, {name}: {median(taken):.4f} s per epoch")
        for name, line in found.items():
            line["slope"] = slope([(point["size"], point["median"]) for point in line["points"]])
            if line["slope"] > STEEP:
                say(f"growth: {name} grows faster than linearly with {LABELS[axis]}: slope {line['slope']:.2f}")


def draw(results: dict[str, Any], device: str, path: Path) -> None:
    """Draw four panels, each with a line of slope 1 through the last point of PRODEN."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    with mpl.rc_context({"svg.hashsalt": "candidly", "font.size": 9}):
        figure = Figure(figsize=(8, 6), layout="constrained")
        panels = figure.subplots(2, 2, sharey=True)
        for panel, (axis, lines) in zip(panels.flat, results["axes"].items(), strict=True):
            for (name, line), marker in zip(lines.items(), "os", strict=True):
                sizes = [point["size"] for point in line["points"]]
                medians = [point["median"] for point in line["points"]]
                panel.loglog(sizes, medians, marker=marker, markersize=4, label=f"{name}, slope {line['slope']:.2f}")
            sizes, last = [sizes[0], sizes[-1]], lines["PRODEN"]["points"][-1]["median"]
            panel.loglog(sizes, [last * size / sizes[1] for size in sizes], "--", color="0.6", label="linear")
            panel.set_xlabel(f"{LABELS[axis]} {axis}")
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.grid(True, color="0.9")
            panel.legend(frameon=False, fontsize=8)
        lowest = min(
            point["median"] for lines in results["axes"].values() for line in lines.values() for point in line["points"]
        )
        panels[0, 0].set_ylim(bottom=10 ** math.floor(math.log10(lowest)))
        for panel in panels[:, 0]:
            panel.set_ylabel("seconds per epoch")
        fixed = ", ".join(f"{axis} = {size:,}" for axis, size in results["base"].items())
        figure.suptitle(f"{device}; where not varied {fixed}; batches of {results['batch']}", fontsize=10)
        figure.savefig(path, metadata={"Date": None})
