"""What methods remember is bounded: CroSel's banks hold 3 epochs, and VALEN's graph is sparse."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from candidly.cleaning import Cleaner
from candidly.engine import training as engine
from candidly.engine.fitting import fit
from candidly.engine.nets import mlp as nets
from candidly.engine.nets import neighbours
from candidly.engine.recipe import Recipe
from candidly.engine.training import Training
from candidly.methods import Crosel, Valen
from tests.oracles.cases import BATCH, CLASSES, make_problem

N, RUNS = 300, 2


@pytest.fixture(autouse=True)
def _narrow_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make networks small against N × N."""
    monkeypatch.setattr(nets, "HIDDEN", 16)


class Largest(TorchDispatchMode):
    """Remembers how many elements the largest result of any operation had."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.elements = max(self.elements, leaf.numel())
        return result


def shapes(training: Training) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in training.tensors().items()}


def test_crosel_remembers_three_epochs_and_never_more() -> None:
    problem = make_problem((0, 1), n=N)
    training = Training(problem, Crosel(warmup=1), Cleaner(), Recipe(epochs=6, batch_size=50), "mlp")
    before = shapes(training)
    maxima = []
    for _ in range(6):
        training.begin_epoch()
        while training.done < training.steps:
            training.advance(capture=False)
        training.end_epoch()
        assert shapes(training) == before
        maxima.append(training.method.stored.amax(-1).exp())
    assert training.method.labels.shape == training.method.maxima.shape == (RUNS, N, 2, 3)
    assert training.method.stored.shape == (RUNS, N, 2, CLASSES)  # the last epoch's alone
    assert torch.equal(training.method.maxima, torch.stack(maxima[-3:], -1))


def test_valen_keeps_its_graph_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "_BLOCK_ENTRIES", 7 * N)  # so small that the search takes several blocks
    monkeypatch.setattr(engine, "_keep_freed_memory", lambda: None)  # a block that holds nothing
    problem = make_problem((0, 1), n=N)
    with Largest() as largest:
        model = fit(
            problem, Valen(warmup=1, k=3), None, Recipe(epochs=2, batch_size=BATCH), device="cpu", progress=False
        )
    assert model.method.graph.shape == (RUNS, N, 3)
    assert (model.method.graph[problem.training_mask] >= 0).all()
    for name, value in vars(model.method).items():
        assert not isinstance(value, Tensor) or value.numel() < N * N, name
    assert largest.elements < N * N
