"""clean and audit with a model that was already trained, and what fit writes for them."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest

from candidly import PartialLabelClassifier
from candidly.cli import app as cli
from candidly.cli.options import TrainingOptions
from candidly.tables import files
from tests.cli.test_commands import LARGE, ROLES, make, run

TRAINING = ("--epochs", "15", "--folds", "2", "--device", "cpu")
NEW = make(150).slice(120)  # rows that are not in LARGE


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model, the same without rows, and the table that was written with it."""
    folder = tmp_path_factory.mktemp("models")
    files.write(LARGE, folder / "large.csv")
    for name, more in (("model", ("--cleaned", str(folder / "fitted.csv"))), ("lean", ("--lean",))):
        out = ("--out", str(folder / name), "--quiet", *more)
        cli.main(["fit", str(folder / "large.csv"), *ROLES, *TRAINING, *out])
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch, models):
    files.write(LARGE, tmp_path / "large.csv")
    files.write(NEW, tmp_path / "new.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_training(monkeypatch):
    def fail(*arguments, **keywords):
        raise AssertionError("a model was trained")

    monkeypatch.setattr(PartialLabelClassifier, "fit", fail)


def refused(capsys, *arguments):
    """Return the error of a command, which must be one line."""
    with pytest.raises(SystemExit) as end:
        cli.main([str(argument) for argument in arguments])
    assert end.value.code in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_clean_fit_and_a_reused_model_write_the_same_table(place, models, capsys):
    run(capsys, "clean", "large.csv", *ROLES, *TRAINING, "--out", "trained.csv")
    out = run(capsys, "clean", "large.csv", "--model", models / "model", "--out", "reused.csv").out
    expected = (place / "trained.csv").read_bytes()
    assert (place / "reused.csv").read_bytes() == expected
    assert (models / "fitted.csv").read_bytes() == expected
    assert f"{models / 'model'} was trained on this table: its held-out results were used, without training" in out


def test_an_audit_of_a_reused_model_is_the_same(place, models, capsys, no_training):
    facts = json.loads(run(capsys, "audit", "large.csv", "--model", models / "model", "--json").out)
    assert (facts["new_rows"], facts["alpha"]) == (False, 0.05)
    loaded = PartialLabelClassifier.load(models / "model")
    expected = loaded.audit(LARGE["label"].to_pylist()).to_json()
    assert facts["audit"]["levels"] == expected["levels"]
    assert facts["audit"]["levels"][0]["true_lost"] is not None  # the column of labels is that of the training


def test_another_level_needs_no_training(place, models, capsys):
    other = ("--alpha", "0.001")
    run(capsys, "clean", "large.csv", *ROLES, *TRAINING, *other, "--out", "trained.csv", "--report", "a.html")
    run(capsys, "clean", "large.csv", "--model", models / "model", *other, "--out", "reused.csv", "--report", "b.html")
    assert (place / "trained.csv").read_bytes() == (place / "reused.csv").read_bytes()
    assert (place / "trained.csv").read_bytes() != (models / "fitted.csv").read_bytes()
    for page in ("a.html", "b.html"):
        assert "at most 0.1% of the rows lose" in (place / page).read_text()
    facts = json.loads(run(capsys, "audit", "large.csv", "--model", models / "model", *other, "--json").out)
    assert facts["alpha"] == 0.001
    assert 0.001 in [level["alpha"] for level in facts["audit"]["levels"]]


@pytest.mark.parametrize("name", ["model", "lean"])
def test_new_rows_are_cleaned_by_the_limits(place, models, capsys, no_training, name):
    out = run(capsys, "clean", "new.csv", "--model", models / name, "--out", "kept.parquet").out
    assert f"{models / name} was not trained on these rows: they were cleaned by its class limits at level 0.05" in out
    assert "on 30 rows with a known label: accuracy" in out
    found = files.read("kept.parquet")
    loaded = PartialLabelClassifier.load(models / name)
    expected = loaded.clean(NEW.select(["size", "colour"]), NEW["tags"].to_pylist())
    assert [tuple(row) for row in found["kept"].to_pylist()] == expected.decode()
    assert found["id"].to_pylist() == NEW["id"].to_pylist()
    assert found["true"].to_pylist() == NEW["label"].to_pylist()
    facts = json.loads(run(capsys, "clean", "new.csv", "--model", models / name, "--out", "a.csv", "--json").out)
    assert facts["new_rows"] is True
    assert facts["candidates_after"] == expected.mean_size
    assert (facts["estimate"], facts["model"], facts["cleaned"]) == (None, str(models / name), "a.csv")


def test_new_rows_at_another_level(place, models, capsys):
    run(capsys, "clean", "new.csv", "--model", models / "model", "--out", "kept.parquet", "--alpha", "0.4")
    loaded = PartialLabelClassifier.load(models / "model").set_params(alpha=0.4).reclean()
    expected = loaded.clean(NEW.select(["size", "colour"]), NEW["tags"].to_pylist())
    assert [tuple(row) for row in files.read("kept.parquet")["kept"].to_pylist()] == expected.decode()


def test_tables_may_lack_roles_and_name_others(place, models, capsys):
    kept = {}
    renamed = NEW.rename_columns(["key", "size", "colour", "sets", "truth"])
    joined = pa.array([";".join(row) for row in NEW["tags"].to_pylist()])
    tables = {
        "plain": (NEW.select(["tags", "colour", "size"]), ()),
        "renamed": (renamed, ("--candidates", "sets", "--id", "key", "--labels", "truth")),
        "more": (NEW.append_column("note", pa.array(["x"] * 30)), ("--drop", "note")),
        "separated": (NEW.set_column(3, "tags", joined), ("--separator", ";")),
    }
    for name, (table, options) in tables.items():
        files.write(table, f"{name}.csv")
        run(capsys, "clean", f"{name}.csv", "--model", models / "model", *options, "--out", f"{name}.parquet")
        kept[name] = files.read(f"{name}.parquet")["kept"].to_pylist()
    assert all(one == kept["plain"] for one in kept.values())


def test_categories_are_read_as_in_training(place, capsys):
    """01 is a text here, also in a table whose texts all look like numbers."""
    codes = np.array(["01", "02", "x"])[np.arange(120) % 3]
    training = pa.table({"code": codes, "tags": [["a"], ["b"], ["a", "b"]] * 40})
    files.write(training, "codes.csv")
    files.write(training.slice(0, 2), "some.csv")
    run(capsys, "fit", "codes.csv", "--candidates", "tags", "--out", "coded", *TRAINING)
    run(capsys, "clean", "some.csv", "--model", "coded", "--out", "kept.csv")  # without a warning about new categories
    assert files.read("kept.csv")["kept"].to_pylist() == ["a", "b"]


def test_votes_are_cleaned_by_a_model(place, capsys):
    tasks, labels = LARGE["id"].to_pylist(), LARGE["tags"].to_pylist()
    votes = [(task, f"w{k}", name) for task, names in zip(tasks, labels, strict=True) for k, name in enumerate(names)]
    files.write(pa.table(dict(zip(("task", "worker", "label"), zip(*votes, strict=True), strict=True))), "votes.csv")
    files.write(LARGE.select(["id", "size", "colour"]), "features.csv")
    source = ("--annotations", "votes.csv", "--features", "features.csv", "--id", "id")
    files.write(LARGE.select(["id", "size", "colour", "tags"]), "rows.csv")
    run(capsys, "fit", "rows.csv", "--candidates", "tags", "--id", "id", "--out", "model", *TRAINING)
    out = run(capsys, "clean", *source, "--model", "model", "--out", "kept.csv").out
    assert "model was trained on this table" in out
    run(capsys, "clean", "rows.csv", "--model", "model", "--out", "again.csv")
    kept, again = files.read("kept.csv"), files.read("again.csv")
    assert kept.drop_columns(["majority"]).equals(again)
    run(capsys, "fit", *source, "--out", "model", "--cleaned", "kept.csv", *TRAINING)
    out = run(capsys, "clean", *source, "--model", "model", "--out", "again.csv").out
    assert "model was trained on this table" in out
    assert "annotators, by accuracy" in out
    assert (place / "kept.csv").read_bytes() == (place / "again.csv").read_bytes()
    files.write(files.read("votes.csv", texts=["task"]).slice(1), "votes.csv")
    out = run(capsys, "clean", *source, "--model", "model", "--out", "again.csv").out
    assert "model was not trained on these rows" in out


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--method", "proden"),
        ("--cleaner", "conformal"),
        ("--members", "1"),
        ("--folds", "5"),
        ("--epochs", "3"),
        ("--lr", "0.01"),
        ("--seed", "0"),
        ("--quality", "fast"),
        ("--base", "extra-trees"),
        ("--device", "auto"),
        ("--classes", "cat,dog,emu"),
    ],
)
def test_options_of_training_are_refused(place, models, capsys, option, value):
    """Also those whose value is the default."""
    for command in (("clean", "--out", "kept.csv"), ("audit",)):
        error = refused(capsys, *command, "large.csv", "--model", models / "model", option, value)
        assert f"{option} applies to training, but --model {models / 'model'} is already trained; remove one" in error


def test_every_option_of_training_is_refused_or_allowed():
    allowed = {"alpha", "force_cleaning"}
    tested = {"method", "quality", "base", "cleaner", "members", "folds", "epochs", "lr", "seed", "device"}
    assert set(vars(TrainingOptions())) == tested | allowed


def test_what_a_model_cannot_do_is_refused(place, models, capsys):
    model, lean = models / "model", models / "lean"
    error = refused(capsys, "audit", "new.csv", "--model", model)
    assert "new.csv has 30 rows; an audit needs at least 100" in error
    files.write(LARGE.slice(0, 110), "part.csv")
    error = refused(capsys, "audit", "part.csv", "--model", model)
    assert f"{model} was not trained on part.csv, or not on all of its rows in this order" in error
    for command in (("audit",), ("clean", "--out", "kept.csv")):
        error = refused(capsys, *command, "large.csv", "--model", lean)
        assert f"{lean} was trained on large.csv, but it was saved without its rows" in error
    error = refused(capsys, "clean", "new.csv", "--model", lean, "--alpha", "0.1", "--out", "kept.csv")
    assert f"alpha is 0.1, but {lean} was saved without its training rows, so only its level 0.05 is known" in error
    error = refused(capsys, "clean", "new.csv", "--model", model, "--alpha", "2", "--out", "kept.csv")
    assert "alpha is 2.0; it must lie between 0 and 1" in error
    error = refused(capsys, "clean", "new.csv", "--model", model, "--report", "a.html", "--out", "kept.csv")
    assert "--report describes training rows, and those of new.csv are new; remove --report" in error
    error = refused(capsys, "clean", "new.csv", "--model", "nowhere", "--out", "kept.csv")
    assert "nowhere" in error
    assert not (place / "kept.csv").exists()
    run(capsys, "clean", "new.csv", "--model", lean, "--alpha", "0.05", "--out", "kept.csv")  # its own level


def test_unknown_classes_are_refused(place, models, capsys):
    table = NEW.set_column(3, "tags", pa.array([["cat", "gnu"]] * 30))
    files.write(table, "gnus.csv")
    error = refused(capsys, "clean", "gnus.csv", "--model", models / "model", "--out", "kept.csv")
    assert "'gnu', which is not a class of the model; correct the row or leave it out" in error


def test_few_held_out_rows_are_said(place, capsys):
    run(capsys, "fit", "large.csv", *ROLES, "--out", "one", "--epochs", "2", "--folds", "1", "--device", "cpu")
    error = refused(capsys, "audit", "large.csv", "--model", "one")
    assert "one has 11 held-out rows, and an audit needs at least 100" in error
    error = refused(capsys, "clean", "new.csv", "--model", "one", "--out", "kept.csv")
    assert "cleaning needs at least 100 held-out rows at fit, and there were 11" in error


def test_forced_cleaning_of_a_model(place, capsys):
    training = ("--epochs", "1", "--folds", "2", "--device", "cpu", "--seed", "3")
    rng = np.random.default_rng(0)
    noise = LARGE.set_column(1, "size", pa.array(rng.normal(size=120))).drop_columns("colour")
    files.write(noise, "noise.csv")
    files.write(noise.slice(0, 20), "some.csv")
    run(capsys, "clean", "noise.csv", *ROLES, *training, "--out", "kept.csv", "--quiet")
    assert files.read("kept.csv")["removed"].null_count == 120, "the networks are no better than chance"
    run(capsys, "fit", "noise.csv", *ROLES, *training, "--out", "model", "--quiet")
    for table in ("noise.csv", "some.csv"):
        out = run(capsys, "clean", table, "--model", "model", "--force-cleaning", "--out", "kept.csv").out
        before, after = map(float, re.search(r"candidates per row: ([\d.]+) → ([\d.]+)", out).groups())
        assert after < before


def test_fit_says_how_large_the_model_is(place, models, capsys):
    out = run(capsys, "fit", "large.csv", *ROLES, *TRAINING, "--out", "model").out
    assert re.search(r"size of the model: [\d.]+ [KM]iB, of which [\d.]+ KiB about the training rows \(--lean", out)
    out = run(capsys, "fit", "large.csv", *ROLES, *TRAINING, "--lean", "--out", "lean").out
    assert re.search(r"size of the model: [\d.]+ [KM]iB, without the training rows", out)
    facts = json.loads(run(capsys, "fit", "large.csv", *ROLES, *TRAINING, "--out", "model", "--json").out)
    size = {name: sum(path.stat().st_size for path in (place / name).iterdir()) for name in ("model", "lean")}
    assert facts["bytes"] == size["model"]
    assert 0 < facts["bytes_of_rows"] <= size["model"] - size["lean"]
    run(capsys, "report", "lean", "--out", "page.html")


def test_the_cleaned_table_of_fit_can_go_to_standard_output(place, models, capsys):
    printed = run(capsys, "fit", "large.csv", *ROLES, *TRAINING, "--out", "model", "--cleaned", "-")
    assert printed.out.encode() == (models / "fitted.csv").read_bytes()
    assert "cleaned: standard output" in printed.err


def test_places_that_fit_cannot_write_the_table_to(place, capsys):
    for cleaned, wrong in (
        ("model/kept.csv", "the table model/kept.csv is or lies in model, which is replaced"),
        ("large.csv", "large.csv is both read and written; name another file with --cleaned"),
        ("kept.doc", "kept.doc"),
    ):
        error = refused(capsys, "fit", "large.csv", *ROLES, "--out", "model", "--cleaned", cleaned)
        assert wrong in error
    error = refused(capsys, "fit", "large.csv", *ROLES, "--out", "model", "--cleaned", "-", "--json")
    assert "--json and --cleaned - both write to standard output" in error
    error = refused(capsys, "fit", "large.csv", *ROLES, "--out", "model", "--cleaned", "kept.csv", "--folds", "1")
    assert "folds is 1; use at least 2" in error
