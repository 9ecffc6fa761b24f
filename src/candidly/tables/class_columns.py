"""Columns of class names as numbers and back, in Arrow, so that no row becomes a Python object."""

import math
import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from candidly.candidates import Candidates
from candidly.candidates.labels import LIST_TEXT, check_spelling, class_names
from candidly.candidates.values import MISSING_TEXTS, integer_text
from candidly.checks import arguments
from candidly.messages import option
from candidly.tables.columns import decoded

_NO_CANDIDATES = "has no candidates; drop it or list at least one class for it"
_CLASSES = option("classes")


@dataclass(frozen=True)
class Block:
    """A block of a table's rows: the file and the number of the block's first row, for messages."""

    file: str
    start: int

    def name_row(self, number: Any) -> str:
        """Return the file and number of a row, which is counted from the start of the block."""
        return f"{self.file}: row {self.start + int(number)}"


class Names:
    """Class names, numbered in the order in which they are found or in which the user lists them.

    Parameters
    ----------
    separator
        The text between the names in a cell.
    classes
        All class names; by default those that are found.
    """

    def __init__(self, separator: str, classes: Sequence[str] | None = None) -> None:
        self.separator = arguments.text("separator", separator, "the text between the names, e.g. '|'")
        self.fixed = classes is not None
        given = () if classes is None else arguments.items("classes", classes, "a list of names")
        self.codes: dict[str, int] = {name: j for j, name in enumerate(_stripped(given))}

    def number_sets(self, values: Any, column: str, block: Block) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the number of candidates of each row, and the codes of all candidates in order."""
        import pyarrow.compute as pc

        values = decoded(values)
        joined = is_text(values.type)
        empty = missing_mask(values)
        if joined:
            empty |= pc.equal(pc.utf8_trim_whitespace(values.fill_null("")), "").to_numpy(zero_copy_only=False)
        if empty.any():
            raise ValueError(f"{block.name_row(np.argmax(empty))} {_NO_CANDIDATES}")
        if joined:
            self._refuse_lists(values, block)
            values = pc.split_pattern(values, self.separator)
        sizes = np.ones(len(values), np.int64)
        if _is_list(values.type):
            sizes = pc.list_value_length(values).to_numpy().astype(np.int64)
            values = decoded(values.flatten())
        if (sizes == 0).any():
            raise ValueError(f"{block.name_row(np.argmax(sizes == 0))} {_NO_CANDIDATES}")
        rows = np.repeat(np.arange(len(sizes)), sizes)
        missing = missing_mask(values)
        if missing.any():
            row = block.name_row(rows[np.argmax(missing)])
            raise ValueError(f"{row} has a missing name; drop it or name a class")
        return sizes, self._number(values, rows, column, block, "name")

    def number_labels(self, values: Any, column: str, block: Block) -> NDArray[np.int32]:
        """Return the code of each label."""
        values = decoded(values)
        missing = missing_mask(values)
        if missing.any():
            raise ValueError(f"{block.name_row(np.argmax(missing))} {_no_label(column)}")
        return self._number(values, np.arange(len(values)), column, block, "label")

    def sort(self) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """Return the class names and, for each code, the position of its name.

        Names that the user listed keep their order. Others are sorted, by value if all of them are integers.
        """
        if self.fixed:
            return tuple(self.codes), np.arange(len(self.codes))
        integers = [integer_text(name) for name in self.codes]
        keys: list[Any] = [int(number) for number in integers if number is not None]
        if len(keys) < len(self.codes):
            keys = list(self.codes)
        names = sorted(set(keys))
        position = {name: j for j, name in enumerate(names)}
        return tuple(str(name) for name in names), np.array([position[key] for key in keys], np.int64)

    def _refuse_lists(self, values: Any, block: Block) -> None:
        import pyarrow.compute as pc

        wrong = pc.match_substring_regex(values, f"^{LIST_TEXT}$").to_numpy(zero_copy_only=False)
        if wrong.any() and not self.fixed:
            row = int(np.argmax(wrong))
            raise ValueError(f"{block.name_row(row)} has {self._list_in_text(values[row].as_py())}")

    def _list_in_text(self, text: str) -> str:
        return (
            f"{text[:60]!r}, which looks like a list in a text; write {self.separator!r} between the names and no "
            f"brackets, or write lists to a Parquet file, or list all class names with {_CLASSES} if it is one"
        )

    def _number(self, values: Any, rows: NDArray[np.int64], column: str, block: Block, what: str) -> NDArray[np.int32]:
        """Return the codes of names, of which the k-th is in row `rows[k]` of the block."""
        encoded = _texts_or_integers(values, column, block, what).dictionary_encode()
        indices = encoded.indices.to_numpy()
        codes = []
        for k, value in enumerate(encoded.dictionary.to_pylist()):
            name = str(value).strip()
            wrong = None if name in self.codes else self._refusal(name, column, what)
            if wrong:
                raise ValueError(f"{block.name_row(rows[np.argmax(indices == k)])} {wrong}")
            codes.append(self._code(name))
        return np.array(codes, np.int32)[indices]

    def _code(self, name: str) -> int:
        if self.fixed and name not in self.codes:
            integer = integer_text(name)
            assert integer is not None, "an unknown name was refused"
            return self.codes[integer]
        return self.codes.setdefault(name, len(self.codes))

    def _refusal(self, name: str, column: str, what: str) -> str | None:
        """Return what is wrong with a new name, if anything is."""
        if what == "label" and (name == "" or name in MISSING_TEXTS):
            listing = f"; if {name!r} is a class, list all of them with {_CLASSES}" if name else ""
            return _no_label(column) + listing
        if name == "":
            return "has an empty name; remove the stray separator or name a class"
        if name in MISSING_TEXTS:
            return f"has the missing name {name!r}; name a class, or list all of them with {_CLASSES} if it is one"
        if name.endswith("\0"):  # which NumPy drops at the end of text
            return f"has the {what} {name[:60]!r}, which ends in a null character; rename it"
        if "\n" in name and not self.fixed:
            return f"has the {what} {name[:60]!r}, with a line break; is a quote not closed?"
        if self.fixed and integer_text(name) not in self.codes:
            return f"has the {what} {name!r}, which is not in classes; add it there or correct the row"
        return f"has {self._list_in_text(name)}" if re.fullmatch(LIST_TEXT, name) else None


def _stripped(classes: Iterable[Any]) -> list[str]:
    """Return class names as the user lists them, as text without blanks around them."""
    if isinstance(classes, Set):
        return list(map(str, class_names(classes)))  # which refuses it, because it has no order
    return list(map(str, class_names([str(name).strip() for name in classes])))


def missing_mask(values: Any) -> NDArray[np.bool_]:
    """Return where an Arrow array is null or NaN: the vector form of `candidly.candidates.values.is_missing`."""
    import pyarrow as pa

    if pa.types.is_float16(values.type):  # whose NaNs pyarrow finds since version 21 only
        values = values.cast(pa.float32())
    return np.array(values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False))


def is_text(kind: Any) -> bool:
    """Return whether values of this Arrow type are texts."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _no_label(column: str) -> str:
    return f"has no label in column {column!r}; fill it, or leave the column out with read_table(..., label=None)"


def _texts_or_integers(values: Any, column: str, block: Block, what: str) -> Any:
    """Return class names that are texts or integers; whole floating-point numbers become integers.

    This is the vector form of `candidly.candidates.values.as_integers`.
    """
    import pyarrow as pa

    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        if (np.abs(numbers) < 2.0**53).all() and (numbers == np.floor(numbers)).all():
            return pa.array(numbers.astype(np.int64))
    if not (is_text(values.type) or pa.types.is_integer(values.type)):
        raise ValueError(
            f"{block.file}: column {column!r} has class names of type {values.type}; pass text or integers"
            f"{', or lists of them' if what == 'name' else ''}"
        )
    return values


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return any(is_list(kind) for is_list in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def are_too_many(classes: int, rows: int) -> bool:
    """Return whether the number of class names suggests that they are ids or free text.

    Examples
    --------
    >>> are_too_many(1001, 2000), are_too_many(1001, 100_000)
    (True, False)
    """
    return classes > max(1000, min(rows / 2, 100 * math.sqrt(rows)))


def check_number(file: str, classes: int, rows: int, question: str) -> None:
    """Check the number of classes before a matrix of them is made; the message asks the question."""
    if are_too_many(classes, rows):
        raise ValueError(f"{file}: {classes} classes for {rows} rows; {question}? If so, list all with {_CLASSES}")


def check_found(file: str, classes: Sequence[str], rows: int, column: str, separator: str) -> None:
    """Raise ValueError if the class names that were found in a number of rows look like something else."""
    check_number(file, len(classes), rows, f"is {column!r} the right column, and {separator!r} the separator")
    try:
        splitting = f"name the separator {{mark!r}} with {option('separator')}"
        check_spelling(classes, separator, splitting=splitting, listing=_CLASSES)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


class Classes(NamedTuple):
    """What the columns of class names hold: candidate sets (n, C), C class names, and the numbers of true labels."""

    matrix: NDArray[np.bool_]
    names: tuple[str, ...]
    labels: NDArray[np.int64] | None


def read_classes(
    table: Any, file: str, names: Names, candidates: str, labels: str | None = None, first: int = 0
) -> Classes:
    """Read the columns of candidates and of true labels; labels that are not candidates anywhere are classes too.

    Parameters
    ----------
    table : pyarrow.Table
    file : str
        The name of the table in messages.
    names : Names
        Knows the separator and, if they are fixed, the classes.
    candidates : str
        The column of candidates: text with a separator, or lists.
    labels : str, optional
        The column of true labels, in which none may be missing.
    first : int
        The number of the first row, for messages.
    """
    sets = []
    start = 0
    for chunk in table.column(candidates).chunks:
        sets.append(names.number_sets(chunk, candidates, Block(file, first + start)))
        start += len(chunk)
    rows = start
    codes = []
    start = 0
    for chunk in [] if labels is None else table.column(labels).chunks:
        codes.append(names.number_labels(chunk, str(labels), Block(file, first + start)))
        start += len(chunk)
    classes, position = names.sort()
    if len(classes) < 2:
        raise ValueError(f"{file} has the one class {classes[0]!r}; at least two are needed, list all with {_CLASSES}")
    if not names.fixed:
        check_found(file, classes, rows, candidates, names.separator)
    matrix = np.zeros((rows, len(classes)), dtype=bool)
    start = 0
    for sizes, found in sets:
        matrix[np.repeat(np.arange(start, start + len(sizes)), sizes), position[found]] = True
        start += len(sizes)
    return Classes(matrix, classes, position[np.concatenate(codes)] if codes else None)


def read_sets(table: Any, file: str, column: str, names: Names, first: int = 0) -> Candidates:
    """Read a column of candidates, as `read_classes` does.

    Examples
    --------
    >>> import pyarrow as pa
    >>> read_sets(pa.table({"tags": ["dog|cat", "dog"]}), "t.csv", "tags", Names("|")).decode()
    [('cat', 'dog'), ('dog',)]
    """
    found = read_classes(table, file, names, column, first=first)
    return Candidates(found.matrix, found.names)


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
    """Return the scores of each row's classes as a column of lists; `with_names`, for text files, as ``name=score``.

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
    columns = np.nonzero(matrix)[1].tolist()
    texts = [f"{names[j]}={score:.4g}" for j, score in zip(columns, chosen, strict=True)]
    return _as_lists(matrix, pa.array(texts, pa.string()))


def _as_lists(matrix: NDArray[np.bool_], values: Any) -> Any:
    import pyarrow as pa

    offsets = np.concatenate([[0], matrix.sum(1).cumsum()])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
