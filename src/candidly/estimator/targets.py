"""Read y: candidates to learn from or to score predictions with, and true labels."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from candidly import candidates
from candidly.candidates import Candidates, labels
from candidly.candidates.values import is_missing, plain


def read(y: Any, n: int, classes: Iterable[Hashable] | None, separator: str | None) -> Candidates:
    """Return the candidates of n rows. Labels of shape (n, 1) are flattened with a warning, as in scikit-learn."""
    if y is None:
        raise ValueError("PartialLabelClassifier requires y to be passed, but the target y is None; pass candidates")
    if np.ndim(getattr(y, "shape", 0)) == 1 and tuple(y.shape)[1:] == (1,):
        y = column_or_1d(y, warn=True)
    if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind == "f":
        check_classification_targets(y)
    S = candidates.encode(y, classes, separator)
    wrong = next((name for name in S.classes if not isinstance(name, str | int | float)), None)
    if wrong is not None:
        raise ValueError(f"class {wrong!r} is a {type(wrong).__name__}; use text or numbers as class names")
    if len(S) != n:
        raise ValueError(f"X has {n} rows but y has {len(S)}; pass the candidates of each row")
    return S


def align(y: Any, classes: Iterable[Hashable], separator: str | None = None) -> NDArray[np.bool_]:
    """Return the candidates in y as a boolean matrix (n, C) of these classes; other candidates are dropped."""
    names = tuple(classes)
    if isinstance(y, Candidates):
        place = {name: j for j, name in enumerate(y.classes)}
        columns = [y.matrix[:, place[name]] if name in place else np.zeros(len(y), bool) for name in names]
        return np.stack(columns, 1)
    found = labels.read(y, separator)
    if not isinstance(found, np.ndarray):
        return labels.mark(found, names, unknown=True)
    if (own := labels.column_names(y)) is not None:
        return labels.arrange(found, own, names)
    if found.ndim != 2 or found.shape[1] != len(names):
        raise ValueError(f"y has shape {found.shape}, but there are {len(names)} classes; pass one column per class")
    return found


def number(y: Any, classes: Iterable[Hashable], rows: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the class number of each row's true label, -1 if it is not a class, and whether the row has a label."""
    if np.ndim(getattr(y, "shape", 0)) == 1 and tuple(y.shape)[1:] == (1,):
        y = np.asarray(y)[:, 0]
    names = y.to_pylist() if hasattr(y, "to_pylist") else list(y)
    if len(names) != rows:
        raise ValueError(f"there are {rows} rows but {len(names)} true labels; pass one per row, None where unknown")
    names = [plain(name) for name in names]
    wrong = next((i for i, name in enumerate(names) if not isinstance(name, Hashable)), None)
    if wrong is not None:
        raise ValueError(f"the true label of row {wrong} is {names[wrong]!r}; pass one class name per row")
    column = {name: j for j, name in enumerate(classes)}
    labels = np.array([column.get(name, -1) for name in names], np.intp)
    known = np.array([not is_missing(name) for name in names], bool)
    if known.any() and (labels[known] < 0).all():
        first, some = names[int(known.argmax())], next(iter(column))
        raise ValueError(f"no true label is one of the classes; the first label is {first!r}, the first class {some!r}")
    return labels, known
