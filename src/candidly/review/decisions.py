"""The log of decisions: a file of JSON lines that is only appended to, and what follows from it for each row."""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from candidly.checks import arguments
from candidly.cleaning import VerificationPlan
from candidly.estimator.verification import NOT_A_CANDIDATE, UNKNOWN
from candidly.store import validation
from candidly.store.files import MOST_JSON, sync_folder
from candidly.store.lock import locked

MODES = ("verify", "decide")
ACTIONS = ("decide", "undo", "redo")
SPECIAL = (NOT_A_CANDIDATE, UNKNOWN)
"""Answers that are not class names."""

Key = str | int
"""What identifies a row: its id, or its number in a table without ids."""

_FORMAT = 1
_LONGEST = 10_000  # characters of a name


@dataclass(frozen=True)
class Session:
    """One start of a review: who reviews which table with which model. Decisions that follow belong to that table.

    Attributes
    ----------
    time : str
        When it started, in UTC.
    reviewer : str
        Who reviews.
    model : str
        A hash of the model's cleaning rules, as in a `candidly.cleaning.VerificationPlan`.
    table : str
        Name of the table.
    id, candidates : str or None
        Its columns of ids and of candidates, if it has them.
    features : tuple of str
        Its columns of features. Their content tells whether a row is the one that was decided.
    separator : str
        The text between class names in a cell.
    delimiter : str or None
        The character between the columns of CSV.
    """

    time: str
    reviewer: str
    model: str
    table: str
    id: str | None
    candidates: str | None
    features: tuple[str, ...]
    separator: str = "|"
    delimiter: str | None = None


@dataclass(frozen=True)
class Decision:
    """What one reviewer decided about one row: a line of the log.

    Attributes
    ----------
    time : str
        When it was decided, in UTC.
    reviewer : str
        Who decided.
    mode : {"verify", "decide"}
        Whether the reviewer saw no opinion of the model ("verify") or its probabilities ("decide").
    model : str
        A hash of the model.
    row : int
        Number of the row in the table, from 0.
    id : str or None
        The id of the row, if the table has ids.
    content : str
        A hash of the row's features.
    before, after : str or None
        The reviewer's answer before and after: a class name, "none of these", "cannot tell", or None for no answer.
    seconds : float
        How long the row was shown.
    step : int
        Number of the reviewer's action; rows that were accepted together have the same.
    action : {"decide", "undo", "redo"}
        An undo or redo is a line like any other: it restores the answer `after`.
    """

    time: str
    reviewer: str
    mode: str
    model: str
    row: int
    id: str | None
    content: str
    before: str | None
    after: str | None
    seconds: float
    step: int
    action: str = "decide"

    @property
    def key(self) -> Key:
        """The id of the row, or its number if it has no id."""
        return self.row if self.id is None else self.id


@dataclass(frozen=True)
class Agreement:
    """How far two reviewers agree on the rows that both answered; rows with "cannot tell" are left out.

    Attributes
    ----------
    reviewers : tuple of str
        The two.
    rows : int
        Number of rows with an answer of both.
    observed : float
        Fraction of these rows with the same answer.
    kappa : float or None
        Cohen's kappa: 1 is full agreement, 0 is agreement by chance. None if both always gave one and the same answer.

    Notes
    -----
    With p_o the observed fraction and p_e = Σ_c a_c b_c, where a_c and b_c are the fractions of the two reviewers'
    answers that are c, ``kappa = (p_o − p_e) / (1 − p_e)`` (J. Cohen, *A coefficient of agreement for nominal scales*,
    Educational and Psychological Measurement 20, 1960).
    """

    reviewers: tuple[str, str]
    rows: int
    observed: float
    kappa: float | None


@dataclass(frozen=True)
class Item:
    """An answer to write to the log (`Log.decide`).

    Attributes
    ----------
    row, id, content
        The row, as in `Decision`.
    answer : str or None
        A class name, "none of these", "cannot tell", or None to withdraw the answer.
    seconds : float
        How long the row was shown.
    """

    row: int
    id: str | None
    content: str
    answer: str | None
    seconds: float


_name = validation.expect(
    lambda value, what: validation.require(isinstance(value, str) and 0 < len(value) <= _LONGEST, what, value), "a name"
)
_SESSION: dict[str, validation.Check] = {
    **dict.fromkeys(("time", "model", "separator"), validation.text),
    **dict.fromkeys(("reviewer", "table"), _name),
    **dict.fromkeys(("id", "candidates", "delimiter"), validation.optional(validation.text)),
    "features": validation.list_of(validation.text, 0),
}
_DECISION: dict[str, validation.Check] = {
    **dict.fromkeys(("time", "model", "content"), validation.text),
    "reviewer": _name,
    "mode": validation.one_of(MODES),
    "action": validation.one_of(ACTIONS),
    "row": validation.count(0),
    "step": validation.count(1),
    "seconds": validation.number,
    **dict.fromkeys(("id", "before", "after"), validation.optional(_name)),
}


class Log:
    """An append-only file of decisions, which several processes may write to.

    Every line is a JSON object: a `Session` or a `Decision`. A line is written and flushed to the disk before `decide`
    returns. If a process is killed while it writes, the incomplete last line is ignored, and the next writer removes
    it. Nothing else is ever removed or changed.

    Parameters
    ----------
    path : path
        The file. It is created by the first `start`; reading needs an existing file.
    create : bool
        Whether the file may be missing.

    Attributes
    ----------
    sessions : list of Session
        All starts of reviews, in order.
    decisions : list of Decision
        All decisions, in order.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = Log(Path(folder, "log.jsonl"), create=True)
    ...     log.start(Session("2026-01-31T12:00:00Z", "ann", "0f", "birds.csv", "id", "candidates", ("weight",)))
    ...     _ = log.decide("ann", "decide", "0f", [Item(7, "b7", "c0ffee", "owl", 2.5)])
    ...     Log(log.path).settled()["b7"].after
    'owl'
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        arguments.flag("create", create)
        self._clear(path)
        if not create and not self.path.is_file():
            raise FileNotFoundError(f"{self.path} does not exist or is not a file; name the log of `candidly review`")
        if self.path.is_dir():
            raise ValueError(f"{self.path} is a folder; name a file in it")
        self.refresh()

    @classmethod
    def of(cls, path: str | os.PathLike[str], session: Session, decisions: Iterable[Decision]) -> "Log":
        """Return a log of decisions that were made elsewhere, in memory: nothing can be added to it.

        Parameters
        ----------
        path : path
            The file that the decisions were read from, for messages.
        session : Session
            The table that they are about.
        decisions : iterable of Decision
            The decisions, in order.
        """
        log = cls.__new__(cls)
        log._clear(path)
        log._take(session, None)
        for one in decisions:
            log._take(None, one)
        return log

    def _clear(self, path: str | os.PathLike[str]) -> None:
        """Know nothing of a file."""
        self.path = arguments.path("path", path)
        self.sessions: list[Session] = []
        self.decisions: list[Decision] = []
        self._end = 0  # of the last complete line that was read
        self._open_line = False  # whether that line lacks its newline, as an editor may leave it
        self._lines = 0
        self._guard = threading.RLock()
        self._current: dict[Key, dict[str, Decision]] = {}  # the last decision of each reviewer, by row
        self._blind: dict[tuple[str, int], dict[str, Decision]] = {}  # the same in mode verify, by model and row
        self._steps: Counter[str] = Counter()
        self._done: dict[tuple[str, str, str], list[list[Decision]]] = {}
        self._undone: dict[tuple[str, str, str], list[list[Decision]]] = {}

    def refresh(self) -> None:
        """Read what was appended since the last call, by this or another process."""
        with self._guard:
            try:
                with open(self.path, "rb") as file:
                    self._read(file)
            except FileNotFoundError:
                if self._end:
                    raise FileNotFoundError(f"{self.path} was removed while it was in use; restore it") from None

    def check(self, session: Session) -> None:
        """Raise ValueError if the log is about a table with other columns of ids or candidates than a session."""
        for earlier in self.sessions[:1]:
            for name in ("id", "candidates"):
                if getattr(earlier, name) != getattr(session, name):
                    raise ValueError(
                        f"{self.path} is about {earlier.table} with the {name} column {getattr(earlier, name)!r}, not "
                        f"{getattr(session, name)!r}; name another file with --log"
                    )

    def start(self, session: Session) -> None:
        """Append a session, after `check`."""
        self.check(session)
        facts = {"session": {"format": _FORMAT} | asdict(session) | {"features": list(session.features)}}
        self._append(lambda: [facts])

    def decide(self, reviewer: str, mode: str, model: str, items: Sequence[Item]) -> list[Decision]:
        """Append the answers of a reviewer as one step; return the decisions once they are on the disk."""

        def entries() -> list[Decision]:
            time, step = now(), self._steps[reviewer] + 1
            return [
                Decision(
                    time=time,
                    reviewer=reviewer,
                    mode=mode,
                    model=model,
                    row=item.row,
                    id=item.id,
                    content=item.content,
                    before=self._answer(reviewer, mode, model, item),
                    after=item.answer,
                    seconds=round(item.seconds, 3),
                    step=step,
                )
                for item in items
            ]

        return self._write(entries)

    def undo(self, reviewer: str, mode: str, model: str) -> list[Decision]:
        """Take back the last step of a reviewer in a mode; return the decisions that do so, none if there is none."""
        return self._write(lambda: self._reversed(self._done, "undo", (reviewer, mode, model)))

    def redo(self, reviewer: str, mode: str, model: str) -> list[Decision]:
        """Repeat the last step that was taken back; return the decisions that do so, none if there is none."""
        return self._write(lambda: self._reversed(self._undone, "redo", (reviewer, mode, model)))

    def can_undo(self, reviewer: str, mode: str, model: str) -> tuple[bool, bool]:
        """Return whether there is a step to take back, and one to repeat."""
        key = (reviewer, mode, model)
        return bool(self._done.get(key)), bool(self._undone.get(key))

    @property
    def reviewers(self) -> list[str]:
        """All reviewers with a decision, sorted."""
        return sorted({decision.reviewer for decision in self.decisions})

    def settled(self, reviewer: str | None = None) -> dict[Key, Decision]:
        """Return the decision on each row: of all reviewers, if they agree, or of one.

        Parameters
        ----------
        reviewer : str, optional
            Whose decisions to return; by default those of all. Rows on which reviewers disagree are left out.
            "cannot tell" gives way to another reviewer's answer.
        """
        with self._guard:
            found = {}
            for key, answers in self._current.items():
                one = _settle(one for name, one in answers.items() if reviewer in (None, name))
                if one is not None:
                    found[key] = one
            return found

    def disagreements(self) -> dict[Key, dict[str, Decision]]:
        """Return the decision of each reviewer on the rows on which reviewers disagree."""
        with self._guard:
            return {key: dict(found) for key, found in self._current.items() if _disagree(found.values())}

    def agreement(self) -> list[Agreement]:
        """Return how far reviewers agree, for every two of them who answered a row."""
        with self._guard:
            pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
            for answers in self._current.values():
                known = sorted((name, one.after) for name, one in answers.items() if one.after not in (None, UNKNOWN))
                for i, (first, a) in enumerate(known):
                    for second, b in known[i + 1 :]:
                        pairs.setdefault((first, second), []).append((str(a), str(b)))
        return [_compare(names, answers) for names, answers in sorted(pairs.items())]

    def verified(self, plan: VerificationPlan, classes: Collection[Any]) -> dict[int, Any]:
        """Return the answers to a plan that were given without seeing the model's opinion, for `certify`.

        Parameters
        ----------
        plan : VerificationPlan
            The rows that were drawn.
        classes : collection
            Class names of the model. Another class, which a reviewer added, counts as "none of these".

        Returns
        -------
        dict of int to name
            By row. Rows without an answer are left out; "cannot tell" where reviewers disagree, so that both count as
            lost.
        """
        arguments.instance("plan", plan, VerificationPlan, "what plan_verification returned")
        known = dict(zip(SPECIAL, SPECIAL, strict=True)) | {str(name): name for name in classes}
        found: dict[int, Any] = {}
        with self._guard:
            for row in plan.rows:
                answers = self._blind.get((plan.family, row), {}).values()
                if _disagree(answers):
                    found[row] = UNKNOWN
                elif (one := _settle(answers)) is not None and one.after is not None:
                    found[row] = known.get(one.after, NOT_A_CANDIDATE)
        return found

    def _answer(self, reviewer: str, mode: str, model: str, item: Item) -> str | None:
        """Return the present answer of a reviewer: in mode verify, the one that was given in this mode."""
        if mode == "verify":
            found = self._blind.get((model, item.row), {}).get(reviewer)
        else:
            found = self._current.get(item.row if item.id is None else item.id, {}).get(reviewer)
        return None if found is None else found.after

    def _reversed(
        self, steps: dict[tuple[str, str, str], list[list[Decision]]], action: str, key: tuple[str, str, str]
    ) -> list[Decision]:
        """Return the decisions that take the last of some steps back, or repeat it."""
        stack = steps.get(key)
        if not stack:
            return []
        time, step, undo = now(), self._steps[key[0]] + 1, action == "undo"
        return [
            Decision(
                **asdict(one)
                | {"time": time, "step": step, "action": action, "seconds": 0.0}
                | ({"before": one.after, "after": one.before} if undo else {})
            )
            for one in stack[-1]
        ]

    def _write(self, entries: Callable[[], list[Decision]]) -> list[Decision]:
        with self._guard:
            before = len(self.decisions)
            self._append(lambda: [asdict(one) for one in entries()])
            return self.decisions[before:]

    def _append(self, entries: Callable[[], list[dict[str, Any]]]) -> None:
        """Append what a function returns, which is called when everything before is known; flush it to the disk."""
        with self._guard, locked(self.path.with_name(f"{self.path.name}.lock"), wait=True):
            new = not self.path.exists()
            if new and self._end:
                raise FileNotFoundError(f"{self.path} was removed while it was in use; restore it")
            with open(self.path, "a+b" if new else "r+b") as file:
                self._read(file)
                lines = "".join(json.dumps(one, allow_nan=False) + "\n" for one in entries()).encode()
                if not lines:
                    return
                file.seek(self._end)
                file.truncate()  # an incomplete line that a killed writer left; nobody was told that it was saved
                file.write(b"\n" * self._open_line + lines)
                file.flush()
                os.fsync(file.fileno())
                self._read(file)
            if new:
                sync_folder(self.path.absolute().parent)

    def _read(self, file: Any) -> None:
        """Read the lines after those that were read before."""
        size = file.seek(0, os.SEEK_END)
        if size < self._end:
            raise ValueError(f"{self.path} has become shorter while it was in use; restore it from a copy")
        if size > MOST_JSON:
            raise ValueError(f"{self.path} has {size} bytes, more than the limit of {MOST_JSON}; use another log")
        file.seek(self._end)
        *lines, rest = file.read().split(b"\n")
        for line in lines:
            self._end += len(line) + 1
            self._open_line = False
            self._lines += 1
            if line.strip():
                self._take(*self._parse(line))
        if rest.strip(b"\0 \r\t"):
            try:
                found = self._parse(rest)
            except ValueError:  # a line that is being written, or was when its writer was killed
                return
            self._end += len(rest)
            self._open_line = True
            self._take(*found)

    def _parse(self, line: bytes) -> tuple[Session | None, Decision | None]:
        try:
            facts = json.loads(line)
            if isinstance(facts, dict) and set(facts) == {"session"}:
                given = dict(facts["session"]) if isinstance(facts["session"], dict) else {}
                if given.pop("format", None) != _FORMAT:
                    raise ValueError("it was written by another version of candidly")
                validation.record(_SESSION)(given, "a session")
                return Session(**given | {"features": tuple(given["features"])}), None
            validation.record(_DECISION)(facts, "a decision")
            return None, Decision(**facts)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{self.path}: line {self._lines} cannot be read ({error}); restore the file from a copy, or remove "
                "this line"
            ) from None

    def _take(self, session: Session | None, decision: Decision | None) -> None:
        """Add a line that was read to what is known."""
        if session is not None:
            self.sessions.append(session)
        if decision is None:
            return
        self.decisions.append(decision)
        name = decision.reviewer
        self._current.setdefault(decision.key, {})[name] = decision
        if decision.mode == "verify":
            self._blind.setdefault((decision.model, decision.row), {})[name] = decision
        together = decision.step == self._steps[name]
        self._steps[name] = max(decision.step, self._steps[name])
        key = (name, decision.mode, decision.model)
        done, undone = self._done.setdefault(key, []), self._undone.setdefault(key, [])
        if together:  # further rows of the step
            if decision.action == "decide" and done:
                done[-1].append(decision)
        elif decision.action == "decide":
            done.append([decision])
            undone.clear()
        elif decision.action == "undo" and done:
            undone.append(done.pop())
        elif decision.action == "redo" and undone:
            done.append(undone.pop())


def model_hash(classifier: Any) -> str:
    """Return the hash by which decisions name a model: that of its cleaning rules, as in plans."""
    from candidly.estimator.verification import fingerprint

    record, budget = classifier.fit_record_, classifier.budget_
    return str(classifier.trained_on_) if record is None or budget is None else fingerprint(record, budget)


def now() -> str:
    """Return the present time in UTC, to the millisecond, as logs have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _settle(decisions: Iterable[Decision]) -> Decision | None:
    """Return the last decision with an answer, if all agree; "cannot tell" only if nobody can."""
    given = [one for one in decisions if one.after is not None]
    certain = [one for one in given if one.after != UNKNOWN]
    if _disagree(certain) or not given:
        return None
    return max(certain or given, key=lambda one: one.time)


def _disagree(decisions: Iterable[Decision]) -> bool:
    return len({one.after for one in decisions} - {None, UNKNOWN}) > 1


def _compare(names: tuple[str, str], answers: list[tuple[str, str]]) -> Agreement:
    n = len(answers)
    observed = sum(a == b for a, b in answers) / n
    first, second = Counter(a for a, _ in answers), Counter(b for _, b in answers)
    chance = sum(first[one] * second[one] for one in first) / n**2
    return Agreement(names, n, observed, None if chance == 1 else (observed - chance) / (1 - chance))
