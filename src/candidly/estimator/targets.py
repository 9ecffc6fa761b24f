"""Read what belongs to the rows of X: candidates to learn from or to score with, true labels, weights and groups."""

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from torch import Tensor

from candidly import candidates
from candidly.candidates import Candidates, labels
from candidly.candidates.values import as_text, from_tensor, is_missing, plain, unmasked
from candidly.checks import arguments
from candidly.messages import listed, warn


def read(y: Any, n: int, classes: Iterable[Hashable] | None, separator: str | None) -> Candidates:
    """Return the candidates of n rows. Labels of shape (n, 1) are flattened with a warning, as in scikit-learn."""
    if y is None:
        raise ValueError("PartialLabelClassifier requires y to be passed, but the target y is None; pass candidates")
    if np.ndim(getattr(y, "shape", 0)) == 1 and tuple(y.shape)[1:] == (1,):
        y = column_or_1d(y, warn=True)
    if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind == "f" and classes is None:
        _refuse_measurements(unmasked(y))
    S = candidates.encode(y, classes, separator)
    wrong = next((name for name in S.classes if not isinstance(name, str | int | float)), None)
    if wrong is not None:
        raise ValueError(f"class {wrong!r} is a {type(wrong).__name__}; use text or numbers as class names")
    if len(S) != n:
        advice = "transpose it" if S.shape[1] == n else "pass the candidates of each row"
        raise ValueError(f"X has {n} rows but y has {len(S)}; {advice}")
    if classes is None:
        numbers = np.array([name for name in S.classes if isinstance(name, float)])
        # Lists may name a few classes by numbers such as 0.5.
        _refuse_measurements(numbers if 2 * len(numbers) > max(n, 20) else numbers[~np.isfinite(numbers)])
    return S


def spread(weights: NDArray[np.float64], names: Sequence[Hashable], classes: Sequence[Hashable]) -> NDArray[np.float64]:
    """Return a matrix whose columns have `names` as one whose columns are all `classes`; 0 for the others.

    Examples
    --------
    >>> spread(np.array([[0.2, 0.8]]), ["dog", "cat"], ["ant", "cat", "dog"])
    array([[0. , 0.8, 0.2]])
    """
    position = {name: j for j, name in enumerate(classes)}
    found = np.zeros((len(weights), len(classes)))
    found[:, [position[name] for name in names]] = weights
    return found


def _refuse_measurements(numbers: NDArray[Any]) -> None:
    """Raise ValueError if numbers are not whole; scikit-learn expects the beginnings of these messages."""
    if numbers.dtype.kind != "f":  # some are masked, which is refused elsewhere
        return
    if np.isnan(numbers).any():
        raise ValueError(f"Input y contains NaN. Drop row {int(np.isnan(numbers).argmax())}, or name a class there.")
    if np.isinf(numbers).any():
        raise ValueError(
            "Input y contains infinity or a value too large for dtype('float64'). Pass text or integers as class names."
        )
    with np.errstate(invalid="ignore"):
        wrong = (numbers != np.floor(numbers)) | (np.abs(numbers) >= 2.0**53)
    if wrong.any():
        raise ValueError(
            f"Unknown label type: continuous. y holds {numbers[wrong.argmax()]}; pass text or integers as class names, "
            "or list all with classes="
        )


def check_index(X: Any, rows: Any, name: str) -> None:
    """Raise ValueError if both X and something else that has its rows are indexed, and their index differs.

    An index that counts from 0 says nothing about which rows are meant, unless the other one has the same labels.

    Parameters
    ----------
    X : array or table
        A data frame of pandas has an index.
    rows : array, column or Candidates
        A column or data frame of pandas has an index, and so do candidates from votes.
    name : str
        Its name in messages.
    """
    left, right = _index(X), _index(rows)
    if left is None or right is None or len(left) != len(right):  # other messages say which lengths differ
        return
    first, second = ([as_text(plain(label)) for label in index] for index in (left, right))
    if first == second:
        return
    counted = [str(i) for i in range(len(first))]
    same = set(first) == set(second)
    if not same and counted in (first, second):
        return
    row = next(i for i, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1])
    found = f"row {row} is {first[row]!r} in X and {second[row]!r} in {name}"
    if same:
        raise ValueError(f"{name} has the index of X in another order: {found}; pass X.loc[list({name}.index)]")
    raise ValueError(
        f"{name} has another index than X: {found}; pass the same rows, or NumPy arrays if they already are the same"
    )


def _index(rows: Any) -> Sequence[Any] | None:
    """Return the labels of rows, where they have any."""
    index = getattr(rows, "index", None)
    is_frame = hasattr(rows, "iloc") or isinstance(rows, Candidates)
    return index if is_frame and index is not None and not callable(index) else None


def align(
    y: Any, classes: Iterable[Hashable], separator: str | None = None, *, unknown: bool = True
) -> NDArray[np.bool_]:
    """Return the candidates in y as a boolean matrix (n, C) of these classes; with `unknown`, others are dropped.

    Raises
    ------
    ValueError
        If a row has no candidates, or a name in y differs from a class only by its type, case or blanks; without
        `unknown`, if a candidate is not one of the classes.
    """
    names = tuple(classes)
    if y is None:
        raise ValueError("y is None; pass the candidates of each row")
    if isinstance(y, candidates.Votes):
        y = y.candidates
    if isinstance(y, Candidates):
        _compare(y.classes, names)
        if not unknown and not set(y.classes) <= set(names):
            _refuse_unknown(y.decode(), names)
        place = {name: j for j, name in enumerate(y.classes)}
        columns = [y.matrix[:, place[name]] if name in place else np.zeros(len(y), bool) for name in names]
        return np.stack(columns, 1)
    found = labels.read(y, separator)
    if not isinstance(found, np.ndarray):
        empty = next((i for i, row in enumerate(found) if not row), None)
        if empty is not None:
            raise ValueError(f"row {empty} of y has no candidates; drop it or list at least one class for it")
        _compare(dict.fromkeys(name for row in found for name in row), names)
        if not unknown:
            _refuse_unknown(found, names)
        return labels.mark(found, names, unknown=True)
    if (own := labels.column_names(y)) is not None:
        found = labels.arrange(found, own, names)
    elif found.ndim != 2 or found.shape[1] != len(names):
        raise ValueError(f"y has shape {found.shape}, but there are {len(names)} classes; pass one column per class")
    candidates.check(found)
    return found


def _refuse_unknown(rows: Iterable[Iterable[Hashable]], classes: Sequence[Hashable]) -> None:
    known = set(classes)
    for i, row in enumerate(rows):
        for name in row:
            if name not in known:
                raise ValueError(
                    f"row {i} of y names {name!r}, which is not a class of the model; drop the row, or train a model "
                    "that knows the class"
                )


def number(y: Any, classes: Iterable[Hashable], rows: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the class number of each row's true label, -1 if it is not a class, and whether the row has a label."""
    if y is None or isinstance(y, str | bytes | Mapping) or not isinstance(y, Iterable):
        raise ValueError(f"the true labels are a {type(y).__name__}; pass one class name per row, None where unknown")
    if tuple(getattr(y, "shape", ()))[1:] == (1,):
        y = np.asarray(y)[:, 0]
    names = y.to_pylist() if hasattr(y, "to_pylist") else list(y)
    if len(names) != rows:
        raise ValueError(f"there are {rows} rows but {len(names)} true labels; pass one per row, None where unknown")
    names = [name if type(name) is str else plain(name) for name in names]
    column = {name: j for j, name in enumerate(classes)}
    missing: dict[Hashable, bool] = {}  # of each name, so that nothing is checked again in every row
    for row, name in enumerate(names):
        if not isinstance(name, Hashable) or isinstance(name, list | tuple | set | frozenset):
            raise ValueError(f"the true label of row {row} is {name!r}; pass one class name per row")
        if name not in missing:
            missing[name] = is_missing(name)
    found = np.array([column.get(name, -1) for name in names], np.intp)
    known = np.array([not missing[name] for name in names], bool)
    if known.any() and (found[known] < 0).all():
        first, some = names[int(known.argmax())], next(iter(column))
        raise ValueError(f"no true label is one of the classes; the first label is {first!r}, the first class {some!r}")
    _compare([name for name, is_gone in missing.items() if not is_gone], tuple(column))
    return found, known


def _compare(found: Iterable[Hashable], classes: Sequence[Hashable]) -> None:
    """Compare names in y with the classes.

    Raises
    ------
    ValueError
        For a name that is a class but for its type, case or blanks, for classes with a separator between them, and if
        names are text and classes are not, or the other way round.

    Warns
    -----
    UserWarning
        If no name is a class.
    """
    names = list(found)
    known = set(classes)
    alike = {labels.normal(as_text(name)): name for name in classes}
    for name in names:
        if name in known:
            continue
        text = as_text(name)
        if labels.normal(text) in alike:
            raise ValueError(f"y holds {name!r}, but the class is {alike[labels.normal(text)]!r}; write them alike")
        for mark in labels.SEPARATORS:
            if mark in text and all(part.strip() in known for part in text.split(mark)):
                raise ValueError(f"y holds {name!r}, which looks like several classes; set separator={mark!r}")
    if not names or known.intersection(names):
        return
    found_all = f"y holds {listed(map(repr, names), 3)}, the classes are {listed(map(repr, classes), 3)}"
    if {isinstance(name, str) for name in names}.isdisjoint(isinstance(name, str) for name in classes):
        raise ValueError(f"the names in y are of another type than the classes: {found_all}; convert them")
    warn(f"no candidate in y is one of the classes: {found_all}")


def row_weights(sample_weight: Any, n: int) -> NDArray[np.float64]:
    """Return the weights of n rows as numbers. Raise ValueError unless they are finite, not negative and not all 0."""
    try:
        weight = unmasked(sample_weight)
        if weight.dtype.kind not in "biufO" or any(isinstance(one, str | bytes) for one in weight.flat):
            raise TypeError
        weight = np.array(weight, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("sample_weight does not hold plain numbers; pass one number per row") from None
    if weight.shape != (n,):
        raise ValueError(f"sample_weight has shape {weight.shape}, but there are {n} rows; pass one number per row")
    wrong = ~(np.isfinite(weight) & (weight >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"sample_weight is {weight[row]} in row {row}; weights must be finite and not negative")
    if not weight.any():
        raise ValueError(f"sample_weight is zero for all {n} rows; give at least one of them a positive weight")
    with np.errstate(over="ignore"):
        return weight if np.isfinite(weight.sum()) else weight / weight.max()


def group_numbers(groups: Any, n: int) -> NDArray[np.intp]:
    """Return the number of each of n rows' group, in the order in which groups first appear.

    A row whose group is missing (None, NaN, masked or an empty text) is a group by itself.

    Examples
    --------
    >>> group_numbers(["a", None, "b", "a", None], 5).tolist()
    [0, 1, 2, 0, 3]
    """
    advice = "pass one text or number per row, None where a row belongs to no group"
    if isinstance(groups, str | bytes | Mapping | Set) or not isinstance(groups, Iterable):
        raise ValueError(f"groups is {arguments.shown(groups)}; {advice}")
    if isinstance(groups, Tensor):
        groups = from_tensor(groups, "groups")
    shape = tuple(getattr(groups, "shape", (n,)))
    if shape == (n, 1):
        groups = np.asarray(groups)[:, 0]
    elif len(shape) != 1:
        raise ValueError(f"groups has shape {shape}; {advice}")
    values = groups.to_pylist() if hasattr(groups, "to_pylist") else list(groups)
    if len(values) != n:
        raise ValueError(f"groups has {len(values)} values, but there are {n} rows; {advice}")
    known: dict[Hashable, int] = {}
    numbers = np.empty(n, np.intp)
    for row, value in enumerate(map(plain, values)):
        try:
            # Nothing else equals a new object.
            numbers[row] = known.setdefault(object() if is_missing(value, blank=True) else value, len(known))
        except TypeError:  # of what has no hash, such as a list
            raise ValueError(f"groups holds {arguments.shown(value)} in row {row}; {advice}") from None
    return numbers


def label_weights(weights: Any, S: Candidates) -> Any:
    """Return weights of candidates as an array (n, C); columns of a data frame are matched with the class names."""
    names = labels.column_names(weights)
    if names is None:
        return unmasked(weights) if isinstance(weights, np.ma.MaskedArray) else weights
    position = {name: j for j, name in enumerate(names)}
    if position.keys() != set(S.classes):
        raise ValueError(
            f"weights has the columns {listed(map(repr, names))}, but the classes are {listed(map(repr, S.classes))}; "
            "use the same names, or pass an array with its columns in the order of the classes"
        )
    return np.asarray(weights)[:, [position[name] for name in S.classes]]
