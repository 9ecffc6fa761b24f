"""Time of a step of one training: in one process, and on 2 gloo ranks that share its rows, one thread each.

python -m benchmarks.ranks prints a table for docs/guides/scale.md. Networks are those of 5 folds. Between the ranks, a
step sends 8 messages: 3 for batch statistics in the forward pass, 3 in the backward pass, one with all gradients, and
one for the cleaner's level.
"""

import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import distributed

from candidly.cleaning import Conformal
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.engine.training import Training
from candidly.methods import Balanced

ROWS, FEATURES, CLASSES, RUNS, STEPS = 20_000, 50, 10, 5, 40
BATCHES = (256, 1024)


def seconds(rank: int, ranks: int, batch: int) -> tuple[float, float]:
    """Return the median time of a step on this rank, and its processor time, which other programs do not lengthen."""
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=ROWS)
    X = rng.normal(size=(CLASSES, FEATURES))[y] + rng.normal(size=(ROWS, FEATURES))
    S = (rng.random((ROWS, CLASSES)) < 0.3) | (np.arange(CLASSES) == y[:, None])
    own = slice(ROWS * rank // ranks, ROWS * (rank + 1) // ranks)
    problem = Problem.of(X[own], S[own], seeds=range(RUNS), standardise=True)
    training = Training(problem, Balanced(), Conformal(), Recipe(epochs=1000, batch_size=batch), "mlp")
    taken = []
    training.begin_epoch()
    for _ in range(STEPS):
        if training.done == training.steps:
            training.end_epoch()
            training.begin_epoch()
        start, busy = time.perf_counter(), time.process_time()
        training.advance(capture=False)
        taken.append((time.perf_counter() - start, time.process_time() - busy))
    wall, processor = zip(*taken[5:], strict=True)
    return statistics.median(wall), statistics.median(processor)


def work(rank: int, ranks: int, folder: str) -> None:
    """Measure all batch sizes; rank 0 writes the times."""
    torch.set_num_threads(1)
    if ranks > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    times = [seconds(rank, ranks, batch) for batch in BATCHES]
    if rank == 0:
        Path(folder, "times").write_text(json.dumps(times))
    if ranks > 1:
        distributed.destroy_process_group()


def measure(ranks: int) -> list[tuple[float, float]]:
    """Return the times of a step for each batch size."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, args=(ranks, folder), nprocs=ranks)
        return [(wall, processor) for wall, processor in json.loads(Path(folder, "times").read_text())]


if __name__ == "__main__":
    print(f"{ROWS} rows, {FEATURES} features, {CLASSES} classes, {RUNS} networks; load {os.getloadavg()[0]:.1f}\n")
    one, two = measure(1), measure(2)
    print("| rows of a minibatch | 1 process: ms a step (processor) | 2 ranks: ms a step (processor) |\n|---|---|---|")
    for batch, alone, shared in zip(BATCHES, one, two, strict=True):
        texts = [f"{1000 * wall:.0f} ({1000 * processor:.0f})" for wall, processor in (alone, shared)]
        print(f"| {batch} | {texts[0]} | {texts[1]} |")
