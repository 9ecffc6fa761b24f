"""Kernels for stacked multi-layer perceptrons: bias, ReLU and batch normalisation of a hidden layer, and Adam."""
# Triton's kernels take no annotations that mypy knows.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_ROWS = 1024  # of a batch: one program holds all rows of some features


@triton.jit
def _forward(
    x, shift, weight, bias, out, mean, inverse, running_mean, running_variance,
    B, W, epsilon, momentum, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    row = tl.arange(0, ROWS)
    inside = column < W
    at = run * W + column
    place = (run * B + row)[:, None] * W + column[None, :]
    valid = (row < B)[:, None] & inside[None, :]
    h = tl.load(x + place, valid, 0.0) + tl.load(shift + at, inside, 0.0)[None, :]
    h = tl.where(valid & ~(h <= 0), h, 0.0)  # which leaves a NaN one
    average = tl.sum(h, 0) / B
    centred = tl.where(valid, h - average[None, :], 0.0)
    variance = tl.sum(centred * centred, 0) / B
    scale = 1 / tl.sqrt(variance + epsilon)
    y = centred * scale[None, :] * tl.load(weight + at, inside, 0.0)[None, :] + tl.load(bias + at, inside, 0.0)[None, :]
    tl.store(out + place, y, valid)
    tl.store(mean + at, average, inside)
    tl.store(inverse + at, scale, inside)
    before = tl.load(running_mean + at, inside, 0.0)
    tl.store(running_mean + at, before + momentum * (average - before), inside)
    before = tl.load(running_variance + at, inside, 0.0)
    unbiased = variance * (B / tl.maximum(B - 1, 1))
    tl.store(running_variance + at, before + momentum * (unbiased - before), inside)


@triton.jit
def _backward(
    gradient, x, shift, weight, mean, inverse, to_x, to_shift, to_weight, to_bias,
    B, W, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    row = tl.arange(0, ROWS)
    inside = column < W
    at = run * W + column
    place = (run * B + row)[:, None] * W + column[None, :]
    valid = (row < B)[:, None] & inside[None, :]
    g = tl.load(gradient + place, valid, 0.0)
    h = tl.load(x + place, valid, 0.0) + tl.load(shift + at, inside, 0.0)[None, :]
    positive = valid & ~(h <= 0)
    scale = tl.load(inverse + at, inside, 0.0)
    standard = (tl.where(positive, h, 0.0) - tl.load(mean + at, inside, 0.0)[None, :]) * scale[None, :]
    summed = tl.sum(g, 0)
    product = tl.sum(g * standard, 0)  # where a row is not valid, g is 0
    change = g - (summed[None, :] + standard * product[None, :]) / B
    change = tl.where(positive, change * (tl.load(weight + at, inside, 0.0) * scale)[None, :], 0.0)
    tl.store(to_x + place, change, valid)
    tl.store(to_shift + at, tl.sum(change, 0), inside)
    tl.store(to_weight + at, product, inside)
    tl.store(to_bias + at, summed, inside)


class _ReluNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
        epsilon: float, momentum: float,
    ) -> Tensor:  # fmt: skip
        runs, rows, width = x.shape
        out, average, inverse = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        ctx.grid, ctx.sizes = _tiles(runs, rows, width)
        _forward[ctx.grid](
            x, shift, weight, bias, out, average, inverse, mean, variance, rows, width, epsilon, momentum, **ctx.sizes
        )
        ctx.save_for_backward(x, shift, weight, average, inverse)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, shift, weight, average, inverse = ctx.saved_tensors
        to_x, to_shift = torch.empty_like(x), torch.empty_like(shift)
        to_weight, to_bias = torch.empty_like(weight), torch.empty_like(weight)
        given = (grads[0].contiguous(), x, shift, weight, average, inverse)
        _backward[ctx.grid](*given, to_x, to_shift, to_weight, to_bias, *x.shape[1:], **ctx.sizes)
        return to_x, to_shift, to_weight, to_bias, None, None, None, None


def _tiles(runs: int, rows: int, width: int) -> tuple[tuple[int, int], dict[str, int]]:
    padded = triton.next_power_of_2(rows)
    block = 32 if padded <= 256 else 8192 // padded
    return (runs, triton.cdiv(width, block)), {"ROWS": padded, "WIDTH": block, "num_warps": 8 if padded >= 128 else 4}


def relu_norm(
    x: Tensor,
    shift: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    epsilon: float,
    momentum: float,
) -> Tensor:
    """Add `shift` to x (R, B, W), apply ReLU, then batch normalisation with the batch's own statistics.

    The other tensors are (R, 1, W). The running `mean` and `variance` move towards the batch's, in place.
    """
    return _ReluNorm.apply(x, shift, weight, bias, mean, variance, epsilon, momentum)


@triton.jit
def _adam(flat, mean, square, gradient, table, clock, n, decay, beta2, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    numbers = table + 3 * tl.load(clock)
    step, epsilon, weight = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    p, m, v = tl.load(flat + i, inside), tl.load(mean + i, inside), tl.load(square + i, inside)
    g = tl.load(gradient + i, inside) + decay * p
    m += weight * (g - m)
    v = beta2 * v + (1 - beta2) * g * g
    tl.store(mean + i, m, inside)
    tl.store(square + i, v, inside)
    tl.store(flat + i, p + step * m / (tl.sqrt(v) + epsilon), inside)


def adam(
    flat: Tensor,
    mean: Tensor,
    square: Tensor,
    gradient: Tensor,
    table: Tensor,
    clock: Tensor,
    decay: float,
    beta2: float,
) -> None:
    """Take one step of `candidly.engine.optim.Adam`, whose buffers these are, in place."""
    grid = (triton.cdiv(flat.numel(), 1024),)
    _adam[grid](flat, mean, square, gradient, table, clock, flat.numel(), decay, beta2, BLOCK=1024)
