"""scikit-learn classifiers as learners of the classifier: accuracy and time, beside the default networks.

    python -m benchmarks.bases --data DIR --out benchmarks/results/bases.json
    python -m benchmarks.bases --page                       # the tables of docs/evidence/bases.md from that file

Every cell fits `PartialLabelClassifier` with five folds to one split of the uai2025 protocol. `--choose` measures the
settings of the algorithm (power of the class frequencies, parts, rounds, nested folds or not) on split 5 instead.
Cells in the file are skipped. Seconds are those of the processor; run it on one core, with OMP_NUM_THREADS=1.
"""

import argparse
import functools
import json
import platform
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.ensemble import ExtraTreesClassifier

from candidly import PartialLabelClassifier, store
from candidly.bench import datasets as sets
from candidly.candidates import Candidates
from candidly.data.dataset import Dataset
from candidly.data.protocols import PROTOCOLS
from candidly.estimator import learners
from candidly.estimator.folds import Plan, make_plan
from candidly.tables.features import Features

PROTOCOL = PROTOCOLS["uai2025"]
TABLES = ("lost", "msrc-v2", "bird-song", "digits+instance-dependent-0.4", "digits+uniform-0.3")
IMAGES = ("mnist", "fmnist")  # with their published kind of candidate sets
MOST_ROWS = 5000  # training and test rows of images, together
NETWORKS = "networks"
REPORTED, CHOSEN = (0, 1), (5,)
PAGE = Path("docs/evidence/bases.md")
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


@functools.cache
def load(name: str, data: str | None, kept: Path) -> Dataset:
    """Load a dataset with its candidate sets, once."""
    return PROTOCOL.prepare(sets.load(name, kept, data, device="cpu"))


def split(dataset: Dataset, seed: int) -> tuple[Any, Any]:
    """Return training and test rows; of images, four fifths and one fifth of a random subset of all rows."""
    if dataset.X.dtype != np.uint8:
        return PROTOCOL.rows(dataset, seed)
    chosen = np.random.default_rng(seed).permutation(len(dataset.X))[:MOST_ROWS]
    return chosen[: MOST_ROWS * 4 // 5], chosen[MOST_ROWS * 4 // 5 :]


def measure(dataset: Dataset, base: str | None, seed: int) -> dict[str, float]:
    """Fit the classifier to one split; return accuracy, in-set accuracy of training rows, and seconds."""
    train, test = split(dataset, seed)
    assert dataset.y is not None
    X = dataset.X.astype(np.float32) / 255 if dataset.X.dtype == np.uint8 else dataset.X
    classifier = PartialLabelClassifier(base=base, random_state=seed, device="cpu")
    start = time.process_time()
    classifier.fit(X[train], Candidates(dataset.S[train], tuple(range(len(dataset.classes)))))
    seconds = time.process_time() - start
    return {
        "accuracy": float((classifier.predict(X[test]) == dataset.y[test]).mean()),
        "in_set": float((classifier.transduction_ == dataset.y[train]).mean()),
        "true_kept": float(classifier.candidates_.matrix[np.arange(len(train)), dataset.y[train]].mean()),
        "seconds": seconds,
    }


def settings() -> Iterator[dict[str, Any]]:
    """Return settings of the algorithm, one at a time different from the defaults."""
    yield {}
    yield {"nested": False}
    yield from ({"power": power} for power in (0.0, 1.0))
    yield from ({"parts": parts} for parts in (3, 4))
    yield from ({"rounds": rounds} for rounds in (3, 6))


def choose(
    dataset: Dataset, seed: int, power: float = 0.5, parts: int = 2, rounds: int = 10, nested: bool = True
) -> dict[str, float]:
    """Measure a setting with extra-trees; return accuracies, and what the held-out rows show of it."""
    train, test = split(dataset, seed)
    assert dataset.y is not None
    S, y = dataset.S[train], dataset.y[train]
    features = Features.fit(dataset.X[train])
    X, X_test = features.transform(dataset.X[train]), features.transform(dataset.X[test])
    plan = make_plan(X, S, np.ones(len(X), np.intp), 5, 0, np.random.default_rng(seed))
    before = learners.PRIOR_POWER, learners.PARTS
    learners.PRIOR_POWER, learners.PARTS = power, parts
    base = ExtraTreesClassifier(50)
    start = time.process_time()
    try:
        if nested:
            sets_ = Candidates(S, tuple(range(S.shape[1])))
            stream = np.random.SeedSequence(seed)
            model = learners.train(X, sets_, plan, None, stream, base, rounds=rounds, members=1, progress=False)
            estimators, counts = model.estimators, model.rows
        else:
            estimators, counts = fit_together(X, S, plan, base, rounds, seed)
    finally:
        learners.PRIOR_POWER, learners.PARTS = before
    seconds = time.process_time() - start
    rows = np.concatenate([X, X_test])
    pairs = zip(estimators, counts, strict=True)
    p = np.stack([learners.probabilities(one, rows, S.shape[1], count) for one, count in pairs])
    held_out = p[plan.row_fold, np.arange(len(X))]
    inside = np.where(S, held_out, 0)
    return {
        "accuracy": float((p[:, len(X) :].mean(0).argmax(1) == dataset.y[test]).mean()),
        "in_set": float((inside.argmax(1) == y).mean()),
        "held_out": float((held_out.argmax(1) == y).mean()),
        "covering": float(S[np.arange(len(S)), held_out.argmax(1)].mean()),
        "test_covering": float(dataset.S[test, p[:, len(X) :].argmax(2)].mean()),
        "seconds": seconds,
    }


def fit_together(X: Any, S: Any, plan: Plan, base: Any, rounds: int, seed: int) -> tuple[list[Any], list[int]]:
    """Fit with one division for all folds: each fold's rows are weighted by classifiers fitted to all other folds."""
    X, S = X[plan.index], S[plan.index]
    q = learners.initial_weights(S, None)
    fitting = learners._Fitting(base, np.random.default_rng(seed), argparse.Namespace(update=lambda: None))
    for _ in range(rounds):
        p = np.empty(q.shape)
        for k in range(plan.folds):
            trained, out = plan.trained(k), plan.held_out(k)
            p[out] = learners.probabilities(fitting.fit(X[trained], q[trained]), X[out], S.shape[1], len(trained))
        frequency = np.maximum(q.sum(0), 0.5) / len(q)
        q = np.where(S, p / frequency**learners.PRIOR_POWER, 0)
        q /= q.sum(1, keepdims=True)
    trained = [plan.trained(k) for k in range(plan.folds)]
    return [fitting.fit(X[rows], q[rows], last=True) for rows in trained], [len(rows) for rows in trained]


def cells(chosen: bool, datasets: list[str], bases: list[str]) -> Iterator[tuple[str, str, int, dict[str, Any]]]:
    """Return dataset, name, split and arguments of every cell."""
    if chosen:
        for name in datasets:
            for setting in settings():
                label = ", ".join(f"{key} {value}" for key, value in setting.items()) or "defaults"
                yield from ((name, label, seed, setting) for seed in CHOSEN)
        return
    for seed in REPORTED:
        for name in datasets:
            for base in bases:
                yield name, base, seed, {"base": None if base == NETWORKS else base}


def run(args: argparse.Namespace) -> None:
    """Measure the cells that are not in the file yet."""
    found = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {"cells": {}}
    found["machine"] = {"python": platform.python_version(), "scikit-learn": sklearn.__version__, "cores": 1}
    begun = time.monotonic()
    for name, label, seed, arguments in cells(args.choose, args.datasets, args.bases):
        key = " | ".join(["choose" if args.choose else "report", name, label, str(seed)])
        if key in found["cells"]:
            continue
        if time.monotonic() - begun > 60 * args.minutes:
            print(f"{args.minutes:g} minutes are over", flush=True)
            return
        dataset = load(name, args.data, args.kept)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cell = choose(dataset, seed, **arguments) if args.choose else measure(dataset, seed=seed, **arguments)
        found["cells"][key] = cell
        store.replace(args.out, (json.dumps(found, indent=1) + "\n").encode())
        print(key, {name: round(value, 4) for name, value in cell.items()}, flush=True)


def tables(found: dict[str, Any]) -> str:
    """Return the tables of the page."""
    groups: dict[str, dict[str, dict[str, list[dict[str, float]]]]] = {"report": {}, "choose": {}}
    for key, cell in found["cells"].items():
        kind, dataset, label, _ = key.split(" | ")
        groups[kind].setdefault(label, {}).setdefault(dataset, []).append(cell)
    return "\n\n".join(_table(rows, head) for rows, head in ((groups["report"], "base"), (groups["choose"], "setting")))


def _table(rows: dict[str, dict[str, list[dict[str, float]]]], head: str) -> str:
    datasets = list(dict.fromkeys(dataset for cells in rows.values() for dataset in cells))
    lines = [f"| {head} | {' | '.join(datasets)} |", "|---" * (1 + len(datasets)) + "|"]
    for label, found in rows.items():
        texts = []
        for dataset in datasets:
            cells = found.get(dataset, [])
            if not cells:
                texts.append("")
                continue
            names = ("accuracy", "in_set", "seconds")
            accuracy, in_set, seconds = (np.mean([cell[name] for cell in cells]) for name in names)
            texts.append(f"{100 * accuracy:.1f} / {100 * in_set:.1f} ({seconds:.0f} s)")
        lines.append(f"| {label} | {' | '.join(texts)} |")
    return "\n".join(lines)


def write_page(out: Path, page: Path = PAGE) -> None:
    """Replace the tables between the markers of the page."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    text = tables(json.loads(out.read_text(encoding="utf-8")))
    store.replace(page, f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}".encode())


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the datasets' files")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/bases.json"))
    parser.add_argument("--kept", type=Path, default=Path("runs/bases"), help="folder for generated candidate sets")
    parser.add_argument("--datasets", type=lambda text: text.split(","), default=list(TABLES))
    parser.add_argument("--bases", type=lambda text: text.split(","), default=[NETWORKS, *learners.BASES])
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no cell after this time")
    parser.add_argument("--choose", action="store_true", help="measure settings of the algorithm")
    parser.add_argument("--page", action="store_true", help="write docs/evidence/bases.md and measure nothing")
    args = parser.parse_args()
    if args.page:
        write_page(args.out)
    else:
        run(args)


if __name__ == "__main__":
    main()
