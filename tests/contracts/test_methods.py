"""The contract of a method, for every method and every cleaner."""

import copy
import dataclasses
import functools

import numpy as np
import pytest
import torch
from torch import nn

from candidly.cleaning import Cleaner, Conformal, Oracle, Random
from candidly.engine.fitting import fit
from candidly.engine.model import Model
from candidly.engine.nets.build import Separate
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.engine.training import Training
from candidly.methods import METHODS
from candidly.store import states
from tests.contracts.cases import (
    CLASSES,
    CLEANERS,
    MORE_CLEANERS,
    RECIPE,
    blobs,
    epochs,
    equal,
    image_problem,
    net_for,
    phases,
    ragged_problem,
    short,
    train,
    training_of,
)

every_method = pytest.mark.parametrize("name", METHODS)
every_cleaner = pytest.mark.parametrize("cleaner", CLEANERS)
more_cleaners = pytest.mark.parametrize("cleaner", MORE_CLEANERS)
X_NEW = blobs(40, seed=1)[0]


def fit_short(name, cleaner, problem=None, **keywords):
    problem = ragged_problem() if problem is None else problem
    arguments = {"recipe": RECIPE, "net": net_for(name), "device": "cpu", "progress": False} | keywords
    return fit(problem, short(name), cleaner, **arguments)


@functools.cache
def fitted(name, cleaner):
    return fit_short(name, MORE_CLEANERS[cleaner])


def assert_same_model(first, second):
    assert torch.equal(first.predict(X_NEW), second.predict(X_NEW))
    assert torch.equal(first.kept, second.kept)
    assert first.history.keys() == second.history.keys()
    for name, values in first.history.items():
        np.testing.assert_array_equal(values, second.history[name])


@every_method
@more_cleaners
def test_results_are_finite(name, cleaner):
    model = fitted(name, cleaner)
    p = model.predict(X_NEW)
    assert p.shape == (2, len(X_NEW), CLASSES)
    assert p.isfinite().all()
    assert (p >= 0).all()
    torch.testing.assert_close(p.sum(-1), torch.ones(2, len(X_NEW)))
    assert {"loss", "mean_candidates", "share_changed", "accuracy", "true_kept"} <= model.history.keys()
    for fact, values in model.history.items():
        assert values.shape == (RECIPE.epochs, 2)
        # A threshold is -inf where it keeps every label and +inf where it keeps none.
        assert not np.isnan(values).any()
        assert fact == "threshold" or np.isfinite(values).all()


@every_method
@more_cleaners
def test_kept_sets_are_non_empty_subsets(name, cleaner):
    kept, S = fitted(name, cleaner).kept, ragged_problem().sets
    assert kept.any(-1).all()
    assert not (kept & ~S).any()


@every_method
@more_cleaners
def test_the_pruning_cleaners_prune_here(name, cleaner):
    """Otherwise the other tests with these cleaners would say nothing."""
    changed, without = (fitted(name, one).history["share_changed"] for one in (cleaner, "none"))
    assert (changed > without).any() == (cleaner not in ("none", "identity"))


@every_method
@more_cleaners
def test_two_fits_agree_to_the_bit_whatever_the_global_seed(name, cleaner):
    before = fitted(name, cleaner)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        again = fit_short(name, MORE_CLEANERS[cleaner])
        assert torch.equal(torch.get_rng_state(), state)
        assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    assert_same_model(before, again)


@every_method
def test_images_train_to_the_bit(name):
    first, second = (fit_short(name, CLEANERS["conformal"], image_problem()) for _ in range(2))
    X = image_problem().X
    assert first.predict(X).isfinite().all()
    assert torch.equal(first.predict(X), second.predict(X))
    assert all(not np.isnan(values).any() for values in first.history.values())


@every_method
def test_another_seed_gives_another_model(name):
    problem = dataclasses.replace(ragged_problem(), seeds=(5, 6))
    assert not torch.equal(fit_short(name, None, problem).predict(X_NEW), fitted(name, "none").predict(X_NEW))


@every_method
def test_the_identity_cleaner_is_no_cleaner(name):
    assert_same_model(fitted(name, "none"), fitted(name, "identity"))


@every_method
@pytest.mark.parametrize("cleaner", ["none", "conformal", "published", "random"])
def test_a_run_learns_the_same_alone_and_beside_others(name, cleaner):
    X, S, _ = blobs(50, seed=0)
    both = Problem.of(X, S, seeds=(3, 4), dtype=torch.float64)
    alone = Problem.of(X, S, seeds=(4,), dtype=torch.float64)
    recipe = dataclasses.replace(RECIPE, epochs=4)
    p, one = (fit_short(name, MORE_CLEANERS[cleaner], problem, recipe=recipe).predict(X) for problem in (both, alone))
    torch.testing.assert_close(p[1:], one, rtol=1e-6, atol=1e-8)
    assert not torch.allclose(p[:1], one, atol=1e-3)


@every_method
@more_cleaners
def test_state_round_trips_and_training_continues_to_the_bit(name, cleaner, tmp_path):
    """Also in the middle of an epoch, whose calibration must not be repeated."""
    training = training_of(name, MORE_CLEANERS[cleaner])
    train(training, until=3)
    training.begin_epoch()
    training.advance(capture=False)
    training.save(tmp_path, [{}])
    stored, _ = states.read(tmp_path)
    assert equal({key: value for key, value in stored.items() if not key.startswith("history.")}, training.tensors())

    continued = training_of(name, MORE_CLEANERS[cleaner])
    continued.resume(tmp_path, [{}])
    assert equal(continued.tensors(), training.tensors())
    assert (continued.epoch, continued.done) == (3, 1)
    train(training)
    train(continued)
    assert equal(continued.tensors(), training.tensors())
    assert equal(continued.recorded(), training.recorded())


@every_method
@every_cleaner
def test_a_saved_model_predicts_the_same(name, cleaner, tmp_path):
    model = fitted(name, cleaner)
    model.save(tmp_path)
    assert_same_model(Model.load(tmp_path), model)


class OwnNet(nn.Module):
    """A user's network: (B, 3) to logits (B, 4), with features."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh())
        self.head = nn.Linear(8, CLASSES)

    def features(self, x):
        return nn.functional.normalize(self.body(x), dim=-1)

    def forward(self, x):
        return self.head(self.body(x))


@every_method
def test_a_users_own_network_trains_and_round_trips(name, tmp_path):
    state = torch.get_rng_state()
    model = fit_short(name, CLEANERS["conformal"], net=OwnNet)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.predict(X_NEW).isfinite().all()
    model.save(tmp_path)
    with pytest.raises(ValueError, match="net=factory"):
        Model.load(tmp_path)
    assert_same_model(Model.load(tmp_path, net=OwnNet), model)


class Frozen(OwnNet):
    """A user's network whose first layer is not to be trained."""

    def __init__(self):
        super().__init__()
        self.body[0].requires_grad_(False)


@every_method
def test_frozen_layers_of_a_users_network_do_not_change(name):
    training = Training(ragged_problem(), short(name), Cleaner(), RECIPE, Frozen)
    networks = [net for net in training.method.networks().values() if isinstance(net, Separate)]
    layers = [one.body[0] for net in networks for one in net.nets]
    before = copy.deepcopy(layers)
    train(training)
    assert len(layers) >= training.problem.runs
    for layer, old in zip(layers, before, strict=True):
        assert torch.equal(layer.weight, old.weight)
        assert torch.equal(layer.bias, old.bias)


@every_method
@every_cleaner
def test_separable_classes_are_learned(name, cleaner):
    X, S, _ = blobs(96, seed=2)
    X_test, _, y_test = blobs(200, seed=3)
    method = short(name, easily=False)
    recipe = Recipe("contract", epochs=14, batch_size=16, max_lr=0.05 if net_for(name) == "linear" else 0.01)
    problem = Problem.of(X, S, seeds=(0,))
    model = fit(problem, method, CLEANERS[cleaner], recipe, net=net_for(name), device="cpu", progress=False)
    assert (model.predict(X_test)[0].argmax(-1).numpy() == y_test).mean() > 0.8


class Smallest(Cleaner):
    """Keeps the candidate with the smallest class number, from one epoch on."""

    def __init__(self, since):
        self.since = since

    def setup(self, problem):
        self.acts = problem.X.new_zeros(1)
        return problem

    def calibrate(self, predict, epoch):
        self.acts.fill_(epoch >= self.since)

    def keep(self, p, S, batch):
        first = torch.zeros_like(S).scatter_(-1, S.byte().argmax(-1, keepdim=True), True)
        return torch.where(self.acts > 0, first, S)


@pytest.mark.parametrize(("name", "since"), [(name, since) for name in METHODS for since in phases(name).values()])
def test_a_cleaner_reaches_every_phase_of_every_method(name, since):
    """A method that did not ask its batch for candidates, in whichever phase, would ignore the cleaner."""
    model = fit_short(name, Smallest(since))
    assert (model.predict(X_NEW) - fitted(name, "none").predict(X_NEW)).abs().max() > 0.01
    last = {key: values[-1] for key, values in model.history.items()}
    assert (last["mean_candidates"] == 1).all()
    assert (model.history["mean_candidates"][:since] > 1).all()


def contents(part):
    """Copy everything an object holds, that of the objects within it included."""
    return {
        key: contents(value) if isinstance(value, Cleaner) else copy.deepcopy(value)
        for key, value in vars(part).items()
    }


@every_method
@pytest.mark.parametrize(
    "cleaner", [*MORE_CLEANERS.values(), Oracle(np.arange(50) % CLASSES)], ids=[*MORE_CLEANERS, "oracle"]
)
def test_fit_changes_neither_method_nor_cleaner(name, cleaner):
    method, recipe = short(name), dataclasses.replace(RECIPE, epochs=2)
    parts = [method] if cleaner is None else [method, cleaner]
    before = [contents(part) for part in parts]
    fit(ragged_problem(), method, cleaner, recipe, net=net_for(name), device="cpu", progress=False)
    for part, old in zip(parts, before, strict=True):
        np.testing.assert_equal(contents(part), old)


@every_method
@pytest.mark.parametrize("cleaner", ["none", "conformal", "algorithm1", "clsp"])
@pytest.mark.parametrize("per_run", [False, True], ids=["shared", "per-run"])
def test_fit_changes_no_input(name, cleaner, per_run):
    X, S, y = blobs(40, seed=0)
    S = np.stack([S, S]) if per_run else S
    rows = [np.arange(5, 40)[::-1].copy(), np.arange(30)]
    inputs = {"X": X, "S": S, "y": y, "rows0": rows[0], "rows1": rows[1]}
    before = {key: value.copy() for key, value in inputs.items()}
    problem = Problem.of(X, S, rows=rows, seeds=(0, 1), y=y)
    held = {key: value.clone() for key, value in vars(problem).items() if isinstance(value, torch.Tensor)}
    fit_short(name, MORE_CLEANERS[cleaner], problem, recipe=dataclasses.replace(RECIPE, epochs=3))
    for key, value in inputs.items():
        np.testing.assert_array_equal(value, before[key])
    assert equal(held, {key: getattr(problem, key) for key in held})


@every_method
@pytest.mark.parametrize("cleaner", ["none", "conformal", "algorithm1"])
def test_true_labels_are_never_seen(name, cleaner):
    """They enter the history, nothing else."""
    known = fitted(name, cleaner)
    hidden = fit_short(name, MORE_CLEANERS[cleaner], ragged_problem(with_y=False))
    assert torch.equal(known.predict(X_NEW), hidden.predict(X_NEW))
    assert torch.equal(known.kept, hidden.kept)
    assert known.history.keys() - hidden.history.keys() == {"accuracy", "true_kept"}
    np.testing.assert_array_equal(known.history["loss"], hidden.history["loss"])


@every_method
def test_problems_handed_to_methods_and_cleaners_hold_no_true_labels(name):
    class Spy(Cleaner):
        def setup(self, problem):
            assert problem.y is None
            return problem

    method = short(name)
    setup = type(method).setup

    class SpyMethod(type(method)):
        def setup(self, problem, build_net):
            assert problem.y is None
            setup(self, problem, build_net)

    spy = SpyMethod(**{field.name: getattr(method, field.name) for field in dataclasses.fields(method)})
    recipe = dataclasses.replace(RECIPE, epochs=1)
    model = fit(ragged_problem(), spy, Spy(), recipe, net=net_for(name), device="cpu", progress=False)
    assert "accuracy" in model.history


@every_method
def test_a_step_returns_one_loss_per_run_and_asks_for_candidates_once(name):
    training = training_of(name, None)
    asked = []
    original = training.batch.candidates
    training.batch.candidates = lambda p, within=None: asked.append(p) or original(p, within)
    count = 0
    for phase, moment in epochs(training):
        if moment == "begun":
            training.batch.load()
            with torch.no_grad():
                assert training.method.step(training.batch, phase).shape == (2,)
                training.method.after_step(training.batch, phase)
            count += 1
        elif moment == "stepped":
            count += training.steps
            assert len(asked) == count
            p = asked[-1]
            assert p.shape == training.batch.S.shape
            assert not p.requires_grad
            torch.testing.assert_close(p.sum(-1), torch.ones(p.shape[:-1]))


def test_random_control_does_not_touch_the_cleaner_it_imitates():
    like = Conformal(warmup=1)
    before = contents(like)
    fit_short("proden", Random(like))
    assert contents(like) == before
