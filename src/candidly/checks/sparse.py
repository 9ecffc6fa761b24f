"""Checks of sparse matrices: scipy reads and writes any memory that wrong indices point to."""

from typing import Any

import numpy as np


def check_sparse(matrix: Any) -> Any:
    """Return a sparse matrix of scipy, in a format with checked indices; raise ValueError if it is damaged.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> damaged = csr_array([[1, 0], [0, 1]])
    >>> damaged.indices[0] = 7
    >>> check_sparse(damaged)
    Traceback (most recent call last):
        ...
    ValueError: a sparse matrix with indices out of range
    """
    if matrix.format not in ("csr", "csc", "bsr", "coo"):
        matrix = matrix.tocsr()
    if matrix.format == "coo":
        for indices, length in zip((matrix.row, matrix.col), matrix.shape, strict=True):
            _check_range(indices, length, len(matrix.data))
        return matrix
    blocks = matrix.blocksize if matrix.format == "bsr" else (1, 1)
    major, minor = (length // block for length, block in zip(matrix.shape, blocks, strict=True))
    if matrix.format == "csc":
        major, minor = minor, major
    # In 64 bits: the check in scipy subtracts in 32 bits and can overflow.
    starts = matrix.indptr.astype(np.int64)
    if len(starts) != major + 1 or starts[0] != 0 or (np.diff(starts) < 0).any():
        raise ValueError("a sparse matrix whose rows or columns do not follow each other")
    _check_range(matrix.indices, minor, len(matrix.data))
    if starts[-1] > min(len(matrix.indices), len(matrix.data)):
        raise ValueError("a sparse matrix with indices out of range")
    return matrix


def _check_range(indices: Any, length: int, values: int) -> None:
    if len(indices) != values or (len(indices) and not 0 <= indices.min() <= indices.max() < length):
        raise ValueError("a sparse matrix with indices out of range")
