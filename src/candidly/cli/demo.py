"""The demonstration behind ``candidly demo``."""

import time

import numpy as np
import torch

from candidly import data, metrics
from candidly.checks.arguments import integer
from candidly.cleaning import find_cleaner
from candidly.cli.terminal import say
from candidly.data import corrupt
from candidly.engine.device import find_device
from candidly.engine.fitting import fit
from candidly.engine.memory import require_runs
from candidly.engine.problem import Problem
from candidly.methods import find_method

RECIPE = "quick"
COMBINATIONS = ("proden", "conformal+proden", "crosel", "conformal+crosel")  # of a cleaner, if any, and a method
_WIDTH = 18  # of the column of names


def run(seeds: int, device: str) -> None:
    """Train all combinations and print the results of each."""
    find_device(device)
    digits = data.load("digits")
    assert digits.y is not None
    y = digits.y
    find_device(device)
    require_runs(integer("seeds", seeds, least=1), len(y), len(digits.classes))
    say("Making candidate sets from the confusions of a network trained on the true labels ...")
    S = corrupt.instance_dependent(digits.X, y, len(digits.classes), seed=0, rate=0.4, recipe=RECIPE, device=device)
    splits = [np.random.default_rng(seed).permutation(len(y)) for seed in range(seeds)]
    cut = int(0.8 * len(y))
    say(
        f"{len(y)} digits with {S.sum(1).mean():.2f} candidates each, one of them true; {cut} train, {len(y) - cut} "
        f"test; {seeds} splits; recipe '{RECIPE}'; 'conformal+' removes candidates while training.\n"
    )
    say(f"{'method':{_WIDTH}}{'test accuracy':>17}{'true labels kept':>18}{'wrong removed':>15}{'seconds':>9}")
    problem = Problem.of(
        digits.X, S, rows=[split[:cut] for split in splits], seeds=range(seeds), classes=digits.classes
    )
    before = torch.from_numpy(S)
    trained = torch.full((seeds, len(y)), -1)  # true labels of each run's training rows
    for run, split in enumerate(splits):
        trained[run, split[:cut]] = torch.from_numpy(y[split[:cut]])
    for name in COMBINATIONS:
        cleaner, _, method = name.rpartition("+")
        start = time.perf_counter()
        model = fit(problem, find_method(method), find_cleaner(cleaner or None), RECIPE, device=device)
        seconds = time.perf_counter() - start
        correct = model.predict(digits.X).argmax(-1).numpy() == y
        accuracy = 100 * np.array([hits[split[cut:]].mean() for hits, split in zip(correct, splits, strict=True)])
        kept = float(metrics.true_kept(before, model.kept, trained).mean())
        removed = float(metrics.wrong_removed(before, model.kept, trained).mean())
        spread = accuracy.std(ddof=1) if seeds > 1 else 0.0
        shares = f"{100 * kept:17.1f}%{100 * removed:14.1f}%"
        say(f"{name:{_WIDTH}}{accuracy.mean():9.2f} ± {spread:<5.2f}{shares}{seconds:9.1f}")
