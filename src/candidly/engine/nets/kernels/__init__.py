"""Fused CUDA kernels in Triton, each of which replaces about a dozen small kernels of a step.

Each has an equivalent in plain torch operations, which is used on a CPU and where Triton does not work.
"""

import functools
import importlib.util
import os
import threading
import warnings

import torch
from torch import Tensor

_trying = threading.Lock()


def _works(device: torch.device) -> bool:
    """Return whether a kernel runs, tried once per device: Triton needs a C compiler and a recent enough GPU."""
    with _trying:
        return _try(device)


@functools.cache
def _try(device: torch.device) -> bool:
    if importlib.util.find_spec("triton") is None:
        return False
    if device.type != "cuda":
        return True
    try:
        from candidly.engine.nets.kernels import dense

        flat, mean, square, gradient = torch.zeros(4, 16, device=device)
        table, clock = torch.ones(1, 3, device=device), torch.zeros(1, dtype=torch.int64, device=device)
        dense.adam(flat, mean, square, gradient, table, clock, 0.0, 0.5)
        torch.cuda.current_stream(device).synchronize()
    except Exception as error:  # Triton and its compiler raise many types
        message = f"Triton's kernels do not work on {device}; training is slower without them: {error}"
        warnings.warn(message, stacklevel=2)
        return False
    return True


def usable(x: Tensor) -> bool:
    """Return whether kernels can be used on a tensor: on CUDA, or with Triton's interpreter (TRITON_INTERPRET=1)."""
    return (x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1") and _works(x.device)
