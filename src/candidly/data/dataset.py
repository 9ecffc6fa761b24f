"""The dataset type that all loaders return."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows with candidate sets.

    Attributes
    ----------
    name
        Its name in `load`.
    X : (n, ...) array
        Features: floating-point numbers (n, d), or images as bytes, (n, height, width) or (n, channels, height, width).
    S : (n, C) bool
        Candidate sets: `S[i, j]` says that class j is a candidate for row i. In a fully labelled dataset,
        each row's only candidate is its true label.
    y : (n,) int64 or None
        True classes, for evaluation only; no method sees them.
    classes
        The C class names; numbers, if the file has no names.
    num_train : int or None
        Number of training rows, where the publisher fixed a split. They come first; the others are test rows.
    groups : tuple of int, or None
        The superclass of each class, if classes have superclasses.

    Examples
    --------
    >>> import numpy as np
    >>> S = np.array([[True, True], [False, True]])
    >>> Dataset("toy", np.zeros((2, 3)), S, np.array([0, 1]), ("cat", "dog"))
    Dataset('toy': 2 rows, 3 features, 2 classes, 1.50 candidates per row)
    """

    name: str
    X: NDArray[Any]
    S: NDArray[np.bool_]
    y: NDArray[np.int64] | None
    classes: tuple[str, ...]
    num_train: int | None = None
    groups: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        n, *shape = self.X.shape
        size = f"{n} rows, {'×'.join(map(str, shape))} features, {len(self.classes)} classes"
        return f"Dataset({self.name!r}: {size}, {self.S.sum() / max(n, 1):.2f} candidates per row)"
