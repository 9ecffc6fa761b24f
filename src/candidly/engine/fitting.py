"""The call that trains, `fit`: its arguments, groups of runs, checkpoints and progress."""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from tqdm import tqdm

from candidly.checks import arguments
from candidly.engine.contract import Cleaner, Method
from candidly.engine.description import code_hash, describe, fingerprint, networks_code
from candidly.engine.device import find_devices, no_capture, side_by_side, training_on, usual_settings
from candidly.engine.footprint import count_groups, run_bound
from candidly.engine.groups import Joined, checkpoint_folder, find_groups, split, training_rows
from candidly.engine.memory import require_runs
from candidly.engine.model import Model
from candidly.engine.nets.build import Factory
from candidly.engine.problem import Problem
from candidly.engine.ranks import Group, Shard
from candidly.engine.recipe import Recipe, find_recipe
from candidly.engine.stopping import Watch, check_held_out, interruptible
from candidly.engine.training import Training
from candidly.store.lock import locked

_CHECK_EVERY = 10  # seconds between looks at the losses of a GPU, which must be waited for
_AGREE_EVERY = 64  # steps after which ranks ask each other whether to stop


@usual_settings
def fit(
    problem: Problem,
    method: Method,
    cleaner: Cleaner | None = None,
    recipe: Recipe | str = "uai2025",
    *,
    net: str | Factory = "mlp",
    device: str | torch.device | Sequence[str | torch.device] = "auto",
    graph: Literal["auto", "on", "off"] = "auto",
    deterministic: bool = False,
    checkpoint: str | Path | None = None,
    every: int = 10,
    progress: bool | None = None,
    stop: threading.Event | None = None,
    held_out: Sequence[Any] | None = None,
    patience: int | None = None,
) -> Model:
    """Train a method, with or without a cleaner, on all runs of a problem.

    Runs that do not fit into the device's memory together are trained in groups, one after the other, and a warning
    says so. A run's result is the same in any group, up to rounding.

    Under torchrun all processes train the same networks, each on the rows of its problem (docs/guides/scale.md).

    Parameters
    ----------
    problem : Problem
        Rows, candidate sets and runs.
    method : Method
        What to train; it is copied, never changed.
    cleaner : Cleaner, optional
        Removes candidates during training; None keeps all of them.
    recipe : Recipe or str
        How long and with which optimiser to train, or a name from `RECIPES`.
    net : str or callable
        "linear", "mlp", "resnet9", or a factory that is called for every run and returns a new module. With several
        runs it is called a few times more, to measure how much memory they take.
    device : str or list of str
        "auto" is CUDA if it is available, otherwise the CPU. With several devices, such as "cuda:0,cuda:1" or a list,
        the runs are divided among them and train at the same time; the model is on the first one.
    graph : {"auto", "on", "off"}
        Whether to replay the step as a CUDA graph; "auto" does so on CUDA.
    deterministic : bool
        Make convolutions on CUDA repeatable to the bit, at some cost.
    checkpoint : path, optional
        A folder to save to every `every` epochs and on interrupt (Ctrl-C). If it already holds a checkpoint of the
        same training, training resumes from it, and the result equals an uninterrupted training to the bit. While
        training lasts, the folder is locked: another training that uses it is refused. Groups of runs have a folder
        each in it, and training resumes with the same groups. So do shards of the rows, and training may resume with
        another number of processes.
    every : int
        Epochs between checkpoints.
    progress : bool, optional
        Whether to show a progress bar over epochs; None shows it on a terminal.
    stop : threading.Event, optional
        When another thread sets it, training ends as by Ctrl-C: with a checkpoint and a KeyboardInterrupt.
    held_out : sequence of index arrays, optional
        For each run, rows that it does not train on. After every epoch the history records the `covering_rate` on
        them: the fraction of rows whose most probable class is a candidate.
    patience : int, optional
        Stop when the covering rate, averaged over runs, has not exceeded its best for `patience` epochs. The model then
        has the networks of the first epoch with the best rate, also if all epochs were trained; `kept` is the last
        epoch's. If runs are trained in groups, each group stops by the average over its own runs.

    Returns
    -------
    Model
        Predicts for all runs; `history` has the values of every epoch. If runs were trained in groups, its method has
        no per-row state, as after saving and loading.

    Examples
    --------
    >>> from candidly.methods import Proden
    >>> X, S = [[0.0], [0.1], [0.9]], [[True, False], [True, True], [False, True]]
    >>> problem = Problem.of(X, S, seeds=[0, 1])
    >>> model = fit(problem, Proden(), recipe=Recipe(epochs=5), device="cpu")
    >>> model.predict([[0.0], [1.0]]).shape
    torch.Size([2, 2, 2])
    """
    recipe = find_recipe(recipe)
    places = find_devices(device)
    _check_arguments(problem, method, cleaner, net)
    arguments.choice("graph", graph, ("auto", "on", "off"))
    deterministic = arguments.flag("deterministic", deterministic)
    every = arguments.integer("every", every, least=1)
    patience = None if patience is None else arguments.integer("patience", patience, least=1)
    if progress is not None:
        progress = arguments.flag("progress", progress)
    if stop is not None and not callable(getattr(stop, "is_set", None)):
        raise ValueError(f"stop is {arguments.shown(stop)}; it must be None or a threading.Event")
    require_runs(problem.runs, len(problem.X), problem.num_classes)  # the model holds the candidates of all runs
    for place in dict.fromkeys(places):
        require_runs(1, len(problem.X), problem.num_classes, place)  # groups of one run are the smallest
    folder = None if checkpoint is None else arguments.path("checkpoint", checkpoint)
    watched = check_held_out(held_out, patience, problem)
    if not problem.group.alone:
        if len(places) > 1:
            raise ValueError(f"device names {len(places)} devices, but each rank trains on one; name one, or 'auto'")
        settings = {"method": describe(method), "cleaner": describe(cleaner), "recipe": dataclasses.asdict(recipe)}
        settings |= {"net": describe(net), "every": every, "patience": patience, "graph": graph}
        settings |= {"seeds": list(problem.seeds), "classes": [repr(name) for name in problem.classes]}
        settings |= {"the shape of a row": list(problem.X.shape[1:]), "the dtype of X": str(problem.X.dtype)}
        settings |= {"the axes of S": problem.S.ndim, "the device": places[0].type, "y": problem.y is not None}
        settings |= {"checkpoint": folder is not None, "held_out": watched is not None}
        problem.group.require_equal({name: repr(value) for name, value in settings.items()})
    host = next((place for place in places if place.type != "cuda"), None)
    if graph == "on" and host is not None:
        raise ValueError(f"graph='on' needs a CUDA device but training is on {host}; use graph='auto'")
    hidden = True if problem.group.rank else None if progress is None else not progress  # one bar for all ranks

    def build(runs: range, sizes: Tensor | None = None, place: torch.device = places[0]) -> Training:
        part = problem.take_runs(runs).to(place)
        training = Training(part, method, cleaner or Cleaner(), recipe, net, first=runs.start, sizes=sizes)
        if watched is not None:
            rows = watched[runs.start : runs.stop]
            training.watch = Watch(training.original, training.method, rows, patience, problem.group)
        return training

    with _alone(folder, problem.group):
        more = {"saves": folder is not None, "stops": patience is not None}
        most = run_bound(problem, recipe, net)
        known = max(one or 0 for one in problem.group.exchange(find_groups(folder, problem.runs)))
        groups = known or _count_groups(problem, places, build, deterministic, most=most, **more)
        parts = split(problem.runs, groups)
        sizes = training_rows(problem, cleaner) if groups > 1 else None
        joined = Joined(problem, groups, places[0])
        # The bar counts steps, because an epoch may take minutes.
        bar = tqdm(total=0, unit="step", disable=hidden, leave=None, delay=1e-9)

        def train_group(group: int, place: torch.device, stopped: Callable[[], bool]) -> None:
            runs = parts[group]
            with training_on(place, deterministic):
                training = build(runs, sizes, place)
                part = None if folder is None else checkpoint_folder(folder, group, groups)
                configs: list[dict[str, Any]] = []
                if part is not None:
                    for shard in problem.parts:
                        configs.append(_config(training, problem, shard, method, cleaner, net))
                        if watched is not None:
                            own = [describe(shard.of(rows) - shard.start) for rows in watched]
                            configs[-1] |= {"held_out": own, "patience": patience}
                    training.resume(part, configs)
                title = f"group {group + 1} of {groups}, " if groups > 1 else ""
                bar.total = bar.total or groups * recipe.epochs * training.steps
                _train(training, part, configs, every, graph != "off" and place.type == "cuda", bar, title, stopped)
                joined.add(training.model(net), runs)
                del training  # its memory is for the next group
                if groups > 1 and place.type == "cuda":
                    with no_capture(place):
                        torch.cuda.empty_cache()  # what captured graphs have used, other groups cannot

        with bar, interruptible(stop) as stopped:
            side_by_side(places[:groups], groups, train_group, stopped)
        return joined.model()


def _count_groups(
    problem: Problem, places: Sequence[torch.device], build: Any, deterministic: bool, **more: Any
) -> int:
    """Return in how many groups to train: one per device, or more where the runs of a device need too much memory."""
    devices = min(len(places), problem.runs)
    part = problem.take_runs(split(problem.runs, devices)[0])
    found = 1
    for place in dict.fromkeys(places[:devices]):
        with training_on(place, deterministic):
            own = functools.partial(build, place=place)
            found = max(found, count_groups(part, place, own, **more, sharing=places[:devices].count(place)))
    return min(devices * found, problem.runs)


def _train(
    training: Training,
    folder: Path | None,
    configs: Sequence[Mapping[str, Any]],
    every: int,
    replay: bool,
    bar: Any,
    title: str,
    stopped: Callable[[], bool],
) -> None:
    """Train until the end; raise KeyboardInterrupt, after a checkpoint, when it is to stop."""
    steps, place, epochs = training.steps, training.loss.device, training.recipe.epochs
    stopped = _agreeing(stopped, training)
    _skip(bar, training.epoch * steps + training.done)
    last = checked = time.monotonic()
    while not training.over:
        training.begin_epoch()
        bar.set_postfix_str(f"{title}epoch {training.epoch + 1} of {epochs}", refresh=False)
        while training.done < steps and not stopped():
            training.advance(replay)
            last = last if bar.disable else _wait(place, last)
            bar.update()
        if training.done == steps:
            training.end_epoch()
            if training.group.alone and time.monotonic() - checked > _CHECK_EVERY:  # ranks have different clocks
                training.check_losses()
                checked = time.monotonic()
        due = training.over or training.epoch % every == 0
        ending = stopped()
        if folder is not None and (ending or due):
            training.save(folder, configs)
        if ending:
            raise KeyboardInterrupt
    bar.total -= (epochs - training.epoch) * steps  # fewer than planned if it stopped early


def _agreeing(stopped: Callable[[], bool], training: Training) -> Callable[[], bool]:
    """Return a function that tells all ranks at the same step whether one of them is to stop."""
    if training.group.alone:
        return stopped
    return lambda: training.done % _AGREE_EVERY == 0 and training.group.any(stopped())


def _skip(bar: Any, steps: int) -> None:
    """Move a progress bar over steps that were taken before this training; they do not count for its speed."""
    bar.n += steps
    if not bar.disable:
        bar.initial += steps
        bar.refresh()


@contextmanager
def _alone(folder: Path | None, group: Group) -> Iterator[None]:
    """Hold the lock of a checkpoint folder, on rank 0; raise OSError if another training holds it."""
    if folder is None:
        yield
        return
    with locked(folder / "lock", wait=False) if group.rank == 0 else nullcontext(True) as mine:
        if group.any(not mine):
            raise OSError(f"another training is using the checkpoint folder {folder}; wait for it or choose another")
        yield


def _config(
    training: Training, problem: Problem, shard: Shard, method: Method, cleaner: Cleaner | None, net: str | Factory
) -> dict[str, Any]:
    """Describe everything that the result of a training depends on, and that is known of one shard."""
    rows = problem if problem.shards.count == 1 else problem.take_shard(shard)
    return {
        "method": describe(method) | describe(vars(method)),
        "method's code": code_hash(method),
        "cleaner": None if cleaner is None else describe(cleaner) | describe(vars(cleaner)),
        "cleaner's code": code_hash(cleaner),
        "net": describe(net),
        "net's code": [code_hash(net), networks_code(training.method)],
        "recipe": dataclasses.asdict(training.recipe),
        "problem": fingerprint(rows),
        "device": training.loss.device.type,
    }


def _check_arguments(problem: Any, method: Any, cleaner: Any, net: Any) -> None:
    arguments.instance("problem", problem, Problem, "a Problem; make one with candidly.Problem.of(X, S)")
    arguments.instance("method", method, Method, "an instance, such as candidly.methods.Proden()")
    arguments.instance("cleaner", cleaner, (Cleaner, type(None)), "an instance, such as candidly.Conformal(), or None")
    if isinstance(net, nn.Module):
        raise ValueError("net is a module; pass a function that returns a new one, because every run needs its own")


def _wait(device: torch.device, last: float) -> float:
    """Keep the progress bar at most half a second ahead of a GPU; return the time of the last synchronisation."""
    if device.type == "cuda" and time.monotonic() - last > 0.5:
        torch.cuda.current_stream().synchronize()
        return time.monotonic()
    return last
