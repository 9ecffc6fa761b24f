"""What the contract tests run: small data, every method in a short form, and the cleaners."""

import dataclasses
import functools

import numpy as np
import torch

from candidly.cleaning import Cleaner, Clsp, Conformal, Random
from candidly.engine.building import builder
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.engine.training import Training
from candidly.methods import METHODS

CLASSES = 4
RECIPE = Recipe("contract", epochs=6, batch_size=16, max_lr=0.01)  # also for methods with a smaller one
CLEANERS = {
    "none": None,
    "identity": Cleaner(),
    "conformal": Conformal(warmup=1),
    "published": dataclasses.replace(Conformal.published(), warmup=1),
    "clsp": Clsp(k=5),
}
MORE_CLEANERS = CLEANERS | {
    "algorithm1": dataclasses.replace(Conformal.algorithm1(), warmup=1),
    "random": Random(Conformal(warmup=1)),
}
# Settings under which all that a method does over many epochs happens within the few of RECIPE.
_SOON = {"warmup": 1, "start": 2, "every": 2, "queue": 64}  # a queue of 8192 is slow, and never full
_EASILY = {"confidence": 0.3, "theta": 0.3}


def blobs(n, seed, classes=CLASSES, flip=0.3):
    """Rows around well separated centres, their candidate sets and their true labels."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % classes
    angle = 2 * np.pi * y / classes
    X = np.stack([3 * np.cos(angle), 3 * np.sin(angle), np.zeros(n)], 1) + generator.normal(0, 0.6, (n, 3))
    S = generator.random((n, classes)) < flip
    S[np.arange(n), y] = True
    return X.astype(np.float32), S, y


def ragged_problem(with_y=True, **keywords):
    """Two runs of different sizes, neither a multiple of the batch size."""
    X, S, y = blobs(50, seed=0)
    rows = [np.arange(50), np.arange(10, 50)]
    return Problem.of(X, S, rows=rows, seeds=(3, 4), y=y if with_y else None, standardise=True, **keywords)


def image_problem():
    """Two runs on small colour images, for which methods may do more than for vectors."""
    X, S, y = blobs(40, seed=0)
    images = np.random.default_rng(5).normal(0, 0.3, (40, 3, 6, 6)) + X[:, :, None, None]
    return Problem.of(images, S, seeds=(3, 4), y=y)


def short(name, easily=True):
    """Return a method whose phases all occur within RECIPE; `easily`: its selections and purges do, too."""
    known = {field.name for field in dataclasses.fields(METHODS[name])}
    settings = _SOON | _EASILY if easily else _SOON
    return METHODS[name](**{key: value for key, value in settings.items() if key in known})


@functools.cache
def net_for(name):
    """Return the smallest network a method can work with."""
    problem = ragged_problem()
    try:
        METHODS[name]().setup(problem, builder(problem, "linear"))
    except ValueError:
        return "mlp"
    return "linear"


def training_of(name, cleaner, problem=None):
    """Return the engine's inner state for a method in its short form, before the first epoch."""
    problem = ragged_problem() if problem is None else problem
    return Training(problem, short(name), cleaner or Cleaner(), RECIPE, net_for(name))


def epochs(training, until=None):
    """Train epoch by epoch, or what is left of one; yields the phase and a moment's name three times per epoch."""
    while training.epoch < (training.recipe.epochs if until is None else until):
        phase = training.method.phase(training.epoch)
        training.begin_epoch()
        yield phase, "begun"
        while training.done < training.steps:
            training.advance(capture=False)
        yield phase, "stepped"
        training.end_epoch()
        yield phase, "ended"


def train(training, until=None):
    """Train to the end, or until so many epochs are over."""
    for _ in epochs(training, until):
        pass


def phases(name):
    """Return each phase's first epoch within RECIPE."""
    method = short(name)
    first = {}
    for epoch in range(RECIPE.epochs):
        first.setdefault(method.phase(epoch), epoch)
    return first


def equal(first, second):
    """Whether two mappings hold the same tensors, bit for bit."""
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)
