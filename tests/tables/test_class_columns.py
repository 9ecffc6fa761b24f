"""Class names in tables."""

import pyarrow as pa
import pyarrow.parquet
import pytest

from candidly.data import load, read_table


def csv(folder, *rows, header="a,candidates,label"):
    path = folder / "t.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def parquet(folder, **columns):
    path = folder / "t.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    return path


MISSING = ("nan", "NaN", "None", "null", "NA", "N/A", "NULL", "<NA>")


@pytest.mark.parametrize("text", MISSING)
def test_texts_for_missing_names(tmp_path, text):
    for cell in (text, f"x|{text}", f" {text} "):
        with pytest.raises(ValueError, match=f"row 1 has the missing name '{text}'; name a class"):
            load(csv(tmp_path, "1,x|y,x", f"2,{cell},x"))
    path = csv(tmp_path, "1,x|y,x", f"2,x,{text}")
    with pytest.raises(ValueError, match=r"row 1 has no label in column 'label'; .*read_table\(..., label=None\)"):
        load(path)
    assert read_table(path, label=None).y is None, "the advice works"
    path = csv(tmp_path, "1,x|y,x", f"2,x|{text},{text}")
    dataset = read_table(path, classes=["y", text, "x"])
    assert dataset.y.tolist() == [2, 1], "it may be a class, if it is listed"


@pytest.mark.parametrize(
    ("text", "separator"), [("['x', 'y']", "|"), ('["x", "y"]', ", "), (" [x] ", "|"), ("{'x'}", "|")]
)
def test_lists_in_a_text(tmp_path, text, separator):
    path = parquet(tmp_path, a=[1.0, 2.0], candidates=["x", text])
    with pytest.raises(
        ValueError, match=r"row 1 has .*looks like a list in a text; .* or write lists to a Parquet file"
    ):
        read_table(path, separator=separator)
    path = parquet(tmp_path, a=[1.0, 2.0], candidates=[["x", "y"], ["y"]])
    assert read_table(path, separator=separator).classes == ("x", "y"), "the advice works"


def test_intervals_are_no_lists(tmp_path):
    path = parquet(tmp_path, a=[1.0, 2.0], candidates=["[0, 5)|[5, 9)", "[0, 5)"])
    assert read_table(path).classes == ("[0, 5)", "[5, 9)")
    path = parquet(tmp_path, a=[1.0, 2.0], candidates=["[0, 5]|[5, 9]", "[0, 5]"])
    assert read_table(path, classes=["[0, 5]", "[5, 9]"]).S.sum() == 3, "nor are classes that are listed"


def test_integers_that_went_through_floats(tmp_path):
    path = csv(tmp_path, "1,10|9,10.0", "2,9,9.00", "3,10,10")
    dataset = load(path)
    assert dataset.classes == ("9", "10")
    assert dataset.y.tolist() == [1, 0, 1]
    assert read_table(path, classes=["10", "9"]).y.tolist() == [0, 1, 0]
    dataset = load(csv(tmp_path, "1,1.0|1.5,1.0", "2,1.5,1.5"))
    assert dataset.classes == ("1.0", "1.5"), "not all of them are integers"


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.float16()])
def test_integers_in_a_float_column(tmp_path, kind):
    labels = pa.array([10, 9]).cast(pa.float32()).cast(kind)
    dataset = load(parquet(tmp_path, a=[1.0, 2.0], candidates=[[10, 9], [9]], label=labels))
    assert dataset.classes == ("9", "10")
    assert dataset.y.tolist() == [1, 0]
    dataset = load(parquet(tmp_path, a=[1.0, 2.0], candidates=labels))
    assert dataset.classes == ("9", "10")


def test_long_integers(tmp_path):
    large = [2**64 - 1, 2**64 - 2]
    dataset = load(parquet(tmp_path, a=[1.0, 2.0], candidates=pa.array(large, pa.uint64())))
    assert dataset.classes == tuple(map(str, sorted(large)))
    assert load(csv(tmp_path, "1,2,2", f"2,{'9' * 5000},{'9' * 5000}")).classes[0] == "2"


def test_given_classes(tmp_path):
    path = csv(tmp_path, "1,cat|dog,cat", "2,dog,dog")
    dataset = read_table(path, classes=["emu", " dog", "cat"])
    assert dataset.classes == ("emu", "dog", "cat")
    assert dataset.S.tolist() == [[False, True, True], [False, True, False]]
    assert dataset.y.tolist() == [2, 1]
    with pytest.raises(ValueError, match="row 1 has the name 'dog', which is not in classes; add it there"):
        read_table(csv(tmp_path, "1,cat|emu,cat", "2,dog,cat"), classes=["cat", "emu"])
    with pytest.raises(ValueError, match="row 1 has the label 'Cat', which is not in classes"):
        read_table(csv(tmp_path, "1,cat|emu,cat", "2,emu,Cat"), classes=["cat", "emu"])
    with pytest.raises(ValueError, match="class 'cat' is listed twice"):
        read_table(path, classes=["cat", "cat", "dog"])
    with pytest.raises(ValueError, match="classes is 'cat'; it must be a list of names"):
        read_table(path, classes="cat")


def test_a_single_class_can_be_listed_with_others(tmp_path):
    path = csv(tmp_path, "1,x,x")
    with pytest.raises(ValueError, match=r"has the one class 'x'; .*classes="):
        load(path)
    assert read_table(path, classes=["x", "y"]).S.tolist() == [[True, False]], "the advice works"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string_view(), ["x|y", "y"]),
        (pa.list_view(pa.string()), [["x", "y"], ["y"]]),
        (pa.large_list_view(pa.string()), [["x", "y"], ["y"]]),
        (pa.list_(pa.string_view()), [["x", "y"], ["y"]]),
    ],
)
def test_views(tmp_path, kind, values):
    try:
        path = parquet(tmp_path, a=[1.0, 2.0], candidates=pa.array(values, kind))
    except pa.ArrowNotImplementedError as error:
        pytest.skip(f"pyarrow {pa.__version__} cannot write such a file: {error}")
    dataset = load(path)
    assert dataset.classes == ("x", "y")
    assert dataset.S.tolist() == [[True, True], [False, True]]


def test_other_types_name_their_column(tmp_path):
    path = parquet(tmp_path, a=[1.0, 2.0], candidates=["x", "y"], truth=[True, False])
    with pytest.raises(ValueError, match=r"t.parquet: column 'truth' has class names of type bool"):
        read_table(path, label="truth")


def test_names_that_look_misread(tmp_path):
    with pytest.raises(ValueError, match=r"t.csv: the class name 'x;y' .*; name the separator ';' with --separator"):
        load(csv(tmp_path, "1,x;y,x", "2,y,y", "3,x,x"))
    with pytest.raises(ValueError, match=r"row 1 has the name 'y.nx', with a line break; is a quote not closed"):
        load(csv(tmp_path, "1,x|y", '2,"y', 'x"', header="a,candidates"))
    with pytest.warns(UserWarning, match=r"'X' and 'x'; write them alike if they are one class, or list all with --cl"):
        load(csv(tmp_path, "1,x|y,x", "2,X,X"))
    assert read_table(csv(tmp_path, "1,x|y,x", "2,X,X"), classes=["x", "X", "y"]).classes == ("x", "X", "y")
