"""RC: the risk-consistent method.

L. Feng, J. Lv, B. Han, M. Xu, G. Niu, X. Geng, B. An, M. Sugiyama, *Provably Consistent Partial-Label Learning*,
NeurIPS 2020, section 3.

The importance weights of the risk-consistent estimator are the label weights q. Every minibatch takes a step on

    (1)  CE(q_i, p_i)

and then re-estimates the weights with the updated network, in another training-mode pass without gradient:

    (2)  q_i ← norm_{S_i}(p_i)

Deviations: none in the method. The network, the optimiser and its schedule are the shared recipe's.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from candidly.engine import Batch, BuildNet, OneNetwork, Problem, masked_softmax, soft_ce


@dataclass
class Rc(OneNetwork):
    """Risk-consistent learning (RC); it has no hyper-parameters.

    Examples
    --------
    >>> Rc()
    Rc()
    """

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Start with the problem's initial weights: equal on the candidates by default."""
        self.net = build_net()
        self.q = problem.initial_weights

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Equation (1)."""
        return soft_ce(batch.take(self.q), self.net(batch.x))

    def after_step(self, batch: Batch, phase: Hashable) -> None:
        """Equation (2)."""
        z = self.net(batch.x)
        batch.put(self.q, masked_softmax(z, batch.candidates(z.softmax(-1))))
