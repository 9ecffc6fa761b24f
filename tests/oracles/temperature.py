"""Literal twin of the temperature by candidate likelihood, row by row and label by label.

Log-probabilities are lists of rows, candidate sets are sets of class numbers. No code is shared with the library.
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
