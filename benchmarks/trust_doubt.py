"""What is known about doubt where true labels are known: how wide the audit's ranges must be, and whom to review first.

`benchmarks.trust` calls it: ``audit`` chooses the factors of the ranges, ``review`` counts errors in several orders.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.records import Fitted
from candidly import conformal, metrics
from candidly.cleaning.estimates import Account, Estimate, account, estimate_error, uninformed, widen

ALPHAS = (0.02, 0.05, 0.1, 0.2)
LOWER, UPPER = (1.0, 0.5, 0.25), (1.0, 1.5, 2.0, 3.0, 4.0)
ENOUGH = 0.9  # of the cells of every kind of problem must lie on the right side of an end
BEFORE = (0.7, 1.3)  # factors of the interval that version 0.2 had at first, without the account by chance
FIRST = (100, 1000)


@dataclass(frozen=True)
class Cell:
    """One level of one problem: its kind, the accounts, the number of rows, and the actual loss."""

    kind: str
    found: Account
    n: int
    lost: float

    def range(self, lower: float, upper: float) -> Estimate:
        """Return the guess with these factors."""
        return widen(self.found, self.n, lower, upper)

    def before(self) -> Estimate:
        """Return the interval of the networks' account alone."""
        return widen(self.found._replace(by_chance=0.0), self.n, *BEFORE)


def audit(records: Iterable[Fitted], datasets: Sequence[str]) -> dict[str, Any]:
    """Return the factors, chosen with and without each dataset and mechanism, and what their ranges hold."""
    cells: list[Cell] = []
    declined: dict[str, int] = {}
    errors: dict[str, list[list[float]]] = {}
    for one in tqdm(records, "problems"):
        name, mechanism, _ = one.problem
        kind = name if name in datasets else mechanism
        if one.budget.declined:
            declined[kind] = declined.get(kind, 0) + len(ALPHAS)
            continue
        rows = one.record.held_out
        log_p, S, y = one.record.log_p(rows), one.record.sets[rows], one.y[rows]
        fitted = conformal.candidate_probabilities(log_p, S, one.budget.temperature)
        cautious = conformal.candidate_probabilities(log_p, S, one.budget.cautious)
        unknown = uninformed(one.record.top[rows], S)
        for kept in one.budget.keep_each(cautious, S, ALPHAS):
            lost = float(metrics.pruning_error(S, kept, y))
            cells.append(Cell(kind, account(fitted, cautious, S, kept, unknown), len(S), lost))
        wrong = float((one.record.best()[rows] != y).double().mean())
        errors.setdefault(kind, []).append([wrong, *estimate_error(fitted, cautious, S, unknown)])
    kinds = list(dict.fromkeys(cell.kind for cell in cells))
    held = {}
    for kind in kinds:
        lower, upper = choose([cell for cell in cells if cell.kind != kind])
        held[kind] = _describe([cell for cell in cells if cell.kind == kind], lower, upper, declined.get(kind, 0))
    return {"factors": choose(cells), "without": held, "errors": errors}


def choose(cells: Sequence[Cell]) -> tuple[float, float]:
    """Return the factors nearest to 1 with which enough losses of every kind lie above, and below, the ends."""

    def enough(is_right: Callable[[Cell], bool]) -> bool:
        kinds: dict[str, list[bool]] = {}
        for cell in cells:
            kinds.setdefault(cell.kind, []).append(is_right(cell))
        return min(float(np.mean(found)) for found in kinds.values()) >= ENOUGH

    lower = next(one for one in LOWER if enough(lambda cell, one=one: cell.range(one, 1.0).low <= cell.lost))
    upper = next(one for one in UPPER if enough(lambda cell, one=one: cell.lost <= cell.range(1.0, one).high))
    return lower, upper


def _describe(cells: Sequence[Cell], lower: float, upper: float, declined: int) -> dict[str, Any]:
    found = {"factors": [lower, upper], "cells": len(cells) + declined, "declined": declined}
    for name, ranges in (
        ("now", [cell.range(lower, upper) for cell in cells]),
        ("before", [cell.before() for cell in cells]),
    ):
        inside = [one.low <= cell.lost <= one.high for one, cell in zip(ranges, cells, strict=True)]
        widths = [one.high - one.low for one in ranges]
        found[name] = {"held": sum(inside), "width": float(np.median(widths))}
    return found


def review(records: Iterable[Fitted]) -> dict[str, list[dict[str, Any]]]:
    """Return how many learned labels are wrong among the first rows, in several orders, by dataset and kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in records:
        name, kind, _ = one.problem
        wrong = (one.record.best() != one.y).numpy()
        counts = {
            order: [int(wrong[rows[:m]].sum()) for m in FIRST if m < len(wrong)] for order, rows in _orders(one).items()
        }
        found.setdefault(f"{name} | {kind}", []).append({"rows": len(wrong), "wrong": int(wrong.sum()), **counts})
    return found


def _orders(one: Fitted) -> dict[str, Any]:
    """Return the rows in the order of their review, by the name of the order."""
    record, every = one.record, torch.arange(len(one.y))
    cleaned = record.cleaned(record.sets, one.budget.cautious)
    q = torch.from_numpy(cleaned.candidate_proba.copy())
    first, second = q.topk(2, 1).values.T

    def rising(values: Tensor) -> Any:
        return values.argsort(stable=True).numpy()

    return {
        "confidence (the default)": np.argsort(cleaned.priority),
        "margin between the two best candidates": rising(first - second),
        "entropy of the candidates": rising((q * q.clamp_min(1e-30).log()).sum(1)),
        "probability among all classes": rising(record.log_p(every).amax(1)),
    }
