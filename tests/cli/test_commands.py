"""The commands on a user's own tables, from table to files: what they write, print and leave alone."""

import dataclasses
import importlib.util
import inspect
import io
import json
import re
import sys
import typing

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from candidly import PartialLabelClassifier
from candidly.cleaning.audit import ALPHAS, format_guess
from candidly.cli import app as cli
from candidly.cli import options
from candidly.cli.options import OutputOptions, SetOptions, TrainingOptions, split_names
from candidly.cli.output import describe_audit, describe_report
from candidly.conformal.calibration import CANDIDATES, KINDS, SCORES, Rule
from candidly.engine import Model
from candidly.estimator import crossfit, evaluation
from candidly.tables import files
from candidly.tables.schema import Schema
from tests.report.made import audit as audit_facts
from tests.report.made import birds

NAMES = ("cat", "dog", "emu")
TINY = ("--epochs", "3", "--folds", "2", "--device", "cpu")
LEARNED = ("--epochs", "15", *TINY[2:])  # enough to tell the classes apart


def make(n=40):
    """Rows that are easy to tell apart, with text, gaps and ids that look like numbers."""
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=n)
    sets = [sorted({NAMES[j], *(name for name in NAMES if rng.random() < 0.3)}) for j in true]
    return pa.table(
        {
            "id": [f"{i:03}" for i in range(n)],
            "size": (true + rng.normal(0, 0.1, n)).round(3),
            "colour": [("red", "blue", None)[j] for j in true],
            "tags": sets,
            "label": [NAMES[j] for j in true],
        }
    )


TABLE, LARGE = make(), make(120)  # nothing is removed from fewer than 100 rows
ROLES = ("--candidates", "tags", "--id", "id", "--labels", "label")


@pytest.fixture
def place(tmp_path, monkeypatch):
    files.write(TABLE, tmp_path / "rows.csv")
    files.write(TABLE, tmp_path / "rows.parquet")
    files.write(LARGE, tmp_path / "large.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def kept_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    files.write(TABLE, folder / "rows.csv")
    cli.main(["fit", str(folder / "rows.csv"), *ROLES, "--out", str(folder / "model"), *TINY, "--quiet"])
    return str(folder / "model")


def run(capsys, *arguments):
    """Return what a command prints, on both streams."""
    cli.main([str(argument) for argument in arguments])
    return capsys.readouterr()


def as_sets(column):
    return [set(filter(None, (text or "").split("|"))) for text in column.to_pylist()]


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".parquet", ".feather"])
def test_clean_writes_a_line_per_row_in_order(place, capsys, suffix):
    out = run(capsys, "clean", "large.csv", *ROLES, "--out", f"new{suffix}", *TINY).out
    found = files.read(f"new{suffix}", texts=["id"])
    names = ["id", "candidates", "kept", "removed", "predicted", "confidence", "priority", "scores"]
    assert found.column_names == [*names, "outside", "outside_score", "true"]
    assert found["id"].to_pylist() == LARGE["id"].to_pylist()
    assert found["true"].to_pylist() == LARGE["label"].to_pylist()
    lists = suffix in (".parquet", ".feather")
    before, kept, removed = (
        [set(row) for row in found[name].to_pylist()] if lists else as_sets(found[name])
        for name in ("candidates", "kept", "removed")
    )
    assert before == [set(row) for row in LARGE["tags"].to_pylist()]
    assert all(a | b == c and not a & b and a for a, b, c in zip(kept, removed, before, strict=True))
    assert any(removed)
    assert all(one in row for one, row in zip(found["predicted"].to_pylist(), before, strict=True))
    assert all(0 < one <= 1 for one in found["confidence"].to_pylist())
    if lists:
        assert found.schema.field("scores").type == pa.list_(pa.float32())
        assert [len(row) for row in found["scores"].to_pylist()] == [len(row) for row in before]
        assert all(sum(row) == pytest.approx(1) for row in found["scores"].to_pylist())
    else:
        scores = [re.findall(r"(\w+)=([\d.e-]+)", text or "") for text in found["scores"].to_pylist()]
        assert [{name for name, _ in row} for row in scores] == before
    outside = list(zip(found["outside"].to_pylist(), found["outside_score"].to_pylist(), before, strict=True))
    assert {name is None for name, _, _ in outside} == {True, False}
    assert all((name is None) == (score is None) and name not in row for name, score, row in outside)
    assert "120 rows, 3 classes" in out
    assert re.search(r"candidates per row: \d\.\d\d → \d\.\d\d; rows changed: \d+", out)
    assert "on 120 rows with a known label: accuracy" in out
    assert f"cleaned: new{suffix}" in out


def test_scores_are_probabilities_of_being_true(place, capsys):
    run(capsys, "clean", "large.csv", *ROLES, "--out", "new.parquet", *TINY)
    found = files.read("new.parquet")
    estimator = PartialLabelClassifier(max_epochs=3, folds=2, device="cpu", random_state=0)
    estimator.fit(LARGE.select(["size", "colour"]), LARGE["tags"].to_pylist())
    given = zip(found["candidates"].to_pylist(), estimator.candidate_proba_, strict=True)
    expected = [[row[NAMES.index(name)] for name in names] for names, row in given]
    assert [pytest.approx(row) for row in expected] == found["scores"].to_pylist()
    assert found["confidence"].to_pylist() == pytest.approx([max(row) for row in expected])
    assert found["priority"].to_pylist() == estimator.priority_.tolist()
    assert found["outside"].to_pylist() == estimator.outside_.tolist()


@pytest.mark.parametrize("command", [("clean", "--out", "new.csv"), ("fit", "--out", "new")])
def test_the_estimate_at_the_level_is_told(place, capsys, command):
    name, *out = command
    arguments = (name, "large.csv", *ROLES, *out, *LEARNED, "--alpha", "0.07")
    printed = run(capsys, *arguments).out
    facts = json.loads(run(capsys, *arguments, "--json").out)
    level = facts["estimate"]
    assert level["alpha"] == 0.07
    lost, removed = (format_guess(level[name]) for name in ("lost", "removed"))
    assert f"\nguess: true labels lost {lost}, wrong candidates removed {removed}\n" in printed
    assert facts["status"] == f"not verified: check {level['check']} rows to certify alpha 0.07 (candidly verify plan)"
    assert f"\n{facts['status']}\n" in printed


def test_without_an_estimate_nothing_is_told(place, capsys):
    arguments = ("clean", "rows.csv", *ROLES, "--out", "new.csv", *TINY)
    assert "guess" not in run(capsys, *arguments).out
    facts = json.loads(run(capsys, *arguments, "--json").out)
    assert facts["estimate"] is facts["status"] is None


def audit(*more, table="large.csv"):
    return ("audit", table, *ROLES, *LEARNED, *more)


def test_an_audit_tells_what_each_level_costs(place, capsys):
    before = sorted(path.name for path in place.iterdir())
    printed = run(capsys, *audit())
    status, title, heads, *lines = printed.out.splitlines()
    assert re.fullmatch(r"not verified: check \d+ rows to certify alpha 0.05 \(candidly verify plan\)", status)
    assert title.startswith("large.csv: 120 rows, 3 classes, 1.")
    names = ["alpha", "true labels lost (guess)", "actual", "wrong candidates removed (guess)", "actual"]
    assert re.split(r"\s{2,}", heads) == [*names, "candidates removed", "rows to check"]
    levels = json.loads(run(capsys, *audit("--json")).out)["audit"]["levels"]
    assert [level["alpha"] for level in levels] == list(ALPHAS)
    for line, level in zip(lines, levels, strict=False):
        mark, lost, true_lost, removed, true_removed, candidates, check = re.split(r"\s{2,}", line)
        assert mark == f"{level['alpha']:g}" + " *" * (level["alpha"] == 0.05)
        assert (lost, removed) == (format_guess(level["lost"]), format_guess(level["removed"]))
        assert [true_lost, true_removed] == [f"{level[name]:.1%}" for name in ("true_lost", "true_removed")]
        assert int(candidates) == level["candidates"]
        assert check == ("–" if level["check"] is None else str(level["check"]))
    assert "without a guarantee" in printed.out
    assert "The most likely candidate is wrong in a guessed" in printed.out
    assert sorted(path.name for path in place.iterdir()) == before


def test_an_audit_is_the_estimators(place, capsys):
    facts = json.loads(run(capsys, *audit("--alphas", ".2, 0.02", "--json")).out)
    estimator = PartialLabelClassifier(max_epochs=15, folds=2, device="cpu", random_state=0)
    estimator.fit(LARGE.select(["size", "colour"]), LARGE["tags"].to_pylist())
    expected = estimator.audit(LARGE["label"].to_pylist(), [0.02, 0.05, 0.2]).to_json()
    found = {name: facts["audit"][name] for name in ("levels", "missing", "error", "excess", "words")}
    assert found == json.loads(json.dumps({name: expected[name] for name in found}))
    assert facts["alpha"] == 0.05
    assert facts["report"] is None


def test_an_audit_without_labels_and_with_a_page(place, capsys):
    arguments = ("audit", "large.csv", "--candidates", "tags", "--drop", "id,label", *LEARNED)
    out = run(capsys, *arguments, "--alpha", "0.07", "--report", "page.html").out
    assert "true value" not in out
    assert re.search(r"^0\.07 \*  ", out, re.MULTILINE)
    assert out.endswith("\nreport: page.html\n")
    page = (place / "page.html").read_text()
    assert "Cost of cleaning" in page
    assert re.search(r"0\.07 <small>used here</small>", page)
    assert run(capsys, *arguments, "--quiet") == ("", "")


@pytest.mark.filterwarnings("default")
def test_votes_are_audited(place, capsys):
    tasks, labels = LARGE["id"].to_pylist(), LARGE["label"].to_pylist()
    votes = {"task": tasks * 2, "worker": ["ann"] * 120 + ["bob"] * 120, "label": labels + labels[1:] + labels[:1]}
    files.write(pa.table(votes), "votes.csv")
    roles = ("--annotations", "votes.csv", "--features", "large.csv", "--id", "id", "--drop", "tags,label")
    out = run(capsys, "audit", *roles, *LEARNED).out
    status, votes = out.splitlines()[:2]
    assert status.startswith("not verified: check ")
    assert votes.startswith("Votes: 120 tasks, 2 workers, 240 votes, 3 classes")
    assert "large.csv: 120 rows" in out
    facts = json.loads(run(capsys, "audit", *roles, *LEARNED, "--json").out)
    assert facts["agreement"].keys() == {"observed", "krippendorff_alpha"}


def made_up(classes=30):
    """ReportFacts with an audit that doubts many classes, one of them with a hostile and one with a long name."""
    names = ["\x1b[31mred", "x" * 300, *(f"class {j}" for j in range(2, classes))]
    found = birds(rows=100, doubtful=2, classes=names)
    pairs = [{"numbers": [j, j + 1], "rows": 8.0, "why": "why not"} for j in range(12)]
    doubts = [{"number": j, "rows": 3.0, "why": "too few"} for j in range(10)]
    return dataclasses.replace(found, audit=found.audit | {"pairs": pairs, "classes": doubts})


def test_doubts_are_told_by_name_a_few_of_each(capsys):
    lines, facts = describe_audit(made_up(), None)
    OutputOptions().show(lines, facts)
    out = capsys.readouterr().out
    assert f"  \\x1b[31mred and {'x' * 39}…: why not\n" in out
    assert "  class 9 and class 10: why not\n  … and 2 more\nDoubtful classes:\n" in out
    assert out.endswith("  class 8: too few\n  class 9: too few\n")
    assert out.count("more\n") == 1
    assert "\x1b" not in out
    assert facts["audit"]["pairs"][3]["names"] == ["class 3", "class 4"]
    assert len(facts["audit"]["pairs"]) == 12
    assert facts["audit"]["classes"][0]["name"] == "\x1b[31mred"


def test_levels_without_an_estimate_say_why():
    found = birds(rows=100, doubtful=2)
    found = dataclasses.replace(found, audit=audit_facts(14, 100, truth=False, declined="too noisy"))
    lines, _ = describe_audit(found, None)
    assert lines.count("No guess: too noisy.") == 1
    assert re.split(r"\s{2,}", lines[4]) == ["0.05 *", "–", "–", "65", "44"]
    assert "true labels lost: no guess (too noisy)" in describe_report(found, {})[0]


def test_the_help_names_the_levels():
    assert f"(default: {','.join(map(str, ALPHAS))})" in cli.training.audit.__doc__


def test_formats_make_no_difference(place, capsys):
    run(capsys, "clean", "rows.csv", *ROLES, "--out", "a.parquet", *TINY)
    run(capsys, "clean", "rows.parquet", *ROLES, "--out", "b.parquet", *TINY)
    assert files.read("a.parquet").equals(files.read("b.parquet"))


def test_rows_are_numbered_without_ids(place, capsys):
    run(capsys, "clean", "rows.csv", "--candidates", "tags", "--drop", "id,label", "--out", "new.csv", *TINY)
    found = files.read("new.csv")
    assert found.column_names[0] == "row"
    assert found["row"].to_pylist() == list(range(40))
    assert "true" not in found.column_names


def test_labels_and_ids_do_not_train(place, capsys):
    other = TABLE.set_column(4, "label", pa.array(["cat"] * 40))
    other = other.set_column(0, "id", pa.array([f"x{i}" for i in range(40)]))
    files.write(other, "other.csv")
    run(capsys, "clean", "rows.csv", *ROLES, "--out", "a.parquet", *TINY)
    run(capsys, "clean", "other.csv", *ROLES, "--out", "b.parquet", *TINY)
    a, b = (files.read(name).drop_columns(["id", "true"]) for name in ("a.parquet", "b.parquet"))
    assert a.equals(b)


@pytest.mark.filterwarnings("default")
def test_a_label_that_is_no_class_is_an_error(place, capsys):
    labels = ["yak", None, *TABLE["label"].to_pylist()[2:]]
    files.write(TABLE.set_column(4, "label", pa.array(labels)), "some.csv")
    printed = run(capsys, "clean", "some.csv", *ROLES, "--out", "new.csv", *TINY)
    assert "1 labels in column 'label' are not classes, such as 'yak' in row 0; in these rows every" in printed.err
    assert "on 39 rows with a known label" in printed.out
    assert "\nin 1 of them the true label is not a candidate, so it cannot be lost\n" in printed.out
    assert files.read("new.csv")["true"].to_pylist() == labels


def test_fit_predict_and_report(place, capsys):
    out = run(capsys, "fit", "rows.csv", *ROLES, "--out", "model", "--report", "page.html", *TINY).out
    assert "model: model\nreport: page.html\n" in out
    assert sorted(path.name.split(".", 1)[1] for path in (place / "model").iterdir()) == [
        "json",
        "report.json",
        "safetensors",
    ]
    out = run(capsys, "predict", "model", "rows.csv", "--out", "new.csv", "--alpha", "0.2").out
    assert re.search(r"40 rows, 3 classes, mean probability of the predicted class [\d.]+%\nclasses per set: ", out)
    found = files.read("new.csv", texts=["id"])
    assert found.column_names == ["id", "predicted", "probability", "set"]
    assert found["id"].to_pylist() == TABLE["id"].to_pylist()
    estimator = PartialLabelClassifier.load("model")
    X = TABLE.select(["size", "colour"])
    assert found["predicted"].to_pylist() == estimator.predict(X).tolist()
    expected = [{NAMES[j] for j in np.flatnonzero(row)} for row in estimator.predict_set(X, 0.2)]
    assert as_sets(found["set"]) == expected
    assert run(capsys, "report", "model", "--out", "again.html").out.endswith("\nreport: again.html\n")
    assert (place / "again.html").read_bytes() == (place / "page.html").read_bytes()
    said = run(capsys, "export", "model", "--out", "model.pt2").out
    assert said.startswith("model.pt2: input x, rows of ")
    program = torch.export.load("model.pt2").module()
    rows = torch.from_numpy(estimator.features_.transform(X)).float()
    assert np.allclose(program(rows).detach(), estimator.predict_proba(X), atol=1e-5)


def test_predicting_and_evaluating_take_one_pass(place, kept_model, monkeypatch):
    passes, original = [], Model.predict_blocks
    monkeypatch.setattr(Model, "predict_blocks", lambda model, rows: passes.append(len(rows)) or original(model, rows))
    cli.main(["predict", kept_model, "rows.csv", "--out", "new.csv", "--alpha", "0.3", "--max-risk", "0.9"])
    assert len(passes) == 1
    cli.main(["evaluate", kept_model, "rows.csv", "--labels", "label"])
    assert len(passes) == 2


def test_the_delimiter_of_the_training_table_is_the_default(place, capsys):
    for name in ("semi.csv", "more.csv"):
        (place / name).write_text((place / "rows.csv").read_text().replace(",", ";"))
    run(capsys, "fit", "semi.csv", *ROLES, "--delimiter", ";", "--out", "model", *TINY)
    files.write(TABLE, "rows.tsv")
    for name in ("more.csv", "rows.parquet", "rows.tsv"):
        run(capsys, "predict", "model", name, "--out", f"new-{name}.parquet")
    run(capsys, "predict", "model", "rows.csv", "--delimiter", ",", "--out", "given.parquet")
    found = [files.read(path) for path in sorted(place.glob("*.parquet")) if path.name != "rows.parquet"]
    assert len(found) == 4
    assert all(one.equals(found[0]) for one in found)
    assert PartialLabelClassifier.load("model").schema_ == Schema("tags", "id", "label", [], "|", ";")


def test_prediction_sets_are_made_as_asked(place, capsys, kept_model):
    chosen = ("--alpha", "0.3", "--kind", "split", "--score", "aps", "--candidate", "worst")
    run(capsys, "predict", kept_model, "rows.csv", "--out", "new.csv", *chosen)
    sets = PartialLabelClassifier.load(kept_model).predict_set(
        TABLE.select(["size", "colour"]), 0.3, kind="split", score="aps", candidate="worst"
    )
    expected = [{NAMES[j] for j in np.flatnonzero(row)} for row in sets]
    assert as_sets(files.read("new.csv")["set"]) == expected


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_rows_that_are_too_risky_have_an_empty_cell(place, capsys, suffix):
    cheap = ("--epochs", "20", "--folds", "2", "--members", "1", "--device", "cpu")
    run(capsys, "fit", "rows.csv", *ROLES, "--out", "model", *cheap)
    estimator, X = PartialLabelClassifier.load("model"), TABLE.select(["size", "colour"])
    risk = float(np.median(estimator.risk_curve_["risk"]))
    out = run(capsys, "predict", "model", "rows.csv", "--out", f"new{suffix}", "--max-risk", risk).out
    expected = estimator.predict(X, max_risk=risk).tolist()
    found = files.read(f"new{suffix}")
    assert found["predicted"].to_pylist() == expected
    assert 0 < expected.count(None) < 40
    assert None not in found["probability"].to_pylist()
    assert f"rows without a prediction: {expected.count(None)}\n" in out
    facts = run(capsys, "predict", "model", "rows.csv", "--out", "n.csv", "--max-risk", risk, "--json").out
    assert json.loads(facts)["abstained"] == expected.count(None)


def test_evaluate_compares_with_true_labels(place, capsys, kept_model):
    out = run(capsys, "evaluate", kept_model, "rows.csv", "--labels", "label", "--plot", "found.svg").out
    estimator, X = PartialLabelClassifier.load(kept_model), TABLE.select(["size", "colour"])
    expected = evaluation.evaluate(estimator, X, TABLE["label"])
    assert out == f"{expected}\nplot: found.svg\n"
    assert (place / "found.svg").read_text().startswith("<?xml")
    printed = run(capsys, "evaluate", kept_model, "rows.parquet", "--labels", "label", "--candidate", "worst", "--json")
    worst = evaluation.evaluate(estimator, X, TABLE["label"], candidate="worst")
    assert json.loads(printed.out) == json.loads(json.dumps(worst.to_json() | {"plot": None}))
    assert run(capsys, "evaluate", kept_model, "rows.csv", "--labels", "label", "--quiet") == ("", "")


def test_evaluate_takes_labels_from_any_column(place, capsys, kept_model):
    table = TABLE.append_column("checked", pa.array(["cat", "yak", None, *TABLE["label"].to_pylist()[3:]]))
    files.write(table.append_column("note", pa.array(["x"] * 40)), "more.csv")
    arguments = ("evaluate", kept_model, "more.csv", "--labels", "checked", "--drop", "note", "--json")
    facts = json.loads(run(capsys, *arguments).out)
    assert (facts["rows"], facts["unknown"]) == (39, 1)


def test_evaluate_knows_classes_that_are_numbers(place, capsys):
    codes = np.array([NAMES.index(name) for name in TABLE["label"].to_pylist()])
    estimator = PartialLabelClassifier(folds=2, max_epochs=3, device="cpu", random_state=0)
    estimator.fit(TABLE.select(["size", "colour"]), codes).save("numbers")
    table = TABLE.select(["size", "colour"]).append_column("code", pa.array(codes))
    for name in ("codes.csv", "codes.parquet"):
        files.write(table, name)
        facts = json.loads(run(capsys, "evaluate", "numbers", name, "--labels", "code", "--json").out)
        assert facts["unknown"] == 0
        assert facts["accuracy"] == pytest.approx((estimator.predict(table.drop_columns("code")) == codes).mean())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict", "--out", "n.csv", "--max-risk", "1.5"), "--max-risk is 1.5; it must lie between 0 and 1"),
        (
            ("predict", "--out", "n.csv", "--kind", "split"),
            "--kind applies to prediction sets; set their level with --alpha",
        ),
        (
            ("evaluate", "--labels", "lable"),
            "rows.csv has no column 'lable' (did you mean 'label'?); name another with",
        ),
        (
            ("evaluate", "--labels", "size"),
            "--labels is 'size', a feature of the model; name the column of true labels",
        ),
        (("evaluate", "--labels", "label", "--plot", "a.gif"), "a.gif cannot be written: its name must end in"),
        (("evaluate", "--labels", "label", "--plot", "no/a.svg"), "the folder no does not exist"),
    ],
)
def test_new_rows_that_cannot_be_used(place, capsys, kept_model, arguments, message):
    command, *options = arguments
    before = sorted(path.name for path in place.iterdir())
    with pytest.raises(SystemExit):
        cli.main([command, kept_model, "rows.csv", *options])
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert sorted(path.name for path in place.iterdir()) == before


def test_a_model_is_replaced_as_a_whole(place, capsys):
    assert "replaced" not in run(capsys, "fit", "rows.csv", *ROLES, "--out", "deep/model", *TINY).out
    first = set((place / "deep/model").iterdir())
    out = run(capsys, "fit", "rows.csv", *ROLES, "--out", "deep/model", *TINY, "--seed", "1").out
    assert "model: deep/model\n" in out
    assert out.endswith("\nthe model that deep/model held before was replaced\n")
    second = set((place / "deep/model").iterdir())
    assert len(second) == len(first)
    assert len(second - first) == 2, "tensors and report have other contents"
    facts = run(capsys, "fit", "rows.csv", *ROLES, "--out", "deep/model", *TINY, "--json").out
    assert json.loads(facts)["replaced"] is True
    assert [path.name for path in (place / "deep").iterdir()] == ["model"]


def test_the_same_seed_gives_the_same_files(place, capsys):
    for name in ("a", "b"):
        run(capsys, "fit", "rows.csv", *ROLES, "--out", name, *TINY)
    first, second = (next((place / name).glob("*.safetensors")) for name in ("a", "b"))
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("names", [["id", "size", "colour"], ["colour", "size"], ["label", "colour", "tags", "size"]])
def test_new_rows_may_lack_what_is_no_feature(place, capsys, kept_model, names):
    files.write(TABLE.select(names), "some.csv")
    run(capsys, "predict", kept_model, "some.csv", "--out", "new.parquet")
    run(capsys, "predict", kept_model, "rows.csv", "--out", "all.parquet")
    some, every = files.read("new.parquet"), files.read("all.parquet")
    assert some.column_names[0] == ("id" if "id" in names else "row")
    assert some["probability"].equals(every["probability"])


def test_new_rows_have_an_id_and_columns_of_their_own(place, capsys, kept_model):
    table = TABLE.append_column("number", pa.array(range(40))).append_column("note", pa.array(["x"] * 40))
    files.write(table, "more.csv")
    run(capsys, "predict", kept_model, "more.csv", "--out", "new.csv", "--id", "number", "--drop", "note")
    assert files.read("new.csv")["number"].to_pylist() == list(range(40))


def test_dropped_columns_need_not_be_dropped_again(place, capsys):
    table = TABLE.append_column("note, long", pa.array(["x"] * 40))
    files.write(table, "more.csv")
    run(capsys, "fit", "more.csv", *ROLES, "--drop", '"note, long"', "--out", "model", *TINY)
    run(capsys, "predict", "model", "more.csv", "--out", "new.csv")
    assert files.read("new.csv").num_rows == 40


def test_a_category_that_looks_like_a_number_stays_one(place, capsys):
    codes = ["01", "02", "x"] * 13 + ["01"]
    table = TABLE.set_column(2, "colour", pa.array(codes))
    files.write(table, "codes.csv")
    run(capsys, "fit", "codes.csv", *ROLES, "--out", "model", *TINY)
    numbers = table.filter(pa.array([code != "x" for code in codes]))
    files.write(numbers, "numbers.csv")
    files.write(numbers, "numbers.parquet")
    for name in ("numbers.csv", "numbers.parquet"):  # where 01 would be read as 1, and would be a new category
        run(capsys, "predict", "model", name, "--out", f"new-{name}")
    found = [files.read(f"new-{name}")["predicted"].to_pylist() for name in ("numbers.csv", "numbers.parquet")]
    assert found[0] == found[1]


VOTES = pa.table(
    {
        "item": [one for one in TABLE["id"].to_pylist()[:30] for _ in range(3)],
        "who": ["ann", "bob", "eve"] * 30,
        "what": [
            NAMES[(NAMES.index(one) + (i == 2 and n % 2)) % 3]
            for n, one in enumerate(TABLE["label"].to_pylist()[:30])
            for i in range(3)
        ],
    }
)
LONG = ("--annotations", "votes.csv", "--features", "rows.csv", "--task", "item", "--worker", "who", "--label", "what")


@pytest.mark.filterwarnings("default")
def test_votes_become_candidates(place, capsys):
    files.write(VOTES, "votes.csv")
    printed = run(capsys, "clean", *LONG, "--id", "id", "--drop", "tags,label", "--out", "new.csv", *TINY)
    assert "candidly: rows.csv: 10 of 40 rows have no votes, such as '030'" in printed.err
    assert "Votes: 30 tasks, 3 workers, 90 votes, 3 classes" in printed.out
    assert "Krippendorff's alpha 0." in printed.out
    found = files.read("new.csv", texts=["id"])
    assert found["id"].to_pylist() == TABLE["id"].to_pylist()
    assert set(found["candidates"].to_pylist()[30:]) == {"cat|dog|emu"}, "nobody voted: every class is possible"
    assert found["priority"].null_count == 10
    assert found["predicted"].null_count == 0
    found = found.slice(0, 30)
    votes = VOTES.group_by("item").aggregate([("what", "distinct")]).to_pydict()
    expected = {item: set(what) for item, what in zip(votes["item"], votes["what_distinct"], strict=True)}
    assert dict(zip(found["id"].to_pylist(), as_sets(found["candidates"]), strict=True)) == expected
    printed = run(
        capsys, "clean", *LONG, "--id", "id", "--drop", "tags,label", "--out", "b.csv", *TINY, "--json", "--quiet"
    )
    assert printed.err == ""
    assert 0 < json.loads(printed.out)["agreement"]["krippendorff_alpha"] < 1


def test_shares_of_votes_are_weights_and_rows_keep_their_order(place, capsys, monkeypatch):
    seen = {}

    def fit(self, X, y, groups=None):
        seen.update(X=X, y=y, groups=groups)
        raise ValueError("seen enough")

    monkeypatch.setattr(PartialLabelClassifier, "fit", fit)
    files.write(VOTES.take(np.random.default_rng(0).permutation(90)), "votes.csv")
    files.write(TABLE.slice(0, 30), "rows.csv")
    with pytest.raises(SystemExit):
        cli.main(["clean", *LONG, "--id", "id", "--drop", "tags,label", "--out", "new.csv"])
    assert seen["X"].column_names == ["size", "colour"]
    assert seen["X"]["size"].equals(TABLE["size"].slice(0, 30))
    for row, sets in enumerate(seen["y"].candidates.decode()):
        cast = VOTES["what"].to_pylist()[3 * row : 3 * row + 3]
        assert set(sets) == set(cast)
        expected = [cast.count(name) / 3 for name in seen["y"].candidates.classes]
        np.testing.assert_allclose(seen["y"].weights()[row], expected)
    assert seen["groups"] is None


def test_groups_are_held_out_together_and_no_feature(place, capsys):
    groups = [f"{i // 4:02}" for i in range(40)]
    files.write(TABLE.append_column("scene", pa.array(groups)), "scenes.csv")
    run(capsys, "fit", "scenes.csv", *ROLES, "--groups", "scene", "--out", "model", *TINY)
    loaded = PartialLabelClassifier.load("model")
    assert loaded.schema_.groups == "scene"
    assert loaded.feature_names_in_.tolist() == ["size", "colour"]
    for rows in ("rows.csv", "scenes.csv"):
        run(capsys, "predict", "model", rows, "--out", f"of-{rows}")
        run(capsys, "evaluate", "model", rows, "--labels", "label")
    assert files.read("of-rows.csv").equals(files.read("of-scenes.csv"))
    expected = PartialLabelClassifier(max_epochs=3, folds=2, device="cpu", random_state=0)
    expected.fit(TABLE.select(["size", "colour"]), TABLE["tags"].to_pylist(), groups=groups)
    for command in (("clean", "--out", "new.parquet"), ("audit",)):
        with pytest.raises(SystemExit):
            cli.main([command[0], "rows.csv", *ROLES, "--groups", "scene", *command[1:], *TINY])
        assert "has no column 'scene'; name another with --groups" in capsys.readouterr().err
    run(capsys, "clean", "scenes.csv", *ROLES, "--groups", "scene", "--out", "new.parquet", *TINY)
    confidence = files.read("new.parquet")["confidence"].to_numpy()
    np.testing.assert_array_equal(confidence, expected.confidence_)


def test_groups_of_votes(place, capsys):
    scenes = pa.array([f"s{i // 9}" for i in range(90)])
    files.write(VOTES.append_column("scene", scenes), "votes.csv")
    files.write(TABLE.slice(0, 30), "rows.csv")
    options = (*LONG, "--id", "id", "--drop", "tags,label", "--groups", "scene", "--out", "new.csv", *TINY)
    run(capsys, "clean", *options)
    assert files.read("new.csv").num_rows == 30
    files.write(VOTES.append_column("scene", pa.array([f"s{i}" for i in range(90)])), "votes.csv")
    with pytest.raises(SystemExit):
        cli.main(["clean", *options])
    error = capsys.readouterr().err
    assert re.search(r"votes.csv: task '000' has the group 's1' in row 1 and 's0' before, in column 'scene'", error)


def test_votes_in_columns_of_the_same_table(place, capsys):
    table = TABLE.append_column("ann", TABLE["label"]).append_column("bob", pa.array(["cat", "dog"] * 20))
    files.write(table.drop_columns(["tags", "label"]), "wide.csv")
    wide = ("--annotations", "wide.csv", "--features", "wide.csv", "--task", "id", "--annotators", "ann,bob")
    run(capsys, "clean", *wide, "--out", "new.csv", *TINY)
    found = files.read("new.csv")
    expected = [{a, b} for a, b in zip(TABLE["label"].to_pylist(), ["cat", "dog"] * 20, strict=True)]
    assert as_sets(found["candidates"]) == expected


@pytest.mark.filterwarnings("default")
def test_thresholds_of_votes(place, capsys):
    files.write(VOTES, "votes.csv")
    arguments = ("clean", *LONG, "--id", "id", "--drop", "tags,label", "--out", "new.csv", *TINY, "--min-votes", "2")
    run(capsys, *arguments)
    assert all(len(one) == 1 for one in as_sets(files.read("new.csv")["candidates"].slice(0, 30)))


@pytest.mark.filterwarnings("default")
def test_a_model_is_fitted_to_votes(place, capsys):
    task, who, what = (VOTES[name].to_pylist() for name in ("item", "who", "what"))
    lines = [";".join(one) for one in zip(task, who, what, strict=True)]
    (place / "votes.csv").write_text("\n".join(["item;who;what", *lines, "no such task;ann;cat", ""]), encoding="utf-8")
    options = ("fit", *LONG, "--id", "id", "--drop", "tags", "--labels", "label", "--out", "model", *TINY)
    with pytest.raises(SystemExit):
        cli.main([*options])
    assert "votes.csv has the one column 'item;who;what'; if ';' separates its columns" in (
        error := capsys.readouterr().err
    )
    assert "--votes-delimiter" in error
    with pytest.raises(SystemExit):
        cli.main([*options, "--votes-delimiter", ";"])
    assert re.search(
        "no row for 1 of 31 tasks of votes.csv, such as 'no such task'.*skip-tasks", capsys.readouterr().err
    )
    printed = run(capsys, *options, "--votes-delimiter", ";", "--skip-tasks", "--cleaned", "new.csv")
    assert "no row for 1 of 31 tasks" in printed.err
    assert "rows without votes, which the model predicts: 10" in printed.out
    assert re.search(r"of 30 differ from the majority, \d+ are ties; accuracy .*%, majority .*%", printed.out)
    assert "annotators, by accuracy with its 95% interval" in printed.out
    found = files.read("new.csv", texts=["id"])
    assert found["id"].to_pylist() == TABLE["id"].to_pylist()
    assert found["true"].to_pylist() == TABLE["label"].to_pylist()
    assert found["majority"].slice(30).null_count == 10
    facts = json.loads(run(capsys, *options, "--votes-delimiter", ";", "--skip-tasks", "--json", "--quiet").out)
    assert {one["name"] for one in facts["annotators"]} == set(who)
    assert all(0 <= one["low"] <= one["accuracy"] <= one["high"] <= 1 for one in facts["annotators"])
    assert facts["majority"]["majority_accuracy"] > 0.5
    assert facts["unvoted"] == 10
    run(capsys, "predict", "model", "rows.csv", "--out", "predicted.csv")


@pytest.mark.filterwarnings("default")
def test_nearly_equal_labels_of_votes_are_pointed_out(place, capsys):
    what = pa.array(["CAT " if i == 0 else name for i, name in enumerate(VOTES["what"].to_pylist())])
    files.write(VOTES.set_column(VOTES.column_names.index("what"), "what", what), "votes.csv")
    printed = run(capsys, "clean", *LONG, "--id", "id", "--drop", "tags,label", "--out", "new.csv", *TINY)
    lines = [line for line in printed.err.splitlines() if "'CAT ' and 'cat'" in line]
    assert len(lines) == 1


@pytest.mark.filterwarnings("default")
def test_anonymous_votes_have_one_matrix(place, capsys):
    files.write(VOTES, "votes.csv")
    options = ("clean", *LONG, "--id", "id", "--drop", "tags,label", "--out", "new.csv", *TINY, "--anonymous")
    facts = json.loads(run(capsys, *options, "--json", "--quiet").out)
    assert [one["name"] for one in facts["annotators"]] == [None]
    assert facts["annotators"][0]["votes"] == 90
    assert "  all  " in run(capsys, *options).out


def test_standard_streams(place, capsys, monkeypatch):
    run(capsys, "clean", "rows.csv", *ROLES, "--out", "new.csv", *TINY)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((place / "rows.csv").read_bytes())))
    printed = run(capsys, "clean", "-", *ROLES, "--out", "-", *TINY)
    assert printed.out == (place / "new.csv").read_text()
    assert "standard input: 40 rows" in printed.err
    assert "cleaned: standard output" in printed.err


def test_json_and_quiet(place, capsys, kept_model):
    printed = run(capsys, "clean", "large.csv", *ROLES, "--out", "new.csv", *TINY, "--json")
    facts = json.loads(printed.out)
    assert printed.err == ""
    assert (facts["rows"], facts["classes"], facts["cleaned"], facts["report"]) == (120, 3, "new.csv", None)
    assert facts["candidates_before"] > facts["candidates_after"] >= 1
    assert facts["truth"]["rows"] == 120
    facts = json.loads(run(capsys, "predict", kept_model, "rows.csv", "--out", "p.csv", "--alpha", "0.2", "--json").out)
    assert facts.keys() == {"rows", "classes", "mean_probability", "predictions", "mean_set_size", "empty_sets"}
    for arguments in (("clean", "rows.csv", *ROLES, *TINY), ("predict", kept_model, "rows.csv")):
        assert run(capsys, *arguments, "--out", "q.csv", "--quiet") == ("", "")


@pytest.mark.filterwarnings("default")
def test_warnings_are_shown_in_one_line_unless_quiet(place, capsys, kept_model):
    table = TABLE.set_column(2, "colour", pa.array(["\x1b[31mred\nblue"] * 40))
    files.write(table, "new.parquet")
    printed = run(capsys, "predict", kept_model, "new.parquet", "--out", "p.csv")
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("candidly: X has categories that fit did not see")
    assert "\x1b" not in printed.err
    assert run(capsys, "predict", kept_model, "new.parquet", "--out", "p.csv", "--quiet").err == ""


@pytest.mark.filterwarnings("default")
def test_the_index_of_a_data_frame_is_no_feature(place, capsys):
    table = TABLE.add_column(0, "", pa.array(range(40)))
    files.write(table, "indexed.csv")
    printed = run(capsys, "clean", "indexed.csv", *ROLES, "--out", "a.parquet", *TINY)
    assert "left out '', which looks like the index of a data frame" in printed.err
    run(capsys, "clean", "rows.csv", *ROLES, "--out", "b.parquet", *TINY)
    assert files.read("a.parquet").equals(files.read("b.parquet"))


def test_progress_is_shown_on_a_terminal(place, capsys, monkeypatch):
    seen = []

    def fit(self, X, y, weights=None, groups=None):
        seen.append(self.verbose)
        raise ValueError("seen enough")

    monkeypatch.setattr(PartialLabelClassifier, "fit", fit)
    for terminal, quiet in ((True, []), (True, ["--quiet"]), (False, [])):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal, raising=False)
        with pytest.raises(SystemExit):
            cli.main(["clean", "rows.csv", *ROLES, "--out", "new.csv", *quiet])
    assert seen == [1, 0, 0]


def test_a_scikit_learn_classifier_is_trained_and_saved(place, capsys):
    pytest.importorskip("skops")
    base = ("--base", "logistic-regression", "--folds", "2")
    run(capsys, "fit", "rows.csv", *ROLES, "--out", "model", *base)
    run(capsys, "predict", "model", "rows.csv", "--out", "predicted.csv")
    assert files.read("predicted.csv")["predicted"].to_pylist() == TABLE["label"].to_pylist()
    assert PartialLabelClassifier.load("model").base == "logistic-regression"
    run(capsys, "clean", "large.csv", *ROLES, "--out", "cleaned.csv", *base)
    assert files.read("cleaned.csv")["predicted"].to_pylist() == LARGE["label"].to_pylist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--base", "trees"), "unknown base 'trees'; use one of extra-trees, hist-gradient-boosting"),
        (("--base", "extra-trees", "--epochs", "3"), "--epochs is 3, but it applies to networks"),
        (("--base", "extra-trees", "--cleaner", "clsp"), "cleaner is 'clsp', but it applies to networks"),
    ],
)
def test_options_of_networks_do_not_apply_to_other_classifiers(place, capsys, options, message):
    with pytest.raises(SystemExit):
        run(capsys, "clean", "rows.csv", *ROLES, "--out", "cleaned.csv", *options)
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (place / "cleaned.csv").exists()


def test_fit_asks_for_skops_before_it_trains(place, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        run(capsys, "fit", "rows.csv", *ROLES, "--out", "model", "--base", "extra-trees")
    assert "pip install 'candidly[skops]'" in " ".join(capsys.readouterr().err.split())


def test_options_reach_the_estimator(place, monkeypatch):
    seen = {}

    def fit(self, X, y, weights=None, groups=None):
        seen.update(self.get_params(), sets=y)
        raise ValueError("seen enough")

    monkeypatch.setattr(PartialLabelClassifier, "fit", fit)
    options = "--method cc --cleaner none --members 3 --folds 4 --epochs 5 --lr 0.02 --alpha 0.2 --seed 7 --device cpu"
    (place / "classes.txt").write_text("emu\ncat\n\ndog\nyak\n")
    with pytest.raises(SystemExit):
        cli.main(["fit", "rows.csv", *ROLES, "--out", "m", *options.split(), "--classes", "@classes.txt"])
    assert (seen["method"], seen["cleaner"], seen["members"], seen["folds"]) == ("cc", None, 3, 4)
    assert (seen["max_epochs"], seen["alpha"], seen["random_state"], seen["device"]) == (5, 0.2, 7, "cpu")
    assert seen["lr"] == 0.02
    assert seen["sets"].classes == ("emu", "cat", "dog", "yak")


def test_options_of_sets_are_the_estimators():
    assert {field.name for field in dataclasses.fields(SetOptions)} == {"kind", "score", "candidate"}
    for kind, known in ((options.Kind, KINDS), (options.Score, SCORES), (options.Candidate, CANDIDATES)):
        names = typing.get_args(typing.get_args(typing.get_args(kind)[0])[0])
        assert names == tuple(known)
        assert all(name in SetOptions.__doc__ for name in names)
    for field in dataclasses.fields(Rule):
        assert inspect.signature(PartialLabelClassifier.predict_p).parameters[field.name].default == field.default
        if field.name != "smooth":
            assert f"(default: {field.default})" in SetOptions.__doc__


def test_the_help_names_the_estimators_defaults(capsys):
    defaults = inspect.signature(PartialLabelClassifier).parameters
    for name in ("method", "cleaner", "quality", "folds", "alpha", "device"):
        assert re.search(rf" {name}: [^\n]*\(default: {defaults[name].default}\)", TrainingOptions.__doc__)
    best, fast = crossfit.QUALITIES["best"], crossfit.QUALITIES["fast"]
    assert f"(default: {fast.members}; {best.members} for the quality best)" in TrainingOptions.__doc__
    told = " ".join(PartialLabelClassifier.__doc__.split())
    assert f"one network per fold, for about {fast.steps} minibatches or at most {fast.epochs} epochs" in told
    assert f"four networks, for {best.steps} minibatches or at most {best.epochs} epochs" in told
    assert f"at least {crossfit.LEAST_EPOCHS}." in told
    given = {name: value for name, value in vars(TrainingOptions()).items() if value is not None}
    assert given == {"force_cleaning": False}, "what is not given is the estimator's default"


@pytest.mark.parametrize(
    ("text", "names"),
    [("a", ["a"]), ("a, b", ["a", "b"]), ('"a,b",c', ["a,b", "c"]), ('"say ""a""",b', ['say "a"', "b"])],
)
def test_lists_of_names(text, names):
    assert split_names(text, "--drop") == names


@pytest.mark.parametrize("text", ["", ",", "a,", " "])
def test_lists_of_names_without_one(text):
    with pytest.raises(ValueError, match=r"--drop is .*, which contains an empty name"):
        split_names(text, "--drop")


def test_reports_need_jinja(place, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        cli.main(["clean", "rows.csv", *ROLES, "--out", "new.csv", "--report", "page.html"])
    assert (
        "reports need jinja2, which is not installed; run `pip install 'candidly[report]'`" in capsys.readouterr().err
    )
    assert not (place / "new.csv").exists()


def test_names_with_the_separator_are_refused_before_training(place, capsys, monkeypatch):
    monkeypatch.setattr(PartialLabelClassifier, "fit", lambda *arguments, **options: pytest.fail("it trained"))
    sets = [["a|b", "c"], ["c"]] * 20
    files.write(TABLE.set_column(3, "tags", pa.array(sets)), "bars.parquet")
    with pytest.raises(SystemExit):
        cli.main(["clean", "bars.parquet", "--candidates", "tags", "--drop", "label", "--out", "new.csv"])
    assert "'a|b' contains '|'" in capsys.readouterr().err


def test_checked_rows_give_exact_intervals(place, capsys):
    labels = LARGE["label"].to_pylist()
    rows = np.random.default_rng(0).choice(120, 60, replace=False).tolist()
    answers = [None if i == 0 else "none of these" if i == 1 else labels[row] for i, row in enumerate(rows)]
    files.write(pa.table({"row": rows, "answer": answers, "note": ["x"] * 60}), "checked.csv")
    printed = run(capsys, *audit("--verified", "checked.csv")).out
    status, _, heads, *lines = printed.splitlines()
    assert status == "verified with 60 rows that were checked by hand"
    assert re.split(r"\s{2,}", heads)[1:4] == ["true labels lost (guess)", "verified", "actual"]
    assert "60 checked rows, 1 of them without an answer, if these were drawn at random" in printed
    facts = json.loads(run(capsys, *audit("--verified", "checked.csv", "--json")).out)
    assert facts["audit"]["verified"]["outside"] == 1
    for line, level in zip(lines, facts["audit"]["levels"], strict=False):
        value, low, high = level["verified"]
        assert f"{value:.1%} ({100 * low:.1f} to {high:.1%})" in line
        assert low <= level["true_lost"] <= high
    estimator = PartialLabelClassifier(max_epochs=15, folds=2, device="cpu", random_state=0)
    estimator.fit(LARGE.select(["size", "colour"]), LARGE["tags"].to_pylist())
    found = estimator.audit(labels, verified=dict(zip(rows, answers, strict=True))).to_json()
    assert found["verified"] == facts["audit"]["verified"]
    assert found["levels"] == facts["audit"]["levels"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"row": [1], "label": ["cat"]}, "checked.csv has no column 'answer'"),
        ({"line": [1], "answer": ["cat"]}, "checked.csv has no column 'row'"),
        ({"row": ["first"], "answer": ["cat"]}, "checked.csv has 'first' in column 'row', row 0 of the file"),
        ({"row": [120], "answer": ["cat"]}, "checked.csv: verified has the row 120; rows are numbers from 0 to 119"),
        ({"row": [1, 1], "answer": ["cat", "dog"]}, "checked.csv has two answers for row 1"),
        ({"row": [1], "answer": ["yak"]}, "checked.csv: the answer for row 1 is 'yak', which is not a class"),
    ],
)
def test_checked_rows_that_cannot_be_read(place, capsys, table, message):
    files.write(pa.table(table), "checked.csv")
    with pytest.raises(SystemExit):
        cli.main([*audit("--verified", "checked.csv")])
    assert message in " ".join(capsys.readouterr().err.split())
