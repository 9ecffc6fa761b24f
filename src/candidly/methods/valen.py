"""VALEN: N. Xu, C. Qiao, X. Geng, M. Zhang, *Instance-Dependent Partial Label Learning*, NeurIPS 2021.

There are a classifier f (logits z, probabilities p, features φ), an encoder g that starts as a copy of f (logits a)
and a decoder. Warm-up epochs of PRODEN on f give weights o. Then d ← o, and each row is joined with its k nearest
neighbours on φ: A_ij = 1/(k+1) for i's neighbours and for i itself. Afterwards every minibatch B takes one step on

    (1)  s = norm_S(softmax a) + 0.01, the normaliser without gradient;   t ~ Dir(s), reparameterised
    (2)  L_rec = c_x·MSE(dec(t), x) + 0.01·BCE(sigmoid t, S) + MSE(rowsoftmax(sigmoid(t tᵀ)), A[B, B])
    (3)  L_a = mean KL(Dir(α) ‖ Dir(1)),   α = clip(exp(a/4), 0.01, 30)
    (4)  L_d = CE(o, softmax a),   L_o = CE(d, p)
    (5)  L_rec + β·L_a + γ·L_d + θ·L_o

and then updates, with K_i the candidates given p (S_i without a cleaner),

    (6)  d ← c·norm_K(t) + (1 − c)·o,   then   o ← norm_K(p)

Deviations. S replaces the supports 1[o>0] and 1[d>0] of the paper, which equal it except for underflow: a cleaner's
decision restricts the new targets and can be revoked at the next visit. Warm-up epochs count within the recipe and use
its schedule. β, γ and c_x default to the paper's values for tabular data. For (β, γ) the paper has (0.1, 5) for
MNIST-like sets and (0.1, 10) for random flips and, with c = 0.2, for CIFAR-10; c_x is 0.01 for images and large tables.
The published conformal experiments set all of them to 1. The graph is on φ for all data; the authors' real-world runs
have it on the raw features. The gradient of t is the path-wise one described in `sampling.log_gamma_sample`.
"""

import copy
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from candidly.checks import arguments
from candidly.engine import Batch, BuildNet, OneNetwork, Problem, Sweep, masked_softmax, soft_ce
from candidly.engine.memory import require_tensor
from candidly.engine.nets import sampling
from candidly.engine.nets.neighbours import nearest

SET_WEIGHT = 0.01
"""Weight of the reconstruction of S in (2)."""

CONCENTRATION_FLOOR = 0.01
"""What (1) adds to the concentrations s; also the lower clip of α in (3)."""

CONCENTRATION_CEILING = 30
"""Upper clip of α in (3)."""


def _concentrations(a: Tensor) -> Tensor:
    """Return α of (3). The exponent is clipped, because the gradient of an exponential that overflows would be nan."""
    return (a / 4).clamp(math.log(CONCENTRATION_FLOOR), math.log(CONCENTRATION_CEILING)).exp()


@dataclass
class Valen(OneNetwork):
    """Variational label enhancement (VALEN).

    Parameters
    ----------
    warmup : int
        Epochs of PRODEN before the graph is built.
    k : int
        Neighbours per row.
    beta : float
        Weight of L_a in (5).
    gamma : float
        Weight of L_d in (5).
    theta : float
        Weight of L_o in (5).
    c : float
        Weight of the sample t in (6).
    c_x : float
        Weight of the reconstruction of x in (2).

    Examples
    --------
    >>> Valen(beta=1, gamma=1).warmup
    10
    """

    warmup: int = 10
    k: int = 3
    beta: float = 0.01
    gamma: float = 20.0
    theta: float = 1.0
    c: float = 1.0
    c_x: float = 1.0

    def __post_init__(self) -> None:
        weight = {"least": 0}
        arguments.settings(
            self,
            warmup={"least": 1},  # the graph needs trained features
            k={"least": 1},
            beta=weight,
            gamma=weight,
            theta=weight,
            c={"least": 0, "most": 1},
            c_x=weight,
        )

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Build f, g and the decoder."""
        problem.refuse_shards("VALEN searches nearest neighbours among all rows")
        self.problem = problem
        self.net = build_net(features=True)
        self.encoder = copy.deepcopy(self.net)
        self.decoder = build_net("decoder", inputs=problem.num_classes, outputs=problem.X[0].numel())
        self.o = problem.initial_weights  # (R, N, C)
        self.d = problem.initial_weights  # (R, N, C)
        shape = (problem.runs, len(problem.X), self.k)
        require_tensor(shape, torch.int64, problem.X.device)
        self.graph = torch.full(shape, -1, device=self.o.device)  # (R, N, k): neighbours, -1 before there are any
        terms = [self.c_x, SET_WEIGHT, 1.0, self.beta, self.gamma, self.theta]
        self.factors = self.o.new_tensor([terms] * problem.runs)  # (R, 6): weights of the terms in (5)
        self.noise = problem.num_classes * sampling.NOISE_PER_GAMMA

    def phase(self, epoch: int) -> Hashable:
        """Warm-up, then main."""
        return "warm-up" if epoch < self.warmup else "main"

    def trains(self, phase: Hashable) -> Sequence[nn.Module]:
        """During the warm-up f alone."""
        return [self.net] if phase == "warm-up" else [self.net, self.encoder, self.decoder]

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Equations (1) to (6)."""
        o = batch.take(self.o)
        z = self.net(batch.x)
        kept = batch.candidates(z.detach().softmax(-1))
        batch.put(self.o, masked_softmax(z.detach(), kept))  # (6), as PRODEN in the warm-up
        if phase == "warm-up":
            return soft_ce(o, z)
        d = batch.take(self.d)
        a = self.encoder(batch.x)
        inside = torch.where(batch.S, a.log_softmax(-1), -torch.inf)
        s = (inside - inside.logsumexp(-1, keepdim=True).detach()).exp() + CONCENTRATION_FLOOR  # (1)
        log_t = sampling.log_dirichlet_sample(s, batch.noise(self.noise))
        rec_x, rec_sets, rec_graph = self._reconstruction(batch, log_t.exp())  # (2)
        l_a = sampling.dirichlet_kl_to_uniform(_concentrations(a)).mean(-1)  # (3)
        l_d = soft_ce(o, a)  # (4)
        l_o = soft_ce(d, z)  # (4)
        batch.put(self.d, o.lerp(masked_softmax(log_t.detach(), kept), self.c))  # (6)
        terms = torch.stack([rec_x, rec_sets, rec_graph, l_a, l_d, l_o], -1)
        return (terms * self.factors).sum(-1)  # (5)

    def _reconstruction(self, batch: Batch, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the terms of equation (2): of the features, the candidate sets and the graph."""
        features = (self.decoder(t) - batch.x.flatten(2)).square().mean((-2, -1))
        sets = F.binary_cross_entropy_with_logits(t, batch.S.to(t.dtype), reduction="none").mean((-2, -1))
        joined = (batch.take(self.graph).unsqueeze(-2) == batch.rows[:, None, :, None]).any(-1)
        adjacency = (joined + torch.eye(t.shape[1], dtype=t.dtype, device=t.device)) / (self.k + 1)  # A[B, B]
        affinity = (t @ t.mT).sigmoid().softmax(-1)
        graph = (affinity - adjacency).square().mean((-2, -1))
        return features, sets, graph

    def epoch_end(self, epoch: int, sweep: Sweep) -> None:
        """After the warm-up, set d and build the graph among each run's training rows."""
        if epoch == self.warmup - 1:
            self.d.copy_(self.o)
            features = sweep(self.net.features)  # type: ignore[arg-type]
            for run, rows in enumerate(self.problem.rows):
                self.graph[run, rows] = rows[nearest(features[run, rows], self.k)]
