"""The only training loop.

The data stay on the device, and batches are gathered from them by row number. Runs (seeds, folds, ensemble members) are
the leading axis of every tensor; a single run is not a special case. A step reads nothing from the host, so that on
CUDA it is captured once per phase and replayed.
"""

import copy
import dataclasses
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from candidly import metrics
from candidly.checks import arguments
from candidly.engine.batches import Batch, Sweep
from candidly.engine.building import builder, check_networks, check_trained, copy_tensors, network_tensors
from candidly.engine.contract import Cleaner, Method
from candidly.engine.description import describe
from candidly.engine.device import capture, no_capture
from candidly.engine.groups import last_step, remove_steps, shard_name, step_name
from candidly.engine.memory import require_schedule
from candidly.engine.model import Model
from candidly.engine.nets.augment import VIEWS
from candidly.engine.nets.build import Factory, Separate, factory_name
from candidly.engine.nets.synchronise import synchronise
from candidly.engine.optim import NUMBERS_PER_WEIGHT, Adam, HostAdam, Nesterov, Optimiser, Sgd, head_inputs, schedule
from candidly.engine.problem import Problem
from candidly.engine.ranks import ALONE, divide
from candidly.engine.recipe import Recipe, smaller_rate
from candidly.engine.stopping import Watch
from candidly.messages import warn
from candidly.store import states
from candidly.store.validation import count, flag, instance, record, require

_EAGER_STEPS = 3  # steps of each phase before it is captured
_DROP_EVERY = 10  # epochs; denormals appear slowly, and searching for them takes as long as two steps


class Training:
    """The state of one training of all runs. `step` is the part that is captured; `fit` drives it.

    If the runs are one of several groups, `first` is the number of the first run, and `sizes` (runs, shards) has the
    number of rows that the runs of all groups train on, because all take the same number of steps.
    """

    watch: Watch | None = None

    def __init__(
        self,
        problem: Problem,
        method: Method,
        cleaner: Cleaner,
        recipe: Recipe,
        net: str | Factory,
        *,
        first: int = 0,
        sizes: Tensor | None = None,
    ):
        on_cuda = problem.X.device.type == "cuda"
        _check_images(problem, recipe)
        _check_views(method)
        arguments.real(f"max_lr of the method {type(method).__name__}", method.max_lr, above=0)
        self.recipe = recipe = recipe.with_rate(method.max_lr)
        self.cleaner = copy.copy(cleaner)
        self.method = copy.copy(method)
        self.y = problem.y
        self.original = problem.sets  # (R, N, C), before the cleaner
        self.problem = self.cleaner.setup(dataclasses.replace(problem, y=None))
        self.training_mask = self.problem.training_mask  # (R, N)
        self.group = problem.group
        half = on_cuda and self.group.alone and recipe.precision == "auto" and problem.dtype == torch.float32
        self.first = first
        counts = self.problem.training_counts
        counts = counts if sizes is None else torch.cat([sizes, counts])
        slices = divide(recipe.batch(counts.sum(1).tolist()), counts)  # rows of each shard in a minibatch
        own = [slices[shard.number] for shard in self.problem.parts]
        size = sum(slices)
        self.share = sum(own) / size  # of a minibatch, that is in this process
        self.steps = int((-(-counts // torch.tensor(slices))).max())  # per epoch, rounded up
        require_schedule(recipe.epochs, self.steps, problem.runs, recipe.schedule == "one-cycle")
        numbers = NUMBERS_PER_WEIGHT[recipe.optimiser]
        self.method.total_epochs = recipe.epochs
        with no_capture(problem.X.device):
            self.method.setup(self.problem, builder(self.problem, net, half, numbers=numbers))
        if not self.group.alone:
            self._replicate()
        noise = self.method.noise + self.cleaner.noise
        known = problem.y is not None
        views = self.method.views
        self.batch = Batch(self.problem, self.cleaner, self.steps, size, noise, known, recipe.augment, views, own)
        self.sweep = Sweep(self.problem, self.method)
        # The step within the training and within the epoch, in one tensor so that one kernel advances both.
        self.counters = problem.new_zeros(2, 1, dtype=torch.int64)
        self.clock, self.batch.tick = self.counters.unbind()
        self.loss = problem.new_zeros(problem.runs)  # (R,): summed over the epoch's steps
        self.optimisers = self._optimisers()
        if callable(net) and recipe.optimiser == "nesterov" and first == 0:  # once for all groups of runs
            self._check_heads(net)
        self.pool = torch.cuda.graph_pool_handle() if on_cuda else None  # memory of all phases' graphs
        self.graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}
        self.eager: Counter[Hashable] = Counter()  # steps taken without a graph, by phase
        self.epoch = 0
        self.done = 0  # steps of the epoch
        self.begun = False  # whether the epoch's order is drawn and the cleaner calibrated
        self.history: dict[str, list[Tensor]] = {}
        if not on_cuda:
            _keep_freed_memory()

    @torch.no_grad()
    def _replicate(self) -> None:
        """Give all ranks the networks of rank 0, and let them normalise over the minibatches of all ranks."""
        for net in check_networks(self.method).values():
            synchronise(net, self.group)
            for value in net.state_dict().values():
                value.copy_(self.group.first(value))

    def _optimisers(self) -> dict[str, Optimiser]:
        assert self.recipe.max_lr is not None, "the method's, if the recipe named none"
        rates, momenta = schedule(self.recipe.schedule, self.recipe.epochs * self.steps, self.recipe.max_lr)
        networks = check_networks(self.method)
        trained = [check_trained(self.method, self.method.phase(epoch)) for epoch in range(self.recipe.epochs)]
        optimisers: dict[str, Optimiser] = {}
        for name, net in networks.items():
            active = [any(net is one for one in nets) for nets in trained for _ in range(self.steps)]
            if not any(active):  # the method moves it itself, as a momentum encoder
                continue
            if self.recipe.optimiser == "sgd":
                optimisers[name] = Sgd(net, rates)
            elif self.recipe.optimiser == "nesterov":
                optimisers[name] = Nesterov(net, rates, self.recipe.weight_decay)
            else:
                adam = HostAdam if self.problem.X.device.type == "cpu" else Adam
                optimisers[name] = adam(net, rates, momenta, active, self.recipe.weight_decay)
        return optimisers

    def _check_heads(self, net: Factory) -> None:
        """Warn if `Nesterov` cannot tell which layer of a custom network is the last one."""
        nets = [one for name, one in self.method.networks().items() if name in self.optimisers]
        if any(isinstance(one, Separate) and not head_inputs(one) for one in nets):
            warn(
                f"net={factory_name(net)} has no layer called 'head', so its last layer learns as fast as all others: "
                "optimiser='nesterov' is usually less accurate that way; name the last layer 'head'"
            )

    def step(self, phase: Hashable) -> None:
        """Train on one minibatch of every run."""
        self.batch.load()
        loss = self.method.step(self.batch, phase)
        self._check_loss(loss)
        if not self.group.alone:
            loss = loss * self.share  # then the sum over ranks is the mean over all rows of the minibatch
        nets = self.method.trains(phase)
        active = [self.optimisers[name] for name, net in self.method.networks().items() if any(net is n for n in nets)]
        parameters = [parameter for optimiser in active for parameter in optimiser.parameters]
        grads = torch.autograd.grad(loss.sum(), parameters, allow_unused=True)
        if any(grad is None for grad in grads):
            raise ValueError(_unreached(nets, parameters, grads))
        with torch.no_grad():
            if not self.group.alone:
                *total, loss = self._totals([*grads, loss])
                grads = tuple(total)
            for optimiser in active:
                optimiser.update(grads[: len(optimiser.parameters)], self.clock, self.epoch * self.steps + self.done)
                grads = grads[len(optimiser.parameters) :]
            self.method.after_step(self.batch, phase)
            self.loss += loss
            self.counters += 1

    def _totals(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return tensors summed over all ranks, with one message."""
        whole = self.group.total(torch.cat([tensor.flatten() for tensor in tensors]))
        parts = whole.split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def _check_loss(self, loss: Any) -> None:
        """Raise ValueError unless a step returned one loss per run, with a gradient."""
        if isinstance(loss, Tensor) and loss.shape == self.loss.shape and loss.requires_grad:
            return
        found = arguments.shown(loss)
        if isinstance(loss, Tensor):
            found = f"a tensor of shape {tuple(loss.shape)} {'with' if loss.requires_grad else 'without'} a gradient"
        wanted = f"the loss of each run, of shape {tuple(self.loss.shape)}, with a gradient"
        raise ValueError(f"step of the method {type(self.method).__name__} returned {found}; return {wanted}")

    def advance(self, capture: bool) -> None:
        """Take a step by replaying the phase's graph; without one, run it, and capture it after `_EAGER_STEPS`."""
        phase = self.method.phase(self.epoch)
        captured = self.graphs.get(phase)
        if captured is not None:
            captured.replay()
        else:
            with no_capture(self.loss.device):
                self.step(phase)
            self.eager[phase] += 1
            if capture and self.eager[phase] == _EAGER_STEPS:
                self.graphs[phase] = self._capture(phase)
        self.done += 1

    def _capture(self, phase: Hashable) -> torch.cuda.CUDAGraph | None:
        try:
            return capture(lambda: self.step(phase), self.pool)
        except RuntimeError as error:
            self.pool = torch.cuda.graph_pool_handle()  # torch may still record to the other one
            warn(f"the step cannot be captured as a CUDA graph, so training continues more slowly without one: {error}")
            return None

    def start_at(self, epoch: int) -> None:
        """Go to the start of an epoch without training up to it, to measure what it needs."""
        self.epoch, self.done, self.begun = epoch, 0, False
        self.clock.fill_(epoch * self.steps)

    @torch.no_grad()
    def begin_epoch(self) -> None:
        """Draw the order and calibrate the cleaner, unless that was done before an interrupt."""
        if not self.begun:
            self.batch.shuffle(self.epoch)
            self.loss.zero_()
            self.cleaner.calibrate(lambda rows: self.sweep(self.method.predict, rows), self.epoch)
            self.begun = True

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Let the method finish the epoch, and record the history."""
        self.history.setdefault("loss", []).append((self.loss / self.steps).double())
        if self.loss.device.type == "cpu":  # CUDA would have to wait: there, `check_losses` runs every few seconds
            self._check_kept()
            if not self.loss.isfinite().all():
                self.check_losses()
        self.sweep.epoch = self.epoch
        self.method.epoch_end(self.epoch, self.sweep)
        if self.loss.device.type == "cpu" and self.epoch % _DROP_EVERY == _DROP_EVERY - 1:
            for optimiser in self.optimisers.values():
                _drop_denormals([*optimiser.parameters, *optimiser.state().values()])
        facts = self._facts() | self.cleaner.facts()
        if self.watch is not None:
            facts["covering_rate"] = self.watch.after_epoch(self.sweep)
        for name, value in facts.items():  # stays on the device, so that nothing waits for it
            self.history.setdefault(name, []).append(value.detach().to(torch.float64, copy=True))
        self.epoch += 1
        self.done = 0
        self.begun = False

    def _facts(self) -> dict[str, Tensor]:
        """Return the history of the epoch, over the training rows of each run, (R,) each."""
        trains = self.training_mask
        kept = self.batch.kept
        sizes = torch.stack([run.sum(-1) for run in kept])  # one run at a time: the sum needs 8 bytes per label
        sums = {
            "mean_candidates": (sizes * trains).sum(1),
            "share_changed": ((kept != self.original).any(-1) & trains).sum(1),
        }
        rows = dict.fromkeys(sums, trains.sum(1))
        if self.y is not None:
            sums["accuracy"], rows["accuracy"] = ((self.batch.guess == self.y) & trains).sum(1), trains.sum(1)
            y = torch.where(trains, self.y, -1)
            counted = metrics.contains(self.original, y)
            sums["true_kept"], rows["true_kept"] = (counted & metrics.contains(kept, y)).sum(1), counted.sum(1)
        above, below = self.group.total(torch.stack([torch.stack([*sums.values()]), torch.stack([*rows.values()])]))
        return dict(zip(sums, above / below.double(), strict=True))

    def _check_kept(self) -> None:
        """Raise ValueError if the cleaner kept no candidate of a row, or what is not a candidate."""
        for run, (kept, sets) in enumerate(zip(self.batch.kept, self.original, strict=True)):
            wrong = (kept & ~sets).any(-1) | ~kept.any(-1)
            if wrong.any():
                raise ValueError(
                    f"keep of the cleaner {type(self.cleaner).__name__} returned no subset of the candidates, or an "
                    f"empty one, for row {int(wrong.nonzero()[0])} in run {self.first + run}; return a non-empty "
                    "subset of S"
                )

    def check_losses(self) -> None:
        """Raise ValueError for a loss that is not finite; on CUDA, this waits for all epochs begun."""
        losses = torch.stack(self.history["loss"]).cpu()
        for epoch, run in (~losses.isfinite()).nonzero().tolist():
            raise ValueError(
                f"training diverged: the loss of {describe(self.method)['name']} is {losses[epoch, run]:g} in epoch "
                f"{epoch + 1}, run {self.first + run} (seed {self.problem.seeds[run]}); {smaller_rate(self.recipe)}"
            )

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor that changes during training, by name."""
        found = {f"method.{name}": value for name, value in self.method.state().items()}
        found |= {f"cleaner.{name}": value for name, value in self.cleaner.state().items()}
        found |= network_tensors(self.method)
        for net, optimiser in self.optimisers.items():
            found |= {f"optimiser.{net}.{name}": value for name, value in optimiser.state().items()}
        own = {"tick": self.batch.tick, "kept": self.batch.kept, "guess": self.batch.guess}
        own |= {"clock": self.clock, "loss": self.loss}
        if self.watch is not None:
            found |= {f"watch.{name}": value for name, value in self.watch.state().items()}
        return found | {f"engine.{name}": value for name, value in own.items()}

    @property
    def over(self) -> bool:
        """Whether training is over: all epochs are done, or the held-out covering rate has stopped improving."""
        return self.epoch == self.recipe.epochs or (self.watch is not None and self.watch.over)

    def recorded(self) -> dict[str, Tensor]:
        """Return the history by name, (epochs, R) each, on the CPU; raise ValueError if training diverged."""
        if self.history:
            self._check_kept()
            self.check_losses()
        return {name: torch.stack(values).cpu() for name, values in self.history.items()}

    def model(self, net: str | Factory) -> Model:
        """Return the trained model."""
        if self.watch is not None:
            self.watch.put_back()
        history = {name: value.numpy() for name, value in self.recorded().items()}
        if not all(value.isfinite().all() for value in network_tensors(self.method).values()):
            raise ValueError(
                f"training diverged: the networks of {describe(self.method)['name']} are not finite after epoch "
                f"{self.epoch}; {smaller_rate(self.recipe)}"
            )
        for network in self.method.networks().values():
            synchronise(network, ALONE)
        kept = self.batch.kept.cpu()
        return Model(self.method, self.problem.without_rows(), net, self.recipe, describe(self.cleaner), history, kept)

    def save(self, folder: Path, configs: Sequence[Mapping[str, Any]]) -> None:
        """Write a checkpoint, given the configuration of each shard; each has a folder if there are several.

        A shard's folder lies in one that is named by the step, so that all shards continue from the same one if ranks
        are killed while some have written and others have not.
        """
        history = {f"history.{name}": value for name, value in self.recorded().items()}
        place = {"epoch": self.epoch, "done": self.done, "begun": self.begun, "threads": torch.get_num_threads()}
        tensors = self.tensors()
        if self.problem.shards.count == 1:
            states.write(folder, tensors | history, {"config": configs[0], **place})
            return
        now = folder / step_name(self.epoch * self.steps + self.done)
        for shard, config in zip(self.problem.parts, configs, strict=True):
            rows = {name: tensors[name][:, shard.start : shard.stop] for name in self._per_row(tensors)}
            own = now / shard_name(shard.number, self.problem.shards.count)
            states.write(own, tensors | rows | history, {"config": config, **place})
        self.group.any(flag=False)  # wait until all have written
        remove_steps(folder, [shard.number for shard in self.problem.parts], self.problem.shards.count, now)

    def _per_row(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """Return the names of the tensors with an entry for each row, (R, N, ...)."""
        shape = (self.problem.runs, len(self.problem.X))
        kinds = ("method.", "cleaner.", "engine.")
        return [name for name, value in tensors.items() if name.startswith(kinds) and tuple(value.shape[:2]) == shape]

    def _read(self, folder: Path, configs: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Read a checkpoint of this training, in which the shards of this process are joined."""
        found = []
        for shard, config in zip(self.problem.parts, configs, strict=True):
            own = folder
            if self.problem.shards.count > 1:
                own = folder / shard_name(shard.number, self.problem.shards.count)
            states.tidy(own)
            tensors, facts = states.read(own)
            _FACTS(facts, "the checkpoint")
            _check_config(facts["config"], config)
            self._check_place(facts, tensors)
            found.append(tensors)
        tensors = found[0]
        for name in self._per_row(self.tensors()) if len(found) > 1 else ():
            parts = [one[name] for one in found if name in one]
            tensors[name] = torch.cat(parts, 1)
        return tensors, facts

    def resume(self, folder: Path, configs: Sequence[Mapping[str, Any]]) -> None:
        """Continue from a checkpoint of the same training, if the folder holds one."""
        if self.problem.shards.count > 1:
            last = last_step(folder, [shard.number for shard in self.problem.parts], self.problem.shards)
            if last is None:
                return
            folder = folder / last
        elif not (folder / "state.json").exists():
            return
        try:
            tensors, facts = self._read(folder, configs)
        except ValueError as error:
            raise ValueError(f"{folder} cannot be continued: {error}; choose another folder or delete it") from None
        if self.loss.device.type == "cpu" and facts["threads"] != torch.get_num_threads():
            warn(
                f"the checkpoint in {folder} was trained with {facts['threads']} threads, and torch now uses "
                f"{torch.get_num_threads()}: the result may differ in the last bits; call torch.set_num_threads to "
                "continue with the same number"
            )
        self.epoch = facts["epoch"]
        self.done = facts["done"]
        self.begun = facts["begun"]
        if self.begun:
            self.batch.shuffle(self.epoch)
        copy_tensors(tensors, self.tensors(), "the checkpoint was written by another version of candidly; delete it")
        for name, value in tensors.items():
            if name.startswith("history."):
                self.history[name.removeprefix("history.")] = list(value.to(self.loss.device).unbind())

    def _check_place(self, facts: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Raise ValueError unless the checkpoint's counters and history belong to a moment of this training."""
        epoch, done, begun = facts["epoch"], facts["done"], facts["begun"]
        last = epoch == self.recipe.epochs
        count(0, self.recipe.epochs)(epoch, "the checkpoint's 'epoch'")
        count(0, self.steps - 1 if begun and not last else 0)(done, "the checkpoint's 'done'")
        require(not (last and begun), "the checkpoint's 'begun' after the last epoch", begun)
        clock = tensors.get("engine.clock", torch.zeros(0)).tolist()
        require(clock == [epoch * self.steps + done], "the checkpoint's clock", clock)
        tick = tensors.get("engine.tick", torch.zeros(0)).tolist()
        require(not begun or tick == [done], "the checkpoint's step within the epoch", tick)
        history = {name: value for name, value in tensors.items() if name.startswith("history.")}
        require(("history.loss" in history) == (epoch > 0), "the checkpoint's history", sorted(history))
        for name, value in history.items():
            good = value.shape == (epoch, self.problem.runs) and value.dtype == torch.float64
            require(good, f"the shape of the checkpoint's {name}", tuple(value.shape))


_FACTS = record(
    {"config": instance(dict), "epoch": count(0), "done": count(0), "begun": flag, "threads": count(1)},
)


def _check_config(found: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raise ValueError unless a checkpoint's configuration is that of this training."""
    changed = [key for key in sorted(config.keys() | found.keys()) if found.get(key) != config.get(key)]
    named = [key for key in changed if key.removesuffix("'s code") == key or key.removesuffix("'s code") not in changed]
    if named:
        raise ValueError(f"it holds a checkpoint of another training (different: {', '.join(named)})")


def _check_images(problem: Problem, recipe: Recipe) -> None:
    """Raise ValueError if the recipe flips what are not images."""
    for name in ("augment", "test_flips"):
        if getattr(recipe, name) and problem.X.ndim != 4:
            shape = tuple(problem.X.shape[1:])
            setting = f"{name}={getattr(recipe, name)!r}"
            raise ValueError(
                f"rows have shape {shape}, but {setting} flips (channels, height, width) images; use another recipe"
            )


def _check_views(method: Method) -> None:
    """Raise ValueError unless the views of a method are known ones, also where rows are not images."""
    views: Any = method.views
    if not isinstance(views, tuple | list) or not all(isinstance(kind, str) and kind in VIEWS for kind in views):
        raise ValueError(
            f"views of the method {type(method).__name__} is {arguments.shown(views)}; it must be a tuple of some of "
            f"{', '.join(VIEWS)}, such as ('strong',)"
        )


def _unreached(nets: Sequence[nn.Module], parameters: Sequence[Tensor], grads: Sequence[Tensor | None]) -> str:
    """Return a message that names the first parameter without a gradient."""
    lost = next(parameter for parameter, grad in zip(parameters, grads, strict=True) if grad is None)
    name = next(name for net in nets for name, parameter in net.named_parameters() if parameter is lost)
    return f"the method's loss does not depend on the network's parameter {name}; call requires_grad_(False) on it"


def _keep_freed_memory() -> None:
    """Make the C library keep the memory that a step frees for the next step.

    glibc would return it to the system, and fetching it again page by page takes a fifth of a step. It adapts to what
    is freed: after one block just below its limit of 32 MiB it keeps up to 64 MiB. Other C libraries are not affected.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def _drop_denormals(tensors: Sequence[Tensor]) -> None:
    """Set denormal numbers to zero: a CPU computes with them many times more slowly.

    The weights of units that no row activates decay towards them, and late epochs would take half as long again.
    """
    for tensor in tensors:
        if tensor.is_floating_point():
            tensor.masked_fill_(tensor.abs() < torch.finfo(tensor.dtype).tiny, 0.0)
