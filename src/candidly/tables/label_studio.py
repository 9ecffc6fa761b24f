"""Label Studio's JSON: annotations of tasks as votes, and tasks with predictions to import.

A task is an object with `id`, `data` and `annotations`. An annotation has `completed_by`, `was_cancelled`,
`ground_truth` and a list `result`; the items of type ``choices`` hold labels. In JSON-MIN every annotation is a flat
object with the fields of its task.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from candidly.messages import did_you_mean, listed
from candidly.tables.tasks import Task

__all__ = ["find_control", "parse", "with_predictions"]

NOBODY = "unknown"
"""The annotator of annotations that do not say who made them."""

# What JSON-MIN adds to the fields of a task.
_MIN = ("id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement")


def find_control(
    entries: Sequence[Mapping[str, Any]],
    file: str,
    label: str | None,
    with_label: str,
    preferred: str | None = None,
) -> tuple[str, str | None]:
    """Return the control tag whose choices are the labels, and the object tag that it labels, if that is known.

    Of several tags, the default is `preferred`. Messages advise to name one `with_label`.
    """
    if any(_is_min(entry) for entry in entries):
        if label is None:
            raise ValueError(
                f"{file} is JSON-MIN, which does not say what holds the labels; name the control tag with "
                f"{with_label}, or export JSON"
            )
        return label, None
    found: dict[str, str | None] = {}
    others: set[str] = set()
    for entry in entries:
        for annotation in _objects(entry, "annotations"):
            for item in _objects(annotation, "result"):
                if item.get("type") == "choices" and isinstance(item.get("from_name"), str):
                    to = item.get("to_name")
                    found.setdefault(item["from_name"], to if isinstance(to, str) else None)
                else:
                    others.add(str(item.get("type")))
    if label is None and preferred in found:
        label = preferred
    if label is None:
        if len(found) > 1:
            raise ValueError(
                f"{file} has choices of the control tags {listed(map(repr, found))}; name one of them with {with_label}"
            )
        if not found and others:
            raise ValueError(
                f"{file} has no annotation of type choices, only of {listed(map(repr, sorted(others)))}; label the "
                "tasks with a Choices tag"
            )
        return next(iter(found.items()), ("", None))
    if found and label not in found:
        hint = did_you_mean(label, list(found))
        raise ValueError(
            f"{file} has no choices of a control tag {label!r}{hint}; name another with {with_label}, out of "
            f"{listed(map(repr, found))}"
        )
    return label, found.get(label)


def parse(entries: Sequence[Mapping[str, Any]], file: str, control: str) -> list[Task]:
    """Return the tasks of an export with the votes for choices of a control tag.

    Examples
    --------
    >>> item = {"type": "choices", "from_name": "bird", "value": {"choices": ["wren"]}}
    >>> done = [{"completed_by": {"id": 1, "email": "ann@birds.org"}, "result": [item]}]
    >>> skipped = [{"completed_by": 2, "was_cancelled": True, "result": [item]}]
    >>> parse([{"id": 7, "data": {}, "annotations": done + skipped}], "export.json", "bird")[0].votes
    (('ann@birds.org', 'wren'),)
    """
    tasks = []
    for place, entry in enumerate(entries):
        if _is_min(entry):
            tasks.append(_read_min(entry, control, place))
            continue
        data = entry.get("data")
        if not isinstance(data, dict):
            raise ValueError(
                f"{file}: entry {place} has no object 'data', so it is not a task of Label Studio; export the project "
                "as JSON or JSON-MIN"
            )
        votes: list[tuple[str, str]] = []
        truth: list[str] = []
        for annotation in _objects(entry, "annotations"):
            if annotation.get("was_cancelled"):
                continue
            labels = [
                name
                for item in _objects(annotation, "result")
                if item.get("type") == "choices" and item.get("from_name") == control
                for name in _choices(item.get("value"))
            ]
            if annotation.get("ground_truth"):
                truth += labels
            else:
                votes += [(_name(annotation.get("completed_by")), name) for name in labels]
        tasks.append(Task(_id(entry, place), data, tuple(votes), tuple(dict.fromkeys(truth))))
    return tasks


def with_predictions(
    tasks: Sequence[Task],
    labels: Sequence[str | None],
    scores: Sequence[float],
    control: str,
    target: str,
    version: str,
) -> bytes:
    """Return tasks with a prediction each, as JSON that Label Studio imports.

    Parameters
    ----------
    tasks : sequence of Task
        The tasks; those without an id have an empty one.
    labels, scores : sequences
        The predicted label of each task, None for none, and its probability.
    control, target : str
        The names of the control tag and of the object tag that it labels.
    version : str
        The name of the model.

    Examples
    --------
    >>> text = with_predictions([Task("7", {"weight": 9})], ["wren"], [0.75], "bird", "photo", "model")
    >>> json.loads(text)[0]["predictions"][0]["result"][0]["value"]
    {'choices': ['wren']}
    """
    found = []
    for task, label, score in zip(tasks, labels, scores, strict=True):
        entry: dict[str, Any] = {"id": int(task.id) if task.id.isdecimal() else task.id} if task.id else {}
        entry |= {"data": dict(task.data), "predictions": []}
        if label is not None:
            item = {"from_name": control, "to_name": target, "type": "choices", "value": {"choices": [label]}}
            entry["predictions"].append({"model_version": version, "score": round(float(score), 6), "result": [item]})
        found.append(entry)
    return (json.dumps(found, indent=1, allow_nan=False, default=str) + "\n").encode()


def _is_min(entry: Mapping[str, Any]) -> bool:
    return "data" not in entry and "annotation_id" in entry


def _read_min(entry: Mapping[str, Any], control: str, place: int) -> Task:
    """Return a task of JSON-MIN, which has one annotation, and no ground truth."""
    data = {field: value for field, value in entry.items() if field not in (*_MIN, control)}
    given = entry.get(control)
    votes = [(_name(entry.get("annotator")), name) for name in _choices(given)]
    return Task(_id(entry, place), data, tuple(votes))


def _id(entry: Mapping[str, Any], place: int) -> str:
    found = entry.get("id")
    return str(place if found is None else found)


def _choices(value: Any) -> list[str]:
    """Return the labels of a result: a list under the key choices, or in JSON-MIN a single text."""
    if isinstance(value, dict):
        value = value.get("choices")
    found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [name for name in found if isinstance(name, str) and name.strip()]


def _name(who: Any) -> str:
    """Return the name of an annotator: the e-mail address if there is one, otherwise the number."""
    if isinstance(who, dict):
        who = who.get("email") or who.get("username") or who.get("id")
    return NOBODY if who is None or isinstance(who, list | dict) or not str(who).strip() else str(who).strip()


def _objects(entry: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects in a list that may be missing."""
    found = entry.get(name)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
