"""Exports of Label Studio and Argilla: what is read as votes, fields and true labels, and what is refused."""

import json

import pyarrow as pa
import pytest

from candidly.tables import Schema, VoteColumns, files, read_votes
from candidly.tables.exports import is_export, of_table, read_export
from candidly.tables.hugging_face import number_classes
from candidly.tables.label_studio import with_predictions
from candidly.tables.tasks import Task


def choice(*labels, control="bird", target="photo"):
    return {"type": "choices", "from_name": control, "to_name": target, "value": {"choices": list(labels)}}


def annotation(who, *labels, **more):
    return {"completed_by": who, "result": [choice(*labels)]} | more


def task(number, data, *annotations):
    return {"id": number, "data": data, "annotations": list(annotations), "predictions": []}


def save(place, entries, name="export.json"):
    path = place / name
    path.write_text(json.dumps(entries))
    return path


def votes_of(export):
    return [tuple(row.values()) for row in export.votes().to_pylist()]


def test_annotators_cancelled_annotations_and_ground_truth(tmp_path):
    path = save(
        tmp_path,
        [
            task(7, {"weight": 9}, annotation(1, "wren"), annotation({"id": 2, "email": "bob@x.org"}, "robin")),
            task(8, {"weight": 18}, annotation(1, "wren", was_cancelled=True), annotation(None, "robin")),
            task(9, {"weight": 17}, annotation(3, "robin", ground_truth=True), annotation(1, "wren", "robin")),
            task(10, {"weight": 16}),
        ],
    )
    found = read_export(path)
    assert (found.question, found.target) == ("bird", "photo")
    assert votes_of(found) == [
        ("7", "1", "wren"),
        ("7", "bob@x.org", "robin"),
        ("8", "unknown", "robin"),
        ("9", "1", "wren"),
        ("9", "1", "robin"),
    ]
    assert found.truth == {"9": "robin"}
    assert found.rows().column("ground_truth").to_pylist() == [None, None, "robin", None]


def test_fields_become_columns_as_in_csv(tmp_path):
    data = [
        {"key": "007", "n": 1, "text": "a", "number": "4.5", "code": "01", "flag": True, "mixed": 2.5},
        {"key": "008", "n": 2, "text": "", "number": "", "code": "02", "flag": None, "mixed": ""},
    ]
    data[1]["boxes"] = [1, 2]
    found = read_export(save(tmp_path, [task(i, one, annotation(1, "wren")) for i, one in enumerate(data)]), key="key")
    with pytest.warns(UserWarning, match=r"the fields 'boxes' hold lists or objects and are left out"):
        rows = found.rows(texts=["code"])
    assert rows.to_pydict() == {
        "key": ["007", "008"],
        "n": [1, 2],
        "text": ["a", None],
        "number": [4.5, None],
        "code": ["01", "02"],
        "flag": [True, None],
        "mixed": [2.5, None],
    }


def test_several_exports_are_joined_by_id(tmp_path):
    save(tmp_path, [task(7, {"n": 1}, annotation(1, "wren"))], "a.json")
    save(tmp_path, [task(7, {"n": 1}, annotation(1, "wren"), annotation(2, "robin")), task(8, {"n": 2})], "b.json")
    expected = [("7", "1", "wren"), ("7", "2", "robin")]
    assert votes_of(read_export(tmp_path)) == votes_of(read_export(tmp_path / "*.json")) == expected
    assert list(read_export(tmp_path).tasks) == ["7", "8"]
    save(tmp_path, [task(7, {"n": 3}, annotation(1, "wren"))], "c.json")
    with pytest.raises(ValueError, match=r"c.json: two tasks have the id '7' but different fields; name a field"):
        read_export(tmp_path)


def test_json_min(tmp_path):
    entry = {"id": 7, "n": 1, "annotator": 3, "annotation_id": 5, "created_at": "", "updated_at": "", "lead_time": 1.5}
    path = save(tmp_path, [entry | {"bird": "wren"}, entry | {"bird": {"choices": ["robin", "wren"]}, "annotator": 4}])
    with pytest.raises(ValueError, match=r"is JSON-MIN, which does not say what holds the labels; name the control"):
        read_export(path)
    found = read_export(path, label="bird")
    assert votes_of(found) == [("7", "3", "wren"), ("7", "4", "robin"), ("7", "4", "wren")]
    assert found.rows().to_pydict() == {"task": ["7"], "n": [1]}


def test_one_of_several_control_tags_is_named(tmp_path):
    result = [choice("wren"), choice("male", control="sex"), {"type": "rating", "from_name": "r", "value": {}}]
    path = save(tmp_path, [task(1, {"n": 1}, {"completed_by": 1, "result": result})])
    with pytest.raises(ValueError, match=r"choices of the control tags 'bird', 'sex'; name one of them with --label"):
        read_export(path)
    assert votes_of(read_export(path, label="sex")) == [("1", "1", "male")]
    assert votes_of(read_export(path, preferred="sex")) == [("1", "1", "male")]
    with pytest.raises(ValueError, match=r"no choices of a control tag 'brid'.* 'bird'"):
        read_export(path, label="brid")


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        (DEEP, "is not JSON"),
        ('"a"', "is not a list of tasks"),
        ("[]", "is not a list of tasks"),
        ("[1]", "is not a list of tasks"),
        ('[{"id": 1}]', "entry 0 has no object 'data'"),
        ('[{"data": []}]', "entry 0 has no object 'data'"),
        ('[{"data": {}, "annotations": 5}]', "has no annotations"),
        ('[{"data": {}, "annotations": [5, {"result": 3}, {"result": [4]}]}]', "has no annotations"),
        (json.dumps([task(1, {"n": 1}, annotation(1, "\ud800"))]), "has text that is not Unicode, with"),
        (json.dumps([task(1, {"n": 1}, {"result": [{"type": "rating"}]})]), "no annotation of type choices, only of"),
        (json.dumps([task(1, {"n": 1}, annotation(1, 5, None, ["x"], " "))]), "has no annotations"),
        (json.dumps([task(1, {"k": 1}), task(2, {})]), "task 2 has no field 'k'"),
    ],
)
def test_what_is_not_an_export_is_refused(tmp_path, text, message):
    path = tmp_path / "export.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as refusal:
        read_export(path, key="k").votes()
    assert str(path) in str(refusal.value)


def test_a_big_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("candidly.tables.exports._MOST_BYTES", 10)
    with pytest.raises(ValueError, match=r"more than the limit of 10; export the tasks in several files"):
        read_export(save(tmp_path, [task(1, {"n": 1})]))
    with pytest.raises(FileNotFoundError, match=r"no.json does not exist or is not a file"):
        read_export(tmp_path / "no.json")


def test_large_and_odd_numbers_are_kept(tmp_path):
    path = tmp_path / "export.json"
    path.write_text('[{"id": 1, "data": {"big": 123456789012345678901234567890, "odd": NaN, "half": 0.5}}]')
    assert read_export(path).rows().to_pylist() == [
        {"task": "1", "big": 123456789012345678901234567890.0, "odd": None, "half": 0.5}
    ]


def test_different_ground_truth_is_refused(tmp_path):
    two = [annotation(1, "wren", ground_truth=True), annotation(2, "robin", ground_truth=True)]
    with pytest.raises(ValueError, match=r"task '1' has the different true labels 'wren', 'robin'"):
        read_export(save(tmp_path, [task(1, {"n": 1}, *two)]))


def test_votes_with_features_of_the_export_or_of_a_table(tmp_path):
    entries = [
        task(10 + i, {"id": f"b{i}", "weight": i}, annotation(1, "wren"), annotation(2, "robin")) for i in range(4)
    ]
    entries[2]["annotations"].append(annotation(3, "wren", ground_truth=True))
    path = save(tmp_path, entries)
    files.write(pa.table({"id": ["b3", "b2", "b1", "b0"], "weight": [3, 2, 1, 0]}), tmp_path / "rows.csv")
    own, _ = read_votes(path, VoteColumns(), None, Schema(id="id"))
    other, _ = read_votes(path, VoteColumns(), tmp_path / "rows.csv", Schema(id="id"))
    assert own.ids == ["b0", "b1", "b2", "b3"]
    assert own.labels == [None, None, "wren", None]
    assert own.features.to_pydict() == {"weight": [0, 1, 2, 3]}
    assert (other.ids, other.labels) == (own.ids[::-1], own.labels[::-1])
    assert own.export is not None
    assert own.schema.labels == "ground_truth"
    by_number, _ = read_votes(path, VoteColumns(), None, Schema(drop=["id"]))
    assert by_number.ids == ["10", "11", "12", "13"]
    files.write(pa.table({"id": ["b0", "b1", "b2", "b3"], "n": range(4), "true": ["wren"] * 4}), tmp_path / "true.csv")
    named, _ = read_votes(path, VoteColumns(), tmp_path / "true.csv", Schema(id="id", labels="true"))
    assert named.labels == ["wren"] * 4
    with pytest.raises(ValueError, match=r"says who annotated what; leave .*worker.* out"):
        read_votes(path, VoteColumns(worker="w"), None, Schema(id="id"))
    with pytest.raises(ValueError, match=r"rows.csv holds votes without features; name the table"):
        read_votes(tmp_path / "rows.csv", VoteColumns(), None, Schema())


RECORD = {
    "id": "a",
    "text": "chirp",
    "label.responses": ["wren", "robin", "finch"],
    "label.responses.users": ["ann", "bob", "eve"],
    "label.responses.status": ["submitted", "submitted", "discarded"],
    "label.suggestion": "finch",
    "label.suggestion.score": 0.9,
}


def test_records_of_argilla(tmp_path):
    silent = {"id": "b", "text": "tweet", "label.responses": None, "label.responses.users": None}
    table = pa.Table.from_pylist([RECORD, {**RECORD, **silent}])
    lines = tmp_path / "records.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    for found in (read_export(lines), of_table(table, "records.parquet")):
        assert votes_of(found) == [("a", "ann", "wren"), ("a", "bob", "robin")]
        assert found.rows().to_pydict() == {"task": ["a", "b"], "text": ["chirp", "tweet"]}
        assert (found.question, found.target) == ("label", None)
    assert of_table(pa.table({"task": [1]}), "votes.csv") is None


@pytest.mark.parametrize(
    ("change", "label", "message"),
    [
        ({"other.responses": []}, None, "has the questions 'label', 'other'; name one of them with --label"),
        ({}, "lable", "has no column 'lable.responses'; name a question"),
        ({"label.responses.users": ["ann"]}, None, "record 0 has not one user for every response of 'label'"),
    ],
)
def test_records_that_are_refused(change, label, message):
    with pytest.raises(ValueError, match=message):
        of_table(pa.Table.from_pylist([RECORD | change]), "r.parquet", label=label)
    with pytest.raises(ValueError, match=r"has no column 'label.responses.users'"):
        of_table(pa.table({"label.responses": [["wren"]]}), "r.parquet")


def test_predictions_keep_ids_and_fields():
    tasks = [Task("7", {"boxes": [1]}), Task("", {"n": 1})]
    found = json.loads(with_predictions(tasks, ["wren", None], [0.25, 0.0], "bird", "photo", "model"))
    result = [choice("wren")]
    assert found[0] == {
        "id": 7,
        "data": {"boxes": [1]},
        "predictions": [{"model_version": "model", "score": 0.25, "result": result}],
    }
    assert found[1] == {"data": {"n": 1}, "predictions": []}


def test_numbers_of_classes():
    table = pa.table({"id": ["wren"] * 3, "kept": [["wren"], [], ["robin", "wren"]], "true": ["wren", "owl", None]})
    found = number_classes(table.append_column("outside", pa.nulls(3, pa.string())), ("kept", "true", "outside"), NAMES)
    assert found.to_pydict() == table.to_pydict() | {"kept": [[1], [], [0, 1]], "outside": [None] * 3}
    facts = json.loads(found.schema.metadata[b"huggingface"])["info"]["features"]
    label = {"names": NAMES, "_type": "ClassLabel"}
    assert facts == {"kept": {"feature": label, "_type": "List"}, "outside": label}


NAMES = ["robin", "wren"]


def test_what_is_an_export(tmp_path):
    assert [is_export(name) for name in ("a.JSON", "a.jsonl", "a.csv", "-")] == [True, True, False, False]
    assert not is_export(tmp_path)
    save(tmp_path, [])
    assert is_export(tmp_path)
