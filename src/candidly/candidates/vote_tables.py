"""Read votes from tables and data frames: which worker gave which label to which task."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates.frames import as_frame, far_date
from candidly.candidates.labels import check_spelling, sorted_names
from candidly.candidates.values import as_integers, as_text, is_missing, plain
from candidly.messages import did_you_mean, listed_names


@dataclass(frozen=True, eq=False)
class VoteTable:
    """Votes as numbers: the k-th is by `workers[worker[k]]`, for `classes[label[k]]`, on `tasks[task[k]]`.

    Parameters
    ----------
    tasks, workers, classes
        Names, in the order of their numbers.
    task, worker, label
        Numbers, one each per vote.
    notes
        Warnings for the user.
    """

    tasks: Sequence[Hashable]
    workers: Sequence[Hashable]
    classes: Sequence[Hashable]
    task: NDArray[np.int64]
    worker: NDArray[np.int64]
    label: NDArray[np.int64]
    notes: tuple[str, ...] = ()

    def select(self, tasks: NDArray[np.integer[Any]]) -> "VoteTable":
        """Return the votes on some tasks, by number, in this order; workers without votes on them are left out.

        Examples
        --------
        >>> found = tidy(read_wide({"ann": ["dog", "cat"], "bob": ["cat", ""]}, ["ann", "bob"], None, None), None)
        >>> found.select(np.array([1])).workers, found.select(np.array([1, 0])).task.tolist()
        (('ann',), [0, 1, 1])
        """
        position = np.full(len(self.tasks), -1)
        position[tasks] = np.arange(len(tasks))
        task = position[self.task]
        order = np.argsort(task, kind="stable")
        order = order[task[order] >= 0]
        used, worker = np.unique(self.worker[order], return_inverse=True)
        return VoteTable(
            tuple(self.tasks[i] for i in tasks.tolist()),
            tuple(self.workers[w] for w in used.tolist()),
            self.classes,
            task[order],
            worker,
            self.label[order],
        )


def read_long(table: Any, roles: dict[str, Hashable], fixed: tuple[Hashable, ...] | None) -> VoteTable:
    """Return the votes of a table with one row per vote.

    Examples
    --------
    >>> roles = {role: role for role in ("task", "worker", "label")}
    >>> found = read_long([{"task": 7, "worker": "ann", "label": "cat"}], roles, None)
    >>> found.tasks, found.workers, found.classes, found.label.tolist()
    ([7], ['ann'], ['cat'], [0])
    """
    reader = _Reader(table, list(roles.items()))
    if len(set(roles.values())) < len(roles):
        raise ValueError("task, worker and label name a column twice; name three columns")
    known: dict[str, dict[Hashable, int]] = {"task": {}, "worker": {}, "label": _codes(fixed)}
    codes = {role: _number(reader.read(name), name, known[role]) for role, name in roles.items()}
    for role in ("task", "worker"):
        _refuse_missing(codes[role], roles[role], role)
        _refuse_types(known[role], roles[role])
    _refuse_unknown(codes["label"], roles["label"], known["label"], fixed)
    rows = np.flatnonzero(codes["label"] >= 0)
    left_out = codes["label"].size - rows.size
    notes = (f"{left_out} rows have no label and are left out; fill or drop them",) if left_out else ()
    return VoteTable(
        tasks=list(known["task"]),
        workers=list(known["worker"]),
        classes=list(known["label"]),
        task=codes["task"][rows],
        worker=codes["worker"][rows],
        label=codes["label"][rows],
        notes=notes,
    )


def read_wide(
    table: Any, columns: Iterable[Hashable], task: Hashable | None, fixed: tuple[Hashable, ...] | None
) -> VoteTable:
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
    wanted = [("columns", name) for name in workers]
    if task is not None:
        wanted.append(("task", task))
    reader = _Reader(table, wanted)
    if len({task, *workers}) <= len(workers):
        raise ValueError("columns names a column twice, or the column of task=; list every worker's column once")
    known = _codes(fixed)
    rows = []
    labels = []
    for name in workers:
        codes = _number(reader.read(name), name, known)
        _refuse_unknown(codes, name, known, fixed)
        voted = np.flatnonzero(codes >= 0)
        rows.append(voted)
        labels.append(codes[voted])
    tasks = range(reader.rows) if task is None else _task_ids(reader.read(task), task)
    worker = np.repeat(np.arange(len(workers)), [part.size for part in rows])
    return VoteTable(tasks, workers, list(known), np.concatenate(rows), worker, np.concatenate(labels))


def tidy(found: VoteTable, fixed: tuple[Hashable, ...] | None) -> VoteTable:
    """Return every vote once, sorted by task, worker and label; classes are sorted, tasks without votes left out.

    Examples
    --------
    >>> found = read_wide({"ann": ["dog", None], "bob": ["cat", ""]}, ["ann", "bob"], None, None)
    >>> found = tidy(found, None)
    >>> found.tasks, found.classes, found.label.tolist()
    ((0,), ('cat', 'dog'), [1, 0])
    """
    if not found.label.size:
        raise ValueError("the table has no votes, all labels are missing; check which columns hold them")
    names = as_integers(found.classes)
    notes = list(found.notes)
    classes = fixed
    if classes is None:
        classes = sorted_names([names])
        check_spelling(classes, splitting="pass several votes")
    position = _codes(classes)
    label = np.array([position[name] for name in names])[found.label]
    voted = np.bincount(found.task, minlength=len(found.tasks)) > 0
    tasks = tuple(found.tasks[i] for i in np.flatnonzero(voted).tolist())
    if len(tasks) < len(found.tasks):
        left_out = len(found.tasks) - len(tasks)
        notes.append(f"{left_out} tasks have no vote and are left out; take the features of those in Votes.tasks")
    # One number per vote. It stays below 2**63, because a matrix of tasks by classes fits into memory.
    task = (np.cumsum(voted) - 1)[found.task]
    votes = (task * len(found.workers) + found.worker) * len(classes) + label
    once = np.unique(votes)
    if once.size < votes.size:
        repeated = votes.size - once.size
        notes.append(f"{repeated} votes repeat a worker's label for a task and count once; check why they are repeated")
    pair, label = np.divmod(once, len(classes))
    task, worker = np.divmod(pair, len(found.workers))
    return VoteTable(tasks, tuple(found.workers), classes, task, worker, label, tuple(notes))


def _task_ids(values: list[Any], column: Hashable) -> list[Hashable]:
    """Return the task ids of a wide table. Raise ValueError if one is missing or repeated."""
    known: dict[Hashable, int] = {}
    codes = _number(values, column, known)
    _refuse_missing(codes, column, "task")
    _refuse_types(known, column)
    if len(known) < codes.size:
        row = int(np.argmax(codes < np.arange(codes.size)))
        raise ValueError(f"row {row} repeats task {values[row]!r}; a wide table has one row per task, merge the rows")
    return list(known)


def _codes(names: Iterable[Hashable] | None) -> dict[Hashable, int]:
    return {name: j for j, name in enumerate(names or ())}


def _number(values: list[Any], column: Hashable, known: dict[Hashable, int]) -> NDArray[np.int64]:
    """Return a number for each value of a column, −1 where it is missing. New values are added to `known`.

    The loop runs over distinct values only; building the dictionary and looking values up run in C.
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
        name = plain(value)
        if not is_missing(name, blank=True):
            codes[value] = known.setdefault(name, len(known))
    return np.fromiter(map(codes.__getitem__, values), np.int64, len(values))


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _refuse_missing(codes: NDArray[np.int64], column: Hashable, role: str) -> None:
    if codes.min() < 0:
        raise ValueError(f"row {np.argmin(codes)} has no {role} in column {column!r}; fill it or drop the row")


def _refuse_types(known: dict[Hashable, int], column: Hashable) -> None:
    """Raise ValueError if names differ only by their type, such as 1 and "1"."""
    texts: dict[str, Hashable] = {}
    for name in known if len(set(map(type, known))) > 1 else ():
        other = texts.setdefault(as_text(name), name)
        if other is not name:
            raise ValueError(f"column {column!r} has {other!r} and {name!r}; convert it to one type")


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
            if not isinstance(name, Hashable) or name not in self.names:
                hint = did_you_mean(name, self.names)
                raise ValueError(
                    f"the table has no column {name!r}{hint}; name it with {argument}=, out of "
                    f"{listed_names(self.names)}"
                )

    def read(self, name: Hashable) -> list[Any]:
        """Return the values of a column."""
        column = self._column(name)
        single = getattr(column, "ndim", 1) == 0 or isinstance(column, (str, bytes, Mapping))
        if single or not isinstance(column, Iterable):
            raise ValueError(f"column {name!r} is a {type(column).__name__}; pass a list with one value per row")
        values = _listed(column, name)
        if not values:
            raise ValueError("the table has no rows; pass at least one vote")
        if self.rows not in (0, len(values)):
            raise ValueError(
                f"column {name!r} has {len(values)} rows, others {self.rows}; pass columns of equal length"
            )
        self.rows = len(values)
        return values


def _open_frame(table: Any) -> tuple[list[Any], Callable[[Any], Any]]:
    """Return the column names of a data frame, and a function that returns a column."""
    frame = as_frame(table, "the table")
    if frame is not None:
        return list(frame.columns), frame.get_column
    raise ValueError(
        f"the table is a {type(table).__name__}; pass a pandas, polars or Arrow table, a dict of columns, a list of "
        "dicts or a structured array"
    )


def _listed(column: Any, name: Hashable) -> list[Any]:
    import narwhals.stable.v2 as nw

    series = nw.from_native(column, series_only=True, pass_through=True)
    if isinstance(series, nw.Series):
        if far_date(series):
            raise ValueError(f"column {name!r} has dates outside of the years 1 to 9999; pass them as text")
        if series.dtype == nw.Categorical and series.implementation.is_pyarrow():
            # Listing a million dictionary-encoded values takes Arrow seconds; plain values are fast.
            native = series.to_native()
            series = nw.from_native(native.cast(native.type.value_type), series_only=True)
        # Not as an array of integers: a missing value would turn them into floats.
        column = series.to_numpy() if series.dtype.is_float() else series.to_list()
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        # Each NaN would be a distinct value.
        missing = np.isnan(column)
        column = column.astype(object)
        column[missing] = None
    if isinstance(column, np.ndarray) and column.dtype.kind in "Mm":
        return list(column)  # as Python values, those in nanoseconds would be integers
    values: list[Any] = column.tolist() if hasattr(column, "tolist") else list(column)
    return values
