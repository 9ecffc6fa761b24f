"""How commands read tables, and how they call them."""

import csv
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from candidly.candidates.votes import Votes
from candidly.cli.options import Reading, Telling, Voting
from candidly.tables import labelled
from candidly.tables.labelled import Labelled, VoteColumns
from candidly.tables.schema import Schema


def split(text: str | None, option: str) -> list[str]:
    """Split names at commas; a name that has some stands in double quotes.

    Examples
    --------
    >>> split('a, "b,c"', "--drop"), split(None, "--drop")
    (['a', 'b,c'], [])
    """
    if text is None:
        return []
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or "" in names:
        raise ValueError(f"{option} is {text!r}, with an empty name; write names with one comma between them")
    return names


def quiet(telling: Telling) -> AbstractContextManager[Any]:
    """Hide warnings where nothing is to be printed."""
    return warnings.catch_warnings(action="ignore") if telling.quiet else nullcontext()


def progress(telling: Telling) -> int:
    """Whether to show bars."""
    return int(sys.stderr.isatty() and not telling.quiet)


@contextmanager
def naming(table: str) -> Iterator[None]:
    """Call a table by its name in errors that call it X."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("X "):
            raise
        raise ValueError(f"{table} {str(error)[2:]}") from error


def read_source(
    table: str | None, candidates: str | None, voting: Voting, reading: Reading
) -> tuple[Labelled, Votes | None]:
    """Read a table with candidates, or the votes and the features that stand for it."""
    return _read_votes(voting, reading) if table is None else (read(table, str(candidates), reading), None)


def read(table: str, candidates: str, reading: Reading) -> Labelled:
    """Read a table with candidates."""
    return labelled.read(table, _schema(candidates, reading), classes=_read_classes(reading.classes))


def _schema(candidates: str | None, reading: Reading) -> Schema:
    drop = split(reading.drop, "--drop")
    return Schema(candidates, reading.id, reading.labels, drop, reading.separator, reading.delimiter)


def _read_votes(voting: Voting, reading: Reading) -> tuple[Labelled, Votes]:
    annotators = None if voting.annotators is None else split(voting.annotators, "--annotators")
    return labelled.read_votes(
        str(voting.annotations),
        VoteColumns(voting.task, voting.worker, voting.label, annotators),
        str(voting.features),
        _schema(None, reading),
        classes=_read_classes(reading.classes),
        min_votes=1 if voting.min_votes is None else voting.min_votes,
        min_share=0.0 if voting.min_share is None else voting.min_share,
    )


def _read_classes(text: str | None) -> list[str] | None:
    if text is None or not text.startswith("@"):
        return split(text, "--classes") or None
    try:
        lines = Path(text[1:]).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise ValueError(f"--classes {text} cannot be read: {reason}; name a file with one class per line") from None
    return [line.strip() for line in lines if line.strip()]
