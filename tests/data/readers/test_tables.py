import gzip
import os
import warnings
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from candidly import candidates
from candidly.data import load, read_table
from candidly.tables import delimited, files


def write(path, columns, **options):
    pa.parquet.write_table(pa.table(columns), path, **options)
    return path


def write_csv(path, text):
    path.write_text(text, encoding="utf-8")
    return path


ROWS = {
    "a": [1.0, 2.0, 3.0],
    "b": [4, 5, 6],
    "candidates": ["cat|dog", "dog", " emu | cat"],
    "label": ["cat", "dog", "cat"],
}
CSV = "a,b,candidates,label\n1,4,cat|dog,cat\n2.0,5,dog,dog\n3e0,6, emu | cat, cat\n"


def assert_is_rows(dataset):
    assert dataset.classes == ("cat", "dog", "emu")
    assert dataset.X.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert dataset.S.tolist() == [[True, True, False], [False, True, False], [True, False, True]]
    assert dataset.y.tolist() == [0, 1, 0]
    assert (dataset.X.dtype, dataset.S.dtype, dataset.y.dtype) == (np.float64, np.bool_, np.int64)
    assert dataset.X.flags.c_contiguous
    assert dataset.X.flags.owndata


def test_parquet(tmp_path):
    path = write(tmp_path / "Rows.parquet", ROWS)
    assert_is_rows(load(path))
    assert_is_rows(load(str(path)))
    assert load(path).name == "rows"


@pytest.mark.parametrize(
    "text", [CSV, CSV.replace("\n", "\r\n"), "\ufeff" + CSV, CSV.replace("dog,dog", '"dog","dog"')]
)
def test_csv(tmp_path, text):
    assert_is_rows(load(write_csv(tmp_path / "rows.csv", text)))


def test_blocks_and_row_groups_make_no_difference(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_ROWS", 2)
    monkeypatch.setattr(delimited, "_BYTES", 40)
    assert_is_rows(read_table(write(tmp_path / "rows.parquet", ROWS, row_group_size=2)))
    assert_is_rows(read_table(write_csv(tmp_path / "rows.csv", CSV)))
    # Types are not guessed from the first block, where this column looks like integers.
    dataset = read_table(write_csv(tmp_path / "late.csv", "a,candidates\n" + "1,x|y\n" * 99 + "0.5,y\n"))
    assert dataset.X[-1] == 0.5
    assert dataset.X.shape == (100, 1)


def test_column_names_with_points(tmp_path):
    wide = {f"x.{j}": [1.0, 2.0] for j in range(5)} | {"candidates": ["u", "v"]}
    assert read_table(write(tmp_path / "wide.parquet", wide)).X.tolist() == [[1] * 5, [2] * 5]


def test_columns_by_other_names(tmp_path):
    text = "a,tags,truth\n1,x;y,x\n2,y,z\n"
    with pytest.warns(UserWarning, match="in 1 of 2 rows"):
        dataset = read_table(write_csv(tmp_path / "t.csv", text), candidates="tags", label="truth", separator=";")
    assert dataset.classes == ("x", "y", "z"), "a label that is nobody's candidate is a class"
    assert dataset.y.tolist() == [0, 2]
    assert dataset.S.tolist() == [[True, True, False], [False, True, False]]


def test_arrow(tmp_path):
    files.write(pa.table(ROWS), tmp_path / "rows.arrow")
    assert_is_rows(load(tmp_path / "rows.arrow"))


def test_true_labels_that_would_be_a_feature(tmp_path):
    path = write_csv(tmp_path / "t.csv", "a,candidates,target\n1,x|y,0\n2,y,1\n")
    with pytest.warns(UserWarning, match=r"'target' is a feature; .*label=.*drop=") as caught:
        assert read_table(path).X.shape == (2, 2)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="in 2 of 2 rows"):
        assert read_table(path, label="target").y.tolist() == [0, 1], "the advice works"
    assert read_table(path, drop=["target"]).X.shape == (2, 1)


def test_without_labels(tmp_path):
    path = write_csv(tmp_path / "t.csv", "a,candidates\n1,x|y\n2,y\n")
    assert read_table(path).y is None
    path = write_csv(tmp_path / "t.csv", "a,label,candidates\n1,7,x|y\n2,8,y\n")
    dataset = read_table(path, label=None)
    assert dataset.y is None
    assert dataset.X.tolist() == [[1], [2]], "true labels are no feature"


@pytest.mark.parametrize("wrap", [pa.list_, pa.large_list])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_lists_of_text(tmp_path, wrap, kind):
    values = [["dog ", "cat|dog"], ["cat|dog"], ["dog", "dog"]]
    path = write(tmp_path / "t.parquet", {"a": [1, 2, 3], "candidates": pa.array(values, wrap(kind))})
    dataset = read_table(path)
    assert dataset.classes == ("cat|dog", "dog"), "names in lists are not split"
    assert dataset.S.tolist() == [[True, True], [True, False], [False, True]]


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint8()])
def test_integers_are_sorted_by_value(tmp_path, kind):
    columns = {
        "a": [1.0, 2.0],
        "candidates": pa.array([[10, 9], [9]], pa.list_(kind)),
        "label": pa.array([9, 100], kind),
    }
    with pytest.warns(UserWarning, match="in 1 of 2 rows"):
        dataset = read_table(write(tmp_path / "t.parquet", columns))
    assert dataset.classes == ("9", "10", "100")
    assert dataset.S.tolist() == [[True, True, False], [True, False, False]]
    assert dataset.y.tolist() == [0, 2]


def test_integers_in_text_are_sorted_by_value(tmp_path):
    columns = {"a": [1.0, 2.0], "candidates": ["10|9", "9"], "label": [10, 9]}
    csv = write_csv(tmp_path / "t.csv", "a,candidates,label\n1,10|9,10\n2,9,9\n")
    for path in (write(tmp_path / "t.parquet", columns), csv):
        dataset = read_table(path)
        assert dataset.classes == ("9", "10")
        assert dataset.S.tolist() == [[True, True], [True, False]]
        assert dataset.y.tolist() == [1, 0]
    text = write_csv(tmp_path / "t.csv", "a,candidates\n1,10|9\n2,09\n")
    assert read_table(text).classes == ("09", "10", "9"), "not all of them are integers"


@pytest.mark.parametrize(
    "values", [[3, 7, 3], pa.array(["u", "v", "u"]).dictionary_encode(), pa.array([[3], [7], [3]])]
)
def test_single_candidates(tmp_path, values):
    dataset = read_table(write(tmp_path / "t.parquet", {"a": [1, 2, 3], "candidates": values}))
    assert dataset.S.tolist() == [[True, False], [False, True], [True, False]]


def test_fixed_size_lists(tmp_path):
    values = pa.array([["u", "v"], ["u", "u"]], pa.list_(pa.string(), 2))
    dataset = read_table(write(tmp_path / "t.parquet", {"a": [1, 2], "candidates": values}))
    assert dataset.S.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize(
    ("kinds", "dtype"),
    [
        ((pa.float32(), pa.float32()), np.float32),
        ((pa.float32(), pa.float64()), np.float64),
        ((pa.float32(), pa.int8()), np.float64),
        ((pa.bool_(), pa.uint64()), np.float64),
    ],
)
def test_feature_types(tmp_path, kinds, dtype):
    columns = {f"x{j}": pa.array([0, 1], pa.int8()).cast(kind) for j, kind in enumerate(kinds)}
    dataset = read_table(write(tmp_path / "t.parquet", columns | {"candidates": ["u|v", "u"]}))
    assert dataset.X.dtype == dtype
    assert dataset.X.tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidates": None}, "has no column 'candidates'; name another with --candidates .*, out of 'a', 'b', 'la"),
        ({"a": None, "b": None}, "has no column of features beside 'candidates', 'label'"),
        ({"a": ["1", "y", "z"]}, "row 1 has 'y' in column 'a'; features are numbers"),
        ({"a": ["1", "2", "3"]}, r"column 'a' has type string; features are numbers, .*\(in Python, drop=\)"),
        ({"a": [date(2020, 1, 1)] * 3}, "column 'a' has type date32.*; features are numbers"),
        ({"b": [1.0, None, 2.0]}, "row 1 has no value in column 'b'"),
        ({"b": [1.0, 2.0, np.nan]}, "row 2 has no finite number in column 'b'"),
        ({"a": [-np.inf, 2.0, 3.0]}, "row 0 has no finite number in column 'a'"),
        ({"candidates": ["u", None, "v"]}, "row 1 has no candidates; drop it"),
        ({"candidates": ["u", "v", " "]}, "row 2 has no candidates; drop it"),
        ({"candidates": ["u", "v||u", "v"]}, "row 1 has an empty name; remove the stray separator"),
        ({"candidates": ["u|", "v", "v"]}, "row 0 has an empty name"),
        ({"candidates": [["u"], [], ["v"]]}, "row 1 has no candidates"),
        ({"candidates": [["u"], None, ["v"]]}, "row 1 has no candidates"),
        ({"candidates": [["u"], ["v"], ["u", None]]}, "row 2 has a missing name"),
        ({"candidates": [["u"], ["v"], ["u", " "]]}, "row 2 has an empty name"),
        ({"candidates": [0.5, 1.5, 2.5]}, "column 'candidates' has class names of type double; pass text or integers"),
        ({"candidates": [[True], [False], [True]]}, "class names of type bool"),
        (
            {"label": ["u", None, "v"]},
            r"row 1 has no label in column 'label'; fill it, or leave .* read_table\(..., label=None\)",
        ),
        ({"label": ["u", "", "v"]}, "row 1 has no label"),
        ({"label": [[1], [2], [3]]}, "column 'label' has class names of type list.*; pass text or integers$"),
        ({"label": [1.0, np.nan, 2.0]}, "row 1 has no label in column 'label'"),
        ({"label": pa.array([1.0, None, 2.0])}, "row 1 has no label in column 'label'"),
        ({"label": pa.array([None] * 3)}, "row 0 has no label in column 'label'"),
        ({"label": [1.0, 1.5, 2.0]}, "column 'label' has class names of type double"),
        ({"candidates": [[1.0], [np.nan], [2.0]]}, "row 1 has a missing name"),
    ],
)
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_rejects(tmp_path, monkeypatch, change, message, rows):
    monkeypatch.setattr(files, "_ROWS", rows)
    path = write(
        tmp_path / "t.parquet", {name: values for name, values in (ROWS | change).items() if values is not None}
    )
    with pytest.raises(ValueError, match=rf"t\.parquet.*{message}"):
        read_table(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; pass a header"),
        ("a,candidates\n", "has no rows"),
        (
            "a,candidates\n1,x\noops,y\n",
            "row 1 has 'oops' in column 'a'; features are numbers, .*leave it out with .*drop=",
        ),
        ("a,candidates\n1,x\n,y\n", "row 1 has no value in column 'a'"),
        ("a,candidates\n1,x\nnan,y\n", "row 1 has no value in column 'a'"),
        ("a,candidates\n1,x\ninf,y\n", "row 1 has no finite number in column 'a'"),
        ("a,candidates\n1,x\n2,\n", "row 1 has no candidates"),
        ("a,candidates\n1,x\n2\n", "line 3 has 1 cells, the header 2"),
        ("a,candidates\n\n1,x\n\n\n2\n", "line 6 has 1 cells, the header 2"),
        ("a;candidates\n1,5;x\n", r"has the one column 'a;candidates'; .*\(in Python, delimiter=\)"),
        ("a,a,candidates\n1,2,x\n", "has several columns 'a'; rename them"),
        ("a,candidates,label\n1,x,x\n2,y,\n", "row 1 has no label"),
        ("a,candidates\n1,x\n2,x\n", r"has the one class 'x'; .* list all with .*classes="),
    ],
)
def test_csv_rejects(tmp_path, text, message):
    with pytest.raises(ValueError, match=rf"t\.csv.*{message}"):
        read_table(write_csv(tmp_path / "t.csv", text))


def test_arguments(tmp_path):
    path = write(tmp_path / "t.parquet", ROWS)
    with pytest.raises(ValueError, match="separator is ''; it must be the text between"):
        read_table(path, separator="")
    with pytest.raises(ValueError, match=r"has no column 'truth'; name another with --labels .*label="):
        read_table(path, label="truth")
    with pytest.raises(FileNotFoundError, match=r"no.parquet does not exist"):
        read_table(tmp_path / "no.parquet")


@pytest.mark.parametrize(
    "damage", [lambda raw: b"", lambda raw: b"PAR1 no", lambda raw: raw[:-20], lambda raw: raw[40:]]
)
def test_rejects_damaged_parquet(tmp_path, damage):
    path = write(tmp_path / "t.parquet", ROWS)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"t.parquet is damaged or not a table"):
        read_table(path)


@pytest.mark.parametrize("name", ["t.csv.gz", "T.CSV.GZ"])
def test_compressed_csv(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(CSV.encode()))
    assert_is_rows(read_table(path))
    assert_is_rows(load(path))
    assert_is_rows(load(str(path)))
    assert load(path).name == "t"


@pytest.mark.parametrize("damage", [lambda raw: raw[:-10], lambda raw: b"a,candidates\n1,x\n"])
def test_rejects_damaged_gzip(tmp_path, damage):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(damage(gzip.compress(CSV.encode())))
    with pytest.raises(ValueError, match=r"t.csv.gz is damaged or not a table"):
        read_table(path)


def test_delimiters(tmp_path):
    assert_is_rows(load(write_csv(tmp_path / "t.tsv", CSV.replace(",", "\t"))))
    assert_is_rows(read_table(write_csv(tmp_path / "t.tsv", CSV.replace(",", ";")), delimiter=";"))
    for delimiter in ";\t":
        path = write_csv(tmp_path / "t.csv", CSV.replace(",", delimiter))
        with pytest.raises(ValueError, match=r"t.csv has the one column 'a.*in Python, delimiter="):
            load(path)
        assert_is_rows(read_table(path, delimiter=delimiter))
    for wrong in ("", ", ", '"', "\n"):
        with pytest.raises(ValueError, match=r"delimiter is .*; pass the one character"):
            read_table(path, delimiter=wrong)


@pytest.mark.parametrize("name", ["t.txt", "t.parq", "t", "t.xlsx", "t.gz"])
def test_says_what_can_be_read(tmp_path, name):
    with pytest.raises(ValueError, match=r"cannot be read: its name must end in .csv, .csv.gz, .tsv, .*, .parquet"):
        read_table(write_csv(tmp_path / name, CSV))


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("a,candidates\n1,x\n2,é\n", "latin1"),
        ("é,candidates\n1,x\n2,y\n", "latin1"),
        ("a,candidates\n1,x\n2,y\n", "utf-16"),
    ],
)
def test_other_encodings(tmp_path, text, encoding):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding=encoding)
    with pytest.raises(ValueError, match=r"t.csv.* is not .*UTF-8.*; save .* as UTF-8$"):
        read_table(path)
    path.write_text(text, encoding="utf-8")
    assert len(read_table(path).X) == 2


def test_rows_of_later_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "_BYTES", 40)
    path = write_csv(tmp_path / "t.csv", "a,candidates\n" + "1,x\n2,y\n" * 30 + "oops,y\n")
    with pytest.raises(ValueError, match="row 60 has 'oops' in column 'a'"):
        read_table(path)


def test_booleans_are_numbers(tmp_path):
    dataset = read_table(write_csv(tmp_path / "t.csv", "a,b,candidates\nTrue,1,x\nfalse,0.5,y\n"))
    assert dataset.X.tolist() == [[1, 1], [0, 0.5]]


def test_many_classes(tmp_path):
    def table(n, num_classes):
        texts = [f"c{i % num_classes}" for i in range(n)]
        return write(tmp_path / "t.parquet", {"a": range(n), "candidates": texts})

    message = "1001 classes for 2000 rows; is 'candidates' the right column, and ';' the separator"
    with pytest.raises(ValueError, match=message):
        read_table(table(2000, 1001), separator=";")
    dataset = read_table(table(2000, 1001), classes=[f"c{i}" for i in range(1001)])
    assert dataset.S.shape == (2000, 1001), "the advice works"
    assert read_table(table(2100, 1001)).S.shape == (2100, 1001)
    assert read_table(table(999, 999)).S.shape == (999, 999)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not list open files")
@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_closes_its_files(tmp_path, name):
    rows = ROWS | {"b": [1.0, np.inf, 2.0]}
    text = CSV.replace("5", "inf")
    path = write(tmp_path / name, rows) if name == "t.parquet" else write_csv(tmp_path / name, text)
    with pytest.raises(ValueError, match="row 1 has no finite number") as caught:
        read_table(path)
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert str(path.resolve()) not in opened, caught  # the traceback holds the reader until here


names = st.text("aAbü1 ", min_size=1, max_size=3).filter(str.strip)


@given(
    rows=st.lists(st.lists(names, min_size=1, max_size=4), min_size=2, max_size=12), rows_per_block=st.integers(1, 5)
)
def test_names_are_those_of_encode(tmp_path_factory, rows, rows_per_block):
    texts = ["|".join(row) for row in rows] + ["one", "two"]
    with warnings.catch_warnings(action="ignore"):  # about names that differ by case only
        expected = candidates.encode(texts, separator="|")
    path = write(tmp_path_factory.mktemp("t") / "t.parquet", {"a": range(len(texts)), "candidates": texts})
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(action="ignore"):
        patch.setattr(files, "_ROWS", rows_per_block)
        dataset = read_table(path)
    assert dataset.classes == expected.classes
    np.testing.assert_array_equal(dataset.S, expected.matrix)


GROUPED = "a,candidates,groups\n1,cat|dog,s 1\n2,dog,s 2\n3,cat, s 1 \n"


@pytest.mark.parametrize("groups", [["s1", "s2", "s1"], [7, -3, 7], pa.array(["s1", "s2", "s1"]).dictionary_encode()])
def test_groups(tmp_path, groups):
    for name, options in (("groups", {}), ("scene", {"groups": "scene"})):
        dataset = read_table(write(tmp_path / "rows.parquet", {**ROWS, name: groups}), **options)
        assert_is_rows(dataset)
        assert dataset.groups.tolist() == [0, 1, 0]
        assert dataset.groups.dtype == np.int64


def test_groups_in_csv(tmp_path):
    path = write_csv(tmp_path / "rows.csv", GROUPED)
    assert load(path).groups.tolist() == [0, 1, 0]
    assert load(path).X.tolist() == [[1], [2], [3]]
    assert read_table(path, drop=["groups"]).groups is None
    numbers = write_csv(tmp_path / "rows.csv", GROUPED.replace("s ", "0"))
    assert load(numbers).groups.tolist() == [0, 1, 0]
    assert read_table(numbers, groups=None).groups is None
    assert read_table(numbers, groups=None).X.tolist() == [[1, 1], [2, 2], [3, 1]]


def test_no_column_of_groups_is_fine(tmp_path):
    assert load(write_csv(tmp_path / "rows.csv", CSV)).groups is None


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (GROUPED.replace("s 2", ""), {}, "row 1 has no group in column 'groups'; fill it or drop the row"),
        (GROUPED, {"groups": "group"}, "has no column 'group'.*did you mean 'groups'.*; name another with groups="),
        (GROUPED, {"groups": "a", "drop": ["a"]}, "has no column 'a'"),
        (GROUPED, {"groups": "candidates"}, "candidates and groups are both 'candidates'; name two columns"),
        (GROUPED, {"groups": "label"}, "label and groups are both 'label'"),
    ],
)
def test_refuses_groups(tmp_path, text, options, message):
    path = write_csv(tmp_path / "rows.csv", text)
    with pytest.raises(ValueError, match=message):
        read_table(path, **options)


def test_groups_are_integers_or_text(tmp_path):
    path = write(tmp_path / "rows.parquet", {**ROWS, "groups": [0.5, 1.0, 0.5]})
    with pytest.raises(ValueError, match="column 'groups' has type double; groups are integers or text, convert it"):
        load(path)
    path = write(tmp_path / "rows.parquet", {**ROWS, "groups": pa.nulls(3)})
    with pytest.raises(ValueError, match="row 0 has no group in column 'groups'"):
        load(path)
