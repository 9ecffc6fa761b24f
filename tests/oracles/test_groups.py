"""Runs trained in groups equal fits of those groups to the bit, and one stack of all runs to 1e-8 in float64."""

import gc
import threading
import weakref
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from candidly import PartialLabelClassifier
from candidly.checks import machine
from candidly.checks.machine import Shortage, in_bytes
from candidly.cleaning import Cleaner, Clsp, Conformal
from candidly.engine import fitting, footprint, groups, memory
from candidly.engine import training as engine
from candidly.engine.fitting import fit
from candidly.engine.model import Model
from candidly.engine.nets import mlp as nets
from candidly.engine.nets import resnet
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.engine.training import Training
from candidly.methods import METHODS, Proden
from tests.oracles.cases import make_method, make_problem, make_recipe

CLEANERS: dict[str, Cleaner | None] = {
    "none": None,
    "conformal": Conformal(warmup=1),
    "holdout": Conformal(rule="permanent", warmup=1, calibration="holdout", stop=1.0),
}
RECIPE = Recipe(epochs=4, batch_size=8)
MANY = 2**30  # runs that certainly do not fit, so that two of them are measured


@pytest.fixture(autouse=True)
def _narrow_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nets, "HIDDEN", 24)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Train in a number of groups."""
    return lambda number: monkeypatch.setattr(fitting, "count_groups", lambda *_, **__: number)


def train(problem: Problem, method: Any = None, cleaner: Cleaner | None = None, **keywords: Any) -> Model:
    settings: dict[str, Any] = {"recipe": RECIPE, "device": "cpu", "progress": False}
    return fit(problem, method or Proden(), cleaner, **settings | keywords)


def assert_same(joined: Model, parts: list[Model]) -> None:
    """A joined model has the bits of its groups' models."""
    X = make_problem((0,)).X
    assert joined.runs == sum(part.runs for part in parts)
    assert torch.equal(joined.predict(X), torch.cat([part.predict(X) for part in parts]))
    assert torch.equal(joined.kept, torch.cat([part.kept for part in parts]))
    assert joined.problem.seeds == tuple(seed for part in parts for seed in part.problem.seeds)
    for name, values in joined.history.items():
        start = 0
        for part in parts:
            expected = part.history[name]
            own = values[:, start : start + part.runs]
            assert np.array_equal(own[: len(expected)], expected, equal_nan=True), name
            assert np.isnan(own[len(expected) :]).all()
            start += part.runs


def assert_close(joined: Model, stack: Model) -> None:
    X = make_problem((0,)).X
    torch.testing.assert_close(joined.predict(X), stack.predict(X), rtol=0, atol=1e-8)
    assert torch.equal(joined.kept, stack.kept)
    assert joined.history.keys() == stack.history.keys()
    for name, values in stack.history.items():
        np.testing.assert_allclose(joined.history[name], values, rtol=0, atol=1e-8, err_msg=name)
    for key, net in stack.method.networks().items():
        own = joined.method.networks()[key].state_dict()
        assert own.keys() == net.state_dict().keys()
        for part, value in net.state_dict().items():
            torch.testing.assert_close(own[part], value, rtol=0, atol=1e-8)


@pytest.mark.parametrize("cleaner", CLEANERS.values(), ids=CLEANERS.keys())
@pytest.mark.parametrize("name", METHODS)
def test_groups_equal_their_fits_and_one_stack(name: str, cleaner: Cleaner | None, cut: Any) -> None:
    problem, recipe = make_problem((0, 1, 2)), make_recipe(name, epochs=2)
    cut(1)
    stack = train(problem, make_method(name), cleaner, recipe=recipe)
    parts = [train(problem.take_runs(runs), make_method(name), cleaner, recipe=recipe) for runs in groups.split(3, 2)]
    cut(2)
    joined = train(problem, make_method(name), cleaner, recipe=recipe)
    assert_same(joined, parts)
    assert_close(joined, stack)
    rows = (problem.runs, len(problem.X))
    assert not any(tuple(value.shape[:2]) == rows for value in joined.method.state().values())  # no per-row state


@dataclass
class Heavy(Proden):
    """Takes 32 MiB for every run, and touches none of it."""

    def setup(self, problem: Problem, build_net: Any) -> None:
        super().setup(problem, build_net)
        self.ballast = problem.new_zeros(problem.runs, len(problem.X), 2**22 // len(problem.X))


def test_four_times_the_allowed_memory_takes_four_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_keep_freed_memory", lambda: None)
    problem = make_problem([0, 1, 2] * 2 + [0, 1])
    stack = train(problem, Heavy(), net="linear")
    parts = [train(problem.take_runs(runs), Heavy(), net="linear") for runs in groups.split(8, 4)]
    build = lambda runs: Training(problem.take_runs(runs), Heavy(), Cleaner(), RECIPE, "linear")  # noqa: E731
    measured = footprint.measure(build, MANY, 2**40)
    assert measured is not None
    need = measured.of(8, 8)
    assert 8 * 2**25 <= need <= 8.1 * 2**25
    free = int(1.05 * need / 4 / footprint._MARGIN)
    monkeypatch.setattr(machine, "available_memory", lambda: free)
    text = f"8 runs need about {in_bytes(need)} of memory, more than 60% of the {in_bytes(free)} available on cpu: they"
    with pytest.warns(UserWarning, match=f"{text} are trained in 4 groups"):
        joined = train(problem, Heavy(), net="linear")
    assert_same(joined, parts)
    assert_close(joined, stack)


@pytest.mark.parametrize("cleaner", [None, Conformal(warmup=1, calibration="holdout"), Clsp()])
def test_all_groups_take_the_steps_of_the_longest_run(cleaner: Cleaner | None, cut: Any) -> None:
    random = np.random.default_rng(0)
    whole = make_problem((0, 1, 2))
    rows = [random.permutation(172)[:count] for count in (40, 90, 170)]
    problem = Problem.of(whole.X, whole.S, rows=rows, seeds=(0, 1, 2), standardise=True, dtype=torch.float64)
    cut(1)
    stack = train(problem, cleaner=cleaner)
    cut(3)
    assert_close(train(problem, cleaner=cleaner), stack)


def test_the_memory_of_a_group_is_freed_before_the_next(cut: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Any]] = []

    def setup(self: Proden, *arguments: Any) -> None:
        assert not any(one() is not None for one in alive)
        original(self, *arguments)
        alive.append(weakref.ref(self.q))

    original = Proden.setup
    monkeypatch.setattr(Proden, "setup", setup)
    cut(3)
    gc.disable()  # no reference cycle may keep it
    try:
        train(make_problem((0, 1, 2)), cleaner=CLEANERS["conformal"])
    finally:
        gc.enable()
    assert len(alive) == 3


def test_rows_on_the_device_count_once() -> None:
    """Where two runs may not fit, their bound does not count the rows twice."""
    problem = make_problem((0, 1, 2))

    def build(runs: range) -> Training:
        part = replace(problem.take_runs(runs), X=problem.X.clone())
        return Training(part, Proden(), Cleaner(), RECIPE, "linear")

    shared = problem.X.nbytes
    exact, bound = footprint.measure(build, MANY, 2**40), footprint.measure(build, 3, 0, shared)
    assert exact is not None
    assert bound is not None
    assert exact.of(2, 2) <= bound.of(2, 2) == 2 * exact.of(1, 1) - shared
    assert problem.take_runs(range(0)).nbytes == problem.X.nbytes + problem.S.nbytes


def test_sets_of_each_run_are_those_of_its_group(cut: Any) -> None:
    whole = make_problem((0, 1, 2))
    sets = torch.stack([whole.S, whole.S | (torch.arange(4) == 1), whole.S | (torch.arange(4) == 2)])
    problem = Problem.of(whole.X, sets, seeds=(0, 1, 2), y=whole.S.long().argmax(1), dtype=torch.float64)
    cut(1)
    stack = train(problem)
    cut(2)
    joined = train(problem)
    assert_close(joined, stack)
    assert joined.problem.S.shape == stack.problem.S.shape


class Image(nn.Module):
    """A custom network with batch normalisation, whose counter has no run axis."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.parametrize("net", [Image, "linear"])
@pytest.mark.parametrize("name", ["proden", "crosel"])
def test_a_joined_model_is_saved_and_loaded(name: str, net: Any, cut: Any, tmp_path: Any) -> None:
    problem = make_problem((0, 1, 2))
    cut(1)
    stack = train(problem, make_method(name), net=net)
    cut(2)
    joined = train(problem, make_method(name), net=net)
    assert_close(joined, stack)
    joined.save(tmp_path)
    again = Model.load(tmp_path, net=None if net == "linear" else net)
    assert torch.equal(again.predict(problem.X), joined.predict(problem.X))
    assert torch.equal(joined.without_rows().predict(problem.X), joined.predict(problem.X))
    assert torch.equal(again.kept, joined.kept)


def test_each_group_stops_by_its_own_covering_rate(cut: Any) -> None:
    problem = make_problem((0, 1, 2))
    held_out = [np.setdiff1d(np.arange(172), rows.numpy()) for rows in problem.rows]
    settings: dict[str, Any] = {"recipe": Recipe(epochs=12, batch_size=8), "patience": 2}
    cut(1)
    parts = [
        train(problem.take_runs(range(run, run + 1)), held_out=held_out[run : run + 1], **settings) for run in range(3)
    ]
    assert len({len(part.history["loss"]) for part in parts}) > 1
    cut(3)
    assert_same(train(problem, held_out=held_out, **settings), parts)


def test_the_message_says_how_groups_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem((0, 1, 2))
    held_out = [np.setdiff1d(np.arange(172), rows.numpy()) for rows in problem.rows]
    monkeypatch.setattr(machine, "available_memory", lambda: 50 * 2**20)
    with pytest.warns(UserWarning, match="in 3 groups, one after the other, and each group stops early by its own"):
        train(problem, held_out=held_out, patience=2)


def interrupt_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> threading.Event:
    """Return an event that is set after a number of steps, of all groups together."""
    stop, taken, advance = threading.Event(), [], Training.advance

    def count(self: Training, capture: bool) -> None:
        advance(self, capture)
        taken.append(1)
        if len(taken) == steps:
            stop.set()

    monkeypatch.setattr(Training, "advance", count)
    return stop


@pytest.mark.parametrize("steps", [5, 84, 84 + 21, 84 + 30])  # of 84 in a group, 21 in an epoch
def test_an_interrupted_group_is_continued_to_the_bit(
    steps: int, cut: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    problem, cleaner = make_problem((0, 1, 2)), CLEANERS["holdout"]
    keywords: dict[str, Any] = {
        "cleaner": cleaner,
        "held_out": [np.setdiff1d(np.arange(172), rows.numpy()) for rows in problem.rows],
        "recipe": Recipe(epochs=4, batch_size=4),
    }
    cut(2)
    whole = train(problem, **keywords)
    with monkeypatch.context() as patch:
        stop = interrupt_after(patch, steps)
        with pytest.raises(KeyboardInterrupt):
            train(problem, checkpoint=tmp_path, stop=stop, **keywords)
    second = tmp_path / "group-2-of-2"
    assert (tmp_path / "group-1-of-2" / "state.json").exists()
    assert (second / "state.json").exists() == (steps > 84)
    monkeypatch.setattr(fitting, "count_groups", lambda *_, **__: pytest.fail("the groups are known"))
    assert_same(train(problem, checkpoint=tmp_path, **keywords), [whole])
    assert_same(train(problem, checkpoint=tmp_path, **keywords), [whole])  # all groups are finished
    other = replace(problem, seeds=(0, 1, 3))
    with pytest.raises(ValueError, match=r"group-1-of-2 cannot be continued: .*different: problem"):
        train(other, checkpoint=tmp_path, **keywords)
    with pytest.raises(ValueError, match="checkpoint of 2 groups of runs, but there are 1 runs; choose another folder"):
        train(problem.take_runs(range(1)), checkpoint=tmp_path)


@pytest.mark.parametrize("cleaner", CLEANERS.values(), ids=CLEANERS.keys())
@pytest.mark.parametrize("device", ["cpu,cpu", ["cpu", torch.device("cpu")]])
def test_devices_train_groups_at_the_same_time(device: Any, cleaner: Cleaner | None) -> None:
    problem = make_problem((0, 1, 2))
    parts = [train(problem.take_runs(runs), cleaner=cleaner) for runs in groups.split(3, 2)]
    assert_same(train(problem, cleaner=cleaner, device=device), parts)


def test_more_devices_than_runs_and_more_groups_than_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem((0, 1, 2))
    alone = [train(problem.take_runs(range(run, run + 1))) for run in range(3)]
    assert_same(train(problem, device=",".join(["cpu"] * 5)), alone)
    monkeypatch.setattr(footprint, "_PER_RUN", 2**40)  # so that memory is measured
    monkeypatch.setattr(machine, "available_memory", lambda: 2**20)
    with pytest.warns(UserWarning, match="2 runs need about .* they are trained in 2 groups"):
        assert_same(train(problem, device="cpu,cpu"), alone)


def test_an_interrupt_reaches_all_devices_and_each_continues(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    problem = make_problem((0, 1, 2))
    whole = train(problem, device="cpu,cpu")
    with monkeypatch.context() as patch:
        stop = interrupt_after(patch, 9)
        with pytest.raises(KeyboardInterrupt):
            train(problem, checkpoint=tmp_path, stop=stop, device="cpu,cpu")
    assert len(list(tmp_path.glob("group-*-of-2/state.json"))) == 2
    assert_same(train(problem, checkpoint=tmp_path), [whole])  # in the same groups, on one device


def test_an_error_on_one_device_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Training.advance

    def fail(self: Training, capture: bool) -> None:
        if self.first:
            raise ZeroDivisionError("in the second group")
        advance(self, capture)

    monkeypatch.setattr(Training, "advance", fail)
    with pytest.raises(ZeroDivisionError, match="in the second group"):
        train(make_problem((0, 1)), device="cpu,cpu", recipe=Recipe(epochs=2000, batch_size=8))


@pytest.mark.parametrize(
    ("device", "message"),
    [([], "empty list"), ("auto,cpu", "instead of 'auto'"), ("cpu,", "device is ''"), (7, "device is 7")],
)
def test_devices_that_cannot_be_used(device: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(make_problem((0, 1)), device=device)


def test_the_classifier_trains_on_several_devices(tmp_path: Any) -> None:
    problem = make_problem((0,))
    settings: dict[str, Any] = {"folds": 3, "random_state": 0, "max_epochs": 3, "method": "proden"}
    X, S = problem.X.numpy(), problem.S.numpy()
    both = PartialLabelClassifier(**settings, device="cpu,cpu").fit(X, S)
    np.testing.assert_allclose(
        both.predict_proba(X), PartialLabelClassifier(**settings, device="cpu").fit(X, S).predict_proba(X), atol=1e-3
    )
    both.save(tmp_path)
    assert np.array_equal(PartialLabelClassifier.load(tmp_path).predict_proba(X), both.predict_proba(X))


def test_a_stack_is_continued_as_one(cut: Any, tmp_path: Any) -> None:
    cut(1)
    whole = train(make_problem((0, 1, 2)), checkpoint=tmp_path)
    cut(3)
    assert_same(train(make_problem((0, 1, 2)), checkpoint=tmp_path), [whole])


def test_one_bar_shows_all_groups(cut: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cut(2)
    train(make_problem((0, 1, 2)), progress=True)
    shown = capsys.readouterr().err
    assert "group 2 of 2, epoch 4 of 4" in shown
    assert "168/168" in shown  # 2 groups of 4 epochs of 21 steps
    assert "84/84" not in shown


def test_the_classifier_trains_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "_PER_RUN", 2**40)  # so that memory is measured
    problem = make_problem((0,))
    settings: dict[str, Any] = {"folds": 3, "random_state": 0, "device": "cpu", "max_epochs": 3, "method": "proden"}
    X, S = problem.X.numpy(), problem.S.numpy()
    stack = PartialLabelClassifier(**settings).fit(X, S)
    monkeypatch.setattr(machine, "available_memory", lambda: 10 * 2**20)
    with pytest.warns(UserWarning, match=r"3 runs need about .* MiB of memory, .* in \d groups, one after the other"):
        grouped = PartialLabelClassifier(**settings).fit(X, S)
    np.testing.assert_allclose(grouped.predict_proba(X), stack.predict_proba(X), atol=1e-3)
    np.testing.assert_allclose(grouped.history_["loss"], stack.history_["loss"], atol=1e-3)


def test_runs_that_do_not_fit_alone_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem((0, 1, 2))
    monkeypatch.setattr(memory, "_SMALL", 0)
    monkeypatch.setattr(machine, "available_memory", lambda: 30_000)
    with pytest.raises(Shortage, match=r"for a network with \d+ weights, .*; use a smaller network, or fewer features"):
        train(problem)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("cleaner", CLEANERS.values(), ids=CLEANERS.keys())
def test_the_footprint_of_many_runs_follows_from_that_of_two(name: str, cleaner: Cleaner | None) -> None:
    problem = make_problem([0] * 8, n=600)

    def build(runs: range) -> Training:
        part = problem.take_runs(runs)
        return Training(part, make_method(name), cleaner or Cleaner(), make_recipe(name), "mlp")

    found = footprint.measure(build, MANY, 2**40)
    assert found is not None
    whole, result = footprint._peaks(build, range(8), saves=False)
    assert found.of(8, 8) == pytest.approx(max(whole), rel=0.02)
    assert found.result == result
    state = sum(value.nbytes for value in build(range(8)).tensors().values())
    assert found.of(8, 8) > state


def count(free: int, monkeypatch: pytest.MonkeyPatch, problem: Problem, build: Any) -> int:
    monkeypatch.setattr(footprint, "free_memory", lambda place: free)
    settings = {"most": None, "saves": False, "stops": False}
    return footprint.count_groups(problem, torch.device("cpu"), build, **settings)


def make_images(seeds: range) -> Problem:
    images = np.random.default_rng(0).integers(256, size=(8, 3, 32, 32), dtype=np.uint8)
    return Problem.of(images, np.eye(2, dtype=bool)[[0, 1] * 4], seeds=seeds, scale=1 / 255)


@pytest.mark.parametrize(
    ("problem", "recipe", "net", "measured"),
    [
        (make_problem((0, 1)), RECIPE, "mlp", False),
        (make_problem((0, 1)), Recipe(), "linear", False),
        (make_problem((0, 1)), RECIPE, lambda: nn.Linear(5, 4), True),
        (make_problem([0, 1], n=2000), Recipe(batch_size=1000), "mlp", True),
        (make_images(range(2)), RECIPE, "resnet9", False),
        (make_images(range(2)), RECIPE, "mlp", True),
        (Problem.of(np.zeros((4, 3000)), np.eye(4, dtype=bool)), RECIPE, "mlp", True),
    ],
)
def test_what_has_to_be_measured(problem: Problem, recipe: Recipe, net: Any, measured: bool) -> None:
    assert (footprint.run_bound(problem, recipe, net) is None) == measured


@pytest.mark.parametrize("name", METHODS)
def test_a_run_of_a_perceptron_takes_less_than_its_bound(name: str) -> None:
    """With as many features and as large minibatches as it holds for, and the methods' own settings."""
    X = np.random.default_rng(0).normal(size=(600, footprint._FEATURES)).astype(np.float32)
    problem = Problem.of(X, np.eye(5, dtype=bool)[np.arange(600) % 5], seeds=[0])
    recipe = Recipe(epochs=2, batch_size=footprint._MINIBATCH)

    def build(runs: range) -> Training:
        return Training(problem.take_runs(runs), METHODS[name](), Cleaner(), recipe, "mlp")

    bound = footprint.run_bound(problem, recipe, "mlp")
    assert bound is not None
    assert max(footprint._peaks(build, range(1), saves=False)[0]) < bound


@pytest.mark.parametrize("name", METHODS)
def test_a_run_of_resnet9_takes_less_than_its_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sizes of minibatches tell the memory of activations, which grows with them, from that of the weights."""
    monkeypatch.setattr(resnet, "_WIDEST", 8)  # which hardly changes the activations, and leaves few weights
    problem = make_images(range(1))
    found = []
    for size in (2, 8):
        recipe = Recipe(epochs=2, batch_size=size)

        def build(runs: range, recipe: Recipe = recipe) -> Training:
            return Training(problem.take_runs(runs), make_method(name), Cleaner(), recipe, "resnet9")

        bound = footprint.run_bound(problem, recipe, "resnet9")
        assert bound is not None
        found.append((max(footprint._peaks(build, range(1), saves=False)[0]), bound))
    (small, small_bound), (large, large_bound) = found
    assert large < large_bound
    assert large - small < large_bound - small_bound


def test_large_runs_are_always_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that take some GiB each are split; if twice the memory of one is enough for two, two are not measured."""
    measured: list[range] = []

    def peaks(build: Any, runs: range, saves: bool) -> Any:
        measured.append(runs)
        return (2**30, 6 * 2**30 * len(runs)), 2**25

    monkeypatch.setattr(footprint, "_peaks", peaks)
    problem = make_images(range(5))
    with pytest.warns(UserWarning, match="5 runs need about 30.* GiB of memory, .* they are trained in 5 groups"):
        assert count(12 * 2**30, monkeypatch, problem, None) == 5
    with pytest.warns(UserWarning, match="in 3 groups"):
        assert count(22 * 2**30, monkeypatch, problem, None) == 3
    assert measured == [range(1), range(1), range(2)]
    assert count(51 * 2**30, monkeypatch, problem, None) == 1
    assert measured[3:] == [range(1)]


def test_runs_of_resnet9_that_do_not_fit_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resnet, "_WIDEST", 8)
    problem = make_images(range(3))

    def build(runs: range) -> Training:
        return Training(problem.take_runs(runs), Proden(), Cleaner(), Recipe(epochs=1, batch_size=8), "resnet9")

    need = max(footprint._peaks(build, range(1), saves=False)[0])
    assert need > 8 * 3 * (64 + 128) * 32 * 32 * 4  # what the first two convolutions take for eight images
    with pytest.warns(UserWarning, match="3 runs need about .* they are trained in 3 groups"):
        assert count(int(1.5 * need / footprint._MARGIN), monkeypatch, problem, build) == 3
    assert count(int(3.1 * need / footprint._MARGIN), monkeypatch, problem, build) == 1


def test_only_what_is_alive_counts() -> None:
    before = torch.zeros(1000)
    with footprint._Live() as live:
        first = torch.ones(1000)
        first += before.view(10, 100).flatten()
        other = first[:10]
        assert live.now == 4000
        del first
        assert live.now == 4000  # a part of it is in use
        del other
        assert live.now == 0
        assert live.restart() == 4000
        assert live.restart() == 0


@dataclass
class Broken(Proden):
    def step(self, batch: Any, phase: Any) -> Any:
        raise ValueError("the step is broken")


def test_errors_are_those_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem((0, 1, 2))
    monkeypatch.setattr(machine, "available_memory", lambda: 2**20)
    with pytest.raises(ValueError, match="the step is broken"):
        train(problem, Broken())


def test_unknown_memory_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: None)
    monkeypatch.setattr(footprint, "measure", lambda *_: pytest.fail("nothing to compare with"))
    assert train(make_problem((0, 1))).runs == 2


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["proden", "crosel"])
def test_groups_on_cuda(name: str, cut: Any) -> None:
    problem = make_problem((0, 1, 2))
    settings: dict[str, Any] = {"device": "cuda", "cleaner": CLEANERS["conformal"]}
    cut(1)
    stack = train(problem, make_method(name), **settings)
    parts = [train(problem.take_runs(runs), make_method(name), **settings) for runs in groups.split(3, 2)]
    cut(2)
    joined = train(problem, make_method(name), **settings)
    assert joined.device.type == "cuda"
    assert_same(joined, parts)
    assert_close(joined, stack)


@pytest.mark.gpu
def test_groups_fit_on_cuda_when_the_stack_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem([0, 1, 2] * 2 + [0, 1])
    free = int(4 * 2**25 / footprint._MARGIN)
    monkeypatch.setattr(footprint, "free_memory", lambda _: free)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with pytest.warns(UserWarning, match=r"available on cuda:0: they are trained in [34] groups"):
        train(problem, Heavy(), net="linear", device="cuda")
    assert torch.cuda.max_memory_allocated() - before <= 4 * 2**25
