"""Literal twin of the audit."""

import math
from collections.abc import Sequence

from tests.oracles.temperature import Interval, Rows, Sets, softmax


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
    """Return the share of labelled rows that lost their label, and that of wrong candidates that went; -1 is no label.

    A row whose label is not a candidate cannot lose it, and none of its candidates counts as wrong.
    """
    labelled = sum(label != -1 for label in y)
    rows = [i for i in range(len(S)) if y[i] in S[i]]
    if not labelled:
        return None, None
    wrong = [(i, j) for i in rows for j in S[i] if j != y[i]]
    gone = sum(j not in kept[i] for i, j in wrong)
    return sum(y[i] not in kept[i] for i in rows) / labelled, gone / max(len(wrong), 1)
