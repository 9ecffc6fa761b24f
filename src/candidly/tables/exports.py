"""Exports of annotation tools: the votes, fields and true labels of tasks, from Label Studio or Argilla."""

import glob
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from candidly import store
from candidly.candidates.values import as_text
from candidly.messages import listed, option, warn
from candidly.tables import argilla, label_studio
from candidly.tables.files import FilePath, suffix_of
from candidly.tables.tasks import Task

__all__ = ["TRUTH", "Export", "is_export", "of_table", "read_export"]

SUFFIXES = (".json", ".jsonl")
WORKER, LABEL = "worker", "label"
TRUTH = "ground_truth"
"""The column of true labels in the fields of an export."""

_MOST_BYTES = 2**28  # of a file; the Python objects take many times as much memory
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # one alone is not a character
_PYTHON_NAMES = {"task": "VoteColumns.task", "label": "VoteColumns.label"}


@dataclass(frozen=True, eq=False)
class Export:
    """Tasks that an annotation tool exported.

    Attributes
    ----------
    name : str
        The file, or the pattern of files.
    key : str
        The column of task ids: a field of the tasks, or else the id that the tool gave them.
    tasks : dict of str to Task
        The tasks by id, in their order.
    question : str or None
        The control tag of Label Studio, or the question of Argilla, whose answers are the labels, if it is known.
    target : str or None
        In Label Studio, the object tag that `question` labels, if it is known.
    """

    name: str
    key: str
    tasks: Mapping[str, Task]
    question: str | None = None
    target: str | None = None

    @property
    def truth(self) -> dict[str, str]:
        """The true labels of tasks by id, from annotations that are marked as ground truth."""
        return {name: task.truth[0] for name, task in self.tasks.items() if task.truth}

    def votes(self) -> Any:
        """Return an Arrow table with one row per vote: the column `key`, worker and label."""
        import pyarrow as pa

        found = [(name, *vote) for name, task in self.tasks.items() for vote in task.votes]
        if not found:
            raise ValueError(
                f"{self.name} has no annotations, or all of them were cancelled or are ground truth; export tasks "
                "after they were annotated"
            )
        columns = zip(*found, strict=True)
        return pa.table({name: _texts(c) for name, c in zip((self.key, WORKER, LABEL), columns, strict=True)})

    def rows(self, texts: Iterable[str] = ()) -> Any:
        """Return an Arrow table with one row per task: the column `key`, its fields, and true labels if there are some.

        As in CSV, fields of texts that are all numbers become numbers, except for those named in `texts`. Fields that
        hold lists or objects are left out, with a warning.
        """
        import pyarrow as pa

        fields = dict.fromkeys(field for task in self.tasks.values() for field in task.data if field != self.key)
        columns: dict[str, Any] = {self.key: _texts(self.tasks)}
        nested = []
        for field in fields:
            values = [task.data.get(field) for task in self.tasks.values()]
            if any(isinstance(value, list | dict) for value in values):
                nested.append(field)
            else:
                columns[field] = _column(values, field in texts)
        if nested:
            warn(f"{self.name}: the fields {listed(map(repr, nested))} hold lists or objects and are left out")
        if self.truth:
            if TRUTH in columns:
                raise ValueError(f"{self.name} has ground truth, and a field {TRUTH!r}; rename the field")
            columns[TRUTH] = _texts(self.truth.get(name) for name in self.tasks)
        return pa.table(columns)

    def answers(self) -> Any:
        """Return an Arrow table of what was answered, with the fields plan and row, and a column answer.

        A task with different answers has several rows, one without answers has one; ground truth replaces the others.
        """
        import pyarrow as pa

        rows = []
        for task in self.tasks.values():
            given = task.truth or tuple(dict.fromkeys(label for _, label in task.votes))
            rows += [(task.data, answer) for answer in given or (None,)]
        fields = [field for field in ("plan", "row") if any(field in data for data, _ in rows)]
        columns = {field: [_plain_text(data.get(field)) for data, _ in rows] for field in fields}
        columns["answer"] = [answer for _, answer in rows]
        return pa.table({name: _texts(values) for name, values in columns.items()})


def is_export(source: FilePath) -> bool:
    """Return whether a source is an export in JSON: a file, a pattern, or a folder with such files.

    Examples
    --------
    >>> is_export("export.json"), is_export("exports/*.json"), is_export("votes.csv")
    (True, True, False)
    """
    if os.path.isdir(source):
        return any(suffix_of(name) in SUFFIXES for name in os.listdir(source))
    return suffix_of(source) in SUFFIXES


def read_export(
    source: FilePath, *, key: str | None = None, label: str | None = None, preferred: str | None = None
) -> Export:
    """Read what Label Studio or Argilla exported as JSON.

    Parameters
    ----------
    source : path
        A file, a folder with .json and .jsonl files, or a pattern such as ``exports/*.json``. Label Studio's JSON and
        JSON-MIN are read, and records of Argilla, as a list or with one record per line.
    key : str, optional
        The field that holds the ids of tasks. Without such a field, they are the ids that the tool gave the tasks.
    label : str, optional
        The control tag of Label Studio, or the question of Argilla, whose answers are the labels. JSON-MIN needs it;
        otherwise the default is the only one there is.
    preferred : str, optional
        The default of `label` if there are several control tags, and this is one of them.

    Raises
    ------
    OSError, ValueError
        When a file cannot be read or is not such an export, or when two tasks with the same id have different fields.

    Examples
    --------
    >>> import tempfile
    >>> choice = {"type": "choices", "from_name": "bird", "to_name": "photo", "value": {"choices": ["wren"]}}
    >>> task = {"id": 7, "data": {"weight": 9}, "annotations": [{"completed_by": 1, "result": [choice]}]}
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    ...     json.dump([task], file)
    ...     file.flush()
    ...     found = read_export(file.name)
    >>> found.votes().to_pylist(), found.rows().to_pylist()
    ([{'task': '7', 'worker': '1', 'label': 'wren'}], [{'task': '7', 'weight': 9}])
    """
    found = [(str(path), _read_entries(path)) for path in _find(source)]
    entries = [entry for _, part in found for entry in part]
    with_label = option("label", python=_PYTHON_NAMES["label"])
    if argilla.is_record(entries[0]):
        question, target = argilla.find_question(entries, str(source), label, with_label), None
        parsed = [(file, argilla.parse(part, file, question)) for file, part in found]
    else:
        question, target = label_studio.find_control(entries, str(source), label, with_label, preferred)
        parsed = [(file, label_studio.parse(part, file, question)) for file, part in found]
    return Export(str(source), key or "task", _join(str(source), key or "task", parsed), question or None, target)


def of_table(table: Any, source: FilePath, *, key: str | None = None, label: str | None = None) -> Export | None:
    """Return the tasks of a table with the columns of Argilla, such as ``label.responses``; None if it has none.

    `key` and `label` are as in `read_export`.
    """
    if not argilla.is_record(dict.fromkeys(table.column_names)):
        return None
    name, records = str(source), table.to_pylist()
    question = argilla.find_question(records, name, label, option("label", python=_PYTHON_NAMES["label"]))
    return Export(
        name, key or "task", _join(name, key or "task", [(name, argilla.parse(records, name, question))]), question
    )


def _find(source: FilePath) -> list[Path]:
    """Return the files of a source, sorted."""
    if os.path.isfile(source):
        return [Path(source)]
    if os.path.isdir(source):
        places = [Path(source, name) for name in os.listdir(source) if suffix_of(name) in SUFFIXES]
    else:
        places = [Path(name) for name in glob.glob(str(source), recursive=True)]
    if not places:
        raise FileNotFoundError(f"{source} does not exist or is not a file; check the path")
    return sorted(places)


def _read_entries(path: Path) -> list[dict[str, Any]]:
    """Read a JSON file with a list of objects, or with one object per line."""
    if path.is_file() and path.stat().st_size > _MOST_BYTES:
        raise ValueError(
            f"{path} has {path.stat().st_size} bytes, more than the limit of {_MOST_BYTES}; export the tasks in "
            "several files, and name a pattern such as 'exports/*.json'"
        )
    text = store.read_text(path, _MOST_BYTES)
    try:
        if path.suffix.lower() == ".jsonl" or text.lstrip().startswith("{"):
            found = [_parse(line) for line in text.splitlines() if line.strip()]
        else:
            found = _parse(text)
    except (ValueError, RecursionError) as error:
        reason = "too many nested brackets" if isinstance(error, RecursionError) else error
        raise ValueError(f"{path} is not JSON ({reason}); export it again") from None
    if not isinstance(found, list) or not found or not all(isinstance(entry, dict) for entry in found):
        raise ValueError(f"{path} is not a list of tasks; export it from Label Studio as JSON, or from Argilla")
    if _SURROGATE.search(text):
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            wrong = ascii(error.object[error.start])
            raise ValueError(f"{path} has text that is not Unicode, with {wrong}; correct the task") from None
    return found


def _parse(text: str) -> Any:
    return json.loads(text, parse_constant=lambda _: None)  # NaN, which pandas writes, is a missing value


def _join(name: str, key: str, parts: Sequence[tuple[str, Sequence[Task]]]) -> dict[str, Task]:
    """Return tasks by id; the annotations of those with the same id are joined."""
    if key in (WORKER, LABEL):
        raise ValueError(f"{name}: the ids of tasks are in {key!r}, which is a column of the votes; rename the field")
    is_field = any(key in task.data for _, tasks in parts for task in tasks)
    joined: dict[str, Task] = {}
    for file, tasks in parts:
        for task in tasks:
            one = _plain_text(task.data.get(key)) if is_field else task.id
            if one is None:
                raise ValueError(
                    f"{file}: task {task.id} has no field {key!r}, which holds the ids of other tasks; fill it, or "
                    f"name another field with {option('task', python=_PYTHON_NAMES['task'])}"
                )
            earlier = joined.get(one)
            if earlier is not None and earlier.data != task.data:
                raise ValueError(
                    f"{file}: two tasks have the id {one!r} but different fields; name a field with unique ids with "
                    f"{option('task', python=_PYTHON_NAMES['task'])}"
                )
            joined[one] = task if earlier is None else earlier.joined(task)
    for one, task in joined.items():
        if len(task.truth) > 1:
            raise ValueError(
                f"{name}: task {one!r} has the different true labels {listed(map(repr, task.truth))}; keep one of the "
                "annotations that are marked as ground truth"
            )
    return joined


def _texts(values: Iterable[str | None]) -> Any:
    import pyarrow as pa

    return pa.array(list(values), pa.string())


def _column(values: list[Any], as_texts: bool) -> Any:
    """Return a field of all tasks as a column of numbers, truth values or text."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool} and not as_texts:
        return pa.array(values, pa.bool_())
    if kinds <= {bool, int, float} and not as_texts:
        try:
            return pa.array(values, pa.int64() if kinds <= {int} else pa.float64())
        except (OverflowError, pa.ArrowInvalid):
            pass  # integers that are too large are read like texts
    found = _texts(map(_plain_text, values))
    for kind in () if as_texts else (pa.int64(), pa.float64()):
        try:
            return found.cast(kind)
        except pa.ArrowInvalid:
            continue
    return found


def _plain_text(value: Any) -> str | None:
    """Return a value of JSON as text; None if it is missing or blank."""
    text = None if value is None else (value if isinstance(value, str) else as_text(value)).strip()
    return text or None
