import pyarrow as pa
import pytest

from candidly.tables import class_columns, files
from candidly.tables.labelled import VoteColumns, column_texts, read_labelled, read_votes
from candidly.tables.schema import Schema

ROWS = {"id": ["a", "b", "c"], "size": [1, 2, 3], "tags": ["x|y", "y", "z|x"], "truth": ["x", "y", None]}


def put(folder, columns, name="t.parquet"):
    files.write(pa.table(columns), folder / name)
    return folder / name


def test_all_other_columns_are_features(tmp_path):
    rows = read_labelled(put(tmp_path, ROWS), Schema("tags", "id", "truth"))
    assert (rows.title, rows.ids, rows.labels) == ("t.parquet", ["a", "b", "c"], ["x", "y", None])
    assert rows.features.to_pydict() == {"size": [1, 2, 3]}
    assert rows.candidates.decode() == [("x", "y"), ("y",), ("x", "z")]
    assert rows.weights is None
    rows = read_labelled(put(tmp_path, ROWS), Schema("tags", drop=["truth"]))
    assert rows.features.column_names == ["id", "size"]
    assert (rows.ids, rows.id_column, rows.labels) == (None, None, None)


def test_names_are_text_whatever_they_were(tmp_path):
    columns = ROWS | {"tags": [[10, 9], [9], [10]], "truth": [9.0, None, 10.0], "id": [7, 8, 9]}
    rows = read_labelled(put(tmp_path, columns), Schema("tags", "id", "truth"))
    assert rows.candidates.classes == ("9", "10")
    assert rows.labels == ["9", None, "10"]
    assert rows.ids == ["7", "8", "9"]
    assert rows.id_column.to_pylist() == [7, 8, 9]


def test_columns_of_csv_with_a_role_are_text(tmp_path):
    columns = ROWS | {"id": ["01", "02", "10"], "tags": ["01", "1", "01"], "truth": ["01", "1", "01"]}
    rows = read_labelled(put(tmp_path, columns, "t.csv"), Schema("tags", "id", "truth"))
    assert rows.ids == ["01", "02", "10"]
    assert rows.candidates.decode() == [("01",), ("1",), ("01",)]
    assert rows.labels == ["01", "1", "01"]


def test_chunks_make_no_difference(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_ROWS", 1)
    rows = read_labelled(put(tmp_path, ROWS), Schema("tags"))
    assert rows.candidates.decode() == [("x", "y"), ("y",), ("x", "z")]
    path = put(tmp_path, ROWS | {"tags": ["x|y", "y", None]})
    with pytest.raises(ValueError, match="row 2 has no candidates"):
        read_labelled(path, Schema("tags"))


def test_categories_are_names(tmp_path):
    path = put(tmp_path, ROWS | {"tags": pa.array(["x", "y", "x"]).dictionary_encode()})
    assert read_labelled(path, Schema("tags")).candidates.decode() == [("x",), ("y",), ("x",)]


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_an_index_is_left_out(tmp_path, name):
    path = put(tmp_path, {name: [0, 1, 2]} | ROWS)
    with pytest.warns(UserWarning, match=rf"left out '{name}', which looks like the index"):
        rows = read_labelled(path, Schema("tags", "id"))
    assert name not in rows.features.column_names
    assert list(rows.schema.drop) == [name]
    assert read_labelled(path, Schema("tags", name)).ids == ["0", "1", "2"]


@pytest.mark.parametrize(
    "kind",
    [pa.time32("s"), pa.binary(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())])],
)
def test_types_that_are_no_features(tmp_path, kind):
    path = put(tmp_path, ROWS | {"strange": pa.nulls(3, kind)})
    with pytest.raises(ValueError, match=r"column 'strange' has type .*; convert it to numbers or text, or leave it"):
        read_labelled(path, Schema("tags"))
    assert read_labelled(path, Schema("tags", drop=["strange"])).features.num_columns == 3


@pytest.mark.parametrize(
    "kind",
    [
        pa.bool_(),
        pa.date32(),
        pa.timestamp("us"),
        pa.duration("s"),
        pa.decimal128(5, 2),
        pa.large_string(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_types_that_are_features(tmp_path, kind):
    path = put(tmp_path, ROWS | {"fine": pa.nulls(3, kind)})
    assert "fine" in read_labelled(path, Schema("tags")).features.column_names


def test_texts_of_a_column():
    values = pa.chunked_array([pa.array([1.0, float("nan"), None, 2.5])])
    assert column_texts(values, "ids") == ["1", None, None, "2.5"]
    assert column_texts(pa.chunked_array([[" a ", None]]), "ids") == ["a", None]


VOTES = {"task": ["b", "a", "b", "a", "c"], "worker": ["v", "v", "w", "w", "v"], "label": ["y", "x", "y", "z", "x"]}


def test_votes_follow_the_features(tmp_path):
    votes = put(tmp_path, VOTES, "v.csv")
    schema = Schema(id="id", labels="truth", drop=["tags"])
    rows, counted = read_votes(votes, VoteColumns(), put(tmp_path, ROWS), schema)
    assert rows.ids == ["a", "b", "c"]
    assert rows.candidates.decode() == [("x", "z"), ("y",), ("x",)]
    assert rows.weights.tolist() == [[0.5, 0, 0.5], [0, 1, 0], [1, 0, 0]]
    assert rows.labels == ["x", "y", None]
    assert counted.tasks == ("b", "a", "c")


def test_tasks_are_found_by_their_text(tmp_path):
    votes = put(tmp_path, VOTES | {"task": [2.0, 1.0, 2.0, 1.0, 3.0], "label": [1, 2, 1, 2, 3]}, "v.parquet")
    features = put(tmp_path, {"task": ["1", "2", "3"], "size": [1, 2, 3]}, "f.csv")
    rows, _ = read_votes(votes, VoteColumns(), features, Schema())
    assert rows.candidates.decode() == [("2",), ("1",), ("3",)]
    assert rows.schema.id == "task"


def test_rows_without_votes_are_kept_apart(tmp_path):
    votes = put(tmp_path, {name: values[:4] for name, values in VOTES.items()}, "v.csv")
    with pytest.warns(UserWarning, match="1 of 3 rows have no votes, such as 'c'"):
        rows, _ = read_votes(votes, VoteColumns(), put(tmp_path, ROWS), Schema(id="id", drop=["tags", "truth"]))
    assert rows.ids == ["a", "b"]
    assert rows.features.to_pydict() == {"size": [1, 2]}
    assert rows.unvoted.features.to_pydict() == {"size": [3]}
    assert rows.unvoted.id_column.to_pylist() == ["c"]
    assert rows.unvoted.place.tolist() == [2]
    assert rows.votes.majority().tolist() == [None, "y"]
    assert rows.target is rows.votes


def test_tasks_without_features_can_be_skipped(tmp_path):
    votes = put(tmp_path, VOTES | {"task": ["b", "a", "b", "a", "d"]}, "v.csv")
    named = (VoteColumns(), put(tmp_path, ROWS), Schema(id="id", drop=["tags", "truth"]))
    with pytest.raises(ValueError, match=r"no row for 1 of 3 tasks .*such as 'd'.*skip_tasks="):
        read_votes(votes, *named)
    with (
        pytest.warns(UserWarning, match="such as 'd' in column 'id'; they are left out"),
        pytest.warns(UserWarning, match="1 of 3 rows have no votes"),
    ):
        rows, counted = read_votes(votes, *named, skip_tasks=True)
    assert rows.ids == ["a", "b"]
    assert counted.tasks == ("b", "a", "d")
    none = put(tmp_path, VOTES | {"task": ["p", "q", "p", "q", "r"]}, "v.csv")
    with pytest.raises(ValueError, match="no row for 3 of 3 tasks"):
        read_votes(none, *named, skip_tasks=True)


def test_each_table_has_its_delimiter(tmp_path):
    votes, rows = tmp_path / "v.csv", tmp_path / "f.csv"
    votes.write_text("task;worker;label\na;v;x\nb;v;y\n")
    rows.write_text("task,size\na,1\nb,2\n")
    with pytest.raises(ValueError, match=r"if ';' separates its columns, name it with --votes-delimiter"):
        read_votes(votes, VoteColumns(), rows, Schema())
    found, _ = read_votes(votes, VoteColumns(delimiter=";"), rows, Schema())
    assert found.candidates.decode() == [("x",), ("y",)]
    assert found.features.to_pydict() == {"size": [1, 2]}


def test_annotators_are_no_features(tmp_path):
    path = put(tmp_path, ROWS | {"v": ["x", "y", "x"], "w": ["z", "y", None]})
    rows, _ = read_votes(path, VoteColumns("id", annotators=["v", "w"]), path, Schema(drop=["tags", "truth"]))
    assert rows.features.column_names == ["size"]
    assert rows.candidates.decode() == [("x", "z"), ("y",), ("x",)]


def test_groups_are_texts_and_no_feature(tmp_path):
    path = put(tmp_path, ROWS | {"scene": [1.0, None, 1.0]})
    rows = read_labelled(path, Schema("tags", "id", "truth", groups="scene"))
    assert rows.groups == ["1", None, "1"]
    assert rows.features.column_names == ["size"]
    assert read_labelled(path, Schema("tags", "id", "truth", drop=["scene"])).groups is None
    with pytest.raises(ValueError, match="labels and groups both name the column 'truth'"):
        read_labelled(path, Schema("tags", "id", "truth", groups="truth"))
    path = put(tmp_path, ROWS | {"scene": [[1], [2], [1]]})
    with pytest.raises(ValueError, match=r"column 'scene' has type .*; groups are texts or numbers, convert them"):
        read_labelled(path, Schema("tags", "id", "truth", groups="scene"))


def test_groups_of_votes_are_a_column_of_either_table(tmp_path):
    schema = Schema(id="id", labels="truth", drop=["tags"], groups="scene")
    votes = put(tmp_path, VOTES, "v.csv")
    rows, _ = read_votes(votes, VoteColumns(), put(tmp_path, ROWS | {"scene": ["p", "q", ""]}), schema)
    assert rows.groups == ["p", "q", None]
    votes = put(tmp_path, VOTES | {"scene": ["q", "p", "q", "p", None]}, "v.csv")
    rows, _ = read_votes(votes, VoteColumns(), put(tmp_path, ROWS), schema)
    assert rows.groups == ["p", "q", None]
    assert rows.features.column_names == ["size"]
    votes = put(tmp_path, VOTES | {"scene": ["q", "p", "q", "q", None]}, "v.csv")
    with pytest.raises(ValueError, match=r"v.csv: task 'a' has the group 'q' in row 3 and 'p' before.*'scene'"):
        read_votes(votes, VoteColumns(), put(tmp_path, ROWS), schema)
    rows, _ = read_votes(votes, VoteColumns(), put(tmp_path, ROWS | {"scene": ["r", "r", "r"]}), schema)
    assert rows.groups == ["r", "r", "r"], "the table of features comes first"
    with pytest.raises(ValueError, match=r"has no column 'scene'; name another with --groups"):
        read_votes(put(tmp_path, VOTES, "v.csv"), VoteColumns(), put(tmp_path, ROWS), schema)


def test_thresholds_and_classes_of_votes(tmp_path):
    votes, features = put(tmp_path, VOTES, "v.csv"), put(tmp_path, ROWS)
    roles = Schema(id="id", drop=["tags", "truth"])
    rows, _ = read_votes(votes, VoteColumns(), features, roles, classes=["z", "y", "x", "w"])
    assert rows.candidates.classes == ("z", "y", "x", "w")
    with pytest.warns(UserWarning, match="2 tasks have no label with min_votes=2"):
        read_votes(votes, VoteColumns(), features, roles, min_votes=2)


def test_the_limit_of_classes(tmp_path, monkeypatch):
    monkeypatch.setattr(class_columns, "are_too_many", lambda classes, rows: classes > 2)
    with pytest.raises(ValueError, match=r"3 classes for 3 rows; is 'tags' the right column, and '\|' the separator"):
        read_labelled(put(tmp_path, ROWS), Schema("tags"))
    assert len(read_labelled(put(tmp_path, ROWS), Schema("tags"), classes=["x", "y", "z"]).candidates.classes) == 3


def test_intervals_are_no_features(tmp_path):
    path = put(tmp_path, ROWS | {"strange": pa.nulls(3, pa.month_day_nano_interval())}, "t.arrow")
    with pytest.raises(ValueError, match="column 'strange' has type month_day_nano_interval; convert it"):
        read_labelled(path, Schema("tags"))


def test_far_dates_as_ids(tmp_path):
    path = put(tmp_path, ROWS | {"far": pa.array([2**60, 2**60 + 1, 2**60 + 2], pa.timestamp("s"))}, "t.arrow")
    with pytest.raises(ValueError, match=r"column 'far' has dates or durations that are too far away; convert them to"):
        read_labelled(path, Schema("tags", "far"))
