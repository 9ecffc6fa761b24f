"""A user's table with candidates in one of its columns, or with votes in another table: features, sets, ids, labels.

Here features stay as they are, text and gaps included; `candidly.data.read_table` makes a matrix of numbers.
"""

import difflib
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates import Candidates
from candidly.candidates.votes import Votes, from_annotations
from candidly.messages import warn
from candidly.tables import class_columns as sets
from candidly.tables import files
from candidly.tables.class_columns import Names
from candidly.tables.schema import Schema

__all__ = ["Ballot", "Labelled", "read", "read_votes"]

INDEX = re.compile(r"|Unnamed: 0(\.\d+)*|__index_level_\d+__")  # what pandas calls an index without a name


SHOWN = 20  # names in a message, at most


@dataclass(frozen=True)
class Ballot:
    """Which columns of a table hold votes: `task`, `worker` and `label`, or `task` and one column per annotator."""

    task: str | None = None
    worker: str | None = None
    label: str | None = None
    annotators: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.annotators is not None and (self.worker or self.label):
            raise ValueError("--annotators is for wide tables, --worker and --label for long ones; leave one out")
        if self.annotators is not None and self.task is None:
            raise ValueError("--annotators needs --task, the column that names the rows; name it")

    @property
    def named(self) -> list[tuple[str, str]]:
        """The columns that are read, the tasks' first, each after its option."""
        others = [("--worker", self.worker or "worker"), ("--label", self.label or "label")]
        if self.annotators is not None:
            others = [("--annotators", column) for column in self.annotators]
        return [("--task", self.task or "task"), *others]

    @property
    def columns(self) -> list[str]:
        """Their names alone."""
        return [column for _, column in self.named]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows with candidates.

    Attributes
    ----------
    title : str
        The table's name.
    features : pyarrow.Table
        The columns to learn from.
    candidates : Candidates
        Candidate sets, with names that are text.
    schema : Schema
        What the other columns were; `drop` also lists what was left out unasked.
    id_column : pyarrow.ChunkedArray or None
        The column of ids as it was.
    ids : list of str or None
        The ids as text.
    labels : list of str or None
        True labels as text, None where they are not known; None if no column has them.
    weights : ndarray, shape (n, C), or None
        Shares of votes.
    """

    title: str
    features: Any
    candidates: Candidates
    schema: Schema
    id_column: Any = None
    ids: list[str] | None = None
    labels: list[str | None] | None = None
    weights: NDArray[np.float64] | None = None


def read(
    source: files.Place,
    schema: Schema,
    *,
    classes: Sequence[str] | None = None,
) -> Labelled:
    r"""Read a table with a column of candidates.

    Parameters
    ----------
    source : path or "-"
        As in `candidly.tables.files.read`.
    schema : Schema
        Which column is what.
    classes : sequence of str, optional
        All class names, in this order; then no other may occur. By default those that are found, sorted.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("id,weight,candidates\na,4.5,cat|dog\nb,9,dog\n")
    ...     file.flush()
    ...     rows = read(file.name, Schema("candidates", id="id"))
    >>> rows.ids, rows.features.column_names, rows.candidates.decode()
    (['a', 'b'], ['weight'], [('cat', 'dog'), ('dog',)])
    """
    table = files.read(source, delimiter=schema.delimiter, texts=schema.named.values())
    name = name_of(source)
    features, schema = _choose(table, name, schema)
    assert schema.candidates is not None, "the caller names the column"
    found = sets.read_sets(table.column(schema.candidates), name, schema.candidates, Names(schema.separator, classes))
    return _collect(table, name, features, schema, found)


def read_votes(
    votes: files.Place,
    ballot: Ballot,
    source: files.Place,
    schema: Schema,
    *,
    classes: Sequence[str] | None = None,
    min_votes: int = 1,
    min_share: float = 0.0,
) -> tuple[Labelled, Votes]:
    """Read a table of votes and the table with the features of their tasks, in whose order rows come back.

    Parameters
    ----------
    votes, source : path or "-"
        The two tables; "-" can be one of them.
    ballot : Ballot
        Which column of the votes is what.
    schema : Schema
        Which column of the features is what; the ids are the tasks, by default in a column of the same name.
    classes
        As in `read`.
    min_votes, min_share
        As in `candidly.candidates.from_annotations`.

    Raises
    ------
    ValueError
        Also when a task has no features.

    Warns
    -----
    UserWarning
        When rows of the features have no votes: they are left out.
    """
    found = files.read(votes, delimiter=schema.delimiter, texts=ballot.columns)
    schema = replace(schema, candidates=None, id=schema.id or ballot.columns[0])
    table = files.read(source, delimiter=schema.delimiter, texts=schema.named.values())
    name = name_of(source)
    if ballot.annotators is not None:  # which are no features, should the two tables be one
        there = [column for column in ballot.annotators if column in table.column_names and column not in schema.drop]
        schema = replace(schema, drop=[*schema.drop, *there])
    features, schema = _choose(table, name, schema)
    counted = _count(found, name_of(votes), ballot, classes, min_votes, min_share)
    rows, order = _match(table.column(schema.id), name, schema, [_text(task) for task in counted.tasks], name_of(votes))
    candidates = Candidates(counted.candidates.matrix[order], tuple(map(str, counted.candidates.classes)))
    return _collect(table.take(rows), name, features, schema, candidates, counted.weights()[order]), counted


def column_texts(column: Any) -> list[str | None]:
    """Return the values of a column as text, whole numbers without a point, and None where one is missing.

    Examples
    --------
    >>> import pyarrow as pa
    >>> column_texts(pa.chunked_array([[7.0, None, 0.5]]))
    ['7', None, '0.5']
    """
    return [None if value is None or value != value else _text(value) for value in column.to_pylist()]


def _text(value: Hashable) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def name_of(source: files.Place) -> str:
    """Return what messages call a table.

    Examples
    --------
    >>> name_of("birds.csv"), name_of("-")
    ('birds.csv', 'standard input')
    """
    return "standard input" if source == "-" else str(source)


def _choose(table: Any, name: str, schema: Schema) -> tuple[list[str], Schema]:
    """Check the schema; return the columns that are features, and the schema with what is left out unasked."""
    columns = table.column_names
    given = [
        *((f"--{role}", column) for role, column in schema.named.items()),
        *(("--drop", name) for name in schema.drop),
    ]
    for option, column in given:
        check_column(table, name, column, option)
    taken: dict[str, str] = {}
    for option, column in given:
        if column in taken:
            raise ValueError(f"{taken[column]} and {option} both name the column {column!r}; take it out of one")
        taken[column] = option
    index = [column for column in columns if column not in taken and INDEX.fullmatch(column)]
    features = [column for column in columns if column not in taken and column not in index]
    if not features:
        raise ValueError(f"{name} has no column of features beside {_list(columns)}; add one")
    check_types(table.select(features), name)
    suspects = [column for column in features if column.strip().casefold() in ("label", "labels", "true", "target")]
    if suspects:
        warn(f"{name}: {suspects[0]!r} is a feature; if it holds true labels, name it with --labels or --drop")
    if index:
        warn(f"{name}: left out {_list(index)}, which looks like the index of a data frame; rename it to keep it")
    return features, replace(schema, drop=[*schema.drop, *index])


def check_column(table: Any, name: str, column: str, option: str) -> None:
    """Check that a table of this name has the column that an option names."""
    columns = table.column_names
    if column not in columns:
        near = difflib.get_close_matches(column, columns, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{name} has no column {column!r}{hint}; name another with {option}, out of {_list(columns)}")


def check_types(table: Any, name: str) -> None:
    """Check that a table of this name has no column of a type that is neither number, date nor text."""
    from pyarrow import types

    for field in table.schema:
        kind = field.type
        if types.is_nested(kind) or types.is_time(kind) or types.is_binary(kind) or types.is_large_binary(kind):
            raise ValueError(
                f"{name}: column {field.name!r} has type {kind}; convert it to numbers or text, or drop it"
            )


def _list(columns: Iterable[str]) -> str:
    (*names,) = map(repr, columns)
    return ", ".join(names[:SHOWN]) + f" and {len(names) - SHOWN} more" * (len(names) > SHOWN)


def _count(
    table: Any, name: str, ballot: Ballot, classes: Sequence[str] | None, min_votes: int, min_share: float
) -> Votes:
    import pyarrow as pa
    import pyarrow.compute as pc

    for option, column in ballot.named:
        check_column(table, name, column, option)
    task, *others = ballot.columns
    holders = others if ballot.annotators is not None else others[1:]
    check_types(table.select(holders), name)
    for column in holders:
        place = table.column_names.index(column)
        table = table.set_column(place, column, table.column(column).cast(pa.string()))
    if classes is None:
        labels = pa.chunked_array([chunk for column in holders for chunk in table.column(column).chunks])
        tasks = pc.count_distinct(table.column(task)).as_py()
        sets.check_number(name, pc.count_distinct(labels).as_py(), tasks, f"does {holders[0]!r} hold labels")
    try:
        columns = None if ballot.annotators is None else list(ballot.annotators)
        return from_annotations(
            table,
            task=ballot.task,
            worker=ballot.worker,
            label=ballot.label,
            columns=columns,
            classes=classes,
            min_votes=min_votes,
            min_share=min_share,
        )
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _match(
    column: Any, name: str, schema: Schema, tasks: list[str], votes: str
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows that have votes, and the place of each among the tasks."""
    ids = _read_ids(column, name, str(schema.id))
    place = {task: j for j, task in enumerate(tasks)}
    lacking = set(place) - set(ids)
    if lacking:
        first = next(task for task in tasks if task in lacking)
        raise ValueError(
            f"{name} has no row for {len(lacking)} of {len(tasks)} tasks of {votes}, such as {first!r} in column "
            f"{schema.id!r}; add them, or name the column with --id"
        )
    rows = np.array([i for i, one in enumerate(ids) if one in place], np.intp)
    if len(rows) < len(ids):
        first = next(one for one in ids if one not in place)
        warn(f"{name}: left out {len(ids) - len(rows)} of {len(ids)} rows that have no votes, such as {first!r}")
    return rows, np.array([place[ids[i]] for i in rows], np.intp)


def _collect(
    table: Any,
    name: str,
    features: list[str],
    schema: Schema,
    candidates: Candidates,
    weights: NDArray[np.float64] | None = None,
) -> Labelled:
    wrong = next((one for one in candidates.classes if str(one).endswith("\0")), None)
    if wrong is not None:  # arrays of text lose it
        raise ValueError(f"{name}: the class {wrong!r} ends in a null character; rename it")
    id_column = None if schema.id is None else table.column(schema.id)
    ids = None if schema.id is None else _read_ids(id_column, name, schema.id)
    labels = (
        None if schema.labels is None else _read_labels(table.column(schema.labels), name, schema.labels, candidates)
    )
    title = Path(name).name
    return Labelled(title, table.select(features), candidates, schema, id_column, ids, labels, weights)


def _read_ids(column: Any, name: str, id_: str) -> list[str]:
    """Return the ids as text, all there and all different."""
    ids: list[str] = []
    known: dict[str, int] = {}
    for row, text in enumerate(column_texts(column)):
        if not text:
            raise ValueError(f"{name}: row {row} has no id in column {id_!r}; fill it or drop the row")
        if text in known:
            raise ValueError(
                f"{name}: rows {known[text]} and {row} have the same id {text!r} in column {id_!r}; rename one"
            )
        known[text] = row
        ids.append(text)
    return ids


def _read_labels(column: Any, name: str, labels: str, candidates: Candidates) -> list[str | None]:
    """Return the true labels; those that are no class cannot be scored."""
    known, found = set(candidates.classes), column_texts(column)
    texts = [text if text is None or text in known else text.removesuffix(".0") for text in found]
    strange = [row for row, text in enumerate(texts) if text and text not in known]
    if strange:
        warn(
            f"{name}: {len(strange)} labels in column {labels!r} are no class, such as {texts[strange[0]]!r} in row "
            f"{strange[0]}; these rows are not scored"
        )
    return [text or None for text in texts]
