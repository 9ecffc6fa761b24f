"""CAVL: class activation values.

F. Zhang, L. Feng, B. Han, T. Liu, G. Niu, T. Qin, M. Sugiyama, *Exploiting Class Activation Value for Partial-Label
Learning*, ICLR 2022.

The class activation value of a logit is

    (1)  v_j = z_j · |1 − z_j|

A row first trains with uniform weights on its candidates. After each step another training-mode pass without gradient
chooses the row's target for its next visit:

    (2)  q_i ← one-hot at argmax_{j∈S_i} v_ij

Deviations. Non-candidates are masked with −inf; multiplying by S, as public code does, picks a non-candidate if all
candidates have negative values. A row that is repeated in an epoch's last batch is visited twice in that epoch and uses
its target one epoch early. The published experiments took the target from the current pass, after one more uniform
epoch, and did not advance their schedule after the first epoch.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from candidly.engine import Batch, BuildNet, OneNetwork, Problem, soft_ce


@dataclass
class Cavl(OneNetwork):
    """Class activation value learning (CAVL); it has no hyper-parameters.

    Examples
    --------
    >>> Cavl()
    Cavl()
    """

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Start with the problem's initial weights, which every row's first visit uses."""
        self.net = build_net()
        self.q = problem.initial_weights

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Train on the stored targets."""
        return soft_ce(batch.take(self.q), self.net(batch.x))

    def after_step(self, batch: Batch, phase: Hashable) -> None:
        """Equations (1) and (2)."""
        z = self.net(batch.x)
        value = z * (1 - z).abs()  # (1)
        kept = batch.candidates(z.softmax(-1))
        target = torch.where(kept, value, -torch.inf).argmax(-1, keepdim=True)
        batch.put(self.q, torch.zeros_like(z).scatter_(-1, target, 1.0))  # (2)
