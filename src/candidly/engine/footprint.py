"""How much memory a training takes, measured on one and on two of its runs.

Methods, cleaners and networks may be custom, so what they allocate is not computed from formulas. A training of one run
is taken through the parts of some epochs, and so is one of two runs. For each part, such as a step, the peaks of both
give what all runs share and what each run adds. The results of these trainings are discarded.
"""

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from candidly.checks.machine import fault, in_bytes
from candidly.engine.memory import free_memory
from candidly.engine.nets.build import Factory
from candidly.engine.problem import Problem
from candidly.engine.ranks import ALONE, Group
from candidly.engine.recipe import Recipe
from candidly.messages import quiet, warn

if TYPE_CHECKING:
    from candidly.engine.training import Training

Build = Callable[[range], "Training"]
"""Builds the training of some consecutive runs."""

_MARGIN = 0.6  # of the free memory; the rest is for fragments and for what operations allocate internally
_PERIODS = range(2, 11)  # epochs between purges and other recurring work that is looked for
# What a run takes at most with any method of this library, unless `run_bound` is None, to tell at once that there is
# enough.
_PER_LABEL, _PER_ROW, _PER_RUN = 256, 4096, 2**27
_PER_PIXEL = 25_000  # of the images in a minibatch of ResNet-9: CroSel takes 23 kB in float32
_RESNETS = 2**31  # weights, gradients and averages of two of them: 1.1 GB
_PER_SQUARE = 16  # of the numbers of an image: VALEN's decoder has as many weights
_FEATURES = 2000  # VALEN takes 59 MB with that many, and 1.7 GB with ten times as many
_MINIBATCH = 512  # PiCO compares all pairs of rows: it takes 0.9 GB with 4096


@dataclass(frozen=True)
class Footprint:
    """Memory of a training, in bytes.

    Attributes
    ----------
    one, two : tuple of int
        Peaks of the parts of a training with one run and with two.
    result : int
        What remains of each run after its training: its networks and, on a CPU, its kept candidates.
    """

    one: tuple[int, ...]
    two: tuple[int, ...]
    result: int

    def of(self, together: int, runs: int) -> int:
        """Return the peak of training `runs` runs, `together` of them at a time.

        Examples
        --------
        >>> Footprint(one=(30, 50), two=(40, 52), result=5).of(4, 4)
        60
        >>> Footprint(one=(30, 50), two=(40, 52), result=5).of(2, 4)
        72
        """
        pairs = zip(self.one, self.two, strict=True)
        peak = max(first + (together - 1) * max(second - first, 0) for first, second in pairs)
        return peak if together == runs else peak + runs * self.result

    def groups(self, runs: int, allowed: int) -> int:
        """Return the smallest number of groups whose peak is at most `allowed`; the number of runs if none is."""
        return next((n for n in range(1, runs) if self.of(math.ceil(runs / n), runs) <= allowed), runs)


def run_bound(problem: Problem, recipe: Recipe, net: str | Factory) -> int | None:
    """Return how many bytes a run takes at most, beside what its rows take; None if only a measurement can tell.

    That is so for custom networks, for many features and for large minibatches.
    """
    shape, rows = problem.X.shape[1:], recipe.batch(problem.training_counts.sum(1).tolist())
    if callable(net) or rows > _MINIBATCH:
        return None
    if net == "resnet9":
        return _RESNETS + rows * shape[-2:].numel() * _PER_PIXEL + shape.numel() ** 2 * _PER_SQUARE
    return None if shape.numel() > _FEATURES else _PER_RUN


def count_groups(
    problem: Problem, place: torch.device, build: Build, *, most: int | None, saves: bool, stops: bool, sharing: int = 1
) -> int:
    """Return in how many groups the runs of a problem are to be trained, and warn if it is more than one.

    Parameters
    ----------
    problem : Problem
        On the CPU.
    place : torch.device
        Where it will be trained.
    build : callable
        Builds the training of some of its runs.
    most : int or None
        What `run_bound` returned.
    saves : bool
        Whether checkpoints are written.
    stops : bool
        Whether training may stop early.
    sharing : int
        How many groups of as many runs train on the device at the same time.
    """
    runs, free = problem.runs, free_memory(place)
    if runs == 1 or problem.group.any(free is None) or free is None:
        return 1
    free //= sharing
    allowed = int(_MARGIN * free)
    per_run = len(problem.X) * (problem.num_classes * _PER_LABEL + _PER_ROW)
    if not problem.group.any(most is None or runs * (per_run + most) > allowed):
        return 1
    shared = 0 if place.type == "cpu" else problem.take_runs(range(0)).nbytes
    found = measure(build, runs, allowed, shared, saves, problem.group)
    if found is None:
        return 1
    groups = max(problem.group.exchange(found.groups(runs, allowed)))
    if groups > 1:
        warn(
            f"{runs} runs need about {in_bytes(found.of(runs, runs))} of memory, more than {_MARGIN:.0%} of the "
            f"{in_bytes(free)} available on {place}: they are trained in {groups} groups, one after the other"
            + (", and each group stops early by its own held-out covering rate" if stops else "")
        )
    return groups


def measure(
    build: Build, runs: int, allowed: int, shared: int = 0, saves: bool = False, group: Group = ALONE
) -> Footprint | None:
    """Return the footprint of a training; None if it raises an error, which the training will raise, too.

    A second run takes at most as much as the first, without the `shared` bytes of rows on the device. This bound is
    used if all `runs` fit by it, and if two may not fit into the `allowed` bytes. Otherwise two runs are measured.
    """
    try:
        one, result = _peaks(build, range(1), saves)
        bound = Footprint(one, tuple(2 * peak - shared for peak in one), result)
        if group.any(bound.of(2, 2) > allowed) or not group.any(bound.of(runs, runs) > allowed):
            return bound
        two, _ = _peaks(build, range(2), saves)
    except Exception as error:
        if fault(error):
            raise
        return None
    return Footprint(one, two, result)


def _peaks(build: Build, runs: range, saves: bool) -> tuple[tuple[int, ...], int]:
    """Return the peaks of the parts of a training of these runs, and what remains of one of them."""
    live = _Live()
    with quiet(), torch.random.fork_rng(devices=[]), live:
        training = build(runs)
        peaks, steps = [live.restart()], [0]
        for epoch in sorted(_epochs(training)):
            training.start_at(epoch)
            training.begin_epoch()
            peaks.append(live.restart())
            before = live.now
            training.advance(capture=False)
            peaks.append(live.restart())
            steps.append(peaks[-1] - before)
            training.end_epoch()
            peaks.append(live.restart())
        on_cuda = training.loss.device.type == "cuda"
        if saves and not on_cuda:  # a copy of all tensors, and the content of the file
            peaks.append(live.now + 2 * sum(value.nbytes for value in training.tensors().values()))
        networks = training.method.networks().values()
        result = sum(value.nbytes for net in networks for value in net.state_dict().values()) // len(runs)
        result += 0 if on_cuda else training.batch.kept[0].nbytes
    # Graphs keep the memory of a step to themselves, and all phases share it.
    captured = max(steps) if on_cuda else 0
    return tuple(peak + captured for peak in peaks), result


def _epochs(training: "Training") -> set[int]:
    """Return the epochs to look at: the first and last ones of every phase, and some with recurring work."""
    last = training.recipe.epochs - 1
    phases = [training.method.phase(epoch) for epoch in range(last + 1)]
    changes = [epoch for epoch in range(1, last + 1) if phases[epoch] != phases[epoch - 1]]
    recurring = {last // period * period for period in _PERIODS}
    return {0, last, *recurring, *changes, *(epoch - 1 for epoch in changes)}


class _Live(TorchDispatchMode):
    """Counts the bytes of tensors that are created within a ``with`` block, and are still alive.

    Views and results in place are no new tensors. Memory that operations use internally is not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.peak = 0
        self.alive: dict[int, Any] = {}  # references to storages, by their address

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: nothing is compiled here, and torch would import its compiler, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call an operation and count what it allocates."""
        given = {one.untyped_storage()._cdata for one in _tensors((args, kwargs or {}))}
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in given and key not in self.alive and not tensor.is_meta:
                self.alive[key] = weakref.ref(storage, partial(self._free, key, storage.nbytes()))
                self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        return result

    def _free(self, key: int, size: int, reference: Any) -> None:
        del self.alive[key]
        self.now -= size

    def restart(self) -> int:
        """Return the peak since the last call."""
        peak, self.peak = self.peak, self.now
        return peak


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
