"""Controls to compare a cleaner with: removing candidates at random, and removing all but the true label."""

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from candidly.checks import arguments
from candidly.engine.contract import Batch, Cleaner, Predict
from candidly.engine.problem import Problem, check_labels, stream


@dataclass
class Random(Cleaner):
    """A control: remove as many candidates from each row as another cleaner does, but at random.

    Parameters
    ----------
    like : Cleaner
        The cleaner that decides how many candidates are removed.

    Examples
    --------
    >>> from candidly.cleaning import Clsp
    >>> Random(Clsp(k=5)).like.k
    5
    """

    like: Cleaner

    def __post_init__(self) -> None:
        arguments.instance("like", self.like, Cleaner, "an instance of a cleaner, such as candidly.Conformal()")

    def take(self, rows: NDArray[np.intp]) -> "Random":
        """Return the cleaner for a subset of the rows."""
        return replace(self, like=self.like.take(rows))

    def setup(self, problem: Problem) -> Problem:
        """Set up the other cleaner; if it prunes before training, remove as many candidates at random."""
        self.like = copy.copy(self.like)
        trained = self.like.setup(problem)
        classes = problem.num_classes
        self.noise = self.like.noise + classes
        if trained.S is problem.S:
            return trained
        keys = [
            torch.rand(
                shard.stop - shard.start, classes, dtype=torch.float32, generator=stream(seed, "control", *shard.key)
            )
            for seed in problem.seeds
            for shard in problem.parts
        ]
        drawn = torch.cat(keys).view(problem.sets.shape).to(problem.X.device, problem.dtype)
        return replace(trained, S=_at_random(problem.sets, trained.sets, drawn))

    def calibrate(self, predict: Predict, epoch: int) -> None:
        """Calibrate the other cleaner."""
        self.like.calibrate(predict, epoch)

    def keep(self, p: Tensor, S: Tensor, batch: Batch) -> Tensor:
        """Keep as many candidates of each row as the other cleaner."""
        return _at_random(S, self.like.keep(p, S, batch), batch.noise(S.shape[-1]))

    def facts(self) -> dict[str, Tensor]:
        """Return the other cleaner's facts."""
        return self.like.facts()

    def state(self) -> dict[str, Tensor]:
        """Return the other cleaner's state."""
        return self.like.state()


def _at_random(S: Tensor, kept: Tensor, keys: Tensor) -> Tensor:
    """Return random subsets of S with as many candidates as `kept`."""
    rank = keys.masked_fill(~S, 2).argsort(-1).argsort(-1)
    return S & (rank < kept.sum(-1, keepdim=True))


@dataclass
class Oracle(Cleaner):
    """A control for benchmarks: keep only the true label wherever it is a candidate.

    Parameters
    ----------
    y : array of int (N,)
        True labels.

    Examples
    --------
    >>> Oracle([0, 1]).y
    [0, 1]
    """

    y: Any = field(repr=False)

    def take(self, rows: NDArray[np.intp]) -> "Oracle":
        """Return the cleaner for a subset of the rows."""
        return replace(self, y=np.asarray(self.y)[rows])

    def setup(self, problem: Problem) -> Problem:
        """Move the labels to the device."""
        labels = check_labels(self.y, len(problem.X), problem.num_classes).to(problem.X.device)
        self.true = F.one_hot(labels, problem.num_classes).bool().expand(problem.runs, -1, -1).contiguous()
        return problem

    def keep(self, p: Tensor, S: Tensor, batch: Batch) -> Tensor:
        """Keep only the true label, or everything if it is not a candidate."""
        kept = S & batch.take(self.true)
        return torch.where(kept.any(-1, keepdim=True), kept, S)
