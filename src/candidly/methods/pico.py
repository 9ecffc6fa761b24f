"""PiCO: H. Wang, R. Xiao, Y. Li, L. Feng, et al., *Contrastive Label Disambiguation for PLL*, ICLR 2022.

A classifier (probabilities p) has an embedding of unit length beside its logits: u of an image's weak view. A second
network, the momentum encoder, follows the classifier slowly, θ' ← m'θ' + (1 − m')θ; its embedding of the strong view is
k. A queue holds the latest embeddings k. The predicted candidate of a row is ŷ = argmax_{j∈S} p_j. Every class has a
prototype μ_c. A minibatch takes a step on

    (1)  CE(q, p) + w · L_con
    (2)  L_con = −mean over positives a of log(exp(u·a/τ) / Σ_{b≠u} exp(u·b/τ))

where a and b are the minibatch's embeddings u and k and the queue, and positives have the same predicted candidate. In
the first epoch the only positive is the row's own k, and b runs over it and the queue. After the first epoch, q is
updated before (1) is computed, and the prototypes are always updated, row by row:

    (3)  q ← φq + (1 − φ)·onehot(argmax_{j∈S} μ_j·u),   φ falls linearly from 0.95 to 0.8
    (4)  μ_ŷ ← m·μ_ŷ + (1 − m)·u, then all prototypes are normalised

Rows that are not images have one view. Then u and k are embeddings of the same row, and only the two networks differ:
what is left is the contrast between rows, and the prototypes.

Deviations: the embedding is one linear layer on the network's last hidden layer (the authors have two layers); for
net="mlp" the logits are computed from it. Views are those of `candidly.engine.nets.augment`. While the queue is not
full, its empty places are left out. Among a cleaner's candidates K the classes ŷ and those of (3) are chosen; q
itself keeps its weight on the other candidates.
"""

import copy
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from candidly.checks import arguments
from candidly.engine import Batch, BuildNet, OneNetwork, Problem, Sweep, soft_ce
from candidly.engine.memory import require_tensor
from candidly.engine.nets.resnet import FEATURES, Resnet9

PHI_FIRST, PHI_LAST = 0.95, 0.8
"""φ in (3) at the start and at the end of the training."""


def _one_hot(label: Tensor, like: Tensor) -> Tensor:
    """Return one-hot vectors (..., C) of labels; torch's function reads the labels back from the device."""
    return (label.unsqueeze(-1) == torch.arange(like.shape[-1], device=like.device)).to(like.dtype)


@dataclass
class Pico(OneNetwork):
    """Contrastive label disambiguation (PiCO).

    Parameters
    ----------
    weight : float
        Weight w of the contrastive loss in (1).
    temperature : float
        τ in (2).
    queue : int
        Number of embeddings in the queue.
    momentum : float
        m' of the momentum encoder.
    prototype_momentum : float
        m in (4).

    Examples
    --------
    >>> Pico(queue=1024).temperature
    0.07
    """

    weight: float = 0.5
    temperature: float = 0.07
    queue: int = 8192
    momentum: float = 0.999
    prototype_momentum: float = 0.99

    views = ("weak", "strong")

    def __post_init__(self) -> None:
        part = {"least": 0, "most": 1}
        arguments.settings(
            self,
            weight={"least": 0},
            temperature={"above": 0},
            queue={"least": 1},
            momentum=part,
            prototype_momentum=part,
        )

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Build both networks, an empty queue and prototypes of zeros."""
        problem.refuse_shards("PiCO compares every row with a queue of others")
        runs, new = problem.runs, problem.new_zeros
        self.net = build_net(features=True)
        for part in self.net.modules():
            if isinstance(part, Resnet9):
                part.project.requires_grad_(True)  # other methods keep it fixed
        self.encoder = copy.deepcopy(self.net)
        self.q = problem.initial_weights  # (R, N, C)
        width = self._width(problem)
        require_tensor((runs, self.queue, width), self.q.dtype, problem.X.device)
        self.prototypes = new(runs, problem.num_classes, width)  # (R, C, features)
        self.queued = new(runs, self.queue, width)  # (R, Q, features): embeddings k
        self.labels = new(runs, self.queue, dtype=torch.int64)  # (R, Q): their predicted candidates
        self.labels.fill_(-1)  # empty places
        self.cursor = new(1, dtype=torch.int64)  # (1,): where the next embeddings are written in the queue
        self.phi = new(1).fill_(PHI_FIRST)  # (1,): φ

    def _width(self, problem: Problem) -> int:
        """Return the number of features of the network."""
        if problem.X.is_meta:  # a saved model is being loaded, without this state
            return FEATURES
        row = problem.X[:1].to(problem.dtype)
        self.net.eval()
        with torch.no_grad():
            features = self.net.features(row.expand(problem.runs, *row.shape))  # type: ignore[operator]
        self.net.train()
        return int(features.shape[-1])

    def phase(self, epoch: int) -> Hashable:
        """Return "first" for the first epoch, then "main"."""
        return "main" if epoch else "first"

    def trains(self, phase: Hashable) -> Sequence[nn.Module]:
        """Train the classifier; the momentum encoder follows it."""
        return [self.net]

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Equations (1) to (4)."""
        views = batch.views()
        z, query = self._both(self.net, views[0])
        with torch.no_grad():
            _, key = self._both(self.encoder, views[-1])
        u = query.detach()
        kept = batch.candidates(z.detach().softmax(-1))
        label = torch.where(kept, z.detach(), -torch.inf).argmax(-1)  # (R, B)
        q = batch.take(self.q)
        if phase == "main":
            nearest = torch.where(kept, u @ self.prototypes.mT, -torch.inf).argmax(-1)
            q = torch.lerp(_one_hot(nearest, q), q, self.phi)  # (3)
            batch.put(self.q, q)
            contrast = self._contrast(query, key, label)
        else:
            contrast = self._contrast_alone(query, key)
        self._move_prototypes(u, label)
        self._enqueue(key, label)
        return soft_ce(q, z) + self.weight * contrast  # (1)

    def _both(self, net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and embeddings of unit length."""
        z, features = net.both(x)  # type: ignore[operator]
        return z, F.normalize(features, dim=-1)

    def _contrast(self, query: Tensor, key: Tensor, label: Tensor) -> Tensor:
        """Equation (2), averaged over the rows.

        The mean log-probability of the positives is their mean u·a/τ minus one logarithm. The former needs only the sum
        of each class's embeddings, so that the large matrix of similarities is read once. Only the embeddings u pass on
        a gradient.
        """
        fixed = torch.cat([key, self.queued], 1)  # a copy: the queue changes before the gradient is computed
        labels = torch.cat([label, self.labels], 1)  # (R, B + Q)
        scaled = query / self.temperature
        rows = scaled @ query.mT  # (R, B, B)
        rows.diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)  # a row and itself
        empty = scaled.new_zeros(labels.shape).masked_fill(labels < 0, -torch.inf)
        similar = torch.cat([rows, torch.baddbmm(empty.unsqueeze(1), scaled, fixed.mT)], -1)  # (R, B, 2B + Q)
        own, classes = _one_hot(label, self.q), _one_hot(labels, self.q)  # (R, B, C), (R, B + Q, C)
        sums = own.mT @ query + classes.mT @ fixed  # (R, C, features)
        counts = own.sum(1) + classes.sum(1)  # (R, C)
        positives = own @ sums - query  # (R, B, features): their sum, without the row itself
        number = own @ counts.unsqueeze(-1) - 1  # (R, B, 1)
        return (similar.logsumexp(-1) - (scaled * positives / number).sum(-1)).mean(-1)

    def _contrast_alone(self, query: Tensor, key: Tensor) -> Tensor:
        """Equation (2) in the first epoch."""
        own = (query * key).sum(-1, keepdim=True)
        against = (query @ self.queued.clone().mT).masked_fill((self.labels < 0).unsqueeze(1), -torch.inf)
        return -(torch.cat([own, against], -1) / self.temperature).log_softmax(-1)[..., 0].mean(-1)

    def _move_prototypes(self, u: Tensor, label: Tensor) -> None:
        """Equation (4) for all rows of the minibatch, one after the other."""
        m = self.prototype_momentum
        chosen = _one_hot(label, self.q)  # (R, B, C)
        total = chosen.sum(1)
        later = total.unsqueeze(1) - chosen.cumsum(1)  # of each row's class, how many follow it
        moved = self.prototypes * m ** total.unsqueeze(-1) + (chosen * (1 - m) * m**later).mT @ u
        self.prototypes.copy_(F.normalize(moved, dim=-1))

    def _enqueue(self, key: Tensor, label: Tensor) -> None:
        """Write the embeddings over the oldest ones; if they are more than the queue holds, the last of them."""
        number = min(key.shape[1], self.queue)
        places = (self.cursor + torch.arange(number, device=key.device)) % self.queue
        self.queued.index_copy_(1, places, key[:, -number:])
        self.labels.index_copy_(1, places, label[:, -number:])
        self.cursor += number

    def after_step(self, batch: Batch, phase: Hashable) -> None:
        """Let the momentum encoder follow."""
        slow, fast = (tuple(net.parameters()) for net in (self.encoder, self.net))
        torch._foreach_lerp_(slow, fast, 1 - self.momentum)

    def epoch_end(self, epoch: int, sweep: Sweep) -> None:
        """Lower φ."""
        done = min(1.0, (epoch + 1) / max(1, self.total_epochs - 1))
        self.phi.fill_(PHI_FIRST + (PHI_LAST - PHI_FIRST) * done)
