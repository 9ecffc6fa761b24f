"""Test accuracy of every method with and without cleaning, on the protocol and recipe of the UAI 2025 experiments.

    python -m benchmarks.accuracy run --datasets lost,bird-song --out benchmarks/results/accuracy.json
    python -m benchmarks.accuracy table benchmarks/results/accuracy.json --published published.csv

`run` trains, for each combination, seeds 0-4 times four initialisations as one stacked fit and adds the test accuracies
to the JSON file; combinations that are already there are skipped. `table` writes Markdown; with the published per-seed
accuracies (columns method, dataset, seed, test_accuracy) it compares the means over initialisations with them, split by
split, with one-sided paired t-tests, Holm-corrected.
"""

import argparse
import csv
import dataclasses
import json
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from candidly import data
from candidly.cleaning import Cleaner, Conformal
from candidly.data import protocols
from candidly.engine import find_device, fit
from candidly.methods import METHODS, Method
from candidly.problem import Problem

BASE = ("proden", "cc", "cavl", "pop", "valen", "crosel")
PUBLISHED = (*BASE, *(f"conf+{name}" for name in BASE), "conf+proden (no correction)")
CLEANERS = {
    "conf": Conformal.published(),
    "revocable": Conformal(),
    "algorithm1": Conformal.algorithm1(),
    "conf-random": dataclasses.replace(Conformal.published(), calibration="reuse"),
}
SEEDS, INITIALISATIONS = range(5), 4


def combination(name: str) -> tuple[Method, Cleaner | None]:
    """Return the method and the cleaner that a name such as "conf+proden" stands for."""
    if name == "conf+proden (no correction)":
        return METHODS["proden"](), Conformal.published(correction=False)
    cleaner, _, method = name.rpartition("+")
    return METHODS[method](), CLEANERS[cleaner] if cleaner else None


def train(
    dataset: data.Dataset, method: Method, cleaner: Cleaner | None, device: str
) -> tuple[list[list[float]], float]:
    """Return test accuracies, seeds × initialisations, and the seconds it took."""
    splits = [protocols.uai2025_split(len(dataset.X), seed) for seed in SEEDS]
    runs = [(seed + 1000 * start, *splits[seed]) for seed in SEEDS for start in range(INITIALISATIONS)]
    rows, seeds = [train_rows for _, train_rows, _ in runs], [seed for seed, _, _ in runs]
    problem = Problem.of(dataset.X, dataset.S, rows=rows, seeds=seeds, classes=dataset.classes)
    start = time.perf_counter()
    model = fit(problem, method, cleaner, device=device)
    seconds = time.perf_counter() - start
    correct = model.predict(dataset.X).argmax(-1).numpy() == dataset.y
    accuracies = [float(correct[run, test].mean()) for run, (_, _, test) in enumerate(runs)]
    return np.reshape(accuracies, (len(SEEDS), INITIALISATIONS)).tolist(), seconds


def run(args: argparse.Namespace) -> None:
    """Train what the results file lacks."""
    out = Path(args.out)
    results = json.loads(out.read_text()) if out.exists() else {}
    for dataset_name in args.datasets.split(","):
        dataset = protocols.uai2025(data.load(dataset_name, root=args.data))
        cells = results.setdefault(dataset_name, {})
        for name in args.combinations.split(",") if args.combinations else PUBLISHED:
            if name in cells:
                continue
            accuracies, seconds = train(dataset, *combination(name), args.device)
            machine = torch.cuda.get_device_name() if find_device(args.device).type == "cuda" else "CPU"
            cells[name] = {"accuracy": accuracies, "seconds": round(seconds, 1), "machine": machine}
            cells[name]["torch"] = torch.__version__
            out.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{dataset_name:10} {name:28} {100 * np.mean(accuracies):6.2f}  {seconds:6.1f} s", flush=True)


def load_published(path: str | None) -> dict[tuple[str, str], list[float]]:
    """Read published accuracies, ordered by seed, per dataset and method."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    if path:
        with open(path, newline="", encoding="utf-8") as file:
            for row in sorted(csv.DictReader(file), key=lambda row: int(row["seed"])):
                found[row["dataset"], row["method"]].append(float(row["test_accuracy"]))
    return found


def holm(p_values: list[float]) -> list[float]:
    """Holm's adjusted p-values."""
    adjusted, worst = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def interval(differences: np.ndarray) -> str:
    """Mean difference over splits, with a 95 % interval (t distribution)."""
    half = stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences)
    return f"{differences.mean():+.2f} ± {half:.2f}"


def table(args: argparse.Namespace) -> None:
    """Print the results as Markdown."""
    results, published = json.loads(Path(args.results).read_text()), load_published(args.published)
    names = [*PUBLISHED, *(f"{cleaner}+{name}" for cleaner in CLEANERS if cleaner != "conf" for name in BASE)]
    means = {
        (dataset, name): 100 * np.mean(cells[name]["accuracy"], axis=1)
        for dataset, cells in results.items()
        for name in names
        if name in cells
    }
    theirs = {cell: 100 * np.array(published[cell]) for cell in means if cell in published}
    lower = holm([stats.ttest_rel(means[cell], theirs[cell], alternative="less").pvalue for cell in theirs])
    below = dict(zip(theirs, lower, strict=True))
    print("| dataset | method | accuracy | to no cleaning | published | difference | p below | per split | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for cell, ours in means.items():
        dataset, name = cell
        base = means[dataset, name.split(" ")[0].rpartition("+")[2]]
        effect = interval(ours - base) if "+" in name else ""
        spread = np.std(100 * np.array(results[dataset][name]["accuracy"]), ddof=1)
        beside = "| |"
        if cell in theirs:
            beside = f"{theirs[cell].mean():.2f} | {(ours - theirs[cell]).mean():+.2f} | {below[cell]:.2f}"
        splits, seconds = " ".join(f"{value:.1f}" for value in ours), results[dataset][name]["seconds"]
        score = f"{ours.mean():.2f} ± {spread:.2f}"
        print(f"| {dataset} | {name} | {score} | {effect} | {beside} | {splits} | {seconds:.0f} |")
    for dataset in results:
        differences = [(means[cell] - theirs[cell]).mean() for cell in theirs if cell[0] == dataset]
        if differences:
            mean = np.mean(differences)
            print(f"\nMean difference over the {len(differences)} published cells of {dataset}: {mean:+.2f}")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run", help="train and score")
    command.add_argument("--datasets", default="lost,bird-song")
    command.add_argument("--combinations", help="comma-separated; all 13 of the paper when left out")
    command.add_argument("--data", help="folder with the .mat files")
    command.add_argument("--device", default="auto")
    command.add_argument("--out", default="benchmarks/results/accuracy.json")
    command.set_defaults(call=run)
    command = commands.add_parser("table", help="print Markdown")
    command.add_argument("results")
    command.add_argument("--published")
    command.set_defaults(call=table)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
