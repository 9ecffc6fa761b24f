"""review and apply, and the commands that take the log of decisions."""

import json
import re
import socket
import warnings
from types import SimpleNamespace

import pyarrow as pa
import pytest

from candidly import PartialLabelClassifier
from candidly.review import Log
from candidly.tables import files
from tests.cli.test_commands import NAMES, ROLES, run
from tests.cli.test_reuse import TRAINING, refused
from tests.review.made import ROWS, TRUE, answer, copy, desk, train

REVIEW = ("review", "model", "--table", "rows.csv", "--no-browser", "--reviewer", "ann")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    copy(trained, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def served(monkeypatch):
    """Instead of a server: the desks that would be served."""
    found = {}

    def serve(desks, listening, token):
        found.update(desks)
        raise KeyboardInterrupt

    monkeypatch.setattr("candidly.review.server.serve", serve)
    return found


def decided(place, answers, reviewer="ann", **more):
    """Start a review in a log, as the command does, and decide rows."""
    from candidly.cli.review import _session

    one = desk(place, reviewer=reviewer, **more)
    one.log.start(_session(one.classifier, one.material.rows, reviewer, None))
    for row, name in answers.items():
        one.decide([answer(row, name)])
    return one


def tags(path):
    return [text.split("|") for text in files.read(path, texts=["tags"])["tags"].to_pylist()]


def test_review_starts_with_what_is_to_be_verified(place, capsys, served):
    out = run(capsys, *REVIEW, "--rows", 60, "--alpha", 0.1).out
    (plan,) = PartialLabelClassifier.load("model").ledger_  # recorded before anything is shown
    assert (plan.m, plan.alpha) == (60, 0.1)
    assert list(served) == ["verify", "decide"]
    assert served["verify"].plan == plan
    assert "http://127.0.0.1:" in out
    assert "mode verify" in out
    assert "0 decisions were added to rows-decisions.jsonl" in out
    (session,) = Log("rows-decisions.jsonl").sessions
    assert (session.reviewer, session.id, session.candidates) == ("ann", "id", "tags")
    assert session.features == ("size", "colour")
    assert session.model == plan.family
    served.clear()
    facts = json.loads(run(capsys, *REVIEW, "--json").out)  # goes on with the same plan
    assert (facts["mode"], facts["reviewer"]) == ("verify", "ann")
    assert len(PartialLabelClassifier.load("model").ledger_) == 1
    served.clear()
    run(capsys, *REVIEW, "--mode", "decide")
    assert list(served) == ["decide"]
    assert served["decide"].missing() == 60  # and the rows of the plan are left out


def test_review_without_a_plan_decides(place, capsys, served):
    run(capsys, *REVIEW, "--log", "log.jsonl")
    assert list(served) == ["decide"]
    line = refused(capsys, *REVIEW, "--mode", "verify")
    assert "model has no plan, so there are no rows to verify; draw some with --rows" in line


def test_the_report_says_what_was_decided(place, capsys, served):
    run(capsys, *REVIEW, "--rows", 50, "--alpha", 0.2)
    verify = served["verify"]
    for row in verify.plan.rows[:-1]:
        verify.decide([answer(row, TRUE[row])])
    report = ("report", "model", "--decisions", "rows-decisions.jsonl", "--out", "page.html")
    run(capsys, *report)
    page = (place / "page.html").read_text()
    assert "Checked by people" in page
    assert "49 rows decided by ann: 49 with a class, 0 &#39;none of these&#39;" in page
    assert "49 of 50 planned rows are verified; a certificate needs all" in page
    verify.decide([answer(verify.plan.rows[-1], "cannot tell")])
    run(capsys, *report)
    page = (place / "page.html").read_text()
    assert "50 rows decided by ann: 49 with a class" in page
    assert re.search("is the one that was decided in [0-9]+ of 49 rows", page)
    assert "1 drawn rows have no answer. They count as lost, and keep all candidates." in page
    run(capsys, "report", "model", "--out", "page.html")
    assert "Checked by people" not in (place / "page.html").read_text()
    (place / "empty.jsonl").write_text("")
    line = refused(capsys, "report", "model", "--decisions", "empty.jsonl", "--out", "page.html")
    assert "empty.jsonl holds no review" in line


def test_a_second_plan_needs_the_answers_to_the_first(place, capsys, served):
    run(capsys, *REVIEW, "--rows", 50)
    line = refused(capsys, *REVIEW, "--rows", 50)
    assert "model has a plan with 50 rows that are not answered in rows-decisions.jsonl; remove --rows" in line
    for row in served["verify"].plan.rows:
        served["verify"].decide([answer(row, TRUE[row])])
    run(capsys, *REVIEW)
    assert list(PartialLabelClassifier.load("model").ledger_)[-1].number == 1
    run(capsys, *REVIEW, "--rows", 50)
    assert len(PartialLabelClassifier.load("model").ledger_) == 2


def test_rows_that_were_seen_before_are_pointed_out(place, capsys, served):
    decided(place, dict.fromkeys(range(200), "cannot tell"))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        said = run(capsys, *REVIEW, "--log", "log.jsonl", "--rows", 50).err
        assert "ann has decided 50 of the rows to verify before, with probabilities in view" in said
    assert run(capsys, *REVIEW, "--log", "log.jsonl", "--reviewer", "bob").err == ""  # somebody else


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--alpha", 0.1), "--alpha applies to rows that are drawn; draw some with --rows"),
        (("--rows", 50, "--mode", "decide"), "--rows draws rows for the mode verify"),
        (("--rows", 3), "which is too few"),
        (("--port", 70_000), "port is 70000; give a number from 0 to 65535"),
        (("--images", "."), "name the column with --image"),
        (("--image", "file"), "rows.csv has no column 'file'"),
        (("--image", "colour", "--images", "none"), "--images is none, which is not a folder"),
        (("--reviewer", " "), "--reviewer is ''; use a name"),
        (("--reviewer", "a\nb"), "use a name of 1 to 200 printable characters"),
        (("--drop", "none"), "rows.csv has no column 'none'"),
        (("--annotations", "rows.csv"), "rows.csv has no column 'task'"),
        (("--log", "."), ". is a folder; name a file in it"),
        (("--log", "none/log.jsonl", "--rows", 60), "none does not exist; make it first, or name another"),
        (("--table", "-"), "--table must be a file"),
        (("--table", "other.csv"), "other.csv is not the table that the model was trained on"),
    ],
)
def test_review_says_what_is_wrong(place, capsys, served, options, message):
    files.write(ROWS.slice(0, 150), place / "other.csv")
    assert message in refused(capsys, *REVIEW, *options)
    assert not served
    assert PartialLabelClassifier.load("model").ledger_ == ()  # nothing was drawn
    assert not (place / "rows-decisions.jsonl").exists()


def test_a_port_that_is_taken_costs_no_plan(place, capsys, served):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = refused(capsys, *REVIEW, "--rows", 60, "--port", taken.getsockname()[1])
    assert "cannot be used" in line
    assert "choose another with --port" in line
    assert PartialLabelClassifier.load("model").ledger_ == ()


def test_a_small_model_can_be_reviewed(tmp_path, monkeypatch, capsys, served):
    train(tmp_path, table=ROWS.slice(0, 40))  # too few rows for cleaning
    monkeypatch.chdir(tmp_path)
    run(capsys, *REVIEW)
    assert served["decide"].decide([answer(3, "cat")]) == [3]
    assert "cleaning needs at least 100 held-out rows" in refused(capsys, *REVIEW, "--rows", 30)
    run(capsys, "apply", "rows-decisions.jsonl", "--table", "rows.csv", "--out", "applied.csv")
    assert tags("applied.csv")[3] == ["cat"]


def test_review_needs_the_rows_of_the_model(place, capsys, served):
    PartialLabelClassifier.load("model").save("model", lean=True)
    assert "was saved without its training rows; fit it without --lean" in refused(capsys, *REVIEW)


def test_review_says_which_package_is_missing(place, capsys, monkeypatch):
    import builtins

    original = builtins.__import__

    def fail(name, *rest):
        if name == "starlette":
            raise ModuleNotFoundError("No module named 'starlette'", name="starlette")
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fail)
    assert "needs starlette, which is not installed; run `pip install 'candidly[review]'`" in refused(capsys, *REVIEW)


def test_a_class_with_the_name_of_an_answer_is_refused(tmp_path, monkeypatch, capsys, served):
    names = [[name.replace("cat", "cannot tell") for name in row] for row in ROWS["tags"].to_pylist()]
    table = ROWS.set_column(ROWS.column_names.index("tags"), "tags", pa.array(names)).drop_columns(["label"])
    train(tmp_path, table=table, roles=("--candidates", "tags", "--id", "id"))
    monkeypatch.chdir(tmp_path)
    assert "the class 'cannot tell' has the name of an answer on the page" in refused(capsys, *REVIEW)


def test_apply_writes_the_table_with_decisions(place, capsys):
    decided(place, {0: "dog", 1: "heron", 2: "none of these", 3: "cannot tell"})
    before = tags("rows.csv")
    out = run(capsys, "apply", "log.jsonl", "--table", "rows.csv", "--out", "applied.csv").out
    assert "4 rows decided by ann: 2 with a class, 1 'none of these', 1 'cannot tell'" in out
    assert "new classes: 'heron'" in out
    after = tags("applied.csv")
    assert after[:2] == [["dog"], ["heron"]]
    assert set(after[2]) == {*NAMES, "heron"} - set(before[2])
    assert after[3:] == before[3:]
    old, new = ((place / name).read_text().splitlines() for name in ("rows.csv", "applied.csv"))
    assert old[0] == new[0]
    assert old[4:] == new[4:]  # every cell as it was, also ids with leading zeros


def test_decisions_are_merged_by_id_after_a_shuffle(place, capsys):
    decided(place, {0: "dog", 7: "heron"})
    order = list(range(199, -1, -1))
    files.write(ROWS.take(pa.array(order)), "shuffled.parquet")
    run(capsys, "apply", "log.jsonl", "--table", "shuffled.parquet", "--out", "applied.parquet")
    found = files.read("applied.parquet")
    by_id = dict(zip(found["id"].to_pylist(), found["tags"].to_pylist(), strict=True))
    assert (by_id["000"], by_id["007"]) == (["dog"], ["heron"])
    assert found["id"].to_pylist() == [f"{i:03}" for i in order]


def test_without_ids_a_shuffled_table_is_refused(tmp_path, monkeypatch, capsys):
    train(tmp_path, table=ROWS.drop_columns(["id", "label"]), roles=("--candidates", "tags"))
    monkeypatch.chdir(tmp_path)
    decided(tmp_path, {0: "dog", 7: "heron"})
    run(capsys, "apply", "log.jsonl", "--table", "rows.csv", "--out", "applied.csv")
    assert tags("applied.csv")[7] == ["heron"]
    table = files.read("rows.csv")
    files.write(table.take(pa.array(list(range(199, -1, -1)))), "shuffled.csv")
    line = refused(capsys, "apply", "log.jsonl", "--table", "shuffled.csv", "--out", "again.csv")
    assert "shuffled.csv: row 0 is not the row that was decided" in line
    again = run(capsys, "apply", "log.jsonl", "--table", "applied.csv", "--out", "again.csv").out  # idempotent
    assert "2 rows decided" in again
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "applied.csv").read_bytes()


def test_fit_with_decisions_is_fit_of_the_applied_table(place, capsys):
    decided(place, {0: "dog", 1: "heron", 2: "cat"})
    run(capsys, "apply", "log.jsonl", "--table", "rows.csv", "--out", "applied.csv")
    for table, more, out in (("applied.csv", (), "one"), ("rows.csv", ("--decisions", "log.jsonl"), "two")):
        run(capsys, "fit", table, *ROLES, *TRAINING, *more, "--out", out, "--quiet")
    first, second = map(PartialLabelClassifier.load, ("one", "two"))
    assert first.fit_record_.candidates == second.fit_record_.candidates
    assert "heron" in second.classes_
    assert second.fit_record_.candidates.decode()[:3] == [("dog",), ("heron",), ("cat",)]
    assert first.trained_on_ == second.trained_on_


def test_clean_with_decisions(place, capsys):
    decided(place, {0: "dog", 2: "cat", 3: "none of these"})
    run(capsys, "clean", "rows.csv", *ROLES, *TRAINING, "--decisions", "log.jsonl", "--out", "trained.csv")
    run(capsys, "clean", "rows.csv", "--model", "model", "--decisions", "log.jsonl", "--out", "known.csv")
    run(capsys, "clean", "rows.csv", "--model", "model", "--out", "plain.csv")
    texts = ["kept", "predicted", "candidates"]
    trained, known, plain = (
        files.read(name, texts=texts).to_pylist() for name in ("trained.csv", "known.csv", "plain.csv")
    )
    for row, name in {0: "dog", 2: "cat"}.items():
        assert trained[row]["kept"] == trained[row]["candidates"] == name
        assert (known[row]["kept"], known[row]["predicted"], known[row]["confidence"]) == (name, name, 1.0)
        assert known[row]["candidates"] == plain[row]["candidates"]
    assert known[3]["kept"] == plain[3]["kept"]
    assert sorted(one["priority"] for one in known) == list(range(1, 201))
    assert [one["kept"] for one in known[4:]] == [one["kept"] for one in plain[4:]]


def test_a_model_does_not_learn_a_class(place, capsys):
    decided(place, {0: "heron"})
    line = refused(capsys, "clean", "rows.csv", "--model", "model", "--decisions", "log.jsonl", "--out", "known.csv")
    assert "log.jsonl adds the class 'heron', which model does not have; remove --model to train again" in line


def test_certify_takes_the_answers_of_the_log(place, capsys, served):
    run(capsys, *REVIEW, "--rows", 60)
    verify = served["verify"]
    line = refused(capsys, "certify", "model", "--decisions", "rows-decisions.jsonl", "--out", "cleaned.csv")
    assert "has no answer to 'plan 1 of" in line
    for row in verify.plan.rows[:-1]:
        verify.decide([answer(row, TRUE[row])])
    certified = json.loads(
        run(capsys, "certify", "model", "--decisions", "rows-decisions.jsonl", "--out", "cleaned.csv", "--json").out
    )
    assert (certified["checked"], certified["unknown"]) == (60, 1)  # a row without an answer counts as lost
    verify.decide([answer(verify.plan.rows[-1], TRUE[verify.plan.rows[-1]])])
    shown = verify.certificate()["lines"]
    out = run(capsys, "certify", "model", "--decisions", "rows-decisions.jsonl", "--out", "cleaned.csv").out
    assert out.splitlines()[: len(shown)] == shown
    cleaned = files.read("cleaned.csv", texts=["kept", "checked"])
    for row in verify.plan.rows:
        assert cleaned["kept"][row].as_py() == cleaned["checked"][row].as_py() == TRUE[row]
    for options in ((), ("rows.csv", "--decisions", "rows-decisions.jsonl")):
        assert "give a file with answers, or --decisions" in refused(
            capsys, "certify", "model", *options, "--out", "c.csv"
        )


def test_decisions_are_about_one_table_on_one_machine(place, capsys, monkeypatch):
    decided(place, {0: "dog"})
    (place / "parts").mkdir()
    files.write(ROWS, place / "parts" / "a.parquet")
    line = refused(capsys, "clean", "parts", "--model", "model", "--decisions", "log.jsonl", "--out", "out/")
    assert "--decisions is about one table, and --out is a folder" in line
    monkeypatch.setattr("candidly.engine.ranks.find_group", lambda: SimpleNamespace(alone=False))
    line = refused(capsys, "fit", "rows.csv", *ROLES, "--decisions", "log.jsonl", "--out", "other")
    assert "--decisions cannot be used under torchrun; train on what `candidly apply` writes" in line


def test_two_reviewers(place, capsys):
    decided(place, {0: "dog", 1: "cat", 2: "cat"})
    decided(place, {0: "dog", 1: "dog", 2: "cat"}, "bob")
    run_options = ("apply", "log.jsonl", "--table", "rows.csv", "--out", "applied.csv")
    facts = json.loads(run(capsys, *run_options, "--json", "--quiet").out)
    assert (facts["decided"], facts["disagreements"]) == (2, 1)
    assert facts["agreement"][0]["observed"] == pytest.approx(2 / 3)
    assert tags("applied.csv")[1] == tags("rows.csv")[1]
    out = run(capsys, *run_options, "--reviewer", "bob").out
    assert "ann and bob agree on 66.7% of 3 rows, Cohen's kappa 0.40" in out
    assert tags("applied.csv")[1] == ["dog"]
    line = refused(capsys, *run_options, "--reviewer", "eve")
    assert "--reviewer is 'eve', who decided nothing in log.jsonl; use one of ann, bob" in line


def test_a_table_without_candidates_takes_them_from_the_model(tmp_path, monkeypatch, capsys):
    train(tmp_path)
    classifier = PartialLabelClassifier.load(tmp_path / "model")
    files.write(ROWS.select(["id", "size", "colour"]), tmp_path / "rows.csv")
    from dataclasses import replace

    classifier.schema_ = replace(classifier.schema_, candidates=None, labels=None)
    classifier.save(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    decided(tmp_path, {0: "heron"})
    options = ("apply", "log.jsonl", "--table", "rows.csv", "--out", "applied.csv")
    assert "has no column of candidates; name the model that was reviewed with --model" in refused(capsys, *options)
    run(capsys, *options, "--model", "model")
    found = files.read("applied.csv", texts=["candidates"])["candidates"].to_pylist()
    assert found[0] == "heron"
    assert [text.split("|") for text in found[1:]] == ROWS["tags"].to_pylist()[1:]


def test_apply_says_what_is_wrong(place, capsys):
    (place / "empty.jsonl").write_text("")
    assert "empty.jsonl holds no review" in refused(
        capsys, "apply", "empty.jsonl", "--table", "rows.csv", "--out", "a.csv"
    )
    line = refused(capsys, "apply", "none.jsonl", "--table", "rows.csv", "--out", "a.csv")
    assert "none.jsonl does not exist" in line
    decided(place, {0: "dog"})
    line = refused(capsys, "apply", "log.jsonl", "--table", "rows.csv", "--out", "rows.csv")
    assert "rows.csv is both read and written" in line
    files.write(ROWS.drop_columns(["id"]), "noid.csv")
    assert "noid.csv has no column 'id'" in refused(
        capsys, "apply", "log.jsonl", "--table", "noid.csv", "--out", "a.csv"
    )
    line = refused(
        capsys,
        "fit",
        "rows.csv",
        "--candidates",
        "tags",
        "--labels",
        "label",
        "--decisions",
        "log.jsonl",
        "--out",
        "other",
    )
    assert "rows.csv is read without ids, but decisions were made by those in column 'id'; name it with --id" in line
