"""Balanced PRODEN: label weights that do not count frequent classes twice. The classifier's default method.

PRODEN (J. Lv et al., ICML 2020) trains on label weights q, which start uniform on the candidates, and re-estimates them
by the network's probabilities. Here they are also divided by a power τ of the class frequencies:

    (1)  CE(q_i, p_i)                                     the loss of a minibatch
    (2)  q_i ← norm_{S_i}(p_i / π^τ)                      after it, from the same training-mode pass
    (3)  π ← mean of q_i over the run's training rows     after every epoch, and before the first one

Why: by Bayes' rule, P(y = j | x, S) ∝ P(y = j | x) · P(S | y = j, x). PRODEN takes the second factor to be the same for
all candidates j. It is not if candidates are all that is in one picture, scene or recording: frequent classes are then
also frequent wrong candidates. Such a set is about as likely to be met whichever of its candidates is true, so
P(S | y = j) ∝ 1 / π_j, which is τ = 1. If each wrong class is a candidate with the same probability, τ = 0 is right.
The default τ = 0.5 lies between the two: docs/methods/balanced.md has the measurements.

Subtracting log-frequencies from logits is known from classification with rare classes (A. K. Menon et al., *Long-Tail
Learning via Logit Adjustment*, ICLR 2021) and from partial labels with rare classes (F. Hong et al., *Long-Tailed
Partial Label Learning via Dynamic Rebalancing*, ICLR 2023); there it makes rare classes more likely in
predictions. Here it concerns the label weights only: predictions are the network's probabilities.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from candidly.checks import arguments
from candidly.engine import Batch, BuildNet, OneNetwork, Problem, Sweep, masked_softmax, soft_ce


@dataclass
class Balanced(OneNetwork):
    """PRODEN with label weights divided by a power of the class frequencies.

    Parameters
    ----------
    tau : float
        The power τ, from 0 to 1; with 0 the method is PRODEN.

    Examples
    --------
    >>> Balanced(tau=1.0)
    Balanced(tau=1.0)
    """

    tau: float = 0.5

    def __post_init__(self) -> None:
        arguments.settings(self, tau={"least": 0, "most": 1})

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Start with the problem's initial weights: equal on the candidates by default."""
        self.net = build_net()
        self.q = problem.initial_weights  # (R, N, C)
        trained = problem.training_mask  # (R, N)
        self.q.mul_(trained[..., None])  # rows that do not train have no weight in (3)
        self.group = problem.group
        self.rows = self.group.total(trained.sum(1))[:, None, None]  # (R, 1, 1)
        self.adjustment = torch.zeros_like(self.q[:, :1])  # τ log π, (R, 1, C)
        if not problem.X.is_meta:  # as it is while a saved model is loaded, which does not need it
            self._adjust()

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Equations (1) and (2)."""
        z = self.net(batch.x)
        loss = soft_ce(batch.take(self.q), z)  # (1)
        z = z.detach()
        kept = batch.candidates(z.softmax(-1))
        batch.put(self.q, masked_softmax(z - self.adjustment, kept))  # (2)
        return loss

    def epoch_end(self, epoch: int, sweep: Sweep) -> None:
        """Equation (3)."""
        self._adjust()

    def _adjust(self) -> None:
        """Equation (3); a class counts as at least half a row, so that logarithms are finite."""
        pi = self.group.total(self.q.sum(1, keepdim=True)).clamp_min(0.5) / self.rows
        self.adjustment.copy_(self.tau * pi.log())
