"""Argilla's records as a table: the columns of a question's responses as votes, and its suggestions.

A question ``label`` has the columns ``label.responses``, ``label.responses.users`` and ``label.responses.status``,
lists with one value per response; and ``label.suggestion``, ``label.suggestion.score`` and ``label.suggestion.agent``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from candidly.candidates.values import as_text
from candidly.messages import listed
from candidly.tables.tasks import Task

__all__ = ["find_question", "is_record", "parse", "suggestion_columns"]

_RESPONSES = ".responses"
_OF_QUESTIONS = (
    *(_RESPONSES, ".responses.users", ".responses.status"),
    *(".suggestion", ".suggestion.score", ".suggestion.agent", ".suggestion.type"),
)
_OF_RECORDS = ("id", "status", "_server_id", "inserted_at", "updated_at", "fields", "metadata")


def is_record(entry: Mapping[str, Any]) -> bool:
    """Return whether an object, or a table with these columns, has responses.

    Examples
    --------
    >>> is_record({"text": None, "label.responses": None}), is_record({"text": None})
    (True, False)
    """
    return any(name.endswith(_RESPONSES) for name in entry)


def find_question(records: Sequence[Mapping[str, Any]], file: str, question: str | None, with_label: str) -> str:
    """Return the question whose responses are the labels, by default the only one; messages advise `with_label`."""
    names = dict.fromkeys(name for record in records for name in record)
    questions = _questions(names)
    if question is None and len(questions) > 1:
        raise ValueError(f"{file} has the questions {listed(map(repr, questions))}; name one of them with {with_label}")
    question = questions[0] if question is None else question
    if question not in questions:
        raise ValueError(
            f"{file} has no column {question + _RESPONSES!r}; name a question with {with_label}, out of "
            f"{listed(map(repr, questions))}"
        )
    if f"{question}.responses.users" not in names:
        raise ValueError(
            f"{file} has no column '{question}.responses.users', so nobody knows who gave the responses; export it, too"
        )
    return question


def parse(records: Sequence[Mapping[str, Any]], file: str, question: str) -> list[Task]:
    """Return records as tasks with the votes that a question got; discarded responses and drafts are left out.

    Suggestions are not votes: they are the opinion of a model.

    Examples
    --------
    >>> record = {"id": "a", "text": "chirp", "label.responses": ["wren"], "label.responses.users": ["ann"]}
    >>> parse([record], "records.jsonl", "label")
    [Task(id='a', data={'text': 'chirp'}, votes=(('ann', 'wren'),), truth=())]
    """
    names = dict.fromkeys(name for record in records for name in record)
    of_tool = {*_OF_RECORDS, *(one + part for one in _questions(names) for part in _OF_QUESTIONS)}
    tasks = []
    for place, record in enumerate(records):
        data = {name: value for name, value in record.items() if name not in of_tool}
        own = record.get("id")
        votes = tuple(_votes(record, question, f"{file}: record {place}"))
        tasks.append(Task(str(place) if own is None else as_text(own), data, votes))
    return tasks


def suggestion_columns(question: str, labels: Any, scores: Any, agent: str) -> dict[str, Any]:
    """Return the columns of suggestions for a question, as Argilla names them.

    Examples
    --------
    >>> list(suggestion_columns("label", ["wren"], [0.9], "model"))
    ['label.suggestion', 'label.suggestion.score', 'label.suggestion.agent']
    """
    columns = {"suggestion": labels, "suggestion.score": scores, "suggestion.agent": [agent] * len(labels)}
    return {f"{question}.{name}": values for name, values in columns.items()}


def _questions(names: Iterable[str]) -> list[str]:
    return [name.removesuffix(_RESPONSES) for name in names if name.endswith(_RESPONSES)]


def _votes(record: Mapping[str, Any], question: str, place: str) -> list[tuple[str, str]]:
    given, users, states = (record.get(question + part) for part in _OF_QUESTIONS[:3])
    if given is None:
        return []
    if not isinstance(given, list) or not isinstance(users, list) or len(users) != len(given):
        raise ValueError(
            f"{place} has not one user for every response of {question!r}; '{question}.responses' and "
            f"'{question}.responses.users' must be lists of equal length"
        )
    states = states if isinstance(states, list) and len(states) == len(given) else [None] * len(given)
    found = []
    for answer, user, state in zip(given, users, states, strict=True):
        if state in (None, "submitted"):
            labels = answer if isinstance(answer, list) else [answer]
            found += [(as_text(user), as_text(name)) for name in labels if name not in (None, "")]
    return found
