"""Reader of Parquet and CSV tables.

A table is read in blocks of rows, so that it and the matrix made of it never exist side by side, and no row becomes a
Python object: names are split, counted and numbered by Arrow.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.data.dataset import Dataset
from candidly.data.own import checked

_ROWS = 1 << 15  # of a Parquet block, at most
_VALUES = 1 << 21  # of a Parquet block, at most
_BYTES = 1 << 22  # of a CSV block
_MOST_ROWS = 1 << 24  # to reserve memory for because a file claims them


def read_table(
    path: str | os.PathLike[str],
    candidates: str = "candidates",
    label: str | None = "label",
    separator: str = "|",
) -> Dataset:
    r"""Read a table with a column of candidates; every other column is a numeric feature.

    Parameters
    ----------
    path
        A `.parquet` or `.csv` file, the latter with a header.
    candidates
        The column of candidates: text such as ``cat|dog``, in Parquet also lists of text or of integers. Blanks around
        names do not count.
    label
        The column of true labels, if there is one. A label that is nobody's candidate is a class too. With None, there
        is no such column.
    separator
        What stands between the names in a text.

    Returns
    -------
    Dataset
        With float32 features if all feature columns are, else float64. Classes are sorted, integers by value.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    ValueError
        For a missing column, a feature that is not a finite number, and a row without candidates, label or a name; the
        message says which. Rows are counted from 0, without the header.

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
    import pyarrow as pa

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is no file; check the path")
    if separator == "":
        raise ValueError("separator is empty; pass the text between the names, e.g. '|'")
    try:
        open_table = _open_csv if path.suffix.lower() == ".csv" else _open_parquet
        columns, blocks = open_table(path, candidates, label)
        return _read(path, columns, blocks, separator)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OSError) as error:
        if getattr(error, "errno", None) is not None:  # the system's, not Arrow's
            raise
        raise ValueError(f"{path} is no readable table: {_with_name(str(error), path)}; correct it") from error


@dataclass(frozen=True)
class _Columns:
    candidates: str
    label: str | None
    features: list[str]
    dtype: type[np.floating[Any]]
    num_rows: int  # a guess


def _choose(path: Path, names: list[str], candidates: str, label: str | None) -> tuple[str | None, list[str]]:
    """Return the column of labels, if there is one, and the features."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{path} has several columns {twice[0]!r}; rename them")
    if candidates not in names:
        raise ValueError(
            f"{path} has no column {candidates!r}; name the column of candidates, out of {', '.join(names)}"
        )
    if label not in names:
        if label not in (None, "label"):
            raise ValueError(f"{path} has no column {label!r}; name the column of labels, out of {', '.join(names)}")
        label = None
    features = [name for name in names if name not in (candidates, label)]
    if not features:
        raise ValueError(f"{path} has no column of features beside {', '.join(names)}; add numeric columns")
    return label, features


def _open_parquet(path: Path, candidates: str, label: str | None) -> tuple[_Columns, Iterator[Any]]:
    import pyarrow as pa
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(path, memory_map=True, pre_buffer=False)
    schema = table.schema_arrow
    label, features = _choose(path, schema.names, candidates, label)
    types = [schema.field(name).type for name in features]
    for name, kind in zip(features, types, strict=True):
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise ValueError(f"{path}: column {name!r} has type {kind}; features are numbers, convert or drop it")
    dtype = np.float32 if all(kind in (pa.float32(), pa.float16()) for kind in types) else np.float64
    columns = _Columns(candidates, label, features, dtype, min(table.metadata.num_rows, _MOST_ROWS))
    wanted = [candidates, *([label] if label else []), *features]
    rows = max(1, min(_ROWS, _VALUES // len(features)))
    return columns, table.iter_batches(rows, columns=wanted)


def _open_csv(path: Path, candidates: str, label: str | None) -> tuple[_Columns, Iterator[Any]]:
    import pyarrow as pa
    import pyarrow.csv

    read = pyarrow.csv.ReadOptions(block_size=_BYTES)
    with pyarrow.csv.open_csv(path, read_options=read) as header:
        label, features = _choose(path, header.schema.names, candidates, label)
    # Types are fixed, because they would be guessed from the first block only.
    types = {candidates: pa.string()} | ({label: pa.string()} if label else {}) | dict.fromkeys(features, pa.float64())
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    convert = pyarrow.csv.ConvertOptions(column_types=types)
    blocks = pyarrow.csv.open_csv(path, read_options=read, parse_options=parse, convert_options=convert)
    return _Columns(candidates, label, features, np.float64, 0), iter(blocks)


def _with_name(message: str, path: Path) -> str:
    """Add the name of the column to Arrow's message, which has its number only."""
    import pyarrow.csv

    number = re.search(r"In CSV column #(\d+)", message)
    if not number:
        return message
    with pyarrow.csv.open_csv(path, read_options=pyarrow.csv.ReadOptions(block_size=_BYTES)) as header:
        name = header.schema.names[int(number[1])]
    return f"column {name!r}: {message}"


def _read(path: Path, columns: _Columns, blocks: Iterator[Any], separator: str) -> Dataset:
    X: NDArray[Any] = np.empty((max(columns.num_rows, 1), len(columns.features)), columns.dtype)
    names, sets, labels, n = _Names(separator), [], [], 0
    for block in blocks:
        stop = n + block.num_rows
        if stop > len(X):
            # In place: the memory grows where it lies, so that two copies never exist.
            X.resize((max(stop, len(X) * 5 // 4), X.shape[1]), refcheck=False)
        place = _Place(path, n)
        _fill(X[n:stop], block, columns.features, place)
        named = [block.column(name) for name in (columns.candidates, columns.label) if name]
        text = any(_is_text(_value_type(values.type)) for values in named)
        sets.append(names.number_sets(named[0], text, place))
        labels += [names.number_labels(values, text, place) for values in named[1:]]
        n = stop
    if n == 0:
        raise ValueError(f"{path} has no rows; pass at least one")
    X.resize((n, X.shape[1]), refcheck=False)
    classes, column = names.sort()
    S = np.zeros((n, len(classes)), dtype=bool)
    start = 0
    for sizes, codes in sets:
        S[np.repeat(np.arange(start, start + len(sizes)), sizes), column[codes]] = True
        start += len(sizes)
    return checked(path, X, S, column[np.concatenate(labels)] if labels else None, classes)


@dataclass(frozen=True)
class _Place:
    """A block of rows, for messages."""

    path: Path
    start: int

    def row(self, wrong: NDArray[np.bool_]) -> str:
        """Name the first row of the block where something is wrong."""
        return f"{self.path}: row {self.start + int(np.argmax(wrong))}"


def _fill(X: NDArray[Any], block: Any, features: list[str], place: _Place) -> None:
    """Write the features of a block."""
    for j, name in enumerate(features):
        values = block.column(name)
        if values.null_count:
            raise ValueError(f"{place.row(_nulls(values))} has no value in column {name!r}; fill it or drop the row")
        X[:, j] = values.to_numpy(zero_copy_only=False)
    finite = np.isfinite(X)
    if not finite.all():
        wrong = ~finite.all(axis=1)
        name = features[int(np.argmin(finite[np.argmax(wrong)]))]
        raise ValueError(f"{place.row(wrong)} has no finite number in column {name!r}; correct it or drop the row")


class _Names:
    """Class names, numbered in the order in which they were found."""

    def __init__(self, separator: str) -> None:
        self.separator = separator
        self.codes: dict[Any, int] = {}

    def number_sets(self, values: Any, text: bool, place: _Place) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the number of candidates of each row, and the codes of all of them."""
        import pyarrow.compute as pc

        missing = "has no candidates; drop it or list at least one class for it"
        if values.null_count:
            raise ValueError(f"{place.row(_nulls(values))} {missing}")
        values = _decoded(values)
        joined = _is_text(values.type)
        if joined:
            values = pc.split_pattern(values, self.separator)
        sizes = np.ones(len(values), np.int64)
        if _value_type(values.type) != values.type:
            sizes, values = pc.list_value_length(values).to_numpy().astype(np.int64), values.flatten()
        if (sizes == 0).any():
            raise ValueError(f"{place.row(sizes == 0)} {missing}")
        rows = np.repeat(np.arange(len(sizes)), sizes)
        if values.null_count:
            raise ValueError(f"{place.row(_at(rows, _nulls(values)))} has a missing name; drop it or name a class")
        codes = self._number(values, text, place)
        if "" in self.codes:
            wrong = _at(rows, codes == self.codes[""])
            if joined and sizes[np.argmax(wrong)] == 1:
                raise ValueError(f"{place.row(wrong)} {missing}")
            raise ValueError(f"{place.row(wrong)} has an empty name; remove the stray separator or name a class")
        return sizes, codes

    def number_labels(self, values: Any, text: bool, place: _Place) -> NDArray[np.int32]:
        """Return the code of each label."""
        values = _decoded(values)
        wrong = _nulls(values)
        if not wrong.any():
            codes = self._number(values, text, place)
            wrong = codes == self.codes.get("", -1)
        if wrong.any():
            raise ValueError(f"{place.row(wrong)} has no label; fill it, or leave the column out with label=None")
        return codes

    def _number(self, values: Any, text: bool, place: _Place) -> NDArray[np.int32]:
        import pyarrow as pa

        values = _decoded(values)
        if not (_is_text(values.type) or pa.types.is_integer(values.type)):
            raise ValueError(
                f"{place.path} has class names of type {values.type}; pass text or integers, or lists of them"
            )
        encoded = values.dictionary_encode()
        found = encoded.dictionary.to_pylist()
        names = [str(name).strip() for name in found] if text else found
        known = np.array([self.codes.setdefault(name, len(self.codes)) for name in names], np.int32)
        return known[encoded.indices.to_numpy()]

    def sort(self) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """Return the sorted names, and the place among them of each code."""
        names = sorted(self.codes)
        column = np.empty(len(names), np.int64)
        column[[self.codes[name] for name in names]] = np.arange(len(names))
        return tuple(str(name) for name in names), column


def _at(rows: NDArray[np.int64], wrong: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the row of the first wrong value."""
    return np.arange(len(rows)) == rows[np.argmax(wrong)]


def _nulls(values: Any) -> NDArray[np.bool_]:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False))


def _decoded(values: Any) -> Any:
    import pyarrow as pa

    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _value_type(kind: Any) -> Any:
    """Return the type of the values of a list or dictionary, or of the values themselves."""
    import pyarrow as pa

    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if pa.types.is_dictionary(kind) or any(is_list(kind) for is_list in lists):
        return _value_type(kind.value_type)
    return kind


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
