"""Files of the user's own: `.mat` and `.npz`. Tables have a module of their own."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly import candidates
from candidly.data import mat, npz
from candidly.data.dataset import Dataset


def read_mat(path: str | os.PathLike[str]) -> Dataset:
    """Read a `.mat` file in one of the layouts that `candidly.data.mat` knows; its classes are numbered."""
    X, S, y = mat.read(path)
    return checked(path, X, S, y, tuple(str(j) for j in range(S.shape[1])))


def read_npz(path: str | os.PathLike[str]) -> Dataset:
    """Read a `.npz` file with arrays `X`, `S`, optionally `y` (class numbers) and `classes` (names).

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".npz") as file:
    ...     np.savez(file, X=np.zeros((2, 3)), S=[[True, True], [False, True]], classes=["cat", "dog"])
    ...     _ = file.seek(0)
    ...     read_npz(file.name).classes
    ('cat', 'dog')
    """
    arrays = npz.read(path, ["X", "S"], optional=["y", "classes"])
    X, S, y = arrays["X"], arrays["S"], arrays.get("y")
    if X.dtype.kind not in "biuf" or X.ndim < 2:
        raise ValueError(f"{path}: X is {X.shape} of type {X.dtype}; save numbers with one row per example")
    if not (X.dtype == np.uint8 and X.ndim > 2) and X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    if S.dtype.kind not in "biuf" or S.ndim != 2 or not np.isin(S, (0, 1)).all():
        raise ValueError(f"{path}: S is {S.shape} of type {S.dtype}; save a matrix (rows, classes) of booleans")
    if y is not None and (y.dtype.kind not in "iu" or y.ndim != 1):
        raise ValueError(f"{path}: y is {y.shape} of type {y.dtype}; save one class number per row")
    names = arrays.get("classes", np.arange(S.shape[1]))
    if names.dtype.kind not in "Uiu" or names.ndim != 1:
        raise ValueError(f"{path}: classes is {names.shape} of type {names.dtype}; save one name per column of S")
    return checked(path, X, S.astype(bool), y, tuple(str(name) for name in names))


def dataset_name(path: str | os.PathLike[str]) -> str:
    """Return the name of the dataset in a file.

    Examples
    --------
    >>> dataset_name("/data/My birds.CSV")
    'my-birds'
    """
    return re.sub(r"[^a-z0-9._+-]", "-", Path(path).stem.lower())


def checked(
    path: str | os.PathLike[str],
    X: NDArray[Any],
    S: NDArray[np.bool_],
    y: NDArray[np.integer] | None,
    classes: tuple[str, ...],
) -> Dataset:
    """Return a dataset after checking it: this is where a user's file is checked, once."""
    if len(X) != len(S) or (y is not None and len(y) != len(S)):
        lengths = f"X has {len(X)}, S {len(S)}" + ("" if y is None else f", y {len(y)}")
        raise ValueError(f"{path}: the numbers of rows differ: {lengths}; save one row per example in each")
    try:
        candidates.check(S)
        names = candidates.class_names(classes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if len(names) != S.shape[1]:
        raise ValueError(f"{path}: {len(names)} class names for {S.shape[1]} columns of S; save one name per column")
    if y is not None and ((y < 0) | (y >= len(names))).any():
        row = int(np.argmax((y < 0) | (y >= len(names))))
        raise ValueError(f"{path}: row {row} has the label {y[row]}, but there are {len(names)} classes; correct it")
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        row = int(np.argmin(np.isfinite(X).reshape(len(X), -1).all(axis=1)))
        raise ValueError(f"{path}: row {row} of X holds a value that is not finite; drop the row or fill the value")
    return Dataset(dataset_name(path), X, S, None if y is None else y.astype(np.int64), classes)
