"""Users' tables as files: CSV, Parquet and Arrow, damaged or odd, read by commands and by `candidly.tables`."""

import csv as reader
import gzip
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from benchmarks.robustness import made
from benchmarks.robustness.case import Case, Ended, Expected, either, error, right, run, warning
from candidly import tables

FAMILY = "tables"
N = made.ROWS
csv, columns = made.csv, made.columns


def fit(table: str, *more: str) -> Ended:
    """Fit a model to a file."""
    return run(
        "fit", table, "--candidates", "tags", "--id", "id", "--labels", "truth", "--out", "new", *made.TINY, *more
    )


def clean(table: str, *more: str) -> Ended:
    """Clean a file."""
    return run(
        "clean", table, "--candidates", "tags", "--id", "id", "--labels", "truth", "--out", "new.csv", *made.TINY, *more
    )


def on(
    content: str | bytes, name: str = "bad.csv", command: Callable[..., Ended] = clean, more: tuple[str, ...] = ()
) -> Callable[[], Ended]:
    """Return a call of a command on a file with this content."""
    return lambda: command(made.put(name, content), *more)


def result(name: str = "new.csv") -> list[list[str]]:
    """Return the cells of the cleaned table."""
    reader.field_size_limit(1 << 30)
    with open(name, encoding="utf-8", newline="") as stream:
        return list(reader.reader(stream))


def like_good(ended: Ended) -> bool:
    """Check that the cleaned table equals that of the good file."""
    found = result()
    made.put("good.csv", csv())
    run(
        "clean",
        "good.csv",
        "--candidates",
        "tags",
        "--id",
        "id",
        "--labels",
        "truth",
        "--out",
        "good-cleaned.csv",
        *made.TINY,
    )
    return found == result("good-cleaned.csv")


def like(text: str) -> Callable[[Ended], bool]:
    """Return a check that the cleaned table equals that of a file with this text."""

    def check(ended: Ended) -> bool:
        found = result()
        return clean(made.put("good.csv", text)).status == 0 and found == result()

    return check


def quoted(text: str) -> str:
    """Quote all cells of a CSV text without quotes."""
    return "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in text.splitlines()) + "\n"


GOOD = csv()
LINES = GOOD.splitlines()
HEAD = LINES[0]


def line(number: int, text: str) -> str:
    """Return the good file with another line."""
    return "\n".join([*LINES[:number], text, *LINES[number + 1 :]]) + "\n"


def commas(**chosen: bool) -> str:
    """Return the good file with semicolons between cells and decimal commas in the numbers."""
    table = columns()
    table["size"] = [cell.replace(".", ",") for cell in table["size"]]
    if chosen.get("some"):
        table["size"] = [cell if i % 2 else cell.replace(",", ".") for i, cell in enumerate(table["size"])]
    return csv(table, ";")


CSV: dict[str, tuple[Callable[[], Any], Expected]] = {
    "good": (on(GOOD), right(like_good)),
    "empty": (on(""), error("bad.csv")),
    "a line break": (on("\n"), error("bad.csv")),
    "blank lines": (on("\n\n\n"), error("bad.csv")),
    "blanks": (on("   "), error("bad.csv", "column")),
    "header only": (on(HEAD + "\n"), error("bad.csv")),
    "header without line break": (on(HEAD), error("bad.csv")),
    "a missing cell": (on(line(5, "r004,1.0,2.0")), error("line 6")),
    "an additional cell": (on(line(5, LINES[5] + ",x")), error("line 6")),
    "a trailing comma in every row": (
        on("\n".join([HEAD, *(row + "," for row in LINES[1:])]) + "\n"),
        error("line 2", "bad.csv"),
    ),
    "a trailing comma in every line": (
        on("\n".join(row + "," for row in LINES) + "\n"),
        either("bad.csv", "column", check=like_good),
    ),
    "a blank line in the middle": (on(line(5, LINES[5] + "\n")), either("line", check=like_good)),
    "blank lines at the end": (on(GOOD + "\n\n\n"), either("line", check=like_good)),
    "no line break at the end": (on(GOOD.rstrip("\n")), right(like_good)),
    "an unclosed quote at the start": (on(line(1, '"' + LINES[1])), error("line", "quote")),
    "an unclosed quote in the middle": (on(line(60, LINES[60].replace("r059", '"r059'))), error("line", "quote")),
    "an unclosed quote in the last line": (on(GOOD.rstrip("\n").rsplit(",", 1)[0] + ',"cat\n'), error("line", "quote")),
    "an unclosed quote in the header": (on('"' + GOOD), error("line", "quote", "bad.csv")),
    "two unclosed quotes": (on(line(5, LINES[5].replace("r004", '"r004')).replace("r100", '"r100')), error("line")),
    "a quote inside a cell": (
        on(line(5, LINES[5].replace("r004", 'r"0"04'))),
        either("line", check=like(line(5, LINES[5].replace("r004", '"r""0""04"')))),
    ),
    "text after a quote": (
        on(line(5, LINES[5].replace("r004", '"r"004'))),
        either("line 6", "line", check=lambda ended: result()[5][0] in ("r004", '"r"004')),
    ),
    "doubled quotes": (on(line(5, LINES[5].replace("r004", '"r""4"'))), right(lambda ended: result()[5][0] == 'r"4')),
    "a line break in a cell": (
        on(line(5, LINES[5].replace("r004", '"r\n004"'))),
        right(lambda ended: result()[5][0] == "r\n004"),
    ),
    "all quoted": (on(quoted(GOOD)), right(like_good)),
    "single quotes": (
        on(line(5, LINES[5].replace("r004", "'r004'"))),
        right(lambda ended: result()[5][0].strip("'") == "r004"),
    ),
    "a null character": (
        on(line(5, LINES[5].replace("r004", "r\x004"))),
        either("bad.csv", "line", check=lambda ended: result()[5][0] in ("r\x004", "r\\x004")),
    ),
    "null characters only": (on(b"\0" * 5000), error("bad.csv")),
    "random bytes": (on(np.random.default_rng(0).bytes(20_000)), error("bad.csv")),
    "a byte order mark": (on(b"\xef\xbb\xbf" + GOOD.encode()), right(like_good)),
    "two byte order marks": (on(b"\xef\xbb\xbf" * 2 + GOOD.encode()), error("bad.csv", "column", "'id'")),
    "latin-1": (on(line(5, LINES[5].replace("r004", "é")).encode("latin-1")), error("UTF-8")),
    "latin-1 in the header": (on(GOOD.replace("colour", "coulé").encode("latin-1")), error("UTF-8")),
    "UTF-16": (on(GOOD.encode("utf-16")), error("UTF-8")),
    "UTF-16 without mark": (on(GOOD.encode("utf-16-le")), error("UTF-8", "bad.csv")),
    "UTF-32": (on(GOOD.encode("utf-32")), error("UTF-8", "bad.csv")),
    "overlong UTF-8": (on(line(5, LINES[5]).encode().replace(b"r004", b"\xc0\xaf")), error("UTF-8")),
    "surrogates in UTF-8": (on(line(5, LINES[5]).encode().replace(b"r004", b"\xed\xa0\x80")), error("UTF-8")),
    "CRLF": (on(csv(end="\r\n")), right(like_good)),
    "CR": (on(csv(end="\r")), either("bad.csv", "line", check=like_good)),
    "mixed line ends": (on("\r\n".join(LINES[:50]) + "\r\n" + "\n".join(LINES[50:]) + "\n"), right(like_good)),
    "a line separator U+2028 in a cell": (
        on(line(5, LINES[5].replace("r004", "r\u2028004"))),
        right(lambda ended: len(result()) == N + 1),
    ),
    "a vertical tab in a cell": (
        on(line(5, LINES[5].replace("r004", "r\x0b004"))),
        either("bad.csv", check=lambda ended: len(result()) == N + 1),
    ),
    "semicolons": (on(csv(delimiter=";")), error("delimiter", ";")),
    "tabs": (on(csv(delimiter="\t")), error("delimiter", "tab", "\\t")),
    "pipes": (on(csv(delimiter="|")), error("delimiter", "|", "line")),
    "semicolons and --delimiter": (on(csv(delimiter=";"), more=("--delimiter", ";")), right(like_good)),
    "commas and a wrong --delimiter": (on(GOOD, more=("--delimiter", ";")), error("delimiter", ";", "column")),
    "a tab-separated file": (on(csv(delimiter="\t"), name="bad.tsv"), right(like_good)),
    "commas in a .tsv": (on(GOOD, name="bad.tsv"), error("delimiter", "bad.tsv", ",")),
    "decimal commas": (
        on(commas(), more=("--delimiter", ";")),
        either("size", "comma", check=lambda ended: "size" in ended.err and like_good(ended)),
    ),
    "some decimal commas": (
        on(commas(some=True), more=("--delimiter", ";")),
        either("size", "comma", check=lambda ended: "size" in ended.err and like_good(ended)),
    ),
    "thousands separators": (
        on(csv(columns(size=[f'"{1000 * (i + 1):,}"' for i in range(N)]))),
        either("size", "comma", check=like(csv(columns(size=[1000 * (i + 1) for i in range(N)])))),
    ),
    "blanks around numbers": (
        on(csv(columns(size=[f"  {cell} " for cell in columns()["size"]]))),
        either("size", check=like_good),
    ),
    "units behind numbers": (on(csv(columns(size=[f"{cell} kg" for cell in columns()["size"]]))), warning("size")),
    "percent signs": (on(csv(columns(size=[f"{cell}%" for cell in columns()["size"]]))), warning("size")),
    "one word among numbers": (on(csv(columns(size={7: "unknown"}))), warning("size")),
    "question marks among numbers": (on(csv(columns(size={7: "?"}))), warning("size")),
    "NA among numbers": (on(csv(columns(size={7: "NA"}))), right(like(csv(columns(size={7: ""}))))),
    "infinity": (on(csv(columns(size={7: "inf"}))), error("size", "row 7")),
    "1e999": (on(csv(columns(size={7: "1e999"}))), error("size", "row 7")),
    "1e300": (on(csv(columns(size={7: "1e300"}))), either("size", check=lambda ended: len(result()) == N + 1)),
    "hexadecimal numbers": (
        on(csv(columns(size=[hex(i) for i in range(N)]))),
        either("size", check=like(csv(columns(size=range(N))))),
    ),
    "digits of another script": (
        on(csv(columns(size=["١", "٢", "٣"] * (N // 3)))),
        either("size", check=lambda ended: len(result()) == N + 1),
    ),
    "underscores in numbers": (on(csv(columns(size=[f"1_{i}" for i in range(N)]))), warning("size")),
    "numbers of 500 digits": (on(csv(columns(size={7: "9" * 500}))), error("size", "row 7")),
    "duplicate names": (on(GOOD.replace("age", "size", 1)), error("size")),
    "duplicate candidates": (on(GOOD.replace("colour", "tags", 1)), error("tags")),
    "names that differ by blanks": (
        on(GOOD.replace("size,age", "size,size ", 1)),
        either("size", check=lambda ended: len(result()) == N + 1),
    ),
    "an empty name": (
        on(GOOD.replace("size", "", 1)),
        either("name", "column", check=lambda ended: len(result()) == N + 1),
    ),
    "no header": (on("\n".join(LINES[1:]) + "\n"), error("tags")),
    "a comment before the header": (on("# made by hand\n" + GOOD), error("line", "column", "bad.csv")),
    "Excel's sep line": (on("sep=,\n" + GOOD), error("line", "column", "bad.csv")),
    "a name of 100,000 characters": (
        on(GOOD.replace("size", "s" * 100_000, 1)),
        either("sss", check=lambda ended: len(result()) == N + 1),
    ),
    "control characters in a name": (
        on(GOOD.replace("size", "s\x1b[31mize", 1)),
        either("size", check=lambda ended: "\x1b" not in ended.out + ended.err),
    ),
    "10,000 columns": (
        on(
            "\n".join(
                [HEAD + "," + ",".join(f"c{i}" for i in range(10_000)), *(row + ",1" * 10_000 for row in LINES[1:41])]
            )
            + "\n"
        ),
        either("column", check=lambda ended: len(result()) == 41),
    ),
    "100,000 columns in the header": (
        on(",".join(f"c{i}" for i in range(100_000)) + "\n" + ",".join("1" * 100_000) + "\n"),
        error("tags"),
    ),
    "a cell of 10 MB": (
        on(line(5, LINES[5].replace("r004", "x" * 10_000_000))),
        either("id", "bad.csv", check=lambda ended: len(result()[5][0]) == 10_000_000),
    ),
    "a cell of 10 MB in an error": (
        on(line(5, LINES[5].replace("r004", "r000" + "x" * 10_000_000)).replace("r005", "r000" + "x" * 10_000_000)),
        error("id"),
    ),
    "an id twice": (on(csv(columns(id={7: "r003"}))), error("r003")),
    "an empty id": (on(csv(columns(id={7: ""}))), error("row 7")),
    "ids 1 and 01": (
        on(csv(columns(id=["1", "01", *map(str, range(2, N))]))),
        right(lambda ended: [row[0] for row in result()[1:3]] == ["1", "01"]),
    ),
    "ids of 30 digits": (
        on(csv(columns(id=[str(10**29 + i) for i in range(N)]))),
        right(lambda ended: result()[1][0] == str(10**29)),
    ),
    "ids like 1e5": (on(csv(columns(id=[f"{i}e5" for i in range(N)]))), right(lambda ended: result()[2][0] == "1e5")),
    "ids like dates": (
        on(
            csv(
                columns(
                    id=[f"2020-01-01T00:00:{i:02}" if i < 60 else f"2020-01-01T00:01:{i - 60:02}" for i in range(N)]
                )
            )
        ),
        right(lambda ended: result()[2][0] == "2020-01-01T00:00:01"),
    ),
    "ids like formulas": (
        on(csv(columns(id=[f"=1+{i}" for i in range(N)]))),
        right(lambda ended: result()[1][0] == "'=1+0"),
    ),
    "an empty set": (on(csv(columns(tags={7: ""}))), error("row 7")),
    "blank candidates": (on(csv(columns(tags={7: "  "}))), error("row 7")),
    "a stray separator": (on(csv(columns(tags={7: "cat|"}))), error("row 7")),
    "a missing name": (on(csv(columns(tags={7: "cat|nan"}))), error("row 7")),
    "a list in a text": (on(csv(columns(tags={7: "\"['cat', 'dog']\""}))), error("row 7")),
    "JSON in a text": (on(csv(columns(tags={7: '"[""cat"", ""dog""]"'}))), error("row 7")),
    "another separator": (
        on(csv(columns(tags=[cell.replace("|", ";") for cell in columns()["tags"]]))),
        warning("separator", ";"),
    ),
    "names that differ by case": (on(csv(columns(tags={7: "Cat"}))), warning("Cat")),
    "names with blanks": (on(csv(columns(tags={7: " cat "}))), right(like(csv(columns(tags={7: "cat"}))))),
    "a true label that is no class": (
        on(csv(columns(truth={7: "owl"}))),
        either("owl", "truth", check=lambda ended: len(result()) == N + 1),
    ),
    "true labels in another case": (
        on(csv(columns(truth=[cell.upper() for cell in columns()["truth"]]))),
        error("truth", "label", "CAT", "class"),
    ),
    "missing true labels": (
        on(csv(columns(truth=[""] * N))),
        either("truth", "label", check=lambda ended: len(result()) == N + 1),
    ),
    "one class": (on(csv(columns(tags=["cat"] * N))), error("class")),
    "every row a class": (
        on(csv(columns(tags=[f"class {i}" for i in range(N)]))),
        either("class", check=lambda ended: len(result()) == N + 1),
    ),
    "a constant feature": (on(csv(columns(size=["1"] * N))), right(lambda ended: len(result()) == N + 1)),
    "an empty feature": (on(csv(columns(size=[""] * N))), either("size", check=lambda ended: len(result()) == N + 1)),
    "an id as feature": (
        on(csv(columns(colour=[f"user {i}" for i in range(N)]))),
        either("colour", check=lambda ended: len(result()) == N + 1),
    ),
    "two rows": (
        on("\n".join(LINES[:3]) + "\n"),
        either("row", "class", "bad.csv", check=lambda ended: len(result()) == 3),
    ),
    "one row": (on("\n".join(LINES[:2]) + "\n"), error("row", "class", "bad.csv")),
    "the same rows": (
        on("\n".join([HEAD, *(f"r{i},1,1,red,{'cat' if i % 2 else 'dog'},cat" for i in range(N))]) + "\n"),
        error("same", "features", "bad.csv"),
    ),
    "far dates as ids": (
        on(csv(columns(id=[f"{10_000 + i}-01-01" for i in range(N)]))),
        right(lambda ended: result()[1][0] == "10000-01-01"),
    ),
    "dates as a feature": (
        on(csv(columns(size=[f"2020-01-{1 + i % 28:02}" for i in range(N)]))),
        right(lambda ended: len(result()) == N + 1),
    ),
    "far dates as a feature": (
        on(csv(columns(size=["99999-01-01", "0001-01-01", "-5000-01-01"] * (N // 3)))),
        either("size", check=lambda ended: len(result()) == N + 1),
    ),
    "a compressed file": (on(gzip.compress(GOOD.encode()), name="bad.csv.gz"), right(like_good)),
    "a truncated compressed file": (on(gzip.compress(GOOD.encode())[:-20], name="bad.csv.gz"), error("bad.csv.gz")),
    "a compressed file with garbage": (
        on(gzip.compress(GOOD.encode()) + b"garbage", name="bad.csv.gz"),
        error("bad.csv.gz"),
    ),
    "a compressed file with another checksum": (
        on(gzip.compress(GOOD.encode())[:-8] + b"\0" * 8, name="bad.csv.gz"),
        error("bad.csv.gz"),
    ),
    "a compressed file in two members": (
        on(gzip.compress(GOOD.encode()[:500]) + gzip.compress(GOOD.encode()[500:]), name="bad.csv.gz"),
        either("bad.csv.gz", check=like_good),
    ),
    "an uncompressed .gz": (on(GOOD, name="bad.csv.gz"), error("bad.csv.gz")),
    "a compressed .csv": (on(gzip.compress(GOOD.encode())), error("bad.csv")),
    "an Excel file": (on(b"PK\x03\x04" + b"\0" * 500, name="bad.xlsx"), error("bad.xlsx")),
    "an Excel file named .csv": (on(b"PK\x03\x04" + b"\0" * 500), error("bad.csv")),
    "a file without suffix": (on(GOOD, name="bad"), error("bad")),
    "upper-case suffix": (on(GOOD, name="BAD.CSV"), either("BAD.CSV", check=like_good)),
    "JSON lines": (on('{"id": 1}\n', name="bad.json"), error("bad.json")),
    "HTML": (on("<html><body>404</body></html>\n"), error("bad.csv")),
}


def parquet_bytes(table: Any, **options: Any) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink, **options)
    return sink.getvalue()


def feather_bytes(table: Any) -> bytes:
    """Return a table as the bytes of a Feather file."""
    sink = io.BytesIO()
    pyarrow.feather.write_feather(table, sink)
    return sink.getvalue()


def parquet(**changes: Any) -> Callable[[], Ended]:
    """Return a call of `clean` on a changed Parquet file; other candidates have no true labels."""
    more = {"truth": [None] * N} if "tags" in changes else {}
    return lambda: clean(made.parquet("bad.parquet", **(changes | more)))


def _bytes_of(make: Callable[[], bytes], name: str) -> Callable[[], Ended]:
    return lambda: clean(made.put(name, make()))


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return pa.array([value] * N)


PARQUET: dict[str, tuple[Callable[[], Any], Expected]] = {
    "good": (parquet(), right(like_good)),
    "truncated": (_bytes_of(lambda: parquet_bytes(made.arrow())[:-30], "bad.parquet"), error("bad.parquet")),
    "half": (
        _bytes_of(lambda: (data := parquet_bytes(made.arrow()))[: len(data) // 2], "bad.parquet"),
        error("bad.parquet"),
    ),
    "without its first bytes": (
        _bytes_of(lambda: parquet_bytes(made.arrow())[4:], "bad.parquet"),
        error("bad.parquet"),
    ),
    "zeros in the middle": (
        _bytes_of(lambda: _zeros(parquet_bytes(made.arrow())), "bad.parquet"),
        error("bad.parquet"),
    ),
    "a huge footer": (
        _bytes_of(lambda: parquet_bytes(made.arrow())[:-8] + b"\xff\xff\xff\x7fPAR1", "bad.parquet"),
        error("bad.parquet"),
    ),
    "empty": (_bytes_of(lambda: b"", "bad.parquet"), error("bad.parquet")),
    "text": (_bytes_of(lambda: GOOD.encode(), "bad.parquet"), error("bad.parquet")),
    "magic only": (_bytes_of(lambda: b"PAR1PAR1", "bad.parquet"), error("bad.parquet")),
    "no rows": (_bytes_of(lambda: parquet_bytes(made.arrow().slice(0, 0)), "bad.parquet"), error("bad.parquet")),
    "no columns": (_bytes_of(lambda: parquet_bytes(pa.table({})), "bad.parquet"), error("bad.parquet", "column")),
    "duplicate names": (
        _bytes_of(lambda: parquet_bytes(made.arrow().append_column("size", pa.array([1.0] * N))), "bad.parquet"),
        error("size"),
    ),
    "lists as a feature": (parquet(size=[[1.0]] * N), error("size")),
    "structs as a feature": (parquet(size=[{"x": 1.0}] * N), error("size")),
    "maps as a feature": (parquet(size=pa.array([[("x", 1)]] * N, pa.map_(pa.string(), pa.int64()))), error("size")),
    "deeply nested lists": (parquet(size=_nested(50)), error("size", "bad.parquet")),
    "binary as a feature": (parquet(size=[b"\xff"] * N), error("size")),
    "nulls as a feature": (parquet(size=pa.nulls(N)), either("size", check=lambda ended: len(result()) == N + 1)),
    "infinity": (parquet(size=[float("inf"), *[1.0] * (N - 1)]), error("size", "row 0")),
    "far timestamps as a feature": (
        parquet(size=pa.array([2**62, -(2**62)] * (N // 2), pa.timestamp("us"))),
        either("size", check=lambda ended: len(result()) == N + 1),
    ),
    "far timestamps as ids": (
        parquet(id=pa.array([2**62 - i for i in range(N)], pa.timestamp("us"))),
        either("id", check=lambda ended: len({row[0] for row in result()}) == N + 1),
    ),
    "timestamps as ids": (
        parquet(id=pa.array(list(range(N)), pa.timestamp("ns"))),
        either("id", check=lambda ended: len({row[0] for row in result()}) == N + 1),
    ),
    "times as ids": (
        parquet(id=pa.array(range(N), pa.time64("us"))),
        either("id", check=lambda ended: len({row[0] for row in result()}) == N + 1),
    ),
    "structs as ids": (parquet(id=[{"x": i} for i in range(N)]), error("id")),
    "lists as ids": (parquet(id=[[i] for i in range(N)]), error("id")),
    "floats as ids": (
        parquet(id=[float(i) for i in range(N)]),
        either("id", check=lambda ended: len({row[0] for row in result()}) == N + 1),
    ),
    "NaN as id": (parquet(id=[float("nan"), *map(float, range(1, N))]), error("id", "row 0")),
    "null id": (parquet(id=[None, *map(str, range(1, N))]), error("row 0")),
    "binary ids": (parquet(id=[bytes([200, i]) for i in range(N)]), error("id")),
    "dictionary ids with nulls": (
        parquet(id=pa.array([None, *map(str, range(1, N))]).dictionary_encode()),
        error("row 0"),
    ),
    "fractions as candidates": (parquet(tags=[0.5] * N), error("tags")),
    "booleans as candidates": (
        parquet(tags=[True, False] * (N // 2)),
        either("tags", check=lambda ended: result()[1][1] in ("True", "true", "1")),
    ),
    "integers as candidates": (parquet(tags=[[1, 2], [2]] * (N // 2)), right(lambda ended: result()[1][1] == "1|2")),
    "structs as candidates": (parquet(tags=[{"cat": 1}] * N), error("tags")),
    "nested lists as candidates": (parquet(tags=[[["cat"]]] * N), error("tags")),
    "null candidates": (parquet(tags=[None, *made.names()[1:]]), error("row 0")),
    "a null in a list": (parquet(tags=[["cat", None], *made.names()[1:]]), error("row 0")),
    "an empty list": (parquet(tags=[[], *made.names()[1:]]), error("row 0")),
    "the same name twice in a list": (
        parquet(tags=[["cat", "cat"], *made.names()[1:]]),
        either("row 0", check=lambda ended: result()[1][1] == "cat"),
    ),
    "dictionary candidates with nulls": (
        parquet(tags=pa.array([None, *["cat", "dog", "emu"] * 40][:N]).dictionary_encode()),
        error("row 0"),
    ),
    "dates as candidates": (parquet(tags=pa.array([i % 3 for i in range(N)], pa.date32())), error("tags")),
    "a separator in a name": (parquet(tags=[["a|b", "c"], ["c"]] * (N // 2)), error("a|b")),
    "candidates with separators as text": (
        parquet(tags=made.texts()),
        right(lambda ended: [set(row[1].split("|")) for row in result()[1:]] == [set(row) for row in made.names()]),
    ),
    "names with control characters": (
        parquet(tags=[["a\x1b[31m"], ["b"]] * (N // 2)),
        right(lambda ended: "\x1b" not in Path("new.csv").read_text() and "\x1b" not in ended.out + ended.err),
    ),
    "names like formulas": (
        parquet(tags=[["=cmd()"], ["＝cmd()"], ["＋1"], ["－1x"], ["＠a"], ["b"]] * (N // 6)),
        right(
            lambda ended: not any(cell.startswith(("=", "＝", "＋", "－", "＠")) for row in result() for cell in row)
        ),
    ),
    "names with formulas after a semicolon": (
        parquet(tags=[["a;=cmd()"], ["b"]] * (N // 2)),
        right(lambda ended: not any(";=" in cell and not cell.startswith("'") for row in result() for cell in row)),
    ),
    "a null character in a name": (parquet(tags=[["a\0"], ["b"]] * (N // 2)), error("a\\x00")),
    "a name of 100,000 characters": (
        parquet(tags=[["a" * 100_000], ["b"]] * (N // 2)),
        either("class", "aaa", check=lambda ended: len(result()[1][1]) == 100_000),
    ),
    "a bomb": (_bytes_of(lambda: _bomb(), "bad.parquet"), error("bad.parquet")),
}


def _zeros(data: bytes) -> bytes:
    middle = len(data) // 3
    return data[:middle] + b"\0" * 200 + data[middle + 200 :]


def _bomb() -> bytes:
    """Return a small Parquet file of a constant column that takes over 1 GiB in memory."""
    names = pa.DictionaryArray.from_arrays(np.zeros(1 << 23, np.int8), pa.array(["cat"]))
    chunk = pa.table({"id": pa.array(np.zeros(1 << 23)), "tags": names})
    sink = io.BytesIO()
    with pyarrow.parquet.ParquetWriter(sink, chunk.schema, compression="zstd") as writer:
        for _ in range(16):
            writer.write_table(chunk, row_group_size=1 << 23)
    return sink.getvalue()


FEATHER: dict[str, tuple[Callable[[], bytes], Expected]] = {
    "good": (lambda: feather_bytes(made.arrow()), right(like_good)),
    "truncated": (lambda: feather_bytes(made.arrow())[:-50], error("bad.arrow")),
    "half": (lambda: (data := feather_bytes(made.arrow()))[: len(data) // 2], error("bad.arrow")),
    "text": (lambda: GOOD.encode(), error("bad.arrow")),
    "empty": (lambda: b"", error("bad.arrow")),
    "Parquet": (lambda: parquet_bytes(made.arrow()), error("bad.arrow")),
    "zeros in the middle": (
        lambda: _zeros(feather_bytes(made.arrow())),
        either("bad.arrow", "id", "size", "row", check=lambda ended: len(result()) == N + 1),
    ),
    "a stream": (lambda: _stream(made.arrow()), either("bad.arrow", check=like_good)),
}


def _stream(table: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (act, expected) in CSV.items():
        yield Case(FAMILY, f"CSV: {name}", act, expected, gib=3)
    for name, (act, expected) in PARQUET.items():
        yield Case(FAMILY, f"Parquet: {name}", act, expected, gib=1)
    for name, (make, expected) in FEATHER.items():
        yield Case(FAMILY, f"Feather: {name}", _bytes_of(make, "bad.arrow"), expected, gib=3)
    yield Case(
        FAMILY,
        "a gzip bomb",
        lambda: clean(made.put("bad.csv.gz", _gzip_bomb())),
        error("bad.csv.gz"),
        gib=1,
        seconds=60,
    )
    names = {
        "a folder": (lambda: (os.mkdir("bad.csv"), clean("bad.csv"))[1], error("bad.csv")),
        "a missing file": (lambda: clean("none.csv"), error("none.csv")),
        "a missing folder": (lambda: clean("none/none.csv"), error("none.csv")),
        "an unreadable file": (lambda: _unreadable(), error("bad.csv")),
        "a dangling link": (lambda: (os.symlink("nowhere", "bad.csv"), clean("bad.csv"))[1], error("bad.csv")),
        "a link to itself": (lambda: (os.symlink("bad.csv", "bad.csv"), clean("bad.csv"))[1], error("bad.csv")),
        "a pipe without writer": (lambda: _pipe(), error("bad.csv")),
        "a device": (lambda: (os.symlink("/dev/zero", "bad.csv"), clean("bad.csv"))[1], error("bad.csv")),
        "an empty device": (lambda: (os.symlink("/dev/null", "bad.csv"), clean("bad.csv"))[1], error("bad.csv")),
        "a name with control characters": (lambda: clean("\x1b[31mnone.csv"), error("\\x1b[31mnone.csv")),
        "a name that is not UTF-8": (lambda: clean("\udce9.csv"), error("\\udce9.csv", ".csv")),
        "a name of 5,000 characters": (lambda: clean("x" * 5000 + ".csv"), error("xxx")),
        "a null character in the name": (lambda: clean("a\0b.csv"), error("\\x00")),
        "an empty name": (lambda: clean(""), error("table", "TABLE", "name", "file")),
        "standard input": (
            lambda: run(
                "clean",
                "-",
                "--candidates",
                "tags",
                "--id",
                "id",
                "--labels",
                "truth",
                "--out",
                "new.csv",
                *made.TINY,
                stdin=GOOD.encode(),
            ),
            right(like_good),
        ),
        "empty standard input": (
            lambda: run("clean", "-", "--candidates", "tags", "--out", "new.csv", *made.TINY),
            error("standard input", "stdin"),
        ),
        "binary standard input": (
            lambda: run(
                "clean", "-", "--candidates", "tags", "--out", "new.csv", *made.TINY, stdin=b"\xff\xfe\0\1" * 50
            ),
            error("standard input", "stdin"),
        ),
    }
    for name, (act, expected) in names.items():
        yield Case(FAMILY, f"file: {name}", act, expected, gib=3)
    writes: dict[str, tuple[Callable[[], Any], Expected]] = {
        "lists in CSV with the separator in a name": (
            lambda: tables.write(pa.table({"a": [["x|y"]]}), "new.csv"),
            error("x|y", "separator"),
        ),
        "structs in CSV": (lambda: tables.write(pa.table({"a": [{"x": 1}]}), "new.csv"), error("'a'", "column")),
        "duplicate names": (lambda: tables.write(pa.table([[1], [2]], names=["a", "a"]), "new.csv"), error("'a'")),
        "no columns": (lambda: tables.write(pa.table({}), "new.csv"), either("column", check=lambda _: True)),
        "binary in CSV": (lambda: tables.write(pa.table({"a": [b"\xff"]}), "new.csv"), error("'a'", "column")),
        "formulas in cells": (
            lambda: _cells(
                ["=1+1", "+1x", "-1x", "@a", "\t=1", "＝1", "＋1x", "－1x", "＠a", " =1", "a;=1", "\r=1", "|=1"]
            ),
            right(lambda cells: not any(cell.lstrip().startswith(tuple("=+-@＝＋－＠")) for cell in cells)),
        ),
        "formulas in the header": (lambda: _header("=1+1"), right(lambda cell: not cell.startswith("="))),
        "numbers as texts": (
            lambda: _cells(["-1.5", "+2", "1e5"]),
            right(lambda cells: cells == ["-1.5", "+2", "1e5"]),
        ),
        "control characters": (
            lambda: _cells(["\x1b[31m", "\0", "\x7f", "\x9b"]),
            right(lambda cells: all(cell.isprintable() for cell in cells)),
        ),
        "a round trip of odd texts": (
            lambda: _trip(['"', '""', ",", "a\nb", " a ", "", "'", "é", "😀", "a\tb"]),
            right(lambda same: same),
        ),
    }
    for name, (act, expected) in writes.items():
        yield Case(FAMILY, f"write: {name}", act, expected)


def _gzip_bomb() -> bytes:
    """Return a .csv.gz of 5 MB that expands to 1.2 GB."""
    sink = io.BytesIO()
    with gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=1) as stream:
        stream.write(b"id,tags\n")
        block = b"1,cat\n" * 2_000_000
        for _ in range(100):
            stream.write(block)
    return sink.getvalue()


def _unreadable() -> Ended:
    made.put("bad.csv", GOOD)
    if os.geteuid() == 0:  # root reads everything: a folder without permission does not stop it either
        os.remove("bad.csv")
        os.symlink("/proc/self/mem", "bad.csv")
    else:
        os.chmod("bad.csv", 0)
    return clean("bad.csv")


def _pipe() -> Ended:
    os.mkfifo("bad.csv")
    return clean("bad.csv")


def _cells(values: list[str]) -> list[str]:
    tables.write(pa.table({"a": values}), "new.csv")
    return [row[0] for row in result()[1:]]


def _header(name: str) -> str:
    tables.write(pa.table({name: ["a"]}), "new.csv")
    return result()[0][0]


def _trip(values: list[str]) -> bool:
    tables.write(pa.table({"a": values, "b": list(range(len(values)))}), "new.csv")
    found = tables.read("new.csv", texts=["a"])["a"].to_pylist()
    return [one or "" for one in found] == values
