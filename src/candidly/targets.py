"""What y means to the estimator: candidates to learn from, or to score predictions by."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from candidly import candidates, labels
from candidly.candidates import Candidates


def read(y: Any, n: int, classes: Iterable[Hashable] | None, separator: str | None) -> Candidates:
    """Return the candidates of n rows; columns of plain labels are flattened, with a warning, as scikit-learn does."""
    if y is None:
        raise ValueError("PartialLabelClassifier requires y to be passed, but the target y is None; give candidates")
    if np.ndim(getattr(y, "shape", 0)) == 1 and tuple(y.shape)[1:] == (1,):
        y = column_or_1d(y, warn=True)
    if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind == "f":
        check_classification_targets(y)
    S = candidates.encode(y, classes, separator)
    wrong = next((name for name in S.classes if not isinstance(name, str | int | float)), None)
    if wrong is not None:
        raise ValueError(f"class {wrong!r} is a {type(wrong).__name__}; name classes by text or numbers")
    if len(S) != n:
        raise ValueError(f"X has {n} rows but y has {len(S)}; give each row its candidates")
    return S


def align(y: Any, classes: Iterable[Hashable], separator: str | None = None) -> NDArray[np.bool_]:
    """Return the candidates in y as a matrix (n, C) of these classes, without those that are not among them."""
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
        raise ValueError(f"y has shape {found.shape}, but there are {len(names)} classes; give one column for each")
    return found


def number(names: Any, S: Candidates) -> NDArray[np.intp]:
    """Return the number of each row's class, given by name; -1 for None and for whatever is no class."""
    if len(names) != len(S):
        raise ValueError(f"y_true has {len(names)} entries for {len(S)} rows; give one per row")
    column = {name: j for j, name in enumerate(S.classes)}
    names = names.to_pylist() if hasattr(names, "to_pylist") else names
    plain = (name.item() if isinstance(name, np.generic) else name for name in names)
    return np.array([column.get(name, -1) for name in plain], np.intp)
