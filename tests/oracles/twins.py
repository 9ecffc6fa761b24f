"""Slow literal twins of the methods and of the conformal cleaners, one run at a time.

They are textbook torch modules under torch's own Adam and OneCycleLR; whatever concerns labels is computed row by row
and label by label in Python, in the notation of the papers: z logits, p probabilities, q label weights, S candidate
sets. With the library they share the data only: initial weights, the order of rows and the uniforms of each step.
"""

import copy
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import NormalDist, fmean
from typing import Any

import torch
from torch import Tensor, nn

from candidly.engine.problem import Problem, stream
from candidly.methods import Method

Rows = list[int]
Weights = list[float]
Set = frozenset[int]


@dataclass
class Run:
    """One run's share of a problem: features, candidate sets, training rows, seed; and the recipe's two numbers."""

    X: Tensor
    S: list[Set]
    rows: Rows
    seed: int
    classes: int
    epochs: int
    batch_size: int

    @classmethod
    def of(cls, problem: Problem, index: int, epochs: int, batch_size: int) -> "Run":
        S = [frozenset(j for j, inside in enumerate(row) if inside) for row in problem.sets[index].tolist()]
        rows, seed = problem.rows[index].tolist(), problem.seeds[index]
        return cls(problem.X, S, rows, seed, problem.num_classes, epochs, batch_size)

    @property
    def steps(self) -> int:
        return math.ceil(len(self.rows) / self.batch_size)

    def batches(self, epoch: int, noise: int) -> Iterator[tuple[Rows, Tensor]]:
        """Rows and uniforms of each step: a permutation of the run's rows, then its own first rows again."""
        order = torch.randperm(len(self.rows), generator=stream(self.seed, "order", epoch)).tolist()
        u = torch.zeros(self.steps, self.batch_size, noise, dtype=torch.float64)
        if noise:
            u.uniform_(generator=stream(self.seed, "noise", epoch))
        for step in range(self.steps):
            first = step * self.batch_size
            positions = range(first, first + self.batch_size)
            yield [self.rows[order[position % len(order)]] for position in positions], u[step]


# Networks


def textbook(stacked: nn.Module, run: int) -> nn.Sequential:
    """Copy one run of a stacked d-300-300-300-C or d-300-300-300-128-C perceptron, or of a decoder."""
    layers: list[nn.Module] = []
    if hasattr(stacked, "first"):
        return nn.Sequential(_linear(stacked.first, run), nn.ReLU(), _linear(stacked.second, run))
    for linear, norm in zip(stacked.hidden, stacked.norms, strict=True):
        layers += [_linear(linear, run), nn.ReLU(), _batch_norm(norm, run)]
    if hasattr(stacked.project, "weight"):
        layers.append(_linear(stacked.project, run))
    return nn.Sequential(*layers, _linear(stacked.head, run))


def networks(method: Method, run: int) -> dict[str, nn.Sequential]:
    """Copy one run's networks; CroSel's two, which are stacked like runs, are first and second."""
    nets = method.networks()
    if "nets" in nets:
        return {name: textbook(nets["nets"], 2 * run + index) for index, name in enumerate(("first", "second"))}
    return {name: textbook(net, run) for name, net in nets.items()}


def _linear(stacked: nn.Module, run: int) -> nn.Linear:
    inputs, outputs = stacked.weight[run].shape
    layer = nn.Linear(inputs, outputs, dtype=torch.float64)
    layer.weight.data.copy_(stacked.weight[run].T)
    layer.bias.data.copy_(stacked.bias[run, 0])
    return layer


def _batch_norm(stacked: nn.Module, run: int) -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(stacked.weight.shape[-1], dtype=torch.float64)
    layer.weight.data.copy_(stacked.weight[run, 0])
    layer.bias.data.copy_(stacked.bias[run, 0])
    layer.running_mean.copy_(stacked.running_mean[run, 0])
    layer.running_var.copy_(stacked.running_variance[run, 0])
    return layer


# Rows and labels


def softmax(z: Sequence[float], S: Collection[int] | None = None) -> Weights:
    """Compute norm_S(softmax(z)), from the logits; S is everything when left out."""
    inside = range(len(z)) if S is None else S
    top = max(z[j] for j in inside)
    total = sum(math.exp(z[k] - top) for k in inside)
    return [math.exp(z[j] - top) / total if j in inside else 0.0 for j in range(len(z))]


def log_softmax(z: Tensor) -> list[Tensor]:
    """Compute the log-probabilities of one row, label by label, with gradient."""
    top = z.max().item()
    log_total = top + sum((z_j - top).exp() for z_j in z).log()
    return [z_j - log_total for z_j in z]


def cross_entropy(q: Sequence[Weights], z: Tensor) -> Tensor:
    """CE(q, p) = −Σ_j q_j log p_j, averaged over the batch."""
    total = torch.zeros((), dtype=torch.float64)
    for q_i, z_i in zip(q, z, strict=True):
        for q_ij, log_p_ij in zip(q_i, log_softmax(z_i), strict=True):
            total = total - q_ij * log_p_ij
    return total / len(q)


def candidate_loss(S: Sequence[Set], z: Tensor) -> Tensor:
    """−log Σ_{j∈S} p_j, averaged over the batch."""
    total = torch.zeros((), dtype=torch.float64)
    for S_i, z_i in zip(S, z, strict=True):
        log_p = log_softmax(z_i)
        total = total - sum(log_p[j].exp() for j in S_i).log()
    return total / len(S)


def uniform(S: Set, classes: int) -> Weights:
    return [1 / len(S) if j in S else 0.0 for j in range(classes)]


def off_candidate_mass(p: Sequence[Weights], S: Sequence[Set]) -> float:
    """Mean over rows of Σ_{j∉S} p_j."""
    return fmean(sum(p_ij for j, p_ij in enumerate(p_i) if j not in S_i) for p_i, S_i in zip(p, S, strict=True))


# Cleaners

Predict = Callable[[Rows], list[Weights]]


class NoCleaning:
    """What every cleaner must offer; this one changes nothing."""

    def __init__(self) -> None:
        self.levels: list[float] = []
        self.cleaning = False

    def setup(self, run: Run) -> Rows:
        """Return the rows to train on."""
        self.run = run
        return run.rows

    def begin(self, epoch: int, predict: Predict) -> None:
        """Before the epoch's updates."""

    def keep(self, rows: Rows, p: list[Weights], within: list[Set]) -> list[Set]:
        """Return the candidates of a batch given its probabilities."""
        return within

    def end(self, epoch: int, predict: Predict) -> None:
        """After the epoch's updates."""


class Conformal(NoCleaning):
    """What the conformal cleaners share: a split and the best candidate's score."""

    def __init__(self, warmup: int):
        super().__init__()
        self.warmup = warmup

    def draw(self, run: Run) -> tuple[Rows, Rows]:
        """Draw a fifth of the rows, but at least 100, though never more than half; return them and the others."""
        n = len(run.rows)
        m = min(max(100, int(0.2 * n)), n // 2)
        order = torch.randperm(n, generator=stream(run.seed, "calibration")).tolist()
        return sorted(run.rows[i] for i in order[:m]), sorted(run.rows[i] for i in order[m:])

    def setup(self, run: Run) -> Rows:
        self.run = run
        self.calibration, _ = self.draw(run)
        return run.rows

    def begin(self, epoch: int, predict: Predict) -> None:
        p = predict(self.calibration)
        S = self.run.S
        self.scores = sorted(max(p_v[j] for j in S[v]) for v, p_v in zip(self.calibration, p, strict=True))
        self.cleaning = epoch >= self.warmup

    def threshold(self, level: float) -> float:
        """t = sup{t : F̂(t) ≤ α}, the (⌊α m⌋+1)-th smallest score, 1 if there is none."""
        rank = math.floor(level * len(self.scores)) + 1
        return self.scores[rank - 1] if rank <= len(self.scores) else 1.0


def intersect(within: Set, conforming: Set) -> Set:
    """Where S ∩ C is not empty, S ∩ C; otherwise S."""
    return within & conforming or within


class Published(Conformal):
    """The published experiments' rule, with or without its correction."""

    def __init__(self, warmup: int, correction: bool = True):
        super().__init__(warmup)
        self.correction = correction

    def setup(self, run: Run) -> Rows:
        self.run = run
        drawn, others = self.draw(run)
        single = [i for i in run.rows if len(run.S[i]) == 1]
        self.calibration = single if len(single) >= len(drawn) else drawn
        return run.rows if len(run.rows) / run.classes < 1000 else others

    def begin(self, epoch: int, predict: Predict) -> None:
        super().begin(epoch, predict)
        self.epsilon = 0.5 ** (epoch - self.warmup + 1) if self.correction else 0.0
        self.level = -1.0

    def keep(self, rows: Rows, p: list[Weights], within: list[Set]) -> list[Set]:
        if not self.cleaning:
            return within
        beta = off_candidate_mass(p, [self.run.S[i] for i in rows]) if self.correction else 0.0
        self.level = 0.05 + beta
        kept = []
        for p_i, S_i in zip(p, within, strict=True):
            values = [self.p_value(p_ij) for p_ij in p_i]
            kept.append(intersect(S_i, frozenset(j for j, value in enumerate(values) if value > self.level)))
        return kept

    def p_value(self, p: float) -> float:
        """(1 + #{v : 1 − s_v ≥ 1 − (1−ε) p})/(n_v + 1).

        Scores are in evaluation mode and p in training mode, so that no two are equal and the literal comparison is
        as good as s_v ≤ (1−ε) p, which does not round at 1.
        """
        at_least = sum(1 - score >= 1 - (1 - self.epsilon) * p for score in self.scores)
        return (1 + at_least) / (len(self.scores) + 1)

    def end(self, epoch: int, predict: Predict) -> None:
        self.levels.append(self.level)


class Revocable(Conformal):
    """The library's default: Algorithm 1's sets, but from the original S and the step's own p at every visit.

    The level is the mean over the previous epoch's steps of the mass outside S.
    """

    def begin(self, epoch: int, predict: Predict) -> None:
        super().begin(epoch, predict)
        self.level = fmean(self.masses) if self.cleaning else -1.0
        self.masses: list[float] = []

    def keep(self, rows: Rows, p: list[Weights], within: list[Set]) -> list[Set]:
        self.masses.append(off_candidate_mass(p, [self.run.S[i] for i in rows]))
        if not self.cleaning:
            return within
        t = self.threshold(self.level)
        sets = [frozenset(j for j, p_ij in enumerate(p_i) if p_ij >= t) for p_i in p]
        return [intersect(S_i, C_i) for S_i, C_i in zip(within, sets, strict=True)]

    def end(self, epoch: int, predict: Predict) -> None:
        self.levels.append(self.level)


class Algorithm1(Conformal):
    """UAI's Algorithm 1. Of line 4, the method's own update of q at the row's next visit takes the place."""

    def setup(self, run: Run) -> Rows:
        self.run = run
        self.S = list(run.S)
        self.calibration, self.training = self.draw(run)
        self.level = -1.0
        return self.training

    def keep(self, rows: Rows, p: list[Weights], within: list[Set]) -> list[Set]:
        return [intersect(S_i, self.S[i]) for i, S_i in zip(rows, within, strict=True)]

    def end(self, epoch: int, predict: Predict) -> None:
        self.levels.append(self.level)
        r = epoch + 1
        if r < self.warmup:
            return
        p = predict(self.training)
        self.level = off_candidate_mass(p, [self.S[i] for i in self.training])
        t = self.threshold(self.level)
        for i, p_i in zip(self.training, p, strict=True):
            self.S[i] = intersect(self.S[i], frozenset(j for j, p_ij in enumerate(p_i) if p_ij >= t))


# Methods


@dataclass
class Twin:
    """One run's training. A method says what a step's loss is and what follows."""

    run: Run
    nets: dict[str, nn.Sequential]
    cleaner: NoCleaning = field(default_factory=NoCleaning)
    settings: Mapping[str, Any] = field(default_factory=dict)
    noise: int = 0

    def __post_init__(self) -> None:
        self.run.rows = self.cleaner.setup(self.run)
        self.kept = list(self.run.S)
        self.taken: Counter[str] = Counter()
        self.losses: list[float] = []
        self.setup()

    def setup(self) -> None:
        """Start with uniform weights."""
        self.q = [uniform(S_i, self.run.classes) for S_i in self.run.S]

    def train(self) -> None:
        run = self.run
        parameters = [parameter for net in self.nets.values() for parameter in net.parameters()]
        optimiser = torch.optim.Adam(parameters, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.01, total_steps=run.epochs * run.steps)
        for epoch in range(run.epochs):
            self.cleaner.begin(epoch, self.predict)
            losses = []
            for rows, u in run.batches(epoch, self.noise):
                self.taken["cleaning" if self.cleaner.cleaning else "not cleaning"] += 1
                self.taken[self.phase(epoch)] += 1
                loss = self.step(rows, u, self.phase(epoch))
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                schedule.step()
                with torch.no_grad():
                    self.after_step(rows)
                losses.append(loss.item())
            self.losses.append(fmean(losses))
            self.epoch_end(epoch)
            self.cleaner.end(epoch, self.predict)

    def candidates(self, rows: Rows, p: list[Weights], within: list[Set] | None = None) -> list[Set]:
        kept = self.cleaner.keep(rows, p, [self.run.S[i] for i in rows] if within is None else within)
        for i, kept_i in zip(rows, kept, strict=True):
            self.kept[i] = kept_i
        return kept

    def evaluate(self, net: nn.Sequential, rows: Rows) -> Tensor:
        """Outputs in evaluation mode."""
        net.eval()
        with torch.no_grad():
            z = net(self.run.X[rows])
        net.train()
        return z

    def predict(self, rows: Rows) -> list[Weights]:
        return [softmax(z_i) for z_i in self.evaluate(self.nets["net"], rows).tolist()]

    def phase(self, epoch: int) -> str:
        return "main"

    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        raise NotImplementedError

    def after_step(self, rows: Rows) -> None: ...

    def epoch_end(self, epoch: int) -> None: ...


class Proden(Twin):
    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        z = self.nets["net"](self.run.X[rows])
        loss = cross_entropy([self.q[i] for i in rows], z)
        self.update(rows, z.tolist())
        return loss

    def update(self, rows: Rows, z: list[list[float]]) -> None:
        """q_i ← norm_{S_i}(p_i)."""
        kept = self.candidates(rows, [softmax(z_i) for z_i in z])
        for i, z_i, kept_i in zip(rows, z, kept, strict=True):
            self.q[i] = softmax(z_i, kept_i)


class Rc(Twin):
    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        return cross_entropy([self.q[i] for i in rows], self.nets["net"](self.run.X[rows]))

    def after_step(self, rows: Rows) -> None:
        z = self.nets["net"](self.run.X[rows]).tolist()
        kept = self.candidates(rows, [softmax(z_i) for z_i in z])
        for i, z_i, kept_i in zip(rows, z, kept, strict=True):
            self.q[i] = softmax(z_i, kept_i)


class Cc(Twin):
    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        z = self.nets["net"](self.run.X[rows])
        return candidate_loss(self.candidates(rows, [softmax(z_i) for z_i in z.tolist()]), z)


class Cavl(Twin):
    """The official variant: the target is stored from a second pass. Rows that wrap round see it within the epoch."""

    def phase(self, epoch: int) -> str:
        return "uniform" if epoch == 0 else "main"

    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        return cross_entropy([self.q[i] for i in rows], self.nets["net"](self.run.X[rows]))

    def after_step(self, rows: Rows) -> None:
        z = self.nets["net"](self.run.X[rows]).tolist()
        kept = self.candidates(rows, [softmax(z_i) for z_i in z])
        for i, z_i, kept_i in zip(rows, z, kept, strict=True):
            value = {j: z_i[j] * abs(1 - z_i[j]) for j in kept_i}
            best = max(value, key=lambda j: value[j])
            self.q[i] = [1.0 if j == best else 0.0 for j in range(self.run.classes)]


class Pop(Twin):
    def setup(self) -> None:
        super().setup()
        self.support = list(self.run.S)
        self.theta = self.settings["theta"]
        self.ring: deque[list[Weights]] = deque(maxlen=self.settings["every"])
        self.removed: list[int] = []

    def phase(self, epoch: int) -> str:
        return "purged" if any(self.removed) else "before the purge"

    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        z = self.nets["net"](self.run.X[rows])
        loss = cross_entropy([self.q[i] for i in rows], z)
        kept = self.candidates(rows, [softmax(z_i) for z_i in z.tolist()], [self.support[i] for i in rows])
        for i, z_i, kept_i in zip(rows, z.tolist(), kept, strict=True):
            self.q[i] = softmax(z_i, kept_i)
        return loss

    def epoch_end(self, epoch: int) -> None:
        self.ring.append(list(self.q))
        if epoch < self.settings["start"] or epoch % self.settings["every"] != 0:
            return
        removed = 0
        for i in self.run.rows:
            f = [fmean(q[i][j] for q in self.ring) for j in range(self.run.classes)]
            f = [f_j / sum(f) for f_j in f]
            for j in self.support[i]:
                if f[j] / max(f) < self.theta:
                    self.support[i] = self.support[i] - {j}
                    removed += 1
            total = sum(f[j] for j in self.support[i])
            self.q[i] = [f[j] / total if j in self.support[i] else 0.0 for j in range(self.run.classes)]
        self.removed.append(removed)
        if removed < 1e-4 * len(self.run.rows) * self.run.classes and self.theta < self.settings["theta_end"]:
            self.theta += self.settings["step_size"]


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


class Crosel(Twin):
    """Nets: first and second."""

    def setup(self) -> None:
        self.banks: dict[str, deque[list[Weights]]] = {name: deque(maxlen=3) for name in self.nets}
        self.selected: dict[str, Rows] = {name: [] for name in self.nets}
        self.position = count()

    def phase(self, epoch: int) -> str:
        if epoch < self.settings["warmup"]:
            return "warm-up"
        return "selected" if all(self.selected.values()) else "nothing selected"

    def step(self, rows: Rows, u: Tensor, phase: str) -> Tensor:
        x = self.run.X[rows]
        z = {name: net(x) for name, net in self.nets.items()}
        p = [[softmax(z_i) for z_i in z[name].tolist()] for name in self.nets]
        mean = [[(p1 + p2) / 2 for p1, p2 in zip(*pair, strict=True)] for pair in zip(*p, strict=True)]
        kept = self.candidates(rows, mean)
        if phase == "warm-up":
            return sum(candidate_loss(kept, z[name]) for name in self.nets)
        positions = [next(self.position) for _ in rows]
        r = fmean(len(chosen) / len(self.run.rows) for chosen in self.selected.values())
        loss = torch.zeros((), dtype=torch.float64)
        for name, other in (("first", "second"), ("second", "first")):
            bank, chosen = self.banks[other][-1], self.selected[other]
            targets = []
            for i, kept_i in zip(rows, kept, strict=True):
                total = sum(bank[i][j] for j in kept_i)
                targets.append([bank[i][j] / total if j in kept_i else 0.0 for j in range(self.run.classes)])
            loss = loss + self.settings["lambda_cr"] * (1 - r) * cross_entropy(targets, z[name])
            if chosen:
                batch = [chosen[position % len(chosen)] for position in positions]
                labels = [argmax(bank[i]) for i in batch]
                one_hot = [[1.0 if j == label else 0.0 for j in range(self.run.classes)] for label in labels]
                loss = loss + cross_entropy(one_hot, self.nets[name](self.run.X[batch]))
            else:  # the batch of all rows passes again, for batch normalisation's running statistics alone
                self.nets[name](x)
        return loss

    def epoch_end(self, epoch: int) -> None:
        everything = list(range(len(self.run.X)))
        order = torch.rand(len(everything), generator=stream(self.run.seed, "sweep", epoch)).tolist()
        for name, net in self.nets.items():
            bank = self.banks[name]
            bank.append([softmax(z_i) for z_i in self.evaluate(net, everything).tolist()])
            chosen = []
            for i in self.run.rows:
                labels = {argmax(p[i]) for p in bank}
                sure = fmean(max(p[i]) for p in bank) > self.settings["confidence"]
                if len(bank) == 3 and len(labels) == 1 and labels <= self.run.S[i] and sure:
                    chosen.append(i)
            self.selected[name] = sorted(chosen, key=lambda i: order[i])

    def predict(self, rows: Rows) -> list[Weights]:
        first, second = (self.evaluate(self.nets[name], rows).tolist() for name in ("first", "second"))
        pairs = zip(map(softmax, first), map(softmax, second), strict=True)
        return [[(p1 + p2) / 2 for p1, p2 in zip(*pair, strict=True)] for pair in pairs]


def argmax(p: Weights) -> int:
    return max(range(len(p)), key=lambda j: p[j])


TWINS: dict[str, type[Twin]] = {
    "proden": Proden,
    "rc": Rc,
    "cc": Cc,
    "cavl": Cavl,
    "pop": Pop,
    "valen": Valen,
    "crosel": Crosel,
}
