"""What users pass as X, read by columns: arrays, lists, tensors, sparse matrices and tables become numbers or texts."""

import datetime
import decimal
import numbers
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from candidly.candidates.frames import as_frame

MOST_COLUMNS = 1_000_000
_MOST_BYTES = 4 << 30  # of an encoded matrix
_VALUES = 1 << 22  # of a block, about
_MICROSECONDS = 1e6  # in a second


@dataclass(frozen=True, eq=False)
class Numbers:
    """Columns of numbers, (columns, rows), with NaN where they are missing; `kind` says what they were in X."""

    values: NDArray[np.float64]
    kind: str = "number"  # or "text", "date", "duration"

    def take(self, rows: NDArray[np.intp]) -> "Numbers":
        """Return some rows, of which one may come several times."""
        return Numbers(self.values[:, rows], self.kind)


@dataclass(frozen=True, eq=False)
class Texts:
    """One column of texts: row i holds ``values[codes[i]]``, and none where the code is -1."""

    codes: NDArray[np.intp]
    values: list[str]

    def take(self, rows: NDArray[np.intp]) -> "Texts":
        """Return some rows, of which one may come several times, and the values that occur in them."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        gap = int((used[:1] == -1).any())  # where a value is missing, it is the first
        return Texts(codes - gap, [self.values[code] for code in used[gap:]])


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of X before anything was converted; `read` makes it.

    Attributes
    ----------
    columns : array (n, d), sparse matrix of columns, or list of narwhals Series
        The data itself, not a copy.
    shape : tuple of int
        Rows and columns.
    names : tuple of str or None
        Column names, where X has them.
    """

    columns: Any
    shape: tuple[int, int]
    names: tuple[str, ...] | None = None

    def by_name(self, names: Sequence[str]) -> "Table":
        """Return the same columns in the order of these names, which are all the table has."""
        place = {name: j for j, name in enumerate(self.names or ())}
        return replace(self, columns=[self.columns[place[name]] for name in names], names=tuple(names))

    def label(self, j: int) -> str:
        """Say which column it is, in a message."""
        return f"column {j if self.names is None else repr(self.names[j])}"

    def check_size(self, width: int) -> None:
        """Refuse to encode what is small now and would be huge then."""
        size = 4 * self.shape[0] * width
        dense = isinstance(self.columns, (list, np.ndarray)) and width <= 2 * self.shape[1]
        if size > _MOST_BYTES and not dense:
            raise ValueError(
                f"X is sparse or has categories, and would take {size / 2**30:.1f} GiB as a matrix of {self.shape[0]} "
                f"rows and {width} columns; the limit is 4 GiB, pass fewer columns or, to predict, fewer rows at a time"
            )

    def blocks(self, categories: Set[int] = frozenset()) -> Iterator[tuple[int, Numbers | Texts]]:
        """Yield the columns from left to right, each block with the number of its first.

        Columns of numbers come as many at a time as are easy to hold, all others alone. Those in `categories` become
        texts whatever they hold: a row must mean the same alone and among others.
        """
        rows, width = self.shape
        columns = self.columns
        if isinstance(columns, list):
            for j, series in enumerate(columns):
                yield j, self._checked(j, _of_series(series, self.label(j), j in categories))
            return
        step = max(1, _VALUES // rows) if columns.dtype.kind in "biuf" and not categories else 1
        for j in range(0, width, step):
            part = columns[:, j : j + step]
            part = part if isinstance(part, np.ndarray) else part.toarray()
            yield j, self._checked(j, _of_columns(part, self.label(j), j in categories))

    def _checked(self, first: int, block: Numbers | Texts) -> Numbers | Texts:
        if isinstance(block, Numbers) and (infinite := np.isinf(block.values)).any():
            row = int(infinite.any(axis=0).argmax())
            column = int(infinite[:, row].argmax())
            place, value = self.label(first + column), block.values[column, row]
            raise ValueError(f"X has {value} in row {row}, {place}; replace infinite numbers or drop the row")
        return block


def read(X: Any) -> Table | NDArray[np.uint8]:
    """Find out what X is and check its shape; images, bytes with four axes, come back as an array.

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
    if isinstance(X, Tensor):
        X = X.detach().cpu().to_dense()
        X = (X.float() if X.is_floating_point() and X.element_size() < 4 else X).numpy()  # NumPy has no bfloat16
    elif isinstance(X, np.ma.MaskedArray):
        mask, X = np.ma.getmaskarray(X), np.array(X.data, dtype=object)
        X[mask] = None
    elif not isinstance(X, (np.ndarray, list, tuple)):
        table = _of_frame(X)
        if table is not None:
            return table
    return _of_array(X)


def count_rows(X: Any) -> int:
    """Return how many rows X has, after checking what it is."""
    return int(read(X).shape[0])


def _of_array(X: Any) -> Table | NDArray[np.uint8]:
    try:
        array = np.asarray(X)
    except ValueError:
        raise ValueError("X has rows of different lengths; give every row the same number of values") from None
    if array.dtype.kind in "US":
        array = np.array(X, dtype=object)  # in a list, numbers beside texts had become texts
    if array.ndim == 4 and array.dtype == np.uint8:
        _check_shape((len(array), int(np.prod(array.shape[1:]))))
        return array
    _check_dtype(array.dtype)
    return Table(array, _check_shape(array.shape))


def _of_sparse(X: Any) -> Table:
    _check_dtype(X.dtype)
    shape = _check_shape(X.shape)
    return Table(X.tocsc(), shape)


def _of_frame(X: Any) -> Table | None:
    frame = as_frame(X)
    if frame is None:
        return None
    shape, names = _check_shape(frame.shape), tuple(frame.columns)
    texts = [name for name in names if isinstance(name, str)]
    if texts and len(texts) < len(names):
        other = next(name for name in names if not isinstance(name, str))
        raise ValueError(
            f"X has column names that are text, such as {texts[0]!r}, and {other!r}; make all of them text"
        )
    return Table(list(frame.iter_columns()), shape, tuple(map(str, texts)) or None)


def _check_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Refuse what is no matrix, in the words that scikit-learn's checks look for."""
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
            raise ValueError(f"Found array with 0 {what} (shape=({n}, {d})) while a minimum of 1 is required.")
    if d > MOST_COLUMNS:
        raise ValueError(f"X has {d} columns; the limit is {MOST_COLUMNS}, select some")
    return int(n), int(d)


def _check_dtype(dtype: np.dtype[Any]) -> None:
    if dtype.kind == "c":
        raise ValueError("Complex data not supported; pass real and imaginary parts as columns of their own")
    if dtype.kind not in "biufOMm":
        raise ValueError(f"X has dtype {dtype}; pass numbers or text")


def _of_series(series: Any, label: str, categorical: bool) -> Numbers | Texts:
    """Convert a column of a table, given as a narwhals Series."""
    import narwhals.stable.v2 as nw

    dtype = series.dtype
    categorical |= dtype in (nw.Categorical, nw.Enum)
    if categorical or dtype in (nw.String, nw.Object):
        # Without its nulls, which turn integers into floating-point numbers, and which Arrow's dictionaries lose.
        values = np.full(len(series), None, dtype=object)
        values[~series.is_null().to_numpy()] = series.drop_nulls().to_numpy()
        return _of_objects(values.tolist(), label, categorical)
    if dtype.is_numeric() or dtype == nw.Boolean:
        return Numbers(_floats(series))
    if dtype in (nw.Datetime, nw.Date):
        return Numbers(_floats(series.dt.timestamp("us")) / _MICROSECONDS, "date")
    if dtype == nw.Duration:
        return Numbers(_floats(series.dt.total_microseconds()) / _MICROSECONDS, "duration")
    return _of_columns(series.to_numpy()[:, None], label)


def _floats(series: Any) -> NDArray[np.float64]:
    import narwhals.stable.v2 as nw

    if not series.dtype.is_integer():
        return np.array(series.cast(nw.Float64).to_numpy(), dtype=np.float64)[None]
    # Arrow refuses to round large integers, NumPy does it.
    values = np.array(series.fill_null(0).to_numpy(), dtype=np.float64)
    values[series.is_null().to_numpy()] = np.nan
    return values[None]


def _of_columns(values: NDArray[Any], label: str, categorical: bool = False) -> Numbers | Texts:
    """Convert columns of any dtype that NumPy has, one if they are no numbers."""
    _check_dtype(values.dtype)
    kind = values.dtype.kind
    if categorical or kind == "O":
        return _of_objects(values[:, 0].tolist(), label, categorical)
    if kind not in "Mm":
        with np.errstate(over="ignore"):  # a long double; the infinity is found next
            return Numbers(np.array(values.T, dtype=np.float64, order="C"))
    unit = "datetime64[us]" if kind == "M" else "timedelta64[us]"
    seconds = np.where(np.isnat(values), np.nan, values.astype(unit).astype(np.int64) / _MICROSECONDS)
    return Numbers(seconds.T, "date" if kind == "M" else "duration")


def _of_objects(items: list[Any], label: str, categorical: bool = False) -> Numbers | Texts:
    """Convert a column of Python objects; `categorical` if they are categories even where they are numbers."""
    types = {kind: _kind_of(kind) for kind in set(map(type, items))}
    if categorical:  # which may be intervals, say
        types |= {kind: "text" for kind, name in types.items() if name == "other" and kind.__hash__ is not None}
    for strange in sorted({"complex", "other"} & set(types.values())):
        row = next(i for i, item in enumerate(items) if types[type(item)] == strange)
        if strange == "complex":
            raise ValueError(f"Complex data not supported; row {row}, {label} holds {items[row]}")
        # scikit-learn's checks want this type and these words.
        found = f"X has a {type(items[row]).__name__} in row {row}, {label}"
        raise TypeError(f"{found}; an argument must be a string or a number, convert it or drop the column")
    if len(types) > 1 or "missing" in types.values():
        items = [None if types[type(item)] == "missing" or item != item else item for item in items]
    kinds = {types[kind] for kind in set(map(type, items)) & types.keys()} - {"missing"}
    if categorical or ("text" in kinds and kinds <= {"text", "number"}):
        texts = _factorise(items)
        return texts if categorical else parse(texts)
    if kinds <= {"date"} or kinds <= {"duration"}:
        seconds = [np.nan if item is None else _seconds(item) for item in items]
        return Numbers(np.array(seconds, dtype=np.float64)[None], *kinds)
    if not kinds <= {"number"}:
        raise ValueError(f"{label} mixes {' and '.join(sorted(kinds))} values; convert them to one type or drop it")
    try:
        return Numbers(np.array(items, dtype=np.float64)[None])
    except OverflowError:
        raise ValueError(f"{label} has a number beyond double precision, which is infinite; replace it") from None


def _kind_of(kind: type) -> str:
    if kind.__name__ in ("NoneType", "NAType", "NaTType"):  # the last two are pandas', which need not be installed
        return "missing"
    kinds: list[tuple[str, tuple[type, ...]]] = [
        ("other", (np.datetime64, np.timedelta64)),  # the second claims to be a number
        ("number", (numbers.Real, np.bool_, decimal.Decimal)),
        ("complex", (complex, np.complexfloating)),
        ("text", (str, bytes)),
        ("date", (datetime.date,)),
        ("duration", (datetime.timedelta,)),
    ]
    return next((name for name, classes in kinds if issubclass(kind, classes)), "other")


def _seconds(item: Any) -> float:
    if isinstance(item, datetime.timedelta):
        return item.total_seconds()
    if not isinstance(item, datetime.datetime):
        item = datetime.datetime(item.year, item.month, item.day)
    return float((item if item.tzinfo else item.replace(tzinfo=datetime.UTC)).timestamp())


def _factorise(items: list[Any]) -> Texts:
    place = {item: i for i, item in enumerate(dict.fromkeys(items))}
    texts = [None if item is None or item != item else _text(item) for item in place]
    values = list(dict.fromkeys(text for text in texts if text is not None))
    code = {text: i for i, text in enumerate(values)}
    first = np.array([-1 if text is None else code[text] for text in texts], dtype=np.intp)  # 1 and "1" are one text
    return Texts(first[np.fromiter(map(place.__getitem__, items), np.intp, len(items))], values)


def _text(item: Any) -> str:
    """Write equal things equally: 1, 1.0 and True are ``1``."""
    if isinstance(item, bytes):
        return item.decode(errors="backslashreplace")
    if isinstance(item, (numbers.Integral, np.bool_)):
        return str(int(item))
    if not isinstance(item, (numbers.Real, decimal.Decimal)):
        return str(item)
    value = float(item)
    return str(int(value)) if value.is_integer() else repr(value)


def parse(texts: Texts) -> Numbers | Texts:
    """Read texts as numbers if all of them are."""
    found = []
    for text in texts.values:
        number = to_number(text)
        if number is None:
            return texts
        found.append(number)
    return Numbers(np.array([*found, np.nan])[texts.codes][None], "text")


def to_number(text: str) -> float | None:
    """Read a number, if the text is one.

    Examples
    --------
    >>> to_number("-1.5e3"), to_number("1_5")
    (-1500.0, None)
    """
    try:
        return None if "_" in text else float(text)  # Python would read 1_5 as 15
    except ValueError:
        return None


def listed(items: Iterable[str], most: int = 5) -> str:
    """List the first few items, for a message in one line."""
    (*shown,) = items
    return ", ".join(shown[:most]) + f" and {len(shown) - most} more" * (len(shown) > most)
