"""PLCR: D. Wu, D. Wang, M. Zhang, *Revisiting Consistency Regularization for Deep PLL*, ICML 2022.

An image has one weak view (flipped and shifted) and two strong ones (also distorted, recoloured and partly erased).
With p_v the probabilities of view v and p_0 those of the weak view, every minibatch takes a step on

    (1)  −Σ_{j∉S} log(1 − p_0j) + λ · Σ_v KL(q ‖ p_v)
    (2)  q = norm_S(exp(mean_v log p_v)), without gradient

where λ rises linearly from 0 to its maximum during the first half of the training.

Rows that are not images have one view, themselves. What is left is complementary-label learning (the first term) with
label weights in the manner of PRODEN, taken from the same pass and phased in by λ.

Deviations: q belongs to the views of the same step, not to those of the row's previous visit. A candidate that a
cleaner removes counts as one of the labels outside of S; the cleaner sees the probabilities exp(mean_v log p_v),
normalised. The strong views are those of `candidly.engine.nets.augment.strong_view`. All views of a minibatch share
the statistics of batch normalisation.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from candidly.checks import arguments
from candidly.engine import Batch, BuildNet, OneNetwork, Problem, Sweep, masked_softmax


def _log_rest(log_p: Tensor) -> Tensor:
    """Return log(1 − p), exact also where p is close to 1: there it is the sum of the other probabilities."""
    top = log_p.argmax(-1, keepdim=True) == torch.arange(log_p.shape[-1], device=log_p.device)
    others = torch.where(top, -torch.inf, log_p)
    return torch.where(top, others.logsumexp(-1, keepdim=True), torch.log1p(-others.exp()))


@dataclass
class Plcr(OneNetwork):
    """Consistency regularisation over views (PLCR).

    Parameters
    ----------
    weight : float
        Maximum of λ in (1).

    Examples
    --------
    >>> Plcr().views
    ('weak', 'strong', 'strong')
    """

    weight: float = 1.0

    views = ("weak", "strong", "strong")

    def __post_init__(self) -> None:
        arguments.settings(self, weight={"least": 0})

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Build the network; λ starts at 0."""
        self.net = build_net()
        self.ramp = problem.new_zeros(problem.runs)  # (R,): λ

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Equations (1) and (2)."""
        views = batch.views()
        z = self.net(torch.cat(views, 1))
        log_p = z.log_softmax(-1).unflatten(1, (len(views), -1))  # (R, views, B, C)
        mean = log_p.detach().mean(1)
        kept = batch.candidates(mean.softmax(-1))
        q = masked_softmax(mean, kept)  # (2)
        outside = -torch.where(kept, 0.0, _log_rest(log_p[:, 0])).sum(-1).mean(-1)
        entropy = torch.special.entr(q).sum(-1).mean(-1)
        divergence = -(q.unsqueeze(1) * log_p).sum(-1).mean(-1).sum(1) - len(views) * entropy
        return outside + self.ramp * divergence  # (1)

    def epoch_end(self, epoch: int, sweep: Sweep) -> None:
        """Raise λ."""
        self.ramp.fill_(self.weight * min(1.0, 2 * (epoch + 1) / max(1, self.total_epochs)))
