"""Votes in a table of any supported kind, as numbers: which label, by which worker, on which task."""

import difflib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates import encode
from candidly.candidates.frames import as_frame

_SHOWN = 20  # column names in a message, at most


@dataclass(frozen=True, eq=False)
class Ballots:
    """Votes: the k-th is for `classes[label[k]]`, by `workers[worker[k]]` on `tasks[task[k]]`.

    Parameters
    ----------
    tasks, workers, classes
        Names, in the order of their numbers.
    task, worker, label
        Numbers, one each per vote.
    notes
        What the user should be told.
    """

    tasks: Sequence[Hashable]
    workers: Sequence[Hashable]
    classes: Sequence[Hashable]
    task: NDArray[np.int64]
    worker: NDArray[np.int64]
    label: NDArray[np.int64]
    notes: tuple[str, ...] = ()


def read_long(table: Any, roles: dict[str, Hashable], fixed: tuple[Hashable, ...] | None) -> Ballots:
    """Return the votes of a table with one row per vote.

    Examples
    --------
    >>> roles = {role: role for role in ("task", "worker", "label")}
    >>> found = read_long([{"task": 7, "worker": "ann", "label": "cat"}], roles, None)
    >>> found.tasks, found.workers, found.classes, found.label.tolist()
    ([7], ['ann'], ['cat'], [0])
    """
    if len(set(roles.values())) < len(roles):
        raise ValueError("task, worker and label name one column twice; name three columns")
    reader = _Reader(table, list(roles.items()))
    known: dict[str, dict[Hashable, int]] = {"task": {}, "worker": {}, "label": _codes(fixed)}
    codes = {role: _number(reader.read(name), name, known[role]) for role, name in roles.items()}
    for role in ("task", "worker"):
        _refuse_missing(codes[role], roles[role], role)
    _refuse_unknown(codes["label"], roles["label"], known["label"], fixed)
    rows = np.flatnonzero(codes["label"] >= 0)
    left_out = codes["label"].size - rows.size
    notes = (f"{left_out} rows have no label and are left out; fill or drop them",) if left_out else ()
    tasks, workers, classes = (list(known[role]) for role in ("task", "worker", "label"))
    return Ballots(tasks, workers, classes, codes["task"][rows], codes["worker"][rows], codes["label"][rows], notes)


def read_wide(
    table: Any, columns: Iterable[Hashable], task: Hashable | None, fixed: tuple[Hashable, ...] | None
) -> Ballots:
    """Return the votes of a table with one row per task and one column per worker.

    Examples
    --------
    >>> found = read_wide({"ann": ["cat", "dog"], "bob": [None, "cat"]}, ["ann", "bob"], None, None)
    >>> found.task.tolist(), found.worker.tolist(), found.label.tolist()
    ([0, 1, 1], [0, 0, 1], [0, 1, 0])
    """
    if isinstance(columns, (str, bytes)):
        raise ValueError(f"columns is the single text {columns!r}; pass a list of columns")
    workers = list(columns)
    if not workers:
        raise ValueError("columns is empty; list the columns that hold the workers' labels")
    if len({task, *workers}) <= len(workers):
        raise ValueError("columns names one column twice, or that of task=; list every worker's column once")
    reader = _Reader(table, [("columns", name) for name in workers] + ([] if task is None else [("task", task)]))
    known, rows, labels = _codes(fixed), [], []
    for name in workers:
        codes = _number(reader.read(name), name, known)
        _refuse_unknown(codes, name, known, fixed)
        rows.append(np.flatnonzero(codes >= 0))
        labels.append(codes[rows[-1]])
    tasks = range(reader.rows) if task is None else _task_ids(reader.read(task), task)
    worker = np.repeat(np.arange(len(workers)), [part.size for part in rows])
    return Ballots(tasks, workers, list(known), np.concatenate(rows), worker, np.concatenate(labels))


def tidy(found: Ballots, fixed: tuple[Hashable, ...] | None) -> Ballots:
    """Return every vote once, sorted by task, worker and label; classes are in order, tasks without votes left out.

    Examples
    --------
    >>> found = read_wide({"ann": ["dog", None], "bob": ["cat", ""]}, ["ann", "bob"], None, None)
    >>> found = tidy(found, None)
    >>> found.tasks, found.classes, found.label.tolist()
    ((0,), ('cat', 'dog'), [1, 0])
    """
    if not found.label.size:
        raise ValueError("the table has no votes, all labels are missing; check which columns hold them")
    names, notes = _whole(found.classes), list(found.notes)
    classes = encode([set(names)]).classes if fixed is None else fixed
    place = _codes(classes)
    label = np.array([place[name] for name in names])[found.label]
    voted = np.bincount(found.task, minlength=len(found.tasks)) > 0
    tasks = tuple(found.tasks[i] for i in np.flatnonzero(voted).tolist())
    if len(tasks) < len(found.tasks):
        left_out = len(found.tasks) - len(tasks)
        notes.append(f"{left_out} tasks have no vote and are left out; take the features of those in Votes.tasks")
    # Counts of tasks by classes fit into memory, so that their number times that of workers stays below 2**63.
    votes = ((np.cumsum(voted) - 1)[found.task] * len(found.workers) + found.worker) * len(classes) + label
    once = np.unique(votes)
    if once.size < votes.size:
        repeated = votes.size - once.size
        notes.append(f"{repeated} votes repeat a worker's label for a task and count once; check where they come from")
    pair, label = np.divmod(once, len(classes))
    task, worker = np.divmod(pair, len(found.workers))
    return Ballots(tasks, tuple(found.workers), classes, task, worker, label, tuple(notes))


def _whole(names: Sequence[Hashable]) -> list[Hashable]:
    """Return names that are all whole numbers as integers: missing labels made them floating-point numbers."""
    if all(isinstance(name, int) or (isinstance(name, float) and name.is_integer()) for name in names):
        return [int(name) if isinstance(name, float) else name for name in names]
    return list(names)


def _task_ids(values: list[Any], column: Hashable) -> list[Hashable]:
    """Return the task ids of a wide table, which are all there and all different."""
    known: dict[Hashable, int] = {}
    codes = _number(values, column, known)
    _refuse_missing(codes, column, "task")
    if len(known) < codes.size:
        row = int(np.argmax(codes < np.arange(codes.size)))
        raise ValueError(f"row {row} repeats task {values[row]!r}; a wide table has one row per task, merge the rows")
    return list(known)


def _codes(names: Iterable[Hashable] | None) -> dict[Hashable, int]:
    return {name: j for j, name in enumerate(names or ())}


def _number(values: list[Any], column: Hashable, known: dict[Hashable, int]) -> NDArray[np.int64]:
    """Return a number for each value of a column; new ones are added to those known, missing ones are −1.

    Only distinct values are looked at in Python: building a dictionary and looking up in it run in C.
    """
    try:
        codes = dict.fromkeys(values, -1)
    except TypeError:
        row = next(row for row, value in enumerate(values) if not _is_hashable(value))
        raise ValueError(
            f"row {row} holds a {type(values[row]).__name__} in column {column!r}; pass one text or number there, and "
            "several labels as several votes"
        ) from None
    for value in codes:
        plain = value.item() if getattr(value, "ndim", None) == 0 else value
        if not _is_missing(plain):
            codes[value] = known.setdefault(plain, len(known))
    return np.fromiter(map(codes.__getitem__, values), np.int64, len(values))


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_missing(value: Any) -> bool:
    if isinstance(value, (str, bytes)):
        return not value.strip()
    # NaN differs from itself; pandas' NA compared with itself is neither True nor False.
    return value is None or (value != value) is not False


def _refuse_missing(codes: NDArray[np.int64], column: Hashable, role: str) -> None:
    if codes.min() < 0:
        raise ValueError(f"row {np.argmin(codes)} has no {role} in column {column!r}; fill it or drop the row")


def _refuse_unknown(
    codes: NDArray[np.int64], column: Hashable, known: dict[Hashable, int], fixed: tuple[Hashable, ...] | None
) -> None:
    if fixed is not None and len(known) > len(fixed):
        raise ValueError(
            f"row {np.argmax(codes >= len(fixed))} has the label {list(known)[len(fixed)]!r} in column {column!r}, "
            "which is not in classes; add it there or correct the row"
        )


class _Reader:
    """The columns of a table of any supported kind.

    Parameters
    ----------
    table
        As in `from_annotations`.
    wanted
        The columns that will be read, each after the argument that names it.
    """

    def __init__(self, table: Any, wanted: list[tuple[str, Hashable]]) -> None:
        self.rows = 0
        self.names: list[Any]
        if isinstance(table, Mapping):
            self.names, self._column = list(table), table.__getitem__
        elif isinstance(table, (list, tuple)) and all(isinstance(row, Mapping) for row in table):
            self.names = list(dict.fromkeys(chain.from_iterable(table)))
            self._column = lambda name: [row.get(name) for row in table]
        elif isinstance(table, np.ndarray) and table.dtype.names and table.ndim == 1:
            self.names, self._column = list(table.dtype.names), table.__getitem__
        else:
            self.names, self._column = _open_frame(table)
        if not self.names:
            raise ValueError("the table is empty; pass at least one vote")
        for argument, name in wanted:
            if name not in self.names:
                raise ValueError(self._not_there(argument, name))

    def read(self, name: Hashable) -> list[Any]:
        """Return the values of a column."""
        column = self._column(name)
        single = getattr(column, "ndim", 1) == 0 or isinstance(column, (str, bytes, Mapping))
        if single or not isinstance(column, Iterable):
            raise ValueError(f"column {name!r} is a {type(column).__name__}; pass a list with one value per row")
        values = _listed(column)
        if not values:
            raise ValueError("the table has no rows; pass at least one vote")
        if self.rows not in (0, len(values)):
            raise ValueError(f"column {name!r} has {len(values)} rows, others {self.rows}; pass columns of one length")
        self.rows = len(values)
        return values

    def _not_there(self, argument: str, name: Hashable) -> str:
        folded = {str(other).strip().casefold(): other for other in self.names}
        near = difflib.get_close_matches(str(name).strip().casefold(), folded, n=1)
        hint = f" (did you mean {folded[near[0]]!r}?)" if near else ""
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        columns = ", ".join(map(repr, self.names[:_SHOWN])) + more
        return f"the table has no column {name!r}{hint}; name it with {argument}=, out of {columns}"


def _open_frame(table: Any) -> tuple[list[Any], Callable[[Any], Any]]:
    """Return the column names of a data frame, and what reads a column."""
    frame = as_frame(table, "the table")
    if frame is not None:
        return list(frame.columns), frame.get_column
    raise ValueError(
        f"the table is a {type(table).__name__}; pass a pandas, polars or Arrow table, a dict of columns, a list of "
        "dicts or a structured array"
    )


def _listed(column: Any) -> list[Any]:
    import narwhals.stable.v2 as nw

    series = nw.from_native(column, series_only=True, pass_through=True)
    if isinstance(series, nw.Series):
        if series.dtype == nw.Categorical and series.implementation.is_pyarrow():
            # Arrow takes seconds to list a million categories, unless they are plain values.
            column = series.to_native().cast(series.to_native().type.value_type).to_pylist()
        else:
            # In arrays, integers beside a missing one would be floats.
            column = series.to_numpy() if series.dtype.is_float() else series.to_list()
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        # Every NaN would be another value to look at.
        missing, column = np.isnan(column), column.astype(object)
        column[missing] = None
    values: list[Any] = column.tolist() if hasattr(column, "tolist") else list(column)
    return values
