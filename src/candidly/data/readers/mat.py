"""Reader of `.mat` files with partial-label datasets.

There are two layouts of three matrices, dense or sparse. In the first, `data` (n, d) holds the features,
`partial_target` (C, n) is 1 where a class is a candidate, and `target` (C, n) is 1 at the true class of
each row. In the second, `features` (n, d), `p_labels` (n, C) and `logitlabels` (n, C) hold the same, rows first.
"""

import io
import math
import os
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse
from numpy.typing import NDArray
from scipy.io.matlab import MatReadError, matfile_version

from candidly.checks.limits import check_bytes
from candidly.checks.sparse import check_sparse
from candidly.data.readers.mat5 import Variable, check_level4, variables

_CLASSES_FIRST = ("data", "partial_target", "target")
_ROWS_FIRST = ("features", "p_labels", "logitlabels")


def read(path: str | os.PathLike[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]:
    """Read features, candidate sets and true labels from a `.mat` file.

    Parameters
    ----------
    path
        The file, in MATLAB's format 4 to 7.2.

    Returns
    -------
    X : (n, d) float64
    S : (n, C) bool
    y : (n,) int64

    Raises
    ------
    ValueError
        When the file is not a readable `.mat` file, lacks a field, its fields disagree, or they take more memory than
        `candidly.checks.limits.max_bytes` allows.

    Examples
    --------
    >>> import scipy.io, tempfile
    >>> fields = {"data": [[0.5], [1.5]], "partial_target": [[1, 1], [0, 1]], "target": [[1, 0], [0, 1]]}
    >>> with tempfile.NamedTemporaryFile(suffix=".mat") as file:
    ...     scipy.io.savemat(file.name, fields)
    ...     X, S, y = read(file.name)
    >>> S.tolist(), y.tolist()
    ([[True, False], [True, True]], [0, 1])
    """
    return parse(Path(path).read_bytes(), path)


def parse(
    content: bytes, path: str | os.PathLike[str], *, any_mark: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]:
    """Return what `read` returns, from the content of a file.

    With `any_mark`, classes may be marked with another positive number than 1, as in files whose content is known.
    """
    found = _variables(content, path)
    classes_first = bool(found.keys() & set(_CLASSES_FIRST)) or not found.keys() & set(_ROWS_FIRST)
    names = _CLASSES_FIRST if classes_first else _ROWS_FIRST
    _check_fields(content, path, names, found)
    _check_shapes(path, {name: found[name].shape for name in names}, classes_first)
    raw = _load(content, path, names)
    X, candidates, truth = (_dense(raw[name], name, path) for name in names)
    if classes_first:
        candidates = candidates.T
        truth = truth.T
    S = _marks(candidates, names[1], path, any_mark)
    is_true = _marks(truth, names[2], path, any_mark)
    labels = is_true.sum(axis=1)
    if (labels != 1).any():
        row = int(np.flatnonzero(labels != 1)[0])
        raise ValueError(
            f"{path}: row {row} has {labels[row]} true labels in {names[2]} instead of one; drop or correct it"
        )
    return np.ascontiguousarray(X, dtype=np.float64), S, is_true.argmax(axis=1).astype(np.int64)


def fields(content: bytes, path: str | os.PathLike[str], names: Collection[str]) -> dict[str, Any]:
    """Return the named fields, after checking that their types and sizes are possible.

    Raises
    ------
    ValueError
        When the content is damaged, lacks a field, or its fields take more memory than `max_bytes` allows.
    """
    _check_fields(content, path, names, _variables(content, path))
    return _load(content, path, names)


def _check_fields(
    content: bytes, path: str | os.PathLike[str], names: Collection[str], found: dict[str, Variable]
) -> None:
    missing = [name for name in names if name not in found]
    if missing:
        present = ", ".join(sorted(found)) or "nothing"
        raise ValueError(f"{path} has no field {', '.join(missing)}; it holds {present}")
    needed = 0
    for name in names:
        shape, is_numeric, stored = found[name]
        if not is_numeric:
            raise ValueError(f"{path}: {name} should be a real matrix, but holds no numbers; save it as one")
        # All matrices become dense here. An axis costs memory even if another one is empty.
        needed += stored + 8 * math.prod(max(length, 1) for length in shape)
        check_bytes(f"{path}: {name} of shape {shape}", needed, len(content))


def _check_shapes(path: str | os.PathLike[str], shapes: dict[str, tuple[int, ...]], classes_first: bool) -> None:
    """Check the shapes of features, candidates and true labels before the matrices are read."""
    features, candidates, truth = shapes.values()
    two_axes = len(features) == len(candidates) == 2
    rows = candidates[1 if classes_first else 0] if two_axes else 0
    if not two_axes or candidates != truth or rows != features[0] or 0 in (*features, *candidates):
        wanted = "(C, n)" if classes_first else "(n, C)"
        empty = "; no axis may be empty" if two_axes and 0 in (*features, *candidates) else ""
        first, second, third = shapes
        raise ValueError(
            f"{path}: shapes disagree: {first} {features} should be (n, d), {second} {candidates} and "
            f"{third} {truth} both {wanted}{empty}"
        )


def _load(content: bytes, path: str | os.PathLike[str], names: Collection[str]) -> dict[str, Any]:
    with _refusal(path):
        return scipy.io.loadmat(io.BytesIO(content), variable_names=list(names))


def _variables(content: bytes, path: str | os.PathLike[str]) -> dict[str, Variable]:
    """Return the variables of a file. Its structure is checked first, because scipy crashes on some damaged files."""
    with _refusal(path):
        level, _ = matfile_version(io.BytesIO(content))
        if level == 0:  # scipy's number for level 4
            check_level4(content)
            listed = scipy.io.whosmat(io.BytesIO(content))
            return {name: Variable(shape, kind in ("double", "sparse"), 0) for name, shape, kind in listed}
        if level == 1:  # scipy's number for level 5
            return variables(content)
    raise ValueError(f"{path} is in MATLAB's HDF5 format 7.3; save it with `save -v7` instead")


@contextmanager
def _refusal(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the errors that scipy raises for a damaged file into one kind."""
    try:
        yield
    except (MatReadError, OSError, TypeError, ValueError, LookupError, ArithmeticError, zlib.error) as error:
        raise ValueError(f"{path} is not a readable .mat file ({error}); fetch it again") from error


def _dense(matrix: Any, name: str, path: str | os.PathLike[str]) -> NDArray[Any]:
    if scipy.sparse.issparse(matrix):
        with _refusal(path):
            matrix = check_sparse(matrix).toarray()
    array = np.asarray(matrix)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{path}: {name} should be a real matrix, but is {array.ndim}-dimensional of type {array.dtype}"
        )
    return array


def _marks(matrix: NDArray[Any], name: str, path: str | os.PathLike[str], any_mark: bool) -> NDArray[np.bool_]:
    """Return where a matrix is not 0; all such entries must be 1, or with `any_mark` the same positive number."""
    marked = np.ascontiguousarray(matrix != 0)
    mark = matrix[marked][0] if any_mark and marked.any() else 1
    wrong = marked & ((matrix != mark) | ~(np.isfinite(mark) & (mark > 0)))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"{path}: row {row} holds {matrix[row, column]} in {name}, which marks classes with 1 and the others with "
            "0; correct it"
        )
    return marked
