"""POP: progressive purification.

N. Xu, B. Liu, J. Lv, C. Qiao, X. Geng, *Progressive Purification for Instance-Dependent Partial Label Learning*,
ICML 2023.

PRODEN's inner loop on a support that shrinks. With f the mean of the label weights q after each of the last 5 epochs,
at the end of every 5th epoch from the 20th on:

    (1)  remove j from the support of row i where f_ij / max_k f_ik < θ
    (2)  q_i ← norm over the support of f_i
    (3)  θ ← θ + e_s while θ < e_end, when fewer than 1e-4 · n · C labels were removed

A removed label is never restored. The largest f_ij of a row is never removed, so no row becomes empty.

Deviations: θ starts at 0.001 and grows by 0.001 up to 0.04 (the values of the conformal-cleaning paper); public code
multiplies θ by 1.001 instead, as `growth="factor"` does. The windows of 5 epochs do not overlap, so their sum is stored
instead of the 5 epochs. A candidate that a cleaner removes has weight 0 in f: if it is removed for a whole window, it
is purged for good, even if the cleaner's rule is revocable.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from candidly.checks import arguments
from candidly.engine import Batch, BuildNet, OneNetwork, Problem, Sweep, masked_softmax, soft_ce


@dataclass
class Pop(OneNetwork):
    """Progressive purification (POP).

    Parameters
    ----------
    start : int
        First epoch that may end with a purge.
    every : int
        Epochs between purges, and epochs averaged for one.
    theta : float
        Initial threshold e_0 that a label's relative weight must reach.
    step_size : float
        Growth e_s of the threshold.
    theta_end : float
        Upper bound e_end of the threshold.
    growth : {"sum", "factor"}
        Whether θ grows by `step_size` or by the factor ``1 + step_size``.

    Examples
    --------
    >>> Pop(start=10).every
    5
    """

    start: int = 20
    every: int = 5
    theta: float = 0.001
    step_size: float = 0.001
    theta_end: float = 0.04
    growth: Literal["sum", "factor"] = "sum"

    def __post_init__(self) -> None:
        share = {"least": 0, "most": 1}
        arguments.settings(self, start={"least": 0}, every={"least": 1}, theta=share, step_size=share, theta_end=share)
        highest = self.theta_end + self.step_size if self.growth == "sum" else self.theta_end * (1 + self.step_size)
        if highest > 1:
            raise ValueError(
                f"theta_end is {self.theta_end} and step_size {self.step_size}, so the threshold could exceed 1 and "
                "remove every label; lower one of them"
            )

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Start with the whole support and the problem's initial weights."""
        self.net = build_net()
        self.group = problem.group
        self.support = problem.sets.clone()
        self.q = problem.initial_weights
        self.window = torch.zeros_like(self.q)
        sizes = self.group.total(torch.tensor([len(rows) for rows in problem.rows], device=self.q.device))
        self.few = 1e-4 * sizes.to(self.q.dtype) * problem.num_classes
        self.level = torch.full_like(self.few, self.theta)

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """PRODEN's step within the support."""
        z = self.net(batch.x)
        loss = soft_ce(batch.take(self.q), z)
        z = z.detach()
        kept = batch.candidates(z.softmax(-1), within=batch.take(self.support))
        batch.put(self.q, masked_softmax(z, kept))
        return loss

    def epoch_end(self, epoch: int, sweep: Sweep) -> None:
        """Equations (1) to (3)."""
        self.window += self.q
        if epoch % self.every:
            return
        if epoch >= self.start:
            f = self.window / self.window.sum(-1, keepdim=True)
            relative = f / f.amax(-1, keepdim=True)
            removed = self.support & (relative < self.level[:, None, None])
            self.support &= ~removed  # (1)
            f = f * self.support
            self.q.copy_(f / f.sum(-1, keepdim=True))  # (2)
            larger = self.level + self.step_size if self.growth == "sum" else self.level * (1 + self.step_size)
            grow = (self.group.total(removed.sum((1, 2))) < self.few) & (self.level < self.theta_end)
            self.level.copy_(torch.where(grow, larger, self.level))  # (3)
        self.window.zero_()
