"""Networks that cross-fit: training members × folds of them together, and predicting with each fold's."""

import dataclasses
import numbers
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from candidly.candidates import Candidates
from candidly.cleaning import Cleaner, find_cleaner
from candidly.conformal.calibration import Calibration, Rule, check_share
from candidly.engine.model import Model
from candidly.engine.nets.build import Factory
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.engine.training import fit
from candidly.estimator.folds import Plan
from candidly.methods import Method, find_method

_BLOCK = (
    64  # rows to predict at a time, always: a product's last bits depend on its size, so a row's would on the others
)


def check(settings: Any) -> None:
    """Check what nobody else checks of the settings of a `candidly.PartialLabelClassifier` before training."""
    find_method(settings.method), find_cleaner(settings.cleaner)
    names = ("members", "folds", "n_iter_no_change", *(() if settings.max_epochs is None else ("max_epochs",)))
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, numbers.Integral) or value < 1:
            raise ValueError(f"{name} is {value!r}; give a whole number of at least 1")
    check_share("alpha", settings.alpha)
    if settings.validation_fraction != 0:
        check_share("validation_fraction", settings.validation_fraction)
    if settings.early_stopping and settings.folds == 1 and not settings.validation_fraction:
        raise ValueError("early_stopping watches held-out rows, and there are none; set validation_fraction=0.1")


def make_recipe(rows: int, max_epochs: int | None, batch_size: int | None, lr: float, weight_decay: float) -> Recipe:
    """Return how to train on so many rows; None stands for the number that suits them."""
    usual = 2 ** int(np.log2(rows / 64).round().clip(4, 8))
    batch = usual if batch_size is None else operator.index(batch_size)
    epochs = (50 if rows < 2000 else 25) if max_epochs is None else int(max_epochs)
    return Recipe("custom", epochs, batch, max_lr=lr, weight_decay=weight_decay)


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
    device: str,
    patience: int | None,
    progress: bool,
) -> Model:
    """Train `members` networks for each fold: run r is member r // folds without fold r % folds.

    Parameters
    ----------
    X, S, weights : ndarray (n, ...), Candidates, Tensor (n, C) or None
        Encoded features, candidates, and how much to trust each to start with.
    plan : Plan
        Which rows train which network.
    seed : numpy.random.SeedSequence
        Decides every network's first weights and order of rows.
    recipe : Recipe
        How to train.
    method, cleaner, net, members, device
        As in `candidly.PartialLabelClassifier`.
    patience : int or None
        Epochs without a better covering rate of held-out rows after which to stop.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    Model
        Without what the method stores per row.
    """
    parts = [k for _ in range(members) for k in range(plan.folds)]
    held_out = [plan.held_out(k) for k in parts]
    watch = bool(len(held_out[0]))
    # Standardised numbers become (x + 4) / 8, mostly between 0 and 1: networks overfit less (docs/defaults.md).
    problem = Problem.of(
        X[plan.index],
        Candidates(S.matrix[plan.index], S.classes),
        rows=[plan.trained(k) for k in parts],
        seeds=seed.generate_state(len(parts)).tolist(),
        shift=0.0 if X.dtype == np.uint8 else -4.0,
        scale=1 / 255 if X.dtype == np.uint8 else 1 / 8,
        weights=None if weights is None else weights[plan.index],
    )
    how, pruner = find_method(method), find_cleaner(cleaner)
    model = fit(
        problem,
        how,
        None if pruner is None else pruner.take(plan.index),
        recipe,
        net=net,
        device=device,
        progress=progress,
        held_out=held_out if watch else None,
        patience=patience,
    )
    lean = dataclasses.replace(model, kept=model.kept[:, :0])
    rebuilt = Model.of_parts(*lean.parts(), net=net if callable(net) else None, method=how)
    return rebuilt.to(model.problem.X.device)


def probabilities(model: Model, X: NDArray[Any], folds: int, progress: bool) -> Iterator[tuple[slice, Tensor]]:
    """Yield blocks of rows with their probabilities by each fold's networks, (folds, b, C) in float64."""
    size = _BLOCK if model.problem.X.device.type == "cpu" else 64 * _BLOCK
    bar = {"unit": "block", "disable": not progress, "delay": 2, "leave": False}
    for start in tqdm(range(0, len(X), size), "predicting", **bar):
        rows = slice(start, min(start + size, len(X)))
        block = X[np.arange(start, start + size).clip(max=len(X) - 1)]
        p = model.predict(block)[:, : rows.stop - start].double()
        yield rows, p.unflatten(0, (-1, folds)).mean(0)


def out_of_fold(model: Model, X: NDArray[Any], plan: Plan, progress: bool) -> Tensor:
    """Return the probabilities (n, C) of training rows by networks that did not train on them, if there are such."""
    fold = torch.from_numpy(plan.row_fold).clamp_min(0)
    p = torch.empty(len(X), model.problem.num_classes)
    for rows, some in probabilities(model, X, plan.folds, progress):
        p[rows] = some[fold[rows], torch.arange(some.shape[1])].float()
    if not p.isfinite().all():
        raise ValueError("training diverged, so that probabilities are not finite; use a smaller lr")
    return p


def p_values(
    model: Model, calibration: Calibration, X: NDArray[Any], rules: Sequence[Rule], progress: bool
) -> list[NDArray[np.float64]]:
    """Return the p-values (n, C) of new rows by each of several rules, predicting once."""
    for rule in rules:
        calibration.check(rule)
    blocks = [
        [calibration.p_values(X[rows], some, rule).numpy() for rule in rules]
        for rows, some in probabilities(model, X, len(calibration.counts), progress)
    ]
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]
