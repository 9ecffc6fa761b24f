"""A user's table with a column of candidates, or with votes in another table: features, candidate sets, ids, labels.

Features are kept unchanged, including text and missing values; `candidly.data.read_table` returns a matrix of numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates import Candidates
from candidly.candidates.values import as_text, integer_text, is_missing
from candidly.candidates.votes import Votes, from_annotations
from candidly.checks import arguments
from candidly.messages import option, warn
from candidly.tables import class_columns, exports, files
from candidly.tables.class_columns import Names
from candidly.tables.provenance import check_encoders
from candidly.tables.schema import OPTIONS, Schema, check_column, choose_features

__all__ = [
    "Labelled",
    "VoteColumns",
    "check_types",
    "column_texts",
    "name_of",
    "read_ids",
    "read_labelled",
    "read_votes",
    "split_table",
    "text_columns",
]

# A column of candidates with more classes per row, in a table of at least this many rows, causes a warning.
_MIN_ROWS, _MOST_CLASSES = 20, 0.8
_A_SCHEMA = "a candidly.tables.Schema, such as Schema('candidates')"


@dataclass(frozen=True)
class VoteColumns:
    """Which columns of a table hold votes: `task`, `worker` and `label`, or `task` and one column per annotator.

    `delimiter` is that of the table if it is a CSV file; by default, it is that of the features.
    """

    task: str | None = None
    worker: str | None = None
    label: str | None = None
    annotators: Sequence[str] | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        if self.annotators is not None and (self.worker or self.label):
            raise ValueError("annotators is for wide tables, worker and label are for long ones; leave one out")
        if self.annotators is not None and self.task is None:
            raise ValueError(f"annotators needs the column of task ids; name it with {option('task')}")

    @property
    def named(self) -> list[tuple[str, str]]:
        """The columns that are read, each after its option. The tasks come first."""
        task = (option("task"), self.task or "task")
        if self.annotators is not None:
            return [task, *((option("annotators"), column) for column in self.annotators)]
        worker = (option("worker"), self.worker or "worker")
        label = (option("label"), self.label or "label")
        return [task, worker, label]

    @property
    def columns(self) -> list[str]:
        """The names of the columns that are read."""
        return [column for _, column in self.named]


@dataclass(frozen=True, eq=False)
class Unvoted:
    """Rows of the features that have no votes.

    Attributes
    ----------
    features : pyarrow.Table
        The columns to learn from.
    id_column : pyarrow.ChunkedArray
        The column of ids, unchanged.
    labels : list of str or None
        True labels as text, None where they are unknown; None if there is no column of labels.
    place : ndarray of int
        The numbers of these rows in the table; the rows with votes have the other numbers, in their order.
    """

    features: Any
    id_column: Any
    labels: list[str | None] | None
    place: NDArray[np.intp]


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
        What the other columns were; `drop` also lists the index columns that were left out.
    id_column : pyarrow.ChunkedArray or None
        The column of ids, unchanged.
    ids : list of str or None
        The ids as text.
    labels : list of str or None
        True labels as text, None where they are unknown; None if there is no column of labels.
    groups : list of str or None
        The group of each row as text, None where it has none; None if there is no column of groups.
    votes : Votes or None
        The votes on the rows, in their order; None if candidates were read from a column.
    unvoted : Unvoted or None
        Rows without votes; None if there are none.
    export : Export or None
        The tasks of an annotation tool, if votes were read from its export.
    """

    title: str
    features: Any
    candidates: Candidates
    schema: Schema
    id_column: Any = None
    ids: list[str] | None = None
    labels: list[str | None] | None = None
    groups: list[str | None] | None = None
    votes: Votes | None = None
    unvoted: Unvoted | None = None
    export: exports.Export | None = None

    @property
    def target(self) -> Candidates | Votes:
        """What `PartialLabelClassifier.fit` takes as y: the votes, or the candidates."""
        return self.candidates if self.votes is None else self.votes

    @property
    def weights(self) -> NDArray[np.float64] | None:
        """Fractions of the votes, shape (n, C); None if there are no votes."""
        return None if self.votes is None else self.votes.weights()


def read_labelled(
    source: files.FilePath,
    schema: Schema,
    *,
    classes: Sequence[str] | None = None,
    like: Schema | None = None,
    texts: Sequence[str] = (),
) -> Labelled:
    r"""Read a table with a column of candidates.

    Parameters
    ----------
    source : path or "-"
        As in `candidly.tables.files.read`.
    schema : Schema
        Which column is what.
    classes : sequence of str, optional
        All class names, in this order; other names are refused. By default those that are found, sorted.
    like : Schema, optional
        The schema of another table, such as the one that a model was trained on: its columns have the same roles here,
        where `schema` leaves them open.
    texts : sequence of str
        Features to read as text even if all their values are numbers.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("id,weight,candidates\na,4.5,cat|dog\nb,9,dog\n")
    ...     file.flush()
    ...     rows = read_labelled(file.name, Schema("candidates", id="id"))
    >>> rows.ids, rows.features.column_names, rows.candidates.decode()
    (['a', 'b'], ['weight'], [('cat', 'dog'), ('dog',)])
    """
    arguments.instance("schema", schema, Schema, _A_SCHEMA)
    return split_table(_read(source, schema, like, texts), name_of(source), schema, classes=classes, like=like)


def split_table(
    table: Any,
    name: str,
    schema: Schema,
    *,
    classes: Sequence[str] | None = None,
    like: Schema | None = None,
    start: int = 0,
) -> Labelled:
    """Split a table, or a block of its rows, into features, candidates, ids and labels.

    Parameters
    ----------
    table : pyarrow.Table
        The rows. Columns of CSV with a role must have been read as text (`text_columns`).
    name : str
        The file, for messages.
    schema, classes, like
        As in `read_labelled`. A block of rows needs `classes`, because it may not have all of them.
    start : int
        The number of the first row, for messages.
    """
    schema = schema.completed(like, table.column_names)
    if schema.candidates is None:
        raise ValueError(f"{name}: no column of candidates is named; name it with {OPTIONS['candidates']}")
    features, schema = choose_features(table, name, schema)
    _check_encoders(schema, like, name)
    check_types(table.select(features), name)
    found = class_columns.read_sets(table, name, str(schema.candidates), Names(schema.separator, classes), start)
    if classes is None and len(found) >= _MIN_ROWS and len(found.classes) > _MOST_CLASSES * len(found):
        warn(
            f"{name}: column {schema.candidates!r} has {len(found.classes)} classes in {len(found)} rows, nearly one "
            f"per row; check that it holds candidates, and name another column with {OPTIONS['candidates']} if not"
        )
    return _collect(table, name, features, schema, found, start=start)


def read_votes(
    votes: files.FilePath,
    columns: VoteColumns,
    source: files.FilePath | None,
    schema: Schema,
    *,
    classes: Sequence[str] | None = None,
    min_votes: int = 1,
    min_share: float = 0.0,
    anonymous: bool = False,
    skip_tasks: bool = False,
    like: Schema | None = None,
    texts: Sequence[str] = (),
) -> tuple[Labelled, Votes]:
    """Read a table of votes and the table with the features of their tasks; rows are in the order of the features.

    Parameters
    ----------
    votes : path or "-"
        The votes: a table; or what Label Studio or Argilla exported, as JSON or as a table with columns such as
        ``label.responses``.
    source : path, "-" or None
        The features; None if they are the fields of the tasks in an export. "-" can be one of the two.
    columns : VoteColumns
        Which column of the votes is what. For an export, `task` names the field with the ids of tasks, and `label` the
        control tag or question.
    schema : Schema
        Which column of the features is what. The ids are the tasks; by default their column has the same name as in
        the votes. The groups may also be a column of the votes, if the table of features has no such column.
    classes, like, texts
        As in `read_labelled`.
    min_votes, min_share, anonymous
        As in `candidly.candidates.from_annotations`.
    skip_tasks : bool
        Whether to leave out tasks without features, with a warning, instead of raising ValueError.

    Returns
    -------
    rows : Labelled
        The rows with votes; its `unvoted` are the other rows.
    votes : Votes
        All votes, in the order of the table of votes.

    Raises
    ------
    ValueError
        Also when a task has no features, or several groups.

    Warns
    -----
    UserWarning
        When rows of the features have no votes, or tasks without features are skipped.
    """
    arguments.instance("columns", columns, VoteColumns, "candidly.tables.VoteColumns, such as VoteColumns('task')")
    arguments.instance("schema", schema, Schema, _A_SCHEMA)
    skip_tasks = arguments.flag("skip_tasks", skip_tasks)
    arguments.instance("like", like, (Schema, NoneType), "a candidly.tables.Schema, or None")
    known_id = schema.id or (None if like is None else like.id)
    found, export = _read_vote_table(votes, columns, schema, known_id)
    if export is not None:
        columns = VoteColumns(export.key)
    schema = replace(schema, candidates=None, id=known_id or columns.columns[0])
    if source is not None:
        name, table = name_of(source), _read(source, schema, like, texts)
    elif export is not None:
        name, table = name_of(votes), export.rows([*text_columns(schema, like), *texts])
        schema = replace(schema, id=export.key)
    else:
        raise ValueError(
            f"{name_of(votes)} holds votes without features; name the table with the features of the tasks with "
            f"{option('features', python='source')}"
        )
    schema = schema.completed(like, table.column_names)
    if export is not None:
        table, schema = _add_truth(table, schema, export)
    if schema.candidates is not None:  # the votes are used instead
        schema = replace(schema, candidates=None, drop=[*schema.drop, schema.candidates])
    if schema.groups not in table.column_names and schema.groups in found.column_names:
        task = columns.columns[0]
        check_column(found, name_of(votes), task, option("task"))
        table = _add_groups(table, name, schema, found, name_of(votes), task)
    if columns.annotators is not None:  # they are not features if both tables are the same file
        present = [one for one in columns.annotators if one in table.column_names and one not in schema.drop]
        schema = replace(schema, drop=[*schema.drop, *present])
    features, schema = choose_features(table, name, schema)
    _check_encoders(schema, like, name)
    check_types(table.select(features), name)
    counted = _count(found, name_of(votes), columns, classes, min_votes, min_share, anonymous)
    tasks = [as_text(task).strip() for task in counted.tasks]
    rows, order = _match(table.column(schema.id), name, schema, tasks, name_of(votes), skip_tasks)
    chosen = counted.select(order).with_classes(map(str, counted.candidates.classes))
    candidates = Candidates(chosen.candidates.matrix, chosen.candidates.classes)
    labelled = _collect(table.take(rows), name, features, schema, candidates)
    others = np.setdiff1d(np.arange(table.num_rows), rows)
    unvoted = None
    if len(others):
        rest = table.take(others)
        labels = None
        if schema.labels is not None:
            labels = _read_labels(rest.column(schema.labels), name, schema.labels, candidates, 0)
        unvoted = Unvoted(rest.select(features), rest.column(schema.id), labels, others)
    return replace(labelled, votes=chosen, unvoted=unvoted, export=export), counted


def _read_vote_table(
    votes: files.FilePath, columns: VoteColumns, schema: Schema, id_: str | None
) -> tuple[Any, exports.Export | None]:
    """Return a table of votes and, if they come from an annotation tool, its export."""
    export = None
    if exports.is_export(votes):
        export = exports.read_export(votes, key=columns.task or id_, label=columns.label)
    else:
        grouping = [] if schema.groups is None else [schema.groups]
        delimiter = schema.delimiter if columns.delimiter is None else columns.delimiter
        try:
            found = files.read(votes, delimiter=delimiter, texts=[*columns.columns, *grouping])
        except ValueError as error:
            own = option("votes-delimiter", python="VoteColumns.delimiter")
            raise ValueError(str(error).replace(option("delimiter"), own)) from error
        export = exports.of_table(found, name_of(votes), key=columns.task or id_, label=columns.label)
    if export is None:
        return found, None
    if columns.annotators is not None or columns.worker is not None:
        wrong = "annotators" if columns.annotators is not None else "worker"
        raise ValueError(f"{name_of(votes)} says who annotated what; leave {option(wrong)} out")
    return export.votes(), export


def _add_truth(table: Any, schema: Schema, export: exports.Export) -> tuple[Any, Schema]:
    """Return the rows with the true labels of an export, unless the schema names another column of true labels."""
    import pyarrow as pa

    if not export.truth or schema.labels not in (None, exports.TRUTH):
        present = exports.TRUTH in table.column_names and exports.TRUTH not in schema.drop and export.truth
        return table, replace(schema, drop=[*schema.drop, exports.TRUTH]) if present else schema
    if exports.TRUTH not in table.column_names and schema.id in table.column_names:
        ids = column_texts(table.column(schema.id), f"column {schema.id!r}")
        truth = export.truth
        table = table.append_column(exports.TRUTH, pa.array([truth.get(str(one)) for one in ids], pa.string()))
    return table, replace(schema, labels=exports.TRUTH)


def _read(source: files.FilePath, schema: Schema, like: Schema | None, texts: Sequence[str]) -> Any:
    """Read a table; columns with a role in one of the schemas are texts."""
    arguments.instance("like", like, (Schema, NoneType), "a candidly.tables.Schema, or None")
    features = arguments.items("texts", texts, "a list of columns")
    return files.read(source, delimiter=schema.delimiter, texts=[*text_columns(schema, like), *features])


def text_columns(schema: Schema, like: Schema | None = None) -> list[str]:
    """Return the columns that have a role in one of the schemas: those of CSV files are read as text."""
    return [*schema.named.values(), *(() if like is None else like.named.values())]


def _check_encoders(schema: Schema, like: Schema | None, file: str) -> None:
    if like is not None:
        check_encoders(schema.encoders, like.encoders, file)


def column_texts(column: Any, place: str) -> list[str | None]:
    """Return the values of a column as text, without surrounding blanks, and None where one is missing.

    Messages call the column `place`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> column_texts(pa.chunked_array([[7.0, None, 0.5]]), "the ids")
    ['7', None, '0.5']
    """
    try:
        values = column.to_pylist()
    except (OverflowError, ValueError):
        raise ValueError(f"{place} has dates or durations that are too far away; convert them to text") from None
    return [
        value.strip() if type(value) is str else None if is_missing(value) else as_text(value).strip()
        for value in values
    ]


def name_of(source: files.FilePath) -> str:
    """Return the name of a table in messages.

    Examples
    --------
    >>> name_of("birds.csv"), name_of("-")
    ('birds.csv', 'standard input')
    """
    return "standard input" if source == "-" else str(source)


def check_types(table: Any, file: str) -> None:
    """Check that every column of a table holds numbers, dates or text."""
    for field in table.schema:
        if not _is_feature(field.type):
            raise ValueError(
                f"{file}: column {field.name!r} has type {field.type}; convert it to numbers or text, or leave it out "
                f"with {OPTIONS['drop']}"
            )


def _is_feature(kind: Any) -> bool:
    """Return whether a column of this Arrow type can be a feature."""
    from pyarrow import types

    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _is_feature(kind.value_type)
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    times = types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind)
    return bool(numbers or times or types.is_null(kind) or class_columns.is_text(kind) or str(kind) == "string_view")


def _count(
    table: Any,
    file: str,
    columns: VoteColumns,
    classes: Sequence[str] | None,
    min_votes: int,
    min_share: float,
    anonymous: bool,
) -> Votes:
    import pyarrow as pa
    import pyarrow.compute as pc

    for given, column in columns.named:
        check_column(table, file, column, given)
    task, *others = columns.columns
    label_columns = others if columns.annotators is not None else others[1:]
    check_types(table.select(label_columns), file)
    for column in label_columns:
        position = table.column_names.index(column)
        table = table.set_column(position, column, table.column(column).cast(pa.string()))
    if classes is None:
        labels = pa.chunked_array([chunk for column in label_columns for chunk in table.column(column).chunks])
        num_tasks = pc.count_distinct(table.column(task)).as_py()
        question = f"does {label_columns[0]!r} hold labels"
        class_columns.check_number(file, pc.count_distinct(labels).as_py(), num_tasks, question)
    try:
        return from_annotations(
            table,
            task=columns.task,
            worker=columns.worker,
            label=columns.label,
            columns=None if columns.annotators is None else list(columns.annotators),
            classes=classes,
            min_votes=min_votes,
            min_share=min_share,
            anonymous=anonymous,
        )
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _add_groups(table: Any, file: str, schema: Schema, votes: Any, votes_file: str, task: str) -> Any:
    """Return the table of features with the column of groups, which only the table of votes has."""
    import pyarrow as pa

    group = str(schema.groups)
    check_column(table, file, str(schema.id), OPTIONS["id"])
    tasks = column_texts(votes.column(task), f"{votes_file}: column {task!r}")
    known: dict[str | None, str | None] = {}
    for row, (one, value) in enumerate(zip(tasks, _read_groups(votes.column(group), votes_file, group), strict=True)):
        if known.setdefault(one, value) != value:
            raise ValueError(
                f"{votes_file}: task {one!r} has the group {value!r} in row {row} and {known[one]!r} before, in column "
                f"{group!r}; a task has one group, correct the rows or name another column with {OPTIONS['groups']}"
            )
    ids = column_texts(table.column(schema.id), f"{file}: column {schema.id!r}")
    return table.append_column(group, pa.array([known.get(one) for one in ids], pa.string()))


def _match(
    column: Any, file: str, schema: Schema, tasks: list[str], votes: str, skip_tasks: bool
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows that have votes, and the position of each among the tasks."""
    ids = read_ids(column, file, str(schema.id))
    position = {task: j for j, task in enumerate(tasks)}
    lacking = set(position) - set(ids)
    if lacking:
        first = next(task for task in tasks if task in lacking)
        message = (
            f"{file} has no row for {len(lacking)} of {len(tasks)} tasks of {votes}, such as {first!r} in column "
            f"{schema.id!r}"
        )
        if not skip_tasks or len(lacking) == len(tasks):
            raise ValueError(
                f"{message}; add them, name the column with {OPTIONS['id']}, or leave the tasks out with "
                f"{option('skip-tasks', python='skip_tasks')}"
            )
        warn(f"{message}; they are left out")
    rows = np.array([i for i, one in enumerate(ids) if one in position], np.intp)
    if len(rows) < len(ids):
        first = next(one for one in ids if one not in position)
        warn(
            f"{file}: {len(ids) - len(rows)} of {len(ids)} rows have no votes, such as {first!r}; they are not trained "
            "on, and the model predicts their labels"
        )
    return rows, np.array([position[ids[i]] for i in rows], np.intp)


def _collect(
    table: Any,
    file: str,
    features: list[str],
    schema: Schema,
    candidates: Candidates,
    start: int = 0,
) -> Labelled:
    id_column = None
    ids = None
    if schema.id is not None:
        id_column = table.column(schema.id)
        ids = read_ids(id_column, file, schema.id, start)
    labels = None
    if schema.labels is not None:
        labels = _read_labels(table.column(schema.labels), file, schema.labels, candidates, start)
    groups = None
    if schema.groups is not None:
        groups = _read_groups(table.column(schema.groups), file, schema.groups)
    return Labelled(Path(file).name, table.select(features), candidates, schema, id_column, ids, labels, groups)


def read_ids(column: Any, file: str, id_: str, start: int = 0) -> list[str]:
    """Return the ids in a column as text, from row `start` on; raise ValueError if one is missing or repeated."""
    if not _is_feature(column.type):
        raise ValueError(
            f"{file}: column {id_!r} has type {column.type}; ids are texts or numbers, convert them or name another "
            f"column with {OPTIONS['id']}"
        )
    ids: list[str] = []
    known: dict[str, int] = {}
    for row, text in enumerate(column_texts(column, f"{file}: column {id_!r}"), start):
        if not text:
            raise ValueError(f"{file}: row {row} has no id in column {id_!r}; fill it or drop the row")
        if text in known:
            raise ValueError(
                f"{file}: rows {known[text]} and {row} have the same id {text!r} in column {id_!r}; rename one"
            )
        known[text] = row
        ids.append(text)
    return ids


def _read_groups(column: Any, file: str, groups: str) -> list[str | None]:
    """Return the groups as text, None where a row has none."""
    if not _is_feature(column.type):
        raise ValueError(
            f"{file}: column {groups!r} has type {column.type}; groups are texts or numbers, convert them or name "
            f"another column with {OPTIONS['groups']}"
        )
    return [text or None for text in column_texts(column, f"{file}: column {groups!r}")]


def _read_labels(column: Any, file: str, labels: str, candidates: Candidates, start: int) -> list[str | None]:
    """Return the true labels as text, and warn of those that are not classes, and so never candidates."""
    known = set(candidates.classes)
    texts: list[str | None] = []
    for text in column_texts(column, f"{file}: column {labels!r}"):
        if text and text not in known:
            text = integer_text(text) or text  # 7.0 for the class 7
        texts.append(text or None)
    strange = [row for row, text in enumerate(texts) if text and text not in known]
    if strange:
        warn(
            f"{file}: {len(strange)} labels in column {labels!r} are not classes, such as {texts[strange[0]]!r} in row "
            f"{start + strange[0]}; in these rows every prediction is wrong"
        )
    return texts
