"""Supervised: plain regression onto the labels, for generating instance-dependent candidate sets.

The loss is the mean squared error between the softmax and the label weights, over rows and classes; the weights are
uniform on the candidates, so they are one-hot if a row's only candidate is its true label.

N. Xu, C. Qiao, X. Geng, M. Zhang, *Instance-Dependent Partial Label Learning*, NeurIPS 2021, generate candidate sets
from such a network; see `candidly.corrupt`.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from candidly.engine import Batch, BuildNet, OneNetwork, Problem, uniform_weights


@dataclass
class Supervised(OneNetwork):
    """Least squares on the softmax; it has no hyper-parameters.

    Examples
    --------
    >>> Supervised()
    Supervised()
    """

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Build the network."""
        self.net = build_net()

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Mean squared error over rows and classes."""
        p = self.net(batch.x).softmax(-1)
        target = uniform_weights(batch.candidates(p.detach()), p.dtype)
        return (p - target).square().mean((-2, -1))
