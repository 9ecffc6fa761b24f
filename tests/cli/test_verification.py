"""verify and certify: from a model to a certified table, through a file that a person fills in."""

import json

import pyarrow as pa
import pytest

from candidly import PartialLabelClassifier
from candidly.cli import app as cli
from candidly.store import states
from candidly.tables import files
from tests.cli.test_commands import ROLES, make, run
from tests.cli.test_reuse import TRAINING, refused

ROWS = make(200)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    files.write(ROWS, folder / "rows.csv")
    cli.main(["fit", str(folder / "rows.csv"), *ROLES, *TRAINING, "--out", str(folder / "model"), "--quiet"])
    return folder / "model"


@pytest.fixture
def place(tmp_path, monkeypatch, trained):
    """A folder with the table and a copy of the model."""
    files.write(ROWS, tmp_path / "rows.csv")
    PartialLabelClassifier.load(trained).save(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fill(source, target, **changed):
    """Write the file with all rows answered; some answers are changed, by row."""
    table = files.read(source, texts=["answer", "plan"])
    true = ROWS["label"].to_pylist()
    answers = [changed.get(f"row{row}", true[row]) for row in table["row"].to_pylist()]
    files.write(table.set_column(table.column_names.index("answer"), "answer", pa.array(answers, pa.string())), target)
    return table["row"].to_pylist()


def test_from_a_model_to_a_certified_table(place, capsys):
    out = run(capsys, "verify", "plan", "model", "--rows", 60, "--out", "to-check.csv").out
    (plan,) = PartialLabelClassifier.load("model").ledger_
    assert out.startswith(str(plan))
    table = files.read("to-check.csv", texts=["answer", "plan", "candidates"])
    assert table.column_names == ["plan", "row", "candidates", "answer"]  # blind: no predictions
    assert table["row"].to_pylist() == list(plan.rows)
    assert table["answer"].to_pylist() == [None] * 60
    for row, names in zip(plan.rows, table["candidates"].to_pylist(), strict=True):
        assert names.split("|") == ROWS["tags"][row].as_py()
    fill("to-check.csv", "done.csv")
    out = run(capsys, "certify", "model", "done.csv", "--out", "cleaned.csv").out
    assert out.startswith("With 90% confidence, at most 10 of 200 rows (5%; alpha 0.05) have lost their true label: 60")
    cleaned = files.read("cleaned.csv", texts=["kept", "checked"])
    assert cleaned.column_names == ["row", "candidates", "kept", "removed", "checked"]
    assert cleaned["row"].to_pylist() == list(range(200))
    classifier = PartialLabelClassifier.load("model")
    wanted = classifier.certify({row: ROWS["label"][row].as_py() for row in plan.rows})
    assert [names.split("|") for names in cleaned["kept"].to_pylist()] == [list(one) for one in wanted.candidates]
    assert {row for row, name in enumerate(cleaned["checked"].to_pylist()) if name is not None} == set(plan.rows)


def test_columns_of_the_table_are_copied_without_labels(place, capsys):
    run(capsys, "verify", "plan", "model", "--rows", 50, "--table", "rows.csv", "--drop", "size", "--out", "check.csv")
    table = files.read("check.csv", texts=["id", "answer"])
    assert table.column_names == ["plan", "row", "id", "colour", "candidates", "answer"]
    assert table["id"].to_pylist() == [ROWS["id"][row].as_py() for row in table["row"].to_pylist()]
    fill("check.csv", "done.csv")
    run(capsys, "certify", "model", "done.csv", "--table", "rows.csv", "--out", "cleaned.parquet")
    found = files.read("cleaned.parquet")
    assert found.column_names == ["row", "id", "size", "colour", "candidates", "kept", "removed", "checked"]
    assert found["size"].to_pylist() == ROWS["size"].to_pylist()


def test_tasks_for_label_studio(place, capsys):
    run(capsys, "verify", "plan", "model", "--rows", 50, "--out", "check.csv")
    run(capsys, "verify", "export", "model", "--format", "label-studio", "--table", "rows.csv", "--out", "tasks.json")
    tasks = json.loads((place / "tasks.json").read_text())
    plan = PartialLabelClassifier.load("model").ledger_[-1]
    assert [task["data"]["row"] for task in tasks] == list(plan.rows)
    data = tasks[0]["data"]
    names = ROWS["tags"][plan.rows[0]].as_py()
    assert [one["value"] for one in data["choices"]] == [*names, "none of these", "cannot tell"]
    assert "" in {task["data"]["colour"] for task in tasks}  # missing
    assert set(data) == {"plan", "row", "id", "size", "colour", "candidates", "choices"}


def test_export_draws_nothing(place, capsys):
    run(capsys, "verify", "plan", "model", "--rows", 50, "--out", "first.csv")
    run(capsys, "verify", "export", "model", "--out", "second.csv")
    assert (place / "first.csv").read_bytes() == (place / "second.csv").read_bytes()
    assert len(PartialLabelClassifier.load("model").ledger_) == 1


def test_answers_that_are_no_class_names(place, capsys):
    run(capsys, "verify", "plan", "model", "--rows", 60, "--sequential", "--out", "check.csv")
    rows = files.read("check.csv")["row"].to_pylist()
    fill("check.csv", "done.csv", **{f"row{rows[0]}": "?", f"row{rows[1]}": "None of these", f"row{rows[-1]}": None})
    facts = json.loads(run(capsys, "certify", "model", "done.csv", "--out", "cleaned.csv", "--json").out)
    assert (facts["checked"], facts["unknown"]) == (59, 1)
    assert facts["missing"][0] == 1 / 58
    wrong = ROWS["label"][rows[2]].as_py() + "s"
    fill("check.csv", "done.csv", **{f"row{rows[2]}": wrong})
    line = refused(capsys, "certify", "model", "done.csv", "--out", "cleaned.csv")
    assert f"done.csv: the answer for row {rows[2]} is {wrong!r}, which is not a class (did you mean" in line


def test_the_ledger_is_updated_before_the_file_is_written(place, capsys, monkeypatch):
    def fail(*arguments, **keywords):
        raise OSError("the disk is full")

    monkeypatch.setattr(files, "write", fail)
    assert "the disk is full" in refused(capsys, "verify", "plan", "model", "--rows", 50, "--out", "check.csv")
    assert len(PartialLabelClassifier.load("model").ledger_) == 1


def test_the_ledger_keeps_everything_else(place, capsys):
    before = states.read("model", stem="model")
    content = {path.name for path in (place / "model").iterdir() if path.name != "model.lock"}
    run(capsys, "verify", "plan", "model", "--rows", 50, "--out", "check.csv")
    after = states.read("model", stem="model")
    assert content == {path.name for path in (place / "model").iterdir() if path.name != "model.lock"}
    assert list(before[0]) == list(after[0])
    before[1]["estimator"].pop("ledger")
    (plan,) = after[1]["estimator"].pop("ledger")
    assert plan["number"] == 1
    assert before[1] == after[1]


def test_a_file_of_another_plan_is_refused(place, capsys):
    run(capsys, "verify", "plan", "model", "--rows", 50, "--out", "first.csv")
    run(capsys, "verify", "plan", "model", "--rows", 50, "--out", "second.csv")
    fill("first.csv", "done.csv")
    line = refused(capsys, "certify", "model", "done.csv", "--out", "cleaned.csv")
    assert "done.csv holds rows of 'plan 1 of " in line
    fill("second.csv", "done.csv")
    out = run(capsys, "certify", "model", "done.csv", "--out", "cleaned.csv").out
    assert out.startswith("With 80% confidence")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("verify", "plan", "model", "--out", "x.csv"), "verify plan needs --rows"),
        (("verify", "plan", "model", "--rows", "5", "--out", "x.csv"), "--rows is 5, which is too few"),
        (("verify", "plan", "model", "--rows", "500", "--out", "x.csv"), "--rows is 500, but only"),
        (("verify", "plan", "model", "--rows", "50", "--alpha", "2", "--out", "x.csv"), "--alpha is 2.0; it must lie"),
        (("verify", "export", "model", "--out", "x.csv"), "model has no plan; make one with `candidly verify plan`"),
        (("verify", "export", "model", "--seed", "1", "--out", "x.csv"), "--seed applies to a new plan"),
        (("verify", "plans", "model", "--out", "x.csv"), "did you mean 'plan'?"),
        (("verify", "plan", "model", "--rows", "50", "--out", "model/x.csv"), "is or lies in model"),
        (
            ("verify", "plan", "model", "--rows", "50", "--drop", "id", "--out", "x.csv"),
            "--drop applies to the columns",
        ),
        (
            ("verify", "plan", "model", "--rows", "50", "--format", "label-studio", "--out", "x.csv"),
            "must end in .json",
        ),
        (
            ("verify", "plan", "model", "--rows", "50", "--format", "label-studio", "--out", "-"),
            "name one that ends in",
        ),
        (
            ("verify", "plan", "model", "--rows", "50", "--table", "few.csv", "--out", "x.csv"),
            "few.csv is not the table that the model was trained on",
        ),
        (("certify", "model", "rows.csv", "--out", "x.csv"), "rows.csv has no column 'row'"),
        (("certify", "model", "empty.csv", "--out", "x.csv"), "the model has no plan"),
    ],
)
def test_wrong_use(place, capsys, arguments, message):
    files.write(ROWS.slice(0, 150), "few.csv")
    files.write(pa.table({"row": [1], "answer": ["cat"]}), "empty.csv")
    assert message in refused(capsys, *arguments)
    assert not (place / "x.csv").exists()
    assert PartialLabelClassifier.load("model").ledger_ == ()


def test_wrong_rows(place, capsys):
    run(capsys, "verify", "plan", "model", "--rows", 50, "--out", "check.csv")
    for rows, answers, message in [
        (["x"], ["cat"], "answers.csv has 'x' in column 'row'"),
        ([1, 1], ["cat", "dog"], "answers.csv has two answers for row 1"),
        ([200], ["cat"], "answers.csv: answers has the row 200; rows are numbers from 0 to 199"),
    ]:
        files.write(pa.table({"row": rows, "answer": answers}), "answers.csv")
        assert message in refused(capsys, "certify", "model", "answers.csv", "--out", "x.csv")
    (place / "answers.csv").write_text("row;answer\n1;cat\n")
    run(capsys, "certify", "model", "answers.csv", "--delimiter", ";", "--out", "x.csv")


def test_standard_output(place, capsys):
    captured = run(capsys, "verify", "plan", "model", "--rows", 50, "--out", "-")
    assert captured.out.startswith("plan,row,candidates,answer")
    assert "Plan 1: check 50 rows" in captured.err
