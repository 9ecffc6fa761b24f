"""What cleaning while training does to networks that learn little.

    python -m benchmarks.weak tables --data DIR --jobs 2    # the classifier on tables, on a CPU
    python -m benchmarks.weak images --data DIR --jobs 2    # a small convolutional network on 5000 images of cifar10
    python -m benchmarks.weak collect                       # results/weak.json
    python -m benchmarks.weak page                          # tables of docs/cleaning.md

A cell is one training, kept in a file of runs/weak. DIR holds the files of lost, bird-song, msrc-v2 and cifar10. Each
process computes on one thread.
"""

import argparse
import functools
import itertools
import time
import warnings
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from torch import nn

from benchmarks.cells import collect, fill, read, share
from candidly import RECIPES, Conformal, PartialLabelClassifier, Problem, Proden, corrupt, data, fit

RESULTS, RUNS = Path("benchmarks/results/weak.json"), Path("runs/weak")
PAGE = Path("docs/cleaning.md")
CLEANERS = {
    "none": None,
    "conformal": Conformal(),
    "level fixed": Conformal(level="fixed"),
    "level remark": Conformal(level="remark", dkw=False),
}
SEPARATIONS = (2.0, 1.0, 0.6)  # of the classes of synthetic tables, from easy to hard
TABLES = dict.fromkeys(("lost", "bird-song", "msrc-v2")) | {f"synthetic, separation {one}": one for one in SEPARATIONS}
AUGMENTATIONS: dict[str, Any] = {"no augmentation": False, "cutout": "cutout", "strong": "strong"}
IMAGES = {f"{name}, q = {q}": (augment, q) for name, augment in AUGMENTATIONS.items() for q in (0.1, 0.5)}
SEEDS = {"tables": range(5), "images": range(2)}
CLEANERS_OF = {"tables": tuple(CLEANERS), "images": ("none", "conformal", "level remark")}
TRAIN, TEST = 5000, 2000  # images


def table(name: str, seed: int, root: str | None) -> tuple[NDArray[Any], NDArray[np.bool], NDArray[Any]]:
    """Return features, candidate sets and true labels."""
    separation = TABLES[name]
    if separation is None:
        loaded = data.load(name, root)
        assert loaded.S is not None, f"{name} has candidate sets"
        assert loaded.y is not None, f"{name} has true labels"
        return np.asarray(loaded.X), np.asarray(loaded.S), np.asarray(loaded.y)
    kinds = {"n_features": 30, "n_informative": 15, "n_redundant": 5, "n_classes": 10, "flip_y": 0}
    X, y = make_classification(4000, class_sep=separation, random_state=seed, **kinds)
    return X, corrupt.uniform(y, num_classes=10, q=0.5, seed=seed), y


def classify(kind: str, name: str, cleaner: str, seed: int, *, root: str | None) -> dict[str, Any]:
    """Fit the classifier on four fifths of a table and score it on the others."""
    torch.set_num_threads(1)
    X, S, y = table(name, seed, root)
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = np.split(order, [len(y) * 4 // 5])
    started = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):
        classifier = PartialLabelClassifier(cleaner=CLEANERS[cleaner], random_state=seed).fit(X[train], S[train])
    covering = classifier.history_["covering_rate"][-1].mean()  # of the rows that each fold holds out
    right = classifier.predict(X[test]) == y[test]
    found = {"test": round(float(right.mean()), 5), "covering": round(float(covering), 5)}
    return _cell(kind, name, cleaner, seed, found, started)


def _small() -> nn.Module:
    """Return a network with three convolutions."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise([3, 32, 64, 128]):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(OrderedDict(body=body, head=nn.Linear(128, 10)))


def train(kind: str, name: str, cleaner: str, seed: int, *, root: str | None) -> dict[str, Any]:
    """Train PRODEN on images and score it on the test images."""
    torch.set_num_threads(1)
    augment, q = IMAGES[name]
    loaded = data.load("cifar10", root)
    assert loaded.y is not None, "cifar10 has true labels"
    assert loaded.num_train is not None, "cifar10 is split"
    X, y = loaded.X[:TRAIN], np.asarray(loaded.y[:TRAIN])
    test = slice(loaded.num_train, loaded.num_train + TEST)
    mean, deviation = (X.mean((0, 2, 3))[:, None, None], X.std((0, 2, 3))[:, None, None])
    S = corrupt.uniform(y, num_classes=10, q=q, seed=seed)
    problem = Problem.of(X, S, y=y, shift=mean, scale=1 / deviation, seeds=[seed])
    views = {"augment": augment, "test_flips": bool(augment)}
    recipe = replace(RECIPES["fast"], name="30 epochs", epochs=30, batch_size=128, max_lr=0.1, **views)
    started = time.perf_counter()
    model = fit(problem, Proden(), CLEANERS[cleaner], recipe, net=_small, device="cpu", progress=False)
    right = model.predict(loaded.X[test])[0].argmax(-1).numpy() == loaded.y[test]
    found = {"test": round(float(right.mean()), 5), "kept": round(float(model.history["true_kept"][-1, 0]), 5)}
    return _cell(kind, name, cleaner, seed, found, started)


def _cell(kind: str, name: str, cleaner: str, seed: int, found: dict[str, Any], started: float) -> dict[str, Any]:
    cell = {"kind": kind, "name": name, "cleaner": cleaner, "seed": seed, **found}
    return cell | {"seconds": round(time.perf_counter() - started, 1), "shown": f"{100 * found['test']:.2f}"}


def render(kind: str, cells: list[dict[str, Any]]) -> str:
    """Return the table of the cells of one kind, with one row for each problem."""
    cleaners = CLEANERS_OF[kind]
    lines = [f"| {' | '.join(['', *cleaners])} |", f"|---|{'---|' * len(cleaners)}"]
    for name in TABLES if kind == "tables" else IMAGES:
        shown = []
        for cleaner in cleaners:
            chosen = [cell for cell in cells if (cell["kind"], cell["name"], cell["cleaner"]) == (kind, name, cleaner)]
            test = np.array([100 * cell["test"] for cell in chosen])
            text = f"{test.mean():.1f} ± {test.std(ddof=1):.1f}"
            if kind == "tables":
                text += f" ({100 * np.mean([cell['covering'] for cell in chosen]):.1f})"
            elif cleaner != "none":
                text += f" ({100 - 100 * np.mean([cell['kept'] for cell in chosen]):.0f} % lost)"
            shown.append(text)
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["tables", "images", "collect", "page"])
    parser.add_argument("--data", help="folder with the files of the datasets")
    parser.add_argument("--jobs", type=int, default=1, help="number of trainings at a time")
    parser.add_argument("--minutes", type=float, default=60, help="no training begins after this time")
    asked = parser.parse_args()
    kind = asked.task
    if kind in SEEDS:
        names = TABLES if kind == "tables" else IMAGES
        cells = [(kind, name, one, seed) for seed in SEEDS[kind] for name in names for one in CLEANERS_OF[kind]]
        work = functools.partial(classify if kind == "tables" else train, root=asked.data)
        share(cells, work, RUNS, jobs=asked.jobs, minutes=asked.minutes)
    elif kind == "collect":
        collect(RUNS, RESULTS, lambda cell: f"{cell['kind']} {cell['name']} {cell['cleaner']} {cell['seed']}")
    else:
        for kind in SEEDS:
            fill(PAGE, render(kind, read(RESULTS)), f"weak {kind}")


if __name__ == "__main__":
    main()
