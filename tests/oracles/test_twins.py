"""Every method, with and without conformal cleaning, equals its slow literal twin in float64."""

from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from candidly.cleaning import Cleaner, Conformal
from candidly.engine.fitting import fit
from candidly.engine.model import Model
from candidly.engine.nets import mlp as nets
from candidly.engine.problem import Problem
from candidly.engine.training import Training
from candidly.methods import METHODS
from tests.oracles.balanced import Balanced
from tests.oracles.cases import BATCH, FEATURES, make_method, make_problem, make_recipe
from tests.oracles.conformal_cleaner import Algorithm1, Published, Revocable
from tests.oracles.crosel import Crosel
from tests.oracles.labels import argmax
from tests.oracles.pico import Pico
from tests.oracles.pop import Pop
from tests.oracles.runs import Run, Set, networks
from tests.oracles.twin import NoCleaning, Twin
from tests.oracles.twins import TWINS
from tests.oracles.valen import Valen

RUN = 1  # of two stacked runs, the one whose last batch wraps round
PHASES = {
    "cavl": {"uniform", "main"},
    "pop": {"before the purge", "purged"},
    "valen": {"warm-up", "main"},
    "crosel": {"warm-up", "nothing selected", "selected"},
    "pico": {"first", "main"},
}
CLEANERS: dict[str, tuple[Conformal, Callable[[], NoCleaning]]] = {
    "default": (Conformal(warmup=1), lambda: Revocable(1)),
    "published": (replace(Conformal.published(), warmup=1), lambda: Published(1)),
    "no correction": (replace(Conformal.published(correction=False), warmup=1), lambda: Published(1, False)),
    "algorithm 1": (replace(Conformal.algorithm1(), warmup=1), lambda: Algorithm1(1)),
}


@pytest.fixture
def _narrow_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the suite fast: cleaners do not see how wide a layer is. The methods alone are tested at full width."""
    monkeypatch.setattr(nets, "HIDDEN", 48)


def train_both(
    name: str, problem: Problem, cleaner: Cleaner | None = None, cleaning: NoCleaning | None = None, **settings: object
) -> tuple[Model, Twin]:
    """Train the library's runs, and one run's twin from the same initial weights."""
    method, recipe = replace(make_method(name), **settings), make_recipe(name)
    start = Training(problem, method, cleaner or Cleaner(), recipe, "mlp")
    initial = networks(start.method, RUN)
    run = Run.of(problem, RUN, recipe.epochs, BATCH)
    twin = TWINS[name](run, initial, cleaning or NoCleaning(), asdict(method))
    twin.train()
    return fit(problem, method, cleaner, recipe, device="cpu", progress=False), twin


def assert_equal(model: Model, twin: Twin, problem: Problem) -> None:
    """Compare networks, predictions, losses, kept sets and the cleaner's levels to 1e-8."""
    for key, net in networks(model.method, RUN).items():
        expected = floats(twin.nets[key])
        for part, value in floats(net).items():
            assert distance(value, expected[part]) < 1e-8, (key, part)
    everything = list(range(len(problem.X)))
    assert distance(model.predict(problem.X)[RUN], twin.predict(everything)) < 1e-8
    assert distance(model.history["loss"][:, RUN], twin.losses) < 1e-8
    assert sets(model.kept) == twin.kept
    if twin.cleaner.levels:
        levels = [max(level, 0.0) for level in twin.cleaner.levels]  # -1, keep everything, is recorded as 0
        assert distance(model.history["alpha"][:, RUN], levels) < 1e-8


def distance(a: object, b: object) -> float:
    return float(np.abs(np.asarray(a, dtype=float) - np.asarray(b, dtype=float)).max())


def floats(net: nn.Module) -> dict[str, Tensor]:
    return {key: value for key, value in net.state_dict().items() if value.is_floating_point()}


def sets(S: Tensor) -> list[Set]:
    return [frozenset(j for j, inside in enumerate(row) if inside) for row in S[RUN].tolist()]


def assert_state_equal(name: str, model: Model, twin: Twin) -> None:
    """Compare whatever the method remembers of each row."""
    method = model.method
    for weights in {"proden": "q", "rc": "q", "cavl": "q", "pop": "q", "valen": "od", "pico": "q"}.get(name, ""):
        assert distance(getattr(method, weights)[RUN], getattr(twin, weights)) < 1e-8, weights
    if isinstance(twin, Balanced):
        assert distance(method.adjustment[RUN, 0], twin.adjustment) < 1e-8
        assert distance(method.q[RUN, twin.run.rows], [twin.q[i] for i in twin.run.rows]) < 1e-8
    if isinstance(twin, Pop):
        assert sets(method.support) == twin.support
        assert method.level[RUN].item() == twin.theta
    if isinstance(twin, Valen):
        graph = method.graph[RUN].tolist()
        assert {i: set(graph[i]) for i in twin.run.rows} == twin.neighbours
    if isinstance(twin, Pico):
        assert distance(method.prototypes[RUN], torch.stack(twin.prototypes)) < 1e-8
        first = int(method.cursor) % twin.settings["queue"]  # the oldest
        assert distance(method.queued[RUN].roll(-first, 0), torch.stack([key for key, _ in twin.queued])) < 1e-8
        assert method.labels[RUN].roll(-first).tolist() == [label for _, label in twin.queued]
    if isinstance(twin, Crosel):
        for index, net in enumerate(("first", "second")):
            banks, chosen = list(twin.banks[net]), twin.selected[net]
            assert distance(method.stored[RUN, :, index].exp(), banks[-1]) < 1e-8
            for age, bank in enumerate(banks):
                assert method.labels[RUN, :, index, age].tolist() == [argmax(p) for p in bank]
                assert distance(method.maxima[RUN, :, index, age], [max(p) for p in bank]) < 1e-8
            assert method.count[RUN, 1 - index] == len(chosen)  # which the other network trains on
            assert method.pool[RUN, : len(chosen), 1 - index].tolist() == chosen


def assert_every_phase(name: str, model: Model, twin: Twin, cleaned: bool) -> None:
    """Each phase had at least 20 steps, and what was to happen did."""
    cleaning = {"not cleaning", "cleaning"} if cleaned else {"not cleaning"}
    assert set(twin.taken) == PHASES.get(name, {"main"}) | cleaning
    assert min(twin.taken.values()) >= 20, twin.taken
    assert sum(twin.taken[phase] for phase in cleaning) == twin.run.epochs * twin.run.steps
    if cleaned:
        assert (model.history["share_changed"][1:].max(0) > 0).all()
        assert any(kept < S for kept, S in zip(twin.kept, twin.run.S, strict=True))
    if isinstance(twin, Pop):
        assert twin.removed[0] == 0  # θ has grown
        assert twin.removed[1] > 0  # the purge
    if isinstance(twin, Valen):
        assert len(twin.neighbours) == len(twin.run.rows)
    if isinstance(twin, Crosel):
        assert (model.method.count > 0).all()


@pytest.mark.parametrize("name", METHODS)
def test_method_equals_its_twin(name: str) -> None:
    problem = make_problem((0, 1))
    model, twin = train_both(name, problem)
    assert_every_phase(name, model, twin, cleaned=False)
    assert_equal(model, twin, problem)
    assert_state_equal(name, model, twin)


def test_crosel_with_a_swept_bank_equals_its_twin() -> None:
    problem = make_problem((0, 1))
    model, twin = train_both("crosel", problem, bank="sweep")
    assert_every_phase("crosel", model, twin, cleaned=False)
    assert_equal(model, twin, problem)
    assert_state_equal("crosel", model, twin)


@pytest.mark.usefixtures("_narrow_networks")
def test_pico_with_a_queue_smaller_than_a_minibatch_equals_its_twin() -> None:
    problem = make_problem((0, 1))
    model, twin = train_both("pico", problem, queue=BATCH - 3)
    assert_equal(model, twin, problem)
    assert_state_equal("pico", model, twin)


@pytest.mark.usefixtures("_narrow_networks")
@pytest.mark.parametrize("name", METHODS)
def test_method_with_published_cleaning_equals_its_twin(name: str) -> None:
    problem = make_problem((0, 1))
    cleaner, cleaning = CLEANERS["published"]
    model, twin = train_both(name, problem, cleaner, cleaning())
    assert_every_phase(name, model, twin, cleaned=True)
    assert_equal(model, twin, problem)
    assert_state_equal(name, model, twin)


@pytest.mark.usefixtures("_narrow_networks")
@pytest.mark.parametrize("rule", ["default", "no correction", "algorithm 1"])
@pytest.mark.parametrize("name", ["proden", "cc"])
def test_cleaner_equals_its_twin(name: str, rule: str) -> None:
    problem = make_problem((0, 1), n=272 if rule == "algorithm 1" else 172)  # it holds 100 rows out
    cleaner, cleaning = CLEANERS[rule]
    model, twin = train_both(name, problem, cleaner, cleaning())
    assert_every_phase(name, model, twin, cleaned=True)
    assert_equal(model, twin, problem)
    assert_state_equal(name, model, twin)


@pytest.mark.usefixtures("_narrow_networks")
def test_single_candidates_calibrate_where_there_are_enough() -> None:
    problem = make_problem((0, 1), wrong=0.1)
    cleaner, cleaning = CLEANERS["published"]
    model, twin = train_both("proden", problem, cleaner, cleaning())
    assert all(len(twin.run.S[i]) == 1 for i in twin.cleaner.calibration)
    assert_every_phase("proden", model, twin, cleaned=True)
    assert_equal(model, twin, problem)


@pytest.mark.parametrize("wrong", [0.4, 0.95])
@pytest.mark.parametrize("rule", CLEANERS)
def test_split_of_a_large_problem_equals_its_twin(rule: str, wrong: float) -> None:
    problem = make_problem((0, 1), n=2100, wrong=wrong, num_classes=2)  # published: more than 1000 rows per class
    run = Run.of(problem, RUN, epochs=1, batch_size=BATCH)
    cleaner, cleaning = replace(CLEANERS[rule][0]), CLEANERS[rule][1]()
    training = cleaning.setup(run)
    assert cleaner.setup(problem).rows[RUN].tolist() == training
    assert cleaner.rows[RUN][cleaner.valid[RUN]].tolist() == cleaning.calibration
    assert (len(training) < len(run.rows)) == (rule != "default")


def test_networks_start_as_the_papers_say() -> None:
    start = {}
    for name in ("valen", "crosel"):
        training = Training(make_problem((0, 1)), make_method(name), Cleaner(), make_recipe(name), "mlp")
        start |= {key: floats(net) for key, net in networks(training.method, RUN).items()}
    assert all(torch.equal(value, start["net"][part]) for part, value in start["encoder"].items())
    for part in ("0.bias", "2.bias"):
        assert distance(start["decoder"][part], torch.full((FEATURES,), 0.01)) < 1e-8
    for part in ("0.weight", "9.weight"):
        assert not torch.isclose(start["first"][part], start["second"][part]).all()
