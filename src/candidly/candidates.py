"""Candidate sets: a boolean matrix (n, C) with class names.

``S[i, j]`` says that class j is a candidate for row i. Candidate sets, cleaned sets and prediction sets are all of this
type. Whatever a user holds (a matrix, lists of names, strings such as ``cat|dog``, plain labels) is converted by
`encode` and checked once, here. Sets that experiments rely on are frozen with `Candidates.save`.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Candidates", "check", "encode", "from_annotations"]  # noqa: F822

Folder = str | os.PathLike[str]


def check(matrix: NDArray[np.bool_]) -> None:
    """Check that a boolean matrix is a usable set of candidate sets.

    Parameters
    ----------
    matrix : ndarray of bool, shape (n, C)
        One row per example, one column per class.

    Raises
    ------
    ValueError
        If the matrix is not two-dimensional or not boolean, has no rows or fewer than two classes, or has an empty row.

    Warns
    -----
    UserWarning
        If all rows (more than one) have the same candidates: nothing can be learned from them.

    Examples
    --------
    >>> check(np.array([[True, False], [True, True]]))
    >>> check(np.array([[True, False], [False, False]]))
    Traceback (most recent call last):
        ...
    ValueError: row 1 has no candidates; drop it or list at least one class for it
    """
    matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(f"candidates have shape {matrix.shape}; pass a two-dimensional matrix (rows, classes)")
    if matrix.dtype != np.bool_:
        raise ValueError(f"candidates have dtype {matrix.dtype}; pass a boolean matrix, or convert with encode(...)")
    if matrix.shape[0] == 0:
        raise ValueError("candidates have no rows; pass at least one")
    if matrix.shape[1] < 2:
        raise ValueError(f"the number of classes is {matrix.shape[1]}; at least two are needed, list all with classes=")
    empty = np.flatnonzero(~matrix.any(axis=1))
    if empty.size:
        others = f" (and {empty.size - 1} more rows)" if empty.size > 1 else ""
        raise ValueError(f"row {empty[0]} has no candidates{others}; drop it or list at least one class for it")
    if len(matrix) > 1 and np.array_equal(matrix.all(axis=0), matrix.any(axis=0)):
        warnings.warn(
            f"all {len(matrix)} rows have the same candidates, so nothing can be learned from them; "
            "add rows whose candidate sets differ, or check how the sets were made",
            stacklevel=2,
        )


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidate sets with class names, checked at construction.

    Parameters
    ----------
    matrix : ndarray of bool, shape (n, C)
        ``matrix[i, j]`` says that class j is a candidate for row i. Kept as a read-only copy.
    classes : tuple
        The C class names, in column order.

    Examples
    --------
    >>> S = Candidates(np.array([[True, False], [True, True]]), ("cat", "dog"))
    >>> S.decode()
    [('cat',), ('cat', 'dog')]
    >>> S.mean_size
    1.5
    """

    matrix: NDArray[np.bool_]
    classes: tuple[Hashable, ...]

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix)
        check(matrix)
        matrix.setflags(write=False)
        classes = class_names(self.classes)
        if len(classes) != matrix.shape[1]:
            raise ValueError(f"{len(classes)} class names for {matrix.shape[1]} columns; pass one name per column")
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "classes", classes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Candidates):
            return NotImplemented
        return self.classes == other.classes and np.array_equal(self.matrix, other.matrix)

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of candidates of each row, shape (n,)."""
        sizes: NDArray[np.int64] = self.matrix.sum(axis=1, dtype=np.int64)
        return sizes

    @property
    def mean_size(self) -> float:
        """Mean number of candidates."""
        return float(self.sizes.mean())

    @property
    def singletons(self) -> NDArray[np.bool_]:
        """Rows with a single candidate, shape (n,)."""
        return np.equal(self.sizes, 1)

    def co_occurrence(self) -> NDArray[np.int64]:
        """Count, for each pair of classes, the rows that hold both; the diagonal counts the rows of each class.

        Examples
        --------
        >>> encode([["a", "b"], ["b"]]).co_occurrence().tolist()
        [[1, 1], [1, 2]]
        """
        # Floating point takes the fast matrix product and is exact below 2**53.
        counts = self.matrix.astype(np.float64)
        return (counts.T @ counts).astype(np.int64)

    def decode(self) -> list[tuple[Hashable, ...]]:
        """Return each row's candidates by name, in class order.

        Examples
        --------
        >>> encode(["dog|cat", "dog"], separator="|").decode()
        [('cat', 'dog'), ('dog',)]
        """
        return [tuple(self.classes[j] for j in np.flatnonzero(row)) for row in self.matrix]

    @property
    def digest(self) -> str:
        """Hash of sets and class names, 16 hexadecimal digits, however they are stored; names as in `save`."""
        return _digest(len(self), self.classes, np.packbits(self.matrix))

    def save(self, folder: Folder, facts: Mapping[str, Any] | None = None, *, stem: str = "candidates") -> str:
        """Freeze the candidates in a folder, one bit per row and class; class names must be strings or integers.

        Parameters
        ----------
        folder : path
            Created if missing; what was saved there under the same stem is replaced.
        facts : mapping, optional
            How the sets were made, in JSON types, for whoever reads the JSON file.
        stem : str, default "candidates"
            First part of the two file names.

        Returns
        -------
        str
            The digest.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     digest = encode([["cat", "dog"], ["dog"]]).save(folder)
        ...     Candidates.load(folder).digest == digest
        True
        """
        import torch

        from candidly import store

        bits = np.packbits(self.matrix)
        digest = _digest(len(self), self.classes, bits)
        saved = {"rows": len(self), "classes": list(self.classes), "digest": digest, "facts": dict(facts or {})}
        store.write(folder, {"bits": torch.from_numpy(bits)}, saved, stem=stem)
        return digest

    @classmethod
    def load(cls, folder: Folder, *, stem: str = "candidates") -> "Candidates":
        """Return the candidates that `save` froze.

        Raises
        ------
        FileNotFoundError
            If there are none.
        ValueError
            If the files hold something else, or the sets or class names were changed.
        """
        from candidly import store

        tensors, saved = store.read(folder, stem=stem)
        rows, classes, bits = saved.get("rows"), saved.get("classes"), tensors.get("bits")
        if not (isinstance(rows, int) and rows > 0 and isinstance(classes, list) and bits is not None):
            raise ValueError(
                f"{folder} holds no candidates under {stem!r}; pass the folder and stem given to save(...)"
            )
        packed: NDArray[Any] = bits.numpy()
        intact = packed.dtype == np.uint8 and packed.size == -(-rows * len(classes) // 8)
        if not intact or _digest(rows, tuple(classes), packed) != saved.get("digest"):
            raise ValueError(f"sets or class names in {folder} were changed; restore a copy or save them again")
        matrix = np.unpackbits(packed, count=rows * len(classes)).view(np.bool_).reshape(rows, -1)
        return cls(matrix, tuple(classes))


def _digest(rows: int, classes: tuple[Hashable, ...], bits: NDArray[np.uint8]) -> str:
    for name in classes:
        if type(name) not in (str, int):
            raise ValueError(f"class {name!r} is a {type(name).__name__}; save strings or integers as class names")
    head = json.dumps([rows, classes]).encode()
    return hashlib.sha256(head + bits.tobytes()).hexdigest()[:16]


def encode(y: Any, classes: Iterable[Hashable] | None = None, separator: str | None = None) -> Candidates:
    """Convert labels of any supported form to `Candidates`.

    Parameters
    ----------
    y : Candidates, array, sparse matrix, data frame or iterable of rows
        A boolean or 0-1 matrix (n, C); or one entry per row: a list, tuple, set or array of class names, a string, or
        a plain label, which is its own single candidate. Arrays of numbers with two axes are matrices, lists are names.
        Nested lists of nothing but 0 and 1 could be either and are refused.
    classes : iterable, optional
        The class names, in column order. By default the sorted names found in `y`; for a matrix its column names if it
        has any, else 0 … C−1.
    separator : str, optional
        Split each row's string here, e.g. ``"|"`` for ``"cat|dog"``. Without it strings are never split.

    Returns
    -------
    Candidates

    Raises
    ------
    ValueError
        For a row without candidates, an unknown, empty or missing name (with its row), or an ambiguous or unusable `y`.

    Examples
    --------
    >>> encode([{"cat", "dog"}, {"cat"}]).matrix.tolist()
    [[True, True], [True, False]]
    >>> encode(["cat | dog", "cat"], classes=["dog", "cat"], separator="|").decode()
    [('dog', 'cat'), ('cat',)]
    >>> encode(np.array([[0, 1, 1], [1, 0, 0]])).decode()
    [(1, 2), (0,)]
    >>> encode([3, 7, 3]).decode()
    [(3,), (7,), (3,)]
    """
    if separator == "":
        raise ValueError("separator is empty; pass the text between the names, e.g. '|', or None")
    names = None if classes is None else class_names(classes)
    if isinstance(y, Candidates):
        if names is None or names == y.classes:
            return y
        y = y.decode()
    parsed = _parse(y)
    if isinstance(parsed, np.ndarray):
        if separator is not None:
            raise ValueError("separator= splits rows of strings, but y is a matrix; leave it out")
        columns = tuple(getattr(y, "columns", range(parsed.shape[-1])))
        return Candidates(_as_boolean(parsed), columns if names is None else names)
    rows = [_row_names(i, row, separator) for i, row in enumerate(parsed)]
    if names is None:
        names = _sorted_names(rows)
    column = {name: j for j, name in enumerate(names)}
    matrix = np.zeros((len(rows), len(names)), dtype=bool)
    for i, row in enumerate(rows):
        for name in row:
            if name not in column:
                raise ValueError(f"row {i} names {name!r}, which is not in classes; add it there or correct the row")
            matrix[i, column[name]] = True
    return Candidates(matrix, names)


def _parse(y: Any) -> NDArray[Any] | list[Any]:
    """Return a matrix of numbers, or a list with one entry per row."""
    if hasattr(y, "tocsr"):
        y = y.toarray()
    if hasattr(y, "__array__"):
        array = np.asarray(y)
        if array.ndim == 0:
            raise ValueError(f"y is the single value {y!r}; pass one entry per row")
        numbers = array.dtype.kind in "biuf" or (array.dtype == object and all(_is_number(v) for v in array.flat))
        return array if numbers and array.ndim > 1 else list(array)
    if isinstance(y, (str, bytes, Mapping)) or not isinstance(y, Iterable):
        raise ValueError(f"y is a {type(y).__name__}; pass a matrix or one entry per row")
    rows = list(y)
    if _is_grid(rows):
        cells = [_plain(value) for row in rows for value in row]
        if all(isinstance(value, bool) for value in cells):
            return np.array(cells).reshape(len(rows), -1)
        if all(_is_number(value) and value in (0, 1) for value in cells):
            raise ValueError(
                "y is a nested list of 0 and 1, which could be a matrix or lists of class names; "
                "pass numpy.array(y) for a matrix, or sets for class names"
            )
    return rows


def _is_grid(rows: list[Any]) -> bool:
    """Whether all rows are sequences of one length of at least two."""
    if not all(isinstance(row, (list, tuple)) or getattr(row, "ndim", 0) == 1 for row in rows):
        return False
    widths = {len(row) for row in rows}
    return len(widths) == 1 and widths.pop() >= 2


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.bool_, np.number))


def _plain(value: Any) -> Any:
    """Turn a scalar of an array library into a Python one."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _as_boolean(array: NDArray[Any]) -> NDArray[np.bool_]:
    if array.dtype == np.bool_:
        return array
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        raise ValueError(
            f"row {at[0]} holds {array[at]} in what is read as a 0-1 matrix; "
            "pass 0 and 1 only, or lists (not an array) of class names"
        )
    return array.astype(bool)


def _row_names(i: int, row: Any, separator: str | None) -> list[Hashable]:
    """Return the class names of one row."""
    row, place = _plain(row), f"row {i}"
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
    value = _plain(value)
    if value is None or (isinstance(value, float) and value != value):
        raise ValueError(f"{place} holds a missing name ({value}); drop it or name a class")
    if isinstance(value, str) and not value.strip():
        raise ValueError(f"{place} holds an empty name ({value!r}); drop it or name a class")
    if not isinstance(value, Hashable):
        raise ValueError(f"{place} holds {value!r}, which is no class name; pass strings or numbers")
    return value


def class_names(classes: Iterable[Any]) -> tuple[Hashable, ...]:
    """Return a class list as names that can be compared and stored; no name may stand in it twice."""
    if isinstance(classes, (str, bytes)):
        raise ValueError(f"classes is the single text {classes!r}; pass a list of names")
    names = tuple(_name(value, f"classes[{j}]") for j, value in enumerate(classes))
    if len(set(names)) < len(names):
        twice = next(name for j, name in enumerate(names) if name in names[:j])
        raise ValueError(f"class {twice!r} is listed twice; list every class once")
    return names


def _sorted_names(rows: list[list[Hashable]]) -> tuple[Hashable, ...]:
    found: set[Any] = {name for row in rows for name in row}
    try:
        return tuple(sorted(found))
    except TypeError:
        kinds = ", ".join(sorted({type(name).__name__ for name in found}))
        raise ValueError(f"class names of types {kinds} cannot be sorted; fix their order with classes=") from None


def __getattr__(name: str) -> Any:
    if name == "from_annotations":  # which needs this module
        from candidly.annotations import from_annotations

        return from_annotations
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
