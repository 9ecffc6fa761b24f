"""Read and write CSV/TSV as Arrow tables, without silent data loss and with formula injection neutralised."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from candidly.checks.arguments import shown
from candidly.messages import CONTROL, FORMULA, NEUTRALISED, NUMBER, neutralise, option, restore, warn

_ROWS = 1 << 15  # rows to write at a time
_BYTES = 1 << 24  # bytes to read at a time, which also limits the length of a row
_PIECE = 1 << 22  # bytes to read at a time if a file is read in blocks
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_NOT_UTF8 = "is not text in UTF-8; save it as UTF-8"

_BOM = b"\xef\xbb\xbf"
_CELL = (
    rb'(?:"(?:[^"\r\n]++|"")*+"[^%(mark)b\r\n]*+'  # quoted on one line; Arrow keeps text behind the quote
    rb'|"(?:[^"]++|"")*+"(?=[%(mark)b\r\n])'  # quoted, with line breaks
    rb'|[^"%(mark)b\r\n][^%(mark)b\r\n]*+)?+'
)
_CELLS = rb"(?:" + _CELL + rb"[%(mark)b\r\n])*+"
_ROW = rb"(?:" + _CELL + rb"%(mark)b)*+" + _CELL + rb"[\r\n]"
_LINES_BEFORE_TEXT = re.compile(rb'"(?:[^"\r\n]++|"")*+[\r\n](?:[^"]++|"")*+"[^"]')


@dataclass(frozen=True)
class Text:
    """A text file: its name in messages, a function that opens it, and the character between columns."""

    name: str
    open: Callable[[], AbstractContextManager[Any]]
    delimiter: str


def read(source: Text, texts: Collection[str]) -> Any:
    """Read a table. The columns `texts` are always text. `candidly.tables.files.read` documents the rest."""
    _check_start(source)
    _check_quotes(source)
    header = _read_header(source)
    names = _names(source, header)
    kept = [raw for raw, name in zip(header, names, strict=True) if name in texts]
    return _convert(source, names, lambda more: _parse(source, header, [*kept, *more]), 0)


def column_names(source: Text) -> list[str]:
    """Return the names of the columns."""
    _check_start(source)
    return _names(source, _read_header(source, may_be_alone=True))


def count_rows(source: Text) -> int:
    """Return the number of rows, in one pass over the file; raise ValueError for an open quote or a ragged row."""
    import pyarrow as pa
    import pyarrow.csv

    _check_start(source)
    _check_quotes(source)
    header = _read_header(source, may_be_alone=True)
    _names(source, header)
    if next(_split_rows(source), None) is None:
        return 0
    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=_BYTES)
    parse = pyarrow.csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True)
    types = pyarrow.csv.ConvertOptions(include_columns=header[:1], column_types={header[0]: pa.binary()})
    with _parsing(source, len(header)), source.open() as stream:
        return sum(batch.num_rows for batch in pyarrow.csv.open_csv(stream, read, parse, types))


def read_blocks(source: Text, texts: Collection[str], *, raw: bool = False) -> Iterator[Any]:
    """Yield a table for each few megabytes of the file; as `read`, but types are those of the block.

    So a column of numbers may have integers in one block, other numbers in the next and nothing in a third. With `raw`,
    all columns are texts as in the file, formulas with their apostrophes. `count_rows` checks the quotes, not this.
    """
    import pyarrow as pa

    header = _read_header(source)
    names = _names(source, header)
    kept = header if raw else [raw for raw, name in zip(header, names, strict=True) if name in texts]
    kinds: dict[str, str] = {}
    start = 0
    for data in _split_rows(source):

        def parse(more: Collection[str], data: bytes = data) -> Any:
            piece = Text(source.name, lambda: pa.BufferReader(data), source.delimiter)
            return _parse(piece, header, [*kept, *more], is_piece_of=source)

        if raw:
            columns = zip(names, parse(()).columns, strict=True)
            table = pa.table({name: _as_text(source.name, name, column, start) for name, column in columns})
        else:
            table = _convert(source, names, parse, start)
            _check_kinds(source.name, table, kinds, start)
        start += table.num_rows
        if table.num_rows:
            yield table


def _split_rows(source: Text) -> Iterator[bytes]:
    """Yield the text below the header in pieces of whole rows."""
    mark = {b"mark": re.escape(source.delimiter.encode())}
    row, rows = re.compile(_ROW % mark), re.compile(rb"(?:" + _ROW % mark + rb")*+")
    rest, is_below = b"", False
    with source.open() as stream:
        while True:
            data = stream.read(_PIECE)
            rest += data or b"\n"
            if not is_below:
                rest = rest.removeprefix(_BOM).lstrip(b"\r\n")
                header = row.match(rest)
                is_below = header is not None
                rest = rest if header is None else rest[header.end() :]
            end = 0
            if is_below and b'"' in rest:
                found = rows.match(rest)
                assert found is not None, "the pattern also matches no row"
                end = found.end()
            elif is_below:
                end = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
            if rest[:end].strip(b"\r\n"):
                yield rest[:end]
            rest = rest[end:]
            if len(rest) > _BYTES or (rest and not data):
                raise ValueError(f"{source.name} has a row of more than {_BYTES >> 20} MiB; is a quote not closed?")
            if not data:
                return


def _check_kinds(file: str, table: Any, kinds: dict[str, str], start: int) -> None:
    """Raise ValueError if a column has truth values in one block and other numbers in another.

    `read` would find texts in such a column. 0 and 1 are both, and say nothing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for field, column in zip(table.schema, table.columns, strict=True):
        kind = "true and false" if pa.types.is_boolean(field.type) else None
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            ends = pc.min_max(column)
            kind = None if {ends["min"].as_py(), ends["max"].as_py()} <= {0, 1, None} else "numbers"
        if kind is not None and kinds.setdefault(field.name, kind) != kind:
            raise ValueError(
                f"{file}: column {field.name!r} has {kind} from row {start} on, and {kinds[field.name]} before; write "
                "one of them"
            )


def _check_start(source: Text) -> None:
    with source.open() as stream:
        start = stream.read(4096)
    if start.startswith(_UTF16) or b"\0" in start:
        raise ValueError(f"{source.name} {_NOT_UTF8}")


def _names(source: Text, header: Sequence[str]) -> list[str]:
    """Return the names of columns; raise ValueError if two are equal, because column types are set by name."""
    names = [restore(name.strip()) for name in header]
    check_columns(source.name, names)
    return names


def _convert(source: Text, names: list[str], parse: Callable[[Collection[str]], Any], start: int) -> Any:
    """Return the table that `parse` returns, given columns to read as text, with decoded texts.

    `start` is the number of its first row.
    """
    import pyarrow as pa

    table = parse(())
    times = [field.name for field in table.schema if pa.types.is_time(field.type)]
    if times:  # times of day are not numbers: read them as text
        table = parse(times)
    columns = [decode(source.name, name, column, start) for name, column in zip(names, table.columns, strict=True)]
    _warn_of_swallowed_rows(source, names, columns, start)
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


def _warn_of_swallowed_rows(source: Text, names: Sequence[str], columns: Sequence[Any], start: int) -> None:
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
                    f"{source.name}: row {start + row} has a text of {len(inner) + 2} lines in column {names[j]!r} "
                    "that look like rows of the table; check that every quote is closed"
                )
                return


def _read_header(source: Text, *, may_be_alone: bool = False) -> list[str]:
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
    if is_alone and not may_be_alone:  # some versions of pyarrow crash on such a file
        raise ValueError(f"{source.name} has no rows; pass at least one")
    return header


def check_columns(file: str, names: list[str]) -> None:
    """Raise ValueError if a table has two columns of the same name."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{file} has several columns {twice[0]!r}; rename them")


def _parse(source: Text, header: list[str], texts: Collection[str], is_piece_of: Text | None = None) -> Any:
    """Parse a file, or a piece of one, which has no header."""
    import pyarrow as pa
    import pyarrow.csv

    names = None if is_piece_of is None else header
    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=_BYTES, column_names=names)  # threads lose the row
    parse = pyarrow.csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True)
    convert = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.binary()))  # `decode` reports the row
    with _parsing(is_piece_of or source, len(header)), source.open() as stream:
        return pyarrow.csv.read_csv(stream, read, parse, convert)


@contextmanager
def _parsing(source: Text, width: int) -> Iterator[None]:
    """Let errors of Arrow name the file and the line."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowInvalid as error:
        reason = str(error)
        if "Empty CSV" in reason:
            raise ValueError(f"{source.name} has no rows; pass at least one") from None
        if "straddling" in reason:
            raise ValueError(
                f"{source.name} has a row of more than {_BYTES >> 20} MiB; is a quote not closed?"
            ) from None
        reason = _find_ragged(source, width) or " ".join(reason.split())
        raise ValueError(f"{source.name} is not a table: {reason}; correct it, or check delimiter and quotes") from None


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


def decode(file: str, name: str, values: Any, start: int) -> Any:
    """Return a column as text, with empty cells as missing values; `start` is the number of its first row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_binary(values.type):  # a column of `texts`, or not UTF-8
        values = _as_text(file, name, values, start)
    if not pa.types.is_string(values.type):
        return values
    values = pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)
    return _replace(values, pc.match_substring_regex(values, NEUTRALISED), restore)


def _as_text(file: str, name: str, values: Any, start: int) -> Any:
    """Return a column of bytes as text; raise ValueError if it is not UTF-8."""
    import pyarrow as pa

    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        row = start + next(row for row, value in enumerate(values) if not _is_utf8(value.as_py()))
        raise ValueError(f"{file}: row {row} is not UTF-8 in column {name!r}; save the file as UTF-8") from None


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

    def write(self, stream: Any, *, header: bool = True) -> None:
        """Write the table in UTF-8, with its header or without."""
        if header:
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
