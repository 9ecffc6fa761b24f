"""Trainings that two ranks and one process with two shards must agree on; ranks run `main` in their own process."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import torch
from torch import distributed, nn

from candidly import PartialLabelClassifier
from candidly.cleaning import Cleaner, Conformal, Random
from candidly.engine import OneNetwork, fitting, soft_ce, uniform_weights
from candidly.engine.fitting import fit
from candidly.engine.model import Model
from candidly.engine.nets import mlp as nets
from candidly.engine.problem import Problem
from candidly.engine.ranks import RankLost
from candidly.engine.recipe import Recipe
from candidly.estimator import sharing
from candidly.methods import METHODS, Proden
from candidly.store import states
from tests.oracles.cases import EPOCHS, FEATURES, make_method

BATCH = 32
SHARDS = (150, 122)  # rows of each; they differ, so that slices of minibatches and padding differ
SHARED = [name for name in METHODS if name not in ("valen", "pico")]
CLEANERS: dict[str, Cleaner | None] = {
    "none": None,
    "conformal": Conformal(warmup=1),
    "published": replace(Conformal.published(), warmup=1),
    "algorithm1": replace(Conformal.algorithm1(), warmup=1),
}


@dataclass
class Average(OneNetwork):
    """A custom method, which knows nothing of ranks."""

    def setup(self, problem: Problem, build_net: Any) -> None:
        self.net = build_net()
        self.seen = torch.zeros_like(problem.initial_weights)

    def step(self, batch: Any, phase: Any) -> torch.Tensor:
        z = self.net(batch.x)
        kept = batch.candidates(z.detach().softmax(-1))
        batch.put(self.seen, z.detach())
        return soft_ce(uniform_weights(kept, z.dtype), z)


class Normalised(nn.Sequential):
    """A custom network with torch's batch normalisation."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(FEATURES, 12),
            nn.BatchNorm1d(12, momentum=None),
            nn.ReLU(),
            nn.Linear(12, 9),
            nn.BatchNorm1d(9, affine=False),
            nn.Linear(9, 4),
        )


def arrays(wrong: float = 0.4) -> dict[str, Any]:
    """All rows, before they are divided."""
    n, random = sum(SHARDS), np.random.default_rng(7)
    y = random.integers(4, size=n)
    X = random.normal(size=(4, FEATURES))[y] + random.normal(size=(n, FEATURES))
    S = (random.random((n, 4)) < wrong) | (np.arange(4) == y[:, None])
    rows = [np.sort(random.permutation(n)[left_out:]) for left_out in (4, 11)]
    return {"X": X, "S": S, "y": y, "rows": rows}


def make(whole: dict[str, Any], rank: int | None, shards: Sequence[int] = SHARDS, **keywords: Any) -> Problem:
    """The problem of one rank, or of a single process with all shards."""
    n = len(whole["X"])
    start, stop = (0, n) if rank is None else (sum(shards[:rank]), sum(shards[: rank + 1]))
    own = slice(start, stop)
    rows = [one[(one >= start) & (one < stop)] - start for one in whole["rows"]]
    split: Any = 1 if rank is not None else list(shards)
    given = {"y": whole["y"][own], "seeds": (3, 4), "dtype": torch.float64, "shards": split} | keywords
    return Problem.of(whole["X"][own], whole["S"][own], rows=rows, **given)


def held_out(problem: Problem) -> list[Any]:
    return [np.setdiff1d(np.arange(len(problem.X)), rows.numpy()) for rows in problem.rows]


def train(problem: Problem, method: Any, cleaner: Cleaner | None = None, epochs: int = 3, **keywords: Any) -> Model:
    settings = {"recipe": Recipe(epochs=epochs, batch_size=BATCH), "device": "cpu", "progress": False}
    return fit(problem, method, cleaner, **settings | keywords)


def _every(name: str, cleaner: str) -> Callable[[int | None], Model]:
    def run(rank: int | None) -> Model:
        return train(make(arrays(), rank), make_method(name), CLEANERS[cleaner], EPOCHS.get(name, 3))

    return run


def _stopping(name: str) -> Callable[[int | None], Model]:
    def run(rank: int | None) -> Model:
        problem = make(arrays(), rank, standardise=True)
        return train(problem, make_method(name), None, 6, held_out=held_out(problem), patience=1)

    return run


def _custom(rank: int | None) -> Model:
    return train(make(arrays(), rank), Average(), Random(Conformal(warmup=1)), net=Normalised)


def _few_singles(rank: int | None) -> Model:
    """The second shard has no row with a single candidate, so no calibration rows."""
    whole = arrays(wrong=0.1)
    late = np.arange(len(whole["X"])) >= SHARDS[0]
    whole["S"][late & (whole["S"].sum(1) == 1)] = True
    cleaner = Conformal(score="singletons", warmup=1, level="fixed", alpha=0.3)
    return train(make(whole, rank), Proden(), cleaner)


def _stopped(rank: int | None) -> Model:
    """The permanent rule, which stops by losses that are estimated over all shards."""
    cleaner = Conformal(rule="permanent", warmup=0, calibration="holdout", stop=0.01)
    return train(make(arrays(), rank), make_method("proden"), cleaner)


CASES = {f"{name} {cleaner}": _every(name, cleaner) for name in SHARED for cleaner in CLEANERS}
CASES |= {f"{name} stopping": _stopping(name) for name in SHARED}
CASES |= {"custom": _custom, "few singles": _few_singles, "stopped": _stopped}


def result(model: Model) -> dict[str, torch.Tensor]:
    """What is compared: predictions, networks, history, kept candidates."""
    found = {"p": model.predict(arrays()["X"]), "kept": model.kept}
    found |= {f"history.{name}": torch.tensor(value) for name, value in model.history.items()}
    networks = model.method.networks().items()
    return found | {f"net.{name}.{key}": v for name, net in networks for key, v in net.state_dict().items()}


def message(function: Callable[[], Any]) -> str:
    """Return what an error says."""
    try:
        function()
    except ValueError as error:
        return str(error)
    return ""


def refusals(rank: int) -> dict[str, str]:
    """Messages of trainings that ranks cannot do."""
    problem = make(arrays(), rank)
    return {
        "valen": message(lambda: train(problem, METHODS["valen"]())),
        "pico": message(lambda: train(problem, METHODS["pico"]())),
        "clsp": message(lambda: train(problem, Proden(), find_clsp())),
        "seeds": message(lambda: train(make(arrays(), rank, seeds=(3, 4 + rank)), Proden())),
        "recipe": message(lambda: train(problem, Proden(), epochs=2 + rank)),
        "devices": message(lambda: train(problem, Proden(), device="cpu,cpu")),
        "held_out": message(lambda: train(problem, Proden(), held_out=[[], []])),
    }


def find_clsp() -> Cleaner:
    from candidly.cleaning import Clsp

    return Clsp()


def join(rank: int, size: int, folder: Path, name: str = "store") -> None:
    """Make this process a rank."""
    torch.set_num_threads(1)
    nets.HIDDEN = 24
    fitting._AGREE_EVERY = 4  # of 9 steps in an epoch
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", init_method=f"file://{folder / name}", rank=rank, world_size=size)


def main(rank: int, size: int, folder: Path) -> None:
    """Train all cases, and write what they give."""
    join(rank, size, folder)
    for name, run in CASES.items():
        states.write(folder / f"{name}-{rank}", result(run(rank)), {})
    states.write(folder / f"refusals-{rank}", {}, refusals(rank))
    checkpoints(rank, folder)
    distributed.destroy_process_group()


def frame(rank: int | None) -> tuple[pa.Table, list[list[str]]]:
    """A table in which each shard has a class and a category that the other one has not."""
    whole = arrays()
    late = np.arange(len(whole["X"])) >= SHARDS[0]
    names = np.array(["a", "b", "c", "d"])
    colour = np.where(late, "red", np.where(whole["y"] > 1, "green", "blue")).astype(object)
    colour[::17] = None
    S = whole["S"].copy()
    S[:, 3] &= late
    S[:, 0] &= ~late
    S[~S.any(1), 1] = True
    numbers = {f"x{j}": whole["X"][:, j] * (1 + 9 * late) for j in range(FEATURES)}
    table = pa.table(numbers | {"colour": pa.array(colour, pa.string())})
    own = range(len(late)) if rank is None else range(sum(SHARDS[:rank]), sum(SHARDS[: rank + 1]))
    return table.take(pa.array(own)), [names[S[i]].tolist() for i in own]


CLASSIFIERS: dict[str, dict[str, Any]] = {
    "folds": {"folds": 3, "alpha": 0.2},
    "one fold": {"folds": 1, "validation_fraction": 0.5, "early_stopping": True, "cleaner": None, "net": "linear"},
    "sampled": {"folds": 2, "members": 2, "alpha": 0.2},  # with a sample of 150 rows
}


def classify(name: str, rank: int | None) -> PartialLabelClassifier:
    """Fit a classifier, without a random state on ranks: they share that of rank 0."""
    X, y = frame(rank)
    settings = {"max_epochs": 2, "device": "cpu", "random_state": 5, "force_cleaning": True} | CLASSIFIERS[name]
    if rank == 1:
        settings["random_state"] = None
    most, precise = 150 if name == "sampled" else 10**5, partial(Problem.of, dtype=torch.float64)
    with patch.object(sharing, "MOST_ROWS", most), patch.object(Problem, "of", precise):
        return PartialLabelClassifier(**settings).fit(X, y, shards=SHARDS if rank is None else 1)


def classified(classifier: PartialLabelClassifier) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What is compared: local results, and what all ranks share."""
    X, _ = frame(None)
    found = {"p": torch.tensor(classifier.predict_proba(X)), "sets": torch.tensor(classifier.predict_p(X))}
    found |= {"own.kept": torch.tensor(classifier.candidates_.matrix), "limits": torch.tensor(classifier.limits_)}
    found |= {"own.q": torch.tensor(classifier.candidate_proba_), "counts": classifier.calibration_.counts}
    facts = {"features": classifier.features_.to_json(), "classes": classifier.classes_.tolist()}
    facts |= {"trained on": classifier.trained_on_, "sample": len(classifier.fit_record_.candidates)}
    return found, facts


def classifiers(rank: int, size: int, folder: Path) -> None:
    """Fit all classifiers; rank 0 saves them."""
    join(rank, size, folder)
    for name in CLASSIFIERS:
        classifier = classify(name, rank)
        states.write(folder / f"classifier {name}-{rank}", *classified(classifier))
        classifier.save(folder / f"saved {name}")
        states.write(
            folder / f"classifier {name} again-{rank}", *classified(classifier.set_params(alpha=0.4).reclean())
        )


def interrupted(problem: Problem, folder: Path, epochs: int, **keywords: Any) -> Model:
    """A training of 4 epochs with checkpoints in each; fewer end in the middle of one."""
    recipe = Recipe(epochs=4, batch_size=BATCH)
    watched = {"held_out": held_out(problem), "patience": 4}
    cleaner = Conformal(rule="permanent", warmup=1, calibration="holdout", stop=1.0)
    method = make_method("crosel")
    if epochs < 4:
        keywords["stop"] = _After(epochs * 5)
    return train(problem, method, cleaner, recipe=recipe, checkpoint=folder, every=1, **watched, **keywords)


class _After:
    """Is set after being asked a number of times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def checkpoints(rank: int, folder: Path) -> None:
    """An interrupted training: once to be continued by ranks, once by a single process."""
    whole = interrupted(make(arrays(), rank, standardise=True), folder / "whole", 4)
    states.write(folder / f"whole-{rank}", result(whole), {})
    for place in ("ranks", "process"):
        try:
            interrupted(make(arrays(), rank, standardise=True), folder / place, 1)
        except KeyboardInterrupt:
            continue
        raise AssertionError("it was not interrupted")
    again = interrupted(make(arrays(), rank, standardise=True), folder / "ranks", 4)
    states.write(folder / f"again-{rank}", result(again), {})


def endless(rank: int, size: int, folder: Path, epochs: int) -> None:
    """A training that is long enough to be killed; write the result, or what the error says and when."""
    join(rank, size, folder.parent, f"{folder.name}-store")
    try:
        recipe = Recipe(epochs=epochs, batch_size=BATCH)
        problem = make(arrays(), rank)
        model = train(
            problem, make_method("balanced"), CLEANERS["conformal"], recipe=recipe, checkpoint=folder, every=1
        )
    except RankLost as error:
        (folder / f"lost-{rank}").write_text(f"{time.time()} {error}")
    else:
        states.write(folder / f"result-{rank}", result(model), {})
