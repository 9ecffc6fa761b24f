"""What answers from a person buy: rows checked in the order of their doubt, against rows drawn at random.

    python -m benchmarks.loop run --data DIR --jobs 2   # fits the default classifier: runs/loop
    python -m benchmarks.loop page                      # benchmarks/results/loop.json, and docs/evidence/trust.md

The default classifier is fitted to the training rows of the protocol uai2025. Some rows get an answer: their
candidates become the true label, and the classifier is fitted again. Measured are the learned labels of all training
rows, those of the rows without an answer, and predictions for test rows.
"""

import argparse
import functools
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.cells import collect, fill, read, share
from candidly import PartialLabelClassifier
from candidly.bench import datasets as sets
from candidly.data.protocols import PROTOCOLS

PROTOCOL = PROTOCOLS["uai2025"]
DATASETS = ("lost", "bird-song", "msrc-v2")
SEEDS = (0, 1)
ANSWERS = (0, 50, 100, 200)
ORDERS = ("random", "doubtful")
RESULTS = Path("benchmarks/results/loop.json")
RUNS = Path("runs/loop")
PAGE = Path("docs/evidence/trust.md")


def measure(name: str, seed: int, data: str | None) -> dict[str, Any]:
    """Return accuracies after each number of answers, in both orders."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    dataset = PROTOCOL.prepare(sets.load(name, RUNS, data))
    assert dataset.y is not None
    rows, test = PROTOCOL.rows(dataset, seed)
    X, S, y = dataset.X[rows], dataset.S[rows], dataset.y[rows]

    def fit(answered: Any) -> tuple[PartialLabelClassifier, dict[str, float]]:
        candidates = S.copy()
        candidates[answered] = np.eye(S.shape[1], dtype=bool)[y[answered]]
        with warnings.catch_warnings(action="ignore"):
            classifier = PartialLabelClassifier(random_state=seed, device="cpu").fit(X, candidates)
        right = classifier.transduction_ == y
        others = np.ones(len(y), dtype=bool)
        others[answered] = False
        predicted = classifier.predict(dataset.X[test])
        return classifier, {
            "learned": float(right.mean()),
            "others": float(right[others].mean()),
            "test": float((predicted == dataset.y[test]).mean()),
        }

    first, found = fit([])
    orders = {
        "random": np.random.default_rng(seed).permutation(len(y)),
        "doubtful": np.argsort(first.priority_),
    }
    results = {"0 random": found, "0 doubtful": found}
    for order in ORDERS:
        for m in ANSWERS[1:]:
            wrong = int((first.transduction_ != y)[orders[order][:m]].sum())
            results[f"{m} {order}"] = fit(orders[order][:m])[1] | {"corrected": wrong}
    return {"problem": [name, seed], "rows": len(y), "results": results, "seconds": time.perf_counter() - start}


def page(results: list[dict[str, Any]]) -> str:
    """Return the table of accuracies in percent, means over the seeds."""
    lines = [
        "| dataset | rows checked | wrong labels among them | learned labels | of the other rows | test rows |",
        "|---|---|---|---|---|---|",
    ]
    for name in DATASETS:
        of = [one["results"] for one in results if one["problem"][0] == name]
        for m in ANSWERS:
            for order in ORDERS if m else ORDERS[:1]:
                some = [one[f"{m} {order}"] for one in of]
                learned, others, test = (
                    f"{100 * float(np.mean([one[what] for one in some])):.1f}" for what in ("learned", "others", "test")
                )
                wrong = f"{np.mean([one['corrected'] for one in some]):.0f}" if m else "–"
                lines.append(
                    f"| {name} | {f'{m}, {order}' if m else 'none'} | {wrong} | {learned} | {others} | {test} |"
                )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("run", "page"))
    parser.add_argument("--data", help="a folder with the datasets' files")
    parser.add_argument("--jobs", type=int, default=1, help="problems at a time")
    given = parser.parse_args()
    if given.part == "page":
        collect(RUNS / "done", RESULTS, lambda cell: " ".join(map(str, cell["problem"])))
        fill(PAGE, page(read(RESULTS)), "loop")
        return
    problems = [(name, seed) for name in DATASETS for seed in SEEDS]
    share(problems, functools.partial(measure, data=given.data), RUNS / "done", given.jobs, float("inf"))


if __name__ == "__main__":
    main()
