"""Datasets of experiments: their names, and generated candidate sets, which are saved and used again.

A name such as ``cifar10+long-tailed-0.01+uniform-0.1`` is a dataset and steps that change it, from left to right:

- ``uniform-Q``, ``hierarchical-Q``, ``uniform-superset``, ``label-dependent``, ``noisy-Q-ETA``: candidate sets;
- ``instance-dependent`` and ``instance-dependent-RATE``: candidate sets from a network trained on true labels;
- ``long-tailed-RHO``: fewer rows of the later classes.

The steps are functions of `candidly.corrupt`, applied to the training rows if the dataset has a published split and to
all rows otherwise. If no step makes candidate sets, the image datasets get those of the paper, and `digits` gets
instance-dependent ones.
"""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly import data, store
from candidly.candidates import Candidates
from candidly.data import corrupt
from candidly.data.dataset import Dataset
from candidly.data.protocols import default, scaling
from candidly.engine.description import describe
from candidly.store import states
from candidly.store.lock import locked

SEED = 0  # for all candidate sets: they belong to the dataset, not to a run
DEFAULT_STEPS = {
    "digits": "instance-dependent-0.4",
    "mnist": "instance-dependent-0.8",
    "fmnist": "instance-dependent-0.8",
    "kmnist": "instance-dependent-0.8",
    "svhn": "instance-dependent-0.8",
    "cifar10": "uniform-0.1",
    "cifar100": "hierarchical-0.1",
}
_FEW_ROWS = 10_000  # with fewer, the published training of the network for instance-dependent sets is too short

# The possible numbers of arguments of each step.
_STEPS = {
    "uniform": (1,),
    "hierarchical": (1,),
    "uniform-superset": (0,),
    "label-dependent": (0,),
    "noisy": (2,),
    "instance-dependent": (0, 1),
    "long-tailed": (1,),
}


def load(name: str, kept: Path, root: str | None = None, download: bool = False, device: str = "auto") -> Dataset:
    """Load a dataset with its candidate sets.

    Parameters
    ----------
    name
        A dataset or the path of a file, and the steps that change it.
    kept
        The folder of generated candidate sets: those found there are used, new ones are saved there.
    root, download
        As in `candidly.data.load`.
    device
        The device on which the network for instance-dependent sets trains.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load("digits+uniform-0.5", Path(folder))
    Dataset('digits+uniform-0.5': 1797 rows, 64 features, 10 classes, 5.47 candidates per row)
    """
    base, *parts = _split(name)
    steps = [_parse(step) for step in parts]
    dataset = data.load(base, root, download=download)
    if os.path.isfile(base) and base != dataset.name and dataset.name in data.REGISTRY:
        raise ValueError(f"{base} would be called {dataset.name!r}, the name of a published dataset; rename the file")
    if base in DEFAULT_STEPS and all(step == "long-tailed" for step, _ in steps):
        steps.append(_parse(DEFAULT_STEPS[base]))
    for step, numbers in steps:
        dataset = _apply(dataset, step, numbers, kept, device)
    return replace(dataset, name="+".join([dataset.name, *parts]))


def absolute(name: str) -> str:
    """Return the name of a dataset, with the absolute path if it is a file: for processes in other folders.

    Examples
    --------
    >>> absolute("digits+uniform-0.3")
    'digits+uniform-0.3'
    """
    base, *steps = _split(name)
    return "+".join([os.path.abspath(base) if os.path.isfile(base) else base, *steps])


def _split(name: str) -> list[str]:
    """Split a name into dataset and steps; the name of a file may contain a plus: take the longest that exists."""
    parts = name.split("+")
    files = [k for k in range(len(parts), 0, -1) if os.path.isfile("+".join(parts[:k]))]
    k = files[0] if files else 1
    return ["+".join(parts[:k]), *parts[k:]]


def fingerprint(dataset: Dataset, *, grouped: bool = False) -> str:
    """Hash the content of a dataset, without its name; its groups only if results depend on them."""
    content = {key: describe(value) for key, value in vars(dataset).items() if key not in ("name", "groups")}
    # Results that were hashed before rows had groups called superclasses "groups".
    content["groups"] = content.pop("superclasses")
    if grouped:
        content["groups of rows"] = describe(dataset.groups)
    return store.digest(content)


def _parse(step: str) -> tuple[str, tuple[float, ...]]:
    match = re.fullmatch(r"([a-z-]+?)((?:-\d+(?:\.\d+)?)*)", step)
    name, numbers = (match[1], tuple(float(number) for number in match[2].split("-")[1:])) if match else (step, ())
    if name not in _STEPS:
        raise ValueError(f"unknown step {step!r} after the name of a dataset; known are {', '.join(_STEPS)}")
    if len(numbers) not in _STEPS[name]:
        wanted = " or ".join(map(str, _STEPS[name]))
        raise ValueError(f"step {step!r} has {len(numbers)} numbers but takes {wanted}; write it as {name}-0.1")
    return name, numbers


def _apply(dataset: Dataset, step: str, numbers: tuple[float, ...], kept: Path, device: str) -> Dataset:
    """Change the training rows, or all rows if the dataset has no published split."""
    if dataset.y is None:
        raise ValueError(f"dataset {dataset.name!r} has no true labels, which {step} needs; remove the step")
    n = len(dataset.X) if dataset.num_train is None else dataset.num_train
    part = dataset.take(slice(n), num_train=dataset.num_train)
    if step == "long-tailed":
        tail = corrupt.long_tailed(dataset.y[:n], len(dataset.classes), numbers[0], SEED)
        rows = np.concatenate([tail, np.arange(n, len(dataset.X))])
        left = None if dataset.num_train is None else len(tail)
        return dataset.take(rows, num_train=left)
    if part.S.sum() > len(part.S):
        raise ValueError(
            f"dataset {dataset.name!r} has candidate sets, which {step} would replace by others made from true labels; "
            "remove the step, or use a dataset with one label per row"
        )
    facts = {"dataset": fingerprint(part), "step": step, "numbers": list(numbers), "seed": SEED}
    folder = kept / f"{step}-{store.digest(facts)}"
    with locked(folder / "lock", wait=True):
        if not (folder / "candidates.json").is_file():
            Candidates(_make(part, step, numbers, device), dataset.classes).save(folder, facts)
    try:
        states.tidy(folder, stem="candidates")
        S = Candidates.load(folder).matrix
    except ValueError as error:
        raise ValueError(f"{error}; or remove {folder} to generate the sets again") from error
    return replace(dataset, S=np.concatenate([S, dataset.S[n:]]))


def _make(dataset: Dataset, step: str, numbers: tuple[float, ...], device: str) -> NDArray[np.bool_]:
    y, num_classes = dataset.y, len(dataset.classes)
    assert y is not None
    match step:
        case "uniform":
            return corrupt.uniform(y, num_classes, numbers[0], SEED)
        case "hierarchical":
            return corrupt.hierarchical(y, _superclasses(dataset), numbers[0], SEED)
        case "uniform-superset":
            return corrupt.uniform_superset(y, num_classes, SEED)
        case "label-dependent":
            return corrupt.label_dependent(y, num_classes, SEED)
        case "noisy":
            return corrupt.noisy(y, num_classes, numbers[0], numbers[1], SEED)
        case _:
            return _instance_dependent(dataset, y, device, *numbers)


def _superclasses(dataset: Dataset) -> tuple[int, ...]:
    if dataset.superclasses is None:
        raise ValueError(
            f"the classes of {dataset.name!r} have no superclasses, which hierarchical needs; use uniform instead"
        )
    return dataset.superclasses


def _instance_dependent(
    dataset: Dataset, y: NDArray[np.int64], device: str, rate: float | None = None
) -> NDArray[np.bool_]:
    """Make candidate sets by a network trained on images as the protocols prepare them, or on standardised features."""
    X = default(dataset).X
    shift, scale = scaling(dataset)
    if scale is None:
        spread = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return corrupt.instance_dependent(
        X,
        y,
        len(dataset.classes),
        SEED,
        rate=rate,
        net=find_net(X),
        recipe="quick" if len(X) < _FEW_ROWS else None,
        device=device,
        shift=shift,
        scale=scale,
    )


def find_net(X: NDArray[Any]) -> str:
    """Return the name of the paper's network for prepared features: ResNet-9 for colour images, otherwise the MLP."""
    return "resnet9" if X.ndim == 4 else "mlp"
