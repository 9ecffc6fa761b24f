"""Read the columns of X, which may be an array, list, tensor, sparse matrix or data frame, as numbers or texts."""

import datetime
import decimal
import numbers
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates.frames import as_frame
from candidly.candidates.values import MISSING_TEXTS, as_text, from_tensor, is_missing, is_missing_type, plain, unmasked
from candidly.checks.sparse import check_sparse
from candidly.messages import cut, warn

MOST_COLUMNS = 1_000_000
_MOST_BYTES = 4 << 30  # the largest encoded matrix
_VALUES = 1 << 22  # approximate number of values in a block
_MICROSECONDS = 1e6  # per second
# Microseconds per unit, at least, of NumPy's dates and durations; finer units cannot overflow.
_UNITS = {"Y": 3.15e13, "M": 2.4e12, "W": 6.048e11, "D": 8.64e10, "h": 3.6e9, "m": 6e7, "s": 1e6, "ms": 1e3}

# A number as people write it, with a decimal comma or with separators of thousands.
_WRITTEN = re.compile(r"[-+\u2212]?\s?(?:\d{1,3}(?:[,.'\u2019\s]\d{3})+|\d+)(?:[.,]\d+)?")
_SIGNS = "%$\u20ac\xa3\xa5 "  # of percent and currencies
_PLAIN_NUMBERS = "write a point before decimals and no other separators, as in 1234.5"
_CONVERT = "convert it or drop the column"
_LONGEST = 100  # characters of a column's name in a message
_FEW = 10  # numbers that a column of texts may hold without a warning


@dataclass(frozen=True, eq=False)
class Numbers:
    """Columns of numbers, shape (columns, rows), NaN where missing. `kind` is what they were in X."""

    values: NDArray[np.float64]
    kind: str = "number"  # or "text", "date", "duration"

    def take(self, rows: NDArray[np.intp]) -> "Numbers":
        """Return some rows, possibly repeated."""
        return Numbers(self.values[:, rows], self.kind)


@dataclass(frozen=True, eq=False)
class Texts:
    """One column of texts: row i holds ``values[codes[i]]``, and is missing where the code is -1.

    `strange` is the code of a text that is not a number in a column of which most values are.
    """

    codes: NDArray[np.intp]
    values: list[str]
    strange: int | None = None

    def take(self, rows: NDArray[np.intp]) -> "Texts":
        """Return some rows, possibly repeated, with the values that occur in them."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        has_missing = bool((used[:1] == -1).any())  # codes are sorted: -1 comes first
        if has_missing:
            used = used[1:]
            codes = codes - 1
        return Texts(codes, [self.values[code] for code in used])


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of X before conversion; `read` returns it.

    Attributes
    ----------
    columns : array (n, d), sparse matrix of columns, or list of narwhals Series
        The data, not a copy.
    shape : tuple of int
        Rows and columns.
    names : tuple of str or None
        Column names, where X has them.
    labels : tuple of str or None
        Column names of a data frame that are not text, such as numbers, as text; None also if they are 0, 1, 2, …
    """

    columns: Any
    shape: tuple[int, int]
    names: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None

    def take_columns(self, positions: Sequence[int]) -> "Table":
        """Return the columns in another order."""
        return replace(
            self,
            columns=[self.columns[j] for j in positions],
            names=None if self.names is None else tuple(self.names[j] for j in positions),
            labels=None if self.labels is None else tuple(self.labels[j] for j in positions),
        )

    def label(self, j: int) -> str:
        """Return the name or number of a column for messages."""
        if self.names is not None:
            return f"column {cut(self.names[j], _LONGEST)!r}"
        return f"column {j if self.labels is None else cut(self.labels[j], _LONGEST)}"

    def check_size(self, width: int) -> None:
        """Raise ValueError if a sparse or categorical table would be huge as a dense matrix of this width."""
        size = 4 * self.shape[0] * width
        dense = isinstance(self.columns, (list, np.ndarray)) and width <= 2 * self.shape[1]
        if size > _MOST_BYTES and not dense:
            raise ValueError(
                f"X is sparse or has categories, and would take {size / 2**30:.1f} GiB as a matrix of {self.shape[0]} "
                f"rows and {width} columns; the limit is 4 GiB, pass fewer columns or, to predict, fewer rows at a time"
            )

    def blocks(self, categories: Set[int] = frozenset()) -> Iterator[tuple[int, Numbers | Texts]]:
        """Yield the columns from left to right, in blocks, each with the number of its first column.

        A block holds several columns of numbers, or one column of any other kind. Columns in `categories` always become
        texts, so that a row is read the same alone and among other rows.
        """
        rows, width = self.shape
        columns = self.columns
        if isinstance(columns, list):
            for j, series in enumerate(columns):
                yield j, self._checked(j, _of_series(series, self.label(j), j in categories))
            return
        all_numbers = columns.dtype.kind in "biuf" and not categories
        step = max(1, _VALUES // rows) if all_numbers else 1
        for j in range(0, width, step):
            part = columns[:, j : j + step]
            if not isinstance(part, np.ndarray):  # sparse
                part = part.toarray()
            yield j, self._checked(j, _of_columns(part, self.label(j), j in categories))

    def _checked(self, first: int, block: Numbers | Texts) -> Numbers | Texts:
        if isinstance(block, Texts):
            return block
        infinite = np.isinf(block.values)
        if infinite.any():
            row = int(infinite.any(axis=0).argmax())
            column = int(infinite[:, row].argmax())
            value = block.values[column, row]
            label = self.label(first + column)
            raise ValueError(f"X has {value} in row {row}, {label}; replace infinite numbers or drop the row")
        return block


def read(X: Any) -> Table | NDArray[np.uint8]:
    """Return X as a `Table`, or as an array if it holds images: bytes (uint8) with four axes. Check its shape.

    A `Table` is returned unchanged, so that X can be read once and passed on.

    Examples
    --------
    >>> table = read([[1.5, "red"], [2.5, None]])
    >>> [type(block).__name__ for _, block in table.blocks()]
    ['Numbers', 'Texts']
    """
    if isinstance(X, Table):
        return X
    if hasattr(X, "tocsc"):
        return _of_sparse(X)
    if hasattr(X, "detach"):
        return _of_array(from_tensor(X, "X"))
    if isinstance(X, (list, tuple)) and any(isinstance(row, np.ma.MaskedArray) for row in X):
        X = np.ma.array(X)  # a plain array would lose the masks of the rows
    if isinstance(X, np.ma.MaskedArray):
        if X.ndim == 4 and np.ma.getmaskarray(X).any():
            raise ValueError("X holds masked images; fill them, or leave these rows out")
        return _of_array(unmasked(X))
    if not isinstance(X, (np.ndarray, list, tuple)):
        table = _of_frame(X)
        if table is not None:
            return table
        if X is None or isinstance(X, (str, bytes, Mapping, Set, Iterator)):
            raise ValueError(f"X is a {type(X).__name__}; pass an array, a list of rows or a data frame")
    return _of_array(X)


def _of_array(X: Any) -> Table | NDArray[np.uint8]:
    try:
        array = np.asarray(X)
    except ValueError:
        raise ValueError("X has rows of different lengths; give every row the same number of values") from None
    if array.dtype.kind in "UST":
        array = np.array(X, dtype=object)  # NumPy turns numbers beside texts in a list into texts
    if array.ndim == 1 and array.dtype == object and len(array):
        _refuse_rows(array[0])
    if array.ndim == 4 and array.dtype == np.uint8:
        _check_shape((len(array), int(np.prod(array.shape[1:]))))
        return array
    _check_dtype(array.dtype)
    return Table(array, _check_shape(array.shape))


def _refuse_rows(row: Any) -> None:
    """Raise ValueError for the first of several rows that NumPy did not make a matrix of."""
    if isinstance(row, Mapping):
        raise ValueError("X is a list of mappings; pass a data frame, e.g. pandas.DataFrame(X)")
    if isinstance(row, Iterable) and not isinstance(row, (str, bytes)):
        raise ValueError("X is an array of rows, not a matrix; give every row the same number of values and stack them")


def _of_sparse(X: Any) -> Table:
    _check_dtype(X.dtype)
    if X.dtype == object:
        raise ValueError("X is sparse and has dtype object; convert it to numbers, e.g. with X.astype(float)")
    shape = _check_shape(X.shape)
    try:
        return Table(check_sparse(X).tocsc(), shape)
    except ValueError as error:
        raise ValueError(f"X is {error}; build it again") from None


def _of_frame(X: Any) -> Table | None:
    frame = as_frame(X)
    if frame is None:
        return None
    shape = _check_shape(frame.shape)
    names = tuple(frame.columns)
    texts = [name for name in names if isinstance(name, str)]
    if texts and len(texts) < len(names):
        other = next(name for name in names if not isinstance(name, str))
        raise ValueError(
            f"X has column names that are text, such as {texts[0]!r}, and {other!r}; make all of them text"
        )
    if texts:
        return Table(list(frame.iter_columns()), shape, tuple(map(str, texts)))
    labels = None if list(names) == list(range(len(names))) else tuple(repr(plain(name)) for name in names)
    return Table(list(frame.iter_columns()), shape, labels=labels)


def _check_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Raise ValueError if X is not a matrix, with the messages that scikit-learn's checks expect."""
    if len(shape) < 2:
        found = "1D array" if len(shape) else "scalar array"
        raise ValueError(
            f"Expected 2D array, got {found} instead. Reshape your data using X.reshape(-1, 1) if it has a single "
            "feature, or X.reshape(1, -1) if it is a single row."
        )
    if len(shape) > 2:
        raise ValueError(
            f"Found array with dim {len(shape)}, while dim <= 2 is required; flatten each row with "
            "X.reshape(len(X), -1), or pass images as bytes (uint8) of shape (rows, channels, height, width)"
        )
    n, d = shape
    for number, what in ((n, "sample(s)"), (d, "feature(s)")):
        if number == 0:
            raise ValueError(
                f"Found array with 0 {what} (shape=({n}, {d})) while a minimum of 1 is required. Pass X with at least "
                "one row and one column."
            )
    if d > MOST_COLUMNS:
        raise ValueError(f"X has {d} columns; the limit is {MOST_COLUMNS}, select some")
    return int(n), int(d)


def _check_dtype(dtype: np.dtype[Any]) -> None:
    if dtype.kind == "c":
        raise ValueError("Complex data not supported; pass real and imaginary parts as separate columns")
    if dtype.kind not in "biufOMm":
        raise ValueError(f"X has dtype {dtype}; pass numbers or text")


def _of_series(series: Any, label: str, categorical: bool) -> Numbers | Texts:
    """Convert a column of a table, given as a narwhals Series."""
    import narwhals.stable.v2 as nw

    dtype = series.dtype
    categorical |= dtype in (nw.Categorical, nw.Enum)
    if series.implementation.is_pyarrow():
        series = nw.from_native(decoded(series.to_native()), series_only=True)
        dtype = series.dtype
        _refuse_far(_far_arrow(series.to_native()), label)
    if dtype in (nw.List, nw.Array, nw.Struct, nw.Time):
        raise TypeError(f"X has type {dtype} in {label}; an argument must be a string or a number, {_CONVERT}")
    if categorical or dtype in (nw.String, nw.Object):
        # Convert values without nulls, because nulls turn integers into floats.
        values = np.full(len(series), None, dtype=object)
        values[~series.is_null().to_numpy()] = series.drop_nulls().to_numpy()
        return _of_objects(values.tolist(), label, categorical)
    if dtype.is_numeric() or dtype == nw.Boolean:
        return Numbers(_floats(series))
    if dtype in (nw.Datetime, nw.Date):
        return Numbers(_seconds_of(series, series.dt.timestamp("us"), series.dt.timestamp("ms"), label), "date")
    if dtype == nw.Duration:
        times = series.dt.total_microseconds(), series.dt.total_milliseconds()
        return Numbers(_seconds_of(series, *times, label), "duration")
    try:
        values = series.to_numpy()
    except Exception:  # of the library that the column is from
        kind = getattr(series.to_native(), "type", dtype)
        raise TypeError(f"X has type {kind} in {label}; an argument must be a string or a number, {_CONVERT}") from None
    return _of_columns(values[:, None], label)


def decoded(column: Any) -> Any:
    """Return an Arrow column without dictionary and run-end encoding, in a layout that every Arrow function accepts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        return decoded(column.cast(kind.value_type))
    if pa.types.is_run_end_encoded(kind):
        return decoded(pc.run_end_decode(column))
    if str(kind).startswith(("list_view", "large_list_view")):
        return column.cast(pa.large_list(kind.value_type))
    views = {"string_view": pa.large_string, "binary_view": pa.large_binary}
    return column.cast(views[str(kind)]()) if str(kind) in views else column


def _seconds_of(series: Any, microseconds: Any, milliseconds: Any, label: str) -> NDArray[np.float64]:
    """Return times in seconds. Raise ValueError for those that overflow in microseconds."""
    found = _floats(microseconds)
    missing = np.isnan(found[0])
    far = missing != series.is_null().to_numpy()
    # Durations are cut towards zero and dates towards the past.
    far |= ~missing & (np.abs(found[0] / 1000 - _floats(milliseconds)[0]) > np.maximum(1, np.abs(found[0]) * 1e-15))
    _refuse_far(far, label)
    return found / _MICROSECONDS


def _far_arrow(column: Any) -> NDArray[np.bool_]:
    """Return where an Arrow column has times that overflow in microseconds, which Arrow does not notice."""
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_duration(kind)):
        return np.zeros(1, bool)
    times = column.cast(pa.int64()).fill_null(0).to_numpy().astype(np.float64)
    return np.asarray(np.abs(times) >= 2.0**63 / _UNITS.get(kind.unit, 1))


def _refuse_far(far: NDArray[np.bool_], label: str) -> None:
    if far.any():
        raise ValueError(
            f"X has a date or duration in row {int(far.argmax())}, {label}, that is more than 290,000 years away; "
            "correct it or drop the column"
        )


def _floats(series: Any) -> NDArray[np.float64]:
    import narwhals.stable.v2 as nw

    if series.dtype in (nw.Int128, nw.UInt128):  # which NumPy does not have
        series = series.cast(nw.Float64)
    if not series.dtype.is_integer():
        return np.array(series.cast(nw.Float64).to_numpy(), dtype=np.float64)[None]
    # NumPy rounds large integers, Arrow refuses to.
    values = np.array(series.fill_null(0).to_numpy(), dtype=np.float64)
    values[series.is_null().to_numpy()] = np.nan
    return values[None]


def _of_columns(values: NDArray[Any], label: str, categorical: bool = False) -> Numbers | Texts:
    """Convert columns of a NumPy array; unless they are numbers, it must be one column."""
    _check_dtype(values.dtype)
    kind = values.dtype.kind
    if categorical or kind == "O":
        return _of_objects(values[:, 0].tolist(), label, categorical)
    if kind not in "Mm":
        with np.errstate(over="ignore"):  # a long double may become infinite, which is refused later
            return Numbers(np.array(values.T, dtype=np.float64, order="C"))
    is_date = kind == "M"
    unit, step = np.datetime_data(values.dtype)
    if unit == "generic" and not np.isnat(values).all():
        raise ValueError(f"X has durations without a unit in {label}; convert them, e.g. to timedelta64[s]")
    limit = 2.0**63 / (_UNITS.get(unit, 1) * step)
    _refuse_far((np.abs(values.astype(np.int64).astype(np.float64)) >= limit)[:, 0] & ~np.isnat(values[:, 0]), label)
    microseconds = values.astype("datetime64[us]" if is_date else "timedelta64[us]").astype(np.int64)
    seconds = np.where(np.isnat(values), np.nan, microseconds / _MICROSECONDS)
    return Numbers(seconds.T, "date" if is_date else "duration")


def _of_objects(items: list[Any], label: str, categorical: bool = False) -> Numbers | Texts:
    """Convert a column of Python objects; with `categorical`, numbers are categories too."""
    types = {kind: _kind_of(kind) for kind in set(map(type, items))}
    if categorical:  # other hashable objects, such as intervals, are categories
        types |= {kind: "text" for kind, name in types.items() if name == "other" and kind.__hash__ is not None}
    _refuse_kinds(items, types, label)
    if len(types) > 1 or "missing" in types.values():
        # The vector form of `candidly.candidates.values.is_missing`: NaN differs from itself.
        items = [None if types[type(item)] == "missing" or item != item else item for item in items]
    kinds = {types[kind] for kind in set(map(type, items)) & types.keys()} - {"missing"}
    if categorical:
        return _factorise(items)
    if "text" in kinds and kinds <= {"text", "number"}:
        return parse(_factorise(items), label)
    if kinds <= {"date"} or kinds <= {"duration"}:
        seconds = [np.nan if item is None else _seconds(item) for item in items]
        kind = next(iter(kinds), "number")  # no kind: all values are missing
        return Numbers(np.array(seconds, dtype=np.float64)[None], kind)
    if not kinds <= {"number"}:
        raise ValueError(f"{label} mixes {' and '.join(sorted(kinds))} values; convert them to one type or drop it")
    try:
        return Numbers(np.array(items, dtype=np.float64)[None])
    except OverflowError:
        raise ValueError(f"{label} has a number beyond double precision, which is infinite; replace it") from None
    except ValueError:  # a signalling NaN of the decimal module
        raise ValueError(f"{label} has a value that is not a number; replace it") from None


def _refuse_kinds(items: list[Any], types: dict[type, str], label: str) -> None:
    """Raise an error if a column holds complex numbers or objects that are not numbers, text or dates."""
    for wrong in ("complex", "other"):
        if wrong not in types.values():
            continue
        row = next(i for i, item in enumerate(items) if types[type(item)] == wrong)
        if wrong == "complex":
            raise ValueError(f"Complex data not supported; row {row}, {label} holds {items[row]}")
        # scikit-learn's checks expect this type of error and this wording.
        found = f"X has a {type(items[row]).__name__} in row {row}, {label}"
        raise TypeError(f"{found}; an argument must be a string or a number, {_CONVERT}")


def _kind_of(kind: type) -> str:
    """Return what values of a type are: missing, number, complex, text, date, duration or other."""
    if is_missing_type(kind):
        return "missing"
    kinds: list[tuple[str, tuple[type, ...]]] = [
        ("other", (np.datetime64, np.timedelta64)),  # first, because timedelta64 is registered as a number
        ("number", (numbers.Real, np.bool_, decimal.Decimal)),
        ("complex", (complex, np.complexfloating)),
        ("text", (str, bytes)),
        ("date", (datetime.date,)),
        ("duration", (datetime.timedelta,)),
    ]
    return next((name for name, classes in kinds if issubclass(kind, classes)), "other")


def _seconds(item: Any) -> float:
    """Return a duration, or a date as the time since 1970, in seconds."""
    if isinstance(item, datetime.timedelta):
        return item.total_seconds()
    if not isinstance(item, datetime.datetime):
        item = datetime.datetime(item.year, item.month, item.day)
    if item.tzinfo is None:
        item = item.replace(tzinfo=datetime.UTC)
    return float(item.timestamp())


def _factorise(items: list[Any]) -> Texts:
    """Return objects as texts; those with the same text, such as 1 and "1", are the same category."""
    values: dict[str, int] = {}
    codes: dict[Any, int] = {}
    for item in dict.fromkeys(items):
        if is_missing(item):
            codes[item] = -1
        else:
            codes[item] = values.setdefault(_category_text(item), len(values))
    return Texts(np.fromiter(map(codes.__getitem__, items), np.intp, len(items)), list(values))


def _category_text(item: Any) -> str:
    """Return the text of a category. Equal things have equal texts: 1, 1.0 and True are ``1``."""
    return as_text(int(item) if isinstance(item, (bool, np.bool_)) else item)


def parse(texts: Texts, label: str) -> Numbers | Texts:
    """Return texts as numbers if all of them are, else unchanged.

    Raises
    ------
    ValueError
        If all of them are numbers, but some with a decimal comma or separators of thousands.

    """
    numbers = [to_number(text) for text in texts.values]
    strange = [code for code, number in enumerate(numbers) if number is None]
    if not strange:
        found = [*numbers, np.nan]  # the last value is that of code -1
        return Numbers(np.array(found, dtype=np.float64)[texts.codes][None], "text")
    code = strange[0]
    row = int((texts.codes == code).argmax())
    if all(is_written_number(texts.values[code]) for code in strange):
        raise ValueError(
            f"X has {texts.values[code][:60]!r} in row {row}, {label}, which seems to hold numbers; {_PLAIN_NUMBERS}, "
            "or, in Python, convert the column to a categorical type if these are categories"
        )
    plain_numbers = len(numbers) - len(strange)
    others = [texts.values[code] for code in strange if texts.values[code] not in MISSING_TEXTS]
    signed = all(to_number(text.strip(_SIGNS)) is not None for text in others)
    if plain_numbers >= max(_FEW, 4 * len(strange)) or (signed and (plain_numbers or others)):
        return Texts(texts.codes, texts.values, code)
    return texts


def warn_of_strange(texts: Texts, label: str) -> None:
    """Warn if almost all texts are numbers, or all but for texts such as ``NA`` and signs of percent or currencies."""
    if texts.strange is not None:
        row = int((texts.codes == texts.strange).argmax())
        warn(
            f"X has {texts.values[texts.strange][:60]!r} in row {row}, {label}, which is read as categories; most of "
            "its values look like numbers, correct the others if it holds numbers"
        )


def to_number(text: str) -> float | None:
    """Return the number that a text stands for, or None if it is not a plain number.

    Examples
    --------
    >>> to_number("-1.5e3"), to_number("1_5")
    (-1500.0, None)
    """
    try:
        return None if "_" in text else float(text)  # Python would read 1_5 as 15
    except ValueError:
        return None


def is_written_number(text: str) -> bool:
    """Return whether a text is a number as people write it, perhaps with separators that `to_number` refuses.

    Examples
    --------
    >>> is_written_number("1,5"), is_written_number("1.234,5"), is_written_number("1,2,3")
    (True, True, False)
    """
    return _WRITTEN.fullmatch(text.strip()) is not None


def number_advice(text: str) -> str:
    """Return what to do about a text that is not a plain number."""
    return _PLAIN_NUMBERS if is_written_number(text) else "correct it"
