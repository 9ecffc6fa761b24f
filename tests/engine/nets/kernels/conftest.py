"""Kernels run on the GPU where there is one, elsewhere on the CPU under Triton's interpreter."""

import functools
import importlib
import pkgutil

import pytest
import torch

from candidly.engine.nets import kernels


@functools.cache
def _interpret():
    """Decorate Triton's own library and all kernels again, now that TRITON_INTERPRET is set.

    Triton reads the variable when it decorates a function, and other tests may have imported these modules without it.
    They stay interpreted, which no other test sees: without the variable nothing calls kernels on a CPU.
    """
    interpreter = importlib.import_module("triton.runtime.interpreter")
    patch = interpreter._patch_lang_tensor

    def patch_index(tensor, scope):  # NumPy 2.4 refuses the conversion in Triton 3.6 (triton-lang/triton#9171)
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_index
    ours = [f"candidly.engine.nets.kernels.{module.name}" for module in pkgutil.iter_modules(kernels.__path__)]
    for name in ("triton.language.standard", "triton.language", *ours):
        importlib.reload(importlib.import_module(name))


@pytest.fixture
def device(monkeypatch):
    """Where to put tensors for kernels; `kernels.usable` holds for them during the test."""
    pytest.importorskip("triton", reason="Triton is not installed")
    if torch.cuda.is_available():
        return torch.device("cuda")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    _interpret()
    return torch.device("cpu")
