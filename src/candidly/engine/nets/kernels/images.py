"""Fused batch normalisation, ReLU, pooling and residual addition, for images in channels_last memory.

An image tensor (N, C, H, W) is read as rows, one per pixel, of C adjacent channels. Statistics take three stages: each
program sums over a chunk of rows, one small kernel adds up the chunks in a fixed order, and a last one applies the
result. No stage uses atomics, so results are reproducible to the bit. Arithmetic is in float32 for all dtypes
(bfloat16, float32, and float64 at the accuracy of float32). There must be fewer than 2³¹ rows; elements may be more.

A tensor may have more channels than the normalisation, as padding to whole 16-byte loads. The additional channels
become zero and pass no gradient.
"""
# Triton's kernels take no annotations that mypy knows.
# mypy: allow-untyped-calls, allow-untyped-decorators

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from candidly.engine.nets.kernels import pixels

_ROWS, _COLUMNS = 64, 64  # of a tile; a pooled tile has a quarter of the rows, each of four pixels
_PARTS = 512  # chunks at most, hence programs of the first stage: nearly four for each of 132 processors
_NARROW = 8  # channels of one program that adds chunks up
_TALL, _WIDE = 16, 256  # rows and columns of a tile of a weight that is recast


def _unit(*widths: int) -> int:
    """Elements of which all widths are whole multiples: 8, which lets the compiler load 16 bytes at a time, 4 or 1."""
    return next(unit for unit in (8, 4, 1) if not any(width % unit for width in widths))


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


class _Shape:
    """How an image tensor is cut into programs; with `pool` the rows are windows of four pixels."""

    def __init__(self, x: Tensor, pool: bool):
        number, self.width, height, self.side = x.shape
        if pool and (height % 2 or self.side % 2):
            raise ValueError(f"images of {height}×{self.side} pixels cannot be pooled 2×2; both sides must be even")
        self.rows = number * height * self.side // (4 if pool else 1)
        self.tile = _ROWS // 4 if pool else _ROWS
        self.unit = _unit(self.width)
        self.units = self.width // self.unit
        self.blocks = triton.cdiv(self.width, _COLUMNS)
        self.programs = triton.cdiv(self.rows, self.tile) * self.blocks
        tiles = max(triton.cdiv(self.rows, self.tile), 1)
        self.chunk = self.tile * triton.cdiv(tiles, max(_PARTS // self.blocks, 1))
        self.parts = triton.cdiv(self.rows, self.chunk)
        self.narrow = triton.cdiv(self.width, _NARROW)
        self.meta = {"UNIT": self.unit, "ROWS": self.tile, "COLUMNS": _COLUMNS, "num_warps": 4}


def apply(
    x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, pool: bool
) -> Tensor:
    """Return ReLU(weight · (x − mean) · inverse + bias), then pooled 2×2 or with the residual added; without gradient.

    Parameters
    ----------
    x : Tensor
        Images (N, C, H, W) in channels_last memory.
    mean, inverse : Tensor
        Mean and inverse deviation of each of the C channels, float32.
    weight, bias : Tensor
        Scale and offset of the first channels, float32; further ones come out as zero.
    residual : Tensor or None
        What is added after the ReLU, shaped like x; not together with `pool`.
    pool : bool
        Whether to take the maximum over 2×2 windows.
    """
    if pool and residual is not None:
        raise ValueError("a residual is added to images that are not pooled")
    x, cut = _last(x), _Shape(x, pool)
    vectors = mean, inverse, weight, bias, cut.rows, cut.units, len(weight)
    if pool:
        y = torch.empty_like(x[:, :, ::2, ::2], memory_format=torch.channels_last)
        pixels.apply_pooled[(cut.programs,)](x, y, *vectors, cut.side, **cut.meta)
    else:
        y = torch.empty_like(x)
        added = x if residual is None else _last(residual)
        pixels.apply[(cut.programs,)](x, added, y, *vectors, ADD=residual is not None, **cut.meta)
    return y


def statistics(
    x: Tensor, shift: Tensor, running: tuple[Tensor, Tensor, Tensor], momentum: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Return mean and inverse deviation of each channel of x, in channels_last memory; see `normalise` for the rest."""
    cut = _Shape(x, pool=False)
    means, squares = torch.empty((2, cut.parts, cut.width), device=x.device)
    mean, inverse = torch.empty((2, cut.width), device=x.device)
    pixels.moments[(cut.parts * cut.blocks,)](x, means, squares, cut.rows, cut.units, cut.chunk, STAGES=3, **cut.meta)
    sizes = cut.rows, cut.width, len(shift), cut.chunk, cut.parts
    pixels.statistics[(cut.narrow,)](
        means, squares, mean, inverse, shift, *running, *sizes, momentum, epsilon, PARTS=_PARTS, COLUMNS=_NARROW
    )
    return mean, inverse


def slopes(x: Tensor, dy: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, bias: Tensor, pool: bool) -> Tensor:
    """Return gradients of bias, weight and shift as rows of a matrix as wide as x; images are channels_last."""
    cut = _Shape(x, pool)
    sums = torch.empty((2, cut.parts, cut.width), device=x.device)
    out = torch.empty((3, cut.width), device=x.device)
    kernel = pixels.slopes_pooled if pool else pixels.slopes  # which runs four programs on a processor up to two stages
    side = (cut.side,) if pool else ()
    kernel[(cut.parts * cut.blocks,)](
        x, dy, mean, inverse, weight, bias, sums, cut.rows, cut.units, len(weight), *side, cut.chunk, cut.parts,
        STAGES=3 if pool else 2, **cut.meta,
    )  # fmt: skip
    pixels.sum_slopes[(cut.narrow,)](sums, out, cut.width, cut.parts, PARTS=_PARTS, COLUMNS=_NARROW)
    return out


def back(
    x: Tensor, dy: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, bias: Tensor, sums: Tensor, pool: bool
) -> Tensor:
    """Return the gradient of x, given that of y and what `slopes` returned; images are in channels_last memory."""
    cut = _Shape(x, pool)
    dx = torch.empty_like(x)
    kernel = pixels.back_pooled if pool else pixels.back
    side = (cut.side,) if pool else ()
    kernel[(cut.programs,)](
        x, dy, dx, mean, inverse, weight, bias, sums, cut.rows, cut.units, len(weight), *side, **cut.meta
    )
    return dx


class _Normalise(torch.autograd.Function):
    """The function behind `normalise`; it stores only x of the images, and the backward pass recomputes the rest."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        shift: Tensor,
        residual: Tensor | None,
        running: tuple[Tensor, Tensor, Tensor],
        pool: bool,
        momentum: float,
        epsilon: float,
    ) -> Tensor:
        x = _last(x)
        mean, inverse = statistics(x, shift, running, momentum, epsilon)
        ctx.save_for_backward(x, mean, inverse, weight, bias)
        ctx.pool, ctx.added = pool, residual is not None
        return apply(x, mean, inverse, weight, bias, residual, pool)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, inverse, weight, bias = ctx.saved_tensors
        gradient = _last(gradient)
        sums = slopes(x, gradient, mean, inverse, weight, bias, ctx.pool)
        dx = back(x, gradient, mean, inverse, weight, bias, sums, ctx.pool)
        to_bias, to_weight, to_shift = sums[:, : len(bias)]
        return dx, to_weight, to_bias, to_shift, gradient if ctx.added else None, None, None, None, None


def normalise(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    shift: Tensor,
    running: tuple[Tensor, Tensor, Tensor],
    residual: Tensor | None = None,
    pool: bool = False,
    momentum: float = 0.1,
    epsilon: float = 1e-5,
) -> Tensor:
    """Return the ReLU of images normalised over their batch, then pooled 2×2 or with a residual added, as in training.

    Parameters
    ----------
    x : Tensor
        Images (N, C, H, W); they are copied if their memory is not channels_last.
    weight, bias : Tensor
        Scale and offset of the first K ≤ C channels, float32; further channels come out as zero.
    shift : Tensor
        A constant per channel that x lacks, such as the bias of the convolution before. The output does not depend on
        it and its gradient is zero, but the running mean is that of x + shift.
    running : tuple of Tensor
        Running mean, running variance and number of batches of torch.nn.BatchNorm2d, updated in place.
    residual : Tensor or None
        What is added after the ReLU, shaped like x; not together with `pool`.
    pool : bool
        Whether to take the maximum over 2×2 windows. The gradient goes to the first of equal maxima, as in torch.
    momentum, epsilon : float
        As of torch.nn.BatchNorm2d.
    """
    return _Normalise.apply(x, weight, bias, shift, residual, running, pool, momentum, epsilon)


def recast(source: Tensor, outputs: int, inputs: int, dtype: torch.dtype) -> Tensor:
    """Return a convolution's weight in another dtype, cut or padded to (outputs, inputs, H, W), channels_last."""
    number, width, height, side = source.shape
    target = torch.empty((outputs, height, side, inputs), dtype=dtype, device=source.device)
    unit = _unit(width, inputs)
    rows, new_rows = number * height * side, outputs * height * side
    grid = (triton.cdiv(new_rows, _TALL) * triton.cdiv(inputs, _WIDE),)
    pixels.recast[grid](
        _last(source), target, rows, width // unit, new_rows, inputs // unit, UNIT=unit, ROWS=_TALL, COLUMNS=_WIDE
    )
    return target.permute(0, 3, 1, 2)
