"""Measured peak rates of the device, and the least time that a training step can take with them.

The floor of a step is the largest of three times: the bytes that it must move at the rate of a copy, its
multiplications and additions at the rate of a large matrix product, and the longest chain of operations that wait for
each other at the time of the smallest kernel. Bytes count only where they do not fit into the device's largest cache.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.measure import Setting, say
from candidly.engine.nets.mlp import FEATURES, HIDDEN

PARAMETER_PASSES = 10  # read forwards and backwards, gradient written; Adam reads 4 arrays and writes 3
DENSE_PASSES, CONVOLUTION_PASSES = 11, 14  # over what a hidden layer, or a convolution, puts out
CONVOLUTIONS = (  # inputs, outputs and side of the images of ResNet-9
    (3, 64, 32), (64, 128, 32), (128, 128, 16), (128, 128, 16), (128, 256, 16), (256, 512, 8),
    (512, 512, 4), (512, 512, 4), (512, 1028, 4), (1028, 1028, 2), (1028, 1028, 2),
)  # fmt: skip


@dataclass(frozen=True)
class Work:
    """The least work of one step of one run."""

    parameters: float
    operations: float
    activations: float  # numbers written or read
    chain: int  # operations that wait for each other

    def beside(self, other: "Work", chain: int) -> "Work":
        """Return the sum of both, of which `chain` operations depend on each other."""
        sums = self.parameters + other.parameters, self.operations + other.operations
        return Work(*sums, self.activations + other.activations, chain)


def dense(widths: list[int], rows: int) -> Work:
    """Linear layers, all but the last followed by ReLU and batch normalisation: forwards, backwards and Adam.

    The chain: the batch is gathered; a product and a normalisation for each hidden layer, the head and the loss; all of
    it backwards, where the first layer needs no gradient of its input; Adam.
    """
    pairs = list(pairwise(widths))
    weights = sum(a * b for a, b in pairs)
    hidden = sum(widths[1:-1])
    operations = 2 * rows * (3 * weights - widths[0] * widths[1])
    activations = rows * (DENSE_PASSES * hidden + 3 * widths[0] + 6 * widths[-1])
    return Work(weights + sum(widths[1:]) + 2 * hidden, operations, activations, 4 * len(pairs) + 1)


def resnet9(classes: int, rows: int) -> Work:
    """ResNet-9 for images of 32×32 pixels."""
    weights = sum(9 * a * b for a, b, _ in CONVOLUTIONS)
    per_image = sum(9 * a * b * side**2 for a, b, side in CONVOLUTIONS)
    first, outputs = CONVOLUTIONS[0], sum(b * side**2 for _, b, side in CONVOLUTIONS)
    head = CONVOLUTIONS[-1][1] * classes
    operations = 2 * rows * (3 * (per_image + head) - 9 * first[0] * first[1] * first[2] ** 2)
    parameters = weights + head + classes + 3 * sum(b for _, b, _ in CONVOLUTIONS)
    return Work(parameters, operations, rows * CONVOLUTION_PASSES * outputs, 4 * len(CONVOLUTIONS) + 5)


def work(method: str, features: int, classes: int, batch: int) -> Work:
    """Return the work of a method's step with the MLP; the pass of a cleaner before each epoch is not counted."""
    hidden = [features, HIDDEN, HIDDEN, HIDDEN]
    if method == "crosel":  # two networks, each on the batch and on as many selected rows
        one = dense([*hidden, classes], 2 * batch)
        return one.beside(one, one.chain)
    if method == "valen":  # classifier and encoder side by side, then a sample and the decoder
        wide, decoder = dense([*hidden, FEATURES, classes], batch), dense([classes, features, features], batch)
        return wide.beside(wide, wide.chain).beside(decoder, wide.chain + 7)
    return dense([*hidden, classes], batch)


def floor(result: dict[str, Any], rates: dict[str, Any]) -> dict[str, float]:
    """Return the least µs per step of a timed case, and what it is made of."""
    if result.get("net") == "resnet9":
        least = resnet9(result["classes"], result["batch"])
        half = result["computes"] == "bfloat16"
        rate = rates["bfloat16_tflops"] if half else rates.get("tf32_tflops", rates["float32_tflops"])
        size = 2 if half else 4
    else:
        least = work(result["method"], result["features"], result["classes"], result["batch"])
        rate, size = rates["float32_tflops"], 4
    held = result["runs"] * (16 * least.parameters + size * least.activations / DENSE_PASSES)  # with both moments
    moved = result["runs"] * (4 * PARAMETER_PASSES * least.parameters + size * least.activations)
    parts = {
        "bytes_us": moved / rates["copy_gb_per_s"] / 1e3 if held > rates["cache_bytes"] else 0.0,
        "operations_us": result["runs"] * least.operations / rate / 1e6,
        "chain_us": least.chain * rates["smallest_kernel_us"],
    }
    return {"floor_us": max(parts.values()), **parts, "megabytes": moved / 1e6, "chain": least.chain}


def _repeated(setting: Setting, function: Callable[[], Any], loops: int) -> list[float]:
    """Return seconds per call for several rounds, after an untimed one."""

    def many() -> None:
        for _ in range(loops):
            function()

    many()
    return [setting.seconds(many) / loops for _ in range(max(3, setting.repeats))]


def _cache(setting: Setting) -> int:
    """Return the bytes of the largest cache, or 0 if unknown."""
    if setting.cuda:
        return getattr(torch.cuda.get_device_properties(setting.place), "L2_cache_size", 0)
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size[:-1]) * 1024 for size in sizes if size.endswith("K")), default=0)


def _copy(setting: Setting, size: int) -> float:
    """Return the GB per second that a copy reads and writes."""
    source = torch.zeros(size, dtype=torch.uint8, device=setting.place)
    target = torch.ones_like(source)
    return 2 * size / median(_repeated(setting, lambda: target.copy_(source), setting.choose(20, 3, 1))) / 1e9


def _product(setting: Setting, dtype: torch.dtype, size: int) -> float:
    """Return the TFLOP per second of a large matrix product."""
    a, b = (torch.randn(size, size, device=setting.place).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    loops = setting.choose(10, 3, 1)
    return 2 * size**3 / median(_repeated(setting, lambda: torch.mm(a, b, out=out), loops)) / 1e12


def _chain(setting: Setting, length: int) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """Capture tiny kernels that depend on each other."""
    x = torch.zeros(1, device=setting.place)
    x.add_(1)
    setting.synchronise()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(length):
            x.add_(1)
    return graph, x


def measure(setting: Setting, results: dict[str, Any]) -> None:
    """Measure the peak rates."""
    results["cache_bytes"] = _cache(setting)
    megabytes = setting.choose(2048, 256, 16)
    say(f"rates: copies of {megabytes} MiB")
    results["copy_gb_per_s"] = _copy(setting, megabytes * 2**20)
    size = setting.choose(8192, 1536, 256)
    results["product_size"] = size
    say(f"rates: matrix products of {size}×{size} random numbers")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    results["float32_tflops"] = _product(setting, torch.float32, size)
    if setting.cuda:
        torch.set_float32_matmul_precision("high")
        results["tf32_tflops"] = _product(setting, torch.float32, size)
        results["bfloat16_tflops"] = _product(setting, torch.bfloat16, size)
    torch.set_float32_matmul_precision(before)
    say("rates: smallest kernel")
    if not setting.cuda:
        x = torch.zeros(1)
        results["smallest_kernel_us"] = 1e6 * median(_repeated(setting, lambda: x.add_(1), 2000))
        return
    length, loops = 200, 100
    (long, _long), (short, _short) = _chain(setting, length), _chain(setting, 1)
    many = 1e6 * median(_repeated(setting, long.replay, loops))
    one = 1e6 * median(_repeated(setting, short.replay, loops))
    results["smallest_kernel_us"] = (many - one) / (length - 1)
    results["replay_of_one_kernel_us"] = one
    results["replay_overhead_us"] = max(0.0, one - results["smallest_kernel_us"])
