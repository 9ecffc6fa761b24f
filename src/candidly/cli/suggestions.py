"""Results for other tools: predictions for Label Studio, suggestions for Argilla, class names for Hugging Face."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from candidly import store
from candidly.cli.checks import check_table
from candidly.cli.options import OutputOptions, ToolOptions, split_names
from candidly.cli.results import CLASS_COLUMNS
from candidly.tables import argilla, files, label_studio
from candidly.tables.exports import Export
from candidly.tables.hugging_face import number_classes
from candidly.tables.labelled import Labelled, column_texts
from candidly.tables.tasks import Task

_CONTROL, _QUESTION = "answer", "label"
_SUFFIXES = {"label-studio": ".json", "huggingface": ".parquet"}


def check_result(out: str, tables: Sequence[str | None], tools: ToolOptions, output: OutputOptions) -> None:
    """Raise unless a result in the format of --format can be written to `out`, which is not one of the tables."""
    suffix = _SUFFIXES.get(tools.format or "table")
    if suffix is not None and out == "-":
        raise ValueError(f"--format {tools.format} needs a file; name one that ends in {suffix} with --out")
    check_table(out, tables, output, suffixes=files.SUFFIXES if suffix is None else [suffix])
    for name, value in (("question", tools.question), ("first", tools.first)):
        if value is not None and tools.format not in ("label-studio", "argilla"):
            raise ValueError(f"--{name} applies to tasks for annotation tools; choose one with --format, or remove it")
    if tools.first is not None and tools.first < 1:
        raise ValueError(f"--first is {tools.first}; name the number of tasks to write, at least 1")
    names = split_names(tools.question, "--question")
    most = 2 if tools.format == "label-studio" else 1
    if len(names) > most:
        wanted = "a control tag and an object tag, such as bird,photo" if most == 2 else "one question"
        raise ValueError(f"--question is {tools.question!r}; name {wanted}")


def all_features(rows: Labelled, count: int) -> Any:
    """Return the features of the `count` rows of a cleaned table, with or without votes, in its order."""
    if rows.unvoted is None or len(rows.candidates) == count:
        return rows.features
    voted = np.setdiff1d(np.arange(count), rows.unvoted.place)
    order = np.argsort(np.concatenate([voted, rows.unvoted.place]))
    return pa.concat_tables([rows.features, rows.unvoted.features]).take(order)


def write_result(
    result: Any,
    fields: Any,
    out: str,
    tools: ToolOptions,
    *,
    classes: Sequence[str],
    version: str,
    separator: str,
    export: Export | None = None,
) -> None:
    """Write cleaned rows or predictions, as a table or for an annotation tool.

    Parameters
    ----------
    result : pyarrow.Table
        Ids in the first column, predicted classes, and their confidence or probability. With priorities, tasks for an
        annotation tool are in their order.
    fields : pyarrow.Table
        What an annotator sees of the rows.
    out : str
        The file.
    tools : ToolOptions
        The format.
    classes : sequence of str
        The class names.
    version : str
        The name of the model.
    separator : str
        The text between class names in a cell.
    export : Export, optional
        The tasks of the annotation tool, if rows were read from its export: they keep their ids and fields.
    """
    if tools.format in (None, "table", "huggingface"):
        numbered = tools.format == "huggingface"
        files.write(number_classes(result, CLASS_COLUMNS, classes) if numbered else result, out, separator=separator)
        return
    order = np.arange(result.num_rows)
    if "priority" in result.column_names:
        ranks = result.column("priority").fill_null(result.num_rows + 1).to_numpy()
        order = np.argsort(ranks, kind="stable")
    chosen = pa.array(order[: tools.first])
    result, fields = result.take(chosen), fields.take(chosen)
    names = split_names(tools.question, "--question")
    labels = result.column("predicted")
    scores = result.column("confidence" if "confidence" in result.column_names else "probability")
    id_ = result.column_names[0]
    if tools.format == "argilla":
        question = names[0] if names else (export and export.question) or _QUESTION
        columns = {"id": pa.array(column_texts(result.column(id_), f"column {id_!r}"), pa.string())}
        columns |= {name: fields.column(name) for name in fields.column_names if name != "id"}
        columns |= argilla.suggestion_columns(question, labels, scores, version)
        files.write(pa.table(columns), out, separator=separator)
        return
    known_control, known_target = (None, None) if export is None else (export.question, export.target)
    control = names[0] if names else known_control or _CONTROL
    target = names[1] if len(names) > 1 else known_target or fields.column_names[0]
    tasks = _tasks(id_, result.column(id_).to_pylist(), fields)
    if export is not None:
        ids = column_texts(result.column(id_), f"column {id_!r}")
        tasks = [export.tasks.get(str(one), task) for one, task in zip(ids, tasks, strict=True)]
    text = label_studio.with_predictions(tasks, labels.to_pylist(), scores.to_pylist(), control, target, version)
    with files.writing(out):
        store.replace(out, text)


def _tasks(id_: str, ids: list[Any], fields: Any) -> list[Task]:
    """Return rows as tasks without an id of Label Studio; NaN becomes a missing value."""
    rows = fields.to_pylist()
    cells = [{name: None if value != value else value for name, value in row.items()} for row in rows]
    return [Task("", {id_: one} | row) for one, row in zip(ids, cells, strict=True)]
