import hashlib
import json
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from candidly.bench import Spec, sets, sweep
from candidly.bench.__main__ import main
from candidly.bench.run import Run
from candidly.data import load
from candidly.data.protocols import PROTOCOLS
from candidly.engine import fit
from candidly.methods import Proden
from candidly.problem import Problem
from candidly.recipe import Recipe

SHORT = Recipe("short", epochs=12, batch_size=16)


@dataclass
class Broken(Proden):
    """Fails in its first step."""

    def step(self, batch, phase):
        raise RuntimeError("no step today")


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


def test_predictions_are_those_of_a_fit(swept, table):
    _, _, outcome = swept
    dataset, protocol = load(table), PROTOCOLS["default"]
    splits = [protocol.rows(dataset, seed) for seed in (0, 0, 3, 3)]
    problem = Problem.of(
        dataset.X, dataset.S, rows=[train for train, _ in splits], seeds=[0, 1000, 3, 1003], standardise=True
    )
    p = fit(problem, Proden(), None, SHORT, device="cpu").predict(dataset.X)
    lines = pq.read_table(find(outcome, "proden") / "predictions.parquet").to_pylist()
    names = ["dataset", "method", "seed", "split", "row", "true", "predicted", "confidence", "init"]
    assert list(lines[0]) == names
    assert len(lines) == 4 * 60
    for run, (seed, init) in enumerate([(0, 0), (0, 1), (3, 0), (3, 1)]):
        mine = [line for line in lines if (line["seed"], line["init"]) == (seed, init)]
        assert {line["row"] for line in mine if line["split"] == "test"} == set(splits[run][1].tolist())
        for line in mine:
            assert line["true"] == dataset.classes[dataset.y[line["row"]]]
            assert line["predicted"] == dataset.classes[p[run, line["row"]].argmax()]
            assert line["confidence"] == pytest.approx(p[run, line["row"]].max().item())


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


def test_done_runs_are_skipped(swept, table):
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


def test_a_run_without_its_mark_is_done_again(swept, tmp_path, table):
    spec = spec_of(table, methods=("proden",), seeds=(0,))
    (folder,) = sweep(spec, tmp_path, device="cpu").done
    content = (folder / "predictions.parquet").read_bytes()
    (folder / "done").unlink()
    (folder / "predictions.parquet").write_bytes(content[:100])
    (folder / "predictions-0123456789abcdef.tmp").write_bytes(b"half")
    assert sweep(spec, tmp_path, device="cpu").done == (folder,)
    assert (folder / "predictions.parquet").read_bytes() == content
    assert not list(folder.glob("*.tmp"))


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


def test_the_module_runs_a_file(tmp_path, table, capsys):
    path = tmp_path / "spec.toml"
    text = f'datasets = ["{table}"]\nmethods = ["proden"]\nseeds = "0-1"\n[recipe]\nname = "short"\nepochs = 2\n'
    path.write_text(text)
    arguments = [str(path), "--out", str(tmp_path / "runs"), "--device", "cpu"]
    assert main(arguments) == 0
    assert "1 runs done, 0 were done before, 0 failed" in capsys.readouterr().out
    assert main(arguments) == 0
    assert "0 runs done, 1 were done before" in capsys.readouterr().out
    path.write_text(text.replace(table.name, "nothing.csv"))
    assert main(arguments) == 1
    assert "nothing.csv" in capsys.readouterr().out


def test_the_module_refuses_a_bad_file(tmp_path, capsys):
    (tmp_path / "spec.toml").write_text("datasets = 3")
    with pytest.raises(SystemExit) as stop:
        main([str(tmp_path / "spec.toml")])
    assert stop.value.code == 2
    assert "spec.toml" in capsys.readouterr().err.splitlines()[-1]
