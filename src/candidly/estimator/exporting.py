"""Exporting the networks of a classifier to programs that run without candidly: ONNX and torch.export files.

The program takes encoded rows, as ``classifier.features_.transform(X)`` returns them: numbers in float32, or images in
bytes. It contains each network's scaling and the mean over all networks, and returns probabilities in the order of
``classifier.classes_``.
"""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from candidly import __version__, store
from candidly.engine.batches import scaled
from candidly.engine.model import Model

ONNX, TORCH = ".onnx", ".pt2"
FORMATS = (ONNX, TORCH)
"""Endings of files: ONNX, and programs of torch.export."""

_INPUT, _OUTPUT = "x", "probabilities"
_EXAMPLE_ROWS = 2  # with a single row, the number of rows would be taken for a constant


class Ensemble(nn.Module):
    """The mean of all networks of a model, as one module from encoded rows (n, ...) to probabilities (n, C)."""

    def __init__(self, model: Model):
        super().__init__()
        self._model = model
        for name, net in model.method.networks().items():
            self.add_module(name, net)

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities; each row sums to 1."""
        problem = self._model.problem
        p = self._model.method.predict(scaled(x.expand(problem.runs, *x.shape), problem)).mean(0)
        return p / p.sum(-1, keepdim=True)


def export(model: Model, path: Path) -> None:
    """Write the networks to a file that ends in .onnx or .pt2."""
    if path.suffix not in FORMATS:
        raise ValueError(f"the model cannot be exported to {path.name!r}; use a name that ends in .onnx or .pt2")
    model = model.to("cpu").without_rows()
    about = {"candidly": __version__, "classes": json.dumps([str(name) for name in model.classes])}
    with _quiet():
        example = torch.zeros(_EXAMPLE_ROWS, *model.shape, dtype=model.problem.X.dtype)
        rows = {_INPUT: {0: torch.export.Dim("rows", min=1)}}
        program = torch.export.export(Ensemble(model).eval(), (example,), dynamic_shapes=rows)
        content = _to_onnx(program, about) if path.suffix == ONNX else _to_torch(program, about)
    store.replace(path, content)


def _to_onnx(program: torch.export.ExportedProgram, about: dict[str, str]) -> bytes:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        missing = f"exporting to ONNX needs {error.name}, which is not installed"
        raise ModuleNotFoundError(f"{missing}; run `pip install 'candidly[onnx]'`", name=error.name) from error
    exported = torch.onnx.export(program, dynamo=True, input_names=[_INPUT], output_names=[_OUTPUT], verbose=False)
    assert exported is not None
    proto = exported.model_proto
    for key, value in about.items():
        proto.metadata_props.add(key=key, value=value)
    return bytes(proto.SerializeToString())


def _to_torch(program: torch.export.ExportedProgram, about: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files=about)
    return buffer.getvalue()


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch says about its own exporters: deprecations, and packages that are not needed."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
