"""ResNet-9, in float32, or on GPUs in bfloat16 with float32 weights.

The bfloat16 version keeps images in channels_last memory and pads channels with zeros to whole 16-byte loads (3 to 8
and 1028 to 1032). Everything between two convolutions is one function, fused where `candidly.engine.nets.kernels` is
usable. It is the same network, up to the rounding of bfloat16.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from candidly.engine.nets.kernels import usable

FEATURES = 128
"""Number of features that ``.features(x)`` returns."""

_WIDEST = 1028  # channels of the last layers
_MULTIPLE = 8  # channels are padded to a multiple of this in bfloat16


def _conv(inputs: int, outputs: int, pool: bool = False) -> nn.Sequential:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))


def _recast(source: Tensor, outputs: int, inputs: int, dtype: torch.dtype) -> Tensor:
    """Return a convolution's weight in another dtype, cut or padded to (outputs, inputs, ...), channels_last."""
    if source.shape[:2] == (outputs, inputs):
        return source.to(dtype, memory_format=torch.channels_last)
    if usable(source):
        from candidly.engine.nets.kernels import images

        return images.recast(source, outputs, inputs, dtype)
    target = source.new_zeros((outputs, *source.shape[2:], inputs), dtype=dtype).permute(0, 3, 1, 2)
    rows = min(outputs, source.shape[0])
    columns = min(inputs, source.shape[1])
    target[:rows, :columns] = source[:rows, :columns]
    return target


class _Widen(torch.autograd.Function):
    """A weight as the convolution reads it; the gradient has the weight's original shape, dtype and strides."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, outputs: int, inputs: int, dtype: torch.dtype) -> Tensor:
        ctx.like = weight.shape[0], weight.shape[1], weight.dtype
        return _recast(weight, outputs, inputs, dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _recast(gradient, *ctx.like), None, None, None


def _padding(channels: int) -> int:
    """Return how many zero channels bfloat16 adds."""
    return -channels % _MULTIPLE


def _block(x: Tensor, block: Any, residual: Tensor | None = None) -> Tensor:
    """Apply a block of `_conv` in the dtype of x, with padded channels, and add `residual`.

    The convolution leaves its bias to the normalisation. In training the normalisation subtracts the mean and with it
    the bias, which therefore only moves the running mean and has a gradient of zero.
    """
    conv = block[0]
    padded = conv.out_channels + _padding(conv.out_channels)
    weight = _Widen.apply(conv.weight, padded, x.shape[1], x.dtype)  # type: ignore[no-untyped-call]
    x = F.conv2d(x, weight, padding=1)
    norm = block[1]
    pool = len(block) > 3
    if usable(x) and (norm.training or not torch.is_grad_enabled()):
        return _fused_tail(x, conv, norm, pool, residual)
    return _plain_tail(x, conv, norm, pool, residual)


def _fused_tail(x: Tensor, conv: Any, norm: Any, pool: bool, residual: Tensor | None) -> Tensor:
    """Add the bias, normalise, apply ReLU, pool and add `residual`, in fused kernels."""
    from candidly.engine.nets.kernels import images

    if norm.training:
        running = (norm.running_mean, norm.running_var, norm.num_batches_tracked)
        return images.normalise(x, norm.weight, norm.bias, conv.bias, running, residual, pool, norm.momentum, norm.eps)
    padding = _padding(conv.out_channels)
    mean = F.pad(norm.running_mean - conv.bias, (0, padding))
    inverse = F.pad((norm.running_var + norm.eps).rsqrt(), (0, padding))
    return images.apply(x, mean, inverse, norm.weight, norm.bias, residual, pool)


def _plain_tail(x: Tensor, conv: Any, norm: Any, pool: bool, residual: Tensor | None) -> Tensor:
    """Add the bias, normalise, apply ReLU, pool and add `residual`, in plain torch and without the padding."""
    channels = conv.out_channels
    h: Tensor = norm(x[:, :channels] + conv.bias[:, None, None]).relu()
    if pool:
        h = F.max_pool2d(h, 2)
    if residual is not None:
        h = h + residual[:, :channels]
    return F.pad(h.to(x.dtype), (0, 0, 0, 0, 0, _padding(channels)))


class Resnet9(nn.Module):
    """One ResNet-9 for colour images whose sides are multiples of 32: 64, 128, 256, 512 and 1028 channels.

    With `half` it computes in bfloat16; parameters, running statistics, the head and the logits stay float32.
    """

    def __init__(self, shape: tuple[int, ...], outputs: int, features: bool = False, half: bool = False):
        super().__init__()
        if len(shape) != 3 or shape[1] % 32 or shape[2] % 32:
            raise ValueError(f"resnet9 reads (channels, 32k, 32k) images but rows have shape {shape}; use net='mlp'")
        self.stem = nn.Sequential(_conv(shape[0], 64), _conv(64, 128, pool=True))
        self.residual1 = nn.Sequential(_conv(128, 128), _conv(128, 128))
        self.down1 = nn.Sequential(_conv(128, 256, pool=True), _conv(256, 512, pool=True))
        self.residual2 = nn.Sequential(_conv(512, 512), _conv(512, 512))
        self.down2 = _conv(512, _WIDEST, pool=True)
        self.residual3 = nn.Sequential(_conv(_WIDEST, _WIDEST), _conv(_WIDEST, _WIDEST))
        width = _WIDEST * (shape[1] // 32) * (shape[2] // 32)
        self.head = nn.Linear(width, outputs)
        if features:  # a fixed random projection, unless a method trains it
            self.project = nn.Linear(width, FEATURES).requires_grad_(False)
        self._dtype = torch.bfloat16 if half else None
        if half:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def use_float32(self) -> None:
        """Compute in float32 from now on, like a network that was loaded from disk."""
        self._dtype = None
        self.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def embed(self, x: Tensor) -> Tensor:
        """Map images to the inputs of the head."""
        if self._dtype is not None:
            return self._embed_padded(x, self._dtype)
        x = self.stem(x)
        x = self.down1(x + self.residual1(x))
        x = self.down2(x + self.residual2(x))
        return F.max_pool2d(x + self.residual3(x), 2).flatten(1)

    def _embed_padded(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        x = x.to(dtype, memory_format=torch.channels_last)
        x = F.pad(x, (0, 0, 0, 0, 0, _padding(x.shape[1])))
        stages: list[tuple[Any, Any]] = [
            (self.stem, self.residual1),
            (self.down1, self.residual2),
            ([self.down2], self.residual3),
        ]
        for plain, residual in stages:
            for block in plain:
                x = _block(x, block)
            inner = _block(x, residual[0])
            x = _block(inner, residual[1], residual=x)
        return F.max_pool2d(x, 2)[:, :_WIDEST].flatten(1).to(self.head.weight.dtype)

    def features(self, x: Tensor) -> Tensor:
        """Map to the L2-normalised features φ, (B, 128)."""
        return F.normalize(self.project(self.embed(x)), dim=-1)

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map to logits and features, in one pass."""
        h = self.embed(x)
        return self.head(h), F.normalize(self.project(h), dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        """Map to logits."""
        return self.head(self.embed(x))
