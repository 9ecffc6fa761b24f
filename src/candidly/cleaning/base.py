"""The contract of cleaners, which prune candidate sets during training in one place, `batch.candidates`."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from candidly.methods.base import Batch
from candidly.problem import Problem

Predict = Callable[[Tensor | None], Tensor]
"""Probabilities in evaluation mode: of given rows (R, M) or, with None, of all N rows."""


class Cleaner:
    """The contract of a cleaner, and the cleaner that changes nothing.

    A cleaner is a dataclass of settings; `fit` works on a copy of it. Attributes that are Tensors are its state: they
    are allocated in `setup` and afterwards only written in place.
    """

    noise: int = 0
    """How many uniforms `keep` uses per row."""

    def take(self, rows: NDArray[np.intp]) -> "Cleaner":
        """Return the cleaner for these rows of the data, in this order; it differs where it holds something per row."""
        return self

    def setup(self, problem: Problem) -> Problem:
        """Choose calibration rows and allocate state; return the problem to train on, with fewer rows or labels."""
        return problem

    def calibrate(self, predict: Predict, epoch: int) -> None:
        """Prepare for the steps of `epoch`, before its first one; gradients are off."""

    def keep(self, p: Tensor, S: Tensor, batch: Batch) -> Tensor:
        """Return a non-empty subset of every row of S (R, B, C), given the method's probabilities p."""
        return S

    def facts(self) -> dict[str, Tensor]:
        """Return what the history should record of this epoch, (R,) each."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """All state by attribute name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
