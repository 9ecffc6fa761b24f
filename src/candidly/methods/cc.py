"""CC: the classifier-consistent method.

L. Feng, J. Lv, B. Han, M. Xu, G. Niu, X. Geng, B. An, M. Sugiyama, *Provably Consistent Partial-Label Learning*,
NeurIPS 2020, section 4.

It maximises the probability of the candidate set and has no label weights:

    (1)  −log Σ_{j∈S_i} p_ij  =  logsumexp(z_i) − logsumexp(z_i restricted to S_i)

A cleaner restricts the set inside the loss, given the step's own probabilities without gradient.

Deviations: none in the method. The network, the optimiser and its schedule are the shared recipe's.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from candidly.engine import Batch, BuildNet, OneNetwork, Problem, candidate_nll


@dataclass
class Cc(OneNetwork):
    """Classifier-consistent learning (CC); it has no hyper-parameters.

    Examples
    --------
    >>> Cc()
    Cc()
    """

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Build the network."""
        self.net = build_net()

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Equation (1)."""
        z = self.net(batch.x)
        return candidate_nll(z, batch.candidates(z.detach().softmax(-1)))
