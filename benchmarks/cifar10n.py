"""Sets of human votes, in 2 % of which the true label is missing.

    python -m benchmarks.cifar10n train --data DIR                    # on pixels, which needs a GPU
    python -m benchmarks.cifar10n train --data DIR --features cifar10-features.npz --jobs 2
    python -m benchmarks.cifar10n collect                             # results/cifar10n.json
    python -m benchmarks.cifar10n page                                # tables of docs/evidence/images.md

A cell is one training of one seed, kept in a file of runs/cifar10n: of ResNet-9 on pixels with a third of the epochs of
the recipe `fast`, or of the perceptron on the features that `benchmarks.encode` wrote, which has no views. The votes
are those of CIFAR-10N: three labels by different people for every training image (J. Wei et al., *Learning with Noisy
Labels Revisited*, ICLR 2022).
"""

import argparse
import functools
import re
import time
from collections.abc import Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.cells import collect, fill, read, share
from candidly import RECIPES, data, fit
from candidly.data.protocols import scaling
from candidly.data.published import locations
from candidly.data.published.registry import REGISTRY
from candidly.data.readers import npz
from candidly.engine import Batch, BuildNet, OneNetwork, Problem, soft_ce
from candidly.engine.device import find_device
from candidly.methods import Crosel, Method, Pico, Plcr, Proden

RESULTS, RUNS = Path("benchmarks/results/cifar10n.json"), Path("runs/cifar10n")
PAGE = Path("docs/evidence/images.md")
ON_PIXELS = replace(RECIPES["fast"], name="fast, 20 epochs", epochs=20)
ON_FEATURES = replace(RECIPES["uai2025"], name="25 epochs", epochs=25)
INPUTS = ("pixels", "features")


@dataclass
class Fixed(OneNetwork):
    """Cross-entropy with label weights that never change."""

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Take the problem's initial weights."""
        self.net = build_net()
        self.q = problem.initial_weights

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Return the cross-entropy."""
        return soft_ce(batch.take(self.q), self.net(batch.x))


VARIANTS: dict[str, tuple[str, Method]] = {  # what is trained on, and the method
    "one random vote": ("one", Fixed()),
    "proden": ("sets", Proden()),
    "proden, votes as initial weights": ("weights", Proden()),
    "votes as fixed weights": ("weights", Fixed()),
    "plcr": ("sets", Plcr()),
    "pico": ("sets", Pico()),
    "crosel": ("sets", Crosel()),
    "majority": ("majority", Fixed()),
    "true labels": ("true", Fixed()),
}


def given(kind: str, votes: NDArray[np.int64], y: NDArray[np.int64], seed: int) -> dict[str, Any]:
    """Return the candidate sets, and weights where votes count."""
    rng = np.random.default_rng(seed)
    n = len(votes)
    counts = np.zeros((n, 10))
    np.add.at(counts, (np.arange(n)[:, None], votes), 1)
    match kind:
        case "sets":
            return {"S": counts > 0}
        case "weights":
            return {"S": counts > 0, "weights": counts}
        case "one":
            label = votes[np.arange(n), rng.integers(votes.shape[1], size=n)]
        case "majority":  # where all differ, one of the three at random
            label = (counts + rng.random(counts.shape) * (counts > 0) / 2).argmax(1)
        case _:
            label = y
    return {"S": np.eye(10, dtype=bool)[label]}


def train(
    variant: str, seed: int, inputs: str = "pixels", *, root: str | None, features: str | None, device: str
) -> dict[str, Any]:
    """Train, and score on the test images and on the training images."""
    dataset = data.load("cifar10n", root)
    n, y = dataset.num_train, dataset.y
    assert n is not None, "cifar10n is split"
    assert y is not None, "cifar10n has true labels"
    (file,) = locations.find(REGISTRY["cifar10n"], root) or ()
    votes = npz.read(file, ["annotator_labels"])["annotator_labels"].astype(np.int64)
    kind, method = VARIANTS[variant]
    labels = given(kind, votes, y[:n], seed)
    if inputs == "pixels":
        X, (shift, scale) = dataset.X, scaling(dataset)
        recipe, net = ON_PIXELS, "resnet9"
    else:
        assert features is not None, "these cells are only asked for with --features"
        encoded = data.load(features)
        assert np.array_equal(encoded.y, y), f"the rows of {features} are not those of cifar10n"
        X = encoded.X.astype(np.float32)
        shift, scale = X[:n].mean(0), 1 / X[:n].std(0)
        recipe, net = ON_FEATURES, "mlp"
    problem = Problem.of(X[:n], **labels, seeds=(seed,), shift=shift, scale=scale)
    started = time.perf_counter()
    model = fit(problem, method, None, recipe, net=net, device=device, progress=False)
    seconds = time.perf_counter() - started
    right = model.predict(X)[0].argmax(-1).numpy() == y
    missing = (votes != y[:n, None]).all(1)
    found = {"inputs": inputs, "variant": variant, "seed": seed, "test": right[n:].mean(), "train": right[:n].mean()}
    found |= {"missing": right[:n][missing].mean(), "seconds": seconds}
    found = {key: value if isinstance(value, str | int) else round(float(value), 5) for key, value in found.items()}
    return found | {"shown": f"{100 * found['test']:.2f}"}


def table(cells: list[dict[str, Any]]) -> str:
    """Return the table of the cells of one kind of inputs."""
    lines = [
        "| trained on | seeds | test accuracy | training images: accuracy | where no vote is right | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for variant in VARIANTS:
        rows = [cell for cell in cells if cell["variant"] == variant]
        if rows:
            test = np.array([100 * cell["test"] for cell in rows])
            spread = f" ± {test.std(ddof=1):.2f}" if len(rows) > 1 else ""
            means = [np.mean([cell[key] for cell in rows]) for key in ("train", "missing", "seconds")]
            shown = f"{test.mean():.2f}{spread} | {100 * means[0]:.2f} | {100 * means[1]:.1f} | {means[2]:.0f}"
            lines.append(f"| {variant} | {len(rows)} | {shown} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["train", "collect", "page"])
    parser.add_argument("--data", help="folder with the files of cifar10 and cifar10n")
    parser.add_argument("--features", help="the file that benchmarks.encode wrote; trains on it instead of pixels")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--match", default="", help="only what is trained on matches this regular expression")
    parser.add_argument("--jobs", type=int, default=1, help="number of trainings at a time")
    parser.add_argument("--minutes", type=float, default=60, help="no training begins after this time")
    asked = parser.parse_args()
    if asked.task == "train":
        inputs = "features" if asked.features else "pixels"
        variants = [variant for variant in VARIANTS if re.search(asked.match, variant)]
        cells = [(variant, seed, inputs) for seed in range(asked.seeds) for variant in variants]
        # The kernels of several threads of one process run on a GPU at the same time, those of processes in turn.
        on_gpu = find_device(asked.device).type == "cuda"
        work = functools.partial(train, root=asked.data, features=asked.features, device=asked.device)
        share(cells, work, RUNS, jobs=asked.jobs, minutes=asked.minutes, threads=on_gpu)
    elif asked.task == "collect":
        collect(RUNS, RESULTS, lambda cell: f"{cell['inputs']} {cell['variant']} {cell['seed']}")
    else:
        cells = read(RESULTS)
        for inputs in INPUTS:
            found = [cell for cell in cells if cell["inputs"] == inputs]
            if found:
                fill(PAGE, table(found), f"cifar10n {inputs}")


if __name__ == "__main__":
    main()
