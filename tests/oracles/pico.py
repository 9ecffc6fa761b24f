"""Slow literal twin of PiCO."""

from collections import deque

import torch
from torch import Tensor, nn

from tests.oracles.labels import cross_entropy, softmax, uniform
from tests.oracles.runs import Rows
from tests.oracles.twin import Twin


def unit(v: Tensor) -> Tensor:
    length = v.square().sum().sqrt()
    return v / length if length > 0 else v


def logits_and_embeddings(net: nn.Sequential, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The perceptron's last layer but one has the embedding."""
    h = net[:-1](x)
    return net[-1](h), [unit(h_i) for h_i in h]


class Pico(Twin):
    """Nets: net and its momentum encoder."""

    def setup(self) -> None:
        self.q = [uniform(S_i, self.run.classes) for S_i in self.run.S]
        self.prototypes = [torch.zeros(128, dtype=torch.float64) for _ in range(self.run.classes)]
        self.queued: deque[tuple[Tensor, int]] = deque(maxlen=self.settings["queue"])
        self.phi = 0.95

    def phase(self, epoch: int) -> str:
        return "main" if epoch else "first"

    def views(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the weak and the strong view: of rows that are not images, the rows themselves."""
        x = self.run.X[rows]
        return x, x

    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        weak, strong = self.views(rows)
        z, queries = logits_and_embeddings(self.nets["net"], weak)
        with torch.no_grad():
            _, keys = logits_and_embeddings(self.nets["encoder"], strong)
        p = [softmax(z_i) for z_i in z.tolist()]
        kept = self.candidates(rows, p)
        labels = [max(kept_i, key=lambda j: p_i[j]) for p_i, kept_i in zip(p, kept, strict=True)]
        targets = []
        for i, query, kept_i in zip(rows, queries, kept, strict=True):
            target = self.q[i]  # a row that fills an epoch's last batch reads what its first visit stored
            if phase == "main":
                vote = max(kept_i, key=lambda j: float(self.prototypes[j] @ query.detach()))
                target = [self.phi * q_j + (1 - self.phi) * (j == vote) for j, q_j in enumerate(target)]
            targets.append(target)
        for i, target in zip(rows, targets, strict=True):
            self.q[i] = target
        contrast = torch.zeros((), dtype=torch.float64)
        for k in range(len(rows)):
            contrast = contrast + self._contrast(k, queries, keys, labels, phase) / len(rows)
        m = self.settings["prototype_momentum"]
        for query, label in zip(queries, labels, strict=True):
            self.prototypes[label] = m * self.prototypes[label] + (1 - m) * query.detach()
        self.prototypes = [unit(prototype) for prototype in self.prototypes]
        self.queued.extend(zip(keys, labels, strict=True))
        return cross_entropy(targets, z) + self.settings["weight"] * contrast

    def _contrast(self, k: int, queries: list[Tensor], keys: list[Tensor], labels: list[int], phase: str) -> Tensor:
        """−log of the positives' share, of one row."""
        if phase == "first":
            others = [(keys[k], True)] + [(key, False) for key, _ in self.queued]
        else:
            pool = [(queries[b], labels[b]) for b in range(len(queries)) if b != k]
            pool += [*zip(keys, labels, strict=True), *self.queued]
            others = [(vector, label == labels[k]) for vector, label in pool]
        scores = torch.stack([queries[k] @ vector / self.settings["temperature"] for vector, _ in others])
        log_shares = scores - scores.exp().sum().log()
        positive = [log_share for log_share, (_, same) in zip(log_shares, others, strict=True) if same]
        return -torch.stack(positive).mean()

    def after_step(self, rows: Rows) -> None:
        m = self.settings["momentum"]
        for slow, fast in zip(self.nets["encoder"].parameters(), self.nets["net"].parameters(), strict=True):
            slow.copy_(m * slow + (1 - m) * fast)

    def epoch_end(self, epoch: int) -> None:
        last = self.run.epochs - 1
        self.phi = 0.95 + (0.8 - 0.95) * min(epoch + 1, last) / last
