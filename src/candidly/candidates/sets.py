"""Candidate sets: a boolean matrix (n, C) with class names.

``S[i, j]`` says that class j is a candidate for row i. Candidate sets, cleaned sets and prediction sets all have this
type. `encode` converts other forms (lists of names, strings such as ``cat|dog``, plain labels) and checks them once.
`Candidates.save` writes sets to disk, for experiments that must use the same ones again.
"""

import hashlib
import json
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates import labels
from candidly.candidates.labels import check_spelling, class_names
from candidly.candidates.values import unmasked
from candidly.checks import arguments
from candidly.messages import warn

__all__ = ["Candidates", "check", "encode"]

Folder = str | os.PathLike[str]


def check(matrix: NDArray[np.bool_]) -> None:
    """Check that a matrix holds valid candidate sets.

    Parameters
    ----------
    matrix : ndarray of bool, shape (n, C)
        One row per example, one column per class.

    Raises
    ------
    ValueError
        If the matrix is not two-dimensional or not boolean, has no rows or fewer than two classes, or has an empty row.

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


def warn_of_sameness(matrix: NDArray[np.bool_]) -> None:
    """Warn if all of several rows have the same candidates: nothing can be learned from them."""
    if len(matrix) > 1 and np.array_equal(matrix.all(axis=0), matrix.any(axis=0)):
        warn(
            f"all {len(matrix)} rows have the same candidates, so nothing can be learned from them; "
            "add rows whose candidate sets differ, or check how the sets were made"
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
    index : sequence, optional
        Names of the n rows, such as the tasks of votes. `candidly.PartialLabelClassifier` compares them with the index
        of a data frame. They are not saved.

    Notes
    -----
    Candidates can be used like an array where scikit-learn splits data: they have a length and a shape, ``S[rows]``
    selects rows by numbers, a slice or a boolean array, and ``numpy.asarray(S)`` is the matrix. Iterating over them
    gives the names of each row's candidates.

    Examples
    --------
    >>> S = Candidates(np.array([[True, False], [True, True]]), ("cat", "dog"))
    >>> S.decode()
    [('cat',), ('cat', 'dog')]
    >>> S.mean_size
    1.5
    >>> S[[1]].decode()
    [('cat', 'dog')]
    """

    matrix: NDArray[np.bool_]
    classes: tuple[Hashable, ...]
    index: Sequence[Hashable] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            matrix = np.array(unmasked(self.matrix))
        except ValueError:
            raise ValueError("candidates have rows of different lengths; pass a matrix (rows, classes)") from None
        check(matrix)
        matrix.setflags(write=False)
        classes = class_names(self.classes)
        if len(classes) != matrix.shape[1]:
            raise ValueError(f"{len(classes)} class names for {matrix.shape[1]} columns; pass one name per column")
        if self.index is not None and not hasattr(self.index, "__len__"):
            raise ValueError(f"index is {arguments.shown(self.index)}; it must be a list with one name per row")
        if self.index is not None and len(self.index) != len(matrix):
            raise ValueError(f"index has {len(self.index)} names for {len(matrix)} rows; pass one name per row")
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "classes", classes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Candidates):
            return NotImplemented
        return self.classes == other.classes and np.array_equal(self.matrix, other.matrix)

    def __len__(self) -> int:
        return len(self.matrix)

    def __iter__(self) -> Iterator[tuple[Hashable, ...]]:
        return iter(self.decode())

    def __getitem__(self, rows: Any) -> "Candidates":
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            rows = rows[0]  # scikit-learn asks for `S[rows, ...]`
        chosen = np.arange(len(self))[rows]
        if chosen.ndim != 1:
            raise ValueError(f"candidates are selected by {rows!r}; pass a list of row numbers, a slice or booleans")
        index = None if self.index is None else [self.index[i] for i in chosen.tolist()]
        return Candidates(self.matrix[chosen], self.classes, index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        matrix = self.matrix if dtype is None else self.matrix.astype(dtype)
        return matrix.copy() if copy else matrix

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of classes."""
        rows, classes = self.matrix.shape
        return rows, classes

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
        """Return, for each pair of classes, the number of rows with both; the diagonal counts the rows of each class.

        Examples
        --------
        >>> encode([["a", "b"], ["b"]]).co_occurrence().tolist()
        [[1, 1], [1, 2]]
        """
        # The matrix product is fast in floating point, and exact below 2**53.
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
        """Hash of sets and class names, 16 hexadecimal digits. Class names must be strings or integers."""
        return _digest(len(self), self.classes, np.packbits(self.matrix))

    def save(self, folder: Folder, facts: Mapping[str, Any] | None = None, *, stem: str = "candidates") -> str:
        """Save the candidates in a folder, one bit per row and class; class names must be strings or integers.

        Parameters
        ----------
        folder : path
            Created if missing. Candidates saved there under the same stem are replaced.
        facts : mapping, optional
            How the sets were made, in JSON types, for readers of the JSON file.
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

        from candidly.store import states  # which imports torch

        arguments.instance("facts", facts, (Mapping, NoneType), "a mapping, such as {'seed': 0}, or None")
        bits = np.packbits(self.matrix)
        digest = _digest(len(self), self.classes, bits)
        saved = {"rows": len(self), "classes": list(self.classes), "digest": digest, "facts": dict(facts or {})}
        states.write(arguments.path("folder", folder), {"bits": torch.from_numpy(bits)}, saved, stem=stem)
        return digest

    @classmethod
    def load(cls, folder: Folder, *, stem: str = "candidates") -> "Candidates":
        """Return the candidates that `save` wrote.

        Raises
        ------
        FileNotFoundError
            If the folder has none.
        ValueError
            If the files hold something else, or the sets or class names were changed.
        """
        from candidly.store import states

        tensors, saved = states.read(arguments.path("folder", folder), stem=stem)
        rows = saved.get("rows")
        classes = saved.get("classes")
        bits = tensors.get("bits")
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
    """Convert labels in any supported form to `Candidates`.

    Parameters
    ----------
    y : Candidates, array, sparse matrix, data frame or iterable of rows
        A boolean or 0-1 matrix (n, C); or one entry per row: a list, tuple, set or array of class names, a string, or
        a plain label, which is the row's only candidate. Two-dimensional arrays of numbers are matrices, lists are
        names. Nested lists that hold only 0 and 1 could be either and are refused.
    classes : iterable, optional
        The class names, in column order. By default the sorted names found in `y`; for a matrix its column names if it
        has any, else 0 … C−1.
    separator : str, optional
        The text at which each row's string is split, e.g. ``"|"`` for ``"cat|dog"``. By default strings are not split.

    Returns
    -------
    Candidates

    Raises
    ------
    ValueError
        For a row without candidates, an unknown, empty, missing or masked name (with its row), an ambiguous or unusable
        `y`, and texts that look like several names, such as ``cat|dog``, without `separator` and `classes`.

    Warns
    -----
    UserWarning
        If names differ only by case or blanks, or look like a missing value or several names. Names in `classes` are
        not questioned.

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
    names = None if classes is None else class_names(classes)
    if isinstance(y, Candidates):
        if names is None or names == y.classes:
            return y
        y = y.decode()
    found = labels.read(y, separator)
    if isinstance(found, np.ndarray):
        columns = labels.column_names(y)
        if names is None:
            names = tuple(range(found.shape[-1])) if columns is None else columns
            check_spelling(names)
        matrix = found if columns is None else labels.arrange(found, columns, names)
        return _warned(Candidates(matrix, names))
    if names is None:
        names = labels.sorted_names(found)
        check_spelling(names, separator)
    return _warned(Candidates(labels.mark(found, names), names))


def _warned(found: Candidates) -> Candidates:
    warn_of_sameness(found.matrix)
    return found
