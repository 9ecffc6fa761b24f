import hashlib
import json
import linecache
import os
import re
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from candidly.bench import Spec, read, sweep, sweeps
from candidly.bench import datasets as sets
from candidly.bench import run as runs
from candidly.bench.run import Run
from candidly.data import Dataset, load
from candidly.data.protocols import PROTOCOLS
from candidly.engine import fitting
from candidly.engine.fitting import fit
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.methods import Proden
from candidly.store.lock import locked

SHORT = Recipe("short", epochs=12, batch_size=16)


@dataclass
class Broken(Proden):
    """Fails in its first step."""

    def step(self, batch, phase):
        raise RuntimeError("no step today")


@dataclass
class Deadly(Proden):
    """Ends its process."""

    def step(self, batch, phase):
        os._exit(9)


@dataclass
class Nested(Proden):
    """Has settings of many kinds."""

    table: dict
    part: object
    group: set
    ragged: tuple


def spec_of(table, **changes):
    given = {"datasets": (str(table),), "methods": ("proden", "conf+cc"), "seeds": (0, 3), "recipe": SHORT}
    return Spec(**(given | changes))


@pytest.fixture(scope="module")
def swept(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    spec = spec_of(table, inits=2)
    return spec, out, sweep(spec, out, device="cpu")


def find(outcome, name):
    (folder,) = [folder for folder in outcome.done if f"-{name}-" in folder.name]
    return folder


def test_folders(swept):
    _, out, outcome = swept
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in outcome.done)
    for folder in outcome.done:
        assert sorted(path.name for path in folder.iterdir()) == ["done", "predictions.parquet", "summary.json"]
        for line in (folder / "done").read_text().splitlines():
            digest, name = line.split()
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert {path.name.rsplit("-", 1)[0] for path in outcome.done} == {"flowers-proden", "flowers-conf+cc"}


def test_seeds_that_do_not_fit_into_memory_together_are_trained_in_groups(swept, tmp_path, monkeypatch):
    spec, _, stacked = swept
    monkeypatch.setattr(fitting, "count_groups", lambda *_, **__: 3)
    outcome = sweep(spec, tmp_path, device="cpu")
    for name in ("proden", "conf+cc"):
        one, other = (
            pq.read_table(find(found, name) / "predictions.parquet").to_pydict() for found in (stacked, outcome)
        )
        assert list(one["row"]) == list(other["row"])
        assert np.allclose(one["probability"], other["probability"], atol=1e-3)


def test_predictions_are_those_of_a_fit(swept, table):
    _, _, outcome = swept
    dataset, protocol = load(table), PROTOCOLS["default"]
    splits = [protocol.rows(dataset, seed) for seed in (0, 0, 3, 3)]
    problem = Problem.of(
        dataset.X, dataset.S, rows=[train for train, _ in splits], seeds=[0, 1000, 3, 1003], standardise=True
    )
    p = fit(problem, Proden(), None, SHORT, device="cpu").predict(dataset.X)
    lines = pq.read_table(find(outcome, "proden") / "predictions.parquet").to_pylist()
    names = ["dataset", "method", "seed", "split", "row", "true", "predicted", "probability", "init"]
    assert list(lines[0]) == names
    assert len(lines) == 4 * 60
    for run, (seed, init) in enumerate([(0, 0), (0, 1), (3, 0), (3, 1)]):
        mine = [line for line in lines if (line["seed"], line["init"]) == (seed, init)]
        assert {line["row"] for line in mine if line["split"] == "test"} == set(splits[run][1].tolist())
        for line in mine:
            assert line["true"] == dataset.classes[dataset.y[line["row"]]]
            assert line["predicted"] == dataset.classes[p[run, line["row"]].argmax()]
            assert line["probability"] == pytest.approx(p[run, line["row"]].max().item())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_images_are_trained_on_as_bytes_and_seen_scaled(tmp_path, monkeypatch, protocol):
    y = np.arange(60) % 3
    X = (np.random.default_rng(0).integers(0, 160, (60, 3, 3)) + 40 * y[:, None, None]).astype(np.uint8)
    dataset = Dataset("toy", X, np.eye(3, dtype=bool)[y], y, ("x", "y", "z"), num_train=45)
    dataset = replace(dataset, groups=np.arange(60) // 5)
    spec = Spec(("toy",), ("proden",), seeds=(0,), recipe=SHORT, protocol=protocol)
    (run,) = Run.all_of(spec, dataset, "toy", tmp_path)
    held = []
    monkeypatch.setattr(runs, "fit", lambda *given, **named: held.append(given[0]) or fit(*given, **named))
    runs.execute(run, spec, dataset, device="cpu", progress=False)
    assert (held[0].X.dtype, held[0].X.shape) == (torch.uint8, (60, 9))
    problem = Problem.of(X.reshape(60, 9) / 255, dataset.S, rows=[np.arange(45)], seeds=[0])
    p = fit(problem, Proden(), None, SHORT, device="cpu").predict(X.reshape(60, 9) / 255)[0]
    lines = pq.read_table(run.folder / "predictions.parquet").to_pylist()
    assert len(lines) == 60
    for line in lines:  # 36 steps let roundings grow, but not to a thousandth
        assert line["predicted"] == dataset.classes[p[line["row"]].argmax()]
        assert line["probability"] == pytest.approx(p[line["row"]].max().item(), abs=1e-3)


@pytest.fixture
def grouped_table(table, tmp_path):
    """The table with groups of 5, 10, 15 and 30 rows."""
    head, *lines = table.read_text().splitlines()
    path = tmp_path / "grouped.csv"
    groups = np.repeat(np.arange(4), [5, 10, 15, 30])
    rows = [f"{line},scene {group}" for line, group in zip(lines, groups, strict=True)]
    path.write_text("\n".join([f"{head},groups", *rows]) + "\n")
    return path


def test_test_groups_never_train(grouped_table, tmp_path):
    spec = spec_of(grouped_table, methods=("conf+cc",), protocol="grouped")
    (folder,) = sweep(spec, tmp_path, device="cpu").done
    sizes = []
    for seed in (0, 3):
        lines = [line for line in pq.read_table(folder / "predictions.parquet").to_pylist() if line["seed"] == seed]
        train, test = ({line["row"] for line in lines if line["split"] == split} for split in ("train", "test"))
        group = np.repeat(np.arange(4), [5, 10, 15, 30])
        assert train | test == set(range(60))
        assert not {group[row] for row in train} & {group[row] for row in test}
        sizes.append((len(train), len(test)))
    assert sizes[0] != sizes[1], "runs of one fit have different numbers of training rows"
    found = json.loads((folder / "summary.json").read_text())["sizes"]
    assert found == {"train": np.mean(sizes, axis=0)[0], "test": np.mean(sizes, axis=0)[1]}


def test_groups_are_part_of_a_grouped_run(grouped_table, tmp_path):
    dataset = load(grouped_table)
    others = replace(dataset, groups=np.arange(60) // 2)
    for protocol in PROTOCOLS:
        spec = spec_of(grouped_table, protocol=protocol)
        one, two = ([run.folder for run in Run.all_of(spec, given, "x", tmp_path)] for given in (dataset, others))
        assert (one != two) == (protocol == "grouped")


def test_a_dataset_without_groups_does_not_stop_the_others(table, grouped_table, tmp_path):
    spec = spec_of(grouped_table, datasets=(str(table), str(grouped_table)), methods=("proden",), protocol="grouped")
    outcome = sweep(spec, tmp_path, device="cpu")
    assert len(outcome.done) == 1
    assert list(outcome.failed) == [str(table)]
    assert "'flowers' has no groups" in outcome.failed[str(table)]


def test_summary_agrees_with_the_predictions(swept):
    spec, _, outcome = swept
    for folder in outcome.done:
        summary = json.loads((folder / "summary.json").read_text())
        assert (summary["sizes"], summary["seeds"]) == ({"train": 48, "test": 12}, [0, 3])
        lines = pq.read_table(folder / "predictions.parquet").to_pylist()
        for split in ("train", "test"):
            found = np.array(summary["metrics"][f"{split}_accuracy"])
            for k, seed in enumerate(spec.seeds):
                for init in range(2):
                    chosen = [
                        line["true"] == line["predicted"]
                        for line in lines
                        if (line["seed"], line["init"], line["split"]) == (seed, init, split)
                    ]
                    assert found[k, init] == pytest.approx(np.mean(chosen))
        assert np.mean(summary["metrics"]["test_accuracy"]) > 0.8
        assert summary["versions"]["torch"] == torch.__version__
        assert summary["config"]["recipe"]["epochs"] == 12
    cleaned = json.loads((find(outcome, "conf+cc") / "summary.json").read_text())["metrics"]
    plain = json.loads((find(outcome, "proden") / "summary.json").read_text())["metrics"]
    assert (
        np.max(plain["pruning_coverage"]) == np.max(plain["pruning_error"]) == 0 < np.max(cleaned["pruning_coverage"])
    )


def test_done_runs_are_skipped(swept):
    spec, out, _ = swept
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = sweep(spec, out, device="cpu")
    assert (len(again.done), len(again.skipped)) == (0, 2)
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*")}


@pytest.mark.parametrize(
    "change", [{"seeds": (0,)}, {"inits": 1}, {"protocol": "uai2025"}, {"recipe": Recipe("short", epochs=11)}]
)
def test_another_configuration_is_another_run(swept, table, change):
    spec, out, _ = swept
    dataset = sets.load(str(table), out)
    one = Run.all_of(spec, dataset, str(table), out)[0]
    other = Run.all_of(spec_of(table, **({"inits": 2} | change)), dataset, str(table), out)[0]
    assert one.done
    assert one.folder != other.folder
    assert not other.done


def test_a_run_without_its_mark_is_done_again(tmp_path, table):
    spec = spec_of(table, methods=("proden",), seeds=(0,))
    (folder,) = sweep(spec, tmp_path, device="cpu").done
    content = (folder / "predictions.parquet").read_bytes()
    (folder / "done").unlink()
    (folder / "predictions.parquet").write_bytes(content[:100])
    (folder / "predictions-0123456789abcdef.tmp").write_bytes(b"half")
    assert sweep(spec, tmp_path, device="cpu").done == (folder,)
    assert (folder / "predictions.parquet").read_bytes() == content
    assert not list(folder.glob("*.tmp"))


@pytest.mark.parametrize("name", ["done", "predictions.parquet", "summary.json"])
def test_a_changed_run_is_noticed_and_done_again(name, tmp_path, table):
    spec = spec_of(table, methods=("proden",), seeds=(0,))
    (folder,) = sweep(spec, tmp_path, device="cpu").done
    path, scores = folder / name, read(tmp_path).cells
    predictions = (folder / "predictions.parquet").read_bytes()
    content = path.read_bytes()
    digits = (b"0123456789", b"1234567890") if name == "done" else (b"0", b"1")  # every checksum has digits
    path.write_bytes(content.translate(bytes.maketrans(*digits)))
    if name != "predictions.parquet":  # which a table does not read
        with pytest.raises(ValueError, match=r"summary.json or .*done is damaged or was changed: the checksums differ"):
            read(tmp_path)
    with pytest.warns(UserWarning, match="missing or were changed, so these are trained again: .*flowers-proden"):
        assert sweep(spec, tmp_path, device="cpu").done == (folder,)
    assert (folder / "predictions.parquet").read_bytes() == predictions
    assert read(tmp_path).cells == scores
    (folder / "lock").touch()  # of a process that was killed at the very end
    assert sweep(spec, tmp_path, device="cpu").skipped == (folder,)
    assert sorted(path.name for path in folder.iterdir()) == ["done", "predictions.parquet", "summary.json"]


def test_a_failed_run_keeps_its_traceback_and_stops_nothing(tmp_path, table):
    spec = spec_of(table, methods=("broken", "proden"), seeds=(0,), own={"broken": Broken()})
    outcome = sweep(spec, tmp_path, device="cpu")
    assert len(outcome.done) == 1
    assert "RuntimeError: no step today" in outcome.failed["flowers broken"]
    (trace,) = tmp_path.glob("*broken*/failed.txt")
    assert "in step" in trace.read_text()
    assert str(trace) in str(outcome)

    trace.write_text("RuntimeError: the old failure")
    assert "the old failure" in sweep(spec, tmp_path, device="cpu").failed["flowers broken"]
    assert "no step today" in sweep(spec, tmp_path, device="cpu", retry_failed=True).failed["flowers broken"]

    mended = spec_of(table, methods=("broken",), seeds=(0,), own={"broken": Proden()})
    other = sweep(mended, tmp_path, device="cpu")
    assert len(other.done) == 1, "another class is another configuration"


def test_a_success_clears_the_failure(tmp_path, table, monkeypatch):
    spec = spec_of(table, methods=("proden",), seeds=(0,))
    with monkeypatch.context() as patch:
        patch.setattr(Proden, "step", Broken.step)
        assert sweep(spec, tmp_path, device="cpu").failed
    (folder,) = sweep(spec, tmp_path, device="cpu", retry_failed=True).done
    assert not (folder / "failed.txt").exists()


def test_reasons_are_the_first_line_of_an_error(tmp_path, table, monkeypatch):
    def step(self, batch, phase):
        raise RuntimeError("bad weather\n  hint: wait")

    monkeypatch.setattr(Proden, "step", step)
    reason = sweep(spec_of(table, methods=("proden",)), tmp_path, device="cpu").failed["flowers proden"]
    assert reason.startswith("RuntimeError: bad weather (traceback in ")
    assert "--retry-failed" in reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError("disk fell out"), "OSError: disk fell out"),
        (OSError(28, "No space left on device"), "no space left where output is written"),
        (MemoryError(), "not enough memory"),
        (torch.OutOfMemoryError("card full"), "not enough memory (card full); use fewer members"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "not enough memory"),
        (RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable"), "the device failed"),
    ],
)
def test_the_machines_faults_are_tried_again(tmp_path, table, monkeypatch, capsys, error, reason):
    def step(self, batch, phase):
        raise error

    spec = spec_of(table, methods=("proden",), seeds=(0,))
    with monkeypatch.context() as patch:
        patch.setattr(Proden, "step", step)
        outcome = sweep(spec, tmp_path, device="cpu", progress=True)
    assert not outcome.failed
    assert reason in outcome.postponed["flowers proden"]
    assert "0 failed, 1 to try again\n" in str(outcome)
    assert "flowers proden was not trained, the next call tries again: " in capsys.readouterr().out
    assert not list(tmp_path.rglob("failed.txt"))
    assert len(sweep(spec, tmp_path, device="cpu").done) == 1


def test_a_run_that_needs_more_memory_than_there_is_is_tried_again(tmp_path, table):
    spec = spec_of(table, methods=("proden",), seeds=(0,), recipe=Recipe(epochs=10**11))
    outcome = sweep(spec, tmp_path, device="cpu")
    assert re.search(r"at least .* are needed on cpu, .* use fewer epochs", outcome.postponed["flowers proden"])
    assert not list(tmp_path.rglob("failed.txt"))


@pytest.mark.parametrize(
    "device",
    ["foo", pytest.param("cuda", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA"))],
)
def test_a_wrong_device_marks_nothing(tmp_path, table, device):
    with pytest.raises(ValueError, match=f"device is '{device}'"):
        sweep(spec_of(table), tmp_path, device=device)
    assert not list(tmp_path.iterdir())


def test_a_file_that_changes_is_another_dataset(tmp_path, table):
    path = tmp_path / "flowers.csv"
    lines = table.read_text().splitlines(keepends=True)
    spec = spec_of(path, methods=("proden",), seeds=(0,))
    for number in (61, 50):
        path.write_text("".join(lines[:number]))
        (folder,) = sweep(spec, tmp_path / "runs", device="cpu").done
        sizes = json.loads((folder / "summary.json").read_text())["sizes"]
        assert sizes["train"] + sizes["test"] == number - 1


@pytest.fixture
def loaded(monkeypatch):
    """Which datasets were loaded and hashed, in their order."""
    calls = {"load": [], "fingerprint": []}

    def load_and_note(name, *arguments):
        calls["load"].append(name)
        return load_dataset(name, *arguments)

    def hash_and_note(dataset, **options):
        calls["fingerprint"].append(dataset.name)
        return fingerprint(dataset, **options)

    load_dataset, fingerprint = sets.load, sets.fingerprint
    monkeypatch.setattr(sets, "load", load_and_note)
    monkeypatch.setattr(sets, "fingerprint", hash_and_note)
    monkeypatch.setattr(runs, "fingerprint", hash_and_note)
    return calls


def two_files(tmp_path, table):
    lines = table.read_text().splitlines(keepends=True)
    (tmp_path / "one.csv").write_text("".join(lines))
    (tmp_path / "two.csv").write_text("".join(lines[:-1]))
    return [str(tmp_path / name) for name in ("one.csv", "two.csv")]


def test_a_dataset_is_loaded_and_hashed_once(tmp_path, table, loaded):
    files = two_files(tmp_path, table)
    spec = spec_of(table, datasets=files, seeds=(0,), recipe=Recipe("short", epochs=1, batch_size=16))
    assert len(sweep(spec, tmp_path / "runs", device="cpu").done) == 4
    assert loaded == {"load": files, "fingerprint": ["one", "two"]}
    assert not sweeps._held, "nothing stays in memory"
    assert len(sweep(spec, tmp_path / "runs", device="cpu").skipped) == 4
    assert loaded["load"] == 2 * files, "the next sweep looks at the files again"


def test_what_does_not_fit_in_memory_is_loaded_again(tmp_path, table, loaded, monkeypatch):
    files = two_files(tmp_path, table)
    spec = spec_of(table, datasets=files, seeds=(0,), recipe=Recipe("short", epochs=1, batch_size=16))
    monkeypatch.setattr(sweeps, "_HELD_BYTES", sweeps._num_bytes(load(table)))
    assert len(sweep(spec, tmp_path / "runs", device="cpu").done) == 4
    assert loaded["load"] == [*files, files[1]], "the first one is in memory when its runs train"


def test_a_file_that_changes_meanwhile_is_noticed_by_workers(tmp_path, table, monkeypatch):
    path = tmp_path / "flowers.csv"
    lines = table.read_text().splitlines(keepends=True)
    lines[1:] = lines[:0:-1]  # other content than in other tests, whose workers may still hold it
    path.write_text("".join(lines))
    resolve = sweeps._resolve

    def resolve_and_change(*arguments):
        found = resolve(*arguments)
        path.write_text("".join(lines[:50]))
        return found

    monkeypatch.setattr(sweeps, "_resolve", resolve_and_change)
    outcome = sweep(spec_of(path, seeds=(0,)), tmp_path / "runs", device="cpu", jobs=2)
    assert outcome.postponed.keys() == {"flowers proden", "flowers conf+cc"}
    assert all("changed during the sweep; start the sweep again" in reason for reason in outcome.postponed.values())


def test_files_of_one_name_are_refused(tmp_path, table):
    path = tmp_path / "other" / table.name
    path.parent.mkdir()
    path.write_text(table.read_text())
    spec = spec_of(table, datasets=(str(table), str(path)), methods=("proden",), seeds=(0,))
    outcome = sweep(spec, tmp_path / "runs", device="cpu")
    assert len(outcome.done) == 1
    assert "would both be called 'flowers'" in outcome.failed[str(path)]


def test_what_another_process_trains_is_left_to_it(tmp_path, table):
    spec = spec_of(table, methods=("proden", "cc"), seeds=(0,))
    first, _ = Run.all_of(spec, sets.load(str(table), tmp_path), str(table), tmp_path)
    with locked(first.folder / "lock", wait=False) as mine:
        assert mine
        outcome = sweep(spec, tmp_path, device="cpu")
    assert (outcome.elsewhere, outcome.failed, outcome.postponed) == ((first.folder,), {}, {})
    assert len(outcome.done) == 1
    assert str(outcome) == "runs: 1 done, 0 done before, 0 failed, 1 being trained elsewhere"
    assert len(sweep(spec, tmp_path, device="cpu").done) == 1


@pytest.mark.parametrize("ending", ["done", "failed"])
def test_what_another_process_ended_meanwhile_is_not_trained(tmp_path, table, monkeypatch, ending):
    spec = spec_of(table, methods=("broken" if ending == "failed" else "proden",), own={"broken": Broken()}, seeds=(0,))
    resolve, trained = sweeps._tidy, []

    def tidy_while_another_trains(waiting, resting):
        resolve(waiting, resting)
        monkeypatch.setattr(sweeps, "_tidy", resolve)
        trained.append(sweep(spec, tmp_path, device="cpu"))
        monkeypatch.setattr(sweeps, "execute", None)  # calling it would fail the run in another way

    monkeypatch.setattr(sweeps, "_tidy", tidy_while_another_trains)
    outcome = sweep(spec, tmp_path, device="cpu")
    assert (outcome.done, outcome.postponed) == ((), {})
    assert outcome.skipped == trained[0].done
    assert outcome.failed == trained[0].failed
    assert len(outcome.skipped if ending == "done" else outcome.failed) == 1


def test_a_run_that_ends_while_runs_are_listed_is_not_called_damaged(tmp_path, table, monkeypatch):
    spec = spec_of(table, methods=("proden",), seeds=(0,))
    failed = Run.failed

    def failed_after_another_trained(run):
        monkeypatch.setattr(Run, "failed", failed)
        assert len(sweep(spec, tmp_path, device="cpu").done) == 1
        return False

    monkeypatch.setattr(Run, "failed", property(failed_after_another_trained))
    assert len(sweep(spec, tmp_path, device="cpu").skipped) == 1  # a warning would be an error


def test_failures_in_workers_are_kept(tmp_path, table):
    """One worker dies, and one raises an error."""
    own = {"deadly": Deadly(), "broken": Broken()}
    spec = spec_of(table, methods=("deadly", "broken", "proden"), seeds=(0,), own=own)
    outcome = sweep(spec, tmp_path, device="cpu", jobs=2)
    assert outcome.postponed == {"flowers deadly": "a worker process died, perhaps for lack of memory"}
    assert outcome.failed.keys() == {"flowers broken"}
    assert "no step today" in outcome.failed["flowers broken"]
    assert len(outcome.done) == 1, "the other run is not lost"
    assert ["broken" in path.parent.name for path in tmp_path.rglob("failed.txt")] == [True]


@pytest.mark.parametrize(("settings", "same"), [(1, True), (2, False)])
def test_settings_of_every_kind_are_hashed(tmp_path, table, settings, same):
    def folder(value):
        own = {"mine": Nested({"a": value}, Proden() if value == 1 else Broken(), {value}, (value, [value]))}
        spec = spec_of(table, methods=("mine",), own=own)
        return Run.all_of(spec, sets.load(str(table), tmp_path), str(table), tmp_path)[0].folder

    assert (folder(1) == folder(settings)) == same


def test_the_code_of_own_methods_is_hashed(tmp_path, table):
    def folder(number):
        path = tmp_path / "mine.py"
        path.write_text(f"from candidly.methods import Proden\nclass Mine(Proden):\n    number = {number}\n")
        linecache.clearcache()
        scope = {"__name__": "mine"}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        module = types.ModuleType("mine")
        module.__file__, module.Mine = str(path), scope["Mine"]
        sys.modules["mine"] = module
        spec = spec_of(table, methods=("mine",), own={"mine": scope["Mine"]()})
        return Run.all_of(spec, sets.load(str(table), tmp_path), str(table), tmp_path)[0].folder

    try:
        assert folder(1) == folder(1) != folder(2)
    finally:
        del sys.modules["mine"]


def test_a_recipes_name_is_not_hashed(tmp_path, table):
    dataset = sets.load(str(table), tmp_path)
    folders = {
        Run.all_of(spec_of(table, recipe=recipe), dataset, str(table), tmp_path)[0].folder
        for recipe in (Recipe("a", epochs=3, max_lr=1), Recipe("b", epochs=3, max_lr=1.0))
    }
    assert len(folders) == 1


def test_the_rate_that_a_method_has_by_itself_is_hashed_as_if_it_were_named(tmp_path, table):
    dataset = sets.load(str(table), tmp_path)

    def runs(rate):
        spec = spec_of(table, methods=("proden", "lws"), recipe=Recipe("a", epochs=3, max_lr=rate))
        return {run.method: run.folder for run in Run.all_of(spec, dataset, str(table), tmp_path)}

    assert runs(None) == {"proden": runs(0.01)["proden"], "lws": runs(0.001)["lws"]}


def test_a_missing_dataset_stops_nothing(tmp_path, table, monkeypatch):
    monkeypatch.setenv("CANDIDLY_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spec = spec_of(table, datasets=("soccer", str(table)), methods=("proden",), seeds=(0,))
    outcome = sweep(spec, tmp_path / "runs", device="cpu")
    assert len(outcome.done) == 1
    assert "soccer.mat was not found" in outcome.failed["soccer"]


def test_jobs_give_the_same_predictions(swept, tmp_path):
    spec, _, one_at_a_time = swept
    outcome = sweep(spec, tmp_path, device="cpu", jobs=2)
    assert not outcome.failed
    theirs = {path.name: (path / "predictions.parquet").read_bytes() for path in outcome.done}
    assert theirs == {path.name: (path / "predictions.parquet").read_bytes() for path in one_at_a_time.done}


@pytest.mark.gpu
def test_streams_give_the_same_predictions(tmp_path, table):
    spec = spec_of(table)
    folders = [tmp_path / str(jobs) for jobs in (1, 4)]
    for jobs, folder in zip((1, 4), folders, strict=True):
        assert not sweep(spec, folder, device="cuda", jobs=jobs).failed
    one, four = (sorted(folder.glob("*/predictions.parquet")) for folder in folders)
    assert [path.parent.name for path in one] == [path.parent.name for path in four]
    assert len(one) == len(spec.combinations())
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in four]


@pytest.mark.parametrize(
    ("place", "epochs", "trained"),
    [((Proden, "step"), 1000, 0), ((sweeps._End, "__str__"), 12, 2)],
    ids=["training", "reporting"],
)
def test_an_interrupt_ends_threads(place, epochs, trained, tmp_path, table, monkeypatch):
    """What CUDA's threads do, on a CPU: those that train stop between two steps, and nothing else begins."""
    begun, ended, methods = [], [], ("proden", "cc", "rc", "cavl", "pop")

    def interrupted(*args):
        raise KeyboardInterrupt

    def training(*args, **keywords):
        begun.append(args[1])
        model = fit(*args, **keywords)
        ended.append(args[1])
        return model

    monkeypatch.setattr(sweeps, "Processes", ThreadPoolExecutor)
    monkeypatch.setattr(runs, "fit", training)
    monkeypatch.setattr(*place, interrupted)
    spec = spec_of(table, methods=methods, recipe=Recipe("test", epochs=epochs, batch_size=16))
    with pytest.raises(KeyboardInterrupt) as kept:  # as in a notebook, where the traceback outlives the call
        sweep(spec, tmp_path, device="cpu", jobs=2, progress=True)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
    assert 1 <= len(begun) < len(methods)
    assert len(ended) <= trained
    assert kept.traceback


def test_jobs_must_be_positive(tmp_path, table):
    with pytest.raises(ValueError, match="jobs is 0"):
        sweep(spec_of(table), tmp_path, jobs=0)


def test_progress_tells_what_is_left(tmp_path, table, capsys):
    sweep(spec_of(table, seeds=(0,)), tmp_path, device="cpu", progress=True)
    out = capsys.readouterr().out
    assert "[1/2] flowers proden: test accuracy" in out
    assert "[2/2] flowers conf+cc: test accuracy" in out
    assert "; 0 s left" in out


def test_rows_without_true_labels(tmp_path, table):
    lines = [line.rpartition(",")[0] for line in table.read_text().splitlines()]
    path = tmp_path / "unlabelled.csv"
    path.write_text("\n".join(lines) + "\n")
    (folder,) = sweep(spec_of(path, methods=("proden",), seeds=(0,)), tmp_path / "runs", device="cpu").done
    summary = json.loads((folder / "summary.json").read_text())
    assert set(summary["metrics"]) == {"pruning_coverage", "test_covering_rate"}
    assert pq.read_table(folder / "predictions.parquet")["true"].null_count == 60
