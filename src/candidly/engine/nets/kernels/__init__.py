"""Fused CUDA kernels, in Triton, for what a step would otherwise spend a dozen small kernels on.

Each is the twin of plain torch operations, which run wherever these cannot: on a CPU, or where Triton is missing.
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
    """Try a kernel, once: besides Triton it takes a C compiler and a card that is not too old."""
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
    except Exception as error:  # whatever Triton or its compiler raises
        message = f"Triton's kernels do not work on {device}, training is slower without: {error}"
        warnings.warn(message, stacklevel=2)
        return False
    return True


def usable(x: Tensor) -> bool:
    """Say whether kernels can work on a tensor: on CUDA, or under Triton's interpreter (TRITON_INTERPRET=1)."""
    return (x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1") and _works(x.device)
