"""The dataset type that all loaders return."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly import candidates
from candidly.candidates.labels import class_names
from candidly.checks.arguments import integer, items, shown, text


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows with candidate sets, checked at construction.

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

    Raises
    ------
    ValueError
        For a wrong type or shape, numbers of rows that differ, a row without candidates, features that are not finite,
        and labels outside of the classes.

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
        self._check_arrays()
        names = class_names(self.classes)
        if len(names) != self.S.shape[1]:
            raise ValueError(f"{len(names)} class names for {self.S.shape[1]} columns of S; give one name per column")
        if self.y is not None:
            wrong = (self.y < 0) | (self.y >= len(names))
            if wrong.any():
                row = int(np.argmax(wrong))
                raise ValueError(
                    f"row {row} has the label {self.y[row]}, but there are {len(names)} classes; correct it"
                )
        if self.X.dtype.kind == "f" and not np.isfinite(self.X).all():
            row = int(np.argmin(np.isfinite(self.X).reshape(len(self.X), -1).all(axis=1)))
            raise ValueError(f"row {row} of X holds a value that is not finite; drop the row or fill the value")
        if self.num_train is not None:
            integer("num_train", self.num_train, least=0, most=len(self.X))
        if self.groups is not None:
            wanted = "one integer per class, the number of its superclass"
            found = [integer("one of groups", group, least=0) for group in items("groups", self.groups, wanted)]
            if len(found) != len(names):
                raise ValueError(f"groups has {len(found)} entries for {len(names)} classes; pass {wanted}")

    def _check_arrays(self) -> None:
        """Check types and shapes of features, candidates and labels, and that every row has a candidate."""
        X, S, y = self.X, self.S, self.y
        if not isinstance(X, np.ndarray) or X.dtype.kind not in "biuf" or X.ndim < 2:
            raise ValueError(f"X is {_kind(X)}; it must be an array of numbers, (rows, features) or images")
        if not isinstance(S, np.ndarray):
            raise ValueError(f"S is {_kind(S)}; it must be a boolean array (rows, classes)")
        if y is not None and (not isinstance(y, np.ndarray) or y.dtype.kind not in "iu" or y.ndim != 1):
            raise ValueError(f"y is {_kind(y)}; it must be an array with one class number per row, or None")
        if len(X) != len(S) or (y is not None and len(y) != len(S)):
            lengths = f"X has {len(X)}, S {len(S)}" + ("" if y is None else f", y {len(y)}")
            raise ValueError(f"the numbers of rows differ: {lengths}; give one row per example in each")
        if 0 in X.shape[1:]:
            raise ValueError(f"X is {X.shape}, without features; give at least one")
        if S.ndim == 2 and S.shape[1] < 2:
            raise ValueError(f"the number of classes is {S.shape[1]}; S must have at least two columns")
        candidates.check(S)

    def __repr__(self) -> str:
        n, *shape = self.X.shape
        size = f"{n} rows, {'×'.join(map(str, shape))} features, {len(self.classes)} classes"
        return f"Dataset({self.name!r}: {size}, {self.S.sum() / max(n, 1):.2f} candidates per row)"


def _kind(value: Any) -> str:
    """Return an array as a message shows it, by shape and type, and other values by their `repr`."""
    return f"{value.shape} of type {value.dtype}" if isinstance(value, np.ndarray) else shown(value)
