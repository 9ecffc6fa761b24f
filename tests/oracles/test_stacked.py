"""R stacked runs equal R separate ones in float64, whatever their rows, for every method and cleaner."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from candidly.cleaning import Cleaner, Clsp, Conformal
from candidly.engine.fitting import fit
from candidly.engine.model import Model
from candidly.engine.nets import mlp as nets
from candidly.methods import METHODS
from tests.oracles.cases import BATCH, make_method, make_problem, make_recipe

RUNS = (0, 1, 2)
CLEANERS: dict[str, Cleaner | None] = {
    "none": None,
    "published": replace(Conformal.published(), warmup=1),
    "default": Conformal(warmup=1),
    "clsp": Clsp(),
}


@pytest.fixture(autouse=True)
def _narrow_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the suite fast: how wide a layer is makes no difference to how runs are stacked."""
    monkeypatch.setattr(nets, "HIDDEN", 48)


def train(name: str, cleaner: Cleaner | None, runs: tuple[int, ...], standardise: bool = False) -> Model:
    problem = make_problem(runs, standardise=standardise)
    return fit(problem, make_method(name), cleaner, make_recipe(name, epochs=2), device="cpu", progress=False)


def assert_run_equal(stacked: Model, run: int, alone: Model) -> None:
    """Compare predictions, kept sets, history, networks and state of one run to 1e-8."""
    X = make_problem(RUNS).X
    torch.testing.assert_close(stacked.predict(X)[run], alone.predict(X)[0], rtol=0, atol=1e-8)
    assert torch.equal(stacked.kept[run], alone.kept[0])
    assert stacked.history.keys() == alone.history.keys()
    for key, values in stacked.history.items():
        np.testing.assert_allclose(values[:, run], alone.history[key][:, 0], rtol=0, atol=1e-8, err_msg=key)
    for key, net in stacked.method.networks().items():
        other = alone.method.networks()[key].state_dict()
        for part, value in net.state_dict().items():
            own = value.unflatten(0, (len(RUNS), -1))[run]  # CroSel has two networks for each run
            torch.testing.assert_close(own, other[part], rtol=0, atol=1e-8)
    for key, value in stacked.method.state().items():
        if value.shape[0] == len(RUNS):
            torch.testing.assert_close(value[run], alone.method.state()[key][0], rtol=0, atol=1e-8)


def assert_every_phase(name: str, cleaner: Cleaner | None, model: Model) -> None:
    """A phase is an epoch or longer, and an epoch has at least 20 steps; what was to happen did in every run."""
    problem, method, epochs = make_problem(RUNS), model.method, len(model.history["loss"])
    steps = {-(-len(rows) // BATCH) for rows in problem.rows}
    assert len({len(rows) for rows in problem.rows}) == len(RUNS)
    assert steps == {21}
    assert epochs == make_recipe(name, epochs=2).epochs
    members = problem.training_mask
    if cleaner is not None:
        assert (model.history["share_changed"][1:].max(0) > 0).all()
    if name == "pop":
        purged = problem.sets & ~method.support
        assert method.start <= (epochs - 2) - (epochs - 2) % method.every  # 20 steps after the purge
        assert purged.any(-1).any(-1).all()
    if name == "valen":
        assert epochs > method.warmup
        assert (method.graph[members] >= 0).all()
    if name == "crosel":
        assert epochs > max(method.warmup, 3)  # the banks were full before the last epoch
        assert (method.count > 0).all()


@pytest.mark.parametrize("cleaner", CLEANERS.values(), ids=CLEANERS.keys())
@pytest.mark.parametrize("name", METHODS)
def test_stacked_runs_equal_separate_ones(name: str, cleaner: Cleaner | None) -> None:
    stacked = train(name, cleaner, RUNS)
    assert_every_phase(name, cleaner, stacked)
    for run in RUNS:
        assert_run_equal(stacked, run, train(name, cleaner, (run,)))


def test_standardised_runs_equal_separate_ones() -> None:
    stacked = train("proden", CLEANERS["published"], RUNS, standardise=True)
    assert len(set(stacked.problem.shift[:, 0, 0].tolist())) == len(RUNS)  # each run has its own scaling
    for run in RUNS:
        assert_run_equal(stacked, run, train("proden", CLEANERS["published"], (run,), standardise=True))
