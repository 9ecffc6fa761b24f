"""Reader of the `.mat` files in which partial-label datasets are exchanged.

They come in two layouts, each of three matrices, dense or sparse. `data` (n, d) are the features, `partial_target`
(C, n) is non-zero where a class is a candidate, and `target` (C, n) is non-zero at the one true class of each row. In
the other layout `features` (n, d), `p_labels` (n, C) and `logitlabels` (n, C) hold the same, rows first.
"""

import io
import math
import os
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse
from numpy.typing import NDArray

from candidly.data.contents import MAX_EXPANSION

_LAYOUTS = (("data", "partial_target", "target"), ("features", "p_labels", "logitlabels"))


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
        When the file is not a readable `.mat` file, lacks a field, or its fields disagree.

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
    content: bytes, path: str | os.PathLike[str]
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]:
    """Do what `read` does, with the content of the file."""
    shapes = _shapes(content, path)
    names = _LAYOUTS[1] if shapes.keys() & set(_LAYOUTS[1]) and not shapes.keys() & set(_LAYOUTS[0]) else _LAYOUTS[0]
    raw = fields(content, path, names)
    X, candidates, truth = (_dense(raw[name], name, path) for name in names)
    wanted = "(C, n)" if names == _LAYOUTS[0] else "(n, C)"
    if names == _LAYOUTS[0]:
        candidates, truth = candidates.T, truth.T
    if not (candidates.shape == truth.shape and candidates.shape[0] == X.shape[0]):
        raise ValueError(
            f"{path}: shapes disagree: {names[0]} {shapes[names[0]]} should be (n, d), "
            f"{names[1]} {shapes[names[1]]} and {names[2]} {shapes[names[2]]} both {wanted}"
        )
    labels = np.count_nonzero(truth, axis=1)
    if (labels != 1).any():
        row = int(np.flatnonzero(labels != 1)[0])
        raise ValueError(
            f"{path}: row {row} has {labels[row]} true labels in {names[2]} instead of one; drop or correct it"
        )
    return (
        np.ascontiguousarray(X, dtype=np.float64),
        np.ascontiguousarray(candidates != 0),
        (truth != 0).argmax(axis=1).astype(np.int64),
    )


def fields(content: bytes, path: str | os.PathLike[str], names: Collection[str]) -> dict[str, Any]:
    """Return the named fields, once their sizes are known to be possible.

    Raises
    ------
    ValueError
        When the content is damaged, lacks a field, or claims larger fields than it can hold.
    """
    shapes = _shapes(content, path)
    missing = [name for name in names if name not in shapes]
    if missing:
        present = ", ".join(sorted(shapes)) or "nothing"
        raise ValueError(f"{path} has no field {', '.join(missing)}; it holds {present}")
    for name in names:
        # Each entry takes a byte at least. A sparse matrix may have fewer, but becomes dense here.
        if math.prod(shapes[name]) > MAX_EXPANSION * len(content):
            raise ValueError(
                f"{path}: {name} claims the shape {shapes[name]}, too large for a file of {len(content)} bytes; "
                "get it again, or save it without the rows and columns that are empty"
            )
    return _scipy(scipy.io.loadmat, content, path, variable_names=list(names))


def _shapes(content: bytes, path: str | os.PathLike[str]) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape, _ in _scipy(scipy.io.whosmat, content, path)}


def _scipy(function: Any, content: bytes, path: str | os.PathLike[str], **options: Any) -> Any:
    try:
        return function(io.BytesIO(content), **options)
    except NotImplementedError as error:
        raise ValueError(f"{path} is in MATLAB's HDF5 format 7.3; save it with `save -v7` instead") from error
    except (scipy.io.matlab.MatReadError, OSError, TypeError, ValueError, zlib.error) as error:
        raise ValueError(f"{path} is not a readable .mat file ({error}); fetch it again") from error


def _dense(matrix: Any, name: str, path: str | os.PathLike[str]) -> NDArray[Any]:
    array = np.asarray(matrix.toarray() if scipy.sparse.issparse(matrix) else matrix)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{path}: {name} should be a real matrix, but is {array.ndim}-dimensional of type {array.dtype}"
        )
    return array
