"""CroSel: S. Tian, H. Wei, Y. Wang, L. Feng, *Cross Selection of Confident Pseudo Labels for PLL*, CVPR 2024.

Two networks, independently initialised, warm up with CC. Each network's bank stores its softmax on all rows, and its
argmax and maximum of the last 3 epochs. Network k selects

    (1)  D_k = rows whose argmax is a candidate, the same in all 3 epochs, and whose mean maximum exceeds 0.9

Network 1 trains on D_2 and network 2 on D_1. A step uses one batch of all rows and one batch of the other network's
selection, which is shuffled every epoch and read in a cycle. With r the mean of both networks' selected fractions, the
loss is the sum of

    (2)  CE(the other network's label, p) on the selected batch, 0 if nothing is selected
    (3)  λ_cr · (1 − r) · L_soft on the batch of all rows

For vectors, L_soft = CE(norm_K(the other network's bank), p). For images there are two views. The target of one view is
norm_K of the same network's current softmax on the other view, without gradient, and L_soft is the CE on their MixUp
with weight max(b, 1−b), b ~ Beta(0.75, 0.75). K are the candidates given the mean of these probabilities; CC's loss
uses them, too. The prediction is the mean of both networks' softmaxes.

Deviations: the bank is filled from the training pass, with the probabilities that a row gets when its batch is visited.
The authors evaluate all rows after each epoch instead (``bank="sweep"``). The noise of batch statistics keeps a
selection from confirming itself, and no extra pass is needed: see docs/methods/crosel.md. For images, this bank is the
mean over both views. λ_cr is 2 (the conformal-cleaning paper's; the authors use 1, and 4 for CIFAR-10 with q = .5).
Warm-up epochs count within the recipe and use its schedule. While nothing is selected, the second batch repeats the
first one with weight 0, so that batch normalisation has rows to read. A view is a random flip and a shift by up to 4
pixels; selected images and those of the warm-up are such views, too.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from candidly.checks import arguments
from candidly.engine import Batch, BuildNet, Method, Problem, Sweep, candidate_nll, masked_softmax, soft_ce
from candidly.engine.nets.augment import NOISE_PER_MIX, NOISE_PER_VIEW, flip_crop, mix_up
from candidly.engine.ranks import Shard

NETWORKS = 2
EPOCHS_REMEMBERED = 3
"""How many epochs in a row must agree on a row's label before it is selected (1)."""


def other_network(values: Tensor, dim: int) -> Tensor:
    """Swap the two networks along `dim`, so that each one's entry is the other's."""
    return values.flip(dim)


@dataclass
class Crosel(Method):
    """Cross selection (CroSel).

    Parameters
    ----------
    warmup : int
        Epochs of CC before the first selection is used.
    confidence : float
        What the mean maximum must exceed in (1).
    lambda_cr : float
        Weight of (3).
    bank : {"training", "sweep"}
        Where the banks' probabilities come from: the training pass, or a pass over all rows in evaluation mode after
        each epoch.

    Examples
    --------
    >>> Crosel(lambda_cr=1.0).confidence
    0.9
    """

    warmup: int = 10
    confidence: float = 0.9
    lambda_cr: float = 2.0
    bank: Literal["training", "sweep"] = "training"

    views = ("weak", "weak")

    def __post_init__(self) -> None:
        arguments.settings(self, warmup={"least": 0}, confidence={"least": 0, "most": 1}, lambda_cr={"least": 0})

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Build both networks, empty banks and an empty selection."""
        runs, n, classes = problem.sets.shape
        new = problem.new_zeros
        self.problem = problem
        self.nets = build_net(copies=NETWORKS)
        self.stored = new(runs, n, NETWORKS, classes)  # (R, N, 2, C): the bank, as log-softmax
        self.labels = new(runs, n, NETWORKS, EPOCHS_REMEMBERED, dtype=torch.int64).fill_(-1)  # (R, N, 2, 3): argmax
        self.maxima = new(runs, n, NETWORKS, EPOCHS_REMEMBERED)  # (R, N, 2, 3): maximum of the softmax
        # Each shard selects among its own rows, W shards of all ranks.
        self.pool = new(runs, n, NETWORKS, dtype=torch.int64)  # (R, N, 2): the shard's rows, the selected ones first
        self.count = new(runs, NETWORKS, problem.shards.count, dtype=torch.int64)  # (R, 2, W): how many are selected
        self.cursor = new(1, dtype=torch.int64)  # (1,): how many selected batches were drawn from the pool
        self.fraction = new(runs)  # (R,): r
        self.images = problem.X.ndim == 4
        self.noise = 2 * NOISE_PER_MIX + NETWORKS * NOISE_PER_VIEW if self.images else 0

    def _logits(self, x: Tensor) -> Tensor:
        """Logits of both networks, (R, 2, B, C), for x (R, B, ...), or (R, 2, B, ...) if they see different rows."""
        shared = x.ndim == self.problem.X.ndim + 1
        both = x.unsqueeze(1).expand(-1, NETWORKS, *x.shape[1:]) if shared else x
        return self.nets(both.flatten(0, 1)).unflatten(0, (-1, NETWORKS))

    def phase(self, epoch: int) -> Hashable:
        """Warm-up, then main."""
        return "warm-up" if epoch < self.warmup else "main"

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Equations (2) and (3)."""
        if phase == "warm-up":
            z, kept = self._logits_and_candidates(batch)
            self._store(batch, z)
            return candidate_nll(z, kept).sum(1)
        soft = self._soft_images(batch) if self.images else self._soft_vectors(batch)
        return self._selected(batch) + self.lambda_cr * (1 - self.fraction) * soft  # (3)

    def _logits_and_candidates(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return logits (R, 2, B, C) and the candidates K (R, 1, B, C) given the mean of both softmaxes."""
        z = self._logits(batch.views()[0])
        return z, batch.candidates(z.detach().softmax(-1).mean(1)).unsqueeze(1)

    def _soft_vectors(self, batch: Batch) -> Tensor:
        """L_soft for vectors, summed over both networks."""
        z, kept = self._logits_and_candidates(batch)
        last = batch.take(self.stored).movedim(2, 1)  # (R, 2, B, C)
        self._store(batch, z)
        return soft_ce(masked_softmax(other_network(last, 1), kept), z).sum(1)

    def _store(self, batch: Batch, z: Tensor) -> None:
        """Fill the banks' rows of this batch, given logits or log-probabilities (R, 2, B, C)."""
        if self.bank == "training":
            batch.put(self.stored, z.detach().log_softmax(-1).movedim(1, 2))

    def _soft_images(self, batch: Batch) -> Tensor:
        """L_soft for images, summed over both networks."""
        B = batch.rows.shape[1]
        views = torch.cat(batch.views(), 1)  # (R, 2B, ...)
        noise = batch.noise(2 * NOISE_PER_MIX).unflatten(-1, (2, -1)).flatten(1, 2)
        with torch.no_grad():
            z = self._logits(views)  # (R, 2, 2B, C)
        p = z.softmax(-1).unflatten(2, (2, B)).mean(2)  # (R, 2, B, C)
        self._store(batch, p.log())
        kept = batch.candidates(p.mean(1)).repeat(1, 2, 1).unsqueeze(1)  # (R, 1, 2B, C)
        target = masked_softmax(z.roll(B, 2), kept)  # of each view, what the network says of the other view
        mixed, target = mix_up(views, target.movedim(1, 0), noise)
        return soft_ce(target.movedim(0, 1), self._logits(mixed)).sum(1)

    def _selected(self, batch: Batch) -> Tensor:
        """Equation (2), summed over both networks."""
        B = batch.rows.shape[1]
        parts = list(zip(self.problem.parts, batch.places, strict=True))
        count = torch.cat([self._count(shard).expand(-1, -1, p.stop - p.start) for shard, p in parts], -1)  # (R, 2, B)
        drawn = torch.cat([self._drawn(shard, place.stop - place.start) for shard, place in parts], -1)
        self.cursor += 1
        rows = torch.where(count > 0, drawn, batch.rows.unsqueeze(1))  # (R, 2, B)
        # The rows are swapped before and the labels after looking them up, rather than the labels of all N rows.
        newest = self.labels[..., -1].mT  # (R, 2, N)
        label = other_network(newest.gather(2, other_network(rows, 1)), 1).clamp_min(0)
        x = batch.inputs(rows.flatten(1)).unflatten(1, (NETWORKS, B))
        if self.images:
            x = flip_crop(x, batch.noise(NETWORKS * NOISE_PER_VIEW).unflatten(-1, (NETWORKS, -1)).movedim(2, 1))
        log_p = self._logits(x).log_softmax(-1)
        at_label = log_p.gather(-1, label.unsqueeze(-1)).squeeze(-1)
        return -torch.where(count > 0, at_label, 0.0).mean(-1).sum(1)

    def _drawn(self, shard: Shard, size: int) -> Tensor:
        """Return the next selected rows of a shard, (R, 2, size), in a cycle."""
        position = self.cursor * size + torch.arange(size, device=self.cursor.device)
        rows = self.pool[:, shard.start : shard.stop].mT
        return shard.start + rows.gather(2, position % self._count(shard).clamp_min(1))

    def _count(self, shard: Shard) -> Tensor:
        """Return how many rows of a shard are selected, (R, 2, 1)."""
        return self.count[..., shard.number : shard.number + 1]

    def epoch_end(self, epoch: int, sweep: Sweep) -> None:
        """Select by equation (1)."""
        if self.bank == "sweep":
            self.stored.copy_(sweep(lambda x: self._logits(x).movedim(1, 2)).log_softmax(-1))
        maximum, label = self.stored.max(-1, keepdim=True)
        self.labels.copy_(torch.cat([self.labels[..., 1:], label], -1))
        self.maxima.copy_(torch.cat([self.maxima[..., 1:], maximum.exp()], -1))
        steady = (self.labels == label).all(-1)
        confident = self.maxima.mean(-1) > self.confidence
        is_candidate = self.problem.sets.gather(2, label.squeeze(-1))
        trains = self.problem.training_mask.unsqueeze(-1)
        selected = other_network(steady & confident & is_candidate & trains, 2)  # (1), (R, N, 2)
        shuffled_first = torch.where(selected, sweep.noise().unsqueeze(-1), 2.0)
        self.count.zero_()
        for shard in self.problem.parts:
            rows = slice(shard.start, shard.stop)
            self.pool[:, rows] = shuffled_first[:, rows].argsort(1)
            self.count[..., shard.number] = selected[:, rows].sum(1)
        group = self.problem.group
        self.count.copy_(group.total(self.count))
        self.fraction.copy_((self.count.sum(-1).to(self.fraction) / group.total(trains.sum(1))).mean(1))

    def predict(self, x: Tensor) -> Tensor:
        """Return the mean of both softmaxes."""
        return self._logits(x).softmax(-1).mean(1)
