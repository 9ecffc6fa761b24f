"""Recipes: how long and with which optimiser to train."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Recipe:
    """How long and with which optimiser to train.

    All runs take the same number of full batches. If a run has fewer rows, its first rows of the epoch are repeated;
    the published experiments trained on a smaller last batch instead.

    Attributes
    ----------
    name : str
        Shown in results.
    epochs : int
        Passes over the training rows.
    batch_size : int or None
        None is the paper's choice: 16 below 5000 training rows, otherwise 256.
    optimiser : {"adam", "sgd"}
        Adam with coupled L2 decay, or plain gradient descent.
    schedule : {"one-cycle", "constant"}
        How the learning rate changes.
    max_lr : float
        Maximum of the learning rate.
    weight_decay : float
        Weight decay of Adam.
    augment : bool
        Whether to flip and shift images at random in every step (`candidly.engine.nets.augment.flip_crop`). CroSel
        always does so after its warm-up for the images of its soft term, but not for selected rows.
    precision : {"auto", "float32"}
        Precision of ResNet-9. "auto" is bfloat16 on CUDA; weights are always float32. On CUDA, "float32" may use TF32
        inside products, depending on ``torch.backends``; by default convolutions do.

    Examples
    --------
    >>> RECIPES["quick"].epochs
    30
    """

    name: str = "custom"
    epochs: int = 200
    batch_size: int | None = None
    optimiser: Literal["adam", "sgd"] = "adam"
    schedule: Literal["one-cycle", "constant"] = "one-cycle"
    max_lr: float = 0.01
    weight_decay: float = 1e-4
    augment: bool = False
    precision: Literal["auto", "float32"] = "auto"

    def __post_init__(self) -> None:
        whole = [self.epochs] if self.batch_size is None else [self.epochs, self.batch_size]
        if any(isinstance(number, bool) or not isinstance(number, int) for number in whole):
            raise ValueError(f"epochs is {self.epochs!r} and batch_size {self.batch_size!r}; give whole numbers")
        for name in ("max_lr", "weight_decay"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
                raise ValueError(f"{name} is {number!r}; give a finite number")
            object.__setattr__(self, name, float(number))  # 1 and 1.0 are the same recipe
        if self.epochs < 1:
            raise ValueError(f"epochs is {self.epochs}; it must be at least 1")
        if self.batch_size is not None and self.batch_size < 2:
            raise ValueError(f"batch_size is {self.batch_size}; batch normalisation needs at least 2 rows")
        if self.optimiser not in ("adam", "sgd"):
            raise ValueError(f"optimiser is {self.optimiser!r}; use 'adam' or 'sgd'")
        if self.schedule not in ("one-cycle", "constant"):
            raise ValueError(f"schedule is {self.schedule!r}; use 'one-cycle' or 'constant'")
        if not isinstance(self.augment, bool):
            raise ValueError(f"augment is {self.augment!r}; use True or False")
        if self.precision not in ("auto", "float32"):
            raise ValueError(f"precision is {self.precision!r}; use 'auto' or 'float32'")
        if not self.max_lr > 0 or not self.weight_decay >= 0:
            raise ValueError(f"max_lr is {self.max_lr} and weight_decay {self.weight_decay}; use a positive rate")

    def batch(self, sizes: list[int]) -> int:
        """Return the batch size for runs with these numbers of training rows."""
        wished = self.batch_size or (16 if max(sizes) < 5000 else 256)
        return min(wished, *sizes)


RECIPES = {recipe.name: recipe for recipe in (Recipe("uai2025"), Recipe("quick", epochs=30, batch_size=64))}


def find_recipe(recipe: Recipe | str) -> Recipe:
    """Return a recipe by its name; a `Recipe` itself is returned as it is."""
    if not isinstance(recipe, Recipe | str):
        raise ValueError(f"recipe is {recipe!r}; pass a Recipe or one of the names {', '.join(RECIPES)}")
    if isinstance(recipe, str) and recipe not in RECIPES:
        raise ValueError(f"unknown recipe {recipe!r}; use one of {', '.join(RECIPES)} or a Recipe")
    return RECIPES[recipe] if isinstance(recipe, str) else recipe


def smaller_rate(recipe: Recipe) -> str:
    """Return what to do about a training that diverged."""
    return f"use a smaller learning rate (it was {recipe.max_lr:g}), and check the features for extreme values"
