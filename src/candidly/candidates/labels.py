"""Read labels as users write them: a matrix, or one entry per row with one or several class names."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates.frames import as_frame
from candidly.candidates.values import MISSING_TEXTS, from_tensor, is_missing, plain, unmasked
from candidly.checks.machine import Need, available_memory, require
from candidly.checks.sparse import check_sparse
from candidly.messages import listed, warn

LIST_TEXT = r"\s*(\[[^\[\]]*\]|\{[^{}]*\})\s*"
"""Pattern of a text that looks like a list of names."""

SEPARATORS = "|;"
"""Names that contain one of these are probably several names."""

_RARE_SEPARATORS = ",/"  # names that hold one of these may be

# Texts that a matrix of 0 and 1, or of truth values, holds after it was written and read.
_WRITTEN_MATRICES = ({"0", "1"}, {"0.0", "1.0"}, {"False", "True"}, {"false", "true"}, {"FALSE", "TRUE"})

Rows = list[list[Hashable]]
"""The class names of each row."""


def read(y: Any, separator: str | None = None) -> NDArray[np.bool_] | Rows:
    """Return y as a boolean matrix (n, C) or as the class names of each row.

    `candidly.candidates.encode` documents the forms that y can have.

    Examples
    --------
    >>> read(["cat | dog", "cat"], separator="|")
    [['cat', 'dog'], ['cat']]
    """
    if separator is not None and not isinstance(separator, str):
        raise ValueError(f"separator is {separator!r}; pass the text between the names, e.g. '|', or None")
    if separator == "":
        raise ValueError("separator is empty; pass the text between the names, e.g. '|', or None")
    parsed = _parse(y)
    if not isinstance(parsed, np.ndarray):
        return [_row_names(i, row, separator) for i, row in enumerate(parsed)]
    if separator is not None:
        raise ValueError("separator= splits rows of strings, but y is a matrix; leave it out")
    return _as_boolean(parsed)


def column_names(y: Any) -> tuple[Any, ...] | None:
    """Return the column names of a matrix, which are class names, or None if it has none."""
    names = getattr(y, "column_names", getattr(y, "columns", None))
    if names is None or list(names) == list(range(len(names))):
        return None
    return tuple(names)


def arrange(matrix: NDArray[np.bool_], columns: Sequence[Any], classes: Sequence[Any]) -> NDArray[np.bool_]:
    """Return the columns of a matrix in the order of the classes.

    Examples
    --------
    >>> arrange(np.array([[True, False]]), ["dog", "cat"], ["cat", "dog"]).tolist()
    [[False, True]]
    """
    position = {name: j for j, name in enumerate(columns)}
    if position.keys() != set(classes) or len(position) < len(columns):
        raise ValueError(
            f"y has the columns {list(columns)[:10]} but the classes are {list(classes)[:10]}; use the same names"
        )
    return matrix[:, [position[name] for name in classes]]


def mark(rows: Rows, classes: Sequence[Hashable], unknown: bool = False) -> NDArray[np.bool_]:
    """Return the rows' names as a matrix (n, C); with `unknown`, names that are not in `classes` are ignored.

    Examples
    --------
    >>> mark([["cat", "dog"], ["owl"]], ["dog", "cat"], unknown=True).tolist()
    [[True, True], [False, False]]
    """
    column = {name: j for j, name in enumerate(classes)}
    matrix = np.zeros((len(rows), len(classes)), dtype=bool)
    for i, row in enumerate(rows):
        for name in row:
            if name in column:
                matrix[i, column[name]] = True
            elif not unknown:
                raise ValueError(f"row {i} names {name!r}, which is not in classes; add it there or correct the row")
    return matrix


def _parse(y: Any) -> NDArray[Any] | list[Any]:
    """Return a matrix of numbers, or a list with one entry per row."""
    if hasattr(y, "tocsr"):
        y = _of_sparse(y)
    if hasattr(y, "detach"):
        y = from_tensor(y, "y")
    frame = as_frame(y, "y") if hasattr(y, "column_names") or hasattr(y, "columns") else None
    if frame is not None or hasattr(y, "__array__"):
        array = _as_array(y) if frame is None else frame.to_numpy()
        if array.ndim == 0:
            raise ValueError(f"y is the single value {y!r}; pass one entry per row")
        if array.dtype.kind in "cV":
            raise ValueError(f"y has dtype {array.dtype}; pass class names, or a matrix of booleans")
        if array.ndim > 1:
            _refuse_written_matrix(array)
        numbers = array.dtype.kind in "biuf" or (array.dtype == object and all(_is_number(v) for v in array.flat))
        return array if numbers and array.ndim > 1 else list(array)
    if isinstance(y, (str, bytes, Mapping, Set)) or not isinstance(y, Iterable):
        raise ValueError(f"y is a {type(y).__name__}; pass a matrix or one entry per row")
    rows = list(y)
    if _is_grid(rows):
        cells = [plain(value) for row in rows for value in row]
        if all(isinstance(value, bool) for value in cells):
            return np.array(cells).reshape(len(rows), -1)
        if all(_is_number(value) and value in (0, 1) for value in cells):
            raise ValueError(
                "y is a nested list of 0 and 1, which could be a matrix or lists of class names; "
                "pass numpy.array(y) for a matrix, or sets for class names"
            )
    return rows


def _of_sparse(y: Any) -> NDArray[Any]:
    try:
        y = check_sparse(y)
    except ValueError as error:
        raise ValueError(f"y is {error}; build it again") from None
    rows, classes = y.shape
    needs = {f"y, a matrix of {rows} rows and {classes} classes": Need(rows * classes, "pass fewer columns")}
    require(needs, available_memory(), "cpu")
    array: NDArray[Any] = y.toarray()
    return array


def _refuse_written_matrix(array: NDArray[Any]) -> None:
    """Raise ValueError for a matrix of 0 and 1 or of truth values that were written as texts."""
    if array.dtype.kind not in "USTO" or not all(isinstance(value, (str, bytes)) for value in array.flat):
        return
    found = {value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in array.flat}
    for written in _WRITTEN_MATRICES:
        if found <= written:
            raise ValueError(
                f"y is a matrix of the texts {' and '.join(map(repr, sorted(written)))}, which would be class names; "
                "convert it to a matrix of booleans, or pass lists if these are class names"
            )


def _as_array(y: Any) -> NDArray[Any]:
    """Return an array, tensor or column as a NumPy array, with None where it is masked."""
    try:
        return unmasked(y)
    except Exception:  # of the library that y is from, such as polars for integers of 128 bits
        rows = list(y)
        array = np.empty(len(rows), dtype=object)
        array[:] = rows
        return array


def _is_grid(rows: list[Any]) -> bool:
    """Return whether all rows are sequences of the same length, which is at least two."""
    if not all(isinstance(row, (list, tuple)) or getattr(row, "ndim", 0) == 1 for row in rows):
        return False
    widths = {len(row) for row in rows}
    return len(widths) == 1 and widths.pop() >= 2


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.bool_, np.number))


def _as_boolean(array: NDArray[Any]) -> NDArray[np.bool_]:
    if array.dtype == np.bool_:
        return array
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        raise ValueError(
            f"row {at[0]} holds {array[at]}, but y is an array of numbers, which is read as a matrix of 0 and 1; "
            "pass 0 and 1 only, or lists (not an array) of class names"
        )
    return array.astype(bool)


def _row_names(i: int, row: Any, separator: str | None) -> list[Hashable]:
    """Return the class names of one row."""
    row = row.to_pylist() if hasattr(row, "to_pylist") else plain(row)
    place = f"row {i}"
    if separator is not None:
        if not isinstance(row, str):
            raise ValueError(f"{place} is {row!r}, not a string; leave separator= out or pass strings only")
        parts = [part.strip() for part in row.split(separator)] if row.strip() else []
        if "" in parts:
            raise ValueError(f"{place} is {row!r}, with an empty name beside {separator!r}; remove the stray separator")
        return list(parts)
    if isinstance(row, Mapping):
        raise ValueError(f"{place} is a mapping; pass the names of its candidates as a list")
    if isinstance(row, Collection) and not isinstance(row, (str, bytes)):
        return [_name(value, place) for value in row]
    return [_name(row, place)]


def _name(value: Any, place: str) -> Hashable:
    value = plain(value)
    if is_missing(value):
        raise ValueError(f"{place} holds a missing name ({value}); drop it or name a class")
    if isinstance(value, str) and is_missing(value, blank=True):
        raise ValueError(f"{place} holds an empty name ({value!r}); drop it or name a class")
    if isinstance(value, str) and value.endswith("\0"):  # which NumPy drops at the end of text
        raise ValueError(f"{place} holds the name {value[:60]!r}, which ends in a null character; rename it")
    if isinstance(value, (complex, Iterator)) or not isinstance(value, Hashable):
        raise ValueError(f"{place} holds {value!r}, which is not a class name; pass strings or numbers")
    return value


def class_names(classes: Iterable[Any]) -> tuple[Hashable, ...]:
    """Return class names as Python values. Raise ValueError if one is missing, repeated or unusable."""
    if isinstance(classes, (str, bytes)):
        raise ValueError(f"classes is the single text {classes!r}; pass a list of names")
    if isinstance(classes, Set) or not isinstance(classes, Iterable):
        raise ValueError(f"classes is {classes!r}, which has no order; pass a list of names")
    names = tuple(_name(value, f"classes[{j}]") for j, value in enumerate(classes))
    if len(set(names)) < len(names):
        twice = next(name for j, name in enumerate(names) if name in names[:j])
        raise ValueError(f"class {twice!r} is listed twice; list every class once")
    return names


def sorted_names(rows: Rows) -> tuple[Hashable, ...]:
    """Return all names of the rows, sorted."""
    types = {type(name) for row in rows for name in row}
    if bool in types and len(types) > 1:  # True equals 1
        kinds = ", ".join(sorted(kind.__name__ for kind in types))
        raise ValueError(f"class names are of types {kinds}; convert them to one type")
    found: set[Any] = {name for row in rows for name in row}
    try:
        return tuple(sorted(found))
    except TypeError:
        kinds = ", ".join(sorted({type(name).__name__ for name in found}))
        raise ValueError(f"class names of types {kinds} cannot be sorted; fix their order with classes=") from None


def check_spelling(
    names: Iterable[Hashable],
    separator: str | None = None,
    *,
    splitting: str = "split it with separator={mark!r}",
    listing: str = "classes=",
) -> None:
    """Check class names that were found in data, not listed by the user, for signs that they were misread.

    Parameters
    ----------
    names : iterable
        Class names; only texts are looked at.
    separator : str, optional
        The separator that names were split at.
    splitting, listing : str
        For messages: what to do about a name that contains the separator ``{mark}``, and the option that lists classes.

    Raises
    ------
    ValueError
        If a name looks like a list, or like several names with ``|`` or ``;`` between them, which also occur elsewhere.

    Warns
    -----
    UserWarning
        If names have ``,`` or ``/`` between such parts, differ only by case, blanks, quotes or invisible characters,
        or are texts that programs write for a missing value.

    Examples
    --------
    >>> check_spelling(["a", "b", "a|b"])
    Traceback (most recent call last):
        ...
    ValueError: the class name 'a|b' looks like several names; split it with separator='|', or list all with classes=
    """
    texts = [name for name in names if isinstance(name, str)]
    wrong = next((name for name in texts if re.fullmatch(LIST_TEXT, name) and re.search("[,'\"]", name)), None)
    if wrong is not None:
        raise ValueError(
            f"the class name {wrong[:60]!r} looks like a list in a text; pass lists of names, or list all class names "
            f"with {listing}"
        )
    for mark in SEPARATORS + _RARE_SEPARATORS:
        joined = None if mark == separator else _joined_name(texts, mark)
        if joined is None:
            continue
        advice = f"{splitting.format(mark=mark)}, or list all with {listing}"
        message = f"the class name {joined[:60]!r} looks like several names; {advice}"
        if mark in SEPARATORS:
            raise ValueError(message)
        warn(message)
    alike: dict[str, list[str]] = {}
    for name in texts:
        alike.setdefault(normal(name), []).append(name)
    groups = [" and ".join(map(repr, sorted(group)[:5])) for group in alike.values() if len(group) > 1]
    if groups:
        warn(
            f"class names differ only by case, blanks, quotes or invisible characters: {listed(groups)}; write them "
            f"alike if they are one class, or list all with {listing} if not"
        )
    missing = next((name for name in texts if name in MISSING_TEXTS), None)
    if missing is not None:
        warn(
            f"the class name {missing!r} is what programs write for a missing value; drop these rows, or list all with "
            f"{listing} if it is a class"
        )


def _joined_name(names: Sequence[str], mark: str) -> str | None:
    """Return the first name whose parts, split at the mark, are all found as names or in other names."""
    joined = {name: {part.strip() for part in name.split(mark)} for name in names if mark in name}
    single = {name.strip() for name in names if name not in joined}
    times = Counter(part for parts in joined.values() for part in parts)
    for name, parts in joined.items():
        if len(parts) > 1 and all(part and (part in single or times[part] > 1) for part in parts):
            return name
    return None


def normal(name: str) -> str:
    """Return a text without differences of case, blanks, quotes, invisible characters and Unicode forms.

    Examples
    --------
    >>> normal(" Cat "), normal('"great  Owl"')
    ('cat', 'great owl')
    """
    visible = "".join(one for one in name if one.isspace() or unicodedata.category(one) not in ("Cc", "Cf"))
    return " ".join(unicodedata.normalize("NFKC", visible).casefold().replace('"', " ").split())
