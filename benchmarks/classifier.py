"""The classifier as users call it: accuracy, cleaning and time of networks and scikit-learn learners on each dataset.

    python -m benchmarks.classifier measure --data DIR --jobs 4     # fills runs/classifier, a file per cell
    python -m benchmarks.classifier choose --data DIR --jobs 4      # settings of the learners' algorithm, on split 5
    python -m benchmarks.classifier collect                         # benchmarks/results/classifier.json from both
    python -m benchmarks.classifier page                            # tables of results.md and bases.md

A cell is a learner on one split of a dataset. Splits 0 to 4 are reported; nothing was chosen by them. After the name of
a dataset, `grouped` is the protocol in which no group has both training and test rows, and the classifier is given the
groups. Cells that have a file are skipped.
"""

import argparse
import functools
import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesClassifier

from benchmarks.cells import collect, fill, read, share
from benchmarks.defaults import load, machine
from candidly import PartialLabelClassifier
from candidly.candidates import Candidates
from candidly.data.dataset import Dataset
from candidly.estimator import learners
from candidly.estimator.folds import Plan, make_plan
from candidly.tables.features import Features

REAL = ("lost", "bird-song", "msrc-v2")
GROUPED = tuple(f"{name} grouped" for name in REAL)
SMALL = (*REAL, *GROUPED, "digits", "digits+uniform-0.3", "mnist-5000", "fmnist-5000")
WHOLE = ("mnist", "fmnist")  # for networks only
NETWORKS = {"networks": {}, "networks, best": {"quality": "best"}}
LEARNERS: dict[str, dict[str, Any]] = {**NETWORKS, **{name: {"base": name} for name in learners.BASES}}
REPORTED, CHOSEN = range(5), 5
RESULTS, RUNS = Path("benchmarks/results/classifier.json"), Path("runs/classifier")
PAGE, BASES_PAGE = Path("docs/evidence/results.md"), Path("docs/evidence/bases.md")
PUBLISHED = {"lost": 81.24, "bird-song": 77.76, "msrc-v2": 54.82, "mnist": 91.85, "fmnist": 79.15}
"""The best of the paper's 13 combinations on each dataset, in percent: single networks."""


def measure(place: str, learner: str, seed: int, data: str | None, device: str) -> dict[str, Any]:
    """Fit the classifier to one split, and score it on the test rows and on its own training rows."""
    torch.set_num_threads(1)
    dataset, splits = load(place, data, device)
    assert dataset.y is not None
    train, test = splits[seed]
    settings = LEARNERS[learner]
    device = "cpu" if "base" in settings else device
    classifier = PartialLabelClassifier(**settings, random_state=seed, device=device)
    S, y = dataset.S[train], dataset.y[train]
    groups = dataset.groups[train] if place in GROUPED and dataset.groups is not None else None
    rows = [dataset.X[some] for some in (train, test)]
    if "base" in settings:
        rows = [some.reshape(len(some), -1).astype(np.float32) for some in rows]
    start = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):
        classifier.fit(rows[0], Candidates(S, tuple(range(len(dataset.classes)))), groups=groups)
    seconds = time.perf_counter() - start
    kept, known = classifier.candidates_.matrix, S[np.arange(len(y)), y]
    wrong = S.copy()
    wrong[np.arange(len(y)), y] = False
    accuracy = float((classifier.predict(rows[1]) == dataset.y[test]).mean())
    return {
        "kind": "report",
        "place": place,
        "learner": learner,
        "split": seed,
        "accuracy": accuracy,
        "in_set": float((classifier.transduction_ == y).mean()),
        "true_kept": float(kept[np.arange(len(y)), y][known].mean()),
        "wrong_removed": float((wrong & ~kept).sum() / max(wrong.sum(), 1)),
        "seconds": seconds,
        "shown": f"{100 * accuracy:.1f}",
        "machine": machine(device),
    }


def settings() -> Iterator[dict[str, Any]]:
    """Return settings of the algorithm, one at a time different from the defaults."""
    yield {}
    yield {"nested": False}
    yield from ({"power": power} for power in (0.0, 1.0))
    yield from ({"parts": parts} for parts in (3, 4))
    yield from ({"rounds": rounds} for rounds in (3, 6))


def choose(place: str, setting: dict[str, Any], data: str | None) -> dict[str, Any]:
    """Measure a setting with extra-trees on split 5; return accuracies, and what the held-out rows show of it."""
    dataset, splits = load(place, data, "cpu")
    found = _choose(dataset, *splits[CHOSEN], **setting)
    label = ", ".join(f"{key} {value}" for key, value in setting.items()) or "defaults"
    return {"kind": "choose", "place": place, "learner": label, "split": CHOSEN, **found, "machine": machine("cpu")}


def _choose(
    dataset: Dataset, train: Any, test: Any, power: float = 0.5, parts: int = 2, rounds: int = 10, nested: bool = True
) -> dict[str, float]:
    assert dataset.y is not None
    seed = CHOSEN
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


def tables(cells: list[dict[str, Any]], kind: str, names: tuple[str, ...]) -> str:
    """Return a table in Markdown: rows are learners or settings, columns datasets."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for cell in cells:
        if cell["kind"] == kind and cell["place"] in names:
            found.setdefault(cell["learner"], {}).setdefault(cell["place"], []).append(cell)
    lines = [f"| | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for label in sorted(found, key=lambda name: [*LEARNERS, name].index(name)):
        texts = [_cell(found[label].get(name, [])) for name in names]
        lines.append(f"| {label} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _cell(cells: list[dict[str, Any]]) -> str:
    if not cells:
        return ""
    accuracy = 100 * np.array([cell["accuracy"] for cell in cells])
    spread = f" ± {accuracy.std(ddof=1):.1f}" if len(cells) > 1 else ""
    return f"{accuracy.mean():.1f}{spread}"


def write_pages(cells: list[dict[str, Any]]) -> None:
    """Fill the tables of the pages."""
    published = [f"{PUBLISHED[name]:.2f}" if name in PUBLISHED else "" for name in (*REAL, *WHOLE)]
    best = f"| best published single network | {' | '.join(published)} |"
    networks = [cell for cell in cells if cell["learner"] in NETWORKS]
    parts = [
        f"{tables(networks, 'report', (*REAL, *WHOLE))}\n{best}",
        tables(networks, "report", (*GROUPED, "digits", "digits+uniform-0.3")),
    ]
    fill(PAGE, "\n\n".join(parts), "classifier")
    fill(BASES_PAGE, "\n\n".join([tables(cells, "report", SMALL), tables(cells, "choose", ("msrc-v2", "lost"))]))


def main() -> None:
    """Measure, collect, or write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("measure", "choose", "collect", "page"))
    parser.add_argument("--data", help="folder with the datasets' files")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda; of networks")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no cell after this time")
    parser.add_argument("--match", default="", help="only cells whose name contains this regular expression")
    args = parser.parse_args()
    if args.part == "collect":
        collect(RUNS, RESULTS, lambda cell: str([cell[name] for name in ("kind", "place", "learner", "split")]))
    elif args.part == "page":
        write_pages(read(RESULTS))
    elif args.part == "choose":
        chosen = [(place, setting) for place in ("msrc-v2", "lost") for setting in settings()]
        share(chosen, functools.partial(choose, data=args.data), RUNS, args.jobs, args.minutes)
    else:
        whole = [(place, learner, seed) for seed in REPORTED for place in WHOLE for learner in NETWORKS]
        small = [(place, learner, seed) for seed in REPORTED for place in SMALL for learner in LEARNERS]
        named = [cell for cell in small + whole if re.search(args.match, f"{cell[0]}, {cell[1]} {cell[2]}")]
        work = functools.partial(measure, data=args.data, device=args.device)
        share(named, work, RUNS, args.jobs, args.minutes)


if __name__ == "__main__":
    main()
