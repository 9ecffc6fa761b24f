"""Minibatches of all runs, and sweeps over all rows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

import torch
from torch import Tensor

from candidly.checks.arguments import shown
from candidly.engine.contract import Cleaner, Method
from candidly.engine.device import no_capture
from candidly.engine.nets.augment import VIEWS
from candidly.engine.problem import Problem, stream

# One block of a sweep holds about this many numbers, of inputs or of a layer's outputs.
_BLOCK_NUMBERS = {"cpu": 2**22, "cuda": 2**26}
_IMAGE_BLOCK_NUMBERS = {"cuda": 2**28}  # 2048 images of 32 × 32 pixels: smaller blocks leave a GPU idle
_DEFAULT_BLOCK_NUMBERS = 2**22
_LAYER_WIDTH = 1024  # numbers per row that a layer is assumed to have
_LAYER_CHANNELS = 128  # numbers per pixel that a convolution is assumed to have, as the second of ResNet-9


class Batch:
    """One minibatch of every run; `candidly.engine.contract.Batch` is what methods may use of it."""

    rows: Tensor
    S: Tensor

    def __init__(
        self,
        problem: Problem,
        cleaner: Cleaner,
        steps: int,
        size: int,
        noise: int,
        guess: bool = False,
        augment: bool | str = False,
        views: Sequence[str] = (),
        slices: Sequence[int] = (),
    ):
        """Take `slices` rows of each shard of this process, `size` on all ranks; by default there is one shard."""
        runs, n = problem.runs, len(problem.X)
        new = problem.new_zeros
        self._problem = problem
        self._cleaner = cleaner
        self._guess = guess
        self._augment = [VIEWS["weak" if augment is True else augment]] if augment else []
        self.size = size
        widths = list(slices) or [size]
        ends = list(accumulate(widths))
        self.places: Sequence[slice] = [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]
        size = ends[-1]
        self._views = [VIEWS[kind] for kind in views] if problem.X.ndim == 4 else []
        noise += sum(drawn for _, drawn in self._augment + self._views)
        self._training_rows = [[shard.of(rows.cpu()) for shard in problem.parts] for rows in problem.rows]
        self._order = new(runs, steps, size, dtype=torch.int64)  # (R, steps, B): rows of every step of the epoch
        self._noise = new(runs, steps, size, noise)  # (R, steps, B, uniforms)
        self._offset = torch.arange(runs, device=problem.X.device).unsqueeze(1) * n  # (R, 1): into state as (R·N, ...)
        self.tick = new(1, dtype=torch.int64)  # (1,): the step within the epoch
        self.kept = problem.sets.clone()  # (R, N, C): candidates as last kept
        self.guess = new(runs, n, dtype=torch.int64)  # (R, N): most probable label at the last visit, if `guess`

    def shuffle(self, epoch: int) -> None:
        """Draw the epoch's order and noise.

        A batch has `slices` rows of each shard, one shard after the other. All runs take the same number of full
        batches. A run with fewer rows than that repeats its first rows of the epoch, so that no batch is short. The
        order is drawn on the host, while a GPU may still be busy with the epoch before, and copied at once.
        """
        steps = self._order.shape[1]
        order = torch.empty(self._order.shape, dtype=torch.int64, pin_memory=self._order.is_cuda)
        shards = list(zip(self._problem.parts, self.places, strict=True))
        for run, (seed, trained) in enumerate(zip(self._problem.seeds, self._training_rows, strict=True)):
            for (shard, place), rows in zip(shards, trained, strict=True):
                size = place.stop - place.start
                drawn = rows[torch.randperm(len(rows), generator=stream(seed, "order", epoch, *shard.key))]
                repeats = -(-steps * size // len(rows))  # rounded up
                order[run, :, place] = drawn.repeat(repeats)[: steps * size].view(steps, size)
                if self._noise.numel():
                    noise = self._noise[run, :, place]
                    generator = stream(seed, "noise", epoch, *shard.key, device=noise.device)
                    noise.copy_(noise.new_empty(noise.shape).uniform_(generator=generator))
        self._order.copy_(order, non_blocking=True)
        if self._augment:
            self._alternate_flips(epoch)
        self.tick.zero_()

    def _alternate_flips(self, epoch: int) -> None:
        """Flip every image in every other epoch, half of them in the first one (K. Jordan, *94% on CIFAR-10*, 2024)."""
        parts, new, device = self._problem.parts, self._noise.new_empty, self._noise.device
        for run, seed in enumerate(self._problem.seeds):
            streams = [stream(seed, "flips", *shard.key, device=device) for shard in parts]
            drawn = zip(parts, streams, strict=True)
            u = torch.cat([new(shard.stop - shard.start).uniform_(generator=one) for shard, one in drawn])
            self._noise[run, ..., 0] = (1 - u if epoch % 2 else u)[self._order[run]]

    def load(self) -> None:
        """Load the rows of the step that `tick` points at."""
        self.rows = self._order.index_select(1, self.tick).squeeze(1)
        self._flat = (self.rows + self._offset).flatten()
        self._drawn = 0
        self._plain = self.inputs(self.rows)
        self._uniforms = [self.noise(drawn) for _, drawn in self._augment]
        self._x: Tensor | None = None
        self.S = self._gather_sets()

    @property
    def x(self) -> Tensor:
        """The features, augmented when a method first asks: one that uses `views` may not."""
        if self._x is None:
            self._x = self._plain
            with torch.inference_mode(False):  # a method may read it first where nothing has a gradient
                for (view, _), u in zip(self._augment, self._uniforms, strict=True):
                    self._x = view(self._x, u)
        return self._x

    def views(self) -> list[Tensor]:
        """Return new random views of the batch's images, or the rows themselves if they are not images."""
        if not self._views:
            return [self.x]
        return [view(self._plain, self.noise(drawn)) for view, drawn in self._views]

    def _gather_sets(self) -> Tensor:
        S = self._problem.S
        if S.ndim == 3:  # each run has its own
            return self.take(S)
        return S.index_select(0, self.rows.flatten()).view(*self.rows.shape, -1)

    def take(self, state: Tensor) -> Tensor:
        """Read this batch's rows of a state tensor (R, N, ...)."""
        return state.flatten(0, 1).index_select(0, self._flat).unflatten(0, self.rows.shape)

    def put(self, state: Tensor, value: Tensor) -> None:
        """Write this batch's rows of a state tensor, in place."""
        state.view(-1, *state.shape[2:]).index_copy_(0, self._flat, value.flatten(0, 1))

    def inputs(self, rows: Tensor) -> Tensor:
        """Return the features of rows (R, K) as the networks see them."""
        x = self._problem.X.index_select(0, rows.flatten()).unflatten(0, rows.shape)
        return scaled(x, self._problem)

    def noise(self, k: int) -> Tensor:
        """Return new uniforms (R, B, k)."""
        start = self._drawn
        self._drawn += k
        if self._drawn > self._noise.shape[-1]:
            raise ValueError(
                f"a step drew {self._drawn} uniforms per row, but only {self._noise.shape[-1]} are declared; raise the "
                "attribute `noise` of the method or cleaner, and call batch.views() once"
            )
        return self._noise.index_select(1, self.tick).squeeze(1)[..., start : self._drawn]

    def candidates(self, p: Tensor, within: Tensor | None = None) -> Tensor:
        """Return and record what the cleaner keeps; if true labels are known, also record the most probable label."""
        p = p.detach()
        given = self.S if within is None else within
        kept = self._cleaner.keep(p, given, self)
        if not isinstance(kept, Tensor) or kept.dtype != torch.bool or kept.shape != given.shape:
            found = f"{kept.dtype} of shape {tuple(kept.shape)}" if isinstance(kept, Tensor) else shown(kept)
            wanted = f"a boolean tensor of shape {tuple(given.shape)}"
            raise ValueError(f"keep of the cleaner {type(self._cleaner).__name__} returned {found}; return {wanted}")
        self.put(self.kept, kept)
        if self._guess:
            self.put(self.guess, p.argmax(-1))
        return kept


def scaled(x: Tensor, problem: Problem) -> Tensor:
    """Convert inputs (R, K, ...) to the networks' dtype and apply each run's shift and scale."""
    if problem.scale is None or problem.shift is None:
        return x.to(problem.dtype)
    return (x - problem.shift) * problem.scale  # uint8 minus float32 is float32, without another copy


class Sweep:
    """Applies a function to rows in evaluation mode; see `candidly.engine.contract.Sweep`."""

    def __init__(self, problem: Problem, method: Method):
        self._problem = problem
        self._method = method
        self.epoch = 0

    @torch.no_grad()
    def __call__(self, fn: Callable[[Tensor], Tensor], rows: Tensor | None = None) -> Tensor:
        """Apply `fn` to `rows` (R, M), by default to all rows, in blocks."""
        X, runs = self._problem.X, self._problem.runs
        if rows is None:
            parts = (X[i].expand(runs, *X[i].shape) for i in self._blocks(len(X)))
        else:
            parts = (X[rows[:, i]] for i in self._blocks(rows.shape[1]))
        with evaluating(self._method), no_capture(X.device):
            return torch.cat([fn(scaled(part, self._problem)) for part in parts], 1)

    def _blocks(self, n: int) -> list[slice]:
        size = block_size(self._problem)
        return [slice(start, start + size) for start in range(0, max(1, n), size)]

    def noise(self) -> Tensor:
        """Return uniforms (R, N) of this epoch."""
        problem = self._problem
        draws = [
            torch.rand(
                shard.stop - shard.start,
                dtype=torch.float32,
                generator=stream(seed, "sweep", self.epoch, *shard.key),
            )
            for seed in problem.seeds
            for shard in problem.parts
        ]
        return torch.cat(draws).view(problem.runs, -1).to(problem.X.device, problem.dtype)


def block_size(problem: Problem) -> int:
    """Return the number of rows that all runs can evaluate at a time without using much memory."""
    shape, most = problem.X.shape[1:], _BLOCK_NUMBERS
    per_row = problem.runs * max(_LAYER_WIDTH, shape.numel())  # inputs, and layers that all runs evaluate together
    if len(shape) == 3:  # convolutional networks evaluate one run after the other
        most = most | _IMAGE_BLOCK_NUMBERS
        per_row = max(per_row, _LAYER_CHANNELS * shape[1] * shape[2])
    return max(1, most.get(problem.X.device.type, _DEFAULT_BLOCK_NUMBERS) // per_row)


@torch.no_grad()
def predict_block(problem: Problem, method: Method, rows: Tensor, size: int, flips: bool = False) -> Tensor:
    """Return each run's class probabilities (R, b, C) for at most `size` rows: (b, ...), or (R, b, ...) if runs differ.

    With `flips`, rows are images, and an image's probabilities are the mean over it and its mirror image.

    The networks always see `size` rows; copies of the last row fill the block. Rounding depends on the shape of a
    matrix product, so with a varying shape the same row would have different last bits.
    """
    differ = rows.ndim > problem.X.ndim
    number = rows.shape[int(differ)]
    filled = rows.index_select(int(differ), torch.arange(size).clamp_max(number - 1)).to(problem.X.device)
    with evaluating(method), no_capture(problem.X.device):
        x = scaled(filled if differ else filled.expand(problem.runs, *filled.shape), problem)
        p = (method.predict(x) + method.predict(x.flip(-1))) / 2 if flips else method.predict(x)
    shape = (problem.runs, size, problem.num_classes)
    if not isinstance(p, Tensor) or tuple(p.shape) != shape:
        found = f"a tensor of shape {tuple(p.shape)}" if isinstance(p, Tensor) else shown(p)
        raise ValueError(
            f"predict of the method {type(method).__name__} returned {found}; return probabilities {shape}"
        )
    return p[:, :number]


@contextmanager
def evaluating(method: Method) -> Iterator[None]:
    """Switch the method's networks to evaluation mode within a ``with`` block.

    Networks that are in evaluation mode already, as those of a `candidly.Model`, are not touched: several threads may
    predict with them at the same time.
    """
    training = [net for net in method.networks().values() if net.training]
    for net in training:
        net.eval()
    try:
        yield
    finally:
        for net in training:
            net.train()
