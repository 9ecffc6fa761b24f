"""Five stacked PRODEN runs against a textbook loop, in one process and on one thread.

    python -m benchmarks.speed --data DIR

Both train on dataset lost (made-up data of its size where the file is not found) with the uai2025 recipe's batches,
optimiser and schedule. The textbook loop is fixed and must not be changed: a DataLoader over a TensorDataset with 16
shuffled rows per batch and no workers, nn.Sequential, torch.optim.Adam, OneCycleLR, one model at a time. The two take
turns, and the median of each side's epochs counts. These are ratios on a shared machine, not absolute times.
"""

import argparse
import dataclasses
import json
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from candidly import data
from candidly.cleaning import Cleaner
from candidly.data import protocols
from candidly.engine import Training
from candidly.methods import Proden
from candidly.problem import Problem
from candidly.recipe import RECIPES

RUNS, ROUNDS, EPOCHS = 5, 7, 4  # each round times EPOCHS epochs of either side


class Textbook:
    """PRODEN as one would write it down, one model."""

    def __init__(self, X: torch.Tensor, S: torch.Tensor, epochs: int):
        layers: list[nn.Module] = []
        for a, b in ((X.shape[1], 300), (300, 300), (300, 300)):
            layers += [nn.Linear(a, b), nn.ReLU(), nn.BatchNorm1d(b)]
        self.net = nn.Sequential(*layers, nn.Linear(300, S.shape[1]))
        self.S, self.q = S, S / S.sum(1, keepdim=True)
        self.loader = DataLoader(TensorDataset(X, torch.arange(len(X))), 16, shuffle=True)
        self.optimiser = torch.optim.Adam(self.net.parameters(), weight_decay=1e-4)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimiser, max_lr=0.01, epochs=epochs, steps_per_epoch=len(self.loader)
        )

    def epoch(self) -> None:
        """Train one epoch."""
        for x, rows in self.loader:
            z = self.net(x)
            loss = -(self.q[rows] * z.log_softmax(1)).sum(1).mean()
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            self.schedule.step()
            with torch.no_grad():
                p = z.softmax(1) * self.S[rows]
                self.q[rows] = p / p.sum(1, keepdim=True)


class Stacked:
    """The engine's own epoch, all runs."""

    def __init__(self, X: np.ndarray, S: np.ndarray, epochs: int):
        recipe = dataclasses.replace(RECIPES["uai2025"], epochs=epochs)
        self.training = Training(Problem.of(X, S, seeds=range(RUNS)), Proden(), Cleaner(), recipe, "mlp")

    def epoch(self) -> None:
        """Train one epoch."""
        self.training.begin_epoch()
        for _ in range(self.training.steps):
            self.training.advance(capture=False)
        self.training.end_epoch()


def load(root: str | None) -> tuple[np.ndarray, np.ndarray, str]:
    try:
        lost = protocols.uai2025(data.load("lost", root=root))
    except FileNotFoundError:
        generator = np.random.default_rng(0)
        S = generator.random((896, 14)) < 0.1
        S[np.arange(896), generator.integers(14, size=896)] = True
        return generator.random((896, 108)), S, "made-up data of lost's size"
    train, _ = protocols.uai2025_split(len(lost.X), 0)
    return lost.X[train], lost.S[train], "lost"


def seconds(side: Textbook | Stacked) -> float:
    start = time.perf_counter()
    for _ in range(EPOCHS):
        side.epoch()
    return (time.perf_counter() - start) / EPOCHS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--out", default="benchmarks/results/speed.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    X, S, source = load(args.data)
    epochs = EPOCHS * (ROUNDS + 1)
    textbook = Textbook(torch.tensor(X, dtype=torch.float32), torch.tensor(S, dtype=torch.float32), epochs)
    stacked = Stacked(X, S, epochs)
    times: dict[str, list[float]] = {"textbook": [], "stacked": []}
    for round_ in range(ROUNDS + 1):
        for name, side in (("textbook", textbook), ("stacked", stacked)):
            taken = seconds(side) / (1 if name == "textbook" else RUNS)
            if round_:  # the first warms up
                times[name].append(taken)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    ratio = medians["textbook"] / medians["stacked"]
    result = {
        "data": source,
        "rows, features, classes": [*X.shape, S.shape[1]],
        "runs stacked": RUNS,
        "seconds per model and epoch": {name: [round(value, 4) for value in values] for name, values in times.items()},
        "ratio of medians": round(ratio, 2),
        "threads": 1,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
    }
    Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    for name, value in medians.items():
        print(f"{name:9} {1000 * value:7.1f} ms per model and epoch (median of {ROUNDS})")
    print(f"{RUNS} stacked runs on {source} are {ratio:.2f}x faster per model than the textbook loop")


if __name__ == "__main__":
    main()
