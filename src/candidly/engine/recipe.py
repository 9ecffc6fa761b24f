"""Recipes: how long and with which optimiser to train."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from candidly.checks import arguments


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
        At least 2, for batch normalisation. None is the choice of the UAI 2025 paper: 16 below 5000 training rows,
        otherwise 256.
    optimiser : {"adam", "sgd", "nesterov"}
        Adam with coupled L2 decay, plain SGD, or SGD with Nesterov momentum of 0.9 and L2 decay. With "nesterov", the
        last layer has a smaller rate if it is called `head`, or is the last linear layer of a module of that name
        (`candidly.engine.optim.Nesterov`): name it so in custom networks.
    schedule : {"one-cycle", "constant", "triangular"}
        How the learning rate changes. "triangular" rises linearly during the first fifth of the steps, then falls
        linearly to 0.
    max_lr : float or None
        Maximum of the learning rate; None means that of the method (`Method.max_lr`): 0.01, and 0.001 for LWS.
    weight_decay : float
        Weight decay; "sgd" has none.
    augment : bool or {"cutout", "strong"}
        Data augmentation of images. True: a flip in every other epoch and a random shift by up to 4 pixels. "cutout":
        also a square of zeros. "strong": also rotation, shear and colours (`candidly.engine.nets.augment`). Methods
        that use several views of an image (CroSel, PLCR, PiCO) make their own instead.
    test_flips : bool
        Test-time augmentation: whether the probabilities of an image are the mean over it and its mirror image.
    precision : {"auto", "float32"}
        Precision of ResNet-9. "auto" is bfloat16 on CUDA in a single process; weights are always float32. On CUDA,
        "float32" may use TF32 inside products, depending on ``torch.backends``; by default convolutions do.

    Examples
    --------
    >>> RECIPES["quick"].epochs
    30
    """

    name: str = "custom"
    epochs: int = 200
    batch_size: int | None = None
    optimiser: Literal["adam", "sgd", "nesterov"] = "adam"
    schedule: Literal["one-cycle", "constant", "triangular"] = "one-cycle"
    max_lr: float | None = None
    weight_decay: float = 1e-4
    augment: bool | Literal["cutout", "strong"] = False
    test_flips: bool = False
    precision: Literal["auto", "float32"] = "auto"

    def __post_init__(self) -> None:
        arguments.settings(
            self, epochs={"least": 1}, batch_size={"least": 2}, max_lr={"above": 0}, weight_decay={"least": 0}
        )
        for name in ("max_lr", "weight_decay"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, float(getattr(self, name)))  # 1 and 1.0 are the same recipe

    def with_rate(self, usual: float) -> "Recipe":
        """Return a recipe that names the maximum of the learning rate: its own, or else the `usual` one."""
        return self if self.max_lr is not None else replace(self, max_lr=usual)

    def batch(self, sizes: list[int]) -> int:
        """Return the batch size for runs with these numbers of training rows."""
        wished = self.batch_size or (16 if max(sizes) < 5000 else 256)
        return min(wished, *sizes)


_IMAGES: dict[str, Any] = {
    "batch_size": 512,
    "optimiser": "nesterov",
    "schedule": "triangular",
    "max_lr": 0.2,
    "test_flips": True,
}

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("uai2025"),
        Recipe("quick", epochs=30, batch_size=64),
        Recipe("fast", epochs=60, weight_decay=1e-3, augment="cutout", **_IMAGES),
        Recipe("strong", epochs=110, weight_decay=5e-4, augment="strong", **_IMAGES),
    )
}
"""The paper's recipe, a short one, and two for colour images: docs/guides/images.md has what they reach."""


def find_recipe(recipe: Recipe | str) -> Recipe:
    """Return a recipe by its name; a `Recipe` itself is returned as it is."""
    wanted = f"a Recipe or one of the names {', '.join(RECIPES)}"
    arguments.instance("recipe", recipe, (Recipe, str), wanted)
    if isinstance(recipe, str) and recipe not in RECIPES:
        raise ValueError(f"unknown recipe {recipe!r}; use one of {', '.join(RECIPES)} or a Recipe")
    return RECIPES[recipe] if isinstance(recipe, str) else recipe


def smaller_rate(recipe: Recipe) -> str:
    """Return what to do about a training that diverged."""
    return f"use a smaller learning rate (it was {recipe.max_lr}), and check the features for extreme values"
