"""How a step sees the data: minibatches of all runs, and sweeps over all rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from candidly.engine.contract import Cleaner, Method
from candidly.engine.nets.augment import NOISE_PER_VIEW, flip_crop
from candidly.engine.problem import Problem, stream

_SWEEP_NUMBERS = {"cpu": 2**22, "cuda": 2**26}  # that one block of a sweep may hold, about, of inputs or of a layer's
_LAYER = 1024  # numbers per row of a layer, at least


class Batch:
    """One minibatch of every run; see `candidly.engine.contract.Batch` for what methods may use of it."""

    rows: Tensor
    x: Tensor
    S: Tensor

    def __init__(
        self,
        problem: Problem,
        cleaner: Cleaner,
        steps: int,
        size: int,
        noise: int,
        guess: bool = False,
        augment: bool = False,
    ):
        if augment and problem.X.ndim != 4:
            shape = tuple(problem.X.shape[1:])
            raise ValueError(f"rows have shape {shape}, but augment=True flips (channels, height, width) images")
        self._problem, self._cleaner, self._guess, self._augment = problem, cleaner, guess, augment
        noise += NOISE_PER_VIEW if augment else 0
        new, runs = problem.new_zeros, problem.runs
        self._own = [rows.cpu() for rows in problem.rows]
        self._order = new(runs, steps, size, dtype=torch.int64)
        self._noise = new(runs, steps, size, noise)
        self._offset = torch.arange(runs, device=problem.X.device).unsqueeze(1) * len(problem.X)
        self.tick = new(1, dtype=torch.int64)
        self.kept = problem.sets.clone()
        self.guess = new(problem.sets.shape[:2], dtype=torch.int64)

    def shuffle(self, epoch: int) -> None:
        """Draw the epoch's order and noise. A run that is short of full batches starts over with its own first rows.

        The order is drawn on the host, while a GPU may still be busy with the epoch before, and copied in one piece.
        """
        _, steps, size = self._order.shape
        order = torch.empty(self._order.shape, dtype=torch.int64, pin_memory=self._order.is_cuda)
        for run, (seed, rows) in enumerate(zip(self._problem.seeds, self._own, strict=True)):
            drawn = rows[torch.randperm(len(rows), generator=stream(seed, "order", epoch))]
            order[run] = drawn.repeat(-(-steps * size // len(rows)))[: steps * size].view(steps, size)
            if self._noise.numel():
                self._noise[run].uniform_(generator=stream(seed, "noise", epoch, device=self._noise.device))
        self._order.copy_(order, non_blocking=True)
        self.tick.zero_()

    def load(self) -> None:
        """Turn to the rows at the current tick."""
        self.rows = self._order.index_select(1, self.tick).squeeze(1)
        self._flat = (self.rows + self._offset).flatten()
        self._drawn = 0
        self.x = self.inputs(self.rows)
        if self._augment:
            self.x = flip_crop(self.x, self.noise(NOISE_PER_VIEW))
        self.S = self._gather_sets()

    def _gather_sets(self) -> Tensor:
        S = self._problem.S
        return self.take(S) if S.ndim == 3 else S.index_select(0, self.rows.flatten()).view(*self.rows.shape, -1)

    def take(self, state: Tensor) -> Tensor:
        """Read this batch's rows of a state tensor (R, N, ...)."""
        return state.flatten(0, 1).index_select(0, self._flat).unflatten(0, self.rows.shape)

    def put(self, state: Tensor, value: Tensor) -> None:
        """Write this batch's rows of a state tensor, in place."""
        state.view(-1, *state.shape[2:]).index_copy_(0, self._flat, value.flatten(0, 1))

    def inputs(self, rows: Tensor) -> Tensor:
        """Features of rows (R, K) as the networks see them."""
        problem = self._problem
        return scaled(problem.X.index_select(0, rows.flatten()).unflatten(0, rows.shape), problem)

    def noise(self, k: int) -> Tensor:
        """Fresh uniforms (R, B, k)."""
        self._drawn += k
        return self._noise.index_select(1, self.tick).squeeze(1)[..., self._drawn - k : self._drawn]

    def candidates(self, p: Tensor, within: Tensor | None = None) -> Tensor:
        """Ask the cleaner; remember its answer and, where true labels are known, the most probable label."""
        p = p.detach()
        kept = self._cleaner.keep(p, self.S if within is None else within, self)
        self.put(self.kept, kept)
        if self._guess:
            self.put(self.guess, p.argmax(-1))
        return kept


def scaled(x: Tensor, problem: Problem) -> Tensor:
    """Make inputs (R, K, ...) numbers, and apply each run's shift and scale to them."""
    if problem.scale is None or problem.shift is None:
        return x.to(problem.dtype)
    return (x - problem.shift) * problem.scale  # bytes minus float32 are float32, without a copy between


class Sweep:
    """Runs a function over rows in evaluation mode; see `candidly.engine.contract.Sweep`."""

    def __init__(self, problem: Problem, method: Method):
        self._problem, self._method = problem, method
        self.epoch = 0

    @torch.no_grad()
    def __call__(self, fn: Callable[[Tensor], Tensor], rows: Tensor | None = None) -> Tensor:
        """Apply `fn` to `rows` (R, M), by default to all rows, in blocks."""
        X, runs = self._problem.X, self._problem.runs
        if rows is None:
            parts = (X[i].expand(runs, *X[i].shape) for i in self._blocks(len(X)))
        else:
            parts = (X[rows[:, i]] for i in self._blocks(rows.shape[1]))
        with evaluating(self._method):
            return torch.cat([fn(scaled(part, self._problem)) for part in parts], 1)

    def _blocks(self, n: int) -> list[slice]:
        X = self._problem.X
        numbers = _SWEEP_NUMBERS.get(X.device.type, 2**22)
        size = max(1, numbers // (self._problem.runs * max(_LAYER, X.shape[1:].numel())))
        return [slice(start, start + size) for start in range(0, max(1, n), size)]

    def noise(self) -> Tensor:
        """Uniforms (R, N) of this epoch."""
        n, problem = len(self._problem.X), self._problem
        draws = [torch.rand(n, generator=stream(seed, "sweep", self.epoch)) for seed in problem.seeds]
        return torch.stack(draws).to(problem.X.device, problem.dtype)


@contextmanager
def evaluating(method: Method) -> Iterator[None]:
    """Put the method's networks into evaluation mode for a while."""
    for net in method.networks().values():
        net.eval()
    try:
        yield
    finally:
        for net in method.networks().values():
            net.train()
