"""The two contracts of the engine, `Method` and `Cleaner`, for custom methods and custom cleaners.

`candidly.fit` trains any `Method` with any `Cleaner`. Both are dataclasses whose fields are their settings. `fit` works
on a copy, so the object you pass never changes. Tensors have the run axis R first: several runs (seeds, folds, ensemble
members) train together, and nothing needs to mention the axis if you reduce over ``dim=-1`` and ``dim=-2``. N is the
number of rows of the data, B that of a minibatch, C the number of classes.

A method
    1. ``setup(problem, build_net)`` allocates everything: networks (attributes that are an ``nn.Module``) and state
       (attributes that are a ``Tensor``, such as label weights (R, N, C)).
    2. ``step(batch, phase)`` returns the loss of each run on one minibatch, (R,). The engine computes the gradient and
       updates the networks that ``trains(phase)`` lists.
    3. ``after_step(batch, phase)`` and ``epoch_end(epoch, sweep)`` update state after the optimiser's step and after
       each epoch. ``sweep(fn)`` applies a function to all rows in evaluation mode.
    4. ``predict(x)`` returns probabilities (R, B, C). `OneNetwork` implements it for methods with one network, `net`.

A cleaner
    1. ``setup(problem)`` allocates state and returns the problem to train on: the same one, one with fewer rows (some
       are held out for calibration) or one with fewer candidates.
    2. ``calibrate(predict, epoch)`` runs before each epoch. ``predict(rows)`` returns probabilities in evaluation mode.
    3. ``keep(p, S, batch)`` returns the candidates to keep: a non-empty subset of every row of S.
    4. ``facts()`` returns what the history records after each epoch, (R,) each.

The two meet in one place: a method asks ``batch.candidates(p)`` at most once per step, and the engine answers with the
cleaner's ``keep``. A method does not know whether there is a cleaner, and neither ever sees true labels.

Rules. On a GPU a step is captured once as a CUDA graph and then replayed: it runs no Python and sees no new tensors.
Therefore, in ``step``, ``after_step`` and ``keep``:

- Allocate state in ``setup`` and write it in place afterwards (``batch.put``, ``copy_``).
- Do not read Python numbers that change. A value that changes, such as a threshold, is a tensor.
- Branch on ``phase`` only. ``phase(epoch)`` names what distinguishes epochs, and each value gets its own graph.
- Do nothing whose size depends on the data, and read nothing back: no ``.item()``, ``nonzero``, ``masked_select`` or
  indexing by a boolean tensor. Use ``torch.where`` or multiply by a mask.
- Take random numbers from ``batch.noise(k)`` and declare how many in the attribute ``noise``; take random views of
  images from ``batch.views()`` and declare which in the attribute ``views``.
- Keep a support (which labels are still possible) as a boolean tensor, not as ``q > 0``: small weights underflow to 0.

``epoch_end``, ``calibrate`` and ``facts`` are not captured, and may do all of this except replacing state.

Rows may be divided among processes (`candidly.engine.ranks`); N and B are then numbers of rows of this process. The
engine sums gradients and batch statistics, so nothing needs to know about it as long as

- the loss is a mean over the rows of the minibatch, without terms that compare rows with each other,
- state is stored per row (R, N, ...), or is the same in all processes: sums over rows are
  ``problem.group.total(sums)``, in steps as well as in other functions, and all processes must call it equally often,
- row numbers are not stored.

A method or cleaner that must see all rows calls ``problem.refuse_shards("what it does")`` in ``setup``.

Examples
--------
A method that trains on the average of all candidates, and a cleaner that keeps the two most probable candidates:

>>> from dataclasses import dataclass
>>> import torch
>>> from candidly.engine import Cleaner, OneNetwork, Problem, Recipe, fit, soft_ce, uniform_weights
>>> @dataclass
... class Average(OneNetwork):
...     def setup(self, problem, build_net):
...         self.net = build_net()
...
...     def step(self, batch, phase):
...         z = self.net(batch.x)
...         kept = batch.candidates(z.detach().softmax(-1))
...         return soft_ce(uniform_weights(kept, z.dtype), z)
>>> @dataclass
... class TopTwo(Cleaner):
...     def keep(self, p, S, batch):
...         inside = torch.where(S, p, -1)
...         return S & (inside >= inside.topk(2).values[..., -1:])
>>> S = [[True, True, True], [False, True, False], [True, False, True]]
>>> problem = Problem.of([[0.0], [1.0], [2.0]], S)
>>> model = fit(problem, Average(), TopTwo(), Recipe(epochs=2), net="linear", device="cpu")
>>> model.kept.sum(-1).tolist()
[[2, 1, 2]]
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from candidly.engine.problem import Problem


class BuildNet(Protocol):
    """The function that a method's `setup` builds networks with.

    Without a name it builds the classifier that the user chose as `net`. `features` requires one with
    ``.features(x)``, which returns a vector per row. `copies` builds several independent ones per run, stacked like
    runs: copy k of run r has the index ``r·copies + k``. With the name "decoder" it builds a decoder from `inputs` to
    `outputs` numbers.
    """

    def __call__(
        self, name: str | None = None, *, inputs: int = 0, outputs: int = 0, features: bool = False, copies: int = 1
    ) -> nn.Module:
        """Return a network for all runs; each call initialises it with different weights."""
        ...


class Batch(Protocol):
    """One minibatch of every run: R × B rows, no row twice within a run."""

    rows: Tensor
    """Global row numbers, (R, B)."""
    S: Tensor
    """Candidate sets, (R, B, C)."""
    size: int
    """Number of rows of each run in the minibatch, on all ranks together; B in a single process."""
    places: Sequence[slice]
    """Where in the batch the rows of each shard of the problem are; one slice of all rows without shards."""

    @property
    def x(self) -> Tensor:
        """Features, (R, B, ...); images are augmented if the recipe says so."""
        ...

    def take(self, state: Tensor) -> Tensor:
        """Read this batch's rows of a state tensor (R, N, ...)."""
        ...

    def put(self, state: Tensor, value: Tensor) -> None:
        """Write this batch's rows of a state tensor, in place."""
        ...

    def inputs(self, rows: Tensor) -> Tensor:
        """Return the features of any rows (R, K) of the data."""
        ...

    def views(self) -> list[Tensor]:
        """Return a new random view (R, B, ...) of the batch's images for each entry of the attribute `views`.

        If the rows are not images, the only view is `x` itself. Call it at most once per step.
        """
        ...

    def noise(self, k: int) -> Tensor:
        """Return new uniforms (R, B, k) on [0, 1); the calls of one step may add up to the attribute `noise`."""
        ...

    def candidates(self, p: Tensor, within: Tensor | None = None) -> Tensor:
        """Return the candidates that the cleaner keeps given p (R, B, C): a non-empty subset of `within`, by default S.

        Call it at most once per step.
        """
        ...


class Sweep(Protocol):
    """Applies a function to rows in evaluation mode, without gradients."""

    def __call__(self, fn: Callable[[Tensor], Tensor], rows: Tensor | None = None) -> Tensor:
        """Apply `fn`, from inputs (R, K, ...) to outputs (R, K, ...), to `rows` (R, M), by default to all N rows."""
        ...

    def noise(self) -> Tensor:
        """Return uniforms (R, N) on [0, 1) of this epoch."""
        ...


class Method:
    """Base class of all methods; the module's docstring explains the contract."""

    noise: int = 0
    """Number of uniforms that a step draws per row; set it in `setup` when it depends on the problem."""

    views: tuple[str, ...] = ()
    """The views of images that a step asks for, each a key of `candidly.engine.nets.augment.VIEWS`."""

    max_lr: float = 0.01
    """The maximum of the learning rate, unless the recipe names one."""

    total_epochs: int = 0
    """Number of epochs of the whole training; the engine sets it before `setup`."""

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Allocate all networks and all state."""
        raise NotImplementedError

    def phase(self, epoch: int) -> Hashable:
        """Return a hashable value that distinguishes the steps of different epochs, such as "warm-up" and "main"."""
        return "main"

    def trains(self, phase: Hashable) -> Sequence[nn.Module]:
        """Return the networks that the loss of this phase depends on; by default all.

        A network that no phase trains is the method's to change in `after_step`, such as an average of another one.
        """
        return list(self.networks().values())

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Return the loss of each run on one minibatch, (R,)."""
        raise NotImplementedError

    def after_step(self, batch: Batch, phase: Hashable) -> None:
        """Update state after the optimiser's step; gradients are off."""

    def epoch_end(self, epoch: int, sweep: Sweep) -> None:
        """Update state after an epoch; gradients are off."""

    def predict(self, x: Tensor) -> Tensor:
        """Return probabilities (R, B, C) for inputs (R, B, ...)."""
        raise NotImplementedError

    def networks(self) -> dict[str, nn.Module]:
        """Return all networks by attribute name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, nn.Module)}

    def state(self) -> dict[str, Tensor]:
        """Return all state by attribute name."""
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
    """Base class of all cleaners, and the cleaner that keeps every candidate.

    The module's docstring explains the contract.
    """

    noise: int = 0
    """Number of uniforms that `keep` draws per row."""

    def take(self, rows: NDArray[np.intp]) -> "Cleaner":
        """Return the cleaner for a subset of the rows; override it if a setting has one entry per row."""
        return self

    def setup(self, problem: Problem) -> Problem:
        """Choose calibration rows, allocate state and return the problem to train on."""
        return problem

    def calibrate(self, predict: Predict, epoch: int) -> None:
        """Prepare for the steps of `epoch`; gradients are off."""

    def keep(self, p: Tensor, S: Tensor, batch: Batch) -> Tensor:
        """Return a non-empty subset of every row of S (R, B, C), given the method's probabilities p (R, B, C)."""
        return S

    def facts(self) -> dict[str, Tensor]:
        """Return values for the history of this epoch by name, (R,) each."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Return all state by attribute name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
