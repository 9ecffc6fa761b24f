"""Whether cleaning keeps its level, and whether the audit is right: measured where true labels are known.

    python -m benchmarks.trust train --data DIR --jobs 2   # the default classifier on every problem: runs/trust
    python -m benchmarks.trust collect                     # cleans and audits them: benchmarks/results/trust.json
    python -m benchmarks.trust audit                       # chooses the factors of the audit's ranges, without each set
    python -m benchmarks.trust review                      # counts errors among the rows to review first
    python -m benchmarks.trust training --data DIR         # accuracy after training on cleaned sets; permanent pruning
    python -m benchmarks.trust page                        # the tables of docs/evidence/trust.md

Problems are synthetic candidate sets of known mechanisms, and lost, bird-song and msrc-v2: the training rows of the
protocol uai2025, seeds 0 to 4, with folds by row and by group, and all rows. Other rules are compared where folds are
by row; this needs cleanlab.
"""

import argparse
import functools
import json
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from benchmarks import records, synthetic, trust_doubt, trust_page
from benchmarks.cells import share
from candidly import PartialLabelClassifier, conformal, metrics, store
from candidly.bench import datasets as sets
from candidly.cleaning import Clsp, Conformal, budget
from candidly.cleaning.audit import audit
from candidly.cleaning.budget import EXCESS_AS_ERROR, SEPARATE_FRACTION, Budget
from candidly.cleaning.estimates import Estimate
from candidly.data.dataset import Dataset
from candidly.data.protocols import PROTOCOLS
from candidly.engine.fitting import fit
from candidly.engine.problem import Problem
from candidly.engine.recipe import RECIPES
from candidly.estimator import crossfit
from candidly.methods import find_method

PROTOCOL = PROTOCOLS["uai2025"]
RESULTS = Path("benchmarks/results/trust.json")
RUNS = Path("runs/trust")
DATASETS = ("lost", "bird-song", "msrc-v2")
KINDS = ("split", "split grouped", "all", "all grouped")
SEEDS, INITS = range(5), 4
NEXT_INIT = 1000  # initialisation k of seed s trains with the seed s + 1000 k
ALPHAS = (0.02, 0.05, 0.1, 0.2)
CAUTIONS, SHARES = (0.0, 0.1, 0.15, 0.2), (0.05, 0.1, 0.15)
COMPARED_ON, CHECKED_ON = (0,), (20,)  # seeds of synthetic problems: with other constants too, and with the rule alone
THETA = 0.04  # POP's last threshold

Save = Callable[[dict[str, Any]], None]


def problems() -> Iterator[tuple[str, str, int]]:
    """Return every problem: a base, a mechanism and a seed, or a dataset, how its rows are used, and a seed."""
    for seed in SEEDS:
        yield from ((name, kind, seed) for name in DATASETS for kind in KINDS)
    for seed in COMPARED_ON + CHECKED_ON:
        for base in synthetic.BASES:
            yield from ((base, one, seed) for some in synthetic.MECHANISMS.values() for one in some)


def train(name: str, kind: str, seed: int, data: str | None, device: str) -> dict[str, Any]:
    """Fit the default classifier to a problem and write its record."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    groups, facts = None, {}
    if name in DATASETS:
        dataset = _load(name, data)
        assert dataset.y is not None
        rows = PROTOCOL.rows(dataset, seed)[0] if kind.startswith("split") else np.arange(len(dataset.X))
        X, S, y = dataset.X[rows], dataset.S[rows], dataset.y[rows]
        groups = dataset.groups[rows] if kind.endswith("grouped") and dataset.groups is not None else None
    else:
        X, S, y = synthetic.make(name, kind, seed)
    with warnings.catch_warnings(action="ignore"):
        classifier = PartialLabelClassifier(random_state=seed, device=device).fit(X, S, groups=groups)
    if kind == "split":
        facts["rules"] = {}
        for rule, alpha, kept in _rules(classifier, X, S, y, seed):
            facts["rules"][f"{rule} | {alpha}"] = _score(torch.from_numpy(S), kept, torch.from_numpy(y))
    if name not in DATASETS and seed in COMPARED_ON:
        facts["neighbours"] = _neighbours(classifier, X, S, y)
    records.write((name, kind, seed), classifier, y, _rounded(facts))
    return {"seconds": time.perf_counter() - start}


def _neighbours(
    classifier: PartialLabelClassifier, X: NDArray[Any], S: NDArray[np.bool_], y: NDArray[np.int64]
) -> dict[str, list[list[float]]]:
    """Return what the rule keeps and removes with other constants, at every level."""
    parts = (_log_p(classifier, X), torch.from_numpy(S), torch.from_numpy(y))
    log_p, own, true = (part[classifier.fit_record_.held_out] for part in parts)
    found = {}
    for caution in CAUTIONS:
        for alone in SHARES:
            budget = Budget.of(log_p, own, caution, alone)
            pruned = [_score(own, budget.keep(log_p, own, alpha), true) for alpha in ALPHAS]
            found[f"{caution} {alone}"] = pruned
    return found


def collect() -> dict[str, Any]:
    """Clean and audit every problem from its record."""
    made: dict[str, Any] = {"problems": []}
    real: dict[str, Any] = {"rules": {}, "audit": {}}
    for one in tqdm(records.read_all(), "problems"):
        name, kind, _ = one.problem
        rows = one.record.held_out
        S, top = one.record.sets[rows], one.record.top[rows]
        report = audit(one.record.log_p(rows), S, one.budget, alphas=ALPHAS, top=top, y=one.y[rows])
        levels = [[level.true_lost, level.true_removed, _listed(level.lost)] for level in report.levels]
        if name in DATASETS:
            for alpha, level in zip(ALPHAS, levels, strict=True):
                real["audit"].setdefault(f"{name} | {kind} | {alpha}", []).append(level)
            for rule, scores in one.facts.get("rules", {}).items():
                real["rules"].setdefault(f"{name} | {rule}", []).append(scores)
            continue
        sizes = one.record.candidates.sizes
        found = {"problem": one.problem, "rows": len(sizes), "mean_candidates": sizes.mean(), "levels": levels}
        made["problems"].append(found | {"excess": report.excess, "missing": report.missing.low} | one.facts)
    return {"synthetic": made, "real": real}


def _listed(estimate: Estimate | None) -> list[float] | None:
    return None if estimate is None else list(estimate)


def _log_p(classifier: PartialLabelClassifier, X: NDArray[Any]) -> Tensor:
    """Return the log-probabilities of all classes of the training rows, by networks that were not trained on them."""
    fold, folds = classifier.fit_record_.fold, len(classifier.calibration_.counts)
    encoded = classifier.features_.transform(X)
    return conformal.log(crossfit.out_of_fold(classifier.model_, encoded, fold, folds, progress=False))


def _score(S: Tensor, kept: Tensor, y: Tensor) -> list[float]:
    """Return the fraction of true labels that are kept, where they are candidates, and of wrong candidates removed."""
    known = S.gather(1, y[:, None])[:, 0]
    S, kept, y = S[known], kept[known], y[known]
    wrong = S & ~torch.nn.functional.one_hot(y, S.shape[1]).bool()
    return [1 - float(metrics.pruning_error(S, kept, y)), int((wrong & ~kept).sum()) / max(int(wrong.sum()), 1)]


def _rules(
    classifier: PartialLabelClassifier, X: NDArray[Any], S: NDArray[np.bool_], y: NDArray[np.int64], seed: int
) -> Iterable[tuple[str, float | None, Tensor]]:
    """Yield the name, the level and the kept candidates of every rule."""
    log_p, own, true = _log_p(classifier, X), torch.from_numpy(S), torch.from_numpy(y)
    p, T = log_p.exp(), classifier.budget_.temperature
    for alpha in ALPHAS:
        kept = classifier.budget_.keep(log_p, own, alpha)
        yield "candidly", alpha, kept
        yield (
            "risk budget alone",
            alpha,
            budget.risk_budget(conformal.candidate_probabilities(log_p, own, T), own, alpha),
        )
        for name, score in _SCORES.items():
            scores = score(p, own).flatten()
            yield name, alpha, _above(p, own, scores[scores.isfinite()], alpha, finite=name != "best (the paper's)")
        drawn = torch.rand(S.shape, generator=torch.Generator().manual_seed(seed))
        number = (own & ~kept).sum(1)
        yield "Random, as many", alpha, _drop(own, drawn, number)
        yield "Oracle, as many", alpha, _drop(own, drawn + torch.nn.functional.one_hot(true, S.shape[1]), number)
    problem = Problem.of(X, S, seeds=[seed])
    yield "CLSP", None, Clsp().setup(problem).sets[0]
    relative = p.masked_fill(~own, 0)
    yield "POP's purge", None, own & (relative >= THETA * relative.amax(1, keepdim=True))
    yield "cleanlab", None, _cleanlab(p, own)


_SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "best (the paper's)": conformal.best,
    "mean": conformal.mean,
    "pooled": conformal.pooled,
    "worst": conformal.worst,
    "singletons": conformal.singletons,
}


def _above(p: Tensor, S: Tensor, scores: Tensor, alpha: float, finite: bool) -> Tensor:
    """Keep the candidates whose rank among the calibration scores, as a fraction, exceeds alpha; all if none does."""
    ranks = conformal.ranks(scores.sort().values[None], p[None])[0].float()
    m = len(scores)
    kept = S & (((ranks + 1) / (m + 1) if finite else ranks / m) > alpha)
    return torch.where(kept.any(1, keepdim=True), kept, S)


def _drop(S: Tensor, order: Tensor, number: Tensor) -> Tensor:
    """Remove the given number of candidates of each row, the lowest in order first, but never the last one."""
    rank = order.masked_fill(~S, torch.inf).argsort(1).argsort(1)
    return S & (rank >= torch.minimum(number, S.sum(1) - 1)[:, None])


def _cleanlab(p: Tensor, S: Tensor) -> Tensor:
    """Remove the candidates that cleanlab flags when they are read as multi-label annotations."""
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

    with warnings.catch_warnings(action="ignore"):
        flagged = find_multilabel_issues_per_class(
            [row.nonzero()[:, 0].tolist() for row in S], p.clamp(0, 1).double().numpy(), n_jobs=1
        )
    kept = S & ~torch.from_numpy(np.asarray(flagged))
    top = torch.nn.functional.one_hot(p.masked_fill(~S, -1).argmax(1), S.shape[1]).bool()
    return torch.where(kept.any(1, keepdim=True), kept, top)


def training_part(data: str | None, device: str, save: Save) -> None:
    """Train on cleaned and on original sets, and with permanent pruning that stops."""
    found: dict[str, Any] = {"cleaned": {}, "permanent": {}}
    for name in DATASETS:
        dataset = _load(name, data)
        splits = [PROTOCOL.rows(dataset, seed) for seed in SEEDS]
        original = np.repeat(dataset.S[None], len(SEEDS), 0)
        cleaned = original.copy()
        for seed, (train, _) in enumerate(tqdm(splits, f"{name}: cleaning")):
            cleaned[seed, train] = _clean(dataset.X[train], dataset.S[train], seed, device)
        for cleaner in (None, Conformal()):
            for which, S in (("original", original), ("cleaned", cleaned)):
                key = f"{name} | {'none' if cleaner is None else 'conformal'} | {which}"
                found["cleaned"][key], _ = _train(dataset, splits, S, cleaner, device)
        for what, permanent in _PERMANENT.items():
            accuracy, history = _train(dataset, splits, original, permanent, device)
            lost = [history["estimated_lost"][-1].mean(), 1 - history["true_kept"][-1].mean()]
            found["permanent"][f"{name} | {what}"] = {"accuracy": accuracy, "estimated, actual": lost}
        save(found)


_PERMANENT = {
    "Algorithm 1": Conformal.algorithm1(),
    "Algorithm 1, stopping": Conformal(rule="permanent", calibration="holdout"),
    "rows reused": Conformal(rule="permanent", stop=1.0),
    "rows reused, stopping": Conformal(rule="permanent"),
}


def _train(
    dataset: Dataset, splits: list[Any], S: NDArray[np.bool_], cleaner: Conformal | None, device: str
) -> tuple[list[float], dict[str, NDArray[Any]]]:
    """Return the test accuracy of four networks for each split, with the paper's recipe, and the training history."""
    runs = [(seed, init) for seed in range(len(splits)) for init in range(INITS)]
    problem = Problem.of(
        dataset.X,
        np.stack([S[seed] for seed, _ in runs]),
        y=dataset.y,
        rows=[splits[seed][0] for seed, _ in runs],
        seeds=[seed + NEXT_INIT * init for seed, init in runs],
    )
    model = fit(problem, find_method("proden"), cleaner, RECIPES["uai2025"], device=device)
    best = model.predict(dataset.X).argmax(-1).cpu().numpy()
    accuracy = [float((best[r, splits[s][1]] == dataset.y[splits[s][1]]).mean()) for r, (s, _) in enumerate(runs)]
    return accuracy, dict(model.history)


def _clean(X: NDArray[Any], S: NDArray[np.bool_], seed: int, device: str) -> NDArray[np.bool_]:
    with warnings.catch_warnings(action="ignore"):
        return PartialLabelClassifier(random_state=seed, device=device).fit(X, S).candidates_.matrix


def _load(name: str, data: str | None) -> Dataset:
    return PROTOCOL.prepare(sets.load(name, RUNS, data))


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return round(float(value), 4) if isinstance(value, float | np.floating) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("train", "collect", "audit", "review", "training", "page"))
    parser.add_argument("--data", help="a folder with the datasets' files")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="problems at a time")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no problem after this time")
    parser.add_argument("--match", default="", help="only problems whose name contains this regular expression")
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}

    def save(found: dict[str, Any]) -> None:
        text = json.dumps(_rounded(results | found), separators=(",", ":")).replace("},{", "},\n{")
        store.replace(RESULTS, f"{text}\n".encode())

    if given.part == "page":
        trust_page.write(results)
    elif given.part == "train":
        chosen = [one for one in problems() if re.search(given.match, " ".join(map(str, one)))]
        work = functools.partial(train, data=given.data, device=given.device)
        share(chosen, work, RUNS / "done", given.jobs, given.minutes)
    elif given.part == "collect":
        found = collect()
        found["synthetic"] |= {"caution": EXCESS_AS_ERROR, "alone": SEPARATE_FRACTION}
        save(found)
    elif given.part == "audit":
        save({"ranges": trust_doubt.audit(records.read_all(), DATASETS)})
    elif given.part == "review":
        save({"review": trust_doubt.review(one for one in records.read_all() if one.problem[0] in DATASETS)})
    else:
        training_part(given.data, given.device, lambda found: save({"training": found}))


if __name__ == "__main__":
    main()
