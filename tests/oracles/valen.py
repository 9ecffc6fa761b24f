"""Slow literal twin of VALEN."""

import copy
import math
from statistics import NormalDist

import torch
from torch import Tensor

from tests.oracles.labels import cross_entropy, log_softmax, softmax, uniform
from tests.oracles.runs import Rows, Set
from tests.oracles.twin import Twin


class Valen(Twin):
    """Nets: net (f), encoder (g) and decoder. Supports are S, and a cleaner's set K where there is one."""

    def setup(self) -> None:
        self.nets["encoder"] = copy.deepcopy(self.nets["net"])
        self.o = [uniform(S_i, self.run.classes) for S_i in self.run.S]
        self.d = list(self.o)
        self.neighbours: dict[int, set[int]] = {}
        self.noise = self.run.classes * 9

    def phase(self, epoch: int) -> str:
        return "warm-up" if epoch < self.settings["warmup"] else "main"

    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        x, S, C = self.run.X[rows], [self.run.S[i] for i in rows], range(self.run.classes)
        z = self.nets["net"](x)
        kept = self.candidates(rows, [softmax(z_i) for z_i in z.tolist()])
        o, d = [self.o[i] for i in rows], [self.d[i] for i in rows]
        for i, z_i, kept_i in zip(rows, z.tolist(), kept, strict=True):
            self.o[i] = softmax(z_i, kept_i)
        if phase == "warm-up":
            return cross_entropy(o, z)
        a = self.nets["encoder"](x)
        log_t = []
        for a_i, S_i, u_i in zip(a, S, u, strict=True):
            p = [log_p.exp() for log_p in log_softmax(a_i)]
            inside = sum(p[j].item() for j in S_i)  # the denominator, without gradient
            s = [(p[j] if j in S_i else 0 * p[j]) / inside + 0.01 for j in C]
            log_t.append(log_softmax(torch.stack([log_gamma(s[j], u_i[9 * j : 9 * j + 9].tolist()) for j in C])))
        t = [[log_t_ij.exp() for log_t_ij in log_t_i] for log_t_i in log_t]
        alpha = [[(a_ij / 4).exp().clamp(0.01, 30) for a_ij in a_i] for a_i in a]
        l_a = sum(dirichlet_kl(alpha_i) for alpha_i in alpha) / len(rows)
        l_d, l_o = cross_entropy(o, a), cross_entropy(d, z)
        c = self.settings["c"]
        for i, log_t_i, kept_i, o_i in zip(rows, log_t, kept, o, strict=True):
            t_i = softmax([float(value.detach()) for value in log_t_i], kept_i)
            self.d[i] = [c * t_ij + (1 - c) * o_ij for t_ij, o_ij in zip(t_i, o_i, strict=True)]
        weights = [self.settings[name] for name in ("beta", "gamma", "theta")]
        return self.reconstruction(rows, x, S, t) + weights[0] * l_a + weights[1] * l_d + weights[2] * l_o

    def reconstruction(self, rows: Rows, x: Tensor, S: list[Set], t: list[list[Tensor]]) -> Tensor:
        n = len(rows)
        stacked = torch.stack([torch.stack(t_i) for t_i in t])
        l_x = (self.nets["decoder"](stacked) - x).square().mean()
        l_sets = torch.zeros((), dtype=torch.float64)
        for t_i, S_i in zip(t, S, strict=True):
            for j, t_ij in enumerate(t_i):
                right = t_ij.sigmoid() if j in S_i else 1 - t_ij.sigmoid()
                l_sets = l_sets - right.log() / (n * self.run.classes)
        l_graph = torch.zeros((), dtype=torch.float64)
        for i, row in enumerate(rows):
            joined = self.neighbours[row] | {row}
            similar = torch.stack([(stacked[i] @ stacked[j]).sigmoid() for j in range(n)])
            for other, log_affinity in zip(rows, log_softmax(similar), strict=True):
                adjacent = 1 / len(joined) if other in joined else 0.0
                l_graph = l_graph + (log_affinity.exp() - adjacent) ** 2 / n**2
        return self.settings["c_x"] * l_x + 0.01 * l_sets + l_graph

    def epoch_end(self, epoch: int) -> None:
        if epoch != self.settings["warmup"] - 1:
            return
        self.d = list(self.o)
        features = self.evaluate(self.nets["net"][:-1], self.run.rows)
        phi = {i: feature / feature.norm() for i, feature in zip(self.run.rows, features, strict=True)}
        for i in self.run.rows:
            distance = {j: (phi[i] - phi[j]).norm().item() for j in self.run.rows if j != i}
            self.neighbours[i] = set(sorted(distance, key=lambda j: distance[j])[: self.settings["k"]])


def log_gamma(a: Tensor, u: list[float]) -> Tensor:
    """Marsaglia and Tsang: a Gamma(a + 1) sample in up to 4 rounds, then Gamma(a) = Gamma(a + 1) · U^(1/a).

    The gradient is that of the accepted proposal.
    """
    normals, uniforms, boost = u[:4], u[4:8], u[8]
    d = (a + 1) - 1 / 3
    for round_, (normal, accept) in enumerate(zip(normals, uniforms, strict=True)):
        x = NormalDist().inv_cdf(normal)
        v = (1 + x / (9 * d).sqrt()) ** 3
        bound = 0.5 * x**2 + d.item() * (1 - v.item() + math.log(v.item())) if v > 0 else -math.inf
        if math.log(accept) < bound or round_ == 3:
            return (d * v).log() + math.log(boost) / a
    raise AssertionError


def dirichlet_kl(alpha: list[Tensor]) -> Tensor:
    """KL(Dir(α) ‖ Dir(1)) of one row."""
    total = sum(alpha)
    kl = total.lgamma() - math.lgamma(len(alpha))
    for alpha_j in alpha:
        kl = kl - alpha_j.lgamma() + (alpha_j - 1) * (alpha_j.digamma() - total.digamma())
    return kl
