"""The dataset type that all loaders return."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.checks.arguments import instance, integer, shown, text


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

    def __post_init__(self) -> None:
        text("name", self.name)
        for name, array in (("X", self.X), ("S", self.S), ("y", self.y)):
            if not isinstance(array, np.ndarray) and (name != "y" or array is not None):
                raise ValueError(f"{name} is {shown(array)}; it must be a NumPy array")
        instance("classes", self.classes, tuple, "a tuple of class names")
        n, C = self.X.shape[0] if self.X.ndim else 0, len(self.classes)
        if self.X.ndim < 2 or self.S.dtype != np.bool_ or self.S.shape != (n, C):
            shapes = f"X has shape {self.X.shape}, and S shape {self.S.shape} and dtype {self.S.dtype}"
            raise ValueError(f"{shapes}; S must be a boolean matrix with the {n} rows of X and {C} classes")
        kind = self.X.dtype.kind
        if kind not in "biuf" or (kind == "f" and not np.isfinite(self.X).all()):
            raise ValueError(f"X has dtype {self.X.dtype}, or NaN or infinite numbers; give finite numbers")
        if len(set(self.classes)) < C:
            raise ValueError(f"classes is {shown(self.classes)}; give different names")
        if not self.S.any(axis=1).all():
            raise ValueError(f"S has no candidates in row {int((~self.S.any(axis=1)).argmax())}; give at least one")
        y = self.y
        if y is not None and (y.dtype.kind not in "iu" or y.shape != (n,) or (n and not 0 <= y.min() <= y.max() < C)):
            found = f"y has shape {y.shape} and dtype {y.dtype}"
            raise ValueError(f"{found}; it must have one class number from 0 to {C - 1} for each of {n} rows")
        if self.num_train is not None:
            integer("num_train", self.num_train, least=0, most=n)
        if self.groups is not None and (not isinstance(self.groups, tuple) or len(self.groups) != C):
            raise ValueError(f"groups is {shown(self.groups)}; it must be a tuple with the superclass of each class")

    def __repr__(self) -> str:
        n, *shape = self.X.shape
        size = f"{n} rows, {'×'.join(map(str, shape))} features, {len(self.classes)} classes"
        return f"Dataset({self.name!r}: {size}, {self.S.sum() / max(n, 1):.2f} candidates per row)"
