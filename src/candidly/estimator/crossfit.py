"""Cross-fitting: train members × folds networks together, and predict with the networks or learners of each fold."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from candidly.candidates import Candidates
from candidly.cleaning import Cleaner, find_cleaner
from candidly.conformal.calibration import Calibration, Rule
from candidly.engine.fitting import fit
from candidly.engine.memory import require_runs
from candidly.engine.model import Model
from candidly.engine.nets.build import Factory
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.estimator.folds import Plan
from candidly.estimator.learners import Learners
from candidly.methods import Method, find_method

Trained = Model | Learners
"""Networks, or scikit-learn classifiers."""


class Quality(NamedTuple):
    """What `quality` of a classifier stands for.

    Attributes
    ----------
    steps : int
        Minibatches that a network is trained on, if the epochs allow: small tables are read often, large ones a few
        times.
    epochs : int
        Largest number of epochs, for fewer than `FEW_ROWS` rows; half as many for more.
    members : int
        Networks per fold.
    """

    steps: int
    epochs: int
    members: int


QUALITIES = {"fast": Quality(3200, 50, 1), "best": Quality(12800, 120, 4)}

FEW_ROWS = 2000
"""With more rows, longer trainings lose more true labels when candidates are removed."""

LEAST_EPOCHS = 5
"""Smallest number of epochs, for large tables."""

WATCHED = 5000
"""Most held-out rows of a network whose covering rate is recorded in every epoch, if it does not stop the training."""

WARMUP_PART = 2
"""A warm-up lasts at most one epoch in this number."""


def make_recipe(
    rows: int, quality: Quality, max_epochs: int | None, batch_size: int | None, lr: float | None, weight_decay: float
) -> Recipe:
    """Return how to train on this number of rows; None means what the quality needs."""
    usual = 2 ** int(np.log2(rows / 64).round().clip(4, 8))
    batch = usual if batch_size is None else batch_size
    most = quality.epochs if rows < FEW_ROWS else quality.epochs // 2
    needed = int(np.clip(round(quality.steps * batch / rows), LEAST_EPOCHS, most))
    epochs = needed if max_epochs is None else max_epochs
    return Recipe("custom", epochs, batch, max_lr=lr, weight_decay=weight_decay)


def find_parts(method: str | Method, cleaner: str | Cleaner | None, epochs: int) -> tuple[Method, Cleaner | None]:
    """Return the method and the cleaner; of those given by name, a warm-up takes at most half of the epochs."""
    parts: list[Any] = [find_method(method), find_cleaner(cleaner)]
    for k, given in enumerate((method, cleaner)):
        warmup = getattr(parts[k], "warmup", None)
        if isinstance(given, str) and warmup is not None:
            parts[k] = replace(parts[k], warmup=min(warmup, max(epochs // WARMUP_PART, 1)))
    return parts[0], parts[1]


def train(
    X: NDArray[Any],
    S: Candidates,
    plan: Plan,
    weights: Tensor | None,
    seed: np.random.SeedSequence,
    recipe: Recipe,
    *,
    method: str | Method,
    cleaner: str | Cleaner | None,
    net: str | Factory,
    members: int,
    device: str | Sequence[str],
    patience: int | None,
    progress: bool,
    shards: int | Sequence[int] = 1,
) -> Model:
    """Train `members` networks for each fold: run r is member r // folds without fold r % folds.

    Parameters
    ----------
    X, S, weights : ndarray (n, ...), Candidates, Tensor (n, C) or None
        Encoded features, candidates, and how much to trust each candidate initially.
    plan : Plan
        Which rows train which network.
    seed : numpy.random.SeedSequence
        Determines every network's initialisation and order of rows.
    recipe : Recipe
        How to train.
    method, cleaner, net, members, device
        As in `candidly.PartialLabelClassifier`.
    patience : int or None
        Stop after this many epochs without a better held-out covering rate.
    progress : bool
        Whether to show a bar.
    shards : int or sequence of int
        Number of training rows of each shard; by default there is one.

    Returns
    -------
    Model
        Without per-row state.
    """
    runs = members * plan.folds
    require_runs(runs, len(plan.index), len(S.classes))
    held_out = [plan.held_out(k) for k in range(plan.folds)] * members
    if patience is None:
        held_out = [rows[:: -(-len(rows) // WATCHED) or 1] for rows in held_out]
    watch = bool((plan.fold >= 0).any())
    # Standardised numbers become (x + 4) / 8, mostly between 0 and 1, which reduces overfitting: see
    # docs/evidence/defaults.md.
    problem = Problem.of(
        X[plan.index],
        Candidates(S.matrix[plan.index], S.classes),
        rows=[plan.trained(k) for k in range(plan.folds)] * members,
        seeds=seed.generate_state(runs).tolist(),
        shift=0.0 if X.dtype == np.uint8 else -4.0,
        scale=1 / 255 if X.dtype == np.uint8 else 1 / 8,
        weights=None if weights is None else weights[plan.index],
        groups=None if plan.groups is None else plan.groups[plan.index],
        shards=shards,
    )
    found, cleaning = find_parts(method, cleaner, recipe.epochs)
    model = fit(
        problem,
        found,
        None if cleaning is None else cleaning.take(plan.index),
        recipe,
        net=net,
        device=device,
        progress=progress,
        held_out=held_out if watch else None,
        patience=patience,
    )
    return model.without_rows()


def probabilities(
    model: Trained, X: NDArray[Any], folds: int, progress: bool, index: Tensor | None = None
) -> Iterator[tuple[slice, Tensor]]:
    """Yield blocks of rows with their probabilities by the networks of each fold, (folds, b, C) in float64.

    With `index` (folds, M), the rows of X that the networks of each fold predict, blocks are slices of M.
    """
    members = model.runs // folds
    blocks = model.predict_blocks(X) if index is None else model.predict_blocks(X, index.repeat(members, 1))
    total = len(X) if index is None else index.shape[1]
    with tqdm(total=total, desc="predicting", unit="row", disable=not progress, delay=1, leave=False) as bar:
        for rows, p in blocks:
            yield rows, p.double().unflatten(0, (members, folds)).mean(0)
            bar.update(rows.stop - rows.start)


def out_of_fold(model: Trained, X: NDArray[Any], fold: Tensor, folds: int, progress: bool) -> Tensor:
    """Return the probabilities (n, C) of rows by the networks of one fold each, which were not trained on it.

    `fold` (n,) is the fold of each row, -1 if it was not held out; such a row is scored by the networks of fold 0.
    """
    fold = fold.clamp_min(0)
    counts = fold.bincount(minlength=folds)
    # Each fold's networks see only the rows that they are asked for: (folds, M), padded.
    index = torch.nn.utils.rnn.pad_sequence(fold.argsort(stable=True).split(counts.tolist()), batch_first=True)
    inside = torch.arange(index.shape[1]) < counts[:, None]
    p = torch.empty(len(X), len(model.classes), dtype=torch.float32)
    for rows, some in probabilities(model, X, folds, progress, index):
        p[index[:, rows][inside[:, rows]]] = some[inside[:, rows]].float()
    return p


def predict(
    model: Trained, calibration: Calibration, X: NDArray[Any], rules: Sequence[Rule], progress: bool
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Return the probabilities (n, C) of new rows by all networks, and their p-values (n, C) by each rule."""
    for rule in rules:
        calibration.check(rule)
    means: list[NDArray[np.float64]] = []
    p_values: list[list[NDArray[np.float64]]] = [[] for _ in rules]
    for rows, p in probabilities(model, X, len(calibration.counts), progress):
        means.append(p.mean(0).numpy())
        for rule, blocks in zip(rules, p_values, strict=True):
            blocks.append(calibration.p_values(X[rows], p, rule).numpy())
    mean = np.concatenate(means)
    return mean / mean.sum(1, keepdims=True), [np.concatenate(blocks) for blocks in p_values]
