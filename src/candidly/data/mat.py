"""Reader of the `.mat` files in which real-world partial-label datasets are exchanged.

They hold three matrices, each dense or sparse: `data` (n, d), the features; `partial_target` (C, n), non-zero where a
class is a candidate; `target` (C, n), non-zero at the one true class of each row.
"""

import io
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse
from numpy.typing import NDArray


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
    content = Path(path).read_bytes()
    try:
        raw = scipy.io.loadmat(io.BytesIO(content))
    except NotImplementedError as error:
        raise ValueError(f"{path} is in MATLAB's HDF5 format 7.3; save it with `save -v7` instead") from error
    except (scipy.io.matlab.MatReadError, OSError, TypeError, ValueError, zlib.error) as error:
        raise ValueError(f"{path} is not a readable .mat file ({error}); fetch it again") from error

    missing = [field for field in ("data", "partial_target", "target") if field not in raw]
    if missing:
        present = sorted(field for field in raw if not field.startswith("__"))
        raise ValueError(f"{path} has no field {', '.join(missing)}; it holds {', '.join(present) or 'nothing'}")
    X, candidates, truth = (_dense(raw[field], field, path) for field in ("data", "partial_target", "target"))
    if not (candidates.shape == truth.shape and candidates.shape[1] == X.shape[0]):
        raise ValueError(
            f"{path}: shapes disagree: data {X.shape} should be (n, d), "
            f"partial_target {candidates.shape} and target {truth.shape} both (C, n)"
        )
    labels = np.count_nonzero(truth, axis=0)
    if (labels != 1).any():
        row = int(np.flatnonzero(labels != 1)[0])
        raise ValueError(
            f"{path}: row {row} has {labels[row]} true labels in target instead of one; drop or correct it"
        )
    return (
        np.ascontiguousarray(X),
        np.ascontiguousarray(candidates.T != 0),
        (truth != 0).argmax(axis=0).astype(np.int64),
    )


def _dense(matrix: Any, field: str, path: str | os.PathLike[str]) -> NDArray[np.float64]:
    array = np.asarray(matrix.toarray() if scipy.sparse.issparse(matrix) else matrix)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{path}: {field} should be a real matrix, but is {array.ndim}-dimensional of type {array.dtype}"
        )
    return array.astype(np.float64)
