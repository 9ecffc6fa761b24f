"""Literal twin of the risk budget."""

import math
from collections.abc import Sequence

from tests.oracles.temperature import Interval, Rows, Sets, candidate_probabilities, softmax


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


def uninformed(tops: Sequence[int], S: Sets, C: int) -> list[float]:
    """Return the probability that each row is one that the networks know nothing about."""
    told = [i for i in range(len(S)) if len(S[i]) < C]
    part = [sum(k in S[i] for i in told) / len(told) for k in range(C)]
    known = max(sum((tops[i] in S[i]) - part[tops[i]] for i in told) / sum(1 - part[tops[i]] for i in told), 0)
    whole = [sum(k in row for row in S) / len(S) for k in range(C)]
    chance = [(1 - known) * whole[top] for top in tops]
    return [luck / (known + luck) if top in row else 1.0 for top, row, luck in zip(tops, S, chance, strict=True)]


def lost(
    z: Rows, S: Sets, kept: Sets, temperatures: Sequence[float], factors: tuple[float, float], normal: float
) -> Interval:
    n, shares = len(z), []
    for T in temperatures:
        q = candidate_probabilities(z, S, T)
        shares.append(math.fsum(q[i][j] for i in range(n) for j in S[i] - kept[i]) / n)
    low, high = min(shares), max(shares)
    unknown = uninformed([row.index(max(row)) for row in z], S, len(z[0]))
    luck = math.fsum(unknown[i] * len(S[i] - kept[i]) / len(S[i]) for i in range(n)) / n
    changed = sum(S[i] != kept[i] for i in range(n)) / n

    def deviation(share: float) -> float:
        return normal * math.sqrt(share * (1 - share) / n)

    start, end = factors[0] * low, min(factors[1] * max(high, luck), changed)
    return math.sqrt(low * high), max(start - deviation(start), 0.0), min(end + deviation(end), changed)
