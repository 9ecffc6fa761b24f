"""Slow literal twin of CroSel."""

from collections import deque
from collections.abc import Sequence
from itertools import count
from statistics import fmean

import torch
from torch import Tensor, nn

from candidly.engine.nets.sampling import log_gamma_sample
from candidly.engine.problem import stream
from tests.oracles.labels import argmax, candidate_loss, cross_entropy, softmax
from tests.oracles.runs import Rows, Set, Weights
from tests.oracles.twin import Twin


def probabilities_of_views(net: nn.Module, views: Sequence[Tensor]) -> list[list[Weights]]:
    """Return the softmax of each view and image; the network sees all views in one batch."""
    z = net(torch.cat(list(views)).flatten(1)).tolist()
    size = len(views[0])
    return [[softmax(z_i) for z_i in z[view * size : (view + 1) * size]] for view in range(len(views))]


def mean_weights(several: Sequence[Weights]) -> Weights:
    return [fmean(values) for values in zip(*several, strict=True)]


def inside(p: Weights, S: Set) -> Weights:
    """Compute norm_S(p)."""
    total = sum(p[j] for j in S)
    return [p_j / total if j in S else 0.0 for j, p_j in enumerate(p)]


def soft_loss_of_views(net: nn.Module, views: Sequence[Tensor], kept: Sequence[Set], noise: Tensor) -> Tensor:
    """L_soft of one network on two views: what it says of one view is the target of the other, then MixUp."""
    first, second = probabilities_of_views(net, views)
    images = [*views[0], *views[1]]
    targets = [inside(p, S) for p, S in zip([*second, *first], [*kept, *kept], strict=True)]
    pair = log_gamma_sample(torch.full((2,), 0.75, dtype=torch.float64), noise[0, 1:].view(2, -1)).exp().tolist()
    weight = max(pair) / sum(pair)
    partners = sorted(range(len(images)), key=lambda image: noise[image, 0].item())
    mixed, mixed_targets = [], []
    for own, partner in enumerate(partners):
        mixed.append(weight * images[own] + (1 - weight) * images[partner])
        pairs = zip(targets[own], targets[partner], strict=True)
        mixed_targets.append([weight * q + (1 - weight) * other for q, other in pairs])
    return cross_entropy(mixed_targets, net(torch.stack(mixed).flatten(1)))


class Crosel(Twin):
    """Nets: first and second."""

    def setup(self) -> None:
        nothing = {i: [1.0] * self.run.classes for i in range(len(self.run.S))}
        self.visited: dict[str, dict[int, Weights]] = {name: dict(nothing) for name in self.nets}
        self.banks: dict[str, deque[list[Weights]]] = {name: deque(maxlen=3) for name in self.nets}
        self.selected: dict[str, Rows] = {name: [] for name in self.nets}
        self.position = count()

    def phase(self, epoch: int) -> str:
        if epoch < self.settings["warmup"]:
            return "warm-up"
        return "selected" if all(self.selected.values()) else "nothing selected"

    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        x = self.run.X[rows]
        z = {name: net(x) for name, net in self.nets.items()}
        p = [[softmax(z_i) for z_i in z[name].tolist()] for name in self.nets]
        mean = [[(p1 + p2) / 2 for p1, p2 in zip(*pair, strict=True)] for pair in zip(*p, strict=True)]
        kept = self.candidates(rows, mean)
        targets = {name: self._targets(rows, kept, name) for name in self.nets}
        for name, own in zip(self.nets, p, strict=True):
            self.visited[name] |= dict(zip(rows, own, strict=True))
        if phase == "warm-up":
            return sum(candidate_loss(kept, z[name]) for name in self.nets)
        positions = [next(self.position) for _ in rows]
        r = fmean(len(chosen) / len(self.run.rows) for chosen in self.selected.values())
        loss = torch.zeros((), dtype=torch.float64)
        for name, other in (("first", "second"), ("second", "first")):
            bank, chosen = self.banks[other][-1], self.selected[other]
            loss = loss + self.settings["lambda_cr"] * (1 - r) * cross_entropy(targets[other], z[name])
            if chosen:
                batch = [chosen[position % len(chosen)] for position in positions]
                labels = [argmax(bank[i]) for i in batch]
                one_hot = [[1.0 if j == label else 0.0 for j in range(self.run.classes)] for label in labels]
                loss = loss + cross_entropy(one_hot, self.nets[name](self.run.X[batch]))
            else:  # the batch of all rows passes again, for batch normalisation's running statistics alone
                self.nets[name](x)
        return loss

    def _targets(self, rows: Rows, kept: list[Set], name: str) -> list[Weights]:
        """A row that is visited a second time, to fill an epoch's last batch, reads what its first visit stored."""
        swept = self.banks[name] and self.settings["bank"] == "sweep"
        bank = self.banks[name][-1] if swept else self.visited[name]
        return [inside(bank[i], kept_i) for i, kept_i in zip(rows, kept, strict=True)]

    def epoch_end(self, epoch: int) -> None:
        everything = list(range(len(self.run.X)))
        order = torch.rand(len(everything), generator=stream(self.run.seed, "sweep", epoch)).tolist()
        for name, net in self.nets.items():
            bank = self.banks[name]
            if self.settings["bank"] == "sweep":
                bank.append([softmax(z_i) for z_i in self.evaluate(net, everything).tolist()])
            else:
                bank.append([self.visited[name][i] for i in everything])
            chosen = []
            for i in self.run.rows:
                labels = {argmax(p[i]) for p in bank}
                sure = fmean(max(p[i]) for p in bank) > self.settings["confidence"]
                if len(bank) == 3 and len(labels) == 1 and labels <= self.run.S[i] and sure:
                    chosen.append(i)
            self.selected[name] = sorted(chosen, key=lambda i: order[i])

    def predict(self, rows: Rows) -> list[Weights]:
        first, second = (self.evaluate(self.nets[name], rows).tolist() for name in ("first", "second"))
        pairs = zip(map(softmax, first), map(softmax, second), strict=True)
        return [[(p1 + p2) / 2 for p1, p2 in zip(*pair, strict=True)] for pair in pairs]
