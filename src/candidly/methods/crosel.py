"""CroSel: S. Tian, H. Wei, Y. Wang, L. Feng, *Cross Selection of Confident Pseudo Labels for PLL*, CVPR 2024.

Two networks, independently initialised, warm up with CC. After every epoch each network's bank takes its softmax on
all rows, and the argmax and maximum of the last 3 epochs are remembered. Selection of network k:

    (1)  D_k = rows whose argmax is a candidate, the same in all 3 epochs, and whose mean maximum exceeds 0.9

Network 1 trains on D_2 and network 2 on D_1. A step takes one batch of all rows and one batch cycled from the other
network's selection (shuffled every epoch), with r the mean of both networks' selected fractions:

    (2)  CE(the other network's label, p) on the selected batch, 0 if nothing is selected
    (3)  λ_cr · (1 − r) · L_soft on the batch of all rows

For vectors, L_soft = CE(norm_K(the other network's bank), p). For images there are two views: the target of one is
norm_K of the same network's current softmax on the other, without gradient, and L_soft is the CE on their MixUp with
weight max(b, 1−b), b ~ Beta(0.75, 0.75). K, the candidates given the mean of these probabilities, serves CC's loss too.
The prediction is the mean of both networks' softmaxes.

Deviations: λ_cr is 2 (the conformal-cleaning paper's; the authors use 1, and 4 for CIFAR-10 with q = .5). Warm-up
epochs count within the recipe and use its schedule. While nothing is selected, the second batch is the first one again,
with weight 0, for batch normalisation's sake. A view is a random flip and a shift by up to 4 pixels.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from candidly.engine import Batch, BuildNet, Method, Problem, Sweep, candidate_nll, masked_softmax, soft_ce
from candidly.engine.nets.augment import NOISE_PER_MIX, NOISE_PER_VIEW, flip_crop, mix_up


@dataclass
class Crosel(Method):
    """Cross selection (CroSel).

    Examples
    --------
    >>> Crosel(lambda_cr=1.0).confidence
    0.9
    """

    warmup: int = 10  # epochs of CC
    confidence: float = 0.9  # what the mean maximum must exceed in (1)
    lambda_cr: float = 2.0  # weight of (3)

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Build both networks, empty banks and an empty selection."""
        self.nets = build_net(copies=2)
        self.problem, new, (runs, n, classes) = problem, problem.new_zeros, problem.sets.shape
        self.bank, self.fraction = new(runs, n, 2, classes), new(runs)  # last epoch's log-softmax; r
        self.labels, self.maxima = new(runs, n, 2, 3, dtype=torch.int64) - 1, new(runs, n, 2, 3)
        self.pool, self.count, self.cursor = (new(*k, dtype=torch.int64) for k in ((runs, n, 2), (runs, 2), (1,)))
        self.noise = 2 * (NOISE_PER_VIEW + NOISE_PER_MIX) if problem.X.ndim == 4 else 0  # for images

    def _logits(self, x: Tensor) -> Tensor:
        """Logits of both networks, (R, 2, B, C), for x (R, B, ...), or (R, 2, B, ...) where they see different rows."""
        both = x if x.ndim > self.problem.X.ndim + 1 else x.unsqueeze(1).expand(-1, 2, *x.shape[1:])
        return self.nets(both.flatten(0, 1)).unflatten(0, (-1, 2))

    def phase(self, epoch: int) -> Hashable:
        """Warm-up, then main."""
        return "warm-up" if epoch < self.warmup else "main"

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Equations (2) and (3)."""
        if self.noise and phase == "main":
            soft = self._mixed_views(batch)
        else:
            z = self._logits(batch.x)
            kept = batch.candidates(z.detach().softmax(-1).mean(1)).unsqueeze(1)
            if phase == "warm-up":
                return candidate_nll(z, kept).sum(1)
            bank = batch.take(self.bank).movedim(2, 1).flip(1)  # the other network's
            soft = soft_ce(masked_softmax(bank, kept), z).sum(1)
        return self._selected(batch) + self.lambda_cr * (1 - self.fraction) * soft  # (3)

    def _selected(self, batch: Batch) -> Tensor:
        """Equation (2), summed over both networks."""
        B, count = batch.rows.shape[1], self.count.unsqueeze(-1)
        position = self.cursor + torch.arange(B, device=self.cursor.device)
        self.cursor += B
        rows = torch.where(count > 0, self.pool.mT.gather(2, position % count.clamp_min(1)), batch.rows.unsqueeze(1))
        label = self.labels[..., -1].mT.gather(2, rows.flip(1)).flip(1).clamp_min(0)  # the other network's
        log_p = self._logits(batch.inputs(rows.flatten(1)).unflatten(1, (2, B))).log_softmax(-1)
        return -torch.where(count > 0, log_p.gather(-1, label.unsqueeze(-1)).squeeze(-1), 0.0).mean(-1).sum(1)

    def _mixed_views(self, batch: Batch) -> Tensor:
        """L_soft for images."""
        B = batch.rows.shape[1]
        u1, u2, u_mix = batch.noise(self.noise).split([NOISE_PER_VIEW, NOISE_PER_VIEW, 2 * NOISE_PER_MIX], -1)
        x = flip_crop(batch.inputs(batch.rows.repeat(1, 2)), torch.cat([u1, u2], 1))
        with torch.no_grad():
            z = self._logits(x)
        kept = batch.candidates(z.softmax(-1).unflatten(2, (2, B)).mean((1, 2))).repeat(1, 2, 1).unsqueeze(1)
        target = masked_softmax(z.roll(B, 2), kept)
        x, target = mix_up(x, target.movedim(1, 0), u_mix.unflatten(-1, (2, -1)).flatten(1, 2))
        return soft_ce(target.movedim(0, 1), self._logits(x)).sum(1)

    def epoch_end(self, epoch: int, sweep: Sweep) -> None:
        """Fill the banks and select by equation (1)."""
        self.bank.copy_(sweep(lambda x: self._logits(x).movedim(1, 2)).log_softmax(-1))
        top, label = self.bank.max(-1, keepdim=True)
        self.labels.copy_(torch.cat([self.labels[..., 1:], label], -1))
        self.maxima.copy_(torch.cat([self.maxima[..., 1:], top.exp()], -1))
        steady = (self.labels == label).all(-1) & (self.maxima.mean(-1) > self.confidence)
        member = self.problem.training_mask.unsqueeze(-1)
        selected = (steady & self.problem.sets.gather(2, label.squeeze(-1)) & member).flip(2)  # (1), for the other
        self.pool.copy_(torch.where(selected, sweep.noise().unsqueeze(-1), 2.0).argsort(1))
        self.count.copy_(selected.sum(1))
        self.fraction.copy_((self.count.to(self.fraction) / member.sum(1)).mean(1))

    def predict(self, x: Tensor) -> Tensor:
        """Return the mean of both softmaxes."""
        return self._logits(x).softmax(-1).mean(1)
