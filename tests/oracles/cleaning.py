"""Slow literal twins of the rule that cleans candidate sets and of its audit, row by row and label by label.

Log-probabilities are lists of rows, candidate sets are sets of class numbers. With the library they share no code.
"""

import math
from collections.abc import Sequence

Rows = Sequence[Sequence[float]]
Sets = Sequence[set[int]]
Matrix = list[list[float]]
Interval = tuple[float, float, float]


def softmax(z: Sequence[float], T: float, inside: set[int] | None = None) -> list[float]:
    """Return the probabilities of a row's classes, or of those `inside` and 0 for the others."""
    classes = range(len(z)) if inside is None else sorted(inside)
    highest = max(z[j] / T for j in classes)
    powers = [math.exp(z[j] / T - highest) if j in classes else 0.0 for j in range(len(z))]
    return [power / math.fsum(powers) for power in powers]


def candidate_probabilities(z: Rows, S: Sets, T: float) -> Matrix:
    return [softmax(row, T, inside) for row, inside in zip(z, S, strict=True)]


def likelihood(z: Rows, S: Sets, T: float) -> float:
    """Return the mean logarithm of the probability that the true label is a candidate."""
    total = []
    for row, inside in zip(z, S, strict=True):
        powers = [math.exp((value - max(row)) / T) for value in row]
        total.append(math.log(math.fsum(powers[j] for j in inside)) - math.log(math.fsum(powers)))
    return math.fsum(total) / len(total)


def fit_temperature(z: Rows, S: Sets, points: int = 4000) -> float:
    """Return the best of a dense grid, equally spaced in the logarithm, from 1 to 10."""
    grid = [10 ** (k / (points - 1)) for k in range(points)]
    return max(grid, key=lambda T: likelihood(z, S, T))


def expected_error(z: Rows, S: Sets, T: float) -> float:
    return math.fsum(1 - max(row) for row in candidate_probabilities(z, S, T)) / len(z)


def raise_temperature(z: Rows, S: Sets, T: float, error: float, step: float = 1e-3) -> float:
    """Return the first temperature of a dense grid at which so large an error is expected, or 100."""
    while T < 100 and expected_error(z, S, T) < error:
        T *= 1 + step
    return min(T, 100.0)


def excess_membership(z: Rows, S: Sets, T: float, low: float) -> float:
    n, C = len(z), len(z[0])
    p = [softmax(row, T) for row in z]
    top = [max(sorted(inside), key=lambda j, row=row: row[j]) for row, inside in zip(p, S, strict=True)]
    pairs = []  # row, class, how likely the class is against the candidates
    for i in range(n):
        for k in range(C):
            if k != top[i]:
                others = math.fsum(p[i][j] for j in S[i] if j != k)
                pairs.append((i, k, p[i][k] / (p[i][k] + others)))
    limit = sorted(share for *_, share in pairs)[int(low * (len(pairs) - 1))]
    unlikely = [(top[i], k, k in S[i]) for i, k, share in pairs if share < limit]
    likely = [(top[i], k, k in S[i]) for i, k, share in pairs if share >= limit]
    overall = mean([there for *_, there in unlikely])
    chance = {}
    for k in range(C):
        of_class = [there for _, other, there in unlikely if other == k]
        by_class = (sum(of_class) + 5 * overall) / (len(of_class) + 5)
        for t in range(C):
            of_pair = [there for first, other, there in unlikely if (first, other) == (t, k)]
            chance[t, k] = (sum(of_pair) + 5 * by_class) / (len(of_pair) + 5)
    expected = [chance[t, k] for t, k, _ in likely]
    surplus = sum(there for *_, there in likely) - math.fsum(expected)
    return surplus / (1 - min(mean(expected), 0.9)) / n


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def risk_budget(q: Rows, S: Sets, alpha: float, by_class: bool, protected: Sets | None = None) -> Sets:
    """Remove candidates of equal probability together, the least likely first, while all that went fits the budget."""
    may_go = []
    for i, inside in enumerate(S):
        highest = max(q[i][j] for j in inside)
        may_go += [(i, j) for j in inside if q[i][j] < highest and (protected is None or j not in protected[i])]
    kept = [set(inside) for inside in S]
    for group in range(len(q[0])) if by_class else [None]:
        members = [(i, j) for i, j in may_go if group in (None, j)]
        amount = alpha * (len(S) if group is None else math.fsum(row[group] for row in q))
        spent = 0.0
        for value in sorted({q[i][j] for i, j in members}):
            tied = [(i, j) for i, j in members if q[i][j] == value]
            spent += value * len(tied)
            if spent > amount * (1 + 1e-9):
                break
            for i, j in tied:
                kept[i].remove(j)
    return kept


def find_inseparable(q: Rows, S: Sets, alone: float, least_odds: float) -> set[tuple[int, int]]:
    n, C = len(q), len(q[0])
    top = [max(range(C), key=lambda j, row=row: row[j]) for row in q]

    def odds(one: int, other: int) -> float:
        """How much larger the odds of `other` being a candidate are where `one` is likeliest than where neither is."""
        there = [other in S[i] for i in range(n) if top[i] == one]
        elsewhere = [other in S[i] for i in range(n) if top[i] not in (one, other)]
        first, second = ((sum(v) + 0.5) / (len(v) - sum(v) + 0.5) for v in (there, elsewhere))
        return first / second

    found = set()
    for j in range(C):
        for k in range(C):
            W = math.fsum(q[i][j] + q[i][k] for i in range(n) if j in S[i] and k in S[i])
            A = min(math.fsum(q[i][a] for i in range(n) if a in S[i] and b not in S[i]) for a, b in ((j, k), (k, j)))
            together = max(odds(j, k), odds(k, j)) >= least_odds
            if j != k and max(8, n / 100) <= W and alone * (A + W) > A and together:
                found.add((j, k))
    return found


def lost(z: Rows, S: Sets, kept: Sets, temperatures: Sequence[float], slack: float, normal: float) -> Interval:
    n, shares = len(z), []
    for T in temperatures:
        q = candidate_probabilities(z, S, T)
        shares.append(math.fsum(q[i][j] for i in range(n) for j in S[i] - kept[i]) / n)
    low, high = min(shares), max(shares)

    def deviation(share: float) -> float:
        return normal * math.sqrt(share * (1 - share) / n)

    return (
        math.sqrt(low * high),
        max((1 - slack) * low - deviation(low), 0.0),
        min((1 + slack) * high + deviation(high), 1.0),
    )


def estimate_missing(z: Rows, S: Sets, normal: float) -> Interval:
    """Return the share of the best of all mixtures, and the range of those that are not significantly worse."""
    C, best = len(z[0]), {}
    for T in [10 ** (k / 24) for k in range(25)]:
        p = [softmax(row, T) for row in z]
        inside = [math.fsum(row[j] for j in candidates) for row, candidates in zip(p, S, strict=True)]
        for hundredth in range(51):
            share = hundredth / 100
            mixture = [(1 - share) * i + share * len(c) / C for i, c in zip(inside, S, strict=True)]
            fit = math.fsum(math.log(max(value, 1e-300)) for value in mixture)
            best[share] = max(fit, best.get(share, -math.inf))
    highest = max(best.values())
    alike = [share for share, fit in best.items() if fit >= highest - 1e-6]
    within = [share for share, fit in best.items() if fit >= highest - normal**2 / 2]
    return min(alike), min(within), max(within)


def truth(S: Sets, kept: Sets, y: Sequence[int]) -> tuple[float | None, float | None]:
    """Return the share of true labels, and that of wrong candidates, that went; -1 is no label."""
    rows = [i for i in range(len(S)) if y[i] in S[i]]
    if not rows:
        return None, None
    wrong = [(i, j) for i in rows for j in S[i] if j != y[i]]
    gone = sum(j not in kept[i] for i, j in wrong)
    return sum(y[i] not in kept[i] for i in rows) / len(rows), gone / max(len(wrong), 1)
