"""Read and write CSV/TSV as Arrow tables, without silent data loss and with formula injection neutralised."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from candidly.checks.arguments import shown
from candidly.messages import CONTROL, FORMULA, NEUTRALISED, NUMBER, neutralise, option, restore, warn

_ROWS = 1 << 15  # rows to write at a time
_BYTES = 1 << 24  # bytes to read at a time, which also limits the length of a row
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_NOT_UTF8 = "is not text in UTF-8; save it as UTF-8"

_BOM = b"\xef\xbb\xbf"
_CELLS = (
    rb'(?:(?:"(?:[^"\r\n]++|"")*+"[^%(mark)b\r\n]*+'  # quoted on one line; Arrow keeps text behind the quote
    rb'|"(?:[^"]++|"")*+"(?=[%(mark)b\r\n])'  # quoted, with line breaks
    rb'|[^"%(mark)b\r\n][^%(mark)b\r\n]*+)?+[%(mark)b\r\n])*+'
)
_LINES_BEFORE_TEXT = re.compile(rb'"(?:[^"\r\n]++|"")*+[\r\n](?:[^"]++|"")*+"[^"]')


@dataclass(frozen=True)
class Text:
    """A text file: its name in messages, a function that opens it, and the character between columns."""

    name: str
    open: Callable[[], AbstractContextManager[Any]]
    delimiter: str


def read(source: Text, texts: Collection[str]) -> Any:
    """Read a table. The columns `texts` are always text. `candidly.tables.files.read` documents the rest."""
    import pyarrow as pa

    with source.open() as stream:
        start = stream.read(4096)
    if start.startswith(_UTF16) or b"\0" in start:
        raise ValueError(f"{source.name} {_NOT_UTF8}")
    _check_quotes(source)
    header = _read_header(source)
    names = [restore(name.strip()) for name in header]
    check_columns(source.name, names)  # before parsing, because column types are set by name
    kept = [raw for raw, name in zip(header, names, strict=True) if name in texts]
    table = _parse(source, header, kept)
    times = [field.name for field in table.schema if pa.types.is_time(field.type)]
    if times:  # times of day are not numbers: read them as text
        table = _parse(source, header, [*kept, *times])
    columns = [_decode(source.name, name, column) for name, column in zip(names, table.columns, strict=True)]
    _warn_of_swallowed_rows(source, names, columns)
    return pa.table(columns, names=names)


def check_delimiter(delimiter: Any) -> None:
    """Raise ValueError unless a delimiter is one character that can separate columns, or None."""
    if delimiter is None or (isinstance(delimiter, str) and len(delimiter) == 1 and delimiter not in '"\r\n'):
        return
    raise ValueError(f"delimiter is {shown(delimiter)}; pass the one character between the columns, e.g. ';'")


def _check_quotes(source: Text) -> None:
    """Raise ValueError for a quote that is not closed: it would make the following rows a part of its cell."""
    cells = re.compile(_CELLS % {b"mark": re.escape(source.delimiter.encode())})
    rest = b""
    line = 1
    with source.open() as stream:
        start = stream.read(_BYTES).removeprefix(_BOM)
        while start or rest:
            data = rest + (start or b"\n")
            end = len(data) - 1  # without a quote, only the last character matters: a cell may start behind it
            if b'"' in data:
                found = cells.match(data)
                assert found is not None, "the pattern also matches no cell"
                end = found.end()
            line += data.count(b"\n", 0, end)
            rest = data[end:] if start else b""
            if len(rest) > _BYTES:
                raise ValueError(f"{source.name} has a row of more than {_BYTES >> 20} MiB; is a quote not closed?")
            if data[end : end + 1] == b'"' and (not start or _LINES_BEFORE_TEXT.match(rest)):
                raise ValueError(
                    f"{source.name} is not a table: the quote at the start of a cell in line {line} is not closed; "
                    "close it, and double quotes that belong to the text"
                )
            start = stream.read(_BYTES)


def _warn_of_swallowed_rows(source: Text, names: Sequence[str], columns: Sequence[Any]) -> None:
    """Warn of cells that look like several rows of the table: a quote that is not closed ends at the next one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    width = len(columns)
    for j, values in enumerate(columns if width > 1 else ()):
        if not pa.types.is_string(values.type):
            continue
        for row in pc.indices_nonzero(pc.match_substring(values, "\n").fill_null(False)).to_pylist():
            first, *inner, last = (line.count(source.delimiter) for line in values[row].as_py().split("\n"))
            if first == width - 1 - j and last == j and set(inner) <= {width - 1}:
                warn(
                    f"{source.name}: row {row} has a text of {len(inner) + 2} lines in column {names[j]!r} that look "
                    "like rows of the table; check that every quote is closed"
                )
                return


def _read_header(source: Text) -> list[str]:
    # Bytes that are not UTF-8 become surrogates here: on later lines they are reported with their row.
    with source.open() as stream, io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="") as text:
        rows = (row for row in csv.reader(text, delimiter=source.delimiter) if row)
        try:
            header = next(rows, [])
        except csv.Error as error:
            raise ValueError(f"{source.name} has no readable header: {error}; correct its first line") from None
        try:
            is_alone = next(rows, None) is None
        except csv.Error:  # pyarrow says what is wrong with the row
            is_alone = False
    if not header:
        raise ValueError(f"{source.name} is empty; pass a header and at least one row")
    if any("\ud800" <= letter <= "\udfff" for name in header for letter in name):
        raise ValueError(f"{source.name} {_NOT_UTF8}")
    other = next((mark for mark in ",;\t" if mark != source.delimiter and mark in header[0]), None)
    if len(header) == 1 and other is not None:
        raise ValueError(
            f"{source.name} has the one column {header[0][:60]!r}; if {other!r} separates its columns, name it with "
            f"{option('delimiter')}"
        )
    if is_alone:  # some versions of pyarrow crash on such a file
        raise ValueError(f"{source.name} has no rows; pass at least one")
    return header


def check_columns(file: str, names: list[str]) -> None:
    """Raise ValueError if a table has two columns of the same name."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{file} has several columns {twice[0]!r}; rename them")


def _parse(source: Text, header: list[str], texts: Collection[str]) -> Any:
    import pyarrow as pa
    import pyarrow.csv

    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=_BYTES)  # with threads, errors lack the row
    parse = pyarrow.csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True)
    convert = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.binary()))  # `_decode` reports the row
    try:
        with source.open() as stream:
            return pyarrow.csv.read_csv(stream, read, parse, convert)
    except pa.ArrowInvalid as error:
        reason = str(error)
    if "Empty CSV" in reason:
        raise ValueError(f"{source.name} has no rows; pass at least one")
    if "straddling" in reason:
        raise ValueError(f"{source.name} has a row of more than {_BYTES >> 20} MiB; is a quote not closed?")
    reason = _find_ragged(source, len(header)) or " ".join(reason.split())
    raise ValueError(f"{source.name} is not a table: {reason}; correct it, or check delimiter and quotes")


def _find_ragged(source: Text, width: int) -> str | None:
    """Return where the first row starts that has more or fewer cells than the header, or has no end."""
    with source.open() as stream, io.TextIOWrapper(stream, "utf-8", "replace", newline="") as text:
        rows = csv.reader(text, delimiter=source.delimiter, strict=True)
        line = 1
        try:
            for row in rows:
                if row and len(row) != width:
                    return f"line {line} has {len(row)} cells, the header {width}"
                line = rows.line_num + 1
        except csv.Error as error:
            return f"line {line}: {error}"
    return None


def _decode(file: str, name: str, values: Any) -> Any:
    """Return a column as text, with empty cells as missing values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_binary(values.type):  # a column of `texts`, or not UTF-8
        try:
            values = values.cast(pa.string())
        except pa.ArrowInvalid:
            row = next(row for row, value in enumerate(values) if not _is_utf8(value.as_py()))
            raise ValueError(f"{file}: row {row} is not UTF-8 in column {name!r}; save the file as UTF-8") from None
    if not pa.types.is_string(values.type):
        return values
    values = pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)
    return _replace(values, pc.match_substring_regex(values, NEUTRALISED), restore)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _replace(values: Any, chosen: Any, function: Callable[[str], str]) -> Any:
    """Return a column of texts with a function applied to those that are chosen, which are few."""
    import pyarrow as pa
    import pyarrow.compute as pc

    chosen = pc.fill_null(chosen, False)
    if not pc.any(chosen).as_py():
        return values
    found = pa.array([function(text) for text in pc.filter(values, chosen).to_pylist()], pa.string())
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    mask = chosen.combine_chunks() if isinstance(chosen, pa.ChunkedArray) else chosen
    return pc.replace_with_mask(whole, mask, found)


class Lines:
    r"""A table as CSV text. All of it is checked before any of it is written.

    Parameters
    ----------
    table : pyarrow.Table
    delimiter, separator : str
        The character between columns, and the text between the values of a list.

    Examples
    --------
    >>> import pyarrow as pa
    >>> stream = io.BytesIO()
    >>> Lines(pa.table({"a": [1, None], "b": [["x", "y"], ["@z"]]}), ",", "|").write(stream)
    >>> stream.getvalue()
    b"a,b\n1,x|y\n,'@z\n"
    """

    def __init__(self, table: Any, delimiter: str, separator: str) -> None:
        import pyarrow as pa

        self.delimiter = delimiter
        self.header = list(map(neutralise, table.column_names))
        columns = [_to_text(name, values, separator) for name, values in zip(self.header, table.columns, strict=True)]
        self.table = pa.table(columns, names=self.header)

    def write(self, stream: Any) -> None:
        """Write the table in UTF-8."""
        stream.write(self._join([self.header]))
        for batch in self.table.to_batches(_ROWS):
            stream.write(self._join(zip(*(column.to_pylist() for column in batch.columns), strict=True)))
        stream.flush()

    def _join(self, rows: Iterable[Sequence[str | None]]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=self.delimiter, lineterminator="\n").writerows(rows)
        return text.getvalue().encode()


def holds_separator(value: str, separator: str) -> str:
    """Return the message for a value of a list that cannot be written because it contains the separator."""
    return (
        f"{value[:60]!r} contains {separator!r}, which separates the values of a list in CSV; write Parquet, or choose "
        f"another {option('separator')}"
    )


def _to_text(name: str, values: Any, separator: str) -> Any:
    import pyarrow as pa

    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return neutralise_column(_join(name, values, separator))
    try:
        texts = values.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"column {name!r} has type {kind}, which CSV does not have; write Parquet") from None
    return texts if pa.types.is_primitive(kind) else neutralise_column(texts)


def _join(name: str, values: Any, separator: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = pc.list_flatten(values).cast(pa.string())
    if parts.null_count:
        raise ValueError(f"column {name!r} has lists with missing values, which CSV does not have; write Parquet")
    wrong = pc.index(pc.match_substring(parts, separator), True).as_py()
    if wrong >= 0:
        raise ValueError(holds_separator(parts[wrong].as_py(), separator))
    return pc.binary_join(values.cast(pa.list_(pa.string())), separator)


def neutralise_column(values: Any) -> Any:
    """Apply `candidly.messages.neutralise` to a column of texts."""
    import pyarrow.compute as pc

    looks_like_formula = pc.match_substring_regex(values, FORMULA)
    is_number = pc.match_substring_regex(values, f"^{NUMBER}$")
    risky = pc.or_(pc.and_not(looks_like_formula, is_number), pc.match_substring_regex(values, CONTROL))
    return _replace(values, risky, neutralise)
