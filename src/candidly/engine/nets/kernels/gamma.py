"""Kernel of `candidly.engine.nets.sampling.log_gamma_sample`, which explains the algorithm."""
# Triton's kernels take no annotations that mypy knows.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _sample(a, normal, u, out, slope, n, small, tiny, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    shape = tl.load(a + i, inside, 1.0)
    d = shape + (1 - 1 / 3)
    width = 1 / tl.sqrt(9 * d)
    uniforms = u + i * (2 * ROUNDS + 1)
    chosen = tl.zeros((BLOCK,), tl.float32)
    searching = inside
    for k in tl.static_range(ROUNDS):
        x = tl.load(normal + i * ROUNDS + k, inside, 0.0)
        accept = tl.load(uniforms + ROUNDS + k, inside, 0.5)
        root = 1 + x * width
        v = tl.maximum(root, small)
        v = v * v * v
        accepted = (root > 0) & (tl.log(tl.maximum(accept, tiny)) < 0.5 * x * x + d * (1 - v + tl.log(v)))
        chosen = tl.where(searching, root, chosen)  # the last round stays where none is accepted
        searching = searching & ~accepted
    boost = tl.log(tl.maximum(tl.load(uniforms + 2 * ROUNDS, inside, 0.5), tiny)) / shape
    root = tl.maximum(chosen, small)
    tl.store(out + i, tl.log(d * root * root * root) + boost, inside)
    tl.store(slope + i, tl.where(chosen > small, 1.5 / root - 0.5, 1.0) / d - boost / shape, inside)


def sample(a: Tensor, normal: Tensor, u: Tensor, small: float, tiny: float) -> tuple[Tensor, Tensor]:
    """Return log-samples and their derivatives by `a`, given each round's normal numbers and all uniforms, float32."""
    out, slope = torch.empty_like(a), torch.empty_like(a)
    grid = (triton.cdiv(a.numel(), 256),)
    given = (a, normal, u.contiguous(), out, slope, a.numel(), small, tiny)
    _sample[grid](*given, ROUNDS=normal.shape[-1], BLOCK=256)
    return out, slope
