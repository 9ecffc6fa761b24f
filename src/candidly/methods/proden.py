"""PRODEN: progressive identification of true labels.

J. Lv, M. Xu, L. Feng, G. Niu, X. Geng, M. Sugiyama, *Progressive Identification of True Labels for Partial-Label
Learning*, ICML 2020.

Label weights q start uniform on the candidates. Every minibatch takes a step on

    (1)  CE(q_i, p_i)

and then re-estimates the weights from the same training-mode pass:

    (2)  q_i ← norm_{S_i}(p_i)

Deviations: none in the method. The network, the optimiser and its schedule are the shared recipe's.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from candidly.engine import Batch, BuildNet, OneNetwork, Problem, masked_softmax, soft_ce


@dataclass
class Proden(OneNetwork):
    """Progressive identification (PRODEN); it has no hyper-parameters.

    Examples
    --------
    >>> Proden()
    Proden()
    """

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Start with the problem's initial weights: equal on the candidates by default."""
        self.net = build_net()
        self.q = problem.initial_weights

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Equations (1) and (2)."""
        z = self.net(batch.x)
        loss = soft_ce(batch.take(self.q), z)  # (1)
        z = z.detach()
        batch.put(self.q, masked_softmax(z, batch.candidates(z.softmax(-1))))  # (2)
        return loss
