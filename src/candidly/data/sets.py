"""Sets of classes as columns of a table, in and out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates import Candidates
from candidly.data.names import Names, Place, are_too_many


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
