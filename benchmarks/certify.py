"""Certified cleaning where true labels are known: how often it is wrong, what it removes, and what breaks it.

    python -m benchmarks.trust train --data DIR --jobs 2    # the default classifier on every problem: runs/trust
    python -m benchmarks.certify measure                    # benchmarks/results/certify.json, in minutes on one core
    python -m benchmarks.certify page                       # the tables of docs/evidence/certify.md

The problems are those of `benchmarks.trust`. Given the true labels, the probability that a certificate is wrong, and
the mean of what it removes, are sums of hypergeometric probabilities. Only what breaks the conditions, and some of the
variants, are simulated.
"""

import argparse
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special, stats
from torch import Tensor
from tqdm import tqdm

from benchmarks import records, synthetic
from benchmarks.cells import fill
from benchmarks.records import Fitted
from benchmarks.trust_page import head, percent, row
from candidly import conformal, store
from candidly.cleaning import Budget, certify, exact

RESULTS, PAGE = Path("benchmarks/results/certify.json"), Path("docs/evidence/certify.md")
DATASETS = ("lost", "bird-song", "msrc-v2")
ROWS, ALPHAS, CONFIDENCE = (50, 100, 200, 400), (0.05, 0.1), 0.9
DELTA = exact.risk(CONFIDENCE)
CAPS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, float("inf"))
DRAWS, M, ALPHA = 2000, 200, 0.05  # of the simulations
VARIANT_DRAWS = 20

Results = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """A problem at one level: the rows that can lose a candidate, and the levels at which they do.

    Attributes
    ----------
    allowed : int
        How many rows may lose their label.
    members : ndarray of int
        The rows of A, numbered among the held-out rows.
    lost : ndarray
        The level at which each row of A loses its label; inf if never.
    levels : ndarray
        All distinct levels, sorted.
    wrong : ndarray
        The levels at which wrong candidates are removed, sorted.
    total : int
        Number of wrong candidates of all rows.
    """

    allowed: int
    members: NDArray[Any]
    lost: NDArray[Any]
    levels: NDArray[Any]
    wrong: NDArray[Any]
    total: int

    @classmethod
    def of(cls, levels: Tensor, S: Tensor, y: Tensor, n: int, alpha: float, cap: float = certify.CAP) -> "Case":
        """Use the levels of the held-out rows up to a multiple of alpha."""
        usable = levels.masked_fill(levels > cap * alpha, torch.inf)
        members = usable.isfinite().any(1)
        lost = certify.loss_levels(usable, S, y)[members].numpy()
        wrong = S.clone()
        wrong[torch.arange(len(y)), y] = False
        finite = np.unique(usable[usable.isfinite()].numpy())
        removable = np.sort(usable[wrong & usable.isfinite()].numpy())
        allowed = exact.count_allowed(n, alpha)
        return cls(allowed, members.nonzero()[:, 0].numpy(), lost, finite, removable, int(wrong.sum()))

    def removed(self, below: NDArray[Any]) -> NDArray[np.float64]:
        """Return the fraction of wrong candidates that the largest level below each limit removes."""
        return np.searchsorted(self.wrong, below, side="left") / max(self.total, 1)

    def best(self) -> float:
        """Return what the largest level removes at which no more rows lose their label than allowed."""
        lost = np.sort(self.lost)
        return float(self.removed(lost[[self.allowed]])[0]) if len(lost) > self.allowed else self.everything

    @property
    def everything(self) -> float:
        """What the largest level removes."""
        return len(self.wrong) / max(self.total, 1)

    def expected(self, m: int, most: int) -> float:
        """Return the mean over all draws of the fraction of wrong candidates that the certificate removes."""
        if most < 0:
            return 0.0
        lost, counts = np.unique(self.lost[np.isfinite(self.lost)], return_counts=True)
        totals = np.concatenate([[0], counts.cumsum()])
        reached = stats.hypergeom.cdf(most, len(self.lost), totals, m)  # that λ is at least just below each loss
        removed = np.append(self.removed(lost), self.everything)
        return float((reached * np.diff(removed, prepend=0.0)).sum())

    def violation(self, m: int) -> float:
        """Return the probability that the certificate is wrong."""
        return exact.violation(torch.from_numpy(self.lost), len(self.lost), self.allowed, m, DELTA)


def read(fitted: Fitted) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return log-probabilities, candidates, levels and true labels of the held-out rows."""
    rows = fitted.record.held_out
    log_p, S = fitted.record.log_p(rows), fitted.record.sets[rows]
    return log_p, S, fitted.budget.levels(log_p, S), fitted.y[rows]


def measure_cells(fitted: Fitted) -> Iterator[dict[str, Any]]:
    """Yield the exact results of a problem at each level."""
    log_p, S, levels, y = read(fitted)
    n = len(fitted.y)
    for alpha in ALPHAS:
        case = Case.of(levels, S, y, n, alpha)
        cell: dict[str, Any] = {"problem": list(fitted.problem), "alpha": alpha, "n": n, "population": len(case.lost)}
        kept = fitted.budget.keep(log_p, S, alpha)
        inside = S.gather(1, y[:, None])[:, 0]
        lost = inside & ~kept.gather(1, y[:, None])[:, 0]
        gone = int((S & ~kept).sum() - lost.sum()) / max(case.total, 1)
        best = Case.of(levels, S, y, n, alpha, float("inf")).best()
        cell |= {"free": [int(lost.sum()) / n, gone], "best": best, "rows": {}}
        for m in ROWS:
            checked = min(m, len(case.lost))
            if len(case.lost) > case.allowed:  # otherwise a plan is refused
                most = exact.tolerated(len(case.lost), case.allowed, checked, DELTA)
                cell["rows"][m] = [case.violation(checked), case.expected(checked, most)]
        yield cell


def measure_caps(fitted: Sequence[Fitted]) -> dict[str, list[float]]:
    """Return, for each cap, the mean removed on synthetic sets by number of rows, at both levels."""
    found: dict[str, list[float]] = {}
    read_all = [(*read(one)[1:], len(one.y)) for one in fitted]
    for cap in CAPS:
        means = []
        for alpha in ALPHAS:
            cases = [Case.of(levels, S, y, n, alpha, cap) for S, levels, y, n in read_all]
            for m in ROWS:
                means.append(float(np.mean([_removed(case, m) for case in cases])))
        found[str(cap)] = means
    return found


def _removed(case: Case, m: int) -> float:
    if len(case.lost) <= case.allowed:
        return case.everything
    m = min(m, len(case.lost))
    return case.expected(m, exact.tolerated(len(case.lost), case.allowed, m, DELTA))


# What breaks it. Every function returns the rows of A that are thought to be a sample of their number, and the level at
# which each of them is thought to lose its label.
Check = Callable[[Case, NDArray[Any], np.random.Generator], tuple[NDArray[Any], NDArray[Any]]]


def as_planned(case: Case, groups: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Draw rows one by one; all are answered, and the answers are right."""
    sample = rng.permutation(len(case.lost))[:M]
    return sample, case.lost[sample]


def whole_groups(case: Case, groups: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Draw whole groups until there are enough rows."""
    own = groups[case.members]
    names = rng.permutation(np.unique(own))
    order = np.argsort(np.argsort(names))[np.searchsorted(np.sort(names), own)]
    sample = np.argsort(order, kind="stable")[:M]
    return sample, case.lost[sample]


def dropped(case: Case, groups: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Leave a fifth of the rows that lose their label at some level out of the sample, as nobody can tell it."""
    sample, lost = as_planned(case, groups, rng)
    told = ~(np.isfinite(lost) & (rng.random(len(lost)) < 0.2))
    return sample[told], lost[told]


def copied(case: Case, groups: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Answer a fifth of the rows that lose their label at some level as the model predicts."""
    sample, lost = as_planned(case, groups, rng)
    return sample, np.where(rng.random(len(lost)) < 0.2, np.inf, lost)


def mistaken(case: Case, groups: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Replace one answer in 20 by another candidate at random."""
    sample, lost = as_planned(case, groups, rng)
    return sample, np.where(rng.random(len(lost)) < 0.05, rng.choice(case.levels, len(lost)), lost)


CHECKS: dict[str, Check] = {
    "as planned": as_planned,
    "whole groups drawn": whole_groups,
    "a fifth of the model's errors cannot be told and is dropped": dropped,
    "a fifth of the model's errors is copied": copied,
    "one answer in 20 is wrong at random": mistaken,
}
PEEKED = "the best of the certificates after 50, 51, …, 200 rows"


def _limit(case: Case, lost: NDArray[Any]) -> float:
    """Return the level below which candidates are removed, given the losses in a sample."""
    most = _tolerated(len(case.lost), case.allowed, len(lost))
    if most < 0:
        return -1.0
    return float(np.sort(lost)[most]) if most < len(lost) else float("inf")


@functools.cache
def _tolerated(population: int, allowed: int, checked: int) -> int:
    return exact.tolerated(population, allowed, checked, DELTA)


def _is_wrong(case: Case, sample: NDArray[Any], limit: float) -> bool:
    return int((case.lost < limit).sum() - (case.lost[sample] < limit).sum()) > case.allowed


def measure_breaks(fitted: Fitted, groups: NDArray[Any]) -> dict[str, float]:
    """Return the share of draws in which more unchecked rows lose their label than allowed."""
    _, S, levels, y = read(fitted)
    case = Case.of(levels, S, y, len(fitted.y), ALPHA)
    of_rows = groups[fitted.record.held_out.numpy()]
    found = {}
    for name, check in CHECKS.items():
        rng = np.random.default_rng(0)
        wrong = 0
        for _ in range(DRAWS):
            sample, lost = check(case, of_rows, rng)
            wrong += _is_wrong(case, sample, _limit(case, lost))
        found[name] = wrong / DRAWS
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(DRAWS // 10):  # many looks take long
        sample, lost = as_planned(case, of_rows, rng)
        limit, t = max((_limit(case, lost[:t]), t) for t in range(50, M + 1))
        wrong += _is_wrong(case, sample[:t], limit)
    return found | {PEEKED: wrong / (DRAWS // 10)}


# Variants


def measure_variants(fitted: Fitted) -> dict[str, float]:
    """Return what each variant removes on average, with at most M checked rows."""
    log_p, S, levels, y = read(fitted)
    n = len(fitted.y)
    case = Case.of(levels, S, y, n, ALPHA)
    population, allowed = len(case.lost), case.allowed
    found = {"fixed": _removed(case, M), "fixed, half of the rows": _removed(case, M // 2)}
    bounds = exact.tolerated_by_prefix(population, allowed, M, DELTA)
    martingale = martingale_bounds(population, allowed, M)
    looks = [exact.tolerated(population, allowed, t, DELTA / 4) for t in (50, 100, 150, 200)]
    for t in (M // 2, M):
        found[f"sequential, {t} rows"] = case.expected(t, int(bounds[t]))
        found[f"martingale, {t} rows"] = case.expected(t, int(martingale[t]))
        found[f"four looks, {t} rows"] = case.expected(t, looks[t // 50 - 1])
    rng = np.random.default_rng(0)
    draws = [recalibrated(fitted.budget, case, log_p, S, levels, y, n, rng) for _ in range(VARIANT_DRAWS)]
    found["recalibrated with half of the answers"] = float(np.mean(draws))
    weights = np.asarray(_risk_of_rows(fitted.budget, log_p, S, levels))[case.members]
    draws = [weighted(case, weights, rng) for _ in range(VARIANT_DRAWS)]
    found["unequal sampling"] = float(np.mean(draws))
    return found


def martingale_bounds(population: int, allowed: int, m: int) -> NDArray[Any]:
    """Return the tolerated losses by the prior-posterior-ratio martingale with a uniform prior.

    I. Waudby-Smith and A. Ramdas, *Confidence sequences for sampling without replacement*, NeurIPS 2020, theorem 2.1.
    """
    bounds = np.full(m + 1, -1)
    for t in range(1, m + 1):
        k = max(bounds[t - 1], 0)
        while k <= t:
            likeliest = max(allowed + 1, k * (population + 1) // t)  # of all numbers of marked rows above a
            possible = np.array([likeliest] if k <= likeliest <= population - t + k else [])
            ways = special.gammaln(possible + 1) - special.gammaln(k + 1) - special.gammaln(possible - k + 1)
            rest = population - possible
            ways += special.gammaln(rest + 1) - special.gammaln(t - k + 1) - special.gammaln(rest - t + k + 1)
            whole = special.gammaln(population + 1) - special.gammaln(t + 1) - special.gammaln(population - t + 1)
            # The posterior of a uniform prior is the likelihood divided by its mean over the prior, 1 / (t + 1).
            if (np.exp(ways - whole) * (t + 1)).max(initial=0.0) > DELTA:
                break
            bounds[t] = k
            k += 1
        bounds[t] = max(bounds[t], bounds[t - 1])
    return bounds


def recalibrated(
    rule: Budget, case: Case, log_p: Tensor, S: Tensor, levels: Tensor, y: Tensor, n: int, rng: np.random.Generator
) -> float:
    """Return what is removed if half of the sample fits a temperature and a shift for every class.

    The new family removes nothing outside A, the first half keeps its candidates, and the second half is a sample of
    the rest of A.
    """
    first = case.members[rng.permutation(len(case.members))[: M // 2]]
    z = (log_p / rule.cautious).double().masked_fill(~S, -1e9)
    known = first[S[first, y[first]].numpy()]
    scale = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    shift = torch.zeros(S.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([scale, shift], max_iter=30)

    def loss() -> Tensor:
        optimizer.zero_grad()
        fit = (z[known] * scale.exp() + shift).log_softmax(-1)[torch.arange(len(known)), y[known]]
        value = -fit.sum() + shift.square().sum() / 2 + scale.square().sum() / 2
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        again = (z * scale.exp() + shift).masked_fill(~S, -1e9).log_softmax(-1).float()
    new = Budget(1.0, 1.0, 0.0, 0.0, rule.inseparable, rule.missing, False).levels(again, S)
    outside = torch.ones(len(S), dtype=torch.bool)
    outside[case.members] = False
    outside[first] = True
    new[outside] = torch.inf
    second = Case.of(new, S, y, n, ALPHA)
    return _removed(second, M - M // 2)


def _risk_of_rows(rule: Budget, log_p: Tensor, S: Tensor, levels: Tensor) -> Tensor:
    """Return the estimated probability that each row loses its label at the level 2 alpha."""
    q = conformal.candidate_probabilities(log_p, S, rule.cautious)
    return (q * (levels <= 2 * ALPHA)).sum(1)


def weighted(case: Case, risk: NDArray[Any], rng: np.random.Generator) -> float:
    """Return what is removed if risky rows are drawn more often, with a test by betting.

    Rows are drawn with replacement and probabilities π, which are half uniform and half proportional to the risk.
    ``x = loss / (N π)`` has the mean D/N, and ``Π (1 + b (μ − x))``, averaged over bets b, is a test martingale of the
    hypothesis that the mean is μ. It is compared with 1/δ at μ = (a + 1) / N (I. Waudby-Smith and A. Ramdas,
    *Estimating means of bounded random variables by betting*, JRSS B, 2024).
    """
    population = len(case.lost)
    chance = 0.5 / population + 0.5 * risk / risk.sum()
    sample = rng.choice(population, M, p=chance)
    lost, x = case.lost[sample], 1 / (population * chance[sample])
    order = np.argsort(lost)
    mean = (case.allowed + 1) / population
    bets = np.linspace(0.02, 0.98, 49)[:, None] / (2 - mean)  # x is at most 2
    won = np.log1p(bets * mean)
    changes = (np.log1p(bets * (mean - x[order])) - won).cumsum(1)  # by the number of losses
    wealth = np.logaddexp.reduce(M * won + np.pad(changes, ((0, 0), (1, 0)))) - np.log(len(bets))
    fits = np.append(wealth >= np.log(1 / DELTA), False)
    if not fits[0]:
        return 0.0
    losses = int(fits.argmin())  # too many
    return float(case.removed(lost[order][[losses - 1]])[0]) if losses <= M else case.everything


def measure() -> None:
    """Measure everything that the page shows."""
    torch.set_num_threads(1)
    fitted = records.read_all()
    cells = [cell for one in tqdm(fitted, "exact") for cell in measure_cells(one)]
    real = {tuple(one.problem): one for one in fitted if one.problem[0] in DATASETS}
    made = [one for one in fitted if one.problem[0] not in DATASETS]
    results: Results = {"cells": cells, "caps": measure_caps(made), "breaks": {}, "variants": {}}
    for name in tqdm(DATASETS, "simulated"):
        seeds = sorted(seed for first, kind, seed in real if (first, kind) == (name, "all"))
        groups = {seed: real[name, "all grouped", seed].record.groups for seed in seeds}
        results["breaks"][name] = _mean(
            measure_breaks(real[name, "all", seed], group.numpy())
            for seed, group in groups.items()
            if group is not None
        )
        results["variants"][name] = _mean(measure_variants(real[name, "all", seed]) for seed in seeds)
    some = [one for one in made if one.problem[2] == 0]
    results["variants"]["synthetic"] = _mean(measure_variants(one) for one in tqdm(some, "variants") if _can_plan(one))
    lines = ",\n".join(json.dumps(cell) for cell in _rounded(results.pop("cells")))
    rest = json.dumps(_rounded(results))[1:]
    store.replace(RESULTS, f'{{"cells": [\n{lines}\n],\n{rest}\n'.encode())


def _can_plan(fitted: Fitted) -> bool:
    _, S, levels, y = read(fitted)
    case = Case.of(levels, S, y, len(fitted.y), ALPHA)
    return len(case.lost) > max(case.allowed, M)


def _mean(found: Iterable[dict[str, float]]) -> dict[str, float]:
    results = list(found)
    return {name: float(np.mean([one[name] for one in results])) for name in results[0]}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value


def page(results: Results) -> None:
    """Write each table between its markers."""
    for table in (real_tables, synthetic_tables, breaks_table, variants_table, caps_table):
        fill(PAGE, "\n".join(table(results)), table.__name__)


def _mean_row(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Return the largest probability of error, and the means of what is removed, as texts."""
    worst = max((one["rows"][m][0] for one in cells for m in one["rows"]), default=0.0)
    removed = []
    for m in map(str, ROWS):
        values = [one["rows"][m][1] for one in cells if m in one["rows"]]
        removed.append(percent(float(np.mean(values))) if values else "–")
    best = percent(float(np.mean([one["best"] for one in cells])))
    lost, gone = np.mean([one["free"] for one in cells], 0)
    return [percent(worst), *removed, best, f"{percent(gone)} / {percent(lost)}"]


_HEAD = ["wrong, at most", *(f"{m} rows" for m in ROWS), "best λ", "without labels: removed / lost"]


def real_tables(results: Results) -> Iterator[str]:
    """Yield the exact results on lost, bird-song and msrc-v2."""
    yield from head(["dataset", "rows and folds", "α", *_HEAD])
    for name in DATASETS:
        for kind in ("all", "all grouped", "split", "split grouped"):
            for alpha in ALPHAS:
                cells = [one for one in results["cells"] if (one["problem"][:2], one["alpha"]) == ([name, kind], alpha)]
                if cells:
                    yield row([name, kind, alpha, *_mean_row(cells)])


def synthetic_tables(results: Results) -> Iterator[str]:
    """Yield the exact results on synthetic sets, by mechanism."""
    yield from head(["mechanism", "α", *_HEAD])
    for kind in (one for some in synthetic.MECHANISMS.values() for one in some):
        for alpha in ALPHAS:
            cells = [one for one in results["cells"] if (one["problem"][1], one["alpha"]) == (kind, alpha)]
            if cells:
                yield row([kind, alpha, *_mean_row(cells)])


def breaks_table(results: Results) -> Iterator[str]:
    """Yield how often certificates are wrong if a condition is not met."""
    yield from head(["what is done", *DATASETS])
    for name in results["breaks"][DATASETS[0]]:
        yield row([name, *(percent(results["breaks"][one][name]) for one in DATASETS)])


def variants_table(results: Results) -> Iterator[str]:
    """Yield what variants remove."""
    places = [*DATASETS, "synthetic"]
    yield from head(["variant", *places])
    for name in results["variants"][DATASETS[0]]:
        yield row([name, *(percent(results["variants"][one][name]) for one in places)])


def caps_table(results: Results) -> Iterator[str]:
    """Yield what is removed on synthetic sets by the largest level that is used."""
    yield from head(["largest level / α", *(f"α = {alpha}, {m} rows" for alpha in ALPHAS for m in ROWS)])
    for cap, means in results["caps"].items():
        name = "no limit" if cap == "inf" else f"{float(cap):g}"
        yield row([f"**{name}**" if float(cap) == certify.CAP else name, *map(percent, means)])


def main() -> None:
    """Run a part of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["measure", "page"])
    if parser.parse_args().part == "measure":
        measure()
    else:
        page(json.loads(RESULTS.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
