"""Groups of runs, trained one after the other where memory is too small for all, or side by side on several devices.

A run draws its random numbers from streams of its own seed, and runs of all groups take equally many steps, so a run
trains as it would in one stack, up to rounding.
"""

import copy
import dataclasses
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from candidly.engine.contract import Cleaner
from candidly.engine.model import Model
from candidly.engine.nets.build import Separate
from candidly.engine.problem import Problem
from candidly.engine.ranks import Shards
from candidly.messages import quiet


def split(runs: int, groups: int) -> list[range]:
    """Return consecutive runs in groups whose sizes differ by at most one.

    Examples
    --------
    >>> split(5, 2)
    [range(0, 3), range(3, 5)]
    """
    sizes = [runs // groups + (group < runs % groups) for group in range(groups)]
    ends = np.cumsum(sizes).tolist()
    return [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def checkpoint_folder(folder: Path, group: int, groups: int) -> Path:
    """Return where the checkpoint of a group is stored: in the folder itself if there is only one group."""
    return folder if groups == 1 else folder / f"group-{group + 1}-of-{groups}"


def find_groups(folder: Path | None, runs: int) -> int | None:
    """Return the number of groups of the training that a folder has a checkpoint of; None if it has none.

    A training is continued in the groups it was started in, whatever memory is free now.
    """
    if folder is None:
        return None
    if (folder / "state.json").exists() or any(folder.glob("step-*/shard-*")):
        return 1
    whole, sharded = folder.glob("group-1-of-*/state.json"), folder.glob("group-1-of-*/step-*/shard-*")
    names = [*(path.parent.name for path in whole), *(path.parents[1].name for path in sharded)]
    found = [int(match[1]) for match in (re.fullmatch(r"group-1-of-(\d{1,5})", name) for name in names) if match]
    if not found:
        return None
    groups = max(found)
    if not 1 < groups <= runs:
        raise ValueError(
            f"{folder} cannot be continued: it holds a checkpoint of {groups} groups of runs, but there are {runs} "
            "runs; choose another folder or delete it"
        )
    return groups


def step_name(step: int) -> str:
    """Return the name of the folder with a checkpoint of all shards at a step."""
    return f"step-{step}"


def shard_name(shard: int, shards: int) -> str:
    """Return the name of the folder with a shard's part of a checkpoint."""
    return f"shard-{shard + 1}-of-{shards}"


def last_step(folder: Path, own: Sequence[int], shards: Shards) -> str | None:
    """Return the folder of the last step at which all shards were saved; None if there is no such step.

    Each rank looks for its own shards, so that it need not see the folders of others.
    """
    steps = [int(path.name[5:]) for path in folder.glob("step-*") if re.fullmatch(r"step-\d{1,15}", path.name)]
    saved = {
        step
        for step in steps
        if all((folder / step_name(step) / shard_name(one, shards.count) / "state.json").exists() for one in own)
    }
    common = set.intersection(*(set(one) for one in shards.group.exchange(sorted(saved))))
    return step_name(max(common)) if common else None


def remove_steps(folder: Path, own: Sequence[int], shards: int, but: Path) -> None:
    """Remove some shards' parts of all checkpoints but one."""
    for step in folder.glob("step-*"):
        for shard in own if step != but else ():
            shutil.rmtree(step / shard_name(shard, shards), ignore_errors=True)
        with suppress(OSError):  # the parts of other ranks are still there
            step.rmdir()


def training_rows(problem: Problem, cleaner: Cleaner | None) -> Tensor:
    """Return how many rows each run trains on in each shard, (R, shards), without those that the cleaner holds out.

    A cleaner that holds out no row of the first run is taken to hold out none at all: some search long.
    """
    sizes = problem.training_counts
    if cleaner is None:
        return sizes
    with quiet():
        for run in range(problem.runs):
            alone = copy.copy(cleaner).setup(dataclasses.replace(problem.take_runs(range(run, run + 1)), y=None))
            trained = alone.training_counts[0]
            if run == 0 and torch.equal(trained, sizes[0]):
                return sizes
            sizes[run] = trained
    return sizes


class Joined:
    """Collects the models of all groups, and returns one model of all runs.

    Of each group it keeps networks, history and kept candidates. Per-row state of methods, most of a training's memory,
    is dropped, as when a model is saved and loaded. A single group's model is returned as it is.
    """

    def __init__(self, problem: Problem, groups: int, place: torch.device):
        self._models: dict[int, Model] = {}  # by the number of the first run
        self._place = place
        self._shape = (problem.runs, len(problem.X), problem.num_classes) if groups > 1 else None
        self._kept = torch.empty(0 if self._shape is None else self._shape, dtype=torch.bool)

    def add(self, model: Model, runs: range) -> None:
        """Add the model of some runs; its networks move to the device of the result."""
        if self._shape is not None:
            self._kept[runs.start : runs.stop] = model.kept
            model = dataclasses.replace(model.without_state(), kept=model.kept[:, :0].clone())
            model = model if model.device == self._place else model.to(self._place)
        self._models[runs.start] = model

    def model(self) -> Model:
        """Return the model of all runs; the history of a group that stopped earlier than others ends with NaN."""
        models = [self._models[start] for start in sorted(self._models)]
        first = models[0]
        if self._shape is None:
            return first
        problem = _join_problems([model.problem for model in models])
        method = copy.copy(first.method)
        for name, net in _join_networks([model.method.networks() for model in models]).items():
            setattr(method, name, net)
        for name, value in vars(first.method).items():
            if isinstance(value, Problem):
                setattr(method, name, problem)
            elif isinstance(value, Tensor):
                values = [getattr(model.method, name) for model in models]
                if all(one.shape == (model.runs, *value.shape[1:]) for one, model in zip(values, models, strict=True)):
                    setattr(method, name, torch.cat(values))
        epochs = max(len(model.history["loss"]) for model in models)
        history = {name: np.hstack([_fill(model.history[name], epochs) for model in models]) for name in first.history}
        return dataclasses.replace(first, method=method, problem=problem, history=history, kept=self._kept)


def _fill(values: np.ndarray[Any, Any], epochs: int) -> np.ndarray[Any, Any]:
    """Return the history (e, R) of some runs with `epochs` epochs."""
    return np.pad(values, ((0, epochs - len(values)), (0, 0)), constant_values=np.nan)


def _join_problems(problems: Sequence[Problem]) -> Problem:
    """Return a problem of all runs, without rows."""
    first = problems[0]
    names = [name for name in ("S", "shift", "scale") if getattr(first, name) is not None]
    if first.S.ndim == 2:  # shared by all runs
        names.remove("S")
    joined: dict[str, Any] = {name: torch.cat([getattr(one, name) for one in problems]) for name in names}
    return dataclasses.replace(first, seeds=tuple(seed for one in problems for seed in one.seeds), **joined)


def _join_networks(groups: Sequence[Mapping[str, nn.Module]]) -> dict[str, nn.Module]:
    """Return stacked networks of the runs of all groups, by name; networks that share parts still do."""
    joined = copy.deepcopy(dict(groups[0]))
    for name, network in joined.items():
        separate: list[str] = []
        for path, module in list(network.named_modules()):
            if any(path.startswith(prefix) for prefix in separate):
                continue
            parts = [nets[name].get_submodule(path) for nets in groups]
            if isinstance(module, Separate):
                module.nets = nn.ModuleList([net for part in parts for net in part.nets])  # type: ignore[union-attr]
                separate.append(f"{path}.nets." if path else "nets.")
                continue
            for key, value in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
                values = [getattr(part, key).detach() for part in parts]
                whole = torch.cat(values) if value.ndim else values[0]
                setattr(module, key, nn.Parameter(whole, value.requires_grad) if key in module._parameters else whole)
    return joined
