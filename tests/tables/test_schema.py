"""Which columns of a table are read, and as what."""

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from candidly.data import load, read_table
from candidly.tables import labelled
from candidly.tables.schema import Schema

TABLE = {"a": [1.0, 2.0], "candidates": ["x|y", "y"], "label": ["x", "y"]}


def write(path, columns):
    """Write a table as CSV or Parquet."""
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.table(columns), path)
    else:
        lines = [columns, *zip(*columns.values(), strict=True)]
        path.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    return path


@pytest.fixture(params=["t.csv", "t.parquet"])
def path(request, tmp_path):
    return tmp_path / request.param


@pytest.mark.parametrize("names", [[""], ["Unnamed: 0"], ["__index_level_0__"], ["", "Unnamed: 0.1"]])
def test_an_index_is_left_out(path, names):
    write(path, {name: [0, 1] for name in names} | TABLE)
    with pytest.warns(UserWarning, match="left out") as caught:
        dataset = load(path)
    assert dataset.X.tolist() == [[1], [2]]
    assert len(caught) == 1
    for part in (str(path), *map(repr, names), "rename the column to keep it"):
        assert part in str(caught[0].message)
    assert caught[0].filename == __file__
    assert read_table(path, drop=names).X.shape == (2, 1), "without a warning"
    write(path, {f"index{j}": [0, 1] for j in range(len(names))} | TABLE)
    assert load(path).X.shape == (2, 1 + len(names)), "the advice works"


def test_an_index_is_no_feature(path):
    write(path, {"": [0, 1]} | {name: values for name, values in TABLE.items() if name != "a"})
    with pytest.raises(ValueError, match=r"no column of features beside .* '' looks like an index; add or rename"):
        load(path)


def note(path, columns, pandas):
    table = pa.table(columns).replace_schema_metadata({"pandas": pandas})
    pa.parquet.write_table(table, path)
    return path


def test_an_index_that_pandas_notes_is_left_out(tmp_path):
    pandas = json.dumps({"index_columns": ["id", "gone", {"kind": "range"}], "columns": []})
    path = note(tmp_path / "t.parquet", {"id": [7, 8]} | TABLE, pandas)
    with pytest.warns(UserWarning, match="left out 'id', which looks like the index"):
        assert load(path).X.tolist() == [[1], [2]]
    pandas = json.dumps({"index_columns": ["candidates", "label"]})
    dataset = load(note(tmp_path / "t.parquet", TABLE, pandas))
    assert dataset.y.tolist() == [0, 1], "what is named is read"


def test_commands_leave_out_the_same_index(tmp_path):
    path = note(tmp_path / "t.parquet", {"id": [7, 8]} | TABLE, json.dumps({"index_columns": ["id"]}))
    with pytest.warns(UserWarning, match="left out 'id', which looks like the index"):
        rows = labelled.read_labelled(path, Schema("candidates", labels="label"))
    assert rows.features.column_names == ["a"]
    assert rows.schema.drop == ("id",)


@pytest.mark.parametrize("pandas", ["no JSON", "[1]", '{"index_columns": 3}', "null", '{"index_columns": null}'])
def test_other_notes_do_not_matter(tmp_path, pandas):
    assert load(note(tmp_path / "t.parquet", TABLE, pandas)).X.shape == (2, 1)


def test_blanks_in_a_header(tmp_path):
    (tmp_path / "t.csv").write_text("a , candidates, label\n1,x|y,x\n2,y,y\n")
    dataset = load(tmp_path / "t.csv")
    assert dataset.X.tolist() == [[1], [2]]
    assert dataset.y.tolist() == [0, 1]
    (tmp_path / "t.csv").write_text("a , candidates, label\noops,x|y,x\n")
    with pytest.raises(ValueError, match="row 0 has 'oops' in column 'a'"):
        load(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("a, a,candidates\n1,2,x|y\n")
    with pytest.raises(ValueError, match="several columns 'a'"):
        load(tmp_path / "t.csv")


@pytest.mark.parametrize(("role", "name"), [("candidates", "Candidates"), ("label", "LABEL")])
def test_another_case(path, role, name):
    write(path, {name if key == role else key: values for key, values in TABLE.items()})
    with pytest.raises(
        ValueError, match=rf"has no column '{role}' \(did you mean '{name}'\?\); name another with .*{role}="
    ):
        load(path)
    assert read_table(path, **{role: name}).y.tolist() == [0, 1], "the advice works"
    if role == "label":
        assert read_table(path, drop=[name]).y is None
        assert read_table(path, label=None).X.shape == (2, 1), "and true labels are no feature"


def test_missing_labels_can_be_left_out(path):
    write(path, TABLE | {"label": ["x", "" if path.suffix == ".csv" else None]})
    with pytest.raises(ValueError, match=r"row 1 has no label in column 'label'.*read_table\(..., label=None\)"):
        load(path)
    dataset = read_table(path, label=None)
    assert dataset.y is None
    assert dataset.X.tolist() == [[1], [2]]


def test_candidates_may_be_called_label(path):
    write(path, {"a": [1.0, 2.0], "label": ["x|y", "y"]})
    assert read_table(path, "label", None).S.tolist() == [[True, True], [False, True]]
    with pytest.raises(ValueError, match="candidates and label are both 'label'; name two columns, or pass label=None"):
        read_table(path, "label")


def test_drop(path):
    write(path, {"id": ["p", "q"], "note": ["r", "s"]} | TABLE)
    with pytest.raises(ValueError, match=r"column 'id'.*drop="):
        load(path)
    dataset = read_table(path, drop=["id", "note"])
    assert dataset.X.tolist() == [[1], [2]]
    assert dataset.y.tolist() == [0, 1]
    assert read_table(path, drop=["id", "note", "label"]).y is None
    with pytest.raises(ValueError, match=r"has no column 'it'; name another with --drop .*, out of 'id', 'note', 'a'"):
        read_table(path, drop=["it"])
    with pytest.raises(ValueError, match="drop is 'id'; it must be a list of columns"):
        read_table(path, drop="id")
    with pytest.raises(ValueError, match="candidates and drop both name the column 'candidates'"):
        read_table(path, drop=["candidates"])


def test_long_headers_are_cut(path):
    write(path, {f"x{j}": [1, 2] for j in range(500)})
    with pytest.raises(ValueError, match=r"'x18', 'x19' and 480 more$"):
        load(path)


def test_schemas_of_older_models_have_no_groups():
    facts = Schema("a", groups="g").to_json()
    assert Schema.from_json(facts).groups == "g"
    del facts["groups"]
    assert Schema.from_json(facts).groups is None
    with pytest.raises(ValueError, match="groups"):
        Schema.from_json(facts | {"groups": 3})
