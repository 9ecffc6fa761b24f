"""Read and write a user's tables: CSV, TSV, Parquet and Arrow.

Tables keep their text, dates and missing values; `candidly.data.read_table` returns a dataset of numbers.
"""

import gzip
import io
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from candidly import store
from candidly.tables import delimited

__all__ = ["SUFFIXES", "check_folder", "check_names", "check_writable", "is_text_file", "read", "write", "writing"]

_ARROW = (".arrow", ".feather")
SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", *_ARROW)

_ROWS = 1 << 15  # rows of Parquet to read at a time
_MOST_ROWS = 1 << 31

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
        0, lines of a file from 1.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("id,weight,colour\n007,4.5,red\n008,,NA\n")
    ...     file.flush()
    ...     read(file.name, texts=["id"]).to_pylist()
    [{'id': '007', 'weight': 4.5, 'colour': 'red'}, {'id': '008', 'weight': None, 'colour': 'NA'}]
    """
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ValueError(f"delimiter is {delimiter!r}; pass the one character between the columns, e.g. ';'")
    if isinstance(texts, str):
        raise ValueError(f"texts is the single text {texts!r}; pass a list of columns")
    found = _Source.of(source)
    with _reading(found.name):
        if found.suffix == ".parquet":
            table = _read_parquet(found)
            table.validate(full=True)  # a damaged file may hold invalid text
        elif found.suffix in _ARROW:
            table = _read_arrow(found)
            table.validate(full=True)  # a damaged file may point outside of its memory
        else:
            usual = "\t" if found.suffix.startswith(".tsv") else ","
            table = delimited.read(delimited.Text(found.name, found.unpacked, delimiter or usual), texts)
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
    suffix = _check_suffix(target, "written", SUFFIXES)
    if not is_text_file(target):
        with _replacing(target) as file:
            _write_binary(table, file, suffix)
        return
    if separator == "":
        raise ValueError("separator is empty; pass the text between the values of a list, e.g. '|'")
    lines = delimited.Lines(table, "\t" if suffix.startswith(".tsv") else ",", separator)
    if _is_stream(target):
        sys.stdout.flush()
        lines.write(sys.stdout.buffer)
        return
    with _replacing(target) as file:
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
        raise OSError(f"nothing can be written to {folder}: {_reason(error)}; name another folder") from error


@contextmanager
def writing(target: FilePath) -> Iterator[None]:
    """Let system errors name the file that was being written.

    Examples
    --------
    >>> with writing("model"):
    ...     raise OSError(28, "No space left on device", "model-0123.tmp")
    Traceback (most recent call last):
        ...
    OSError: model cannot be written: No space left on device
    """
    try:
        yield
    except OSError as error:
        raise OSError(f"{target} cannot be written: {_reason(error)}") from error


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
class _Source:
    """Where a table is read from: its name in messages, its suffix, and a function that opens it."""

    name: str
    suffix: str
    open: Callable[[], IO[bytes]]

    @classmethod
    def of(cls, source: FilePath) -> "_Source":
        if _is_stream(source):
            data = sys.stdin.buffer.read()
            arrow = data.startswith((b"ARROW1", b"\xff\xff\xff\xff"))  # of the file and of the stream format
            suffix = ".parquet" if data.startswith(b"PAR1") else ".arrow" if arrow else ".csv"
            return cls("standard input", suffix, lambda: io.BytesIO(data))
        suffix = _check_suffix(source, "read", SUFFIXES)
        path = _path(source)
        if path.is_dir():
            raise ValueError(f"{source} is a folder; name a file in it")
        if not path.is_file():
            raise FileNotFoundError(f"{source} does not exist or is not a file; check the path")
        return cls(str(source), suffix, lambda: open(path, "rb"))

    @contextmanager
    def unpacked(self) -> Iterator[Any]:
        """Open the table, decompressed if its suffix says that it is compressed."""
        import pyarrow as pa

        with self.open() as file, pa.input_stream(file, "gzip" if self.suffix.endswith(".gz") else None) as stream:
            yield stream


def _read_parquet(source: _Source) -> Any:
    import pyarrow as pa
    import pyarrow.parquet

    with source.open() as file, pyarrow.parquet.ParquetFile(file, pre_buffer=False) as table:
        claimed = table.metadata.num_rows
        _check_size(source.name, claimed)
        # In blocks: a damaged file may claim more rows than it holds, and memory for all of them would be allocated.
        found = pa.Table.from_batches(table.iter_batches(_ROWS), table.schema_arrow)
    if found.num_rows != claimed:
        raise ValueError(f"{source.name} is damaged: it claims {claimed} rows and holds {found.num_rows}; restore it")
    return found


def _read_arrow(source: _Source) -> Any:
    import pyarrow as pa

    with source.open() as file:
        start = file.read(6)
        file.seek(0)
        with (pa.ipc.open_file if start == b"ARROW1" else pa.ipc.open_stream)(file) as reader:
            table = reader.read_all()
    _check_size(source.name, table.num_rows)
    return table


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
        raise ValueError(f"the table cannot be written as {suffix}: {_reason(error)}; convert or drop it") from None


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn errors of the system and of Arrow into one-line errors that name the file."""
    import pyarrow as pa

    try:
        yield
    except MemoryError:
        raise ValueError(f"{name} needs more memory than there is; it is damaged or too big") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is damaged or not a table ({_reason(error)}); restore it, or save it again") from None
    except OSError as error:
        if error.errno is None:  # raised by Arrow
            raise ValueError(
                f"{name} is damaged or not a table ({_reason(error)}); restore it, or save it again"
            ) from None
        raise OSError(f"{name} cannot be read: {_reason(error)}") from error


@contextmanager
def _replacing(target: FilePath) -> Iterator[IO[bytes]]:
    """Open a new file that replaces the target when everything is written, and is removed when something fails."""
    with writing(target), store.replacing(os.path.realpath(_path(target))) as file:  # keep a symbolic link
        yield file


def _check_suffix(place: FilePath, what: str, suffixes: Sequence[str]) -> str:
    """Return the suffix. Raise ValueError if it is not one of these."""
    if _is_stream(place):
        return ".csv"
    suffix = suffix_of(place)
    if suffix not in suffixes:
        raise ValueError(f"{place} cannot be {what}: its name must end in {', '.join(suffixes)}")
    return suffix


def _check_size(name: str, rows: int) -> None:
    if rows > _MOST_ROWS:
        raise ValueError(f"{name} claims {rows} rows; the limit is {_MOST_ROWS}, pass a part of it or restore it")


def _is_stream(place: FilePath) -> bool:
    return place == "-"


def _path(place: FilePath) -> Path:
    return Path(place).expanduser()


def _reason(error: Exception) -> str:
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
