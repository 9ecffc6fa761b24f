"""Reduce wide matrices, such as word counts or features of encoders, to a few components by a truncated SVD."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.messages import warn
from candidly.tables.columns import Numbers, Table

_OVERSAMPLING, _ITERATIONS = 10, 5  # of the randomised SVD; more would change the components little
_SMALLEST = 1e-6  # singular values below this part of the largest are rounding errors


@dataclass(frozen=True, eq=False)
class Reduction:
    """The components of a truncated SVD: the directions with the largest sums of squares, not centred.

    Attributes
    ----------
    components : ndarray, shape (columns, number)
        The directions, in float32.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> X = csr_array(np.outer([1.0, 2.0, 3.0], [2.0, 0.0, 0.0, 1.0]))
    >>> reduction = Reduction.fit(X, 2)
    >>> reduction.components.shape
    (4, 1)
    >>> np.abs(reduction.transform(Table(X.tocsc(), X.shape))).round(3).ravel().tolist()
    [2.236, 4.472, 6.708]
    """

    components: NDArray[np.float32]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reduction) and np.array_equal(self.components, other.components)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def fit(cls, X: Any, number: int) -> "Reduction":
        """Return at most `number` components of a matrix, by a randomised SVD with a fixed seed.

        The algorithm is that of Halko, Martinsson and Tropp (SIAM Review, 2011). There are fewer components if the
        matrix has a smaller rank.
        """
        X = X.astype(np.float64)
        width = min(number + _OVERSAMPLING, *X.shape)
        basis = np.random.default_rng(0).normal(size=(X.shape[1], width))
        for _ in range(_ITERATIONS):
            basis = np.linalg.qr(X @ basis)[0]
            basis = np.linalg.qr(X.T @ basis)[0]
        _, sizes, directions = np.linalg.svd(X @ basis, full_matrices=False)
        kept = max(int((sizes[:number] > _SMALLEST * sizes[0]).sum()), 1)
        return cls((basis @ directions[:kept].T).astype(np.float32))

    def digest(self) -> str:
        """Return the SHA-256 digest of the components."""
        found = hashlib.sha256(f"{self.components.shape}\n".encode())
        found.update(np.ascontiguousarray(self.components, dtype="<f4").data)
        return found.hexdigest()

    def transform(self, table: Table) -> NDArray[np.float64]:
        """Return the components of rows, (n, number). A row has the same components alone and among other rows."""
        columns = table.columns
        components = self.components.astype(np.float64)
        if hasattr(columns, "tocsc"):
            return np.asarray(_finite(columns, table) @ components)
        reduced = np.zeros((table.shape[0], components.shape[1]))
        missing = False
        for first, block in table.blocks():
            if not isinstance(block, Numbers):
                raise ValueError(
                    f"{table.label(first)} of X holds text, but X was a sparse matrix in fit; pass numbers"
                )
            missing |= bool(np.isnan(block.values).any())
            values = np.nan_to_num(block.values)
            for j in np.flatnonzero(values.any(axis=1)).tolist():  # a product of matrices rounds by their shapes
                reduced += values[j, :, None] * components[first + j]
        if missing:
            _warn_of_missing()
        return reduced


def can_reduce(table: Table, number: int | None) -> bool:
    """Return whether a table is sparse, without missing values, and more than ten times as wide as `number`."""
    if number is None or not hasattr(table.columns, "tocsc") or table.shape[1] <= 10 * number:
        return False
    return table.columns.dtype.kind != "f" or not np.isnan(table.columns.data).any()


def check_finite(table: Table) -> None:
    """Raise ValueError if a sparse table holds infinite numbers."""
    infinite = np.isinf(table.columns.data) if table.columns.dtype.kind == "f" else np.zeros(0, bool)
    if infinite.any():
        entries = table.columns.tocoo()
        k = int(np.isinf(entries.data).argmax())
        place = f"row {entries.row[k]}, {table.label(int(entries.col[k]))}"
        raise ValueError(f"X has {entries.data[k]} in {place}; replace infinite numbers or drop the row")


def _finite(columns: Any, table: Table) -> Any:
    """Return a sparse matrix in float64, with 0 instead of missing values; raise ValueError for infinite ones."""
    check_finite(table)
    columns = columns.astype(np.float64)
    missing = np.isnan(columns.data)
    if missing.any():
        _warn_of_missing()
        columns.data = np.where(missing, 0, columns.data)
    return columns


def _warn_of_missing() -> None:
    warn("X has missing values, and the training data had none; they are replaced by 0")
