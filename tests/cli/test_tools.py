"""Commands with annotation tools and other programs: exports in, tasks and suggestions out, and files of arrays."""

import json

import numpy as np
import pyarrow as pa
import pytest
import scipy.io

from candidly.tables import files
from tests.cli.test_commands import NAMES, ROLES, run
from tests.cli.test_reuse import TRAINING, refused
from tests.review.made import ROWS, TRUE, copy, train

FIELDS = ROWS.select(["id", "size", "colour"]).to_pylist()
WORKERS = ("ann", "bob", "eve")


def choice(label, control="animal", target="size"):
    return {"type": "choices", "from_name": control, "to_name": target, "value": {"choices": [label]}}


def annotate(data, answers, **control):
    """Return tasks of Label Studio; `answers` are pairs of annotator and label for each of them."""
    return [
        {
            "id": 1000 + i,
            "data": one,
            "annotations": [{"completed_by": who, "result": [choice(label, **control)]} for who, label in given],
        }
        for i, (one, given) in enumerate(zip(data, answers, strict=True))
    ]


def vote(rng):
    """Return the votes of three annotators on every row, each of which is right with probability 0.8."""
    return [[(who, true if rng.random() < 0.8 else str(rng.choice(NAMES))) for who in WORKERS] for true in TRUE]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    copy(trained, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(name, tasks):
    with open(name, "w", encoding="utf-8") as file:
        json.dump(tasks, file)


def load(name):
    with open(name, encoding="utf-8") as file:
        return json.load(file)


@pytest.mark.filterwarnings("always::UserWarning")  # the program prints them
def test_an_export_is_cleaned_into_tasks_to_import(place, capsys):
    answers = vote(np.random.default_rng(1))
    tasks = annotate(FIELDS, answers)
    for one, true in zip(tasks[:30], TRUE, strict=False):
        one["annotations"].append({"completed_by": "boss", "ground_truth": True, "result": [choice(true)]})
    for one in tasks[30:60]:
        one["annotations"].append({"completed_by": "ann", "was_cancelled": True, "result": [choice("emu")]})
    tasks[-1]["annotations"] = []
    save("export.json", tasks)
    votes = [(one["id"], *given) for one, row in zip(FIELDS[:-1], answers, strict=False) for given in row]
    table = dict(zip(("id", "worker", "label"), map(list, zip(*votes, strict=True)), strict=True))
    files.write(pa.table(table), "votes.csv")
    files.write(ROWS.select(["id", "size", "colour"]), "features.csv")
    options = ("--id", "id", *TRAINING)
    shown = run(capsys, "clean", "--annotations", "export.json", *options, "--out", "own.csv")
    both = ("--annotations", "votes.csv", "--task", "id", "--features", "features.csv")
    run(capsys, "clean", *both, *options, "--out", "other.csv")
    own, other = files.read("own.csv"), files.read("other.csv")
    assert own.column("true").to_pylist() == [*TRUE[:30], *[None] * 170]
    assert own.drop_columns(["true"]).equals(other)  # the export is the same votes, without the cancelled ones
    assert "on 30 rows with a known label" in shown.out
    assert "1 of 200 rows have no votes" in shown.err
    form = ("--format", "label-studio", "--out", "import.json")
    run(capsys, "clean", "--annotations", "export.json", *options, *form)
    written = load("import.json")
    assert sorted(one["id"] for one in written) == [one["id"] for one in tasks]
    rank = dict(zip(own.column("id").to_pylist(), own.column("priority").to_pylist(), strict=True))
    ranks = [rank[int(one["data"]["id"])] for one in written]
    assert ranks == [*range(1, 200), None]  # those that need a review most come first
    predicted = dict(zip(own.column("id").to_pylist(), own.column("predicted").to_pylist(), strict=True))
    for one in written:
        (prediction,) = one["predictions"]
        assert one["data"] == FIELDS[one["id"] - 1000]
        assert set(prediction) == {"model_version", "score", "result"}
        assert prediction["result"] == [choice(predicted[int(one["data"]["id"])])]
        assert 0 < prediction["score"] <= 1


@pytest.mark.filterwarnings("always::UserWarning")
def test_rows_without_a_task_are_new_tasks(place, capsys):
    save("export.json", annotate(FIELDS[:150], vote(np.random.default_rng(1))[:150]))
    files.write(ROWS.select(["id", "size", "colour"]), "features.csv")
    both = ("--annotations", "export.json", "--features", "features.csv", "--id", "id", *TRAINING)
    run(capsys, "clean", *both, "--format", "label-studio", "--out", "import.json")
    written = load("import.json")
    assert {one.get("id") for one in written} == {*range(1000, 1150), None}
    assert {str(one["data"]["id"]) for one in written} == set(map(str, ROWS.column("id").to_pylist()))


def test_answers_to_verify_come_back_from_label_studio(place, capsys):
    form = ("--table", "rows.csv", "--format", "label-studio", "--out", "check.json")
    run(capsys, "verify", "plan", "model", "--rows", 60, "--alpha", 0.2, *form)
    data = [one["data"] for one in load("check.json")]
    right = [[("ann", TRUE[one["row"]])] for one in data]
    save("answers.json", annotate(data, right, control="answer")[::-1])
    files.write(pa.table({"row": [one["row"] for one in data], "answer": [name for [(_, name)] in right]}), "a.csv")
    first = run(capsys, "certify", "model", "answers.json", "--out", "one.csv").out
    assert first.replace("one.csv", "two.csv") == run(capsys, "certify", "model", "a.csv", "--out", "two.csv").out
    assert files.read("one.csv").equals(files.read("two.csv"))
    wrong = next(name for name in NAMES if name != right[0][0][1])
    save("answers.json", annotate(data, [[*right[0], ("bob", wrong)], *right[1:]], control="answer"))
    line = refused(capsys, "certify", "model", "answers.json", "--out", "one.csv")
    assert f"two answers for row {data[0]['row']}; keep one" in line
    tasks = annotate(data, [[*right[0], ("bob", wrong)], *right[1:]], control="answer")
    tasks[0]["annotations"][0]["ground_truth"] = True  # decides
    save("answers.json", tasks)
    assert run(capsys, "certify", "model", "answers.json", "--out", "one.csv").out == first


@pytest.mark.filterwarnings("always::UserWarning")  # the program prints them
def test_relabelled_rows_are_merged_by_id_after_the_table_was_shuffled(place, capsys):
    form = ("--format", "label-studio", "--question", "animal,size", "--first", 20, "--out", "doubtful.json")
    run(capsys, "clean", "rows.csv", "--model", "model", *form)
    tasks = load("doubtful.json")
    assert len(tasks) == 20
    assert {one["predictions"][0]["model_version"] for one in tasks} == {"model"}
    true = dict(zip(ROWS.column("id").to_pylist(), TRUE, strict=True))
    data = [one["data"] for one in tasks]
    answers = [[("ann", true[one["id"]])] for one in data]
    answers[0].append(("bob", next(name for name in NAMES if name != answers[0][0][1])))
    save("relabelled.json", annotate(data, answers))
    shuffled = ROWS.take(np.random.default_rng(0).permutation(ROWS.num_rows))
    files.write(shuffled, "shuffled.csv")
    roles = ("--id", "id", "--candidates", "tags")
    shown = run(capsys, "apply", "relabelled.json", "--table", "shuffled.csv", *roles, "--out", "decided.csv")
    assert "reviewers disagree on 1 rows" in shown.err
    before, after = files.read("shuffled.csv", texts=["id"]), files.read("decided.csv", texts=["id"])
    decided = {one["id"] for one in data[1:]}
    for old, new in zip(before.to_pylist(), after.to_pylist(), strict=True):
        assert new == (old | {"tags": true[old["id"]]} if old["id"] in decided else old)
    with_model = ("--table", "shuffled.csv", "--model", "model")
    run(capsys, "apply", "relabelled.json", *with_model, "--out", "again.csv")
    assert files.read("again.csv").equals(files.read("decided.csv"))
    run(capsys, "clean", "shuffled.csv", *ROLES, *TRAINING, "--decisions", "relabelled.json", "--out", "c.csv")
    cleaned = {row["id"]: row for row in files.read("c.csv", texts=["id"]).to_pylist()}
    assert all(cleaned[one]["candidates"] == true[one] for one in decided)


def test_what_apply_refuses_about_exports(place, capsys):
    save("twice.json", annotate(FIELDS[:1], [[("ann", "cat"), ("ann", "dog")]]))
    out = ("--table", "rows.csv", "--out", "decided.csv")
    assert "name the column of ids with --id" in refused(capsys, "apply", "twice.json", *out)
    assert "'ann' gave task" in refused(capsys, "apply", "twice.json", *out, "--id", "id")
    save("none.json", annotate(FIELDS[:1], [[]]))
    assert "none.json has no annotations" in refused(capsys, "apply", "none.json", *out, "--id", "id")
    save("one.json", annotate(FIELDS[:1], [[("ann", "cat")]]))
    line = refused(capsys, "apply", "log.jsonl", *out, "--id", "id")
    assert "--id applies to an export" in line


def test_predictions_for_tools(place, capsys):
    save("tasks.json", annotate(FIELDS[:3], [[]] * 3))
    out = ("--format", "label-studio", "--question", "animal", "--out", "import.json")
    run(capsys, "predict", "model", "tasks.json", *out)
    written = load("import.json")
    assert [one["id"] for one in written] == [1000, 1001, 1002]
    assert [one["data"] for one in written] == FIELDS[:3]
    assert written[0]["predictions"][0]["result"][0]["to_name"] == "size"
    run(capsys, "fit", "rows.csv", "--candidates", "tags", "--drop", "id,label", *TRAINING, "--out", "nameless")
    boss = {"completed_by": "boss", "ground_truth": True, "result": [choice("cat")]}
    bare = [{"id": 1000 + i, "data": {name: one[name] for name in ("size", "colour")}} for i, one in enumerate(FIELDS)]
    save("bare.json", [one | {"annotations": [boss]} for one in bare])
    run(capsys, "predict", "nameless", "bare.json", "--out", "bare.csv")
    assert files.read("bare.csv").column("task").to_pylist() == [one["id"] for one in bare]
    run(capsys, "predict", "model", "rows.csv", "--format", "argilla", "--question", "animal", "--out", "s.parquet")
    table = files.read("s.parquet")
    suggestions = ["animal.suggestion", "animal.suggestion.score", "animal.suggestion.agent"]
    assert table.column_names == ["id", "size", "colour", *suggestions]
    run(capsys, "predict", "model", "rows.csv", "--alpha", 0.1, "--format", "huggingface", "--out", "h.parquet")
    run(capsys, "predict", "model", "rows.csv", "--alpha", 0.1, "--out", "p.parquet")
    numbers, names = files.read("h.parquet"), files.read("p.parquet")
    assert [NAMES[j] for j in numbers.column("predicted").to_pylist()] == names.column("predicted").to_pylist()
    assert [[NAMES[j] for j in one] for one in numbers.column("set").to_pylist()] == names.column("set").to_pylist()
    assert b"huggingface" in numbers.schema.metadata


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--format", "label-studio", "--out", "a.csv"), "a.csv cannot be written: its name must end in .json"),
        (("--format", "label-studio", "--out", "-"), "--format label-studio needs a file; name one that ends in .json"),
        (("--format", "huggingface", "--out", "a.csv"), "its name must end in .parquet"),
        (("--question", "a", "--out", "a.csv"), "--question applies to tasks for annotation tools"),
        (("--format", "argilla", "--first", "0", "--out", "a.csv"), "--first is 0; name the number of tasks"),
        (("--format", "argilla", "--question", "a,b", "--out", "a.csv"), "--question is 'a,b'; name one question"),
        (("--format", "argilla", "--out", "out/"), "--format is for results in one file"),
    ],
)
def test_options_for_tools_are_checked_first(place, capsys, given, message):
    assert message in refused(capsys, "clean", "rows.csv", *ROLES, *given)
    assert message in refused(capsys, "predict", "model", "rows.csv", *given)


def test_files_of_arrays(place, capsys):
    sets = np.array([[name in tags for name in NAMES] for tags in ROWS.column("tags").to_pylist()])
    true = np.array([NAMES.index(name) for name in TRUE])
    X = np.stack([true + np.random.default_rng(0).normal(size=200) / 4, np.arange(200.0)], 1)
    np.savez("rows.npz", X=X, S=sets, y=true, classes=NAMES)
    marks = {"partial_target": sets.T.astype(float), "target": np.eye(3)[true].T}
    scipy.io.savemat("rows.mat", {"data": X, **marks})
    lists = [[name for name, mark in zip(NAMES, row, strict=True) if mark] for row in sets]
    table = pa.table({"x0": X[:, 0], "x1": X[:, 1], "candidates": lists, "label": TRUE})
    files.write(table, "same.parquet")
    columns = ("--candidates", "candidates", "--labels", "label")
    expected = run(capsys, "clean", "same.parquet", *columns, *TRAINING, "--out", "same.csv").out
    shown = run(capsys, "clean", "rows.npz", *TRAINING, "--out", "arrays.csv").out
    assert shown.replace("rows.npz", "same.parquet").replace("arrays.csv", "same.csv") == expected
    assert files.read("arrays.csv").equals(files.read("same.csv"))
    run(capsys, "clean", "rows.mat", *TRAINING, "--out", "mat.csv")  # classes are numbers there
    kept = files.read("mat.csv", texts=["kept"]).column("kept").to_pylist()
    assert [[NAMES[int(j)] for j in one.split("|")] for one in kept] == [
        one.split("|") for one in files.read("same.csv").column("kept").to_pylist()
    ]
    run(capsys, "fit", "rows.npz", *TRAINING, "--out", "arrays")
    assert "0.05" in run(capsys, "audit", "rows.npz", "--model", "arrays").out
    run(capsys, "predict", "arrays", "rows.npz", "--out", "predicted.csv")
    assert files.read("predicted.csv").num_rows == 200
    np.savez("images.npz", X=np.zeros((2, 1, 4, 4), np.uint8), S=np.ones((2, 3)))
    assert "images; save features with one row per image" in refused(capsys, "clean", "images.npz", "--out", "x.csv")
    np.savez("none.npz", S=np.ones((2, 3)))
    assert "none.npz has no array X" in refused(capsys, "clean", "none.npz", "--out", "x.csv")
