"""Labels from votes and held-out probabilities, and how often each annotator is right.

Annotator w gives row i the label v_iw. With the probabilities p(x_i) of networks that were not trained on row i,

    P(y_i = j | x_i, votes) ∝ p_j(x_i)^(1/T) · Π_w π^w_{j, v_iw}                                                 (1)

over all classes j: a true label without a vote stays possible. π^w is the confusion matrix of annotator w, with rows
of true labels and columns of votes (A. P. Dawid and A. M. Skene, *Maximum likelihood estimation of observer error-rates
using the EM algorithm*, Applied Statistics 28, 1979; with features V. C. Raykar et al., *Learning from crowds*, JMLR
11, 2010). T, the matrices and the strengths of their priors are fitted to the votes by EM, without true labels. With
the posterior q of (1) and the expected counts n^w_jk = Σ_{i: v_iw = k} q_ij, n^w_j = Σ_k n^w_jk, n_jk = Σ_w n^w_jk,
n_j = Σ_k n_jk, every iteration sets

    a     = max(Σ_j n_jj / Σ_j n_j, 1/C)                        the fraction of right votes                      (2)
    π⁰_jk = (n_jk + r·u_jk) / (n_j + r)                         the common matrix, u_jj = a, else (1 − a)/(C − 1)  (3)
    a_w   = (Σ_j n^w_jj + s·a) / (Σ_j n^w_j + s)                the fraction of right votes of annotator w       (4)
    m^w   = π⁰ with the odds of every π⁰_jj multiplied by (a_w/(1 − a_w)) / (a/(1 − a))                          (5)
    π^w_jk = (n^w_jk + t·m^w_jk) / (n^w_j + t)                                                                   (6)
    T     = argmax Σ_i log Σ_j softmax(log p(x_i)/T)_j · Π_w π^w_{j, v_iw}                                       (7)

The first iteration starts from equal annotators, with a halfway between chance and certainty, and with the T of (7) for
them. From then on, T and the strengths move to a better neighbour in their grids.

An annotator with few votes is thus described by how often they are right, and by the errors that all annotators make.
The strengths r, s and t are those for which the counts are most likely if the rows of π⁰, the fractions a_w and the
rows of π^w are drawn from Dirichlet distributions around u, a and m^w (empirical Bayes). If votes have no persons, as
in tables with a column for the first, second and third vote, all have one matrix: π^w = π⁰.

An annotator's accuracy is measured without their own votes: let q' be the posterior of a row without them,
e_jk = π⁰_jk / (1 − π⁰_jj) the common errors, and

    f_i(a) = a · q'_{i, v_iw} + (1 − a) · Σ_{j ≠ v_iw} q'_ij e_{j, v_iw}                                         (8)

The accuracy is the a that maximises Σ_i log f_i(a), and its interval contains all a whose sum is at most 1.92 smaller,
half the 95 % quantile of χ² with one degree of freedom. If q' is certain of every row, the accuracy is the fraction of
right votes; if q' is not, the interval is wider.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from candidly.candidates.vote_tables import VoteTable
from candidly.candidates.votes import Annotator, Confusion

_BLOCK_VALUES = 2**22
_MOST_ITERATIONS = 200
_TOLERANCE = 1e-6  # of the mean log-likelihood of a row
_STRENGTHS = tuple(2.0**k for k in range(14))  # in votes
_POWERS = tuple(2 ** (k / 4) for k in range(-28, 9))  # 1/T
_MIDDLE, _ONE = 4, 28  # where the searches start: a strength of 16 votes, and T = 1
_DROP = 1.9207294103470621  # half the 95 % quantile of the chi-squared distribution with one degree of freedom
_SMALLEST = 1e-12  # probability
_HALVINGS = 40
_MOST_CONFUSIONS = 5


@dataclass(frozen=True, eq=False)
class Posterior:
    """Probabilities of the true labels given votes and held-out probabilities.

    Attributes
    ----------
    p : Tensor, shape (n, C)
        P(y_i = j | x_i, votes), in float32; a row sums to 1.
    temperature : float
        The T of equation (1).
    common : Tensor, shape (C, C)
        The common confusion matrix: rows are true labels, columns are votes.
    annotators : tuple of Annotator
        The annotators, in the order of ``votes.workers``; a single one if the votes are anonymous.
    """

    p: Tensor
    temperature: float
    common: Tensor
    annotators: tuple[Annotator, ...]


def fit_posterior(
    log_p: Tensor, votes: VoteTable, agreement: Sequence[float | None], *, anonymous: bool = False
) -> Posterior:
    """Return the posterior of each row's true label, and the annotators, by EM.

    Parameters
    ----------
    log_p : Tensor, shape (n, C)
        Logarithms of held-out probabilities. A row of equal values says nothing: its votes decide alone.
    votes : VoteTable
        Votes on the n rows, sorted by row and worker.
    agreement : sequence of float or None
        The agreement of each annotator with the others, for `Annotator`.
    anonymous : bool
        Whether workers are not persons, so that all have one confusion matrix.

    Examples
    --------
    >>> import numpy as np
    >>> row, worker = np.repeat(np.arange(40), 3), np.tile(np.arange(3), 40)
    >>> label = np.where(worker == 2, 0, row % 2)  # the third annotator always votes for the first class
    >>> table = VoteTable(range(40), ["ann", "bob", "eve"], ["cat", "dog"], row, worker, label)
    >>> found = fit_posterior(torch.zeros(40, 2), table, [None] * 3)
    >>> found.p.argmax(1).tolist() == [0, 1] * 20
    True
    >>> [(one.name, round(one.accuracy, 2)) for one in found.annotators]
    [('ann', 1.0), ('bob', 1.0), ('eve', 0.5)]
    """
    ballots = _Ballots.of(votes, log_p.shape[0], log_p.shape[1], anonymous)
    model = _Model.start(ballots)
    likelihoods = ballots.expect(log_p, model, range(len(_POWERS)))[1]
    model = replace(model, power=max(likelihoods, key=likelihoods.__getitem__))
    before = -torch.inf
    for _ in range(_MOST_ITERATIONS):
        counts, likelihoods = ballots.expect(log_p, model, _around(model.power, len(_POWERS)))
        best = max(likelihoods, key=likelihoods.__getitem__)
        settled = best == model.power and abs(likelihoods[best] - before) < _TOLERANCE * len(log_p)
        before = likelihoods[best]
        model = _Model.of(counts, ballots, model.strengths, best)
        if settled:
            break
    q = torch.cat([joint.softmax(1).float() for _, _, joint in ballots.blocks(log_p, model)])
    annotators = _describe(log_p, model, ballots, votes, agreement, anonymous)
    return Posterior(q, 1 / _POWERS[model.power], model.common, annotators)


@dataclass(frozen=True, eq=False)
class _Ballots:
    """Votes as tensors.

    Attributes
    ----------
    row, label : Tensor of int, shape (V,)
        The row and label of each vote.
    giver : Tensor of int, shape (V,)
        Whose confusion matrix the vote has: the worker, or 0 for all votes that are anonymous.
    pair : Tensor of int, shape (V,)
        The number of the vote's pair of giver and label; only pairs that occur have a number.
    turn : Tensor of int, shape (V,)
        The number of the vote's pair of row and worker, rising.
    pair_giver, pair_label : Tensor of int, shape (U,)
        Giver and label of each pair.
    bounds : Tensor of int, shape (n + 1,)
        Row i has the votes from ``bounds[i]`` to ``bounds[i + 1]``.
    """

    row: Tensor
    label: Tensor
    giver: Tensor
    pair: Tensor
    turn: Tensor
    pair_giver: Tensor
    pair_label: Tensor
    bounds: Tensor
    givers: int
    classes: int

    @classmethod
    def of(cls, votes: VoteTable, n: int, classes: int, anonymous: bool) -> "_Ballots":
        row, worker, label = (torch.tensor(one).long() for one in (votes.task, votes.worker, votes.label))
        giver = torch.zeros_like(worker) if anonymous else worker
        pairs, pair = (giver * classes + label).unique(return_inverse=True)
        turn = (row * len(votes.workers) + worker).unique_consecutive(return_inverse=True)[1]
        bounds = torch.searchsorted(row, torch.arange(n + 1))
        givers = 1 if anonymous else len(votes.workers)
        pair_giver, pair_label = pairs // classes, pairs % classes
        return cls(row, label, giver, pair, turn, pair_giver, pair_label, bounds, givers, classes)

    def slices(self) -> Iterator[tuple[slice, slice]]:
        """Yield blocks of rows and the votes on them."""
        n = len(self.bounds) - 1
        step = max(_BLOCK_VALUES // self.classes, 1)
        for start in range(0, n, step):
            stop = min(start + step, n)
            yield slice(start, stop), slice(int(self.bounds[start]), int(self.bounds[stop]))

    def evidence(self, rows: slice, cast: slice, log_pi: Tensor) -> Tensor:
        """Return Σ_w log π^w_{j, v_iw} of a block of rows, (rows, C)."""
        found = log_pi.new_zeros(rows.stop - rows.start, self.classes)
        return found.index_add_(0, self.row[cast] - rows.start, log_pi[self.pair[cast]])

    def blocks(self, log_p: Tensor, model: "_Model") -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield blocks of rows, the votes on them, and the logarithm of equation (1), up to a constant per row."""
        for rows, cast in self.slices():
            yield rows, cast, log_p[rows].double() * _POWERS[model.power] + self.evidence(rows, cast, model.log_pi)

    def expect(self, log_p: Tensor, model: "_Model", powers: Iterable[int]) -> tuple[Tensor, dict[int, float]]:
        """Return the expected counts (U, C), and the log-likelihood of (7) by the number of the power 1/T."""
        counts = log_p.new_zeros(len(self.pair_giver), self.classes, dtype=torch.float64)
        likelihoods = dict.fromkeys(powers, 0.0)
        for rows, cast in self.slices():
            evidence = self.evidence(rows, cast, model.log_pi)
            z = log_p[rows].double()
            for power in likelihoods:
                tempered = z * _POWERS[power]
                joint = tempered + evidence
                likelihoods[power] += float((joint.logsumexp(1) - tempered.logsumexp(1)).sum())
                if power == model.power:
                    q = joint.softmax(1)
            counts.index_add_(0, self.pair[cast], q[self.row[cast] - rows.start])
        return counts, likelihoods


@dataclass(frozen=True, eq=False)
class _Model:
    """The parameters of equations (2) to (7).

    Attributes
    ----------
    common : Tensor, shape (C, C)
        π⁰.
    log_pi : Tensor, shape (U, C)
        log π^w_jk of each pair of annotator w and label k, by the true label j.
    counts : Tensor, shape (U, C)
        n^w_jk.
    totals : Tensor, shape (W, C)
        n^w_j.
    strengths : tuple of int
        The numbers of r, s and t in the grid.
    power : int
        The number of 1/T in its grid.
    """

    common: Tensor
    log_pi: Tensor
    counts: Tensor
    totals: Tensor
    strengths: tuple[int, int, int]
    power: int

    @classmethod
    def start(cls, ballots: _Ballots) -> "_Model":
        """Return equal annotators, halfway between chance and certainty."""
        C = ballots.classes
        common = torch.full((C, C), (1 - (1 + 1 / C) / 2) / max(C - 1, 1), dtype=torch.float64)
        common.diagonal().fill_((1 + 1 / C) / 2)
        log_pi = common.T[ballots.pair_label].clamp_min(_SMALLEST).log()
        none = torch.zeros_like(log_pi)
        totals = none.new_zeros(ballots.givers, C)
        return cls(common, log_pi, none, totals, (_MIDDLE, _MIDDLE, _MIDDLE), _ONE)

    @classmethod
    def of(cls, counts: Tensor, ballots: _Ballots, strengths: tuple[int, int, int], power: int) -> "_Model":
        """Fit the matrices to expected counts (U, C); the strengths move to a better neighbour in the grid."""
        giver, label, C = ballots.pair_giver, ballots.pair_label, ballots.classes
        totals = counts.new_zeros(ballots.givers, C).index_add_(0, giver, counts)
        everyone = counts.new_zeros(C, C).index_add_(0, label, counts).T  # n_jk
        chance = min(1 / C, 1 - _SMALLEST)
        accuracy = (everyone.diagonal().sum() / everyone.sum()).clamp(chance, 1 - _SMALLEST)
        prior = ((1 - accuracy) / max(C - 1, 1)).expand(C, C).clone()
        prior.diagonal().fill_(accuracy)
        r = _stronger(everyone, prior, everyone.sum(1), strengths[0])
        common = _shrink(everyone, prior, everyone.sum(1, keepdim=True), r)
        if ballots.givers == 1:
            log_pi = common.T[label].clamp_min(_SMALLEST).log()
            return cls(common, log_pi, counts, totals, (r, *strengths[1:]), power)
        own = counts.gather(1, label[:, None])[:, 0]
        right = counts.new_zeros(ballots.givers).index_add_(0, giver, own)
        both = torch.stack([right, totals.sum(1) - right], 1)
        chances = torch.stack([accuracy, 1 - accuracy]).expand_as(both)
        s = _stronger(both, chances, both.sum(1), strengths[1])
        right_share = _shrink(both, chances, both.sum(1, keepdim=True), s)
        ratio = (right_share[:, 0] / right_share[:, 1]) / (accuracy / (1 - accuracy))
        mean = _with_odds(common, ratio, giver, label)
        t = _stronger(counts, mean, totals, strengths[2])
        pi = _shrink(counts, mean, totals[giver], t)
        return cls(common, pi.clamp_min(_SMALLEST).log(), counts, totals, (r, s, t), power)


def _with_odds(common: Tensor, ratio: Tensor, giver: Tensor, label: Tensor) -> Tensor:
    """Return m^w_jk of equation (5) for pairs of annotator w and label k, by the true label j, (U, C)."""
    right = common.diagonal()
    scaled = ratio[giver][:, None] * right
    total = scaled + 1 - right
    found = common.T[label] / total
    own = label[:, None]
    return found.scatter_(1, own, (scaled / total).gather(1, own))


def _shrink(counts: Tensor, mean: Tensor, totals: Tensor, strength: int) -> Tensor:
    weight = _STRENGTHS[strength]
    return (counts + weight * mean) / (totals + weight)


def _stronger(counts: Tensor, mean: Tensor, totals: Tensor, strength: int) -> int:
    """Return the strength, or its neighbour in the grid, under which counts around their mean are most likely.

    Labels that nobody gave may be left out of `counts`: they do not change the likelihood.
    """
    mean = mean.clamp_min(_SMALLEST)

    def likelihood(number: int) -> float:
        weight = torch.tensor(_STRENGTHS[number], dtype=counts.dtype)
        spread = (weight.lgamma() - (totals + weight).lgamma()).sum()
        prior = weight * mean
        return float(spread + ((counts + prior).lgamma() - prior.lgamma()).sum())

    return max(_around(strength, len(_STRENGTHS)), key=likelihood)


def _around(number: int, end: int) -> range:
    return range(max(number - 1, 0), min(number + 2, end))


def _describe(
    log_p: Tensor,
    model: _Model,
    ballots: _Ballots,
    votes: VoteTable,
    agreement: Sequence[float | None],
    anonymous: bool,
) -> tuple[Annotator, ...]:
    names: Sequence[Any] = [None] if anonymous else votes.workers
    accuracy, low, high = _accuracies(*_leave_out(log_p, model, ballots), ballots.giver, ballots.givers)
    numbers = ballots.giver.bincount(minlength=ballots.givers).tolist()
    confusions = _confusions(model, ballots, votes.classes)
    return tuple(
        Annotator(name, n, a, b, c, same, mistakes)
        for name, n, a, b, c, same, mistakes in zip(
            names,
            numbers,
            accuracy.tolist(),
            low.tolist(),
            high.tolist(),
            [None] if anonymous else agreement,
            confusions,
            strict=True,
        )
    )


def _leave_out(log_p: Tensor, model: _Model, ballots: _Ballots) -> tuple[Tensor, Tensor]:
    """Return what stands beside a and 1 − a in equation (8), for each vote, (V,)."""
    errors = model.common / (1 - model.common.diagonal()).clamp_min(_SMALLEST)[:, None]
    errors.fill_diagonal_(0)
    right, wrong = [], []
    for rows, cast, joint in ballots.blocks(log_p, model):
        own = model.log_pi[ballots.pair[cast]]
        if ballots.givers > 1:  # all labels that the annotator gave this row
            turn = ballots.turn[cast] - ballots.turn[cast][:1]
            own = own.new_zeros(len(turn), ballots.classes).index_add_(0, turn, own)[turn]
        q = (joint[ballots.row[cast] - rows.start] - own).softmax(1)
        label = ballots.label[cast]
        right.append(q.gather(1, label[:, None])[:, 0])
        wrong.append((q * errors.T[label]).sum(1))
    return torch.cat(right), torch.cat(wrong)


def _accuracies(right: Tensor, wrong: Tensor, giver: Tensor, givers: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the accuracy of each annotator and its interval, (W,) each; the logarithm of (8) is concave in a."""
    right, wrong = right.clamp_min(_SMALLEST), wrong.clamp_min(_SMALLEST)

    def total(values: Tensor) -> Tensor:
        return values.new_zeros(givers).index_add_(0, giver, values)

    def likelihood(a: Tensor) -> Tensor:
        return total((wrong + a[giver] * (right - wrong)).log())

    def slope(a: Tensor) -> Tensor:
        return total((right - wrong) / (wrong + a[giver] * (right - wrong)))

    zero, one = right.new_zeros(givers), right.new_ones(givers)
    best = _bisect(lambda a: slope(a) > 0, zero, one)
    least = likelihood(best) - _DROP
    low = _bisect(lambda a: likelihood(a) < least, zero, best)
    high = _bisect(lambda a: likelihood(a) >= least, best, one)
    return best, low, high


def _bisect(below: Any, low: Tensor, high: Tensor) -> Tensor:
    """Return where a condition that holds for small values ceases to hold."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_below = below(middle)
        low, high = middle.where(is_below, low), high.where(is_below, middle)
    return (low + high) / 2


def _confusions(model: _Model, ballots: _Ballots, classes: Sequence[Hashable]) -> list[tuple[Confusion, ...]]:
    """Return the most frequent confusions of each annotator."""
    wrong = model.counts.scatter(1, ballots.pair_label[:, None], 0.0)
    pair, true = (wrong >= 1).nonzero().T
    votes = wrong[pair, true]
    giver = ballots.pair_giver[pair]
    found: list[list[Confusion]] = [[] for _ in range(ballots.givers)]
    for one in votes.argsort(descending=True, stable=True).tolist():
        w, j, k = int(giver[one]), int(true[one]), int(ballots.pair_label[pair[one]])
        if len(found[w]) < _MOST_CONFUSIONS:
            n = float(votes[one])
            found[w].append(Confusion(classes[j], classes[k], n, min(n / float(model.totals[w, j]), 1.0)))
    return [tuple(one) for one in found]
