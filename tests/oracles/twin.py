"""The training loop of the slow twins: one run, under torch's own Adam and OneCycleLR."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from tests.oracles.labels import softmax, uniform
from tests.oracles.runs import Rows, Run, Set, Weights

Predict = Callable[[Rows], list[Weights]]


class NoCleaning:
    """What every cleaner must offer; this one changes nothing."""

    def __init__(self) -> None:
        self.levels: list[float] = []
        self.cleaning = False

    def setup(self, run: Run) -> Rows:
        """Return the rows to train on."""
        self.run = run
        return run.rows

    def begin(self, epoch: int, predict: Predict) -> None:
        """Before the epoch's updates."""

    def keep(self, rows: Rows, p: list[Weights], within: list[Set]) -> list[Set]:
        """Return the candidates of a batch given its probabilities."""
        return within

    def end(self, epoch: int, predict: Predict) -> None:
        """After the epoch's updates."""


@dataclass
class Twin:
    """One run's training. A method says what a step's loss is and what follows."""

    run: Run
    nets: dict[str, nn.Sequential]
    cleaner: NoCleaning = field(default_factory=NoCleaning)
    settings: Mapping[str, Any] = field(default_factory=dict)
    noise: int = 0

    max_lr = 0.01

    def __post_init__(self) -> None:
        self.run.rows = self.cleaner.setup(self.run)
        self.kept = list(self.run.S)
        self.taken: Counter[str] = Counter()
        self.losses: list[float] = []
        self.setup()

    def setup(self) -> None:
        """Start with uniform weights."""
        self.q = [uniform(S_i, self.run.classes) for S_i in self.run.S]

    def train(self) -> None:
        run = self.run
        parameters = [parameter for net in self.nets.values() for parameter in net.parameters()]
        optimiser = torch.optim.Adam(parameters, weight_decay=1e-4)
        steps = run.epochs * run.steps
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=self.max_lr, total_steps=steps)
        for epoch in range(run.epochs):
            self.cleaner.begin(epoch, self.predict)
            losses = []
            for rows, u in run.batches(epoch, self.noise):
                self.taken["cleaning" if self.cleaner.cleaning else "not cleaning"] += 1
                self.taken[self.phase(epoch)] += 1
                loss = self.step(rows, u, self.phase(epoch))
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                schedule.step()
                with torch.no_grad():
                    self.after_step(rows)
                losses.append(loss.item())
            self.losses.append(fmean(losses))
            self.epoch_end(epoch)
            self.cleaner.end(epoch, self.predict)

    def candidates(self, rows: Rows, p: list[Weights], within: list[Set] | None = None) -> list[Set]:
        kept = self.cleaner.keep(rows, p, [self.run.S[i] for i in rows] if within is None else within)
        for i, kept_i in zip(rows, kept, strict=True):
            self.kept[i] = kept_i
        return kept

    def evaluate(self, net: nn.Sequential, rows: Rows) -> Tensor:
        """Outputs in evaluation mode."""
        net.eval()
        with torch.no_grad():
            z = net(self.run.X[rows])
        net.train()
        return z

    def predict(self, rows: Rows) -> list[Weights]:
        return [softmax(z_i) for z_i in self.evaluate(self.nets["net"], rows).tolist()]

    def phase(self, epoch: int) -> str:
        return "main"

    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        raise NotImplementedError

    def after_step(self, rows: Rows) -> None: ...

    def epoch_end(self, epoch: int) -> None: ...
