"""A slow literal twin of `candidly.candidates.annotators`: one loop per index of its equations."""

import math

import numpy as np

STRENGTHS = [2.0**k for k in range(14)]
POWERS = [2 ** (k / 4) for k in range(-28, 9)]


def _softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def _posterior(log_p, votes, pi, power, without=None):
    """Equation (1), for all rows; `without` leaves out an annotator."""
    q = []
    for i, z in enumerate(log_p):
        z = z * power
        for row, w, v in votes:
            if row == i and w != without:
                z = z + np.log(pi[w][:, v])
        q.append(_softmax(z))
    return np.array(q)


def _likelihood(log_p, votes, pi, power):
    """Equation (7)."""
    total = 0.0
    for i, z in enumerate(log_p):
        likely = np.ones(len(z))
        for row, w, v in votes:
            if row == i:
                likely = likely * pi[w][:, v]
        total += math.log((_softmax(z * power) * likely).sum())
    return total


def _dirichlet(counts, means, strength):
    """The likelihood of the rows of counts, around their means."""
    total = 0.0
    for row, mean in zip(counts, means, strict=True):
        total += math.lgamma(strength) - math.lgamma(row.sum() + strength)
        total += sum(math.lgamma(n + strength * m) - math.lgamma(strength * m) for n, m in zip(row, mean, strict=True))
    return total


def _search(number, end, value):
    return max(range(max(number - 1, 0), min(number + 2, end)), key=value)


def _matrices(q, votes, workers, C, strengths, anonymous):
    """Equations (2) to (6)."""
    n = np.zeros((workers, C, C))
    for row, w, v in votes:
        n[w, :, v] += q[row]
    every = n.sum(0)
    a = max(every.trace() / every.sum(), 1 / C)
    u = np.full((C, C), (1 - a) / (C - 1))
    np.fill_diagonal(u, a)
    r = _search(strengths[0], len(STRENGTHS), lambda k: _dirichlet(every, u, STRENGTHS[k]))
    common = (every + STRENGTHS[r] * u) / (every.sum(1, keepdims=True) + STRENGTHS[r])
    if anonymous:
        return common, [common] * workers, (r, *strengths[1:])
    both = np.array([[n[w].trace(), n[w].sum() - n[w].trace()] for w in range(workers)])
    chances = np.tile([a, 1 - a], (workers, 1))
    s = _search(strengths[1], len(STRENGTHS), lambda k: _dirichlet(both, chances, STRENGTHS[k]))
    means = []
    for w in range(workers):
        right = (both[w, 0] + STRENGTHS[s] * a) / (both[w].sum() + STRENGTHS[s])
        ratio = (right / (1 - right)) / (a / (1 - a))
        mean = np.zeros((C, C))
        for j in range(C):
            odds = ratio * common[j, j] / (1 - common[j, j])
            for k in range(C):
                off = common[j, k] / (1 - common[j, j]) / (1 + odds)
                mean[j, k] = odds / (1 + odds) if j == k else off
        means.append(mean)
    t = _search(
        strengths[2], len(STRENGTHS), lambda k: sum(_dirichlet(n[w], means[w], STRENGTHS[k]) for w in range(workers))
    )
    strength = STRENGTHS[t]
    pi = [(n[w] + strength * means[w]) / (n[w].sum(1, keepdims=True) + strength) for w in range(workers)]
    return common, pi, (r, s, t)


def fit(log_p, votes, workers, anonymous=False):
    """Return the posterior, the temperature, the common matrix, and each annotator's accuracy with its interval."""
    n, C = log_p.shape
    start = (1 + 1 / C) / 2
    common = np.full((C, C), (1 - start) / (C - 1))
    np.fill_diagonal(common, start)
    pi, strengths, before = [common] * workers, (4, 4, 4), -math.inf
    power = max(range(len(POWERS)), key=lambda k: _likelihood(log_p, votes, pi, POWERS[k]))
    for _ in range(200):
        q = _posterior(log_p, votes, pi, POWERS[power])
        old = power
        power = _search(power, len(POWERS), lambda k, pi=pi: _likelihood(log_p, votes, pi, POWERS[k]))
        now = _likelihood(log_p, votes, pi, POWERS[power])
        common, pi, strengths = _matrices(q, votes, workers, C, strengths, anonymous)
        if power == old and abs(now - before) < 1e-6 * n:
            break
        before = now
    accuracies = [_accuracy(log_p, votes, pi, common, POWERS[power], w) for w in range(workers)]
    return _posterior(log_p, votes, pi, POWERS[power]), 1 / POWERS[power], common, accuracies


def _accuracy(log_p, votes, pi, common, power, worker):
    """Equation (8), on a grid."""
    q = _posterior(log_p, votes, pi, power, without=worker)
    a = np.linspace(0, 1, 10001)
    total = np.zeros_like(a)
    for row, w, v in votes:
        if w == worker:
            wrong = sum(q[row, j] * common[j, v] / (1 - common[j, j]) for j in range(len(common)) if j != v)
            total += np.log(np.maximum(a * q[row, v] + (1 - a) * wrong, 1e-12))
    best = total.argmax()
    inside = a[total >= total[best] - 1.9207294103470621]
    return a[best], inside[0], inside[-1]
