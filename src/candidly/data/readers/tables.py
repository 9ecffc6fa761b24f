"""Reader of Parquet and CSV tables.

A table is read in blocks of rows, so that it and the matrix made of it never exist side by side, and no row becomes a
Python object.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.data.dataset import Dataset
from candidly.data.readers.columns import Columns, Roles, choose
from candidly.data.readers.user_files import checked
from candidly.tables.class_columns import Names, Place, are_too_many, is_missing
from candidly.tables.files import suffix_of

SUFFIXES = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")

_ROWS = 1 << 15  # of a Parquet block, at most
_VALUES = 1 << 21  # of a Parquet block, at most
_BYTES = 1 << 22  # of a CSV block
_RESERVED = 1 << 28  # bytes to reserve because a file claims rows, at most


def read_table(
    path: str | os.PathLike[str],
    candidates: str = "candidates",
    label: str | None = "label",
    separator: str = "|",
    *,
    drop: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    delimiter: str = ",",
) -> Dataset:
    r"""Read a table with a column of candidates; every other column is a numeric feature.

    Parameters
    ----------
    path
        A `.parquet` file, or a `.csv` or `.tsv` file in UTF-8 with a header; the last two also with `.gz`.
    candidates
        The column of candidates: text such as ``cat|dog``, in Parquet also lists of text or of integers. Blanks around
        names do not count.
    label
        The column of true labels, if there is one. A label that is nobody's candidate is a class too. With None, true
        labels are not read: a column named `label`, in whatever case, is left out and does not become a feature.
    separator
        What stands between the names in a text.
    drop
        Columns to leave out. The index of a data frame (a column without a name, `Unnamed: 0`, `__index_level_0__`, and
        in Parquet what pandas notes as index) is left out in any case, with a warning.
    classes
        The class names, in this order; then no other name may occur. By default those that are found, sorted.
    delimiter
        What stands between the columns of a CSV file. In a `.tsv` file it is a tab unless another one is named.

    Returns
    -------
    Dataset
        With float32 features if all feature columns are, else float64. Classes are sorted, integers by value; where all
        of them are integers, `1.0` is `1`.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    ValueError
        For a missing column, a feature that is not a finite number, and a row without candidates, label or a name; the
        message says which. Rows are counted from 0, without the header. The texts `nan`, `None`, `null`, `NA` and the
        like are missing names, unless `classes` lists them.

    Warns
    -----
    UserWarning
        When an index is left out, and when true labels are not among the candidates of their rows.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("weight,candidates,label\n4.5,cat|dog,cat\n9,dog,dog\n")
    ...     file.flush()
    ...     dataset = read_table(file.name)
    >>> dataset.classes, dataset.X.tolist(), dataset.S.tolist(), dataset.y.tolist()
    (('cat', 'dog'), [[4.5], [9.0]], [[True, True], [False, True]], [0, 1])
    """
    path = Path(path)
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise ValueError(f"{path} has the suffix {suffix!r}; tables that can be read are {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is no file; check the path")
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ValueError(f"delimiter is {delimiter!r}; pass the one character between the columns, e.g. ';'")
    roles, names = Roles(candidates, label, drop), Names(separator, classes)
    if suffix == ".parquet":
        opened = _open_parquet(path, roles)
    else:
        tabs = suffix.startswith(".tsv") and delimiter == ","
        opened = _open_csv(path, roles, "\t" if tabs else delimiter)
    with opened as table:
        return _read(path, table, names)


@dataclass(frozen=True)
class _Table:
    """An open table; its blocks hold the candidates, the labels if there are any, and then the features."""

    columns: Columns
    blocks: Iterator[Any]
    dtype: type[np.floating[Any]] = np.float64
    num_rows: int = 1  # a guess


@contextmanager
def _open_parquet(path: Path, roles: Roles) -> Iterator[_Table]:
    import pyarrow as pa
    import pyarrow.parquet

    with _errors(path, []), pyarrow.parquet.ParquetFile(path, memory_map=True, pre_buffer=False) as table:
        schema = table.schema_arrow
        columns = choose(path, schema.names, roles, _index_columns(schema))
        types = [schema.field(name).type for name in columns.features]
        for name, kind in zip(columns.features, types, strict=True):
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
                raise ValueError(
                    f"{path}: column {name!r} has type {kind}; features are numbers, convert it or leave it out with "
                    f"read_table(..., drop=[{name!r}])"
                )
        dtype = np.float32 if all(kind in (pa.float32(), pa.float16()) for kind in types) else np.float64
        wanted = [columns.candidates, *([columns.label] if columns.label else []), *columns.features]
        rows = max(1, min(_ROWS, _VALUES // len(types)))
        blocks = (block.select(wanted) for block in table.iter_batches(rows, columns=wanted))
        possible = _RESERVED // (len(types) * np.dtype(dtype).itemsize)
        yield _Table(columns, blocks, dtype, max(1, min(table.metadata.num_rows, possible)))


def _index_columns(schema: Any) -> list[str]:
    """Return the columns of the index, where pandas noted them."""
    try:
        noted = (schema.pandas_metadata or {}).get("index_columns", [])
        return [name for name in noted if isinstance(name, str)]  # else a range, which takes no column
    except (ValueError, AttributeError, TypeError):  # somebody else's note
        return []


@contextmanager
def _open_csv(path: Path, roles: Roles, delimiter: str) -> Iterator[_Table]:
    import pyarrow as pa
    import pyarrow.csv

    read = pyarrow.csv.ReadOptions(block_size=_BYTES, use_threads=False)  # threads do not know the row of an error
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    compression = "gzip" if suffix_of(path).endswith(".gz") else None
    header: list[str] = []
    with _errors(path, header):
        with pa.input_stream(path, compression) as stream, pyarrow.csv.open_csv(stream, read, parse) as first:
            schema = first.schema
        header += [name.strip() for name in schema.names]
        columns = choose(path, header, roles)
        written, guessed = dict(zip(header, schema.names, strict=True)), dict(zip(header, schema.types, strict=True))
        texts = [columns.candidates, *([columns.label] if columns.label else [])]
        # Types are fixed, because they would be guessed from the first block only; True and False are guessed there.
        truths = [name for name in columns.features if pa.types.is_boolean(guessed[name])]
        types = dict.fromkeys(texts, pa.string()) | dict.fromkeys(columns.features, pa.float64())
        types |= dict.fromkeys(truths, pa.bool_())
        convert = pyarrow.csv.ConvertOptions(
            column_types={written[name]: kind for name, kind in types.items()},
            include_columns=[written[name] for name in types],
        )
        with pa.input_stream(path, compression) as stream, pyarrow.csv.open_csv(stream, read, parse, convert) as blocks:
            yield _Table(columns, iter(blocks))


@contextmanager
def _errors(path: Path, header: list[str]) -> Iterator[None]:
    """Turn Arrow's errors into ones that name the file, the column and the row as they are counted here."""
    import pyarrow as pa

    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no readable table: it holds text that is not UTF-8; save it as UTF-8") from error
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:  # the system's, not Arrow's
            raise
        message = re.sub(r"In CSV column #(\d+)", lambda found: f"column {header[int(found[1])]!r}", str(error))
        message = re.sub(r"(?:CSV parse error: )?Row #(\d+)", lambda found: f"row {int(found[1]) - 2}", message)
        advice = "correct it"
        if "invalid UTF8" in message or (header == [] and _is_utf16(path)):
            advice = "save it as UTF-8"
        elif "Expected 1 columns" in message:
            advice = "if another character stands between its columns, pass read_table(..., delimiter=)"
        elif "CSV conversion error" in message:
            advice = "features are numbers, correct it or leave the column out with read_table(..., drop=)"
        raise ValueError(f"{path} is no readable table: {message}; {advice}") from error


def _is_utf16(path: Path) -> bool:
    with open(path, "rb") as stream:
        return stream.read(2) in (b"\xff\xfe", b"\xfe\xff")


def _read(path: Path, table: _Table, names: Names) -> Dataset:
    columns = table.columns
    X: NDArray[Any] = np.empty((table.num_rows, len(columns.features)), table.dtype)
    sets, labels, n = [], [], 0
    for block in table.blocks:
        stop = n + block.num_rows
        if stop > len(X):
            # In place: the memory grows where it lies, so that two copies never exist.
            X.resize((max(stop, len(X) * 5 // 4), X.shape[1]), refcheck=False)
        place = Place(path, n)
        _fill(X[n:stop], block.columns[-len(columns.features) :], columns.features, place)
        sets.append(names.number_sets(block.column(0), columns.candidates, place))
        if columns.label is not None:
            labels.append(names.number_labels(block.column(1), columns.label, place))
        n = stop
    if n == 0:
        raise ValueError(f"{path} has no rows; pass at least one")
    X.resize((n, X.shape[1]), refcheck=False)
    classes, column = names.sort()
    _check_number(path, len(classes), n, columns.candidates, names)
    S = np.zeros((n, len(classes)), dtype=bool)
    start = 0
    for sizes, codes in sets:
        S[np.repeat(np.arange(start, start + len(sizes)), sizes), column[codes]] = True
        start += len(sizes)
    return checked(path, X, S, column[np.concatenate(labels)] if labels else None, classes)


def _check_number(path: Path, num_classes: int, n: int, candidates: str, names: Names) -> None:
    """Check the number of classes before a matrix of them is made."""
    if num_classes < 2:
        raise ValueError(
            f"{path}: the number of classes is {num_classes}; at least two are needed, list all of them with "
            "read_table(..., classes=)"
        )
    if not names.fixed and are_too_many(num_classes, n):
        raise ValueError(
            f"{path}: {num_classes} classes for {n} rows; is {candidates!r} the right column, and {names.separator!r} "
            "the separator? If so, list the classes with read_table(..., classes=)"
        )


def _fill(X: NDArray[Any], values: list[Any], features: list[str], place: Place) -> None:
    """Write the features of a block."""
    for j, (name, column) in enumerate(zip(features, values, strict=True)):
        if column.null_count:
            row = place.row(np.argmax(is_missing(column)))
            raise ValueError(f"{row} has no value in column {name!r}; fill it or drop the row")
        X[:, j] = column.to_numpy(zero_copy_only=False)
    finite = np.isfinite(X)
    if not finite.all():
        wrong = int(np.argmin(finite.all(axis=1)))
        name = features[int(np.argmin(finite[wrong]))]
        raise ValueError(f"{place.row(wrong)} has no finite number in column {name!r}; correct it or drop the row")
