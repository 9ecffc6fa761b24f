"""The dataset type that all loaders return."""

from dataclasses import dataclass, replace
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
    superclasses : tuple of int, or None
        The superclass of each class, if classes have superclasses.
    groups : (n,) int64 or None
        The group of each row, such as the scene or recording that it was taken from. Rows of a group resemble each
        other, so the protocol `grouped` never trains on rows of a group that has test rows.

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
    superclasses: tuple[int, ...] | None = None
    groups: NDArray[np.int64] | None = None

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
        if self.superclasses is not None:
            wanted = "one integer per class, the number of its superclass"
            given = items("superclasses", self.superclasses, wanted)
            found = [integer("one of superclasses", superclass, least=0) for superclass in given]
            if len(found) != len(names):
                raise ValueError(f"superclasses has {len(found)} entries for {len(names)} classes; pass {wanted}")

    def _check_arrays(self) -> None:
        """Check types and shapes of features, candidates, labels and groups, and that every row has a candidate."""
        X, S, y, groups = self.X, self.S, self.y, self.groups
        if not isinstance(X, np.ndarray) or X.dtype.kind not in "biuf" or X.ndim < 2:
            raise ValueError(f"X is {_kind(X)}; it must be an array of numbers, (rows, features) or images")
        if not isinstance(S, np.ndarray):
            raise ValueError(f"S is {_kind(S)}; it must be a boolean array (rows, classes)")
        if y is not None and (not isinstance(y, np.ndarray) or y.dtype.kind not in "iu" or y.ndim != 1):
            raise ValueError(f"y is {_kind(y)}; it must be an array with one class number per row, or None")
        if groups is not None and (
            not isinstance(groups, np.ndarray) or groups.dtype.kind not in "iu" or groups.ndim != 1
        ):
            raise ValueError(f"groups is {_kind(groups)}; it must be an array with one group number per row, or None")
        optional = {"y": y, "groups": groups}
        if len(X) != len(S) or any(part is not None and len(part) != len(S) for part in optional.values()):
            lengths = f"X has {len(X)}, S {len(S)}"
            lengths += "".join(f", {name} {len(part)}" for name, part in optional.items() if part is not None)
            raise ValueError(f"the numbers of rows differ: {lengths}; give one row per example in each")
        if 0 in X.shape[1:]:
            raise ValueError(f"X is {X.shape}, without features; give at least one")
        if S.ndim == 2 and S.shape[1] < 2:
            raise ValueError(f"the number of classes is {S.shape[1]}; S must have at least two columns")
        candidates.check(S)

    def take(self, rows: Any, num_train: int | None = None) -> "Dataset":
        """Return the dataset with only some of its rows, chosen by an array or a slice.

        Examples
        --------
        >>> X, S = np.arange(3.0)[:, None], np.eye(3, dtype=bool)
        >>> toy = Dataset("toy", X, S, np.arange(3), ("a", "b", "c"), groups=np.array([0, 0, 1]))
        >>> toy.take([0, 2]).groups.tolist()
        [0, 1]
        """
        y = None if self.y is None else self.y[rows]
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, X=self.X[rows], S=self.S[rows], y=y, groups=groups, num_train=num_train)

    def __repr__(self) -> str:
        n, *shape = self.X.shape
        size = f"{n} rows, {'×'.join(map(str, shape))} features, {len(self.classes)} classes"
        size += "" if self.groups is None else f", {len(np.unique(self.groups))} groups"
        return f"Dataset({self.name!r}: {size}, {self.S.sum() / max(n, 1):.2f} candidates per row)"


def _kind(value: Any) -> str:
    """Return an array as a message shows it, by shape and type, and other values by their `repr`."""
    return f"{value.shape} of type {value.dtype}" if isinstance(value, np.ndarray) else shown(value)
