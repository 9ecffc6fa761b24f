"""Class names in the columns of a table: Arrow splits, counts and numbers them, so that no row is a Python object."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates import Candidates
from candidly.candidates.labels import class_names

_MISSING = frozenset(("nan", "NaN", "None", "null", "NA", "N/A", "NULL", "<NA>"))
# An integer as it is written, also after it went through a column of floating-point numbers.
_INTEGER = re.compile(r"(0|-?[1-9][0-9]{0,19})(\.0+)?")
_LIST = r"\s*(\[[^\[\]]*\]|\{[^{}]*\})\s*"
_NO_CANDIDATES = "has no candidates; drop it or list at least one class for it"


@dataclass(frozen=True)
class Place:
    """A block of rows, for messages."""

    path: Path
    start: int

    def row(self, number: Any) -> str:
        """Name a row of the block."""
        return f"{self.path}: row {self.start + int(number)}"


class Names:
    """Class names, numbered in the order in which they are found, or in the user's.

    Parameters
    ----------
    separator
        What stands between the names in a text.
    classes
        All of the names; by default those that are found.
    """

    def __init__(self, separator: str, classes: Sequence[str] | None = None) -> None:
        if separator == "":
            raise ValueError("separator is empty; pass the text between the names, e.g. '|'")
        self.separator = separator
        self.fixed = classes is not None
        # A single text is refused as such, and not taken apart.
        given = classes if classes is None or isinstance(classes, str) else [str(name).strip() for name in classes]
        self.codes: dict[str, int] = {str(name): j for j, name in enumerate(class_names(given or ()))}

    def number_sets(self, values: Any, column: str, place: Place) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the number of candidates of each row, and the codes of all of them."""
        import pyarrow.compute as pc

        values = _decoded(values)
        empty = is_missing(values)
        joined = is_text(values.type)
        if joined:
            empty |= pc.equal(pc.utf8_trim_whitespace(values.fill_null("")), "").to_numpy(zero_copy_only=False)
        if empty.any():
            raise ValueError(f"{place.row(np.argmax(empty))} {_NO_CANDIDATES}")
        if joined:
            self._refuse_lists(values, place)
            values = pc.split_pattern(values, self.separator)
        sizes = np.ones(len(values), np.int64)
        if _is_list(values.type):
            sizes, values = pc.list_value_length(values).to_numpy().astype(np.int64), _decoded(values.flatten())
        if (sizes == 0).any():
            raise ValueError(f"{place.row(np.argmax(sizes == 0))} {_NO_CANDIDATES}")
        rows = np.repeat(np.arange(len(sizes)), sizes)
        missing = is_missing(values)
        if missing.any():
            raise ValueError(f"{place.row(rows[np.argmax(missing)])} has a missing name; drop it or name a class")
        return sizes, self._number(values, rows, column, place, "name")

    def number_labels(self, values: Any, column: str, place: Place) -> NDArray[np.int32]:
        """Return the code of each label."""
        values = _decoded(values)
        missing = is_missing(values)
        if missing.any():
            raise ValueError(f"{place.row(np.argmax(missing))} {_no_label(column)}")
        return self._number(values, np.arange(len(values)), column, place, "label")

    def sort(self) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """Return the names, sorted unless the user gave them, and the place among them of each code."""
        if self.fixed:
            return tuple(self.codes), np.arange(len(self.codes))
        integers = [_INTEGER.fullmatch(name) for name in self.codes]
        keys: list[Any] = [int(found[1]) for found in integers if found]
        if len(keys) < len(self.codes):
            keys = list(self.codes)
        names = sorted(set(keys))
        column = {name: j for j, name in enumerate(names)}
        return tuple(str(name) for name in names), np.array([column[key] for key in keys], np.int64)

    def _refuse_lists(self, values: Any, place: Place) -> None:
        import pyarrow.compute as pc

        wrong = pc.match_substring_regex(values, f"^{_LIST}$").to_numpy(zero_copy_only=False)
        if wrong.any() and not self.fixed:
            row = int(np.argmax(wrong))
            raise ValueError(f"{place.row(row)} has {self._list(values[row].as_py())}")

    def _list(self, text: str) -> str:
        return (
            f"{text[:60]!r}, which looks like a list in a text; write {self.separator!r} between the names and no "
            "brackets, or write lists to a Parquet file, or list all names with classes= if it is one"
        )

    def _number(self, values: Any, rows: NDArray[np.int64], column: str, place: Place, what: str) -> NDArray[np.int32]:
        """Return the codes of names, of which the k-th stands in row `rows[k]` of the block."""
        encoded = _named(values, column, place, what).dictionary_encode()
        indices, codes = encoded.indices.to_numpy(), []
        for k, value in enumerate(encoded.dictionary.to_pylist()):
            name = str(value).strip()
            wrong = None if name in self.codes else self._refusal(name, column, what)
            if wrong:
                raise ValueError(f"{place.row(rows[np.argmax(indices == k)])} {wrong}")
            codes.append(self._code(name))
        return np.array(codes, np.int32)[indices]

    def _code(self, name: str) -> int:
        if self.fixed and name not in self.codes:
            integer = _INTEGER.fullmatch(name)
            assert integer is not None, "an unknown name was refused"
            return self.codes[integer[1]]
        return self.codes.setdefault(name, len(self.codes))

    def _refusal(self, name: str, column: str, what: str) -> str | None:
        """Say what is wrong with a new name."""
        if what == "label" and (name == "" or name in _MISSING):
            return _no_label(column) + (f"; if {name!r} is a class, list all of them with classes=" if name else "")
        if name == "":
            return "has an empty name; remove the stray separator or name a class"
        if name in _MISSING:
            return f"has the missing name {name!r}; name a class, or list all of them with classes= if it is one"
        integer = _INTEGER.fullmatch(name)
        if self.fixed and not (integer and integer[1] in self.codes):
            return f"has the {what} {name!r}, which is not in classes; add it there or correct the row"
        return f"has {self._list(name)}" if re.fullmatch(_LIST, name) else None


def is_missing(values: Any) -> NDArray[np.bool_]:
    """Mark null and NaN."""
    return np.array(values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False))


def is_text(kind: Any) -> bool:
    """Whether values of this type are texts."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _no_label(column: str) -> str:
    return f"has no label in column {column!r}; fill it, or leave the column out with read_table(..., label=None)"


def _named(values: Any, column: str, place: Place, what: str) -> Any:
    """Return names that are texts or integers."""
    import pyarrow as pa

    if pa.types.is_floating(values.type):
        # Integers become floating-point numbers in a column where one was missing once.
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        if (np.abs(numbers) < 2.0**53).all() and (numbers == np.floor(numbers)).all():
            return pa.array(numbers.astype(np.int64))
    if not (is_text(values.type) or pa.types.is_integer(values.type)):
        raise ValueError(
            f"{place.path}: column {column!r} has class names of type {values.type}; pass text or integers"
            f"{', or lists of them' if what == 'name' else ''}"
        )
    return values


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return any(is_list(kind) for is_list in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _decoded(values: Any) -> Any:
    """Return values without a dictionary, and in a layout that every function of Arrow takes."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        return _decoded(values.dictionary_decode())
    if str(kind).startswith(("list_view", "large_list_view")):
        return values.cast(pa.large_list(kind.value_type))
    return values.cast(pa.large_string()) if str(kind) == "string_view" else values


def are_too_many(classes: int, rows: int) -> bool:
    """Whether so many names in so many rows look like ids or free text rather than classes.

    Examples
    --------
    >>> are_too_many(1001, 2000), are_too_many(1001, 100_000)
    (True, False)
    """
    return classes > max(1000, min(rows / 2, 100 * math.sqrt(rows)))


def read_sets(column: Any, file: str, name: str, names: Names) -> Candidates:
    """Read a column of candidates: text with a separator, or lists.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
    file, name : str
        The table and the column, for messages.
    names : Names
        Knows the separator and, if they are fixed, the classes.

    Examples
    --------
    >>> import pyarrow as pa
    >>> read_sets(pa.chunked_array([["dog|cat", "dog"]]), "t.csv", "tags", Names("|")).decode()
    [('cat', 'dog'), ('dog',)]
    """
    parts, start = [], 0
    for chunk in column.chunks:
        parts.append(names.number_sets(chunk, name, Place(Path(file), start)))
        start += len(chunk)
    classes, place = names.sort()
    if len(classes) < 2:
        raise ValueError(f"{file}: there is the one class {classes[0]!r}; two are needed, list all with --classes")
    if not names.fixed:
        check_number(file, len(classes), start, f"is {name!r} the right column, and {names.separator!r} the separator")
    matrix = np.zeros((start, len(classes)), dtype=bool)
    sizes, codes = (np.concatenate(part) for part in zip(*parts, strict=True))
    matrix[np.repeat(np.arange(start), sizes), place[codes]] = True
    return Candidates(matrix, classes)


def check_number(file: str, classes: int, rows: int, question: str) -> None:
    """Check the number of classes before a matrix of them is made; the question is for whoever has too many."""
    if are_too_many(classes, rows):
        raise ValueError(f"{file}: {classes} classes for {rows} rows; {question}? If so, list all with --classes")


def set_column(matrix: NDArray[np.bool_], names: Sequence[str]) -> Any:
    """Return the names of each row's classes as a column of lists.

    Examples
    --------
    >>> set_column(np.array([[True, True], [False, False]]), ["cat", "dog"]).to_pylist()
    [['cat', 'dog'], []]
    """
    import pyarrow as pa

    return _as_lists(matrix, pa.array(names, pa.string()).take(pa.array(np.nonzero(matrix)[1])))


def score_column(
    matrix: NDArray[np.bool_], scores: NDArray[np.floating[Any]], names: Sequence[str], *, with_names: bool
) -> Any:
    """Return the scores of each row's classes as a column of lists, for text as ``name=score``.

    Examples
    --------
    >>> matrix, scores = np.array([[True, True], [False, True]]), np.array([[0.5, 0.25], [0.1, 0.75]])
    >>> score_column(matrix, scores, ["cat", "dog"], with_names=False).to_pylist()
    [[0.5, 0.25], [0.75]]
    >>> score_column(matrix, scores, ["cat", "dog"], with_names=True).to_pylist()
    [['cat=0.5', 'dog=0.25'], ['dog=0.75']]
    """
    import pyarrow as pa

    chosen = scores[matrix]
    if not with_names:
        return _as_lists(matrix, pa.array(chosen, pa.float32()))
    texts = [f"{names[j]}={score:.4g}" for j, score in zip(np.nonzero(matrix)[1].tolist(), chosen, strict=True)]
    return _as_lists(matrix, pa.array(texts, pa.string()))


def _as_lists(matrix: NDArray[np.bool_], values: Any) -> Any:
    import pyarrow as pa

    offsets = np.concatenate([[0], matrix.sum(1).cumsum()])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
