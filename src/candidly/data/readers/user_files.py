"""Readers of a user's `.mat` and `.npz` files, and the checks that all files of users must pass."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.checks.limits import check_bytes
from candidly.data.dataset import Dataset
from candidly.data.readers import mat, npz
from candidly.messages import warn
from candidly.tables.files import suffix_of

_NAME = 128  # bytes of memory of a class name


def read_mat(path: str | os.PathLike[str]) -> Dataset:
    """Read a `.mat` file in one of the layouts of `candidly.data.readers.mat`; class names are numbers."""
    X, S, y = mat.read(path)
    return checked(path, X, S, y, _numbered(path, S.shape[1]))


def read_npz(path: str | os.PathLike[str]) -> Dataset:
    """Read a `.npz` file with arrays `X`, `S`, optionally `y` (class numbers), `classes`, `groups` and `num_train`.

    `classes` has the names of classes. `groups` has one integer or text per row; rows with the same one belong
    together. `num_train` is the number of training rows, which come first, where the split is fixed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".npz") as file:
    ...     np.savez(file, X=np.zeros((2, 3)), S=[[True, True], [False, True]], classes=["cat", "dog"])
    ...     _ = file.seek(0)
    ...     read_npz(file.name).classes
    ('cat', 'dog')
    """
    arrays = npz.read(path, ["X", "S"], optional=["y", "classes", "groups", "num_train"])
    X = _features(arrays["X"], path)
    S = arrays["S"]
    y = arrays.get("y")
    if S.dtype.kind not in "biuf" or S.ndim != 2 or not np.isin(S, (0, 1)).all():
        raise ValueError(f"{path}: S is {S.shape} of type {S.dtype}; save a matrix (rows, classes) of booleans")
    if y is not None and (y.dtype.kind not in "iu" or y.ndim != 1):
        raise ValueError(f"{path}: y is {y.shape} of type {y.dtype}; save one class number per row")
    groups = arrays.get("groups")
    if groups is not None:
        if groups.dtype.kind not in "Uiu" or groups.ndim != 1:
            raise ValueError(
                f"{path}: groups is {groups.shape} of type {groups.dtype}; save one integer or text per row"
            )
        groups = np.unique(groups, return_inverse=True)[1]
    num_train = _number_of_training_rows(arrays["num_train"], len(X), path) if "num_train" in arrays else None
    if "classes" not in arrays:
        return checked(path, X, S.astype(bool), y, _numbered(path, S.shape[1]), groups, num_train)
    names = arrays["classes"]
    if names.dtype.kind not in "Uiu" or names.ndim != 1:
        raise ValueError(f"{path}: classes is {names.shape} of type {names.dtype}; save one name per column of S")
    _check_names(path, len(names), S.shape[1])
    return checked(path, X, S.astype(bool), y, tuple(str(name) for name in names), groups, num_train)


def _number_of_training_rows(value: NDArray[Any], rows: int, path: str | os.PathLike[str]) -> int:
    if value.dtype.kind not in "iu" or value.shape != ():
        raise ValueError(
            f"{path}: num_train is {value.shape} of type {value.dtype}; save one integer, the number of training rows"
        )
    if not 1 <= value < rows:
        raise ValueError(
            f"{path}: num_train is {value}; save an integer from 1 to {rows - 1}, so that test rows follow"
        )
    return int(value)


def _features(X: NDArray[Any], path: str | os.PathLike[str]) -> NDArray[Any]:
    if X.dtype.kind not in "biuf" or not 2 <= X.ndim <= 4:
        raise ValueError(
            f"{path}: X is {X.shape} of type {X.dtype}; save numbers with one row per example, as (rows, features) "
            "or as images"
        )
    if X.dtype == np.uint8 and X.ndim > 2:
        if X.ndim == 4 and X.shape[1] not in (1, 3):
            raise ValueError(
                f"{path}: X is {X.shape}, images with {X.shape[1]} channels; transpose it to (rows, channels, height, "
                "width) with 1 or 3 channels"
            )
        return X
    if X.dtype in (np.float32, np.float64):
        return X
    check_bytes(f"{path}: X", 8 * X.size, os.path.getsize(path))
    with np.errstate(all="ignore"):  # numbers that are too large become infinite, which `checked` refuses
        return X.astype(np.float64)


def _numbered(path: str | os.PathLike[str], num_classes: int) -> tuple[str, ...]:
    """Return numbers as class names. The matrix with the candidates may have columns but no rows to show for them."""
    check_bytes(f"{path}: {num_classes} class names", _NAME * num_classes, os.path.getsize(path))
    return tuple(str(j) for j in range(num_classes))


def dataset_name(path: str | os.PathLike[str]) -> str:
    """Return the name of the dataset in a file.

    Examples
    --------
    >>> dataset_name("/data/My birds.CSV")
    'my-birds'
    """
    return re.sub(r"[^a-z0-9._+-]", "-", Path(path).name.lower().removesuffix(suffix_of(path)))


def checked(
    path: str | os.PathLike[str],
    X: NDArray[Any],
    S: NDArray[np.bool_],
    y: NDArray[np.integer] | None,
    classes: tuple[str, ...],
    groups: NDArray[np.integer] | None = None,
    num_train: int | None = None,
) -> Dataset:
    """Return a dataset after checking the content of a user's file.

    Warn when true labels are not among the candidates, because real data can have such rows.
    """
    try:
        y, groups = (None if part is None else part.astype(np.int64) for part in (y, groups))
        found = Dataset(dataset_name(path), X, S, y, classes, num_train, groups=groups)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if y is not None:
        _warn_of_labels(path, S, y)
    return found


def _check_names(path: str | os.PathLike[str], found: int, wanted: int) -> None:
    if found != wanted:
        raise ValueError(f"{path}: {found} class names for {wanted} columns of S; save one name per column")


def _warn_of_labels(path: str | os.PathLike[str], S: NDArray[np.bool_], y: NDArray[np.integer]) -> None:
    wrong = ~S[np.arange(len(y)), y]
    if wrong.any():
        warn(
            f"{path}: in {wrong.sum()} of {len(y)} rows ({wrong.mean():.2%}) the true label is not among the "
            f"candidates, first in row {np.argmax(wrong)}; check separator and spelling: methods assume that it is"
        )
