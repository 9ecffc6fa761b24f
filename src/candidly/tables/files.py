"""Read and write a user's tables: CSV, TSV, Parquet and Arrow.

Tables keep their text, dates and missing values; `candidly.data.read_table` returns a dataset of numbers.
"""

import gzip
import io
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from candidly import store
from candidly.checks import arguments
from candidly.checks.limits import Bounded, check_bytes
from candidly.tables import delimited
from candidly.tables.arrow_sizes import unpacked_sizes

__all__ = ["SUFFIXES", "check_folder", "check_names", "check_writable", "is_text_file", "read", "write", "writing"]

ARROW = (".arrow", ".feather")
SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", *ARROW)

_ROWS = 1 << 12  # rows of Parquet to read at a time, at most
_BUFFER = 1 << 20  # bytes of decompressed text to read at a time
_BLOCK_BYTES = 1 << 28  # bytes of Parquet texts that are not in dictionaries to read at a time, at most
_DICTIONARY = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}  # encodings
_CELL = 8  # bytes of memory that a cell takes at least, as a number or text

FilePath = str | os.PathLike[str]
"""A path; "-" stands for standard input or output."""


def read(source: FilePath, *, delimiter: str | None = None, texts: Collection[str] = ()) -> Any:
    r"""Read a table.

    Parameters
    ----------
    source : path or "-"
        A `.csv` or `.tsv` file, plain or with `.gz`, in UTF-8 with a header; or a `.parquet`, `.arrow` or `.feather`
        file. "-" is standard input, in any of these formats except `.tsv` and `.gz`.
    delimiter : str, optional
        The character between the columns of a CSV file; by default a comma, and in a `.tsv` file a tab.
    texts : collection of str
        Columns of a CSV file that stay text even if all values are numbers, such as ids with leading zeros. Names of
        columns that do not exist are ignored.

    Returns
    -------
    pyarrow.Table
        In CSV, columns of numbers, truth values and dates are recognised, and all others are text. Empty cells are
        missing values, and so are NA, NaN, null and similar texts in columns of numbers. Blanks around column names are
        ignored. The apostrophe that `write` puts in front of formulas is removed.

    Raises
    ------
    OSError
        When the file is missing or cannot be read.
    ValueError
        When it is not a table: the message says what is wrong, in which row, and how to fix it. Rows are counted from
        0, lines of a file from 1. Also when it takes more memory than `candidly.checks.limits.max_bytes` allows.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("id,weight,colour\n007,4.5,red\n008,,NA\n")
    ...     file.flush()
    ...     read(file.name, texts=["id"]).to_pylist()
    [{'id': '007', 'weight': 4.5, 'colour': 'red'}, {'id': '008', 'weight': None, 'colour': 'NA'}]
    """
    delimited.check_delimiter(delimiter)
    texts = tuple(arguments.items("texts", texts, "a list of columns"))
    found = Source.of(source)
    with reading(found.name):
        if found.suffix == ".parquet":
            table = _read_parquet(found)
            table.validate(full=True)  # a damaged file may hold invalid text
        elif found.suffix in ARROW:
            table = _read_arrow(found)
            table.validate(full=True)  # a damaged file may point outside of its memory
        else:
            table = delimited.read(found.text(delimiter), texts)
        delimited.check_columns(found.name, table.column_names)
    if table.num_rows == 0:
        raise ValueError(f"{found.name} has no rows; pass at least one")
    return table


def write(table: Any, target: FilePath, *, separator: str = "|") -> None:
    r"""Write a table. The file is replaced as a whole: it never holds a part of the new content.

    Parameters
    ----------
    table : pyarrow.Table
        In CSV, columns of lists become text. To make the file safe to open, control characters other than newlines
        and tabs are escaped (``\x1b``), and text that a spreadsheet would run as a formula gets an apostrophe in front,
        which `read` removes. Parquet and Arrow keep everything unchanged.
    target : path or "-"
        The suffix determines the format, as in `read`. "-" is standard output, in CSV.
    separator : str, default "|"
        The text between the values of a list in CSV.

    Raises
    ------
    OSError
        When the file cannot be written. Then nothing is left of it.
    ValueError
        For an unknown suffix, a value that contains the separator, and a type that the format does not support.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(pa.table({"kept": [["cat", "dog"], ["=1+1"]]}), Path(folder, "kept.csv"))
    ...     print(Path(folder, "kept.csv").read_text())
    kept
    cat|dog
    '=1+1
    <BLANKLINE>
    """
    import pyarrow as pa

    suffix = _check_suffix(target, "written", SUFFIXES)
    arguments.instance("table", table, pa.Table, "a pyarrow.Table, such as pyarrow.table({'a': [1, 2]})")
    arguments.text("separator", separator, "the text between the values of a list, e.g. '|'")
    delimited.check_columns("the table", table.column_names)
    if not is_text_file(target):
        with replacing(target) as file:
            _write_binary(table, file, suffix)
        return
    lines = delimited.Lines(table, "\t" if suffix.startswith(".tsv") else ",", separator)
    if _is_stream(target):
        with writing("standard output"):
            sys.stdout.flush()
            lines.write(sys.stdout.buffer)
            sys.stdout.flush()
        return
    with replacing(target) as file:
        if suffix.endswith(".gz"):
            # Without a time stamp, so that the same table gives the same bytes.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                lines.write(packed)
        else:
            lines.write(file)


def check_writable(target: FilePath, suffixes: Sequence[str] = SUFFIXES) -> None:
    """Check that a file can be written, before the work that produces its content.

    Parameters
    ----------
    target : path or "-"
        The file, which is not changed.
    suffixes : sequence of str
        The suffixes that its name may have, by default those of tables.

    Raises
    ------
    OSError
        When the folder does not exist or cannot be written to.
    ValueError
        When the suffix is a different one, or the target is a folder.

    Examples
    --------
    >>> check_writable("page.htm", [".html"])
    Traceback (most recent call last):
        ...
    ValueError: page.htm cannot be written: its name must end in .html
    """
    _check_suffix(target, "written", suffixes)
    if _is_stream(target):
        return
    path = _path(target)
    if path.is_dir():
        raise ValueError(f"{target} is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise ValueError(f"{target} is a device or a named pipe, which would be replaced by a file; name a file")
    check_folder(path.parent)


def check_folder(folder: FilePath) -> None:
    """Check that files can be created in a folder, by creating one; where the system allows it, one without a name.

    Raises
    ------
    OSError
        When the folder does not exist or cannot be written to.

    Examples
    --------
    >>> check_folder("/no/such/folder")
    Traceback (most recent call last):
        ...
    OSError: the folder /no/such/folder does not exist; make it first, or name another
    """
    folder = Path(folder)
    if not folder.is_dir():
        wrong = "is not a folder; name another" if folder.exists() else "does not exist; make it first, or name another"
        raise OSError(f"the folder {folder} {wrong}")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"nothing can be written to {folder}: {reason_of(error)}; name another folder") from error


@contextmanager
def writing(target: FilePath) -> Iterator[None]:
    """Let system errors name the file that was being written.

    Examples
    --------
    >>> with writing("model"):
    ...     raise OSError(28, "No space left on device", "model-0123.tmp")
    Traceback (most recent call last):
        ...
    OSError: model cannot be written: No space left on device; check the folder and the limits of the system
    """
    try:
        yield
    except BrokenPipeError:  # the reader of standard output, such as head, has ended
        raise
    except OSError as error:
        advice = "" if error.errno is None else "; check the folder and the limits of the system"
        raise OSError(f"{target} cannot be written: {reason_of(error)}{advice}") from error


def check_names(target: FilePath, names: Collection[str], separator: str) -> None:
    """Check that lists of these names can be written, before the work that produces them.

    Examples
    --------
    >>> check_names("sets.parquet", ["cat", "a|b"], "|")
    >>> check_names("sets.csv", ["cat", "a|b"], "|")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: 'a|b' contains '|', which separates the values of a list in CSV; write Parquet, or ...
    """
    wrong = next((name for name in names if separator in name), None)
    if is_text_file(target) and wrong is not None:
        raise ValueError(delimited.holds_separator(wrong, separator))


def is_text_file(target: FilePath) -> bool:
    """Return whether a table is written there as text, which has no lists.

    Examples
    --------
    >>> is_text_file("sets.TSV"), is_text_file("-"), is_text_file("sets.parquet")
    (True, True, False)
    """
    return _is_stream(target) or suffix_of(target).removesuffix(".gz") in (".csv", ".tsv")


@dataclass(frozen=True)
class Source:
    """Where a table is read from: its name in messages, its suffix, its size, and a function that opens it."""

    name: str
    suffix: str
    size: int
    open: Callable[[], IO[bytes]]

    @classmethod
    def of(cls, source: FilePath) -> "Source":
        if _is_stream(source):
            data = sys.stdin.buffer.read()
            arrow = data.startswith((b"ARROW1", b"\xff\xff\xff\xff"))  # of the file and of the stream format
            suffix = ".parquet" if data.startswith(b"PAR1") else ".arrow" if arrow else ".csv"
            return cls("standard input", suffix, len(data), lambda: io.BytesIO(data))
        suffix = _check_suffix(source, "read", SUFFIXES)
        path = _path(source)
        if path.is_dir():
            raise ValueError(f"{source} is a folder; name a file in it")
        if not path.is_file():
            raise FileNotFoundError(f"{source} does not exist or is not a file; check the path")
        return cls(str(source), suffix, path.stat().st_size, lambda: open(path, "rb"))

    def text(self, delimiter: str | None, *, whole: bool = True) -> delimited.Text:
        """Return the text file; by default, tabs are between the columns of `.tsv` files, and commas elsewhere."""
        chosen = delimiter or ("\t" if self.suffix.startswith(".tsv") else ",")
        return delimited.Text(self.name, lambda: self.unpacked(chosen, whole=whole), chosen)

    @contextmanager
    def unpacked(self, delimiter: str, *, whole: bool = True) -> Iterator[Any]:
        """Open a table of text, decompressed if its suffix says so; `whole` limits the memory that all of it takes."""
        import pyarrow as pa

        with self.open() as file:
            if not self.suffix.endswith(".gz"):
                with pa.input_stream(file) as stream:
                    yield stream
                return
            ends = (delimiter.encode(), b"\n")
            with pa.input_stream(file, "gzip") as stream:
                if not whole:
                    yield stream
                    return

                def cost(part: bytes) -> int:
                    return len(part) + _CELL * sum(map(part.count, ends))

                yield io.BufferedReader(Bounded(stream, self.name, self.size, cost), _BUFFER)


def _read_parquet(source: Source) -> Any:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile, read_metadata

    with source.open() as file:
        claimed = read_metadata(file)
        schema = ParquetFile(file, metadata=claimed).schema_arrow
        rows, texts, needed = plan_parquet(claimed, schema)
        check_bytes(source.name, needed, source.size)
        with ParquetFile(file, metadata=claimed, read_dictionary=texts, pre_buffer=False) as table:
            # In blocks: a damaged file may claim more rows than it holds, and memory for all would be allocated.
            found = pa.Table.from_batches(_plain(source, batches_of(table, rows), schema), schema)
    if found.num_rows != claimed.num_rows:
        raise ValueError(
            f"{source.name} is damaged: it claims {claimed.num_rows} rows and holds {found.num_rows}; restore it"
        )
    return found


def batches_of(table: Any, rows: int, columns: list[str] | None = None) -> Iterator[Any]:
    """Yield the rows of an open Parquet file, none of them across the border of a row group.

    pyarrow cannot read lists of texts as dictionaries there, because each row group has another dictionary.
    """
    for group in range(table.num_row_groups):
        yield from table.iter_batches(rows, row_groups=[group], columns=columns)


def plan_parquet(claimed: Any, schema: Any) -> tuple[int, list[str], int]:
    """Plan how to read a Parquet file with this metadata.

    Return how many rows to read at a time, the paths of the columns to read as dictionaries, and a lower bound of the
    bytes that all rows take. A text that the file holds once may stand in every row, but as dictionaries texts take no
    more memory than in the file. pyarrow cannot read all encodings and types so; then few rows are read at a time.
    """
    views = tuple(f"{field.name}." for field in schema if "view" in str(field.type))
    needed = _CELL * claimed.num_rows * max(claimed.num_columns, 1)
    longest = 1  # bytes of a text that is not read as a dictionary
    texts = []
    for j in range(claimed.num_columns):
        leaf = claimed.schema.column(j)
        chunks = [claimed.row_group(i).column(j) for i in range(claimed.num_row_groups)]
        size = sum(chunk.total_uncompressed_size for chunk in chunks)
        values = sum(chunk.num_values for chunk in chunks)
        needed += size + max(max(_CELL, leaf.length or 0) * values - _CELL * claimed.num_rows, 0)  # lists, wide values
        if leaf.physical_type == "BYTE_ARRAY":
            known = all(_DICTIONARY.issuperset(chunk.encodings) for chunk in chunks)
            if known and not f"{leaf.path}.".startswith(views):
                texts.append(leaf.path)
            else:
                longest = max(longest, size)
    return min(max(_BLOCK_BYTES // longest, 1), _ROWS), texts, needed


def _plain(source: Source, batches: Iterable[Any], schema: Any) -> Iterator[Any]:
    """Yield batches with texts instead of dictionaries, as long as they do not take more memory than is allowed."""
    import pyarrow as pa

    taken = 0
    for batch in batches:
        taken += sum(map(decoded_bytes, batch.columns))
        check_bytes(source.name, taken, source.size)
        yield from pa.Table.from_batches([batch]).cast(schema).to_batches()


def decoded_bytes(values: Any) -> int:
    """Return how much memory an array takes with every value written out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if isinstance(values, pa.ChunkedArray):
        return sum(map(decoded_bytes, values.chunks))
    if pa.types.is_dictionary(kind) and (pa.types.is_string(kind.value_type) or pa.types.is_binary(kind.value_type)):
        return _CELL * len(values) + (pc.sum(pc.binary_length(values.dictionary).take(values.indices)).as_py() or 0)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _CELL * len(values) + decoded_bytes(values.flatten())
    if pa.types.is_struct(kind):
        return sum(map(decoded_bytes, values.flatten()))
    return max(_CELL * len(values), values.nbytes)


def _read_arrow(source: Source) -> Any:
    import pyarrow as pa

    with source.open() as file:
        is_stream = file.read(6) != b"ARROW1"
        _check_arrow(source, file, is_stream)
        file.seek(0)
        with (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(file) as reader:
            table = reader.read_all()
    check_bytes(source.name, sum(map(decoded_bytes, table.columns)), source.size)
    return table


def _check_arrow(source: Source, file: IO[bytes], is_stream: bool) -> None:
    taken = 0
    try:
        for size in unpacked_sizes(file, is_stream):
            taken += size
            check_bytes(source.name, taken, source.size)
    except (struct.error, IndexError) as error:
        raise ValueError(f"{source.name} is damaged or not a table ({error}); restore it, or save it again") from None


def _write_binary(table: Any, file: IO[bytes], suffix: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        if suffix == ".parquet":
            pyarrow.parquet.write_table(table, file)
        else:
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
    except pa.ArrowException as error:
        raise ValueError(f"the table cannot be written as {suffix}: {reason_of(error)}; convert or drop it") from None


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn errors of the system and of Arrow into one-line errors that name the file."""
    import pyarrow as pa

    try:
        yield
    except MemoryError:
        raise ValueError(f"{name} needs more memory than there is; it is damaged or too big") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(
            f"{name} is damaged or not a table ({reason_of(error)}); restore it, or save it again"
        ) from None
    except OSError as error:
        if error.errno is None:  # raised by Arrow
            raise ValueError(
                f"{name} is damaged or not a table ({reason_of(error)}); restore it, or save it again"
            ) from None
        raise OSError(f"{name} cannot be read: {reason_of(error)}") from error


def _damaged(name: str, error: Exception) -> ValueError:
    return ValueError(f"{name} is damaged or not a table ({reason_of(error)}); restore it, or save it again")


@contextmanager
def replacing(target: FilePath) -> Iterator[IO[bytes]]:
    """Open a new file that replaces the target when everything is written, and is removed when something fails."""
    with writing(target), store.replacing(os.path.realpath(_path(target))) as file:  # keep a symbolic link
        yield file


def _check_suffix(place: FilePath, what: str, suffixes: Sequence[str]) -> str:
    """Return the suffix. Raise ValueError if it is not one of these."""
    if _is_stream(place):
        return ".csv"
    suffix = suffix_of(_path(place))
    if suffix not in suffixes:
        raise ValueError(f"{place} cannot be {what}: its name must end in {', '.join(suffixes)}")
    return suffix


def _is_stream(place: FilePath) -> bool:
    return place == "-"


def _path(place: FilePath) -> Path:
    return arguments.path("the table's path", place)


def reason_of(error: Exception) -> str:
    """Return the message of the system or of Arrow in one line."""
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return text if len(text) < 200 else f"{text[:200]}…"


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return the suffix of a file in lower case, with the one before `.gz`.

    Examples
    --------
    >>> suffix_of("birds.CSV"), suffix_of("my.birds.csv.gz")
    ('.csv', '.csv.gz')
    """
    *others, last = ["", *Path(path).suffixes]
    return f"{others[-1] if others and last.lower() == '.gz' else ''}{last}".lower()
