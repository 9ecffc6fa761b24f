"""Find the rows of decisions in a table, and merge the decisions into its candidates."""

import hashlib
import json
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from candidly.candidates import Candidates
from candidly.candidates.values import integer_text
from candidly.estimator.verification import NOT_A_CANDIDATE, UNKNOWN
from candidly.messages import warn
from candidly.review.decisions import Decision, Log, Session
from candidly.tables.labelled import column_texts


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a table, as decisions name them.

    Attributes
    ----------
    title : str
        Name of the table.
    features : pyarrow.Table or None
        The columns of features: their content tells whether a row is the one that was decided. None if columns are
        missing, so that this is not known.
    ids : list of str or None
        The ids, if there are any.
    """

    title: str
    features: Any
    ids: list[str] | None

    @classmethod
    def of(cls, title: str, table: Any, ids: list[str] | None, session: Session) -> "Rows":
        """Return the rows of a table that was reviewed in a session; raise ValueError if they cannot be recognised."""
        if session.id is not None and ids is None:
            raise ValueError(
                f"{title} is read without ids, but decisions were made by those in column {session.id!r}; name it with "
                "--id"
            )
        missing = [name for name in session.features if name not in table.column_names]
        if missing and (session.id is None or ids is None):
            raise ValueError(
                f"{title} lacks the column {missing[0]!r}, by which rows without ids are recognised; keep the columns "
                "of the table that was reviewed"
            )
        own = ids if session.id is not None else None
        known = bool(session.features) and not missing
        return cls(title, table.select(list(session.features)) if known else None, own)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {} if self.ids is None else {one: row for row, one in enumerate(self.ids)}

    def id(self, row: int) -> str | None:
        """Return the id of a row; None in a table without ids."""
        return None if self.ids is None else self.ids[row]

    def contents(self, rows: list[int]) -> list[str]:
        """Return a hash of the features of each of some rows: 16 hexadecimal digits."""
        import pyarrow as pa

        some = self.features.take(pa.array(rows, pa.int64()))
        texts = [column_texts(column, f"column {name!r}") for name, column in zip(some.column_names, some, strict=True)]
        lines = zip(*texts, strict=True) if texts else [()] * len(rows)
        return [hashlib.sha256(json.dumps(line).encode()).hexdigest()[:16] for line in lines]

    def find(self, decision: Decision) -> int | None:
        """Return the row that a decision is about, by its id or number; None if the table does not have it."""
        if self.ids is not None:
            return None if decision.id is None else self._place.get(decision.id)
        return decision.row if decision.row < self.features.num_rows else None

    def locate(self, decisions: Iterable[Decision]) -> dict[int, Decision]:
        """Return decisions by row, and compare their rows with those of the table.

        Raises
        ------
        ValueError
            If the table has no ids and a row is not the one that was decided: rows were moved, changed or removed.

        Warns
        -----
        UserWarning
            If rows with ids were removed, or their features changed.
        """
        found = {self.find(one): one for one in decisions}
        gone = found.pop(None, None)
        by_row = {row: one for row, one in found.items() if row is not None}
        rows = sorted(by_row)
        now = [by_row[row].content for row in rows] if self.features is None else self.contents(rows)
        other = [row for row, content in zip(rows, now, strict=True) if by_row[row].content != content]
        if self.ids is None and (other or gone is not None):
            row = other[0] if gone is None or other else gone.row
            raise ValueError(
                f"{self.title}: row {row} is not the row that was decided, so rows were moved, changed or removed, and "
                "without a column of ids decisions cannot be matched; name the table that was reviewed, or review a "
                "table with ids (--id of `candidly fit`)"
            )
        if gone is not None:
            warn(f"{self.title}: some decided rows are not in the table, such as {gone.key!r}; they were left out")
        if other:
            first = by_row[other[0]].key
            warn(
                f"{self.title}: {len(other)} decided rows have other features than when they were decided, such as "
                f"{first!r}; their decisions were used by id"
            )
        return by_row


@dataclass(frozen=True, eq=False)
class Merged:
    """Candidates after decisions.

    Attributes
    ----------
    candidates : Candidates
        A decided row has only the class that was named. After "none of these" it has all classes but those; after
        "cannot tell" its candidates are unchanged.
    answers : dict of int to str
        The answers by row.
    added : tuple of str
        Classes that reviewers added.
    disputed : int
        Number of rows on which reviewers disagree. Their candidates are unchanged.
    """

    candidates: Candidates
    answers: dict[int, str]
    added: tuple[str, ...]
    disputed: int


def merge(log: Log, rows: Rows, candidates: Candidates, reviewer: str | None = None) -> Merged:
    """Merge the decisions of a log into the candidates of a table.

    Parameters
    ----------
    log : Log
        The decisions.
    rows : Rows
        The rows of the table.
    candidates : Candidates
        Their candidates.
    reviewer : str, optional
        Whose decisions to use; by default those on which all reviewers agree.
    """
    if reviewer is not None and reviewer not in log.reviewers:
        known = ", ".join(log.reviewers) or "nobody"
        raise ValueError(f"reviewer is {reviewer!r}, who decided nothing in {log.path}; use one of {known}")
    located = rows.locate(log.settled(reviewer).values())
    answers = {row: one.after for row, one in located.items() if one.after is not None}
    names = {str(name): name for name in candidates.classes}
    added = tuple(dict.fromkeys(one for one in answers.values() if one not in {*names, NOT_A_CANDIDATE, UNKNOWN}))
    classes = _extend(candidates.classes, added)
    column = {str(name): j for j, name in enumerate(classes)}
    matrix = np.zeros((len(candidates), len(classes)), dtype=bool)
    matrix[:, [column[name] for name in names]] = candidates.matrix
    excluded = 0
    for row, answer in answers.items():
        if answer == NOT_A_CANDIDATE:
            others = ~matrix[row]
            excluded += not others.any()
            matrix[row] = others if others.any() else matrix[row]
        elif answer != UNKNOWN:
            matrix[row] = False
            matrix[row, column[answer]] = True
    if excluded:
        warn(
            f"{rows.title}: in {excluded} rows with the answer {NOT_A_CANDIDATE!r} all classes are candidates; they "
            "were left unchanged, name the class in the review to decide them"
        )
    disputed = 0 if reviewer is not None else len(log.disagreements())
    if disputed:
        warn(
            f"{log.path}: reviewers disagree on {disputed} rows, which were left unchanged; decide them in the review, "
            "or choose a reviewer with --reviewer of `candidly apply`"
        )
    return Merged(Candidates(matrix, classes, candidates.index), answers, added, disputed)


def _extend(classes: tuple[Hashable, ...], added: tuple[str, ...]) -> tuple[Hashable, ...]:
    """Return class names with further ones: sorted if the given ones are, else at the end."""
    if not added:
        return classes
    given = _ordered([str(name) for name in classes]) == [str(name) for name in classes]
    if given and all(isinstance(name, str) for name in classes):
        return tuple(_ordered([*map(str, classes), *added]))
    return (*classes, *added)


def _ordered(names: list[str]) -> list[str]:
    """Return names in the order of the classes of a table: by value if all are integers, else as text."""
    whole = {name: integer_text(name) for name in names}
    return sorted(names, key=lambda name: int(whole[name] or 0)) if None not in whole.values() else sorted(names)
