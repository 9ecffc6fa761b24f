"""Tables in and out: round trips, what is refused and how, and that nothing half-written is left behind."""

import errno
import gzip
import io
import os
import sys
from datetime import date, datetime

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from candidly.store import files as store_files
from candidly.tables import files

TABLE = pa.table(
    {
        "id": ["007", "008", None],
        "weight": [4.5, None, -1.0],
        "count": [1, 2, 3],
        "wild": [True, None, False],
        "found": [date(2020, 1, 31), None, date(1999, 12, 1)],
    }
)
CSV = "id,weight,count,wild,found\n007,4.5,1,true,2020-01-31\n008,,2,,\n,-1,3,false,1999-12-01\n"


def put(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def one_line(caught, *parts):
    """Check that a message is one line that names all parts."""
    text = str(caught.value)
    assert "\n" not in text
    assert not isinstance(caught.value, pa.ArrowException)
    for part in parts:
        assert str(part) in text


def give(monkeypatch, content):
    """Let standard input hold some bytes."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("suffix", files.SUFFIXES)
@pytest.mark.parametrize("case", [str.lower, str.upper])
def test_round_trip(tmp_path, suffix, case):
    path = tmp_path / f"table{case(suffix)}"
    files.write(TABLE, path)
    assert files.read(path, texts=["id"]).equals(TABLE)
    assert files.read(str(path), texts=["id"]).equals(TABLE)
    assert names(tmp_path) == [path.name]


def test_csv_is_plain(tmp_path):
    files.write(TABLE, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes().decode() == CSV
    files.write(TABLE, tmp_path / "t.tsv")
    assert (tmp_path / "t.tsv").read_bytes().decode() == CSV.replace(",", "\t")
    files.write(TABLE, tmp_path / "t.csv.gz")
    first = (tmp_path / "t.csv.gz").read_bytes()
    assert gzip.decompress(first).decode() == CSV
    files.write(TABLE, tmp_path / "t.csv.gz")
    assert (tmp_path / "t.csv.gz").read_bytes() == first


def test_both_formats_of_arrow(tmp_path):
    path = tmp_path / "t.arrow"
    with pa.ipc.new_stream(path, TABLE.schema) as writer:
        writer.write_table(TABLE)
    assert files.read(path).equals(TABLE)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
def test_standard_input(tmp_path, monkeypatch, suffix):
    files.write(TABLE, tmp_path / f"t{suffix}")
    give(monkeypatch, (tmp_path / f"t{suffix}").read_bytes())
    assert files.read("-", texts=["id"]).equals(TABLE)


def test_standard_input_with_a_stream_of_arrow(monkeypatch):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)
    give(monkeypatch, sink.getvalue())
    assert files.read("-").equals(TABLE)


def test_standard_output(capfdbinary):
    print("before")
    files.write(TABLE, "-")
    assert capfdbinary.readouterr().out.decode() == f"before\n{CSV}"


def test_standard_output_gets_all_or_nothing(capsys):
    table = pa.table({"a": pa.array([["x"]] * 40_000 + [["x|y"]])})
    with pytest.raises(ValueError, match=r"'x\|y' contains '\|'"):
        files.write(table, "-")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "text", [CSV, CSV.replace("\n", "\r\n"), "\ufeff" + CSV, "\n\n" + CSV.replace("2,,\n", "2,,\n\n")]
)
def test_csv_of_others(tmp_path, text):
    assert files.read(put(tmp_path / "t.csv", text), texts=["id"]).equals(TABLE)


def test_types(tmp_path):
    text = (
        "int,gap,text,code,day,time,long,moment, padded \n"
        '1,NA,NA,01,2020-01-31,12:30,12345678901234567890,2020-01-31 10:00,"a\nb"\n'
        "2,nan,,02,2020-02-01,13:45,1,2020-01-31 11:00,c\n"
        "3,1.5,x,10,2020-02-02,14:00,2,2020-01-31 12:00,d\n"
    )
    table = files.read(put(tmp_path / "t.csv", text))
    assert table.column_names[-1] == "padded"
    assert table.to_pydict() == {
        "int": [1, 2, 3],
        "gap": [None, None, 1.5],
        "text": ["NA", None, "x"],
        "code": [1, 2, 10],
        "day": [date(2020, 1, 31), date(2020, 2, 1), date(2020, 2, 2)],
        "time": ["12:30", "13:45", "14:00"],
        "long": [12345678901234567890.0, 1.0, 2.0],
        "moment": [datetime(2020, 1, 31, hour) for hour in (10, 11, 12)],
        "padded": ["a\nb", "c", "d"],
    }
    kept = files.read(tmp_path / "t.csv", texts=["code", "day", "long", "not there"])
    assert kept["code"].to_pylist() == ["01", "02", "10"]
    assert kept["day"].to_pylist()[0] == "2020-01-31"
    assert kept["long"].to_pylist() == ["12345678901234567890", "1", "2"]


def test_late_texts_make_a_column_text(tmp_path, monkeypatch):
    monkeypatch.setattr(files.delimited, "_BYTES", 64)
    table = files.read(put(tmp_path / "t.csv", "a,b\n" + "1,2\n" * 99 + "x,2\n"))
    assert table["a"].to_pylist() == ["1"] * 99 + ["x"]
    assert table["b"].to_pylist() == [2] * 100


def test_delimiters(tmp_path):
    for delimiter in ";\t|":
        path = put(tmp_path / "t.csv", CSV.replace(",", delimiter))
        assert files.read(path, delimiter=delimiter, texts=["id"]).equals(TABLE)
    assert files.read(put(tmp_path / "t.tsv", CSV), delimiter=",", texts=["id"]).equals(TABLE)
    for wrong in ("", ", ", '"', "\n"):
        with pytest.raises(ValueError, match=r"delimiter is .*; pass the one character"):
            files.read(path, delimiter=wrong)
    with pytest.raises(ValueError, match=r"texts is 'id'; it must be a list of columns"):
        files.read(path, texts="id")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; pass a header and at least one row"),
        ("\n \n".replace(" ", ""), "is empty"),
        ("a,b\n", "has no rows"),
        ("a,b", "has no rows"),
        ("a,b\n\n1,2\n\n3\n", "is not a table: line 5 has 1 cells, the header 2; correct it, or check delimiter"),
        ('a,b\n1,"x\ny"\n3,4,5\n', "line 4 has 3 cells, the header 2"),
        ('a,b\n1,"2\n3,4\n', "a cell in line 2 is not closed; close it, and double quotes that belong to the text"),
        ('a,b\n"1,2\n3,4\n', "a cell in line 2 is not closed"),
        ("a,b\n1,2\n3,é\n".encode("latin1"), "row 1 is not UTF-8 in column 'b'; save the file as UTF-8"),
        ("a,é\n1,2\n".encode("latin1"), "is not text in UTF-8; save it as UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "is not text in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "is not text in UTF-8"),
        (b"\x89PNG\0\0\0", "is not text in UTF-8"),
        ("a,b,a\n1,2,3\n", "has several columns 'a'; rename them"),
        ("a, a\n1,2\n", "has several columns 'a'"),
        ("a,,\n1,2,3\n", "has several columns ''"),
        ("a;b\n1;2\n", "has the one column 'a;b'; if ';' separates its columns, name it with --delimiter"),
        ("a\tb\n1\t2\n", r"if '\\t' separates"),
        ("x" * 200_000 + ",b\n1,2\n", r"has no readable header: field larger than field limit"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_csv_refused(tmp_path, text, message, packed):
    content = text if isinstance(text, bytes) else text.encode()
    path = put(tmp_path / ("t.csv.gz" if packed else "t.csv"), gzip.compress(content) if packed else content)
    with pytest.raises(ValueError, match=message) as caught:
        files.read(path)
    one_line(caught, path)


def test_text_that_is_no_utf8_in_a_column_that_is_to_be_text(tmp_path):
    path = put(tmp_path / "t.csv", b"a,b\n1,x\n2,\xe9\n")
    with pytest.raises(ValueError, match=r"row 1 is not UTF-8 in column 'b'"):
        files.read(path, texts=["b"])


def test_rows_that_do_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr(files.delimited, "_BYTES", 1 << 20)
    path = put(tmp_path / "t.csv", 'a,b\n1,"' + "2\n" * (1 << 20))
    with pytest.raises(ValueError, match=r"has a row of more than 1 MiB; is a quote not closed\?") as caught:
        files.read(path)
    one_line(caught, path)


@pytest.mark.parametrize("first", ['"x"y', "x" * 200_000])
def test_a_newline_in_the_last_row_is_allowed(tmp_path, first):
    path = put(tmp_path / "t.csv", f'a,b\n1,{first}\n2,"x\ny"\n')
    assert files.read(path)["b"].to_pylist() == [first.replace('"', ""), "x\ny"]


def test_a_quoted_header_may_hold_the_delimiter(tmp_path):
    assert files.read(put(tmp_path / "t.csv", '"a,b"\n1\n')).column_names == ["a,b"]


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.csv does not exist or is not a file; check the path") as caught:
        files.read(tmp_path / "no.csv")
    one_line(caught)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match=r"folder\.csv is a folder; name a file in it"):
        files.read(tmp_path / "folder.csv")
    for name in ("t.xlsx", "t", "t.gz", "t.parquet.gz"):
        with pytest.raises(ValueError, match=r"cannot be read: its name must end in \.csv, \.csv\.gz, .*\.feather"):
            files.read(put(tmp_path / name, CSV))


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = put(tmp_path / "t.csv", CSV)
    monkeypatch.setattr(files, "open", refuse(PermissionError(errno.EACCES, "Permission denied")), raising=False)
    with pytest.raises(OSError, match=r"t\.csv cannot be read: Permission denied") as caught:
        files.read(path)
    one_line(caught, path)


def refuse(error):
    def stand_in(*arguments, **keywords):
        raise error

    return stand_in


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather", ".csv.gz"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: b"hello",
        lambda raw: raw[:6],
        lambda raw: raw[:-20],
        lambda raw: raw[:-200],
        lambda raw: raw[40:],
        lambda raw: b"FEA1" + raw[4:-4] + b"FEA1",  # Feather before Arrow
        lambda raw: raw[: len(raw) // 2] + bytes(40) + raw[len(raw) // 2 + 40 :],
    ],
)
def test_damaged_files(tmp_path, suffix, damage):
    path = tmp_path / f"t{suffix}"
    files.write(TABLE, path)
    put(path, damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"is damaged or not a table|is empty") as caught:
        files.read(path)
    one_line(caught, path)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_several_columns_of_one_name(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    twice = pa.table([[1], [2]], names=["a", "a"])
    with pytest.raises(ValueError, match=r"the table has several columns 'a'; rename them"):
        files.write(twice, path)
    if suffix == ".parquet":
        pyarrow.parquet.write_table(twice, path)
    else:
        pyarrow.feather.write_feather(twice, path)
    with pytest.raises(ValueError, match=r"has several columns 'a'; rename them"):
        files.read(path)


@pytest.mark.parametrize("wrong", [None, "a", {"a": [1]}])
def test_writes_tables_only(tmp_path, wrong):
    with pytest.raises(ValueError, match=r"table is .*; it must be a pyarrow.Table"):
        files.write(wrong, tmp_path / "t.csv")


@pytest.mark.parametrize("suffix", files.SUFFIXES)
def test_no_rows(tmp_path, suffix):
    files.write(TABLE.slice(0, 0), tmp_path / f"t{suffix}")
    with pytest.raises(ValueError, match=rf"t{suffix} has no rows; pass at least one"):
        files.read(tmp_path / f"t{suffix}")


def claim(path, rows, claimed):
    """Let the footer of a Parquet file claim another number of rows, wherever it says how many there are."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[-8:-4], "little")
    footer = raw[-8 - size : -8].replace(zigzag(rows), zigzag(claimed))
    assert len(footer) > size
    put(path, raw[: -8 - size] + footer + len(footer).to_bytes(4, "little") + raw[-4:])


def zigzag(number):
    number, digits = 2 * number, []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


@pytest.mark.parametrize("claimed", [10**12, 2**31 - 1])
def test_rows_that_are_only_claimed_take_no_memory(tmp_path, claimed):
    path, rows = tmp_path / "t.parquet", 7777
    files.write(pa.table({"a": range(rows), "b": ["x"] * rows}), path)
    claim(path, rows, claimed)
    assert pyarrow.parquet.read_metadata(path).num_rows == claimed
    pool = pa.default_memory_pool()
    allowed = max(pool.max_memory(), pool.bytes_allocated() + (1 << 28))  # its peak may be that of an earlier test
    with pytest.raises(ValueError, match=r"t\.parquet takes at least .* of memory, more than the limit") as caught:
        files.read(path)
    one_line(caught)
    assert pool.max_memory() <= allowed


def test_rows_without_content_take_memory(tmp_path):
    path = tmp_path / "t.arrow"
    half = pa.nulls(2**30)  # which take no memory
    files.write(pa.table({"a": pa.chunked_array([half, half, pa.nulls(1)])}), path)
    with pytest.raises(ValueError, match=r"t\.arrow takes at least 16.0 GiB of memory, more than the limit"):
        files.read(path)


def test_lists(tmp_path):
    kept = pa.array([["cat", "dog"], [], None, ["emu"]])
    scores = pa.array([[0.25, 1e-3], [], [0.5], None], pa.list_(pa.float32()))
    table = pa.table({"kept": kept, "scores": scores, "large": kept.cast(pa.large_list(pa.large_string()))})
    files.write(table, tmp_path / "t.csv")
    lines = ["kept,scores,large", "cat|dog,0.25|0.001,cat|dog", ",,", ",0.5,", "emu,,emu"]
    assert (tmp_path / "t.csv").read_text().splitlines() == lines
    files.write(table, tmp_path / "t.csv", separator=" + ")
    assert (tmp_path / "t.csv").read_text().splitlines()[1] == "cat + dog,0.25 + 0.001,cat + dog"
    files.write(table, tmp_path / "t.parquet")
    assert files.read(tmp_path / "t.parquet").equals(table)


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        (
            pa.array([["a"], ["b", "c|d"]]),
            {},
            r"'c\|d' contains '\|', .*; write Parquet, or choose another --separator",
        ),
        (pa.array([["a"], ["b", "c d"]]), {"separator": " "}, "'c d' contains ' '"),
        (pa.array([["a", None]]), {}, "column 'x' has lists with missing values, .*; write Parquet"),
        (pa.array([b"\xff"]), {}, "column 'x' has type binary, which CSV does not have; write Parquet"),
        (pa.array([{"a": 1}]), {}, "column 'x' has type struct<a: int64>, which CSV does not have"),
        (pa.array([["a"]]), {"separator": ""}, "separator is ''; it must be the text between the values"),
    ],
)
def test_what_csv_does_not_have(tmp_path, column, options, message):
    put(tmp_path / "t.csv", "old")
    with pytest.raises(ValueError, match=message) as caught:
        files.write(pa.table({"x": column}), tmp_path / "t.csv", **options)
    one_line(caught)
    assert names(tmp_path) == ["t.csv"]
    assert (tmp_path / "t.csv").read_text() == "old"


def test_what_parquet_does_not_have(tmp_path):
    table = pa.table({"x": pa.nulls(1, pa.month_day_nano_interval())})
    with pytest.raises(ValueError, match=r"the table cannot be written as \.parquet: ") as caught:
        files.write(table, tmp_path / "t.parquet")
    one_line(caught)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=cmd()", "'=cmd()"),
        ("+a", "'+a"),
        ("-a", "'-a"),
        ("-", "'-"),
        ("@a", "'@a"),
        ("\ta", "'\ta"),
        (" =a", "' =a"),
        ("\u00a0=a", "'\u00a0=a"),
        ("\r=a", r"\x0d=a"),
        ("-5", "-5"),
        ("+1.5e-3", "+1.5e-3"),
        ("-5+cmd()", "'-5+cmd()"),
        ("a=b", "a=b"),
        ("'=a", "''=a"),
        ("'a", "'a"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\x00b\x7f\x9b", r"a\x00b\x7f\x9b"),
        ("<script>", "<script>"),
    ],
)
def test_text_that_could_do_harm(tmp_path, text, written):
    kinds = {
        "text": pa.array([text]),
        "list": pa.array([[text, "z"]]),
        "category": pa.array([text]).dictionary_encode(),
    }
    files.write(pa.table(kinds | {text: pa.array([1])}), tmp_path / "t.csv")
    with open(tmp_path / "t.csv", encoding="utf-8", newline="") as stream:
        header, cells = list(files.delimited.csv.reader(stream))
    assert cells == [written, f"{written}|z" if text not in ("-5", "+1.5e-3") else f"'{written}|z", written, "1"]
    assert header == ["text", "list", "category", written]
    files.write(pa.table(kinds), tmp_path / "t.parquet")
    assert files.read(tmp_path / "t.parquet")["list"].to_pylist() == [[text, "z"]]


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("=+-@'\t\n \"|,;\u00a0"), min_size=1)


@pytest.mark.filterwarnings("ignore:.* look like rows of the table")
@given(st.lists(texts, min_size=1, max_size=5), st.sampled_from(["t.csv", "t.tsv"]))
def test_text_comes_back_as_it_was(tmp_path_factory, values, name):
    path = tmp_path_factory.mktemp("t") / name
    files.write(pa.table({"a": values, "b": [1] * len(values)}), path)
    assert files.read(path, texts=["a"])["a"].to_pylist() == values


class Full:
    """A disk that takes so many bytes and no more."""

    def __init__(self, path, mode, room):
        self.file, self.room = open(path, mode), room  # noqa: SIM115

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(data)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize("suffix", files.SUFFIXES)
@pytest.mark.parametrize("room", [0, 30])
@pytest.mark.parametrize("old", [None, "old"])
def test_a_full_disk(tmp_path, monkeypatch, suffix, room, old):
    path = tmp_path / f"t{suffix}"
    if old:
        put(path, old)
    before = names(tmp_path)
    monkeypatch.setattr(store_files, "open", lambda path, mode: Full(path, mode, room), raising=False)
    with pytest.raises(OSError, match=rf"t{suffix} cannot be written: No space left on device") as caught:
        files.write(TABLE, path)
    one_line(caught, path)
    assert names(tmp_path) == before
    assert not old or path.read_text() == old


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt(), SystemExit(143)])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_nothing_is_left_of_what_fails(tmp_path, monkeypatch, call, error):
    put(tmp_path / "t.csv", "old")
    monkeypatch.setattr(os, call, refuse(error))
    with pytest.raises(type(error)):
        files.write(TABLE, tmp_path / "t.csv")
    assert names(tmp_path) == ["t.csv"]
    assert (tmp_path / "t.csv").read_text() == "old"


def test_links_and_modes_stay(tmp_path):
    real = put(tmp_path / "real.csv", "old")
    real.chmod(0o640)
    link = tmp_path / "link.csv"
    link.symlink_to(real)
    files.write(TABLE, link)
    assert link.is_symlink()
    assert real.read_text() == CSV
    assert real.stat().st_mode & 0o777 == 0o640


def test_check_writable_leaves_nothing(tmp_path):
    put(tmp_path / "t.csv", "old")
    for name in ("t.csv", "new.parquet", "NEW.TSV"):
        files.check_writable(tmp_path / name)
    files.check_writable("-")
    files.check_writable(tmp_path / "page.HTML", [".html"])
    assert names(tmp_path) == ["t.csv"]
    assert (tmp_path / "t.csv").read_text() == "old"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("t.xlsx", r"t\.xlsx cannot be written: its name must end in \.csv"),
        ("t", "its name must end in"),
        ("folder.csv", r"folder\.csv is a folder; name a file in it"),
        ("no/t.csv", r"the folder .*no does not exist; make it first"),
        ("file/t.csv", r"the folder .*file is not a folder; name another"),
    ],
)
def test_check_writable_refuses(tmp_path, name, message):
    (tmp_path / "folder.csv").mkdir()
    put(tmp_path / "file", "old")
    before = names(tmp_path)
    with pytest.raises((OSError, ValueError), match=message) as caught:
        files.check_writable(tmp_path / name)
    one_line(caught)
    with pytest.raises((OSError, ValueError), match=r"cannot be written") as caught:
        files.write(TABLE, tmp_path / name)
    one_line(caught)
    assert names(tmp_path) == before


def test_a_folder_that_may_not_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "open", refuse(OSError(errno.EROFS, "Read-only file system")))
    with pytest.raises(OSError, match=r"nothing can be written to .*: Read-only file system; name another") as caught:
        files.check_writable(tmp_path / "t.csv")
    one_line(caught)


def test_names_with_the_separator():
    files.check_names("t.parquet", ["a|b"], "|")
    files.check_names("t.csv", ["a|b"], ";")
    for target in ("t.csv", "-", "t.TSV.GZ"):
        with pytest.raises(ValueError, match=r"'a\|b' contains '\|'"):
            files.check_names(target, ["c", "a|b"], "|")


ROWS = "".join(f"{i}.5,{i},cat|dog\n{i},{i},dog\n" for i in range(3))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a,b,c\n1,2,"cat', 2),  # at the end of the file
        (f'a,b,c\n{ROWS}1,2,"cat\n{ROWS}', 8),
        (f'a,b,c\n{ROWS}"1,2,cat\n{ROWS}', 8),
        (f'a,b,c\n{ROWS}1,2,"cat\n{ROWS}1,2,"dog"\n{ROWS}', 8),  # the next quoted cell seems to close it
        (f'a,b,"c\n{ROWS}', 1),
        (f'a,b,c\n1,2,"x\ny"\n{ROWS}1,2,"a ""b\n', 10),
    ],
)
@pytest.mark.parametrize("size", [1 << 24, 150])  # bytes of a block
def test_quotes_that_are_not_closed(tmp_path, monkeypatch, text, line, size):
    monkeypatch.setattr(files.delimited, "_BYTES", size)
    path = put(tmp_path / "t.csv", text)
    with pytest.raises(ValueError, match=rf"the quote at the start of a cell in line {line} is not closed") as caught:
        files.read(path)
    one_line(caught, path)


@pytest.mark.parametrize("cell", ['5" pipe', '"5"" pipe"', '"x\ny"', '"x\n""y"""', '"a,b"', '"x"y', '""'])
@pytest.mark.parametrize("before", range(20))
def test_quotes_that_are_fine(tmp_path, monkeypatch, cell, before):
    monkeypatch.setattr(files.delimited, "_BYTES", 40)  # blocks end anywhere in the cells
    path = put(tmp_path / "t.csv", f"\ufeffa,b\n{'1' * before},2\n" + f"1,{cell}\r\n" * 20)
    assert files.read(path).num_rows == 21


def test_a_cell_that_looks_like_rows_is_suspicious(tmp_path):
    path = put(tmp_path / "t.csv", 'a,b,c\n1,2,x\n3,4,"y\n5,6,z\n7,8,z"\n9,9,z\n')
    with pytest.warns(UserWarning, match=r"row 1 has a text of 3 lines in column 'c' that look like rows of the table"):
        assert files.read(path)["c"].to_pylist() == ["x", "y\n5,6,z\n7,8,z", "z"]
    files.read(put(tmp_path / "t.csv", 'a,b,c\n1,2,x\n3,4,"Dear all,\nthanks"\n9,9,z\n'))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("\uff1d1+1", "'\uff1d1+1"),
        ("\uff0b1", "'\uff0b1"),
        ("\uff0d1", "'\uff0d1"),
        ("\uff20a", "'\uff20a"),
        (";=1+1", ";'=1+1"),
        ("a; =1+1", "a;' =1+1"),
        ("\t=1", "'\t'=1"),
        ("a\n@b", "a\n'@b"),
        ("\u200b=1", "'\u200b=1"),
        ("a;-5", "a;-5"),
        ("a; b", "a; b"),
    ],
)
def test_formulas_behind_a_delimiter(tmp_path, text, written):
    for name, delimiter in (("t.csv", ","), ("t.tsv", "\t")):
        files.write(pa.table({"a": [text], "b": [1]}), tmp_path / name)
        with open(tmp_path / name, encoding="utf-8", newline="") as stream:
            assert list(files.delimited.csv.reader(stream, delimiter=delimiter))[1][0] == written
        assert files.read(tmp_path / name, texts=["a"])["a"].to_pylist() == [text]


@pytest.mark.skipif(os.name != "posix", reason="the system has no named pipes")
def test_a_named_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "link.csv").symlink_to("pipe.csv")
    for name in ("pipe.csv", "link.csv"):
        with pytest.raises(ValueError, match=f"{name} is a device or a named pipe"):
            files.check_writable(tmp_path / name)
