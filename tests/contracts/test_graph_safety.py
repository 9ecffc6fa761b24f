"""A step can be captured once and replayed: checked without a GPU.

A captured graph replays kernels on fixed addresses. So state stays where it is, nothing a step reads from Python may
change, and no step may wait for a value or have shapes that depend on values.
"""

import copy

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from candidly.cleaning import Cleaner
from candidly.engine import training as engine
from candidly.engine.optim import Adam
from candidly.methods import METHODS
from tests.contracts.cases import (
    MORE_CLEANERS,
    RECIPE,
    epochs,
    image_problem,
    phases,
    ragged_problem,
    train,
    training_of,
)

every_method = pytest.mark.parametrize("name", METHODS)
every_phase = pytest.mark.parametrize(("name", "phase"), [(name, phase) for name in METHODS for phase in phases(name)])
SEVERAL = ["none", "conformal", "published", "algorithm1", "random"]
cleaners = pytest.mark.parametrize("cleaner", SEVERAL)

READS_A_VALUE = {"_local_scalar_dense", "item", "is_nonzero", "equal", "allclose"}
SHAPE_FROM_VALUES = {
    *("nonzero", "argwhere", "masked_select", "bincount", "repeat_interleave"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"),
}
FROM_THE_HOST = {"lift", "lift_fresh"}  # torch.tensor(...): a copy from the host's memory
INDEXING = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
FORBIDDEN = READS_A_VALUE | SHAPE_FROM_VALUES | FROM_THE_HOST


@pytest.fixture(autouse=True)
def optimiser_of_cuda(monkeypatch):
    """On a CPU steps are never captured, so the engine takes another optimiser there."""
    monkeypatch.setattr(engine, "HostAdam", Adam)


class NotCapturable(Exception):
    pass


class Capturable(TorchDispatchMode):
    """Raises on operations that a CUDA graph cannot hold."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.calls += 1
        if name in FORBIDDEN:
            raise NotCapturable(name)
        if name in INDEXING and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
            raise NotCapturable(f"{name} with a boolean index")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.sum().item(),
        lambda x: float(x.max()),
        lambda x: bool((x > 0).any()),
        lambda x: 1 if x.sum() > 0 else 0,
        lambda x: torch.arange(int(x.max())),
        lambda x: x[x > 0],
        lambda x: x.clone().__setitem__(x > 0, 0.0),
        lambda x: x.clone().index_put_((x > 0,), torch.zeros(1)),
        lambda x: torch.where(x > 0),
        lambda x: x.nonzero(),
        lambda x: x.masked_select(x > 0),
        lambda x: x.unique(),
        lambda x: x.unique(dim=0),
        lambda x: x.unique_consecutive(),
        lambda x: x.repeat_interleave(x.long()),
        lambda x: torch.equal(x, x),
        lambda x: x + torch.tensor([1.0, 2.0, 3.0]),
    ],
)
def test_the_check_catches(operation):
    x = torch.tensor([1.0, 2.0, 3.0])
    operation(x)
    with pytest.raises(NotCapturable), Capturable():
        operation(x)


def test_the_check_lets_static_operations_pass():
    x = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    rows = torch.tensor([0, 2])
    with Capturable() as mode:
        y = torch.where(x > 1, x, 0.0).masked_fill(x > 2, 1.0)[:, rows].sort().values + x.index_select(1, rows)
        torch.autograd.grad(y.softmax(-1).square().sum(), x)
        torch.zeros(3).scatter_(0, rows, 1.0)[1:]
    assert mode.calls > 10


@every_method
@pytest.mark.parametrize(
    ("cleaner", "problem"),
    [*((cleaner, ragged_problem) for cleaner in SEVERAL), ("conformal", image_problem)],
    ids=[*SEVERAL, "conformal-images"],
)
def test_steps_can_be_captured(name, cleaner, problem):
    training = training_of(name, MORE_CLEANERS[cleaner], problem())
    seen = set()
    while training.epoch < RECIPE.epochs:
        phase = training.method.phase(training.epoch)
        training.begin_epoch()
        while training.done < training.steps:
            with Capturable() as mode:
                training.advance(capture=False)
            assert mode.calls > 10
        training.end_epoch()
        seen.add(phase)
    assert seen == phases(name).keys()


def parts_of(part):
    """Return the objects whose attributes a step may read: a method or a cleaner, and the cleaners within."""
    return [part] + [inner for value in vars(part).values() if isinstance(value, Cleaner) for inner in parts_of(value)]


class Snapshot:
    """What must not change in an object after its setup."""

    def __init__(self, part):
        self.part, self.attributes = part, dict(vars(part))
        kinds = (int, float, bool, complex, str, tuple, list, dict, set)
        self.values = {key: copy.copy(value) for key, value in vars(part).items() if isinstance(value, kinds)}

    def changes(self):
        now = vars(self.part)
        changed = self.attributes.keys() ^ now.keys()
        changed |= {key for key in self.attributes.keys() & now.keys() if now[key] is not self.attributes[key]}
        return changed | {key for key, value in self.values.items() if self._differ(now.get(key), value)}

    def _differ(self, now, before):
        if isinstance(before, tuple | list):
            return not isinstance(now, tuple | list) or [id(item) for item in now] != [id(item) for item in before]
        return now != before


class Careless(Cleaner):
    def __init__(self):
        self.count, self.rate, self.flag, self.values, self.buffer = 0, 0.5, False, [0], torch.zeros(2)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda c: setattr(c, "count", 1), {"count"}),
        (lambda c: setattr(c, "rate", 0.25), {"rate"}),
        (lambda c: setattr(c, "flag", True), {"flag"}),
        (lambda c: c.values.append(1), {"values"}),
        (lambda c: setattr(c, "new", None), {"new"}),
        (lambda c: delattr(c, "rate"), {"rate"}),
        (lambda c: setattr(c, "buffer", c.buffer + 1), {"buffer"}),
        (lambda c: c.buffer.add_(1), set()),
    ],
)
def test_the_snapshot_sees(change, found):
    part = Careless()
    snapshot = Snapshot(part)
    change(part)
    assert snapshot.changes() == found


@every_method
@cleaners
def test_attributes_stay_what_setup_made_them(name, cleaner):
    training = training_of(name, MORE_CLEANERS[cleaner])
    parts = [*parts_of(training.method), *parts_of(training.cleaner)]
    assert len(parts) == (3 if cleaner == "random" else 2)
    snapshots = [Snapshot(part) for part in parts]
    for phase, moment in epochs(training):
        for snapshot in snapshots:
            assert not snapshot.changes(), f"{type(snapshot.part).__name__} changed, {phase} {moment}"


def addresses(training):
    """Return where every tensor that a step reads or writes lies."""
    found = training.tensors() | {f"flat.{name}": one.flat for name, one in training.optimisers.items()}
    found |= {f"table.{name}": one.table for name, one in training.optimisers.items()}
    found |= {f"batch.{key}": training.batch.__dict__[key] for key in ("_order", "_noise", "_offset", "tick")}
    for part in [*parts_of(training.method), *parts_of(training.cleaner)]:
        found |= {f"{type(part).__name__}.{key}": value for key, value in vars(part).items() if torch.is_tensor(value)}
    return {key: (value.data_ptr(), value.shape, value.stride(), value.dtype) for key, value in found.items()}


@every_method
@cleaners
def test_state_stays_at_its_address(name, cleaner):
    training = training_of(name, MORE_CLEANERS[cleaner])
    before = addresses(training)
    held = {key: value.clone() for key, value in training.tensors().items()}
    for phase, moment in epochs(training):
        after = addresses(training)
        assert after.keys() == before.keys()
        moved = [key for key in before if after[key] != before[key]]
        assert not moved, f"{moved} moved, {phase} {moment}"
    changed = {key for key, value in training.tensors().items() if not torch.equal(value, held[key])}
    assert {"engine.clock", "engine.tick", "engine.loss"} <= changed  # it did train


@every_method
def test_parameters_are_views_of_their_optimisers_buffer(name):
    training = training_of(name, None)
    for key, optimiser in training.optimisers.items():
        start = optimiser.flat.data_ptr()
        end = start + optimiser.flat.numel() * optimiser.flat.element_size()
        parameters = [p for p in training.method.networks()[key].parameters() if p.requires_grad]
        assert sum(p.numel() for p in parameters) == optimiser.flat.numel()
        assert all(start <= p.data_ptr() < end for p in parameters)


def start_of(name, phase, cleaner="none"):
    """Return a training at the start of a phase's first epoch."""
    training = training_of(name, MORE_CLEANERS[cleaner])
    for _ in epochs(training, until=phases(name)[phase]):
        pass
    training.begin_epoch()
    return training


@every_phase
def test_exactly_the_declared_networks_receive_gradients(name, phase):
    training = start_of(name, phase)
    training.batch.load()
    for net in training.method.networks().values():
        net.zero_grad()
    training.method.step(training.batch, phase).sum().backward()
    declared = training.method.trains(phase)
    assert declared
    assert all(isinstance(net, nn.Module) for net in declared)
    for key, net in training.method.networks().items():
        trains = any(net is one for one in declared)
        for parameter in net.parameters():
            assert (parameter.grad is not None) == (trains and parameter.requires_grad), f"{key} in {phase}"
            assert parameter.grad is None or parameter.grad.isfinite().all()
        if trains:
            assert any((parameter.grad != 0).any() for parameter in net.parameters() if parameter.requires_grad)


@every_phase
def test_a_step_moves_exactly_the_declared_networks(name, phase):
    """Networks outside the phase's loss take no step and no decay."""
    training = start_of(name, phase)
    before = {key: optimiser.flat.clone() for key, optimiser in training.optimisers.items()}
    while training.done < training.steps:
        training.advance(capture=False)
    declared = training.method.trains(phase)
    networks = training.method.networks()
    for key, optimiser in training.optimisers.items():
        moved = not torch.equal(optimiser.flat, before[key])
        assert moved == any(networks[key] is one for one in declared), f"{key} in {phase}"


@every_method
def test_all_networks_change(name):
    training = training_of(name, None)
    networks = training.method.networks()
    trained = {id(net) for phase in phases(name) for net in training.method.trains(phase)}
    assert {key for key, net in networks.items() if id(net) in trained} == training.optimisers.keys()
    before = {key: [parameter.detach().clone() for parameter in net.parameters()] for key, net in networks.items()}
    train(training)
    for key, net in networks.items():
        assert not all(map(torch.equal, before[key], net.parameters())), key


@every_method
@pytest.mark.parametrize("cleaner", ["none", "conformal", "algorithm1"])
def test_all_state_has_the_run_axis_or_is_a_scalar(name, cleaner):
    """A leading axis of R, or of one for what all runs share."""
    training, runs = training_of(name, MORE_CLEANERS[cleaner]), ragged_problem().runs
    for state in (training.method.state(), training.cleaner.state()):
        assert all(len(value) in (runs, 1) for value in state.values())
