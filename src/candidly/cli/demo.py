"""The demonstration behind ``candidly demo``."""

import time

import numpy as np
from numpy.typing import NDArray

from candidly import data
from candidly.cleaning import find_cleaner
from candidly.data import corrupt
from candidly.engine.problem import Problem
from candidly.engine.training import fit
from candidly.methods import find_method

RECIPE = "quick"
COMBINATIONS = ("proden", "conformal+proden", "crosel", "conformal+crosel")  # of a cleaner, if any, and a method
_WIDTH = 18  # of the column of names


def run(seeds: int, device: str) -> None:
    """Train all combinations and print the results of each."""
    digits = data.load("digits")
    assert digits.y is not None
    y = digits.y
    print("Making candidate sets from the confusions of a network trained on the true labels ...", flush=True)
    S = corrupt.instance_dependent(digits.X, y, len(digits.classes), seed=0, rate=0.4, recipe=RECIPE, device=device)
    splits = [np.random.default_rng(seed).permutation(len(y)) for seed in range(seeds)]
    cut = int(0.8 * len(y))
    print(
        f"{len(y)} digits with {S.sum(1).mean():.2f} candidates each, one of them true; {cut} train, {len(y) - cut} "
        f"test; {seeds} splits; recipe '{RECIPE}'; 'conformal+' removes candidates while training.\n"
    )
    print(f"{'method':{_WIDTH}}{'test accuracy':>17}{'true labels kept':>18}{'wrong removed':>15}{'seconds':>9}")
    problem = Problem.of(
        digits.X, S, rows=[split[:cut] for split in splits], seeds=range(seeds), classes=digits.classes
    )
    for name in COMBINATIONS:
        cleaner, _, method = name.rpartition("+")
        start = time.perf_counter()
        model = fit(problem, find_method(method), find_cleaner(cleaner or None), RECIPE, device=device)
        seconds = time.perf_counter() - start
        correct = model.predict(digits.X).argmax(-1).numpy() == y
        accuracy = 100 * np.array([run[split[cut:]].mean() for run, split in zip(correct, splits, strict=True)])
        kept, removed = _cleaning(S, model.kept.numpy(), y, [split[:cut] for split in splits])
        spread = accuracy.std(ddof=1) if seeds > 1 else 0.0
        shares = f"{100 * kept:17.1f}%{100 * removed:14.1f}%"
        print(f"{name:{_WIDTH}}{accuracy.mean():9.2f} ± {spread:<5.2f}{shares}{seconds:9.1f}", flush=True)


def _cleaning(
    S: NDArray[np.bool_], kept: NDArray[np.bool_], y: NDArray[np.int64], rows: list[NDArray[np.int64]]
) -> tuple[float, float]:
    """Return the fractions of true labels kept and of wrong candidates removed, over the training rows of all runs."""
    wrong = S & ~np.eye(S.shape[1], dtype=bool)[y]
    true_kept = [run[index, y[index]].mean() for run, index in zip(kept, rows, strict=True)]
    removed = [1 - (run & wrong)[index].sum() / wrong[index].sum() for run, index in zip(kept, rows, strict=True)]
    return float(np.mean(true_kept)), float(np.mean(removed))
