"""Stacked networks against textbook ones, run by run."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from candidly.engine.nets import build as builds
from candidly.engine.nets import mlp as nets

R, B, D, C = 3, 7, 4, 5


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds or range(R)]


def textbook(stacked, run, features):
    """One run of a stacked Mlp as an nn.Sequential with the same weights."""
    layers = []

    def linear(one):
        layer = nn.Linear(one.weight.shape[1], one.weight.shape[2], dtype=torch.float64)
        layer.weight.data, layer.bias.data = one.weight.data[run].T.clone(), one.bias.data[run, 0].clone()
        return layer

    for one in stacked.hidden:
        layers += [linear(one), nn.ReLU(), nn.BatchNorm1d(nets.HIDDEN, dtype=torch.float64)]
    if features:
        layers.append(linear(stacked.project))
    return nn.Sequential(*layers, linear(stacked.head))


def pairs(stacked, run, net):
    """Matching parameters of one run, of the stacked network and of its textbook twin."""
    linears = [*stacked.hidden, *([] if isinstance(stacked.project, nn.Identity) else [stacked.project]), stacked.head]
    for one, layer in zip(linears, (m for m in net if isinstance(m, nn.Linear)), strict=True):
        yield one.weight, layer.weight, lambda g: g[run].T
        yield one.bias, layer.bias, lambda g: g[run, 0]
    for one, layer in zip(stacked.norms, (m for m in net if isinstance(m, nn.BatchNorm1d)), strict=True):
        yield one.weight, layer.weight, lambda g: g[run, 0]
        yield one.bias, layer.bias, lambda g: g[run, 0]


def close(ours, theirs):
    return torch.allclose(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("features", [False, True])
def test_mlp_equals_textbook_networks(features):
    """Logits, gradients and running statistics over training steps of both, then evaluation mode."""
    stacked = nets.Mlp(D, C, generators(), features).double()
    twins = [textbook(stacked, run, features) for run in range(R)]
    data = torch.Generator().manual_seed(9)
    for size in (B, 2 * B, B):
        x = 3 * torch.randn(R, size, D, generator=data, dtype=torch.float64) + 1
        y = torch.randint(C, (R, size), generator=data)
        z = stacked(x)
        losses = [F.cross_entropy(z[run], y[run]) for run in range(R)]
        grads = dict(zip(stacked.parameters(), torch.autograd.grad(sum(losses), stacked.parameters()), strict=True))
        for run, net in enumerate(twins):
            theirs = net(x[run])
            assert close(z[run], theirs)
            net.zero_grad()
            F.cross_entropy(theirs, y[run]).backward()
            for ours, parameter, of_run in pairs(stacked, run, net):
                assert close(of_run(grads[ours]), parameter.grad)
        with torch.no_grad():
            for parameter, gradient in grads.items():
                parameter -= 0.05 * gradient
            for net in twins:
                for parameter in net.parameters():
                    parameter -= 0.05 * parameter.grad
    stacked.eval()
    for run, net in enumerate(twins):
        norms = [layer for layer in net if isinstance(layer, nn.BatchNorm1d)]
        for ours, theirs in zip(stacked.norms, norms, strict=True):
            assert close(ours.running_mean[run, 0], theirs.running_mean)
            assert close(ours.running_variance[run, 0], theirs.running_var)
        net.eval()
        assert close(stacked(x)[run], net(x[run]))
        if features:
            assert close(stacked.features(x)[run], F.normalize(net[:-1](x[run]), dim=-1))


def test_mlp_runs_do_not_touch_each_other():
    stacked = nets.Mlp(D, C, generators())
    x = torch.randn(R, B, D, generator=torch.Generator().manual_seed(0))
    gradients = torch.autograd.grad(stacked(x)[1].square().sum(), stacked.parameters())
    for gradient in gradients:
        assert (gradient[[0, 2]] == 0).all()
    assert any((gradient[1] != 0).any() for gradient in gradients)


def test_mlp_shapes():
    shapes = [tuple(p.shape) for p in nets.Mlp(D, C, generators(), features=True).hidden[0].parameters()]
    assert shapes == [(R, D, 300), (R, 1, 300)]
    net = builds.build("mlp", (2, 3, 4), C, generators(), features=True)
    x = torch.rand(R, B, 2, 3, 4)
    assert net(x).shape == (R, B, C)
    assert net.features(x).shape == (R, B, 128)
    assert torch.allclose(net.features(x).norm(dim=-1), torch.ones(R, B))
    assert len(net.hidden) == 3
    per_run = sum(p.numel() for p in nets.Mlp(D, C, generators(0)).parameters())
    assert per_run == (D + 1) * 300 + 2 * 301 * 300 + 3 * 2 * 300 + 301 * C


def test_batch_norm_gradient():
    data = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 3, generator=data, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 1, 3, generator=data, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, 1, 3, generator=data, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *inputs: nets.normalise(*inputs, 1e-5)[0], (x, weight, bias))
    _, mean, variance = nets.normalise(x, weight, bias, 1e-5)
    assert not mean.requires_grad
    assert torch.allclose(variance, x.var(1, keepdim=True))


@pytest.mark.parametrize("rows", [2, 3, 16])
def test_batch_norm_equals_torch(rows):
    ours, theirs = nets.BatchNorm(6, 1).double(), nn.BatchNorm1d(6, dtype=torch.float64)
    data = torch.Generator().manual_seed(rows)
    for _ in range(4):
        x = torch.randn(1, rows, 6, generator=data, dtype=torch.float64).relu() + 100
        assert close(ours(x)[0], theirs(x[0]))
    assert close(ours.running_mean[0, 0], theirs.running_mean)
    assert close(ours.running_variance[0, 0], theirs.running_var)
    assert close(ours.eval()(x)[0], theirs.eval()(x[0]))


def test_batch_norm_does_not_change_its_input():
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    nets.BatchNorm(3, 2)(x)
    assert torch.equal(x, before)


def test_batch_norm_of_one_row_stays_finite():
    norm = nets.BatchNorm(3, 2)
    out = norm(torch.rand(2, 1, 3))
    assert torch.equal(out, torch.zeros(2, 1, 3))
    assert norm.running_variance.isfinite().all()


def test_linear_init_law():
    """Uniform on ±1/√inputs, as torch.nn.Linear's weights and biases are."""
    layer = nets.Linear(100, 200, generators(0, 1))
    for values in (layer.weight, layer.bias):
        values = values.detach()
        assert values.abs().max() <= 0.1
        assert values.abs().max() > 0.098
        assert float(values.mean()) == pytest.approx(0, abs=4 * 0.1 / (3 * values.numel()) ** 0.5)
        assert float(values.std()) == pytest.approx(0.1 / 3**0.5, rel=0.08)
    theirs = nn.Linear(100, 200).weight.detach()
    assert float(layer.weight.detach().std()) == pytest.approx(float(theirs.std()), rel=0.03)
    assert not torch.equal(layer.weight[0], layer.weight[1])


@pytest.mark.parametrize("name", ["linear", "mlp", "decoder"])
def test_a_run_starts_alike_alone_and_beside_others(name):
    together = builds.build(name, (D,), C, generators(5, 6, 7))
    for run, seed in enumerate((5, 6, 7)):
        alone = builds.build(name, (D,), C, generators(seed))
        for ours, single in zip(together.parameters(), alone.parameters(), strict=True):
            assert torch.equal(ours[run], single[0])


def test_decoder_init_law():
    decoder = nets.Decoder(30, 200, generators(0, 1))
    assert (decoder.first.bias == 0.01).all()
    assert (decoder.second.bias == 0.01).all()
    for layer, inputs in ((decoder.first, 30), (decoder.second, 200)):
        assert layer.weight.shape == (2, inputs, 200)
        weight = layer.weight.detach()
        assert float(weight.std()) == pytest.approx((2 / (inputs + 200)) ** 0.5, rel=0.03)
        assert float(weight.abs().max() / weight.std()) > 3  # normal, not uniform
    x = torch.rand(2, B, 30)
    first = torch.relu(x[1] @ decoder.first.weight[1] + 0.01)
    assert torch.allclose(decoder(x)[1], first @ decoder.second.weight[1] + 0.01, atol=1e-6)


def test_linear_net_is_a_linear_map():
    net = builds.build("linear", (2, 2), C, generators())
    x = torch.rand(R, B, 2, 2)
    for run in range(R):
        expected = x[run].flatten(1) @ net.head.weight[run] + net.head.bias[run]
        assert torch.allclose(net(x)[run], expected, atol=1e-6)


def test_resnet9_refuses_other_images():
    for shape in ((1, 28, 28), (3, 32, 28), (32, 32)):
        with pytest.raises(ValueError, match="resnet9 reads"):
            builds.build("resnet9", shape, 10, generators(0))


def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(D, 6), nn.ReLU(), nn.Linear(6, C))


def test_separate_leaves_the_global_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    net = builds.build(small, (D,), C, generators(5, 6))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    again = builds.build(small, (D,), C, generators(5, 6))
    for ours, theirs in zip(net.parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    alone = builds.build(small, (D,), C, generators(6))
    assert torch.equal(net.nets[1][1].weight, alone.nets[0][1].weight)
    assert not torch.equal(net.nets[0][1].weight, net.nets[1][1].weight)


def test_separate_restores_the_generator_when_a_factory_fails():
    def broken():
        torch.rand(3)
        raise RuntimeError("no")

    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="no"):
        builds.build(broken, (D,), C, generators(5))
    assert torch.equal(torch.get_rng_state(), before)


def test_own_factory():
    net = builds.build(small, (D,), C, generators(5, 6))
    x = torch.rand(2, B, D)
    z = net(x)
    assert z.shape == (2, B, C)
    assert torch.equal(z[1], net.nets[1](x[1]))
    net.eval()
    assert not net.nets[0].training


def test_own_factory_with_features():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(D, C)

        def features(self, x):
            return x + 1

        def forward(self, x):
            return self.head(x)

    net = builds.build(Own, (D,), C, generators(), features=True)
    x = torch.rand(R, B, D)
    assert torch.equal(net.features(x), x + 1)


class OwnWithFeatures(nn.Module):
    """A user's network whose logits are computed from its features."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(D, 6), nn.Tanh()), nn.Linear(6, C)

    def features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize("net", ["mlp", OwnWithFeatures], ids=str)
def test_both_are_the_logits_and_the_features(net):
    net = builds.build(net, (D,), C, generators(5, 6), features=True)
    x = torch.rand(2, B, D)
    for mode in (True, False):
        net.train(mode)
        logits, features = net.both(x)
        assert torch.equal(logits, net(x))
        assert torch.equal(features, net.features(x))
        first_layer = next(net.parameters())
        for one in (logits, features):
            assert torch.autograd.grad(one[..., 0].sum(), first_layer, retain_graph=True)[0].any()


@pytest.mark.parametrize("net", [small, "linear"])
def test_missing_features(net):
    with pytest.raises(ValueError, match=r"needs \.features\(x\)"):
        builds.build(net, (D,), C, generators(), features=True)


def test_unknown_network():
    with pytest.raises(ValueError, match="unknown network 'cnn'"):
        builds.build("cnn", (D,), C, generators())
