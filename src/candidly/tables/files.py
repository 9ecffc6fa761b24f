"""Tables of the user's own as they are, in and out: CSV, TSV, Parquet and Arrow.

`candidly.data.read_table` makes a dataset of numbers; here a table stays a table, with its text, dates and gaps.
"""

import gzip
import io
import os
import secrets
import sys
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

_ROWS = 1 << 15  # of Parquet, to read at a time
_MOST_ROWS = 1 << 31

Place = str | os.PathLike[str]


def read(source: Place, *, delimiter: str | None = None, texts: Collection[str] = ()) -> Any:
    r"""Read a table.

    Parameters
    ----------
    source : path or "-"
        A `.csv` or `.tsv` file, plain or with `.gz`, in UTF-8 with a header; or a `.parquet`, `.arrow` or `.feather`
        file. "-" is standard input, in any of these formats but `.tsv` and `.gz`.
    delimiter : str, optional
        What stands between the columns of a CSV file; left out, a comma, and in a `.tsv` file a tab.
    texts : collection of str
        Columns of a CSV file that stay text even where all of it reads as numbers, such as ids with leading zeros.
        Names that are not there do no harm.

    Returns
    -------
    pyarrow.Table
        Of CSV, columns of numbers, truth values and dates are such, and all others text. Empty cells are missing, and
        so are NA, NaN, null and the like in columns of numbers. Blanks around column names do not count. The apostrophe
        that `write` puts in front of formulas is taken away.

    Raises
    ------
    OSError
        When the file is missing or cannot be read.
    ValueError
        When it is no table: the message says what is wrong, in which row, and what to do about it. Rows are counted
        from 0, lines of a file from 1.

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
            table.validate(full=True)  # a damaged file may hold what is no text
        elif found.suffix in _ARROW:
            table = _read_arrow(found)
            table.validate(full=True)  # or point outside of its own memory
        else:
            usual = "\t" if found.suffix.startswith(".tsv") else ","
            table = delimited.read(delimited.Text(found.name, found.unpacked, delimiter or usual), texts)
        delimited.check_columns(found.name, table.column_names)
    if table.num_rows == 0:
        raise ValueError(f"{found.name} has no rows; pass at least one")
    return table


def write(table: Any, target: Place, *, separator: str = "|") -> None:
    r"""Write a table, so that the file's name always stands for the whole old or the whole new content.

    Parameters
    ----------
    table : pyarrow.Table
        In CSV, columns of lists become text. So that nothing is harmed that opens the file, control characters other
        than newlines and tabs become visible (``\x1b``), and text that a spreadsheet would take for a formula gets an
        apostrophe in front, which `read` takes away. Parquet and Arrow keep everything as it is.
    target : path or "-"
        The suffix says the format, as in `read`. "-" is standard output, in CSV.
    separator : str, default "|"
        What stands between the values of a list in CSV.

    Raises
    ------
    OSError
        When the file cannot be written. No part of it is left then.
    ValueError
        For an unknown suffix, a value with the separator in it, and a type that the format does not have.

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
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:  # no time: the same table, the same bytes
                lines.write(packed)
        else:
            lines.write(file)


def check_writable(target: Place, suffixes: Sequence[str] = SUFFIXES) -> None:
    """Check that a file can be written, before the work whose result it is to hold.

    Parameters
    ----------
    target : path or "-"
        The file, which stays as it is.
    suffixes : sequence of str
        What its name may end in, by default with a table's suffix.

    Raises
    ------
    OSError
        When the folder is not there or nothing can be written to it.
    ValueError
        When the suffix is another one, or the target is a folder.

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


def check_folder(folder: Place) -> None:
    """Check that files can be made in a folder, by making one for a moment.

    Raises
    ------
    OSError
        When the folder is not there or nothing can be written to it.

    Examples
    --------
    >>> check_folder("/no/such/folder")
    Traceback (most recent call last):
        ...
    OSError: the folder /no/such/folder does not exist; make it first, or name another
    """
    folder = Path(folder)
    if not folder.is_dir():
        wrong = "is no folder; name another" if folder.exists() else "does not exist; make it first, or name another"
        raise OSError(f"the folder {folder} {wrong}")
    probe = folder / f"candidly-{secrets.token_hex(8)}.tmp"
    try:
        with open(probe, "xb"):
            pass
        probe.unlink()
    except OSError as error:
        raise OSError(f"nothing can be written to {folder}: {_reason(error)}; name another folder") from error


@contextmanager
def writing(target: Place) -> Iterator[None]:
    """Let errors of the system say what was being written.

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


def check_names(target: Place, names: Collection[str], separator: str) -> None:
    """Check that lists of these names can be written, before the work whose result they are.

    Examples
    --------
    >>> check_names("sets.parquet", ["cat", "a|b"], "|")
    >>> check_names("sets.csv", ["cat", "a|b"], "|")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: 'a|b' contains '|', which stands between the values of a list in CSV; write Parquet, or ...
    """
    wrong = next((name for name in names if separator in name), None)
    if is_text_file(target) and wrong is not None:
        raise ValueError(delimited.refusal(wrong, separator))


def is_text_file(target: Place) -> bool:
    """Whether a table is written there as text, which has no lists.

    Examples
    --------
    >>> is_text_file("sets.TSV"), is_text_file("-"), is_text_file("sets.parquet")
    (True, True, False)
    """
    return _is_stream(target) or suffix_of(target).removesuffix(".gz") in (".csv", ".tsv")


@dataclass(frozen=True)
class _Source:
    """Where a table is read from: its name in messages, its suffix, and what opens it from its start."""

    name: str
    suffix: str
    open: Callable[[], IO[bytes]]

    @classmethod
    def of(cls, source: Place) -> "_Source":
        if _is_stream(source):
            data = sys.stdin.buffer.read()
            arrow = data.startswith((b"ARROW1", b"\xff\xff\xff\xff"))  # of a file, and of a stream
            suffix = ".parquet" if data.startswith(b"PAR1") else ".arrow" if arrow else ".csv"
            return cls("standard input", suffix, lambda: io.BytesIO(data))
        path, suffix = _path(source), _check_suffix(source, "read", SUFFIXES)
        if path.is_dir():
            raise ValueError(f"{source} is a folder; name a file in it")
        if not path.is_file():
            raise FileNotFoundError(f"{source} does not exist or is no file; check the path")
        return cls(str(source), suffix, lambda: open(path, "rb"))

    @contextmanager
    def unpacked(self) -> Iterator[Any]:
        """Open it, without the compression that its suffix names."""
        import pyarrow as pa

        with self.open() as file, pa.input_stream(file, "gzip" if self.suffix.endswith(".gz") else None) as stream:
            yield stream


def _read_parquet(source: _Source) -> Any:
    import pyarrow as pa
    import pyarrow.parquet

    with source.open() as file, pyarrow.parquet.ParquetFile(file, pre_buffer=False) as table:
        claimed = table.metadata.num_rows
        _check_size(source.name, claimed)
        # In blocks, because memory for all the rows would be taken before it is known whether they are there.
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
    """Turn the system's and Arrow's errors into ones that name the file, in one line."""
    import pyarrow as pa

    try:
        yield
    except MemoryError:
        raise ValueError(f"{name} asks for more memory than there is; it is damaged, or too big") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is damaged or no table ({_reason(error)}); restore it, or save it again") from None
    except OSError as error:
        if error.errno is None:  # Arrow's
            raise ValueError(
                f"{name} is damaged or no table ({_reason(error)}); restore it, or save it again"
            ) from None
        raise OSError(f"{name} cannot be read: {_reason(error)}") from error


@contextmanager
def _replacing(target: Place) -> Iterator[IO[bytes]]:
    """Open a new file that takes the target's place when all is written, and is gone when something fails."""
    with writing(target), store.replacing(os.path.realpath(_path(target))) as file:  # a link stays one
        yield file


def _check_suffix(place: Place, what: str, suffixes: Sequence[str]) -> str:
    """Return the suffix, if it is one of these."""
    if _is_stream(place):
        return ".csv"
    suffix = suffix_of(place)
    if suffix not in suffixes:
        raise ValueError(f"{place} cannot be {what}: its name must end in {', '.join(suffixes)}")
    return suffix


def _check_size(name: str, rows: int) -> None:
    if rows > _MOST_ROWS:
        raise ValueError(f"{name} claims {rows} rows; the limit is {_MOST_ROWS}, pass a part of it or restore it")


def _is_stream(place: Place) -> bool:
    return place == "-"


def _path(place: Place) -> Path:
    return Path(place).expanduser()


def _reason(error: Exception) -> str:
    """Say in one line what the system or Arrow says."""
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
