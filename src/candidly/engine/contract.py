"""The contract between methods and the engine.

A method is a dataclass of hyper-parameters. `fit` works on a copy of it: `setup` allocates every network (an attribute
that is an nn.Module) and everything stored per row (an attribute that is a Tensor), all with the run axis R first.
Afterwards tensors are only written in place, and no number that `step` reads may change, because a step may be
captured once and replayed. `phase` names the only thing a step may branch on.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from candidly.engine.problem import Problem


class BuildNet(Protocol):
    """What a method's `setup` builds networks with.

    Without a name it builds the user's classifier; `features` asks for one with ``.features(x)``, and `copies` for
    several independent ones per run, which are stacked as runs are: the k-th of run r is number ``r·copies + k``. With
    the name "decoder" it builds the network that `inputs` and `outputs` describe.
    """

    def __call__(
        self, name: str | None = None, *, inputs: int = 0, outputs: int = 0, features: bool = False, copies: int = 1
    ) -> nn.Module:
        """Build one network."""
        ...


class Batch(Protocol):
    """One minibatch of every run: R × B rows, no row twice within a run."""

    rows: Tensor
    """Global row numbers, (R, B)."""
    x: Tensor
    """Features, (R, B, ...)."""
    S: Tensor
    """Candidate sets, (R, B, C)."""

    def take(self, state: Tensor) -> Tensor:
        """Read this batch's rows of a state tensor (R, N, ...)."""
        ...

    def put(self, state: Tensor, value: Tensor) -> None:
        """Write this batch's rows of a state tensor, in place."""
        ...

    def inputs(self, rows: Tensor) -> Tensor:
        """Features of other rows (R, K) of the data."""
        ...

    def noise(self, k: int) -> Tensor:
        """Fresh uniforms (R, B, k); a method's calls in one step may ask for `Method.noise` in all."""
        ...

    def candidates(self, p: Tensor, within: Tensor | None = None) -> Tensor:
        """Candidate sets given the method's current probabilities: a non-empty subset of `within` (default S).

        This is where cleaners act. Call it at most once per step.
        """
        ...


class Sweep(Protocol):
    """Runs a function over all rows in evaluation mode, without gradients."""

    def __call__(self, fn: Callable[[Tensor], Tensor], rows: Tensor | None = None) -> Tensor:
        """Apply `fn`, from inputs (R, K, ...) to outputs (R, K, ...), to `rows` (R, M), by default to all N rows."""
        ...

    def noise(self) -> Tensor:
        """Uniforms (R, N) of this epoch."""
        ...


class Method:
    """Base of all methods; see the module's docstring for the contract."""

    noise: int = 0
    """How many uniforms a step uses per row; set in `setup` when it depends on the problem."""

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Allocate all networks and all per-row state."""
        raise NotImplementedError

    def phase(self, epoch: int) -> Hashable:
        """Name what distinguishes this epoch's steps from other epochs'."""
        return "main"

    def trains(self, phase: Hashable) -> Sequence[nn.Module]:
        """Return the networks that the phase's loss reaches; by default all."""
        return list(self.networks().values())

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Return the loss of each run on one minibatch, (R,)."""
        raise NotImplementedError

    def after_step(self, batch: Batch, phase: Hashable) -> None:
        """Do what must follow the optimiser's step; gradients are off."""

    def epoch_end(self, epoch: int, sweep: Sweep) -> None:
        """Do what happens once per epoch; gradients are off."""

    def predict(self, x: Tensor) -> Tensor:
        """Return probabilities (R, B, C) for inputs (R, B, ...)."""
        raise NotImplementedError

    def networks(self) -> dict[str, nn.Module]:
        """All networks by attribute name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, nn.Module)}

    def state(self) -> dict[str, Tensor]:
        """All per-row state by attribute name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}


class OneNetwork(Method):
    """A method whose model is one network, `net`."""

    net: nn.Module

    def predict(self, x: Tensor) -> Tensor:
        """Return the network's softmax."""
        return torch.softmax(self.net(x), -1)


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
