"""Fused normalisation of images against torch's own modules in float64."""

import copy
import importlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from candidly.engine.nets import resnet
from candidly.engine.nets.kernels import usable

ROUNDING = {torch.float32: 3e-6, torch.bfloat16: 2**-7}  # the interpreter cuts to bfloat16 where a GPU rounds


@pytest.fixture
def images(device):
    return importlib.import_module("candidly.engine.nets.kernels.images")


class Case:
    """Images of which the first `channels` channels are normalised, and the same for torch in float64."""

    def __init__(self, device, shape, channels, dtype=torch.float32, residual=False, mean=0.0, deviation=1.0):
        draw = torch.Generator().manual_seed(sum(shape) + channels)

        def normal(*size):
            return torch.randn(size, generator=draw)

        self.channels, self.dtype = channels, dtype
        x = (mean + deviation * normal(*shape)).to(dtype)
        x[:, channels:] = 0
        self.x = x.to(device, memory_format=torch.channels_last).requires_grad_()
        self.residual = normal(*shape).to(device, dtype).requires_grad_() if residual else None
        self.weight, self.bias, self.shift = (normal(channels).to(device).requires_grad_() for _ in range(3))
        running = normal(channels), normal(channels).square(), torch.tensor(3)
        self.running = tuple(one.to(device) for one in running)
        self.norm = nn.BatchNorm2d(channels, device=device, dtype=torch.float64)
        self.norm.load_state_dict(dict(zip(self.norm.state_dict(), (self.weight, self.bias, *running), strict=True)))

    def assert_close(self, ours, theirs, tolerance=None):
        assert ours.shape == theirs.shape
        bound = (tolerance or ROUNDING[self.dtype]) * float(theirs.detach().abs().max())
        assert torch.allclose(ours.double(), theirs.double(), rtol=0, atol=bound)

    def reference(self, pool):
        twin = self.x.detach()[:, : self.channels].double().requires_grad_()
        out = self.norm(twin + self.shift.detach().double()[:, None, None]).relu()
        out = F.max_pool2d(out, 2) if pool else out
        return twin, out if self.residual is None else out + self.residual.detach()[:, : self.channels].double()

    def assert_equals_torch(self, images, pool):
        y = images.normalise(self.x, self.weight, self.bias, self.shift, self.running, self.residual, pool)
        twin, theirs = self.reference(pool)
        c = self.channels
        assert y.dtype == self.dtype
        assert y.is_contiguous(memory_format=torch.channels_last)
        self.assert_close(y[:, :c], theirs)
        padded = y[:, c:] if self.residual is None else y[:, c:] - self.residual[:, c:]
        assert (padded == 0).all()
        slope = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).to(y)
        y.backward(slope)
        theirs.backward(slope[:, :c].double())
        self.assert_close(self.x.grad[:, :c], twin.grad)
        assert (self.x.grad[:, c:] == 0).all()
        self.assert_close(self.weight.grad, self.norm.weight.grad, 3e-6)
        self.assert_close(self.bias.grad, self.norm.bias.grad, 3e-6)
        assert self.shift.grad.dtype == torch.float32
        assert (self.shift.grad == 0).all()
        if self.residual is not None:
            assert torch.equal(self.residual.grad, slope)
        self.assert_close(self.running[0], self.norm.running_mean, 3e-6)
        self.assert_close(self.running[1], self.norm.running_var, 3e-6)
        assert torch.equal(self.running[2], self.norm.num_batches_tracked)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(
    ("shape", "channels"),
    [((3, 8, 6, 4), 8), ((2, 8, 4, 4), 3), ((3, 5, 6, 2), 5), ((5, 72, 6, 4), 68), ((1, 16, 2, 2), 16)],
)
@pytest.mark.parametrize("then", ["", "pool", "residual"])
def test_normalise_equals_torch(device, images, shape, channels, dtype, then):
    Case(device, shape, channels, dtype, residual=then == "residual").assert_equals_torch(images, then == "pool")


@pytest.mark.parametrize("shape", [(1, 3, 5, 7), (7, 8, 3, 1), (2, 9, 11, 13)])
def test_odd_sides(device, images, shape):
    Case(device, shape, shape[1]).assert_equals_torch(images, pool=False)
    with pytest.raises(ValueError, match="cannot be pooled"):
        Case(device, shape, shape[1]).assert_equals_torch(images, pool=True)


@pytest.mark.parametrize("pool", [False, True])
def test_many_chunks_of_several_tiles(device, images, monkeypatch, pool):
    """As in large batches: several programs, each of several tiles, the last of them partly filled."""
    monkeypatch.setattr(images, "_PARTS", 4)
    Case(device, (7, 8, 10, 14), 8).assert_equals_torch(images, pool)
    Case(device, (9, 72, 8, 10), 70, residual=not pool).assert_equals_torch(images, pool)


def test_large_means_do_no_harm(device, images):
    """The variance is 10⁻⁸ of the squared mean: less than what float32 sums of squares lose."""
    case = Case(device, (16, 8, 8, 8), 8, mean=1000.0, deviation=0.1)
    images.normalise(case.x, case.weight, case.bias, case.shift, case.running)
    case.reference(pool=False)
    case.assert_close(case.running[0], case.norm.running_mean, 3e-6)
    case.assert_close(case.running[1], case.norm.running_var, 1e-3)
    mean, inverse = images.statistics(case.x.detach(), case.shift, case.running, 0.1, 1e-5)
    x = case.x.detach().double()
    case.assert_close(mean, x.mean((0, 2, 3)), 3e-6)
    case.assert_close(inverse, (x.var((0, 2, 3), unbiased=False) + 1e-5).rsqrt(), 1e-3)


@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
def test_the_first_of_equal_maxima_takes_the_gradient(device, images, sign):
    """Windows of few distinct values, of which most are tied."""
    case = Case(device, (4, 8, 6, 6), 8)
    case.x = torch.randint(2, case.x.shape, generator=torch.Generator().manual_seed(0)).to(case.x).requires_grad_()
    with torch.no_grad():
        for norm in (case, case.norm):
            norm.weight.fill_(sign)
            norm.bias.fill_(0.3)
    case.assert_equals_torch(images, pool=True)


def test_other_memory_formats(device, images):
    case = Case(device, (3, 8, 6, 4), 8)
    case.x = case.x.detach().contiguous().requires_grad_()
    case.assert_equals_torch(images, pool=True)


def test_nan_is_not_hidden(device, images):
    case = Case(device, (3, 8, 6, 4), 8)
    with torch.no_grad():
        case.x[1, 2, 3, 0] = torch.nan
    for pool in (False, True):
        y = images.normalise(case.x, case.weight, case.bias, case.shift, case.running, None, pool)
        assert y[:, 2].isnan().all()
        assert not y[:, 3:].isnan().any()


def test_bits_repeat(device, images):
    ours = []
    for _ in range(2):
        case = Case(device, (5, 16, 8, 6), 16)
        case.assert_equals_torch(images, pool=True)
        ours.append((case.x.grad, case.weight.grad, case.bias.grad, *case.running))
    assert all(torch.equal(a, b) for a, b in zip(*ours, strict=True))


@pytest.mark.parametrize("then", ["", "pool", "residual"])
def test_apply_uses_the_statistics_it_is_given(device, images, then):
    case = Case(device, (3, 16, 6, 4), 13, residual=then == "residual")
    case.norm.eval()
    mean = F.pad(case.running[0] - case.shift.detach(), (0, 3))
    inverse = F.pad((case.running[1] + case.norm.eps).rsqrt(), (0, 3))
    with torch.no_grad():
        y = images.apply(case.x, mean, inverse, case.weight, case.bias, case.residual, then == "pool")
    case.assert_close(y[:, :13], case.reference(then == "pool")[1])


def test_a_residual_of_pooled_images_is_refused(device, images):
    case = Case(device, (2, 8, 4, 4), 8, residual=True)
    with pytest.raises(ValueError, match="not pooled"):
        images.normalise(case.x, case.weight, case.bias, case.shift, case.running, case.residual, pool=True)


@pytest.mark.parametrize("size", [(16, 8), (13, 5), (13, 8), (300, 260)])
def test_recast(device, images, size):
    weight = torch.randn(13, 5, 3, 3, generator=torch.Generator().manual_seed(0)).to(device)
    wide = images.recast(weight, *size, torch.bfloat16)
    assert wide.is_contiguous(memory_format=torch.channels_last)
    assert wide.shape == (*size, 3, 3)
    assert torch.allclose(wide[:13, :5].float(), weight, rtol=2**-7, atol=0)
    assert (wide[13:] == 0).all()
    assert (wide[:, 5:] == 0).all()
    assert torch.equal(images.recast(wide, 13, 5, torch.float32), wide[:13, :5].float())


def test_fused_network_equals_the_plain_one(device, images, monkeypatch):
    """In float32, so that only the order of sums differs: logits, gradients, running statistics, evaluation."""
    if device.type == "cpu":  # few large programs, which the interpreter is quicker with
        for name in ("_ROWS", "_COLUMNS", "_NARROW"):
            monkeypatch.setattr(images, name, 256)
    monkeypatch.setattr(resnet, "_WIDEST", 44)
    torch.manual_seed(0)
    ours = resnet.Resnet9((3, 32, 32), 4, half=True).to(device)
    ours._dtype = torch.float32
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, device="cpu").to(device)
    plain = copy.deepcopy(ours)
    x, y = torch.randn(2, 3, 32, 32).to(device), torch.tensor([0, 3], device=device)
    assert usable(x)
    results = []
    for net in (ours, plain):
        with monkeypatch.context() as patch:
            if net is plain:
                patch.setattr(resnet, "usable", lambda x: False)
            z = net(x)
            grads = torch.autograd.grad(F.cross_entropy(z, y), list(net.parameters()))
            net.eval()
            with torch.no_grad():
                results.append((z, net(x), grads))
    tolerance = 1e-3 if device.type == "cpu" else 2e-2  # a GPU's convolutions round to TF32
    assert torch.allclose(results[0][0], results[1][0], atol=tolerance)
    assert torch.allclose(results[0][1], results[1][1], atol=tolerance)
    for (name, parameter), a, b in zip(ours.named_parameters(), results[0][2], results[1][2], strict=True):
        assert a.stride() == parameter.stride()
        if name.endswith("0.bias"):  # of a convolution: zero but for rounding
            assert float((a - b).abs().max()) < 1e-4, name
        else:
            assert float(F.cosine_similarity(a.flatten(), b.flatten(), dim=0)) > 1 - tolerance, name
    for (name, a), b in zip(ours.named_buffers(), plain.buffers(), strict=True):
        assert torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance / 10), name
