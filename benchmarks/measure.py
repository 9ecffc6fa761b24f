"""Shared by the sections of `benchmarks.speed`: the clock, problems, timed fits, and epochs of a training."""

import dataclasses
import gc
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from candidly import data
from candidly.cleaning import Cleaner
from candidly.data import Dataset, protocols
from candidly.engine.device import training_on
from candidly.engine.fitting import fit
from candidly.engine.model import Model
from candidly.engine.problem import Problem
from candidly.engine.recipe import RECIPES, Recipe
from candidly.engine.training import Training
from candidly.methods import Method

WARM_UP_EPOCHS = 12  # of the untimed fit on CUDA: VALEN, CroSel and cleaning have a second phase after 10


class MissingData(Exception):
    """The dataset of a section was not found."""


@dataclass(frozen=True)
class Setting:
    """Where and how thoroughly to measure."""

    place: torch.device
    root: str | None
    repeats: int
    quick: bool = False
    full: bool = False

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.place.type == "cuda"

    def choose(self, cuda: Any, cpu: Any, quick: Any) -> Any:
        """Return the size for this kind of device."""
        return quick if self.quick else cuda if self.cuda else cpu

    def synchronise(self) -> None:
        """Wait until the device has finished all its work."""
        if self.cuda:
            torch.cuda.synchronize(self.place)

    def seconds(self, function: Callable[[], Any]) -> float:
        """Time a call, from an idle device to an idle device, after garbage collection."""
        gc.collect()
        self.synchronise()
        start = time.perf_counter()
        function()
        self.synchronise()
        return time.perf_counter() - start

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Prepare a training as `candidly.fit` does on CUDA: a separate stream, and cuDNN's fastest algorithms."""
        with training_on(self.place):
            yield
            self.synchronise()

    def load(self, name: str) -> Dataset:
        """Load a dataset."""
        try:
            return data.load(name, root=self.root)
        except FileNotFoundError as error:
            raise MissingData(f"{name} was not found; --data names the folder it is in") from error


def say(line: str) -> None:
    print(line, flush=True)


def lost(setting: Setting, runs: int) -> Problem:
    """Return dataset lost, prepared by the protocol uai2025, with split 0 for every run."""
    prepared = protocols.uai2025(setting.load("lost"))
    train, _ = protocols.uai2025_split(prepared, 0)
    return Problem.of(prepared.X, prepared.S, rows=[train] * runs, seeds=range(runs))


def shape_of(problem: Problem, recipe: Recipe) -> dict[str, int]:
    """Return everything that the cost of an epoch depends on; a cleaner may hold out some of the rows."""
    sizes = [len(rows) for rows in problem.rows]
    batch = recipe.batch(sizes)
    features, classes = problem.X[0].numel(), problem.num_classes
    known = {"rows": max(sizes), "features": features, "classes": classes, "runs": problem.runs}
    return known | {"batch": batch, "steps": -(-max(sizes) // batch)}


def time_fits(
    setting: Setting,
    problem: Problem,
    method: Method,
    cleaner: Cleaner | None = None,
    *,
    epochs: int,
    recipe: Recipe = RECIPES["uai2025"],
    net: str = "mlp",
    warm_up: int | None = None,
    repeats: int | None = None,
) -> tuple[dict[str, Any], Model]:
    """Time complete fits, and fits of a single epoch, after an untimed one; return the times and the last model.

    What a single epoch takes is set-up, capture and little else, so the difference is what further epochs take.
    """
    model: Model | None = None

    def run(epochs: int) -> None:
        nonlocal model
        wanted = dataclasses.replace(recipe, epochs=epochs)
        model = fit(problem, method, cleaner, wanted, net=net, device=setting.place, progress=False)

    repeats = repeats or setting.repeats
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(min(epochs, warm_up or setting.choose(WARM_UP_EPOCHS, 1, 1)))
        first = [setting.seconds(lambda: run(1)) for _ in range(repeats)]
        whole = [setting.seconds(lambda: run(epochs)) for _ in range(repeats)]
    shape = shape_of(problem, recipe)
    steady = (median(whole) - median(first)) / ((epochs - 1) * shape["steps"])
    result: dict[str, Any] = {
        **shape,
        "epochs": epochs,
        "seconds": whole,
        "median_seconds": median(whole),
        "one_epoch_seconds": first,
        "median_one_epoch_seconds": median(first),
        "us_per_step": 1e6 * steady,
    }
    noted = {str(warning.message).splitlines()[0] for warning in caught if warning.category is UserWarning}
    if noted:  # such as that the step cannot be captured
        result["warnings"] = sorted(noted)
        say("  warnings: " + "; ".join(result["warnings"]))
    assert model is not None
    say(f"  {median(whole):.2f} s (one epoch {median(first):.2f} s), {1e6 * steady:.0f} µs per step")
    return result, model


def run_epoch(training: Training, capture: bool) -> None:
    """Train one epoch as `candidly.fit` does."""
    training.begin_epoch()
    while training.done < training.steps:
        training.advance(capture)
    training.end_epoch()
