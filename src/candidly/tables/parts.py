"""Tables in several files: find the files, count their rows, and read and write them in blocks of rows.

Memory does not grow with the number of rows: of Parquet and Arrow files at most a row group or record batch is in
memory, of text a few megabytes.
"""

import glob
import gzip
import hashlib
import itertools
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from candidly.checks import arguments
from candidly.checks.limits import check_bytes
from candidly.tables import delimited, files
from candidly.tables.arrow_sizes import unpacked_sizes
from candidly.tables.provenance import Provenance, of_schema

BLOCK_ROWS = 1 << 16
"""Rows that are read at a time, at most."""

_BUFFER = 1 << 20  # bytes of a column that are read at a time


def find_parts(source: files.FilePath) -> list[Path]:
    """Return the files of a table, sorted by path: one file, the tables in a folder, or the files of a pattern.

    Parameters
    ----------
    source : path
        A file; a folder, whose files with a suffix of `candidly.tables.files.SUFFIXES` are taken, without those in
        folders in it; or a pattern such as ``rows/part-*.parquet``, in which ``**`` stands for any folders. Files and
        folders whose names begin with ``_`` or ``.`` are left out, unless the source names them.

    Raises
    ------
    FileNotFoundError
        When there is no such file, or the folder or pattern has none.
    ValueError
        When the files have different formats.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("b.csv", "a.csv", "notes.txt"):
    ...         _ = Path(folder, name).write_text("x")
    ...     [part.name for part in find_parts(folder)]
    ['a.csv', 'b.csv']
    """
    path = arguments.path("the table's path", source)
    if path.is_file():
        return [path]
    if path.is_dir():
        names = (one for one in path.iterdir() if not one.name.startswith(("_", ".")))
        found = [one for one in names if files.suffix_of(one) in files.SUFFIXES]
        lacking = (
            f"the folder {source} holds no table; name a folder with files that end in {', '.join(files.SUFFIXES)}"
        )
    elif glob.has_magic(str(source)):
        named = sum(1 for _ in itertools.takewhile(lambda one: not glob.has_magic(one), path.parts))
        matching = (Path(name) for name in glob.glob(str(source), recursive=True))
        found = [one for one in matching if not any(name.startswith(("_", ".")) for name in one.parts[named:])]
        lacking = f"no file matches {source}; check the pattern, and quote it so that the shell does not expand it"
    else:
        raise FileNotFoundError(f"{source} does not exist; name a file, a folder or a pattern such as 'part-*.parquet'")
    parts = sorted({one for one in found if one.is_file()})
    if not parts:
        raise FileNotFoundError(lacking)
    kinds = {_format(part): part for part in reversed(parts)}
    if len(kinds) > 1:
        one, other, *_ = sorted(kinds.values())
        raise ValueError(f"{source} has {one.name} and {other.name}, of different formats; choose one with a pattern")
    return parts


def is_several(source: files.FilePath) -> bool:
    """Return whether a source is a folder or a pattern, and not a single file.

    Examples
    --------
    >>> is_several("part-*.csv"), is_several("birds.csv"), is_several("-")
    (True, False, False)
    """
    return not os.path.isfile(source) and (os.path.isdir(source) or glob.has_magic(str(source)))


def _format(part: Path) -> str:
    """Return the suffix without ``.gz``; the two suffixes of Arrow files are one format."""
    suffix = files.suffix_of(part).removesuffix(".gz")
    return files.ARROW[0] if suffix in files.ARROW else suffix


def column_names(part: files.FilePath, *, delimiter: str | None = None) -> list[str]:
    """Return the names of the columns of a file, without reading its rows."""
    found = files.Source.of(part)
    with files.reading(found.name):
        if files.is_text_file(part):
            return delimited.column_names(found.text(delimiter, whole=False))
        names = read_schema(found).names
        delimited.check_columns(found.name, names)
        return list(names)


def count_rows(part: files.FilePath, *, delimiter: str | None = None) -> int:
    """Return the number of rows of a file: from the metadata of Parquet, by reading it otherwise.

    Raises
    ------
    ValueError
        When the file is not a table. Text is checked for open quotes and ragged rows.
    """
    import pyarrow as pa
    import pyarrow.parquet

    found = files.Source.of(part)
    with files.reading(found.name):
        if files.is_text_file(part):
            return delimited.count_rows(found.text(delimiter, whole=False))
        with found.open() as file:
            if found.suffix == ".parquet":
                return int(pyarrow.parquet.read_metadata(file).num_rows)
            return sum(batch.num_rows for batch in _arrow_batches(pa, found, file))


def read_blocks(
    part: files.FilePath,
    *,
    rows: int = BLOCK_ROWS,
    columns: Collection[str] | None = None,
    delimiter: str | None = None,
    texts: Collection[str] = (),
    raw: bool = False,
) -> Iterator[Any]:
    r"""Yield the rows of a file as tables of at most `rows` rows, in order.

    Parameters
    ----------
    part : path
        A file, as in `candidly.tables.files.read`.
    rows : int
        The largest number of rows of a table.
    columns : collection of str, optional
        Columns to read, in the order of the file; names of columns that do not exist are ignored. By default all.
    delimiter, texts
        As in `candidly.tables.files.read`.
    raw : bool
        Whether to leave all cells of text files as they are, as text: without types, and with the apostrophes in front
        of formulas. Other formats have types of their own.

    Yields
    ------
    pyarrow.Table
        Types of columns in CSV are those of a few megabytes of the file: where the whole has numbers, one block may
        have integers, another one other numbers, and another one nothing. `Features.transform` treats them alike.

    Raises
    ------
    OSError, ValueError
        As `candidly.tables.files.read`. Rows are counted from the start of the file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("id,weight\na,1\nb,2\nc,3\n"), file.flush()
    ...     [block.num_rows for block in read_blocks(file.name, rows=2)]
    [2, 1]
    """
    found = files.Source.of(part)
    rows = arguments.integer("rows", rows, least=1)
    blocks: Iterator[Any]
    if files.is_text_file(part):
        tables = delimited.read_blocks(found.text(delimiter, whole=False), tuple(texts), raw=raw)
        blocks = (table if columns is None else _select(table, columns) for table in tables)
    elif found.suffix == ".parquet":
        blocks = _parquet_blocks(found, rows, columns)
    else:
        blocks = _arrow_blocks(found, columns)
    with files.reading(found.name):
        for table in blocks:
            for start in range(0, table.num_rows, rows):
                yield table.slice(start, rows)


def _select(table: Any, columns: Collection[str]) -> Any:
    return table.select([name for name in table.column_names if name in columns])


def read_schema(source: files.Source) -> Any:
    """Return the Arrow schema of a Parquet or Arrow file."""
    import pyarrow as pa
    import pyarrow.parquet

    with source.open() as file:
        if source.suffix == ".parquet":
            return pyarrow.parquet.ParquetFile(file).schema_arrow
        is_stream = file.read(6) != b"ARROW1"
        file.seek(0)
        with (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(file) as reader:
            return reader.schema


def check_same_encoders(parts: Sequence[Path]) -> None:
    """Raise ValueError if the files of a table have features of different encoders; text files do not note them."""
    if files.is_text_file(parts[0]):
        return
    first: Sequence[Provenance] = ()
    for number, part in enumerate(parts):
        found = of_schema(read_schema(files.Source.of(part)), str(part))
        first = found if number == 0 else first
        differ = {one.column: one.identity for one in found} != {one.column: one.identity for one in first}
        if differ and count_rows(part):
            here, there = (", ".join(map(str, made)) or "an encoder that is not noted" for made in (found, first))
            raise ValueError(
                f"{part} has features from {here}, and {parts[0]} from {there}; encode all files with one encoder "
                "(`candidly embed --like`)"
            )


def _parquet_blocks(source: files.Source, rows: int, columns: Collection[str] | None) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile, read_metadata

    with source.open() as file:
        claimed = read_metadata(file)
        schema = ParquetFile(file, metadata=claimed).schema_arrow
        most, texts, _ = files.plan_parquet(claimed, schema)
        names = [name for name in schema.names if columns is None or name in columns]
        schema = pa.schema([schema.field(name) for name in names], schema.metadata)
        settings = {"read_dictionary": texts, "pre_buffer": False, "buffer_size": _BUFFER}
        with ParquetFile(file, metadata=claimed, **settings) as table:
            batches: list[Any] = []
            held = taken = total = 0
            for batch in files.batches_of(table, min(most, rows), names):
                if held + batch.num_rows > rows:
                    yield _joined(batches, schema)
                    batches, held, taken = [], 0, 0
                taken += sum(map(files.decoded_bytes, batch.columns))
                check_bytes(source.name, taken, source.size)
                batches.append(batch)
                held += batch.num_rows
                total += batch.num_rows
            if batches:
                yield _joined(batches, schema)
    if total != claimed.num_rows:
        raise ValueError(f"{source.name} is damaged: it claims {claimed.num_rows} rows and holds {total}; restore it")


def _joined(batches: list[Any], schema: Any) -> Any:
    """Return a block of Parquet with texts instead of dictionaries, checked."""
    import pyarrow as pa

    plain = [one for batch in batches for one in pa.Table.from_batches([batch]).cast(schema).to_batches()]
    table = pa.Table.from_batches(plain, schema)
    table.validate(full=True)  # a damaged file may hold invalid text
    return table


def _arrow_batches(pa: Any, source: files.Source, file: IO[bytes]) -> Iterator[Any]:
    is_stream = file.read(6) != b"ARROW1"
    for size in unpacked_sizes(file, is_stream):
        check_bytes(source.name, size, source.size)
    file.seek(0)
    with (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(file) as reader:
        if is_stream:
            yield from reader
        else:
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i)


def _arrow_blocks(source: files.Source, columns: Collection[str] | None) -> Iterator[Any]:
    import pyarrow as pa

    with source.open() as file:
        for batch in _arrow_batches(pa, source, file):
            table = pa.Table.from_batches([batch])
            table.validate(full=True)  # a damaged file may point outside of its memory
            yield table if columns is None else _select(table, columns)


class BlockWriter:
    r"""Write a table to one file, block by block. The file is replaced as a whole when the ``with`` block ends.

    Parameters
    ----------
    target : path
        The suffix determines the format, as in `candidly.tables.files.write`.
    separator : str
        The text between the values of a list in CSV.

    Attributes
    ----------
    rows, bytes : int
        Number of rows and bytes that were written.
    sha256 : str
        The checksum of the file, when it is complete.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with BlockWriter(Path(folder, "kept.csv")) as writer:
    ...         for names in (["cat", "dog"], ["dog"]):
    ...             writer.write(pa.table({"kept": [names]}))
    ...     Path(folder, "kept.csv").read_text()
    'kept\ncat|dog\ndog\n'
    """

    def __init__(self, target: files.FilePath, separator: str = "|") -> None:
        self.target, self.separator = target, separator
        self.rows = self.bytes = 0
        self._digest = hashlib.sha256()
        self._stack = ExitStack()
        self._writer: Any = None

    @property
    def sha256(self) -> str:
        """The checksum of what was written."""
        return self._digest.hexdigest()

    def __enter__(self) -> "BlockWriter":
        # The file is hashed while it is written; pyarrow and gzip need no more than `write` of it.
        self._file = self._stack.enter_context(files.replacing(self.target))
        self._suffix = files.suffix_of(self.target)
        self._out: Any = _Hashed(self)
        if self._suffix.endswith(".gz"):
            self._out = self._stack.enter_context(gzip.GzipFile("", "wb", fileobj=self._out, mtime=0))
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None and self._writer is not None:
            self._writer.close()
        self._stack.__exit__(*error)

    def write(self, table: Any) -> None:
        """Add the rows of a table, which must have the columns and types of the first one."""
        if files.is_text_file(self.target):
            mark = "\t" if self._suffix.startswith(".tsv") else ","
            delimited.Lines(table, mark, self.separator).write(self._out, header=not self.rows)
        else:
            if self._writer is None:
                self._writer = self._open(table.schema)
            self._writer.write_table(table)
        self.rows += table.num_rows

    def _open(self, schema: Any) -> Any:
        import pyarrow as pa
        import pyarrow.parquet

        if self._suffix == ".parquet":
            return pyarrow.parquet.ParquetWriter(pa.PythonFile(self._out, "w"), schema)
        return pa.ipc.new_file(pa.PythonFile(self._out, "w"), schema)


class _Hashed:
    """The part of a file's interface that pyarrow and gzip use to write; every byte is counted and hashed."""

    closed = False

    def __init__(self, writer: BlockWriter) -> None:
        self.writer = writer

    def write(self, data: Any) -> int:
        """Write bytes."""
        self.writer._digest.update(data)
        self.writer.bytes += len(data)
        return self.writer._file.write(data)

    def tell(self) -> int:
        """Return the position."""
        return self.writer.bytes

    def flush(self) -> None:
        """Write what is buffered."""
        self.writer._file.flush()

    def close(self) -> None:
        """Leave the file open: it is closed when it is complete."""
