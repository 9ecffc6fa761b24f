"""Pretrained features of cifar10: what CLSP removes, and the classifier.

    python -m benchmarks.encode --data DIR --out cifar10-features.npz
    python -m benchmarks.features prune cifar10-features.npz --data DIR    # into results/features.json
    python -m benchmarks.features classify cifar10-features.npz            # into the same file
    python -m benchmarks.features page                                     # tables of docs/evidence/images.md

Instance-dependent sets are made by the paper's perceptron, trained on the features and the true labels.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.cells import fill
from candidly import PartialLabelClassifier, data, metrics
from candidly.bench.datasets import load
from candidly.cleaning import Clsp
from candidly.data.protocols import scaling
from candidly.engine.nets.neighbours import nearest

RESULTS = Path(__file__).parent / "results" / "features.json"
PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "images.md"
SETS = {
    "uniform-0.1": "uniform, q = 0.1",
    "uniform-0.5": "uniform, q = 0.5",
    "label-dependent": "label-dependent",
    "instance-dependent-0.8": "instance-dependent",
}
PUBLISHED = {
    "uniform-0.1": (150, 0.6),
    "uniform-0.5": (150, 0.6),
    "label-dependent": (50, 0.6),
    "instance-dependent-0.8": (5, 0.2),
}
OURS = (Clsp().k, Clsp().tau)
SETTINGS = list(dict.fromkeys([OURS, *PUBLISHED.values()]))
CLASSIFIED = ("uniform-0.1", "uniform-0.5", "instance-dependent-0.8")


def say(line: str) -> None:
    print(line, flush=True)


def keep(section: str, found: Any) -> None:
    """Write what was measured into the file of results."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(known | {section: found}, indent=1) + "\n", encoding="utf-8")


def candidate_sets(features: str, kind: str, kept: Path) -> tuple[Tensor, Tensor]:
    """Return candidate sets and true labels of the training rows."""
    dataset = load(f"{features}+{kind}", kept)
    n = dataset.num_train
    assert dataset.y is not None, "cifar10 has true labels"
    return torch.from_numpy(dataset.S[:n]), torch.from_numpy(dataset.y[:n])


def find_neighbours(features: str, root: str | None) -> dict[str, Tensor]:
    """Return the nearest training rows, in the encoder's features and in pixels with standardised channels."""
    known = data.load(features)
    images = data.load("cifar10", root)
    shift, scale = scaling(images)
    pixels = (images.X[: images.num_train] - shift) * scale
    spaces = {"features": known.X[: known.num_train], "pixels": pixels.reshape(len(pixels), -1)}
    found = {}
    for name, rows in spaces.items():
        started = time.perf_counter()
        unit = F.normalize(torch.from_numpy(rows).float(), dim=-1)
        found[name] = nearest(unit, max(k for k, _ in SETTINGS))
        say(f"{name}: neighbours of {len(rows)} rows found in {time.perf_counter() - started:.0f} s")
    return found


def prune(features: str, root: str | None, kept: Path) -> list[dict[str, Any]]:
    """Measure what CLSP removes by the neighbours in each space, for each kind of sets and all settings."""
    neighbours = find_neighbours(features, root)
    found = []
    for kind in SETS:
        S, y = candidate_sets(features, kind, kept)
        for space, rows in neighbours.items():
            for k, tau in SETTINGS:
                left = Clsp(k, tau).prune(S, rows[:, :k])
                cell = {
                    "sets": kind,
                    "candidates": float(S.sum(-1).double().mean()),
                    "space": space,
                    "k": k,
                    "tau": tau,
                }
                cell["error"] = float(metrics.pruning_error(S, left, y))
                cell["coverage"] = float(metrics.pruning_coverage(S, left))
                cell["f"] = float(metrics.pruning_f(S, left, y))
                found.append(cell)
                say(json.dumps(cell))
    return found


def classify(features: str, kept: Path, seeds: int) -> list[dict[str, Any]]:
    """Fit the default classifier to the training rows, and score it on the test rows."""
    known = data.load(features)
    n = known.num_train
    assert n is not None, "cifar10 is split"
    assert known.y is not None, "cifar10 has true labels"
    found = []
    for kind in CLASSIFIED:
        S, y = candidate_sets(features, kind, kept)
        for seed in range(seeds):
            started = time.perf_counter()
            classifier = PartialLabelClassifier(random_state=seed).fit(known.X[:n].astype(np.float32), S.numpy())
            seconds = time.perf_counter() - started
            left = torch.tensor(np.asarray(classifier.candidates_))
            right = classifier.predict(known.X[n:].astype(np.float32)) == known.y[n:]
            cell = {"sets": kind, "seed": seed, "accuracy": float(right.mean()), "seconds": round(seconds, 1)}
            cell["true_kept"] = float(metrics.true_kept(S, left, y))
            cell["wrong_removed"] = float(metrics.wrong_removed(S, left, y))
            found.append(cell)
            say(json.dumps(cell))
    return found


def page(results: dict[str, Any]) -> None:
    """Write the tables."""
    cells = {(one["sets"], one["space"], one["k"], one["tau"]): one for one in results["prune"]}
    lines = [
        "| sets | candidates | k, τ | features: error | coverage | F | pixels: error | coverage | F |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, title in SETS.items():
        for setting, name in ((PUBLISHED[kind], "published"), (OURS, "default")):
            both = [cells[kind, space, *setting] for space in ("features", "pixels")]
            numbers = [f"{100 * one[key]:.1f}" for one in both for key in ("error", "coverage", "f")]
            k, tau = setting
            lines.append(f"| {title} | {both[0]['candidates']:.2f} | {k}, {tau} ({name}) | {' | '.join(numbers)} |")
    fill(PAGE, "\n".join(lines), "clsp on features")
    lines = [
        "| sets | test accuracy | true labels kept | wrong candidates removed | seconds |",
        "|---|---|---|---|---|",
    ]
    for kind in CLASSIFIED:
        rows = [one for one in results["classify"] if one["sets"] == kind]
        accuracy = np.array([100 * one["accuracy"] for one in rows])
        spread = f" ± {accuracy.std(ddof=1):.2f}" if len(rows) > 1 else ""
        kept, removed, seconds = (
            np.mean([one[key] for one in rows]) for key in ("true_kept", "wrong_removed", "seconds")
        )
        shown = f"{accuracy.mean():.2f}{spread} | {100 * kept:.1f} % | {100 * removed:.1f} % | {seconds:.0f}"
        lines.append(f"| {SETS[kind]} | {shown} |")
    fill(PAGE, "\n".join(lines), "classifier on features")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["prune", "classify", "page"])
    parser.add_argument("features", nargs="?", help="the file that benchmarks.encode wrote")
    parser.add_argument("--data", help="folder with the files of the datasets")
    parser.add_argument("--kept", type=Path, default=Path("runs/candidates"), help="folder of generated candidate sets")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    if given.task == "page":
        page(json.loads(RESULTS.read_text(encoding="utf-8")))
    elif given.task == "prune":
        keep("prune", prune(given.features, given.data, given.kept))
    else:
        keep("classify", classify(given.features, given.kept, given.seeds))


if __name__ == "__main__":
    main()
