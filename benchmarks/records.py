"""Fitted classifiers without their networks: what an audit or a certificate needs, beside the true labels."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from candidly import PartialLabelClassifier
from candidly.cleaning import Budget
from candidly.estimator import FitRecord

FOLDER = Path("runs/trust/records")


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted classifier's training rows.

    Attributes
    ----------
    problem : tuple
        Dataset or base, kind and seed.
    record : FitRecord
        The rows with the probabilities of their candidates.
    budget : Budget
        The rule that removes candidates.
    y : Tensor of int, shape (n,)
        True labels.
    facts : dict
        What else was measured when the classifier was fitted.
    """

    problem: tuple[str, str, int]
    record: FitRecord
    budget: Budget
    y: Tensor
    facts: dict[str, Any]


def path(problem: tuple[str, str, int]) -> Path:
    """Return the file of a problem."""
    return FOLDER / ("_".join(map(str, problem)).replace(" ", "-") + ".safetensors")


def write(
    problem: tuple[str, str, int], fitted: PartialLabelClassifier, y: NDArray[Any], facts: dict[str, Any]
) -> None:
    """Write what `read` returns."""
    assert fitted.fit_record_ is not None
    assert fitted.budget_ is not None
    tensors, budget = fitted.budget_.parts()
    record = fitted.fit_record_.tensors()
    counts = {"y": torch.from_numpy(y).int(), "counts": fitted.calibration_.counts}
    words = {"problem": problem, "classes": len(fitted.classes_), "budget": budget, "facts": facts}
    FOLDER.mkdir(parents=True, exist_ok=True)
    save_file({**record, **tensors, **counts}, path(problem), {"json": json.dumps(words)})


def read(file: Path) -> Fitted:
    """Read a file that `write` wrote."""
    with safe_open(file, "pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (it is not a mapping)
        words = json.loads(opened.metadata()["json"])
    y, counts = tensors.pop("y").long(), tensors.pop("counts")
    budget = Budget.of_parts({"inseparable": tensors.pop("inseparable")}, words["budget"], words["classes"])
    classes = tuple(range(words["classes"]))
    record = FitRecord.of_tensors(tensors, classes, counts, {}, 0.0, file.stat().st_size)
    return Fitted(tuple(words["problem"]), record, budget, y, words["facts"])


def read_all(pattern: str = "*") -> list[Fitted]:
    """Read all records whose file names match."""
    return [read(file) for file in sorted(FOLDER.glob(f"{pattern}.safetensors"))]
