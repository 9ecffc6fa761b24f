"""LWS: H. Wen, J. Cui, H. Hang, J. Liu, Y. Wang, Z. Lin, *Leveraged Weighted Loss for PLL*, ICML 2021.

The logits z are scores of C binary problems, ψ(u) = sigmoid(−u) is their loss, and β weighs the labels that are not
candidates:

    (1)  Σ_{j∈S} w_j ψ(z_j) + β · Σ_{j∉S} w_j ψ(−z_j)
    (2)  w = softmax of z within S, and softmax of z within the other labels, both without gradient

Deviations: the weights (2) come from the pass that (1) is computed in. The authors keep those of the row's previous
visit; the paper's formula has no such delay. A candidate that a cleaner removes counts as one of the other labels. A
row whose candidates are all classes has no second term.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from candidly.checks import arguments
from candidly.engine import Batch, BuildNet, OneNetwork, Problem, masked_softmax


@dataclass
class Lws(OneNetwork):
    """Leveraged weighted loss (LWS).

    Parameters
    ----------
    beta : float
        Weight of the labels that are not candidates; the authors use 1 and 2.

    Examples
    --------
    >>> Lws(beta=1)
    Lws(beta=1)
    """

    beta: float = 2.0

    max_lr = 0.001  # ψ is bounded: with larger steps, classes are lost early and do not come back

    def __post_init__(self) -> None:
        arguments.settings(self, beta={"least": 0})

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Build the network."""
        self.net = build_net()

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Equations (1) and (2)."""
        z = self.net(batch.x)
        fixed = z.detach()
        kept = batch.candidates(fixed.softmax(-1))
        others = ~kept
        leftover = others.any(-1, keepdim=True)
        inside = masked_softmax(fixed, kept)  # (2)
        outside = torch.where(leftover, masked_softmax(fixed, others | ~leftover), 0.0)  # (2)
        loss = inside * torch.sigmoid(-z) + self.beta * outside * torch.sigmoid(z)  # (1)
        return loss.sum(-1).mean(-1)
