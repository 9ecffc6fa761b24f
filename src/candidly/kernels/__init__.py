"""Fused CUDA kernels, in Triton, for what a step would otherwise spend a dozen small kernels on.

Each is the twin of plain torch operations, which run wherever these cannot: on a CPU, or where Triton is missing.
"""

import functools
import importlib.util
import os

from torch import Tensor


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def usable(x: Tensor) -> bool:
    """Say whether kernels can work on a tensor: on CUDA, or under Triton's interpreter (TRITON_INTERPRET=1)."""
    return (x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1") and _installed()
