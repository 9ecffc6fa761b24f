"""Ranks: the processes of one training over several cards or machines, and the shards of rows that each one holds.

What is large is stored per row: features, candidates and label weights. So the rows are cut into shards, each rank
holds some of them, and the networks are replicated. Everything that depends on all rows is a sum over ranks
(`Group.total`) or a list of all ranks' values (`Group.gather`); a single process is the group `ALONE`, which returns
what it is given. Orders of rows, noise and calibration rows are drawn per shard. Therefore one process with W shards
computes what W ranks with one shard each compute, up to the rounding of sums.
"""

import atexit
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from candidly.checks import arguments


class RankLost(ConnectionError):
    """Another rank of the training has ended, or cannot be reached."""


@dataclass(frozen=True)
class Group:
    """The ranks of one training. All of them must call the same functions in the same order.

    Attributes
    ----------
    rank : int
        The number of this process, from 0.
    size : int
        The number of processes.
    alone : bool
        Whether there is no other process, and nothing to communicate.
    """

    rank: int = 0
    size: int = 1
    alone: bool = True

    def total(self, x: Tensor) -> Tensor:
        """Return the sum of a tensor over all ranks; the same bits on each."""
        if self.alone:
            return x
        place, x = x.device, self._reachable(x)
        result = x.clone(memory_format=torch.contiguous_format)
        self._run(dist.all_reduce, result)
        return result.to(place)

    def gather(self, x: Tensor, fill: float) -> Tensor:
        """Return the tensors (R, k, ...) of all ranks, one after the other along the second axis.

        The number k may differ between ranks; the tensors are padded with `fill` to the largest one.
        """
        if self.alone:
            return x
        padded = x.new_full((len(x), max(self.exchange(x.shape[1])), *x.shape[2:]), fill)
        padded[:, : x.shape[1]] = x
        return torch.cat(list(self.stack(padded)), 1)

    def stack(self, x: Tensor) -> Tensor:
        """Return the tensors of all ranks, which have the same shape, stacked along a new first axis."""
        if self.alone:
            return x.unsqueeze(0)
        place, x = x.device, self._reachable(x).contiguous()
        found = [torch.empty_like(x) for _ in range(self.size)]
        self._run(dist.all_gather, found, x)
        return torch.stack(found).to(place)

    def first(self, x: Tensor) -> Tensor:
        """Return the tensor of rank 0, which has the same shape on all ranks."""
        return self.total(x if self.rank == 0 else torch.zeros_like(x))

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set on some rank."""
        return flag if self.alone else bool(self.total(torch.tensor(int(flag))))

    def exchange(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in JSON types."""
        if self.alone:
            return [value]
        written = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = self.stack(torch.tensor(len(written))).tolist()
        padded = torch.nn.functional.pad(written, (0, max(sizes) - len(written)))
        texts = (one[:size].numpy().tobytes() for one, size in zip(self.stack(padded), sizes, strict=True))
        return [json.loads(text) for text in texts]

    def require_equal(self, facts: dict[str, str]) -> None:
        """Raise ValueError on all ranks unless all have the same facts."""
        for rank, other in enumerate(self.exchange(facts)):
            differ = [name for name, value in facts.items() if other.get(name) != value]
            if differ:
                raise ValueError(
                    f"rank {self.rank} and rank {rank} differ in {', '.join(differ)}; all ranks must train with the "
                    "same settings, and differ only in their rows"
                )

    def _reachable(self, x: Tensor) -> Tensor:
        """Return a tensor on the device that the ranks communicate from."""
        return x.cuda() if not x.is_cuda and dist.get_backend() == "nccl" else x

    def _run(self, function: Any, *tensors: Any) -> None:
        try:
            function(*tensors)
        except RuntimeError as error:  # torch's errors of communication are RuntimeErrors of several kinds
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                raise
            reason = str(error).strip().partition("\n")[0]
            raise RankLost(
                f"rank {self.rank} of {self.size} cannot reach another rank, which has probably ended: see its own "
                "message. Start all ranks again; with a checkpoint they continue from the last one "
                f"({reason})"
            ) from None


ALONE = Group()
"""The group of a training in one process."""


def find_group() -> Group:
    """Return the ranks that this process trains with: those of torchrun or of an initialised torch.distributed.

    torchrun sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. The ranks communicate with NCCL on CUDA, and with gloo
    on the CPU; the current CUDA device becomes that of LOCAL_RANK.
    """
    if not dist.is_available():
        return ALONE
    if not dist.is_initialized():
        wanted = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        if not all(name in os.environ for name in wanted) or int(os.environ["WORLD_SIZE"]) < 2:
            return ALONE
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        try:
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        except (RuntimeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise RankLost(
                f"the {os.environ['WORLD_SIZE']} ranks that WORLD_SIZE announces cannot reach each other at "
                f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} ({reason}); start them with torchrun, or "
                "unset WORLD_SIZE to train in one process"
            ) from None
        atexit.register(_leave)
    return Group(dist.get_rank(), dist.get_world_size(), alone=False)


def _leave() -> None:
    """End communication, which torch asks for at the end of a process."""
    with suppress(RuntimeError, AssertionError, ValueError):
        dist.destroy_process_group()


@dataclass(frozen=True)
class Shard:
    """Some consecutive rows of a process, which draw their own order, noise and calibration rows.

    Attributes
    ----------
    number : int
        Its number among the shards of all ranks.
    start, stop : int
        Its rows in the process.
    """

    number: int
    start: int
    stop: int

    @property
    def key(self) -> tuple[int, ...]:
        """What its random streams depend on; shard 0 draws what a training without shards draws."""
        return (self.number,) if self.number else ()

    def of(self, rows: Tensor) -> Tensor:
        """Return those of some rows that are in the shard."""
        return rows[(rows >= self.start) & (rows < self.stop)]


@dataclass(frozen=True)
class Shards:
    """The shards of a process among those of all ranks. By default there is one, with all rows.

    Attributes
    ----------
    group : Group
        The ranks.
    sizes : tuple of int
        Number of rows of each shard of this process; none stands for one shard with all rows.
    first : int
        Number of the first of them among all shards.
    count : int
        Number of shards of all ranks.
    """

    group: Group = ALONE
    sizes: tuple[int, ...] = ()
    first: int = 0
    count: int = 1

    @classmethod
    def of(cls, shards: Any, n: int) -> "Shards":
        """Return the shards of n rows: a number of them, of about equal sizes, or the number of rows of each."""
        sizes = _check_sizes(shards, n)
        group = find_group()
        numbers = group.exchange(len(sizes))
        return cls(group, sizes, sum(numbers[: group.rank]), sum(numbers))

    def parts(self, n: int) -> list[Shard]:
        """Return the shards of a process with n rows."""
        found, start = [], 0
        for place, size in enumerate(self.sizes or (n,)):
            found.append(Shard(self.first + place, start, start + size))
            start += size
        return found


WHOLE = Shards()
"""One shard with all rows, in one process."""


def _check_sizes(shards: Any, n: int) -> tuple[int, ...]:
    if isinstance(shards, Sequence) and not isinstance(shards, str):
        sizes = tuple(arguments.integer("one of shards", size, least=1) for size in shards)
        if sum(sizes) != n:
            raise ValueError(f"shards has {sum(sizes)} rows in total but X has {n}; give the number of rows of each")
        return sizes
    number = arguments.integer("shards", shards, least=1)
    if number > n:
        raise ValueError(f"shards is {number} but X has {n} rows; use fewer shards")
    return tuple(n // number + (k < n % number) for k in range(number))


def divide(size: int, rows: Tensor) -> list[int]:
    """Return how many rows of a minibatch come from each shard: in proportion to the shards' rows, at least one.

    Parameters
    ----------
    size : int
        Number of rows of a minibatch.
    rows : Tensor of int, shape (runs, shards)
        Number of training rows that each run has in each shard.

    Examples
    --------
    >>> divide(8, torch.tensor([[60, 20], [59, 21]]))
    [6, 2]
    """
    lacking = (rows < 1).nonzero().tolist()
    if lacking:
        run, shard = lacking[0]
        raise ValueError(
            f"run {run} has no training row in shard {shard}, and every shard takes part in every minibatch; spread "
            "the rows evenly over the shards, or use fewer"
        )
    most, fewest = rows.amax(0), rows.amin(0)
    exact = size * most / most.sum()
    sizes = exact.floor().long()
    rest = size - int(sizes.sum())
    sizes[(exact - sizes).argsort(descending=True, stable=True)[:rest]] += 1
    return torch.minimum(sizes.clamp_min(1), fewest).tolist()
