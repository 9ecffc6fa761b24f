"""Kernels of stacked perceptrons against plain torch operations."""

import importlib

import pytest
import torch

from candidly.engine.nets import mlp as nets
from candidly.engine.nets import sampling
from candidly.engine.nets.mlp import BatchNorm, Linear, Mlp
from candidly.engine.optim import Adam, schedule

SHAPES = [(1, 16, 300), (3, 5, 40), (2, 33, 17), (1, 300, 9), (2, 6, 1)]


@pytest.fixture
def dense(device):
    return importlib.import_module("candidly.engine.nets.kernels.dense")


def layers(runs, inputs, width, device):
    torch.manual_seed(runs * inputs + width)
    linear = Linear(inputs, width, [torch.Generator().manual_seed(run) for run in range(runs)])
    norm = BatchNorm(width, runs)
    with torch.no_grad():
        for tensor in (linear.bias, norm.weight, norm.bias, norm.running_mean):
            tensor.normal_()
        norm.running_variance.uniform_(0.5, 2)
    return linear.to(device), norm.to(device)


def outcome(layer, linear, norm, x):
    """Return a hidden layer's output, gradients and running statistics."""
    x = x.clone().requires_grad_()
    h = layer(linear, norm, x)
    upstream = torch.linspace(-1, 2, h.numel(), device=h.device, dtype=h.dtype).view_as(h).sin()
    grads = torch.autograd.grad((h * upstream).sum(), [x, linear.weight, linear.bias, norm.weight, norm.bias])
    return [h.detach(), *grads, norm.running_mean.clone(), norm.running_variance.clone()]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_hidden_layer_equals_its_plain_form(shape, device, dense, monkeypatch):
    runs, rows, width = shape
    used, plain = [], dense.relu_norm
    monkeypatch.setattr(dense, "relu_norm", lambda *args: used.append(1) or plain(*args))
    x = torch.randn(runs, rows, 7, device=device)
    fused = outcome(nets.hidden_layer, *layers(runs, 7, width, device), x)
    assert used
    linear, norm = layers(runs, 7, width, device)
    expected = outcome(nets.hidden_layer, linear.double(), norm.double(), x.double())
    assert len(used) == 1
    for value, other in zip(fused, expected, strict=True):
        assert torch.allclose(value.double(), other, rtol=1e-4, atol=1e-6 + 1e-4 * float(other.abs().max()))


def test_a_unit_that_no_row_reaches(device, dense):
    linear, norm = layers(1, 4, 3, device)
    with torch.no_grad():
        linear.bias[..., 0] = -1e6
    values = outcome(nets.hidden_layer, linear, norm, torch.randn(1, 6, 4, device=device))
    assert all(value.isfinite().all() for value in values)
    assert torch.equal(values[0][0, :, 0], norm.bias[0, 0, 0].expand(6))
    assert (values[2][..., 0] == 0).all()


def test_nan_is_not_hidden(device, dense):
    linear, norm = layers(1, 4, 3, device)
    x = torch.randn(1, 6, 4, device=device)
    x[0, 2, 1] = torch.nan
    assert all(value.isnan().any() for value in outcome(nets.hidden_layer, linear, norm, x)[:3])


def test_large_batches_and_evaluation_take_the_plain_form(device, dense, monkeypatch):
    monkeypatch.setattr(dense, "relu_norm", None)
    linear, norm = layers(2, 4, 3, device)
    x = torch.randn(2, dense.MAX_ROWS + 1, 4, device=device)
    assert nets.hidden_layer(linear, norm, x).isfinite().all()
    norm.eval()
    assert nets.hidden_layer(linear, norm, x[:, :5]).isfinite().all()


def test_adam_equals_its_plain_form(device, dense, monkeypatch):
    monkeypatch.setattr(nets, "HIDDEN", 70)  # several blocks of the kernel, the last one not full
    used, plain = [], dense.adam
    monkeypatch.setattr(dense, "adam", lambda *args: used.append(1) or plain(*args))
    generators = [torch.Generator().manual_seed(run) for run in range(2)]
    rates, momenta = schedule("one-cycle", 8, 0.1)
    trained = []
    for dtype in (torch.float32, torch.float64):
        net = Mlp(3, 4, [generator.manual_seed(7) for generator in generators]).to(device, dtype)
        adam = Adam(net, rates, momenta, [True] * 8, 1e-2)
        clock = torch.zeros(1, dtype=torch.int64, device=device)
        for step in range(8):
            grads = [torch.full_like(p, 1.0).cumsum(-1).sin() * (step - 3) for p in adam.parameters]
            adam.update(grads, clock, step)
            clock += 1
        trained.append(adam)
    assert len(used) == 8
    first, second = trained
    for name in ("flat", "mean", "square"):
        assert torch.allclose(getattr(first, name).double(), getattr(second, name), rtol=1e-4, atol=1e-5), name
    assert not torch.allclose(first.flat.double(), torch.zeros_like(second.flat))


def test_the_gamma_sampler_equals_its_plain_form(device, monkeypatch):
    gamma = importlib.import_module("candidly.engine.nets.kernels.gamma")
    used, plain = [], gamma.sample
    monkeypatch.setattr(gamma, "sample", lambda *args: used.append(1) or plain(*args))
    torch.manual_seed(0)
    shapes = torch.logspace(-2, 2, 700).view(7, 100)
    u = torch.rand(7, 100, sampling.NOISE_PER_GAMMA)
    u[0, :, 4:8] = 1.0 - 1e-7  # never accepted
    u[1, :50, :4], u[1, 50:, :4] = 1e-7, 1.0  # far out
    found = []
    for _ in range(2):
        a = shapes.to(device, copy=True).requires_grad_()
        sample = sampling.log_gamma_sample(a, u.to(device))
        found.append([sample.detach(), torch.autograd.grad(sample.sum(), a)[0]])
        monkeypatch.setattr(sampling.kernels, "usable", lambda x: False)
    assert len(used) == 1
    for fused, expected in zip(*found, strict=True):
        assert torch.allclose(fused, expected, rtol=1e-4, atol=1e-4)
        assert fused.isfinite().all()
