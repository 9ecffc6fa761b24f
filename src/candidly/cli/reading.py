"""Read the tables that commands are given: rows with candidates, votes, new rows for a model, and checked rows."""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from candidly import store
from candidly.candidates import Candidates
from candidly.candidates.values import integer_text
from candidly.candidates.votes import Votes
from candidly.cli.options import CleaningOptions, ReadingOptions, split_names
from candidly.estimator import PartialLabelClassifier, verification
from candidly.messages import did_you_mean
from candidly.tables import exports, files, labelled
from candidly.tables.column_encoders import Category
from candidly.tables.features import Features
from candidly.tables.labelled import Labelled, VoteColumns
from candidly.tables.parts import check_same_encoders, count_rows, find_parts, read_blocks
from candidly.tables.provenance import check_encoders, of_table
from candidly.tables.schema import Schema, check_column
from candidly.tables.streams import Rows

_LEAST_ROWS = 2  # of a process
_ARRAYS = (".mat", ".npz")
_OF_ARRAYS = ("candidates", "label", "group")  # the columns of arrays that are not features
_ROW = re.compile(r" in row ([0-9]+), ")


@contextmanager
def naming(table: str, start: int = 0) -> Iterator[None]:
    """Replace "X" by the table's name in the error messages of the estimator; its first row has the number `start`."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("X "):
            raise
        text = _ROW.sub(lambda found: f" in row {int(found[1]) + start}, ", str(error)[2:])
        raise ValueError(f"{table} {text}") from error


def read_source(
    options: CleaningOptions, classifier: PartialLabelClassifier | None = None
) -> tuple[Labelled, Votes | None]:
    """Read a table with candidates, or a table of votes and the table of features that belongs to it.

    For a classifier the classes are its own, and columns that no option names have their roles in its training table.
    """
    if classifier is None:
        return _read_source(options, read_classes(options.reading.classes))
    names = {str(name): name for name in classifier.classes_.tolist()}
    with _explaining_classes():
        rows, votes = _read_source(options, list(names), classifier.schema_, categories(classifier.features_))
    return _rename(rows, names), votes


def read_block(rows: Rows, options: CleaningOptions, classifier: PartialLabelClassifier) -> Labelled:
    """Read a block of a stream for a classifier, as `read_source` does."""
    names, like, file = (
        {str(name): name for name in classifier.classes_.tolist()},
        classifier.schema_,
        str(rows.part.path),
    )
    schema = find_schema(file, options.candidates, options.reading, like)
    with _explaining_classes():
        found = labelled.split_table(rows.table, file, schema, classes=list(names), like=like, start=rows.start)
    return _rename(found, names)


@contextmanager
def _explaining_classes() -> Iterator[None]:
    """Let errors about names that are not classes speak of the model."""
    try:
        yield
    except ValueError as error:
        advice = "is not a class of the model; correct the row or leave it out"
        raise ValueError(str(error).replace("is not in classes; add it there or correct the row", advice)) from error


def _rename(rows: Labelled, names: Mapping[str, Hashable]) -> Labelled:
    """Return rows with class names as the classifier has them, instead of texts."""
    labels = None if rows.labels is None else [None if text is None else names.get(text, text) for text in rows.labels]
    own = tuple(names.values())
    given = None if rows.votes is None else rows.votes.with_classes(own)
    candidates = Candidates(rows.candidates.matrix, own)
    return replace(rows, candidates=candidates, labels=cast("list[str | None] | None", labels), votes=given)


def _read_source(
    options: CleaningOptions, classes: list[str] | None, like: Schema | None = None, texts: Sequence[str] = ()
) -> tuple[Labelled, Votes | None]:
    votes, reading = options.votes, options.reading
    if options.table is not None and is_arrays(options.table):
        return _read_array_rows(options, classes, like), None
    if options.table is not None:
        schema = find_schema(options.table, options.candidates, reading, like)
        return labelled.read_labelled(options.table, schema, classes=classes, like=like, texts=texts), None
    annotators = None if votes.annotators is None else split_names(votes.annotators, "--annotators")
    return labelled.read_votes(
        str(votes.annotations),
        VoteColumns(votes.task, votes.worker, votes.label, annotators, votes.votes_delimiter),
        votes.features,
        find_schema(votes.features or str(votes.annotations), None, reading, like),
        classes=classes,
        min_votes=1 if votes.min_votes is None else votes.min_votes,
        min_share=0.0 if votes.min_share is None else votes.min_share,
        anonymous=votes.anonymous,
        skip_tasks=votes.skip_tasks,
        like=like,
        texts=texts,
    )


def read_share(table: str, candidates: str, reading: ReadingOptions, rank: int = 0, ranks: int = 1) -> Labelled:
    """Read the share of one of several processes in a table of one or several files: consecutive rows, about as many.

    The files are one table, in the order of their names.
    """
    import pyarrow as pa

    if table == "-":
        raise ValueError("the table is standard input, which several processes cannot share; name a file or a folder")
    parts = find_parts(table)
    schema = find_schema(str(parts[0]), candidates, reading)
    counts = [count_rows(part, delimiter=schema.delimiter) for part in parts]
    start, stop = sum(counts) * rank // ranks, sum(counts) * (rank + 1) // ranks
    if stop - start < _LEAST_ROWS:
        raise ValueError(
            f"{table} has {sum(counts)} rows for {ranks} processes; each needs at least {_LEAST_ROWS}, so start fewer"
        )
    check_same_encoders(parts)
    found, at = [], 0
    for part, count in zip(parts, counts, strict=True):
        if at < stop and start < at + count:
            for block in read_blocks(part, delimiter=schema.delimiter, texts=labelled.text_columns(schema)):
                first, last = max(start - at, 0), min(stop - at, block.num_rows)
                if first < last:
                    found.append(block.slice(first, last - first))
                at += block.num_rows
                if at >= stop:
                    break
        else:
            at += count
    try:
        rows = pa.concat_tables(found, promote_options="permissive")
    except pa.ArrowInvalid as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"the files of {table} have columns of different types ({reason}); convert them") from None
    return labelled.split_table(rows, table, schema, classes=read_classes(reading.classes), start=start)


def find_schema(table: str, candidates: str | None, reading: ReadingOptions, like: Schema | None = None) -> Schema:
    """Return what the options say about the columns of a table."""
    drop = split_names(reading.drop, "--drop")
    separator = (like or Schema()).separator if reading.separator is None else reading.separator
    delimiter = find_delimiter(reading.delimiter, table, like)
    return Schema(candidates, reading.id, reading.labels, drop, separator, delimiter, reading.groups)


def find_delimiter(given: str | None, table: str, like: Schema | None) -> str | None:
    """Return the delimiter of a table: by default, that of CSV files in training."""
    is_csv = table == "-" or table.lower().endswith((".csv", ".csv.gz"))
    return like.delimiter if given is None and like is not None and is_csv else given


def categories(features: Features) -> list[str]:
    """Return the columns to read as text, as in training: 01 is not the category 1."""
    columns = zip(features.names_ or (), features.columns, strict=False)
    return [name for name, column in columns if isinstance(column, Category)]


def read_classes(text: str | None) -> list[str] | None:
    """Return the class names of --classes; None if it was not given."""
    if text is None or not text.startswith("@"):
        return split_names(text, "--classes") or None
    try:
        lines = store.read_text(text[1:]).splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"--classes {text} cannot be read: {reason}; name a file with one class per line") from None
    return [line.strip() for line in lines if line.strip()]


def read_new_rows(
    table: str,
    features: Features,
    schema: Schema | None,
    named: Mapping[str, str | None],
    drop: str | None,
    delimiter: str | None,
) -> tuple[Any, Any]:
    """Read rows for a model: return their features, and the whole table.

    Columns that were not features in training, by the model's schema, and columns that options name or drop are not
    features. The schema's delimiter is the default for CSV.
    """
    delimiter = find_delimiter(delimiter, table, schema or Schema())
    texts = new_text_columns(features, schema, named)
    others: tuple[str, ...] = ()  # columns that are not features, whatever the schema says
    if is_arrays(table):
        found, others = read_arrays(table), _OF_ARRAYS
    elif exports.is_export(table):
        tasks = read_tasks(table, schema, named.get("--id"))
        found, others = tasks.rows(texts), (tasks.key, exports.TRUTH)
    else:
        found = files.read(table, delimiter=delimiter, texts=texts)
    rows, found = choose_new_rows(found, labelled.name_of(table), features, schema, named, drop)
    unused = [name for name in others if name in rows.column_names and name not in (features.names_ or ())]
    return rows.drop_columns(unused), found


def read_tasks(table: str, schema: Schema | None, id: str | None = None) -> exports.Export:
    """Read what an annotation tool exported as rows for a model; their ids are in the column of the training table."""
    return exports.read_export(table, key=id or (None if schema is None else schema.id))


def is_arrays(table: str) -> bool:
    """Return whether a table is a file of arrays.

    Examples
    --------
    >>> is_arrays("lost.mat"), is_arrays("rows.npz"), is_arrays("rows.csv")
    (True, True, False)
    """
    return files.suffix_of(table) in _ARRAYS


def read_arrays(table: str) -> Any:
    """Read a .mat or .npz file as an Arrow table: features x0, x1, …, candidates, and label and group if there are."""
    import pyarrow as pa

    from candidly.data import load
    from candidly.tables.class_columns import set_column

    found = load(Path(table))
    if found.X.ndim != 2:
        raise ValueError(
            f"{table}: X is {found.X.shape}, images; save features with one row per image, such as those of "
            "`candidly embed`"
        )
    columns = {f"x{j}": pa.array(np.ascontiguousarray(found.X[:, j])) for j in range(found.X.shape[1])}
    columns["candidates"] = set_column(found.S, found.classes)
    if found.y is not None:
        columns["label"] = pa.array(found.classes).take(pa.array(found.y))
    if found.groups is not None:
        columns["group"] = pa.array(found.groups)
    return pa.table(columns)


def _read_array_rows(options: CleaningOptions, classes: list[str] | None, like: Schema | None) -> Labelled:
    """Read a file of arrays, whose columns have the names of `read_arrays`."""
    table = str(options.table)
    found = read_arrays(table)
    known = {"label", "group"} & set(found.column_names)
    schema = find_schema(table, options.candidates or "candidates", options.reading, like)
    schema = replace(
        schema,
        labels=schema.labels or ("label" if "label" in known else None),
        groups=schema.groups or ("group" if "group" in known else None),
    )
    return labelled.split_table(found, table, schema, classes=classes, like=like)


def new_text_columns(features: Features, schema: Schema | None, named: Mapping[str, str | None]) -> list[str]:
    """Return the columns of new rows in CSV to read as text: those with a role, and categories."""
    others = () if schema is None else (*schema.named.values(), *schema.drop)
    return [*categories(features), *others, *(name for name in named.values() if name is not None)]


def choose_new_rows(
    found: Any,
    file: str,
    features: Features,
    schema: Schema | None,
    named: Mapping[str, str | None],
    drop: str | None,
) -> tuple[Any, Any]:
    """Return the features of a table of new rows, or of a block of it, and the whole table (`read_new_rows`)."""
    schema, dropped, used = schema or Schema(), split_names(drop, "--drop"), features.names_ or ()
    others = [*schema.named.values(), *schema.drop]
    given = [(option, name) for option, name in named.items() if name is not None]
    check_encoders(of_table(found, file), schema.encoders, file)
    for option, name in [*given, *(("--drop", name) for name in dropped)]:
        check_column(found, file, name, option)
    for name in dropped:
        if name in used:
            raise ValueError(f"--drop is {drop!r}, but {name!r} is a feature of the model, which needs it; remove it")
    if named.get("--labels") in used:
        raise ValueError(f"--labels is {named['--labels']!r}, a feature of the model; name the column of true labels")
    left_out = {*others, *dropped, *(name for _, name in given)} - set(used)
    rows = found.select([name for name in found.column_names if name not in left_out])
    labelled.check_types(rows, file)
    return rows, found


def read_answers(
    file: str, classes: Sequence[Hashable], delimiter: str | None = None
) -> tuple[dict[int, Any], list[str | None] | None]:
    """Read a table of checked rows: the answer of each row, None if there is none, and the column of plans, if any.

    Answers that are the text of a class name become that name. Errors name the file.
    """
    name = labelled.name_of(file)
    if exports.is_export(file):
        table = exports.read_export(file, key="row", preferred="answer").answers()
    else:
        table = files.read(file, delimiter=delimiter, texts=["answer", "plan"])
    for column in ("row", "answer"):
        if column not in table.column_names:
            hint = did_you_mean(column, table.column_names)
            raise ValueError(
                f"{name} has no column {column!r}{hint}; rename it, or keep the columns that `candidly verify` wrote"
            )
    texts = {
        column: labelled.column_texts(table.column(column), f"column {column!r} of {name}")
        for column in ("plan", "row", "answer")
        if column in table.column_names
    }
    named = {str(one): one for one in classes}
    found: dict[int, Any] = {}
    for line, (row, answer) in enumerate(zip(texts["row"], texts["answer"], strict=True)):
        number = None if row is None else integer_text(row)
        if number is None:
            raise ValueError(
                f"{name} has {row!r} in column 'row', row {line} of the file; write the number that `candidly verify` "
                "gave the row"
            )
        given = None if answer is None or answer == "" else named.get(answer, answer)
        earlier = found.get(int(number))
        if earlier is not None and given is not None and earlier != given:
            raise ValueError(f"{name} has two answers for row {number}; keep one of them")
        found[int(number)] = earlier if given is None else given
    return found, texts.get("plan")


def read_checked(file: str, candidates: Candidates, has_model: bool) -> dict[int, Any]:
    """Read the answers of rows that were checked by hand, None where there is no answer. Errors name the file."""
    found, plans = read_answers(file, candidates.classes)
    if plans is not None and not has_model:
        raise ValueError(
            f"{labelled.name_of(file)} holds rows that were drawn for a model; name it with --model, because another "
            "training changes other rows"
        )
    try:
        verification.read_checked(found, len(candidates), candidates.classes)
    except ValueError as error:
        raise ValueError(f"{labelled.name_of(file)}: {error}") from None
    return found
