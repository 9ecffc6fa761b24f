"""The optimisers against torch's, over whole schedules."""

import copy
import doctest
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from candidly import optim

D, C, B = 4, 3, 6


def small(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Linear(8, C)).double()


def minibatches(steps):
    data = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield torch.randn(B, D, generator=data, dtype=torch.float64), torch.randint(C, (B,), generator=data)


def step_ours(optimiser, net, x, y, clock):
    grads = torch.autograd.grad(F.cross_entropy(net(x), y), optimiser.parameters)
    with torch.no_grad():
        optimiser.update(grads, torch.tensor([clock]))


def equal(net, twin, tolerance=1e-10):
    pairs = zip(net.parameters(), twin.parameters(), strict=True)
    return all(torch.allclose(a, b, rtol=0, atol=tolerance) for a, b in pairs)


def one_cycle_twin(net, steps, max_lr, decay):
    adam = torch.optim.Adam(net.parameters(), lr=max_lr, weight_decay=decay)
    return adam, OneCycleLR(adam, max_lr=max_lr, total_steps=steps)


def advance(scheduler, t, steps):
    """OneCycleLR refuses to step beyond the last of its steps."""
    if t < steps - 1:
        scheduler.step()


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("active", ["always", "from the middle", "now and then"])
@pytest.mark.parametrize("steps", [4, 60])
def test_adam_equals_torch_over_the_whole_schedule(active, steps):
    """Learning rate and β1 cycle; in inactive steps there is no step, no decay and no count, but time goes on."""
    trains = {
        "always": [True] * steps,
        "from the middle": [t >= steps // 2 for t in range(steps)],
        "now and then": [t % 3 == 1 for t in range(steps)],
    }[active]
    net = small()
    twin = copy.deepcopy(net)
    rates, momenta = optim.schedule("one-cycle", steps, 0.01)
    ours = optim.Adam(net, rates, momenta, trains, weight_decay=1e-4)
    adam, scheduler = one_cycle_twin(twin, steps, 0.01, 1e-4)
    for t, (x, y) in enumerate(minibatches(steps)):
        group = adam.param_groups[0]
        assert rates[t] == pytest.approx(group["lr"], rel=1e-12)
        assert momenta[t] == pytest.approx(group["betas"][0], rel=1e-12)
        if trains[t]:
            before = ours.flat.clone()
            step_ours(ours, net, x, y, t)
            assert not torch.equal(ours.flat, before)
            adam.zero_grad()
            F.cross_entropy(twin(x), y).backward()
            adam.step()
        advance(scheduler, t, steps)
        assert equal(net, twin)
    assert not equal(net, small(), 1e-4)


def test_weight_decay_matters():
    """The comparison above would see a wrong decay."""
    finals = []
    for decay in (0.0, 1e-4):
        net = small()
        rates, momenta = optim.schedule("one-cycle", 60, 0.01)
        ours = optim.Adam(net, rates, momenta, [True] * 60, weight_decay=decay)
        for t, (x, y) in enumerate(minibatches(60)):
            step_ours(ours, net, x, y, t)
        finals.append(net)
    assert not equal(*finals, tolerance=1e-6)


def test_constant_adam_equals_torch():
    net = small()
    twin = copy.deepcopy(net)
    rates, momenta = optim.schedule("constant", 30, 0.003)
    ours = optim.Adam(net, rates, momenta, [True] * 30, weight_decay=0.01)
    adam = torch.optim.Adam(twin.parameters(), lr=0.003, weight_decay=0.01)
    for t, (x, y) in enumerate(minibatches(30)):
        step_ours(ours, net, x, y, t)
        adam.zero_grad()
        F.cross_entropy(twin(x), y).backward()
        adam.step()
        assert equal(net, twin)


@pytest.mark.parametrize("chunk", [1, 7, 10**6])
def test_chunks_change_nothing(chunk, monkeypatch):
    """On a CPU parameters are updated some at a time; chunks need not end where a parameter does."""
    finals = []
    for size in (optim.CPU_CHUNK, chunk):
        monkeypatch.setattr(optim, "CPU_CHUNK", size)
        net = small()
        ours = optim.Adam(net, *optim.schedule("one-cycle", 10, 0.01), [True] * 10, weight_decay=1e-4)
        for t, (x, y) in enumerate(minibatches(10)):
            step_ours(ours, net, x, y, t)
        finals.append(net)
    assert equal(*finals, tolerance=1e-14)


def test_adam_with_no_gradient_at_first():
    """Entries whose gradients are zero divide nothing by nothing."""
    net = nn.Linear(2, 1, bias=False).double()
    before = net.weight.detach().clone()
    ours = optim.Adam(net, [0.1, 0.1], [0.9, 0.9], [True, True])
    ours.update([torch.zeros(1, 2, dtype=torch.float64)], torch.tensor([0]))
    assert torch.equal(net.weight, before)


@pytest.mark.parametrize("kind", ["one-cycle", "constant"])
def test_sgd_equals_torch(kind):
    net = small()
    twin = copy.deepcopy(net)
    rates, momenta = optim.schedule(kind, 20, 0.1)
    ours = optim.Sgd(net, rates, momenta, [True] * 20)
    sgd = torch.optim.SGD(twin.parameters(), lr=0.1)
    for t, (x, y) in enumerate(minibatches(20)):
        step_ours(ours, net, x, y, t)
        sgd.param_groups[0]["lr"] = rates[t]
        sgd.zero_grad()
        F.cross_entropy(twin(x), y).backward()
        sgd.step()
        assert equal(net, twin)
    assert ours.state() == {}


@pytest.mark.parametrize("kind", [optim.Adam, optim.Sgd])
def test_parameters_are_views_of_one_buffer(kind):
    net = small()
    net[0].bias.requires_grad_(False)
    weights = [parameter.detach().clone() for parameter in net.parameters()]
    ours = kind(net, [0.1], [0.9], [True])
    for parameter, weight in zip(net.parameters(), weights, strict=True):
        assert torch.equal(parameter, weight)
    assert [p is q for p, q in zip(ours.parameters, [net[0].weight, net[2].weight, net[2].bias], strict=True)] == [
        True
    ] * 3
    start, size = ours.flat.data_ptr(), ours.flat.numel() * ours.flat.element_size()
    for parameter in ours.parameters:
        assert start <= parameter.data_ptr() < start + size
    assert not start <= net[0].bias.data_ptr() < start + size
    ours.flat.zero_()
    assert (net[2].weight == 0).all()
    x, y = next(minibatches(1))
    step_ours(ours, net, x, y, 0)
    assert torch.equal(net[0].bias, weights[1])
    assert not (net[2].bias == 0).all()
    assert ours.flat.dtype == torch.float64


def test_saved_state_is_what_updates():
    net = small()
    ours = optim.Adam(net, [0.1], [0.9], [True])
    state = ours.state()
    assert {name: value.shape for name, value in state.items()} == {"mean": ours.flat.shape, "square": ours.flat.shape}
    x, y = next(minibatches(1))
    step_ours(ours, net, x, y, 0)
    assert (state["mean"] != 0).any()
    assert (state["square"] > 0).any()


def test_one_cycle_formula():
    """T steps turn at u = 0.3 T - 1; 4e-4 to 0.01 to 4e-8 and 0.95 to 0.85 to 0.95, along cosines."""
    T = 100
    u = 29
    rates, momenta = optim.one_cycle(T, 0.01)
    assert len(rates) == len(momenta) == T
    assert (rates[0], momenta[0]) == pytest.approx((4e-4, 0.95), rel=1e-12)
    assert (rates[u], momenta[u]) == pytest.approx((0.01, 0.85), rel=1e-12)
    assert (rates[T - 1], momenta[T - 1]) == pytest.approx((4e-8, 0.95), rel=1e-9)
    assert max(rates) == rates[u]
    assert min(momenta) == momenta[u]
    t = 10
    assert rates[t] == pytest.approx(0.01 + (4e-4 - 0.01) * (1 + math.cos(math.pi * t / u)) / 2, rel=1e-12)
    t = 70
    part = (t - u) / (T - 1 - u)
    assert rates[t] == pytest.approx(4e-8 + (0.01 - 4e-8) * (1 + math.cos(math.pi * part)) / 2, rel=1e-12)
    assert momenta[t] == pytest.approx(0.95 + (0.85 - 0.95) * (1 + math.cos(math.pi * part)) / 2, rel=1e-12)


@pytest.mark.parametrize("steps", range(4, 40))
def test_one_cycle_equals_torch(steps):
    adam, scheduler = one_cycle_twin(nn.Linear(1, 1), steps, 0.5, 0.0)
    adam.step()
    rates, momenta = optim.one_cycle(steps, 0.5)
    for t in range(steps):
        group = adam.param_groups[0]
        assert rates[t] == pytest.approx(group["lr"], rel=1e-10)
        assert momenta[t] == pytest.approx(group["betas"][0], rel=1e-10)
        advance(scheduler, t, steps)


def test_other_schedules():
    assert optim.schedule("constant", 3, 0.2) == ([0.2] * 3, [0.9] * 3)
    assert optim.schedule("one-cycle", 3, 0.2) == ([0.2] * 3, [0.9] * 3)
    assert optim.schedule("one-cycle", 7, 0.2) == optim.one_cycle(7, 0.2)


def test_examples():
    assert doctest.testmod(optim).failed == 0
