"""Labels from votes: the posterior against the majority, Dawid–Skene and CROWDLAB, on simulated annotators.

    python -m benchmarks.annotators measure --data DIR --seeds 5      # into results/annotators.json
    python -m benchmarks.annotators file FEATURES.npz                 # votes that were really given; prints the results
    python -m benchmarks.annotators page                              # docs/evidence/annotators.md

CROWDLAB (H. W. Goh et al., *CROWDLAB: Supervised learning to infer consensus labels and quality scores for data with
multiple annotators*, 2022) is called from cleanlab (`pip install cleanlab`), with the same held-out probabilities.
A file of features has the arrays X (n, d), y (n,) and votes (n, k), with -1 for no vote; the k columns are not persons.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.stats
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from candidly import PartialLabelClassifier
from candidly.candidates import Votes, from_annotations

GIVEN = "given"
RESULTS = Path(__file__).parent / "results" / "annotators.json"
PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "annotators.md"
ROWS = 1000
EPOCHS = 15
DATASETS = ("digits", "mnist", "bird-song", "msrc-v2")
METHODS = ("majority", "dawid_skene", "crowdlab")
NAMES = {"majority": "majority", "dawid_skene": "Dawid–Skene", "crowdlab": "CROWDLAB", "networks": "networks alone"}

Ints = NDArray[np.int64]
Give = Callable[[Ints, Ints], Ints]


class _Recording(PartialLabelClassifier):
    """A classifier that keeps the held-out probabilities of all classes."""

    def _set_results(self, *given: Any) -> None:
        self.p_ = given[3].numpy()
        super()._set_results(*given)


def read_rows(name: str, data: Path, rng: np.random.Generator) -> tuple[NDArray[np.float32], Ints]:
    """Return the features and true labels of some rows of a dataset."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
    elif name == "mnist":
        X = np.fromfile(data / "mnist" / "train-images-idx3-ubyte", np.uint8)[16:].reshape(-1, 784) / 255
        y = np.fromfile(data / "mnist" / "train-labels-idx1-ubyte", np.uint8)[8:]
        some = np.random.default_rng(0).permutation(len(y))[:10000]
        X, y = PCA(50, random_state=0).fit_transform(X[some]), y[some]
    else:
        found = scipy.io.loadmat(data / f"{name}.mat")
        X, y = np.asarray(found["data"], float), np.asarray(found["target"].todense()).argmax(0)
    rows = rng.permutation(len(y))[:ROWS]
    return X[rows].astype(np.float32), np.unique(y[rows], return_inverse=True)[1]


def other_label(y: Ints, C: int, rng: np.random.Generator) -> Ints:
    """Return a wrong label for each row, any with the same probability."""
    return (y + rng.integers(1, C, size=len(y))) % C


def coin(accuracy: NDArray[np.float64], y: Ints, C: int, rng: np.random.Generator) -> Give:
    """Return annotators who are right with a probability of their own, and else give any other label."""

    def give(row: Ints, worker: Ints) -> Ints:
        right = rng.random(len(row)) < accuracy[worker]
        return np.where(right, y[row], other_label(y[row], C, rng))

    return give


def choose(n: int, workers: int, votes: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the rows and workers of votes, with different workers for each row."""
    chosen = rng.random((n, workers)).argsort(1)[:, :votes]
    return np.repeat(np.arange(n), votes), chosen.ravel()


def equal(X: Any, y: Ints, C: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Five annotators who are right in 75 %; three votes per row."""
    row, worker = choose(len(y), 5, 3, rng)
    return row, worker, coin(np.full(5, 0.75), y, C, rng)(row, worker)


def expert(X: Any, y: Ints, C: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """One annotator who is right in 98 %, four in 55 %; three votes per row."""
    row, worker = choose(len(y), 5, 3, rng)
    return row, worker, coin(np.array([0.55, 0.55, 0.98, 0.55, 0.55]), y, C, rng)(row, worker)


def spammers(X: Any, y: Ints, C: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Five annotators who are right in 80 %, three who guess, two who always give one label; five votes per row."""
    row, worker = choose(len(y), 10, 5, rng)
    label = coin(np.repeat([0.8, 1 / C], 5), y, C, rng)(row, worker)
    favourite = rng.integers(C, size=10)
    return row, worker, np.where(worker >= 8, favourite[worker], label)


def confusion(X: Any, y: Ints, C: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Eight annotators who mistake 40 % of the classes for one other class, half of the time; three votes per row."""
    row, worker = choose(len(y), 8, 3, rng)
    confused = rng.random((8, C)) < 0.4
    instead = (np.arange(C) + rng.integers(1, C, size=(8, C))) % C
    label = coin(np.full(8, 0.9), y, C, rng)(row, worker)
    mistaken = confused[worker, y[row]] & (rng.random(len(row)) < 0.5)
    return row, worker, np.where(mistaken, instead[worker, y[row]], label)


def _hard(X: Any, y: Ints, C: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], Ints]:
    """Return how hard each row is, from 0 to 1 by rank, and the class that it is mistaken for, by its neighbours."""
    near = NearestNeighbors(n_neighbors=16).fit(X).kneighbors(X, return_distance=False)[:, 1:]
    share = np.stack([(y[near] == j).mean(1) for j in range(C)], 1) + 1e-6 * rng.random((len(y), C))
    share[np.arange(len(y)), y] = -1
    return share.max(1).argsort().argsort() / len(y), share.argmax(1)


def hard_rows(X: Any, y: Ints, C: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Five annotators, right in 75 to 95 %, who err in proportion to how hard a row is, all towards the same class."""
    hard, instead = _hard(X, y, C, rng)
    row, worker = choose(len(y), 5, 3, rng)
    error = 2 * (1 - np.linspace(0.75, 0.95, 5))[worker] * hard[row]
    return row, worker, np.where(rng.random(len(row)) < error, instead[row], y[row])


def few_votes(X: Any, y: Ints, C: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Six annotators, right in 50 to 90 %; one vote per row, and a second one for 30 % of the rows."""
    row, worker = choose(len(y), 6, 2, rng)
    kept = (np.arange(len(row)) % 2 == 0) | (rng.random(len(y)) < 0.3)[row]
    row, worker = row[kept], worker[kept]
    return row, worker, coin(np.array([0.5, 0.6, 0.7, 0.8, 0.85, 0.9]), y, C, rng)(row, worker)


def many(X: Any, y: Ints, C: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Annotators with about ten votes each, right in 71 % on average (a beta distribution); three votes per row."""
    workers = 3 * len(y) // 10
    row, worker = np.repeat(np.arange(len(y)), 3), rng.integers(workers, size=3 * len(y))
    once = np.unique(np.stack([row, worker]), axis=1)
    return *once, coin(rng.beta(4, 1.6, size=workers), y, C, rng)(*once)


def misled(X: Any, y: Ints, C: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """As hard rows, but on the hardest fifth of the rows most annotators make the same mistake."""
    hard, instead = _hard(X, y, C, rng)
    row, worker = choose(len(y), 5, 3, rng)
    error = 2 * (1 - np.linspace(0.75, 0.95, 5))[worker] * hard[row] + 0.35 * (hard[row] > 0.8)
    return row, worker, np.where(rng.random(len(row)) < error, instead[row], y[row])


KINDS = {
    "equal quality": equal,
    "one expert": expert,
    "spammers": spammers,
    "class-dependent errors": confusion,
    "hard rows": hard_rows,
    "few votes": few_votes,
    "many annotators": many,
    "misled majority": misled,
}
BEYOND = "misled majority"  # a harder version of "hard rows", beyond the seven kinds


def dawid_skene(votes: Votes, n: int, C: int) -> Ints:
    """Return the labels of Dawid and Skene's EM, from votes alone."""
    table = votes.table
    q = votes.counts / votes.counts.sum(1, keepdims=True)
    for _ in range(100):
        counts = np.full((len(table.workers), C, C), 0.01)  # by vote and true label
        np.add.at(counts, (table.worker, table.label), q[table.task])
        log_pi = np.log(counts / counts.sum(1, keepdims=True))
        z = np.tile(np.log(q.mean(0) + 1e-12), (n, 1))
        np.add.at(z, table.task, log_pi[table.worker, table.label])
        q = np.exp(z - z.max(1, keepdims=True))
        q /= q.sum(1, keepdims=True)
    best: Ints = q.argmax(1)
    return best


def crowdlab(votes: Votes, p: NDArray[np.float64]) -> Ints:
    """Return CROWDLAB's consensus labels."""
    import pandas as pd
    from cleanlab.multiannotator import get_label_quality_multiannotator

    labels = np.full((len(p), len(votes.workers)), np.nan)
    labels[votes.table.task, votes.table.worker] = votes.table.label
    found = get_label_quality_multiannotator(
        pd.DataFrame(labels), p / p.sum(1, keepdims=True), verbose=False, return_annotator_stats=False
    )
    best: Ints = found["label_quality"]["consensus_label"].to_numpy()
    return best


def compare(X: Any, y: Ints, votes: Votes, seed: int, epochs: int | None) -> dict[str, Any]:
    """Return the accuracy of each way to choose labels, and what cleaning removes with and without votes."""
    C = len(votes.candidates.classes)
    S = votes.candidates.matrix
    given: dict[str, Any] = {"max_epochs": epochs, "random_state": seed}
    classifier = _Recording(**given).fit(X, votes)
    p = classifier.p_.astype(np.float64)
    top = votes.counts == votes.counts.max(1, keepdims=True)
    found: dict[str, Any] = {
        "posterior": float((classifier.transduction_ == y).mean()),
        "confidence": float(classifier.confidence_.mean()),
        "majority": float((top[np.arange(len(y)), y] / top.sum(1)).mean()),
        "dawid_skene": float((dawid_skene(votes, len(y), C) == y).mean()),
        "crowdlab": float((crowdlab(votes, p) == y).mean()),
        "networks": float((p.argmax(1) == y).mean()),
    }
    kept = classifier.candidates_.matrix
    wrong = S.copy()
    wrong[np.arange(len(y)), y] = False
    found["lost"] = float((S & ~kept)[np.arange(len(y)), y].mean())
    found["removed"] = float((wrong & ~kept).sum() / max(wrong.sum(), 1))
    level = next(one for one in classifier.audit(alphas=[0.05]).levels if one.alpha == 0.05)
    found["guess"] = None if level.lost is None else [level.lost.low, level.lost.high]
    if not votes.anonymous:
        table = votes.table
        right = table.label == y[table.task]
        truth = np.bincount(table.worker, right) / np.bincount(table.worker)
        inside = [one.low <= true <= one.high for one, true in zip(classifier.annotators_, truth, strict=True)]
        found["covered"] = float(np.mean(inside))
    return found


def measure(data: Path, seeds: int) -> None:
    """Simulate, fit and compare; results that exist are kept."""
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for seed in range(seeds):
        for name in DATASETS:
            for number, (kind, simulate) in enumerate(KINDS.items()):
                key = f"{name}/{kind}/{seed}"
                if key in results:
                    continue
                rng = np.random.default_rng([seed, number, DATASETS.index(name)])
                X, y = read_rows(name, data, rng)
                C = int(y.max()) + 1
                row, worker, label = simulate(X, y, C, rng)
                table = {"task": row, "worker": worker, "label": label}
                with warnings.catch_warnings(action="ignore"):
                    votes = from_annotations(table, classes=range(C))
                    results[key] = compare(X, y, votes.select(np.argsort(votes.tasks)), seed, EPOCHS)
                RESULTS.write_text(json.dumps(results, indent=0))
                print(
                    key,
                    {name: round(value, 3) for name, value in results[key].items() if name in ("posterior", *METHODS)},
                )


def measure_file(path: Path, parts: int) -> None:
    """Compare on votes that were really given, in columns that are not persons: in disjoint parts of the rows."""
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found = np.load(path)
    names = [f"vote {k}" for k in range(found["votes"].shape[1])]
    classes = range(int(found["y"].max()) + 1)
    for part in range(parts):
        X, y, given = (found[name][part::parts] for name in ("X", "y", "votes"))
        columns = {name: [None if one < 0 else int(one) for one in given[:, k]] for k, name in enumerate(names)}
        votes = from_annotations(columns, columns=names, classes=classes, anonymous=True)
        rows = np.array(votes.tasks)
        result = compare(X[rows], y[rows], votes, part, None) | {"rows": len(rows)}
        results[f"{path.stem}/{GIVEN}/{part}"] = result
        print(json.dumps(result), flush=True)
    RESULTS.write_text(json.dumps(results, indent=0))


def interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean with its 95 % interval by Student's t."""
    mean, half = values.mean(), scipy.stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(mean), float(mean - half), float(mean + half)


def _describe_given(results: dict[str, Any]) -> str:
    """Return the section on votes that were really given, if there are any."""
    lines = []
    for name in sorted({key.split("/")[0] for key in results if f"/{GIVEN}/" in key}):
        runs = [run for key, run in results.items() if key.startswith(f"{name}/{GIVEN}/")]
        best = max(METHODS, key=lambda one: np.mean([run[one] for run in runs]))
        gain = interval(np.array([100 * (run["posterior"] - run[best]) for run in runs]))
        columns = " | ".join(
            f"{100 * np.mean([run[one] for run in runs]):.1f}" for one in ("posterior", *METHODS, "networks")
        )
        rows = f"{len(runs)} × {runs[0]['rows']:,}"
        lines.append(f"| {name} | {rows} | {columns} | {gain[0]:+.1f} ({gain[1]:+.1f} to {gain[2]:+.1f}) |")
    if not lines:
        return ""
    return f"""## Votes that were really given

CIFAR-10N: three columns of votes of people, not of three persons, so that all votes share one confusion matrix.
Features are 128 principal components of those of EfficientNet-Lite0 (`candidly embed`). The rows are cut into disjoint
parts, and the interval is Student's t over the parts.

| votes | rows | posterior | majority | Dawid–Skene | CROWDLAB | networks alone | posterior − best other |
|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}

"""


def page() -> None:
    """Write the page with the results."""
    results: dict[str, Any] = json.loads(RESULTS.read_text())
    seeds = 1 + max(int(key.rsplit("/", 1)[1]) for key in results if f"/{GIVEN}/" not in key)
    lines, cleaning, passed, above = [], [], [], {}
    for kind in KINDS:
        gains, over, every = [], [], []
        for name in DATASETS:
            runs = [results[f"{name}/{kind}/{seed}"] for seed in range(seeds)]
            every += runs
            best = max(METHODS, key=lambda one: np.mean([run[one] for run in runs]))
            gains += [100 * (run["posterior"] - run[best]) for run in runs]
            over += [100 * (run["posterior"] - run["majority"]) for run in runs]
        mean, low, high = interval(np.array(gains))
        passed += [kind] if low > -0.3 else []
        means = {one: 100 * np.mean([run[one] for run in every]) for one in ("posterior", "networks", *METHODS)}
        columns = " | ".join(f"{means[one]:.1f}" for one in ("posterior", *METHODS, "networks"))
        lines.append(f"| {kind} | {columns} | {mean:+.1f} ({low:+.1f} to {high:+.1f}) |")
        gain = interval(np.array(over))
        above[kind] = f"{gain[0]:+.1f} points ({gain[1]:+.1f} to {gain[2]:+.1f})"
        figures = [100 * np.mean([run[one] for run in every]) for one in ("confidence", "covered", "removed", "lost")]
        held = np.mean([run["guess"] is None or run["lost"] <= run["guess"][1] for run in every])
        most = 100 * max(run["lost"] for run in every)
        cells = [means["posterior"], *figures, most]
        cleaning.append(f"| {kind} | {' | '.join(f'{one:.1f}' for one in cells)} | {100 * held:.0f} |")
    described = "\n".join(f"- **{kind}**: {simulate.__doc__}" for kind, simulate in KINDS.items())
    text = f"""# Labels from votes

Made by `python -m benchmarks.annotators page` from `benchmarks/results/annotators.json`. With votes, a classifier's
labels are those of the posterior P(label | features, votes) ∝ p^(1/T) · Π π
([how it is computed](../guides/votes.md#how-labels-are-chosen)). Here it is compared with the majority (a tie of k
labels counts 1/k), with Dawid and Skene's EM, which uses votes alone, and with cleanlab's CROWDLAB, which gets the same
held-out probabilities. {ROWS} rows each of {", ".join(DATASETS)}, {EPOCHS} epochs, {seeds} seeds; nothing was chosen
with true labels.

## Accuracy of the labels

Percent, mean over datasets and seeds. The last column is the difference to the best of the other three, which is chosen
for each dataset by the mean over seeds; its 95 % interval is Student's t over datasets × seeds.

| annotators | posterior | majority | Dawid–Skene | CROWDLAB | networks alone | posterior − best other |
|---|---|---|---|---|---|---|
{chr(10).join(lines)}

Of the 7 kinds without "{BEYOND}", the interval is above −0.3 points in {len(set(passed) - {BEYOND})}; with it instead
of "hard rows", in {len(set(passed) - {"hard rows"})}. Where errors follow the features, the posterior gains
{above["hard rows"]} on the majority with "hard rows", and {above[BEYOND]} with "{BEYOND}". The latter was the first
version of "hard rows", and was set apart after a first look at the results, because most annotators are wrong there on
many rows.

{_describe_given(results)}## Confidence, annotators and cleaning

Percent. *Confidence* is the mean probability of the chosen labels; it should equal the accuracy. *Intervals* is the
fraction of annotators whose 95 % interval contains the fraction of their votes that are right. Then the fraction of
wrong candidates removed and of true labels lost at level 0.05, on average and at most, and how often the loss was at
most the upper end of the audit's guess.

| annotators | accuracy | confidence | intervals | removed | lost | most lost | guess held |
|---|---|---|---|---|---|---|---|
{chr(10).join(cleaning)}

Votes are assumed to be independent given the true label. Where all annotators make the same mistakes on the same rows,
the posterior is too confident, annotators look better than they are, and more labels are lost than the level says: only
checked rows show it ([certify](../guides/certify.md)). The certificate does not need the assumption.

## The annotators

{described}
"""
    PAGE.write_text(text)


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["measure", "file", "page"])
    parser.add_argument("path", type=Path, nargs="?", help="of file: features, true labels and votes (.npz)")
    parser.add_argument("--data", type=Path, help="of measure: folder of the datasets")
    parser.add_argument("--seeds", type=int, default=5, help="of measure")
    parser.add_argument("--parts", type=int, default=5, help="of file: disjoint parts of the rows")
    given = parser.parse_args()
    if given.command == "measure":
        if given.data is None:
            parser.error("measure needs --data")
        measure(given.data, given.seeds)
    elif given.command == "file":
        if given.path is None:
            parser.error("file needs a path")
        measure_file(given.path, given.parts)
    else:
        page()


if __name__ == "__main__":
    main()
