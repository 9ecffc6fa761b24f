"""Settings of torch for the whole process do not change results, to the bit."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

from candidly import PartialLabelClassifier, Problem, Recipe, evaluate, fit
from candidly.cleaning import CLEANERS
from candidly.methods import METHODS, Proden

pytestmark = pytest.mark.usefixtures("narrow_networks")

RNG = np.random.default_rng(0)
Y = np.arange(120) % 4
X = RNG.normal(size=(120, 5)) + Y[:, None]
S = RNG.random((120, 4)) < 0.3
S[np.arange(120), Y] = True
IMAGES = RNG.integers(0, 255, size=(4, 3, 32, 32), dtype=np.uint8)


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def default_device(name):
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


CONTEXTS = {
    "float64": lambda: default_dtype(torch.float64),
    "float16": lambda: default_dtype(torch.float16),
    "meta": lambda: default_device("meta"),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
}


def network():
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


def train(method, cleaner=None, net="mlp", rows=X, sets=S):
    images = net == "resnet9"  # one step of one run takes as long as all the others
    recipe = Recipe(epochs=1 if images else 2, batch_size=32, augment=images)
    problem = Problem.of(rows, sets, seeds=[0] if images else [0, 1], standardise=not images)
    model = fit(problem, method, cleaner, recipe, net=net, device="cpu")
    return model.parts()[0] | {"p": model.predict(rows), "none": model.predict(rows[:0])}


def trainings():
    """Yield trainings that cover all methods, cleaners and networks."""
    cleaners = list(CLEANERS.values())
    for i, make in enumerate(METHODS.values()):
        settings = {"warmup": 1} if hasattr(make, "warmup") else {}
        yield train(make(**settings), cleaners[i % len(cleaners)]())
    yield train(Proden(), net="linear")
    yield train(Proden(), net=network)
    yield train(Proden(), net="resnet9", rows=IMAGES, sets=S[:4])


def classifier(folder):
    fitted = PartialLabelClassifier(folds=2, max_epochs=4, device="cpu", random_state=0, early_stopping=True).fit(X, S)
    fitted.save(folder)
    loaded = PartialLabelClassifier.load(folder)
    found = fitted.model_.parts()[0] | fitted.calibration_.tensors()
    found |= {f"proba {i}": torch.from_numpy(one.predict_proba(X)) for i, one in enumerate((fitted, loaded))}
    found |= {"p": torch.from_numpy(loaded.predict_p(X, kind="split", score="aps", smooth=True))}
    return found, repr(evaluate(fitted, X, Y)), repr(fitted.audit()), fitted.score(X, S), fitted.candidates_.decode()


def same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype, name
        assert torch.equal(value, other[name]), name


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return list(trainings()), classifier(tmp_path_factory.mktemp("expected") / "model")


@pytest.mark.parametrize("context", CONTEXTS)
def test_trainings_do_not_depend_on_settings_of_the_process(expected, context):
    with CONTEXTS[context]():
        found = list(trainings())
    for one, other in zip(expected[0], found, strict=True):
        same(one, other)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_classifier_does_not_depend_on_settings_of_the_process(expected, context, tmp_path):
    with CONTEXTS[context]():
        found, *texts = classifier(tmp_path / "model")
    same(expected[1][0], found)
    assert texts == list(expected[1][1:])
