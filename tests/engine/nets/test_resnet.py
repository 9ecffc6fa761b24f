"""ResNet-9 against its description, and its bfloat16 twin against it."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from candidly.engine.nets import resnet
from candidly.engine.nets.resnet import Resnet9


def build(half=False, **kwargs):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Resnet9((3, 32, 32), 10, half=half, **kwargs)


@pytest.fixture(scope="module")
def full():
    """One network with features; 35 million weights, hence built once."""
    return build(features=True)


@pytest.fixture
def narrow(monkeypatch):
    """Last layers of 44 channels in place of 1028, which are padded as those are."""
    monkeypatch.setattr(resnet, "_WIDEST", 44)


def images(number, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(number, 3, 32, 32, generator=draw), torch.randint(10, (number,), generator=draw)


def gradients(net, x, y):
    z = net(x)
    return z, torch.autograd.grad(F.cross_entropy(z, y), list(net.parameters()))


def alike(a, b):
    return float(F.cosine_similarity(a.detach().flatten(), b.detach().flatten(), dim=0))


def test_layers(full):
    convs = [m for m in full.modules() if isinstance(m, nn.Conv2d)]
    widths = [(m.in_channels, m.out_channels) for m in convs]
    residuals = [(128, 128)] * 2, [(512, 512)] * 2, [(1028, 1028)] * 2
    plain = [(3, 64), (64, 128), (128, 256), (256, 512), (512, 1028)]
    assert sorted(widths) == sorted([*plain, *residuals[0], *residuals[1], *residuals[2]])
    assert all(m.bias is not None and m.kernel_size == (3, 3) and m.padding == (1, 1) for m in convs)
    count = sum(9 * a * b + b + 2 * b for a, b in widths) + 1028 * 10 + 10
    assert sum(p.numel() for p in full.parameters() if p.requires_grad) == count
    assert [p.requires_grad for p in full.project.parameters()] == [False, False]


def test_equals_its_description(full):
    """The forward pass written out: convolution, BatchNorm, ReLU, pool; x + block(block(x)).

    A ReLU after that sum could not be seen: both terms are outputs of one.
    """
    x = images(2)[0]

    def block(h, one, pool=False):
        conv, norm = one[0], one[1]
        h = F.conv2d(h, conv.weight, conv.bias, padding=1)
        h = F.batch_norm(h, norm.running_mean, norm.running_var, norm.weight, norm.bias).relu()
        return F.max_pool2d(h, 2) if pool else h

    full.eval()
    with torch.no_grad():
        h = block(block(x, full.stem[0]), full.stem[1], pool=True)
        h = h + block(block(h, full.residual1[0]), full.residual1[1])
        h = block(block(h, full.down1[0], pool=True), full.down1[1], pool=True)
        h = h + block(block(h, full.residual2[0]), full.residual2[1])
        h = block(h, full.down2, pool=True)
        h = h + block(block(h, full.residual3[0]), full.residual3[1])
        h = F.max_pool2d(h, 2).flatten(1)
        assert h.shape == (2, 1028)
        assert torch.allclose(full(x), full.head(h), atol=1e-6)
        assert torch.allclose(full.features(x), F.normalize(full.project(h), dim=-1), atol=1e-6)
        assert full(x).shape == (2, 10)


@pytest.mark.usefixtures("narrow")
def test_both_are_the_logits_and_the_features():
    """In evaluation mode, and in training mode, where the head and the projection are trained together."""
    net = build(features=True)
    x, _ = images(4)
    for mode in (True, False):
        net.train(mode)
        with torch.no_grad():
            logits, features = net.both(x)
            assert torch.equal(logits, net(x))
            assert torch.equal(features, net.features(x))
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(4))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 28), (32, 32)])
def test_refuses_other_images(shape):
    with pytest.raises(ValueError, match="resnet9 reads"):
        Resnet9(shape, 10)


def test_half_has_the_same_state(full):
    half = build(half=True, features=True)
    assert list(half.state_dict()) == list(full.state_dict())
    for ours, theirs in zip(half.state_dict().values(), build(features=True).state_dict().values(), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    convs = [m for m in half.modules() if isinstance(m, nn.Conv2d)]
    assert all(conv.weight.is_contiguous(memory_format=torch.channels_last) for conv in convs)


@pytest.mark.gpu
def test_half_is_close_at_full_width(full):
    """Logits of the true network, whose 1028 channels are padded to 1032, in both modes."""
    x = images(8)[0].cuda()
    theirs = copy.deepcopy(full).train().cuda()
    ours = build(half=True, features=True).cuda()
    with torch.no_grad():
        for _ in range(2):
            a, b = ours(x), theirs(x)
            assert a.dtype == torch.float32
            assert torch.allclose(a, b, atol=0.05 * float(b.abs().max()))
            assert alike(ours.features(x), theirs.features(x)) > 0.999
            for net in (ours, theirs):
                net.eval()


@pytest.mark.usefixtures("narrow")
def test_half_in_float64_is_exact():
    """With its dtype set to float64, padding and the order of operations are all that differ."""
    ours, theirs = build(half=True).double(), build().double()
    ours._dtype = torch.float64
    for seed in range(2):
        x, y = images(4, seed)
        x = x.double()
        a, b = gradients(ours, x, y), gradients(theirs, x, y)
        assert torch.allclose(a[0], b[0], rtol=0, atol=1e-10)
        for (name, parameter), one, other in zip(ours.named_parameters(), a[1], b[1], strict=True):
            assert one.stride() == parameter.stride(), name
            assert torch.allclose(one, other, rtol=0, atol=1e-9), name
    for (name, one), other in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-10), name
    with torch.no_grad():
        assert torch.allclose(ours.eval()(x), theirs.eval()(x), rtol=0, atol=1e-10)


@pytest.mark.gpu
@pytest.mark.usefixtures("narrow")
def test_half_gradients_are_as_good_as_those_of_autocast():
    """Rounding to bfloat16 turns the gradients of early layers by some 20 degrees, in torch.autocast as here."""
    ours, theirs, cast = (build(half=half).cuda() for half in (True, False, False))
    x, y = (tensor.cuda() for tensor in images(48))
    a, b = gradients(ours, x, y), gradients(theirs, x, y)
    with torch.autocast("cuda", torch.bfloat16):
        h = cast.embed(x)
    c = torch.autograd.grad(F.cross_entropy(cast.head(h.float()), y), list(cast.parameters()))
    assert torch.allclose(a[0], b[0], atol=0.05 * float(b[0].detach().abs().max()))
    convs = {f"{name}.bias" for name, module in ours.named_modules() if isinstance(module, nn.Conv2d)}
    for (name, parameter), one, other, rounded in zip(ours.named_parameters(), a[1], b[1], c, strict=True):
        assert one.dtype == torch.float32
        assert one.stride() == parameter.stride(), name
        if name in convs:  # zero in exact arithmetic
            assert float(one.abs().max()) < 0.01, name
        else:
            assert alike(one, other) > max(alike(rounded, other) - 0.03, 0.85), name
    assert alike(a[1][-2], b[1][-2]) > 0.999  # the head's weight
    for (name, one), other in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        assert torch.allclose(one.double(), other.double(), rtol=0.02, atol=0.02), name


@pytest.mark.usefixtures("narrow")
def test_half_of_other_sizes():
    """Images of several sizes and channels, one at a time, and a copy of the network."""
    for shape in ((1, 32, 32), (3, 64, 32), (8, 32, 32)):
        torch.manual_seed(0)
        ours = Resnet9(shape, 3, half=True)
        torch.manual_seed(0)
        theirs = Resnet9(shape, 3)
        ours._dtype = torch.float32
        x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
        for net in (ours, theirs):
            net(x)
            net.eval()
        with torch.no_grad():
            assert torch.allclose(ours(x), theirs(x), atol=1e-5)
            assert torch.allclose(copy.deepcopy(ours)(x[:1]), theirs(x[:1]), atol=1e-5)


@pytest.mark.usefixtures("narrow")
def test_evaluation_uses_the_bias_of_convolutions():
    ours, theirs = build(half=True).eval(), build().eval()
    with torch.no_grad():
        for net in (ours, theirs):
            for module in net.modules():
                if isinstance(module, nn.Conv2d):
                    module.bias += 0.5
        x = images(4)[0]
        ours._dtype = torch.float32
        assert torch.allclose(ours(x), theirs(x), atol=1e-4)


def test_a_network_for_gpus_can_turn_to_float32(narrow):
    """Then it computes as one that was built for float32 does."""
    half, plain = build(half=True), build()
    x, _ = images(2)
    half.use_float32()
    with torch.no_grad():
        assert torch.equal(half.eval()(x), plain.eval()(x))
    assert [one.stride() for one in half.parameters()] == [one.stride() for one in plain.parameters()]
    assert build(half=True).stem[0][0].weight.stride() != plain.stem[0][0].weight.stride()
