"""Flip single bits of saved files, and read them again.

Run as a program, with the number of flips per file, it prints for each file how many were noticed, how many changed
nothing, and which changed a result unnoticed or raised an unclear error:

    python -m tests.robustness.bit_flips 1000 [FILE...]
"""

import json
import random
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from candidly import PartialLabelClassifier, Problem, Recipe, fit
from candidly.bench import Spec, marker, read, sweep
from candidly.candidates import Candidates, encode
from candidly.engine.description import describe
from candidly.methods import Proden
from candidly.store import states
from candidly.tables import files

OLD = Path(__file__).parents[1] / "estimator" / "saved_0_1"


@dataclass(frozen=True)
class Target:
    """A file, and a function that returns everything that is read from it, as text."""

    name: str
    path: Path
    look: Callable[[], str]


class Damaged(ValueError):
    """A run folder counts as unfinished: it is trained again, with a warning."""


def model_targets(place: Path) -> Iterator[Target]:
    rows = files.read(OLD / "rows.csv", texts=["key"])
    candidates = [text.split("|") for text in rows["tags"].to_pylist()] * 5
    settings = {"net": "linear", "folds": 2, "max_epochs": 2, "force_cleaning": True, "device": "cpu"}
    classifier = PartialLabelClassifier(**settings, random_state=0)
    classifier.fit(pa.concat_tables([rows] * 5).select(["size", "colour"]), candidates)
    classifier.save(place, {"report.json": b'{"rows": 24}'})

    def look() -> str:
        found = PartialLabelClassifier.load(place)
        X = rows.select(found.features_.names_)
        model = {name: values.tolist() for name, values in found.model_.history.items()}
        parts = [found.predict_proba(X).tolist(), found.predict_p(X).tolist(), found.classes_.tolist(), found.schema_]
        record = {name: part.tolist() for name, part in found.fit_record_.tensors().items()}
        parts += [record, found.fit_record_.seconds, found.audit(), found.limits_.tolist(), found.alpha_]
        return repr(
            [*parts, describe(found.get_params()), found.trained_on_, model, found.model_.recipe, found.model_.cleaner]
        )

    def look_more() -> str:
        return repr(states.read_more(place, "report.json"))

    yield Target("model.json", place / "model.json", lambda: look() + look_more())
    yield Target("model.safetensors", next(place.glob("*.safetensors")), look)
    yield Target("report.json", next(place.glob("*.report.json")), look_more)


def checkpoint_targets(place: Path) -> Iterator[Target]:
    X = np.arange(12, dtype=np.float32).reshape(6, 2)
    problem = Problem.of(X, np.eye(2, dtype=bool)[[0, 1, 0, 1, 0, 1]] | (X[:, :1] > 6))

    class Interrupted(Proden):
        """Stops after the second epoch."""

        def epoch_end(self, epoch: int, sweep: Any) -> None:
            super().epoch_end(epoch, sweep)
            if epoch == 1:
                stop.set()

    stop = threading.Event()
    recipe = Recipe(epochs=3, batch_size=3)
    same = {"recipe": recipe, "net": "linear", "device": "cpu", "progress": False}
    try:
        fit(problem, Interrupted(), checkpoint=place / "first", stop=stop, **same)
    except KeyboardInterrupt:
        stop.clear()
    work = place / "work"
    shutil.copytree(place / "first", work)

    def look() -> str:
        # Training goes on in a copy, because it replaces the checkpoint.
        shutil.rmtree(place / "copy", ignore_errors=True)
        shutil.copytree(work, place / "copy")
        model = fit(problem, Interrupted(), checkpoint=place / "copy", **same)
        return repr([model.predict(X).tolist(), {name: values.tolist() for name, values in model.history.items()}])

    yield Target("state.json", work / "state.json", look)
    yield Target("state.safetensors", next(work.glob("*.safetensors")), look)


def candidates_targets(place: Path) -> Iterator[Target]:
    encode([["a", "b"], ["b"], ["c"]] * 20).save(place, {"seed": 3})

    def look() -> str:
        found = Candidates.load(place)
        return repr([found.matrix.tolist(), found.classes, states.read(place, stem="candidates")[1]["facts"]])

    yield Target("candidates.json", place / "candidates.json", look)
    yield Target("candidates.safetensors", next(place.glob("*.safetensors")), look)


def run_targets(place: Path) -> Iterator[Target]:
    rows = np.random.default_rng(0).normal(size=(30, 2)).round(3)
    lines = ["a,b,candidates,label"]
    for number, (a, b) in enumerate(rows):
        label = "xy"[int(a > 0)]
        lines.append(f"{a},{b},{'x|y' if number % 3 else label},{label}")
    place.mkdir()
    (place / "flowers.csv").write_text("\n".join(lines) + "\n")
    spec = Spec((str(place / "flowers.csv"),), ("proden",), seeds=(0, 1), recipe=Recipe("short", epochs=1))
    (folder,) = sweep(spec, place / "runs", device="cpu").done

    def look_table() -> str:
        return repr(read(folder).cells)

    def look_marker() -> str:
        found = look_table()
        if not marker.is_intact(folder):  # the sweep trains the run again
            raise Damaged
        return found

    yield Target("done", folder / "done", look_marker)
    yield Target("done, by the table", folder / "done", look_table)
    yield Target("summary.json", folder / "summary.json", look_table)
    yield Target("predictions.parquet", folder / "predictions.parquet", look_marker)


def play(target: Target, flips: int) -> dict[str, Any]:
    """Flip bits of a file, one at a time; return what came of it."""
    good, expected = target.path.read_bytes(), target.look()
    assert target.look() == expected
    chance = random.Random(target.name)
    bits = chance.sample(range(8 * len(good)), min(flips, 8 * len(good)))
    found: dict[str, Any] = {"flips": len(bits), "noticed": 0, "same": 0, "unnoticed": [], "unclear": []}
    for bit in bits:
        changed = bytearray(good)
        changed[bit // 8] ^= 1 << bit % 8
        target.path.write_bytes(changed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                seen = target.look()
        except (ValueError, OSError):
            found["noticed"] += 1
        except Exception as error:
            found["unclear"].append(f"bit {bit}: {error!r}")
        else:
            if seen == expected:
                found["same"] += 1
            else:
                found["unnoticed"].append(f"bit {bit}")
    target.path.write_bytes(good)
    return found


MAKERS = {
    "model": model_targets,
    "checkpoint": checkpoint_targets,
    "candidates": candidates_targets,
    "run": run_targets,
}


def main(flips: int, wanted: list[str]) -> None:
    torch.set_num_threads(1)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in MAKERS.items():
            for target in make(Path(folder, name)):
                if target.name in wanted or not wanted:
                    found[target.name] = play(target, flips)
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
