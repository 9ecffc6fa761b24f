"""Trainings that need more memory than there is are refused before they take it; those that fit are not."""

import pytest
import torch

from candidly import PartialLabelClassifier
from candidly.checks import machine
from candidly.checks.machine import Shortage
from candidly.engine import memory
from candidly.engine.fitting import fit
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.methods import METHODS, Proden

X = torch.rand(40, 6, generator=torch.Generator().manual_seed(0))
S = torch.eye(4, dtype=torch.bool).repeat(10, 1)


@pytest.fixture
def left(monkeypatch):
    """Pretend that this many bytes are available; no need is too small to look."""
    monkeypatch.setattr(memory, "_SMALL", 0)

    def set_available(number):
        monkeypatch.setattr(machine, "available_memory", lambda: number)

    return set_available


@pytest.mark.parametrize("epochs", [10**9, 10**12, 10**30])
@pytest.mark.parametrize("schedule", ["one-cycle", "constant"])
def test_endless_epochs_are_refused(epochs, schedule):
    recipe = Recipe(epochs=epochs * 100, batch_size=4, schedule=schedule)
    with pytest.raises(Shortage, match=r"are needed on cpu, .* for the learning rates of .*; use fewer epochs, or a"):
        fit(Problem.of(X, S), Proden(), None, recipe, device="cpu")


@pytest.mark.parametrize("settings", [{"members": 10**9}, {"members": 10**18}, {"max_epochs": 10**10}])
def test_the_classifier_refuses_what_does_not_fit(settings):
    with pytest.raises(Shortage, match=r"at least .* are needed on cpu.* are available; use fewer"):
        PartialLabelClassifier(folds=2, device="cpu", **settings).fit(X.numpy(), S.numpy())


def test_a_network_that_does_not_fit_alone_is_refused(left):
    left(20_000)  # enough for the candidates of all runs
    with pytest.raises(Shortage, match=r"for a network with \d+ weights, but .*; use a smaller network, or fewer feat"):
        fit(Problem.of(X, S, seeds=range(50)), Proden(), recipe=Recipe(epochs=1, batch_size=40), device="cpu")


def test_many_networks_are_refused(left):
    left(20_000)
    with pytest.raises(
        Shortage, match=r"for 50 networks with 28 weights each, but .*; use fewer members, folds, seeds"
    ):
        memory.require_networks(50, 28, 16, torch.device("cpu"))
    memory.require_networks(44, 28, 16, torch.device("cpu"))


def test_state_of_every_row_is_refused(left):
    problem = Problem.of(X, S, seeds=range(50))
    left(50 * 40 * 4 * 4 - 1)
    with pytest.raises(Shortage, match=r"for a tensor of shape \(50, 40, 4\), but .*; use fewer members"):
        _ = problem.initial_weights
    with pytest.raises(Shortage, match=r"for a tensor of shape \(50, 40, 4\)"):
        problem.new_zeros(50, 40, 4)
    left(50 * 40 * 4 * 4)
    assert problem.initial_weights.shape == problem.new_zeros((50, 40, 4)).shape


@pytest.mark.parametrize("method", METHODS)
def test_estimates_are_lower_bounds(left, method, monkeypatch):
    """A training that is given just what was estimated is not refused: nothing is counted twice."""
    asked = []
    monkeypatch.setattr(machine, "require", lambda needs, *_: asked.append(sum(need.size for need in needs.values())))
    left(None)
    model = fit(Problem.of(X, S, seeds=[0, 1]), METHODS[method](), None, Recipe(epochs=2, batch_size=8), device="cpu")
    weights = sum(p.numel() for net in model.method.networks().values() for p in net.parameters())
    state = sum(value.nbytes for value in model.method.state().values())
    assert 0 < max(asked) <= 4 * 4 * weights + state + 10_000


def test_unknown_memory_refuses_nothing(left):
    left(None)
    assert fit(Problem.of(X, S), Proden(), recipe=Recipe(epochs=1), device="cpu").predict(X).isfinite().all()
    assert memory.free_memory(torch.device("meta")) is None


@pytest.mark.gpu
def test_cuda_memory_is_known_and_its_shortage_recognised():
    place = torch.device("cuda", 0)
    free = memory.free_memory(place)
    assert 0 < free <= torch.cuda.mem_get_info(place)[1]
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(free + 2**40, dtype=torch.uint8, device=place)
    assert machine.fault(caught.value).startswith("not enough memory (CUDA out of memory.")
    with pytest.raises(Shortage, match=r"are needed on cuda:0 for a network with \d+ weights"):
        memory.require_networks(1, free, 16, place)
