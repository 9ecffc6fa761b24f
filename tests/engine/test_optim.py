"""The optimisers against torch's, over whole schedules."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from candidly.engine import optim
from candidly.engine.nets.build import build

D, C, B = 4, 3, 6


def small(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Linear(8, C)).double()


def minibatches(steps):
    data = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield torch.randn(B, D, generator=data, dtype=torch.float64), torch.randint(C, (B,), generator=data)


def step_ours(optimiser, net, x, y, t):
    grads = torch.autograd.grad(F.cross_entropy(net(x), y), optimiser.parameters)
    with torch.no_grad():
        optimiser.update(grads, torch.tensor([t]), t)


def step_torch(optimiser, net, x, y):
    optimiser.zero_grad()
    F.cross_entropy(net(x), y).backward()
    optimiser.step()


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


def activity(kind, steps):
    """In which steps a network trains."""
    return {
        "always": [True] * steps,
        "from the middle": [t >= steps // 2 for t in range(steps)],
        "now and then": [t % 3 == 1 for t in range(steps)],
    }[kind]


def make(kind, net, steps=1, rate=0.1, course="constant", trains=None, decay=0.0):
    """Construct any of the optimisers."""
    rates, momenta = optim.schedule(course, steps, rate)
    if kind is optim.Sgd:
        return kind(net, rates)
    if kind is optim.Nesterov:
        return kind(net, rates, decay)
    return kind(net, rates, momenta, [True] * steps if trains is None else trains, decay)


either_adam = pytest.mark.parametrize("kind", [optim.Adam, optim.HostAdam])
any_optimiser = pytest.mark.parametrize("kind", [optim.Adam, optim.HostAdam, optim.Sgd, optim.Nesterov])
any_activity = pytest.mark.parametrize("active", ["always", "from the middle", "now and then"])


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@any_activity
@pytest.mark.parametrize("steps", [4, 60])
@either_adam
def test_adam_equals_torch_over_the_whole_schedule(kind, steps, active):
    """Learning rate and β1 cycle; in inactive steps there is no step, no decay and no count, but time goes on."""
    trains = activity(active, steps)
    net = small()
    twin = copy.deepcopy(net)
    rates, momenta = optim.schedule("one-cycle", steps, 0.01)
    ours = kind(net, rates, momenta, trains, weight_decay=1e-4)
    adam, scheduler = one_cycle_twin(twin, steps, 0.01, 1e-4)
    for t, (x, y) in enumerate(minibatches(steps)):
        group = adam.param_groups[0]
        assert rates[t] == pytest.approx(group["lr"], rel=1e-12)
        assert momenta[t] == pytest.approx(group["betas"][0], rel=1e-12)
        if trains[t]:
            before = [parameter.detach().clone() for parameter in net.parameters()]
            step_ours(ours, net, x, y, t)
            assert not any(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
            step_torch(adam, twin, x, y)
        advance(scheduler, t, steps)
        assert equal(net, twin)
    assert not equal(net, small(), 1e-4)


@any_activity
@pytest.mark.parametrize("decay", [0.0, 1e-4, 0.1])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=str)
def test_both_adams_are_one(dtype, tolerance, decay, active):
    """So a training on a CPU is the one on CUDA."""
    steps = 30
    trains = activity(active, steps)
    nets = [small().to(dtype) for _ in range(2)]
    both = [
        make(kind, net, steps, 0.01, "one-cycle", trains, decay)
        for kind, net in zip((optim.Adam, optim.HostAdam), nets, strict=True)
    ]
    for t, (x, y) in enumerate(minibatches(steps)):
        for ours, net in zip(both, nets, strict=True):
            if trains[t]:
                step_ours(ours, net, x.to(dtype), y, t)
        assert equal(*nets, tolerance)
    assert {p.dtype for net in nets for p in net.parameters()} == {dtype}
    assert not equal(nets[0], small().to(dtype), 1e-4)


@either_adam
def test_weight_decay_matters(kind):
    """The comparisons above would see a wrong decay."""
    finals = []
    for decay in (0.0, 1e-4):
        net = small()
        ours = make(kind, net, 60, 0.01, "one-cycle", decay=decay)
        for t, (x, y) in enumerate(minibatches(60)):
            step_ours(ours, net, x, y, t)
        finals.append(net)
    assert not equal(*finals, tolerance=1e-6)


@either_adam
def test_counting_matters(kind):
    """The comparisons above would see an inactive step that is counted: corrections shrink with the steps taken."""
    finals = []
    for skipped in (0, 5):
        net = small()
        trains = [t >= skipped for t in range(skipped + 3)]
        ours = make(kind, net, skipped + 3, 0.01, trains=trains)
        for t, (x, y) in enumerate(minibatches(3)):
            step_ours(ours, net, x, y, skipped + t)
        finals.append(net)
    assert equal(*finals, tolerance=1e-14)
    wrong = small()
    ours = make(optim.Adam, wrong, 8, 0.01)
    for t, (x, y) in enumerate(minibatches(3)):
        step_ours(ours, wrong, x, y, 5 + t)
    assert not equal(wrong, finals[0], 1e-4)


@either_adam
def test_constant_adam_equals_torch(kind):
    net = small()
    twin = copy.deepcopy(net)
    ours = make(kind, net, 30, 0.003, decay=0.01)
    adam = torch.optim.Adam(twin.parameters(), lr=0.003, weight_decay=0.01)
    for t, (x, y) in enumerate(minibatches(30)):
        step_ours(ours, net, x, y, t)
        step_torch(adam, twin, x, y)
        assert equal(net, twin)


@either_adam
def test_adam_with_no_gradient_at_first(kind):
    """Entries whose gradients are zero divide nothing by nothing."""
    net = nn.Linear(2, 1, bias=False).double()
    before = net.weight.detach().clone()
    ours = make(kind, net, 2)
    with torch.no_grad():
        ours.update([torch.zeros(1, 2, dtype=torch.float64)], torch.tensor([0]), 0)
    assert torch.equal(net.weight, before)


@pytest.mark.parametrize("course", ["one-cycle", "constant"])
def test_sgd_equals_torch(course):
    net = small()
    twin = copy.deepcopy(net)
    rates, _ = optim.schedule(course, 20, 0.1)
    ours = optim.Sgd(net, rates)
    sgd = torch.optim.SGD(twin.parameters(), lr=0.1)
    for t, (x, y) in enumerate(minibatches(20)):
        step_ours(ours, net, x, y, t)
        sgd.param_groups[0]["lr"] = rates[t]
        step_torch(sgd, twin, x, y)
        assert equal(net, twin)
    assert not equal(net, small(), 1e-4)
    assert ours.state() == {}


@pytest.mark.parametrize("course", ["one-cycle", "constant", "triangular"])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_nesterov_equals_torch(course, decay):
    net = small()
    twin = copy.deepcopy(net)
    rates, _ = optim.schedule(course, 20, 0.1)
    ours = optim.Nesterov(net, rates, decay)
    sgd = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=decay)
    for t, (x, y) in enumerate(minibatches(20)):
        step_ours(ours, net, x, y, t)
        sgd.param_groups[0]["lr"] = rates[t]
        step_torch(sgd, twin, x, y)
        assert equal(net, twin)
    assert not equal(net, small(), 1e-2)
    assert ours.state().keys() == {"velocity"}


class Headed(nn.Module):
    """A custom network whose last layer is called head."""

    def __init__(self, bias=True):
        super().__init__()
        self.body = nn.Linear(40, 40)
        self.head = nn.Linear(40, 3, bias=bias)

    def forward(self, x):
        return self.head(self.body(x).relu())


class Deep(Headed):
    """A custom network whose head has several layers."""

    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.LayerNorm(40), nn.Linear(40, 20), nn.Tanh(), nn.Linear(20, 3), nn.Identity())


@pytest.mark.parametrize(
    ("net", "inputs", "weight"),
    [
        ("linear", 40, "head.weight"),
        ("mlp", 300, "head.weight"),
        (Headed, 40, "head.weight"),
        (lambda: Headed(bias=False), 40, "head.weight"),
        (Deep, 20, "head.3.weight"),
    ],
)
def test_nesterov_slows_heads_down_by_their_inputs(net, inputs, weight):
    generators = [torch.Generator().manual_seed(seed) for seed in range(2)]
    ours = build(net, (40,), 3, generators).double()
    twin = copy.deepcopy(ours)
    optimiser = optim.Nesterov(ours, [0.1] * 5, 0.01)
    weights = [parameter for name, parameter in twin.named_parameters() if name.endswith(weight)]
    others = [parameter for name, parameter in twin.named_parameters() if not name.endswith(weight)]
    groups = [{"params": others}, {"params": weights, "lr": 0.1 * 16 / inputs}]
    theirs = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    for t in range(5):
        x = torch.randn(2, 8, 40, generator=generators[0], dtype=torch.float64)
        grads = torch.autograd.grad(ours(x).square().mean(), optimiser.parameters)
        with torch.no_grad():
            optimiser.update(grads, torch.tensor([t]), t)
        theirs.zero_grad()
        twin(x).square().mean().backward()
        theirs.step()
        assert equal(ours, twin)


def test_heads_without_a_linear_layer_are_not_found():
    net = Headed()
    assert list(optim.head_inputs(net)) == [id(net.head.weight)]
    net.head = nn.Sequential(nn.LayerNorm(40))
    assert not optim.head_inputs(net)
    net.head = nn.utils.parametrizations.weight_norm(nn.Linear(40, 3))  # whose weight is computed
    assert not optim.head_inputs(net)


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 10, 1000])
def test_triangular_rises_for_a_fifth_of_the_steps(steps):
    rates, momenta = optim.schedule("triangular", steps, 0.5)
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(0.5)
    assert min(rates) > 0
    assert top == max(1, round(steps / 5)) - 1
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert steps < 1000 or rates[-1] < 0.001
    assert set(momenta) == {0.9}


@any_optimiser
def test_parameters_without_gradients_are_left_alone(kind):
    net = small()
    net[0].bias.requires_grad_(False)
    weights = [parameter.detach().clone() for parameter in net.parameters()]
    ours = make(kind, net, 3, decay=0.1)
    for parameter, weight in zip(net.parameters(), weights, strict=True):
        assert torch.equal(parameter, weight)
    trainable = [net[0].weight, net[2].weight, net[2].bias]
    assert all(p is q for p, q in zip(ours.parameters, trainable, strict=True))
    for t, (x, y) in enumerate(minibatches(3)):
        step_ours(ours, net, x, y, t)
    assert torch.equal(net[0].bias, weights[1])
    assert net[0].bias.grad is None
    moved = [not torch.equal(p, weight) for p, weight in zip(net.parameters(), weights, strict=True)]
    assert moved == [True, False, True, True]


LAYOUTS = {
    "contiguous": lambda grad: grad.contiguous(),
    "transposed": lambda grad: grad.t().contiguous().t(),
    "every other": lambda grad: grad.repeat_interleave(2, 1)[:, ::2],
    "expanded": lambda grad: grad[:1].expand_as(grad),
    "one number": lambda grad: grad[:1, :1].expand_as(grad),
}


@pytest.mark.parametrize("across", [False, True], ids=["parameter contiguous", "parameter transposed"])
@pytest.mark.parametrize("layout", LAYOUTS)
@any_optimiser
def test_gradients_of_any_layout(kind, layout, across):
    """Autograd returns gradients in whatever memory layout they come up, as of einsum("bd,cd->bc", x, weight)."""
    numbers = torch.Generator().manual_seed(2)
    start = torch.randn(4, 3, generator=numbers, dtype=torch.float64)
    net, twin = nn.Module(), nn.Module()
    net.weight = nn.Parameter(start.t().contiguous().t() if across else start.clone())
    twin.weight = nn.Parameter(start.clone())
    ours = make(kind, net, 5)
    momentum = {"momentum": 0.9, "nesterov": True} if kind is optim.Nesterov else {}
    plain = kind in (optim.Sgd, optim.Nesterov)
    theirs = (torch.optim.SGD if plain else torch.optim.Adam)([twin.weight], lr=0.1, **momentum)
    for t in range(5):
        grad = LAYOUTS[layout](torch.randn(4, 3, generator=numbers, dtype=torch.float64))
        twin.weight.grad = grad.clone(memory_format=torch.contiguous_format)
        with torch.no_grad():
            ours.update([grad], torch.tensor([t]), t)
        assert torch.equal(grad, twin.weight.grad)  # and reads it only
        theirs.step()
        assert equal(net, twin)


@any_optimiser
def test_parameters_may_share_a_gradient(kind):
    """Autograd returns one tensor for both terms of a sum."""
    net = nn.ParameterList(torch.full((3,), float(i), dtype=torch.float64) for i in range(2))
    alone = nn.ParameterList(parameter.detach().clone() for parameter in net)
    ours, theirs = make(kind, net, 4, decay=0.1), make(kind, alone, 4, decay=0.1)
    for t in range(4):
        grad = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) * (t + 1)
        with torch.no_grad():
            ours.update([grad, grad], torch.tensor([t]), t)
            theirs.update([grad.clone(), grad.clone()], torch.tensor([t]), t)
    assert equal(net, alone, 0)


def test_parameters_are_views_of_one_buffer():
    net = small()
    net[0].bias.requires_grad_(False)
    ours = make(optim.Adam, net)
    start, size = ours.flat.data_ptr(), ours.flat.numel() * ours.flat.element_size()
    for parameter in ours.parameters:
        assert start <= parameter.data_ptr() < start + size
    assert not start <= net[0].bias.data_ptr() < start + size
    ours.flat.zero_()
    assert (net[2].weight == 0).all()
    x, y = next(minibatches(1))
    step_ours(ours, net, x, y, 0)
    assert not (net[2].bias == 0).all()
    assert ours.flat.dtype == torch.float64
    assert ours.flat.data_ptr() == start


@pytest.mark.parametrize("kind", [optim.HostAdam, optim.Sgd])
def test_parameters_stay_where_they_are(kind):
    net = small()
    places = [parameter.data_ptr() for parameter in net.parameters()]
    ours = make(kind, net)
    x, y = next(minibatches(1))
    step_ours(ours, net, x, y, 0)
    assert [parameter.data_ptr() for parameter in net.parameters()] == places


@either_adam
def test_saved_state_is_what_updates(kind):
    """The tensors are there before the first step and change in place, so that a checkpoint can be copied into them."""
    net = small()
    net[0].bias.requires_grad_(False)
    ours = make(kind, net, 3)
    state = ours.state()
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    if kind is optim.Adam:
        assert shapes == {"mean": tuple(ours.flat.shape), "square": tuple(ours.flat.shape)}
    else:
        moments = {
            f"{name}.{i}": tuple(parameter.shape)
            for i, parameter in enumerate(ours.parameters)
            for name in ("mean", "square")
        }
        assert shapes == moments | {f"step.{i}": () for i in range(3)}
    assert not any(value.any() for value in state.values())
    for t, (x, y) in enumerate(minibatches(3)):
        before = {name: value.clone() for name, value in state.items()}
        step_ours(ours, net, x, y, t)
        assert all((state[name] != before[name]).any() for name in state)
        assert all(value is state[name] for name, value in ours.state().items())
    if kind is optim.HostAdam:
        assert [float(state[f"step.{i}"]) for i in range(3)] == [3.0] * 3


@any_activity
@either_adam
def test_continuing_from_saved_state(kind, active):
    """A network and an optimiser that are filled by name go on as the saved ones do, to the bit."""
    steps, half = 20, 11
    trains = activity(active, steps)
    batches = list(minibatches(steps))

    def run(ours, net, times):
        for t in times:
            if trains[t]:
                step_ours(ours, net, *batches[t], t)

    whole = small()
    uninterrupted = make(kind, whole, steps, 0.01, "one-cycle", trains, 1e-4)
    run(uninterrupted, whole, range(half))
    saved = {name: value.clone() for name, value in (whole.state_dict() | uninterrupted.state()).items()}
    run(uninterrupted, whole, range(half, steps))
    finals = []
    for stored in (saved, saved | {name: torch.zeros_like(saved[name]) for name in uninterrupted.state()}):
        net = small(seed=5)
        ours = make(kind, net, steps, 0.01, "one-cycle", trains, 1e-4)
        for name, value in (net.state_dict() | ours.state()).items():
            value.copy_(stored[name])
        run(ours, net, range(half, steps))
        finals.append((net, ours.state()))
    net, state = finals[0]
    assert equal(net, whole, 0)
    assert state.keys() == uninterrupted.state().keys()
    for name, value in uninterrupted.state().items():
        assert torch.equal(state[name], value), name
    assert not equal(finals[1][0], whole, 1e-5)  # with the network alone it would not


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
