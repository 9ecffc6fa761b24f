"""The tiny problem of the oracle tests, and every method cut so short that each phase has little more than 20 steps."""

from collections.abc import Sequence

import numpy as np
import torch

from candidly.engine.contract import Method
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.methods import METHODS

FEATURES, CLASSES, BATCH = 5, 4, 8
LEFT_OUT = (4, 7, 10)  # rows each run leaves out: of 172 rows, all runs take 21 steps of 8, and two wrap round
SHORT = {
    # The first visit to θ removes nothing, so that θ grows; the second purges. Two rings of two epochs.
    "pop": {"start": 0, "every": 2, "theta": 1e-9, "step_size": 0.3, "theta_end": 0.3},
    "valen": {"warmup": 1, "c": 0.7, "beta": 0.1},
    "crosel": {"warmup": 1, "confidence": 0.6},
    "pico": {"queue": 20, "momentum": 0.9},  # the queue is full within the first epoch, and wraps round
}
EPOCHS = {"pop": 4, "crosel": 4}  # POP purges after its third epoch, CroSel's banks are full after theirs


def make_problem(
    runs: Sequence[int], n: int = 172, wrong: float = 0.4, num_classes: int = CLASSES, standardise: bool = False
) -> Problem:
    """Overlapping clouds, one per class; each wrong label is a candidate with probability `wrong`.

    A run has the same rows and the same seed whichever others it is made with.
    """
    random = np.random.default_rng(7)
    y = random.integers(num_classes, size=n)
    X = random.normal(size=(num_classes, FEATURES))[y] + random.normal(size=(n, FEATURES))
    S = (random.random((n, num_classes)) < wrong) | (np.arange(num_classes) == y[:, None])
    rows = [random.permutation(n)[count:] for count in LEFT_OUT]
    return Problem.of(X, S, rows=[rows[r] for r in runs], seeds=runs, standardise=standardise, dtype=torch.float64)


def make_method(name: str) -> Method:
    return METHODS[name](**SHORT.get(name, {}))


def make_recipe(name: str, epochs: int = 3) -> Recipe:
    """Return a recipe of so many epochs, or of as many as all phases of the method need."""
    return Recipe(epochs=EPOCHS.get(name, epochs), batch_size=BATCH)
