"""Kill a process before every operation on files of everything that candidly writes.

Run as a program, it prints for each scenario the number of crash points, and what was lost or left behind:

    python -m tests.robustness.crash_points [SCENARIO...]

A child process is killed before each creation of a file or folder, before and amid each write, before each fsync,
rename, removal, change of mode and lock. Which operations there are is found by counting them, not listed here. After
each kill the old or the new content must be complete; after the next successful call, nothing else may be left.
"""

import builtins
import io
import json
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv  # what is imported late would be imported by every child
import pyarrow.parquet
import torch
import torch._dynamo

from candidly import PartialLabelClassifier, Problem, Recipe, fit
from candidly.bench import Spec, marker, read, sweep
from candidly.candidates import Candidates, encode
from candidly.engine.model import Model
from candidly.methods import Proden
from candidly.store import states
from candidly.tables import files

OLD_MODEL = Path(__file__).parents[1] / "estimator" / "saved_0_1" / "model"
KILLED = 77
_PATHS = {"open": 0, "os.rename": 1, "os.remove": 0, "os.mkdir": 0, "os.rmdir": 0, "os.chmod": 0, "os.link": 1}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Scenario:
    """What is written over what.

    Attributes
    ----------
    prepare : callable
        Writes the old content to a new folder.
    act : callable
        Writes the new content to the folder.
    look : callable
        Returns what the folder holds, "old" or "new"; raises if it is neither, or incomplete.
    files : tuple of str
        What is left after `act`, without hashes.
    """

    prepare: Callable[[Path], Any]
    act: Callable[[Path], Any]
    look: Callable[[Path], str]
    files: tuple[str, ...]


class Killer:
    """Counts operations below a folder, and ends the process before one of them."""

    def __init__(self, root: Path, at: int | None):
        self.root, self.at, self.count = os.path.realpath(root), at, 0
        real_open = builtins.open

        def counting_open(path: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
            if "b" in mode and set(mode) & set("wx") and self.is_below(path):
                return Writing(io.FileIO(path, mode.replace("b", "")), self.point)
            return real_open(path, mode, *more, **options)

        builtins.open, os.fsync = counting_open, lambda handle: self.point()
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        changes = event != "open" or arguments[2] & _WRITES
        if event == "fcntl.flock" or (event in _PATHS and changes and self.is_below(arguments[_PATHS[event]])):
            self.point()

    def is_below(self, path: Any) -> bool:
        """Return whether a path lies in the folder; a relative one is within a folder that is being removed."""
        if isinstance(path, int):
            return False
        text = os.fsdecode(path)
        return text.startswith(self.root) or not os.path.isabs(text)

    def point(self) -> None:
        self.count += 1
        if self.count == self.at:
            os._exit(KILLED)


class Writing(io.BufferedWriter):
    """A file of which half of each write reaches the disk before the other half."""

    def __init__(self, raw: io.FileIO, point: Callable[[], None]):
        super().__init__(raw)
        self.point = point

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.point()
        super().write(view[: len(view) // 2])
        super().flush()
        self.point()
        super().write(view[len(view) // 2 :])
        return len(view)


def kill(scenario: Scenario, root: Path, at: int | None) -> int:
    """Write the new content in a child process, and kill it before an operation; return how many there are."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            killer = Killer(root, at)
            scenario.act(root)
            os.write(send, str(killer.count).encode())
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as pipe:
        found = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != (0 if at is None else KILLED):
        raise RuntimeError(f"the child process ended with status {status}")
    return int(found or 0)


def contents(root: Path) -> tuple[str, ...]:
    """Return the names of all files, without hashes."""
    names = (str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())
    return tuple(sorted(re.sub("-[0-9a-f]{16}", "-#", name) for name in names))


def play(scenario: Scenario, place: Path) -> dict[str, Any]:
    """Kill a writer before each of its operations; return the number of these and what went wrong."""
    base, root = place / "base", place / "work"
    base.mkdir()
    scenario.prepare(base)

    def restore() -> None:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(base, root)

    restore()
    points = kill(scenario, root, None)
    lost, left, seen = [], [], []
    for at in range(1, points + 1):
        restore()
        kill(scenario, root, at)
        try:
            seen.append(scenario.look(root))
        except Exception as error:
            lost.append(f"{at}: {error!r}")
        try:
            scenario.act(root)
            if scenario.look(root) != "new" or contents(root) != scenario.files:
                left.append(f"{at}: {contents(root)}")
        except Exception as error:
            lost.append(f"{at}, then: {error!r}")
    return {"points": points, "old": seen.count("old"), "new": seen.count("new"), "lost": lost, "left": left}


def small_problem(seed: int) -> Problem:
    X = np.arange(12, dtype=np.float32).reshape(6, 2)
    return Problem.of(X, np.eye(2, dtype=bool)[[0, 1, 0, 1, 0, 1]] | (X[:, :1] > 6), seeds=[seed])


def small_fit(seed: int = 0, **options: Any) -> Model:
    recipe = Recipe(epochs=2, batch_size=6)
    return fit(small_problem(seed), Proden(), recipe=recipe, net="linear", device="cpu", progress=False, **options)


def model_scenarios() -> dict[str, Scenario]:
    old, new = small_fit(1), small_fit(2)
    classifier = PartialLabelClassifier.load(OLD_MODEL)
    history = classifier.model_.history
    other = replace(classifier.model_, history=history | {"number": history["loss"]})

    def look(root: Path) -> str:
        if not (root / "model" / "model.json").exists():
            return "old"
        found = Model.load(root / "model")
        whole = old if found.problem.seeds == old.problem.seeds else new
        assert all(np.array_equal(values, whole.history[name]) for name, values in found.history.items())
        return "old" if whole is old else "new"

    def prepare_0_1(root: Path) -> None:
        shutil.copytree(OLD_MODEL, root / "model")
        for leftover in ("tmp", "old"):
            shutil.copytree(OLD_MODEL, root / f".model-0123456789abcdef.{leftover}")

    def act_0_1(root: Path) -> None:
        changed = PartialLabelClassifier.load(OLD_MODEL)
        changed.model_ = other
        changed.save(root / "model", {"report.json": b"new"})

    def look_0_1(root: Path) -> str:
        found = PartialLabelClassifier.load(root / "model")
        is_new = "number" in found.model_.history
        more = states.read_more(root / "model", "report.json" if is_new else "findings.json")
        assert more == (b"new" if is_new else (OLD_MODEL / "findings.json").read_bytes())
        return "new" if is_new else "old"

    pair = ("model/model-#.safetensors", "model/model.json")
    return {
        "new model": Scenario(lambda root: None, lambda root: new.save(root / "model"), look, pair),
        "model": Scenario(lambda root: old.save(root / "model"), lambda root: new.save(root / "model"), look, pair),
        "model of 0.1": Scenario(prepare_0_1, act_0_1, look_0_1, ("model/model-#.report.json", *pair)),
    }


def table_scenario(name: str) -> Scenario:
    tables = {word: pa.table({"x": [word] * 100}) for word in ("old", "new")}

    def look(root: Path) -> str:
        (word,) = set(files.read(root / name)["x"].to_pylist())
        assert files.read(root / name).num_rows == 100
        return str(word)

    return Scenario(
        lambda root: files.write(tables["old"], root / name),
        lambda root: files.write(tables["new"], root / name),
        look,
        (name,),
    )


def candidates_scenario() -> Scenario:
    sets = {"old": encode([["a", "b"], ["b"]]), "new": encode([["a"], ["b"]])}

    def look(root: Path) -> str:
        digest = Candidates.load(root).digest
        return next(word for word, one in sets.items() if one.digest == digest)

    return Scenario(
        lambda root: sets["old"].save(root),
        lambda root: sets["new"].save(root),
        look,
        ("candidates-#.safetensors", "candidates.json"),
    )


def checkpoint_scenario() -> Scenario:
    whole = small_fit()
    finished = outcome_of(whole)

    def act(root: Path) -> None:
        assert outcome_of(small_fit(checkpoint=root / "checkpoint", every=1)) == finished

    def look(root: Path) -> str:
        if not (root / "checkpoint" / "state.json").exists():
            return "old"
        return "new" if states.read(root / "checkpoint")[1]["epoch"] == 2 else "old"

    return Scenario(lambda root: None, act, look, ("checkpoint/state-#.safetensors", "checkpoint/state.json"))


def outcome_of(model: Model) -> str:
    return repr([model.predict(np.eye(2, dtype=np.float32)).tolist(), model.history["loss"].tolist()])


@dataclass
class Broken(Proden):
    """A method that fails."""

    def step(self, batch: Any, phase: Any) -> Any:
        raise RuntimeError("no step")


def run_scenarios(place: Path) -> dict[str, Scenario]:
    rows = np.random.default_rng(0).normal(size=(30, 2)).round(3)
    lines = ["a,b,candidates,label", *(f"{a},{b},{'xy'[int(a > 0)]},{'xy'[int(a > 0)]}" for a, b in rows)]
    table = place / "flowers.csv"
    table.write_text("\n".join(lines) + "\n")
    recipe = Recipe("short", epochs=1, batch_size=32)
    spec = Spec((f"{table}+uniform-0.5",), ("proden",), seeds=(0,), recipe=recipe)
    failing = replace(spec, methods=("broken",), own={"broken": Broken()})
    sweep(spec, place / "reference", device="cpu")
    (reference,) = place.glob("reference/*/predictions.parquet")

    def act(root: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of runs that are trained again
            outcome = sweep(spec, root, device="cpu")
        assert not outcome.failed, outcome

    def look(root: Path) -> str:
        finished = [folder for folder in root.glob("flowers*") if marker.is_intact(folder)]
        for folder in finished:
            assert (folder / "predictions.parquet").read_bytes() == reference.read_bytes()
            assert read(folder).cells
        return "new" if finished else "old"

    def damage(root: Path) -> None:
        act(root)
        (path,) = root.glob("*/predictions.parquet")
        path.write_bytes(b"damaged")

    def fail(root: Path) -> None:
        sweep(failing, root, device="cpu")

    def look_failing(root: Path) -> str:
        reasons = [path.read_text() for path in root.glob("*/failed.txt")]
        assert all("no step" in reason for reason in reasons)
        return "new" if reasons else "old"

    made = ("candidates/uniform-#/candidates-#.safetensors", "candidates/uniform-#/candidates.json")
    run = f"{reference.parent.name.rpartition('-')[0]}-#"
    done = tuple(sorted((*made, *(f"{run}/{name}" for name in (*marker.FILES, marker.NAME)))))
    failed = tuple(sorted((*made, f"{run.replace('proden', 'broken')}/failed.txt")))
    return {
        "run": Scenario(lambda root: None, act, look, done),
        "damaged run": Scenario(damage, act, look, done),
        "failing run": Scenario(lambda root: None, fail, look_failing, failed),
    }


def all_scenarios(place: Path) -> dict[str, Scenario]:
    """Return the scenarios by name."""
    found = model_scenarios() | {name: table_scenario(name) for name in ("t.csv", "t.csv.gz", "t.parquet")}
    return found | {"candidates": candidates_scenario(), "checkpoint": checkpoint_scenario()} | run_scenarios(place)


def main(wanted: list[str]) -> None:
    torch.set_num_threads(1)
    os.fsync = lambda handle: None  # it matters to a power failure, not to a kill, and takes most of the time
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        found = {}
        for name, scenario in all_scenarios(place).items():
            if name in wanted or not wanted:
                (place / "scenario").mkdir()
                found[name] = play(scenario, place / "scenario")
                shutil.rmtree(place / "scenario")
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
