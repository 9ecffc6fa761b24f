"""Tables in several files: results equal those of one table in memory, a killed run goes on, and errors are plain."""

import csv
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from candidly.cli import app as cli
from candidly.tables import delimited, files, streams

ROLES = ("--candidates", "tags", "--id", "key", "--labels", "true")
TRAINING = ("--epochs", "2", "--folds", "2", "--device", "cpu")


def make(rows: int, seed: int = 0) -> pa.Table:
    """Return rows whose first half has integers, digits and nothing where the second has other values."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=rows)
    names = np.array(["ant", "=bee", "cat,owl"])
    late = np.arange(rows) >= rows // 2
    number = np.round(y * 2 + rng.normal(size=rows), 3)
    return pa.table(
        {
            "key": [f"{i:05}" for i in range(rows)],
            "late": pa.array(np.where(late, number, np.round(number)), mask=~late & (np.arange(rows) % 3 == 0)),
            "code": np.where(late, np.array(["red", "7a"])[y % 2], np.array(["01", "02"])[y % 2]),
            "flag": pa.array(y > 0, mask=np.arange(rows) % 5 == 0),
            "day": np.datetime64("2020-01-01") + y,
            "text": [["a\nb", 'say "x"', "=1+1"][k] for k in rng.integers(3, size=rows)],
            "x": y + rng.normal(size=rows),
            "tags": [sorted({names[j], names[k]}) for j, k in zip(y, rng.integers(3, size=rows), strict=True)],
            "true": [None if i % 4 == 0 else name for i, name in enumerate(names[y])],
        }
    )


WHOLE, NEW = make(220), make(150, seed=1)


def run(*arguments: object) -> None:
    cli.main([str(one) for one in arguments] + ["--quiet"])


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as end:
        run(*arguments)
    assert end.value.code in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    return line


def cut(table: pa.Table, folder: Path, cuts: list[int], suffix: str) -> str:
    """Write a table in files; return their pattern."""
    folder.mkdir()
    ends = [0, *sorted(cuts), table.num_rows]
    for i, (start, end) in enumerate(itertools.pairwise(ends)):
        if end > start:
            files.write(table.slice(start, end - start), folder / f"part-{i:02}{suffix}")
    return f"{folder}/part-*{suffix}"


def read_rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def without_priority(path: Path) -> bytes:
    rows = list(csv.reader(io.StringIO(path.read_text(), newline="")))
    kept = [j for j, name in enumerate(rows[0]) if name != "priority"]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([row[j] for j in kept] for row in rows)
    return text.getvalue().encode()


def assert_equal(whole: Path, folder: Path) -> None:
    """Assert that results in a folder, one after the other, are those of the whole table, without priorities."""
    parts = sorted(folder.glob(f"part-*{whole.suffix}"))
    if whole.suffix == ".csv":
        headers = {part.read_bytes().partition(b"\n")[0] for part in parts}
        rows = b"".join(part.read_bytes().partition(b"\n")[2] for part in parts)
        assert [header + b"\n" + rows for header in headers] == [without_priority(whole)]
        return
    expected = files.read(whole)
    expected = expected.drop_columns([name for name in expected.column_names if name == "priority"])
    assert pa.concat_tables(map(files.read, parts)).combine_chunks().equals(expected.combine_chunks())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, tables in both formats, and the results of the commands in memory."""
    folder = tmp_path_factory.mktemp("models")
    for suffix in (".csv", ".parquet"):
        files.write(WHOLE, folder / f"whole{suffix}")
        files.write(NEW, folder / f"new{suffix}")
    run("fit", folder / "whole.csv", *ROLES, *TRAINING, "--out", folder / "model")
    for suffix in (".csv", ".parquet"):
        for name in ("whole", "new"):
            source = folder / f"{name}{suffix}"
            run("clean", source, "--model", folder / "model", "--out", folder / f"clean-{name}{suffix}")
        sets = ("--alpha", "0.2", "--max-risk", "0.2")
        run("predict", folder / "model", folder / f"new{suffix}", "--out", folder / f"predict{suffix}", *sets)
    return folder


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cuts=st.lists(st.integers(0, NEW.num_rows), max_size=4),
    suffix=st.sampled_from([".csv", ".parquet"]),
    block=st.sampled_from([7, 64, 1000]),
    piece=st.integers(200, 6000),
)
def test_files_cut_anywhere_give_the_results_of_the_whole_table(
    models: Path, tmp_path_factory: pytest.TempPathFactory, cuts: list[int], suffix: str, block: int, piece: int
) -> None:
    place = tmp_path_factory.mktemp("cut")
    source = cut(NEW, place / "in", cuts, suffix)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "_PIECE", piece)
        patch.setattr(streams, "BLOCK_ROWS", block)
        run("clean", source, "--model", models / "model", "--out", f"{place}/clean/")
        run(
            *("predict", models / "model", place / "in", "--out", place / "predict"),
            *("--alpha", "0.2", "--max-risk", "0.2"),
        )
    assert_equal(models / f"clean-new{suffix}", place / "clean")
    assert_equal(models / f"predict{suffix}", place / "predict")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_rows_that_the_model_was_trained_on_keep_their_held_out_results(
    models: Path, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = cut(WHOLE, tmp_path / "in", [50, 51], suffix)
    cli.main(["clean", source, "--model", str(models / "model"), "--out", f"{tmp_path}/out/", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["training_rows"] == WHOLE.num_rows
    assert_equal(models / f"clean-whole{suffix}", tmp_path / "out")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_training_on_all_rows_equals_training_in_memory(models: Path, tmp_path: Path, suffix: str) -> None:
    source = cut(WHOLE, tmp_path / "in", [100, 150], suffix)
    run("clean", source, *ROLES, *TRAINING, "--train-rows", "1000", "--out", f"{tmp_path}/out/")
    run("clean", models / f"whole{suffix}", *ROLES, *TRAINING, "--out", tmp_path / f"memory{suffix}")
    assert_equal(tmp_path / f"memory{suffix}", tmp_path / "out")


def test_a_sample_trains_and_other_rows_are_cleaned_by_the_limits(tmp_path: Path) -> None:
    source = cut(WHOLE, tmp_path / "in", [70, 160], ".csv")
    options = (*ROLES, *TRAINING, "--train-rows", "120")
    run("clean", source, *options, "--out", f"{tmp_path}/out/")
    manifest = streams.read_manifest(tmp_path / "out")
    totals = manifest["totals"]
    assert (manifest["rows"], totals["rows"], totals["training_rows"]) == (220, 220, 120)
    found = [row for i in range(3) for row in read_rows(tmp_path / "out" / f"part-{i:02}.csv")]
    assert totals["candidates_before"] == sum(len(row["candidates"].split("|")) for row in found)
    assert totals["candidates_after"] == sum(len(row["kept"].split("|")) for row in found)
    assert totals["changed"] == sum(row["removed"] != "" for row in found)
    assert totals["truth"]["rows"] == sum(row["true"] != "" for row in found)
    assert totals["truth"]["lost"] == sum(row["true"] in row["removed"].split("|") for row in found if row["true"])
    assert totals["truth"]["right"] == sum(row["true"] == row["predicted"] for row in found)
    # The same rows are drawn however the table is cut, and its saved model cleans the others alike.
    other = cut(WHOLE, tmp_path / "other", [9], ".csv")
    run("clean", other, *options, "--out", f"{tmp_path}/again/")
    again = [row for i in range(2) for row in read_rows(tmp_path / "again" / f"part-{i:02}.csv")]
    assert again == found
    saved = tmp_path / "out" / "_candidly" / "model"
    run("clean", other, "--model", saved, "--out", f"{tmp_path}/limits/")
    limits = [row for i in range(2) for row in read_rows(tmp_path / "limits" / f"part-{i:02}.csv")]
    assert sum(one != two for one, two in zip(found, limits, strict=True)) <= 120
    assert sum(one == two for one, two in zip(found, limits, strict=True)) >= 100


def test_shards_train_once_and_give_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from candidly import PartialLabelClassifier

    source = cut(WHOLE, tmp_path / "in", [40, 90, 150], ".csv")
    options = (*ROLES, *TRAINING, "--train-rows", "120")
    fit, fits = PartialLabelClassifier.fit, []
    monkeypatch.setattr(PartialLabelClassifier, "fit", lambda *given, **more: fits.append(1) or fit(*given, **more))
    for i in (3, 1, 2):
        run("clean", source, *options, "--shard", f"{i}/3", "--out", f"{tmp_path}/shards/")
    assert len(fits) == 1
    run("clean", source, *options, "--out", f"{tmp_path}/alone/")
    for name in (*(f"part-{i:02}.csv" for i in range(4)), "_manifest.json"):
        assert (tmp_path / "shards" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


# One interpreter imports everything once, and forks a process for every moment.
KILL = """
import os, signal, sys, warnings
import torch
torch.set_num_threads(1)
from candidly import store
from candidly.cli import app, streams as commands
from candidly.estimator import crossfit
from candidly.store import files as store_files
from candidly.tables import parts, streams

def die(*arguments, **keywords):
    os.kill(os.getpid(), signal.SIGKILL)

def when(function, condition):
    return lambda *given, **more: die() if condition(*given, **more) else function(*given, **more)

def training():
    crossfit.out_of_fold = die

def within_a_file():
    write = parts.BlockWriter.write
    def dying(self, table):
        write(self, table)
        if "part-01" in str(self.target):
            die()
    parts.BlockWriter.write = dying

def before_renaming():
    os.replace = when(os.replace, lambda old, new: "part-01.csv" in str(new) and "_candidly" not in str(new))

def before_the_record():
    store.replace = when(store.replace, lambda path, data: path.name == "part-01.csv.json")

def between_files():
    streams.Stream._write = when(streams.Stream._write, lambda self, part, *more: part.name == "part-02.csv")

def before_the_manifest():
    streams.Stream._manifest = die

children = []
for moment in sys.argv[1].split(","):
    child = os.fork()
    if child == 0:
        locals()[moment]()
        app.main([*sys.argv[2:], "--quiet", "--out", f"{moment}/"])
        os._exit(0)
    children.append(child)
print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""
MOMENTS = ("training", "within_a_file", "before_renaming", "before_the_record", "between_files", "before_the_manifest")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes and kills them")
def test_a_killed_run_goes_on_and_ends_like_an_undisturbed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cut(WHOLE, Path("in"), [70, 160], ".csv")
    command = ["clean", "in/part-*.csv", *ROLES, *TRAINING, "--train-rows", "120"]
    run(*command, "--out", "whole/")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
    }
    start = [sys.executable, "-W", "ignore", "-c", KILL, ",".join(MOMENTS), *command]
    killed = subprocess.run(start, env=environment, check=True, capture_output=True, text=True, timeout=300)
    assert killed.stdout.split() == [str(-signal.SIGKILL)] * len(MOMENTS)
    for moment in MOMENTS:
        assert not Path(moment, "_manifest.json").exists()
        run(*command, "--out", f"{moment}/")
        assert _content(Path(moment)) == _content(Path("whole")), moment


def _content(folder: Path) -> dict[str, bytes]:
    """Return all files but those that hold the time of the training."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith("_candidly/model/model")}


def test_changed_options_are_refused_in_one_line(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = cut(NEW, tmp_path / "in", [70], ".csv")
    command = ("predict", models / "model", source, "--out", f"{tmp_path}/out/")
    run(*command)
    assert "alpha was null, and now it is 0.1; name a new folder" in refused(capsys, *command, "--alpha", "0.1")
    message = refused(capsys, "clean", source, "--model", models / "model", "--out", f"{tmp_path}/out/")
    assert "holds results of `candidly predict`" in message


def test_errors_name_options_files_and_rows(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = cut(NEW, tmp_path / "in", [70], ".csv")
    model, out = ("--model", models / "model"), ("--out", f"{tmp_path}/out/")
    assert "is several files" in refused(capsys, "clean", source, *model, "--out", tmp_path / "one.csv")
    assert "no file matches" in refused(capsys, "clean", f"{tmp_path}/no-*.csv", *model, *out)
    assert "neither --train-rows nor --model was given" in refused(capsys, "clean", source, *ROLES, *out)
    both = refused(capsys, "clean", source, *model, "--train-rows", "100", *out)
    assert "--train-rows and --model were both given" in both
    few = refused(capsys, "clean", source, *ROLES, "--train-rows", "5", *out)
    assert "--train-rows is 5" in few
    alone = refused(capsys, "clean", tmp_path / "in/part-00.csv", *model, "--shard", "1/2", "--out", tmp_path / "a.csv")
    assert "--shard applies to results in a folder" in alone
    assert "--shard is '5/2'" in refused(capsys, "clean", source, *model, *out, "--shard", "5/2")
    inside = refused(capsys, "clean", tmp_path / "in", *model, "--out", tmp_path / "in")
    assert "lies in" in inside
    assert "where results are written" in inside


@pytest.mark.parametrize(
    ("column", "cell", "wrong"),
    [
        ("tags", "", "row 12 has no candidates"),
        ("tags", "gnu", "row 12 has the name 'gnu', which is not a class of the model"),
        ("x", "much", "has 'much' in row 12, column 'x'"),
        ("x", "inf", "has inf in row 12, column 'x'"),
        ("key", "", "row 12 has no id in column 'key'"),
    ],
)
def test_a_bad_row_is_named(
    models: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    column: str,
    cell: str,
    wrong: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delimited, "_PIECE", 200)
    monkeypatch.setattr(streams, "BLOCK_ROWS", 5)
    source = cut(NEW, tmp_path / "in", [70], ".csv")
    path = tmp_path / "in" / "part-01.csv"
    rows = list(csv.reader(io.StringIO(path.read_text(), newline="")))
    rows[13][rows[0].index(column)] = cell
    with open(path, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    message = refused(capsys, "clean", source, "--model", models / "model", "--out", f"{tmp_path}/out/")
    assert "part-01.csv" in message
    assert wrong in message
    assert (tmp_path / "out" / "part-00.csv").exists()
    assert not (tmp_path / "out" / "part-01.csv").exists()


def test_a_bad_row_of_the_sample_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = cut(WHOLE, tmp_path / "in", [70], ".csv")
    path = tmp_path / "in" / "part-01.csv"
    text = path.read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(text) if line.startswith("00090"))
    text[first] = text[first].replace("00090", "00003", 1)
    path.write_text("".join(text))
    message = refused(capsys, "clean", source, *ROLES, *TRAINING, "--train-rows", "1000", "--out", f"{tmp_path}/out/")
    assert f"row 3 of {tmp_path}/in/part-00.csv and row 20 of {tmp_path}/in/part-01.csv have the same id" in message


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_stream_is_certified_like_a_table(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    source = cut(WHOLE, tmp_path / "in", [70, 160], suffix)
    folder, options = tmp_path / "out", (*ROLES, *TRAINING, "--train-rows", "1000")
    run("clean", source, *options, "--force-cleaning", "--out", f"{folder}/")
    plan = ("verify", "plan", folder, "--rows", "60", "--alpha", "0.2", "--out", tmp_path / "check.csv")
    run(*plan, "--table", source, "--drop", "x")
    rows = read_rows(tmp_path / "check.csv")
    assert list(rows[0]) == [
        *("plan", "row", "file", "key", "late", "code", "flag", "day", "text", "candidates", "answer")
    ]
    true = dict(enumerate(make_labels()))
    for row in rows:
        assert row["key"] == f"{int(row['row']):05}"
        row["answer"] = true[int(row["row"])]
    with open(tmp_path / "answers.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    cli.main(["certify", str(folder), str(tmp_path / "answers.csv"), "--out", f"{tmp_path}/certified/", "--json"])
    facts = json.loads(capsys.readouterr().out)
    if suffix == ".parquet":
        # Trained on all rows, the levels are those of the model, and so is the certificate of the same answers.
        model = folder / "_candidly" / "model"
        from candidly import PartialLabelClassifier
        from candidly.cleaning import certify

        classifier = PartialLabelClassifier.load(model)
        record, _, levels = classifier._rules()
        recorded = certify.VerificationPlan.from_json(facts["plan"])
        numbers = {name: j for j, name in enumerate(record.candidates.classes)}
        answers = {int(row["row"]): numbers[row["answer"]] for row in rows}
        expected = certify.certify(recorded, levels, record.held_out, record.candidates, answers, 0.9)
        assert facts["limit"] == expected.limit
        kept = [
            row
            for part in sorted((tmp_path / "certified").glob("*.parquet"))
            for row in files.read(part)["kept"].to_pylist()
        ]
        assert kept == [list(names) for names in expected.candidates.decode()]
        assert json.loads(json.dumps(expected.to_json())) == {
            name: value for name, value in facts.items() if name != "cleaned"
        }
    assert facts["statement"].startswith("With 90% confidence, at most")
    assert facts["plan"]["n"] == 220
    assert json.loads((tmp_path / "certified" / "_certificate.json").read_text())["statement"] == facts["statement"]
    run("verify", "export", folder, "--out", tmp_path / "again.csv")
    assert [row["row"] for row in read_rows(tmp_path / "again.csv")] == [row["row"] for row in rows]
    # A changed result would have other levels.
    part = folder / f"part-01{suffix}"
    part.write_bytes(part.read_bytes() + b"\n")
    assert "was changed since it was written" in refused(capsys, *plan)


def make_labels() -> list[str]:
    """Return the true labels of WHOLE."""
    y = np.random.default_rng(0).integers(3, size=220)
    return np.array(["ant", "=bee", "cat,owl"])[y].tolist()


def test_drawn_rows_are_uniform_over_the_stream() -> None:
    from candidly.cli.streams import draw_sample

    counts = np.zeros(50)
    for seed in range(400):
        drawn = draw_sample(50, 10, seed)
        assert len(set(drawn.tolist())) == 10
        assert (np.diff(drawn) > 0).all()
        counts[drawn] += 1
    assert ((counts - 80) ** 2 / (80 * 0.8)).sum() < 90  # 49 degrees of freedom; 0.03 % of samples exceed it


def test_numbers_of_many_rows_keep_their_digits() -> None:
    """The distribution function of the certificate at a billion rows, against exact integers."""
    from fractions import Fraction
    from math import comb

    from candidly.cleaning.exact import p_value

    population, allowed, checked, losses = 10**9, 5 * 10**7, 60, 1
    marked = allowed + 1 + losses
    exact = sum(
        Fraction(comb(marked, x) * comb(population - marked, checked - x), comb(population, checked))
        for x in range(losses + 1)
    )
    assert exact <= p_value(losses, population, allowed, checked) <= exact * (1 + Fraction(2, 10**7))


MEMORY = """
import re
from candidly.cli import app
def peak():  # ru_maxrss would include the memory of the parent process
    return int(re.search(r"VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())[1]) / 1024
for source, out in (("few", "a/"), ("many", "b/")):
    app.main(["clean", source, "--model", "model", "--out", out, "--quiet"])
    print(peak(), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory in kilobytes")
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from candidly import PartialLabelClassifier
    from candidly.tables import Schema

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)

    def rows(number: int) -> pa.Table:
        y = rng.integers(2, size=number)
        X = (y[:, None] + rng.normal(size=(number, 20))).astype(np.float32)
        return pa.table({f"x{j}": X[:, j] for j in range(20)} | {"tags": np.array(["a", "a|b"])[y]})

    table = rows(300)
    classifier = PartialLabelClassifier(
        net="linear", max_epochs=1, folds=2, separator="|", force_cleaning=True, random_state=0
    )
    classifier.fit(table.drop_columns(["tags"]), table["tags"].to_pylist())
    classifier.schema_ = Schema("tags")
    classifier.save("model", lean=True)
    table = rows(150_000)
    for folder in ("few", "many"):
        Path(folder).mkdir()
    files.write(table, Path("few", "part-0.parquet"))
    for i in range(6):
        shutil.copy(Path("few", "part-0.parquet"), Path("many", f"part-{i}.parquet"))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEMORY], env=environment, capture_output=True, text=True
    )
    few, many = map(float, done.stdout.split())
    assert many - few < 50, done.stderr  # MB; the rows take 90 MB more
