"""What the review page shows and does, apart from the web: rows in order, one reviewer's answers, progress."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from candidly.checks import arguments
from candidly.cleaning import VerificationPlan
from candidly.estimator.verification import NOT_A_CANDIDATE, UNKNOWN
from candidly.messages import visible
from candidly.review.decisions import SPECIAL, Decision, Item, Log, model_hash
from candidly.review.images import Images
from candidly.review.merging import Rows
from candidly.tables.labelled import column_texts

if TYPE_CHECKING:
    from candidly.estimator import PartialLabelClassifier

SHOWS = ("all", "undecided", "decided", "changed", "outside", "disagreements")
"""Which rows a view has: all, without or with an answer, whose candidates cleaning changed, and so on."""

_MOST_COLUMNS = 200  # columns of a row that are shown
_LONGEST_CELL = 20_000  # characters
_LONGEST_NAME = 200  # characters of an added class
_MOST_SECONDS = 86_400.0
_PAIRS = 30  # confused pairs that are offered
_BATCH = 12  # rows that are accepted together, at most
_SIMILAR = 5
_MOST_NUMBERS = 50_000_000  # in the matrix of features in which similar rows are searched
_RECENT = 20  # decisions from which the time per row is estimated
_PAUSE = 300.0  # seconds; a longer decision was interrupted and says nothing about the time per row
_LISTED = 200  # disagreements that are listed


@dataclass(frozen=True, eq=False)
class Material:
    """What is shown of the rows.

    Attributes
    ----------
    rows : Rows
        The rows, as decisions name them.
    table : pyarrow.Table
        The columns to show: neither candidates nor true labels.
    images : Images or None
        The images of the rows.
    votes : mapping of str to list of (str, str), or None
        The votes on a row by its id: pairs of annotator and label. They are not shown in mode verify.
    """

    rows: Rows
    table: Any
    images: Images | None = None
    votes: Mapping[str, Sequence[tuple[str, str]]] | None = None

    def cells(self, row: int) -> list[dict[str, str]]:
        """Return the columns of a row as texts, without the empty ones."""
        some = self.table.slice(row, 1)
        found = []
        for name, column in zip(some.column_names, some.columns[:_MOST_COLUMNS], strict=False):
            (text,) = column_texts(column, f"column {name!r}")
            if text:
                cut = text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"
                found.append({"name": visible(name), "text": cut})
        return found

    @property
    def hidden_columns(self) -> int:
        """Number of columns that are not shown because there are too many."""
        return max(int(self.table.num_columns) - _MOST_COLUMNS, 0)


@dataclass(frozen=True)
class View:
    """Which rows the page goes through.

    Attributes
    ----------
    show : str
        One of `SHOWS`.
    class_ : int or None
        Only rows with this class as a candidate or decision.
    pair : tuple of int or None
        Only rows whose two most probable classes are these.
    """

    show: str = "all"
    class_: int | None = None
    pair: tuple[int, int] | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any], num_classes: int) -> "View":
        """Read a view from the values of a request; raise ValueError for one that does not exist."""

        def number(value: Any, name: str) -> int:
            text = str(value)
            if not (text.isascii() and text.isdigit() and len(text) < 8 and int(text) < num_classes):
                raise ValueError(f"{name} is {arguments.shown(value)}; it must be the number of a class")
            return int(text)

        show = arguments.choice("show", given.get("show") or "all", SHOWS)
        class_ = None if given.get("class") in (None, "") else number(given["class"], "class")
        pair = None
        if given.get("pair") not in (None, ""):
            first, _, second = str(given["pair"]).partition(",")
            pair = (number(first, "pair"), number(second, "pair"))
        return cls(show, class_, pair)


class Desk:
    """The rows of one mode for one reviewer.

    Parameters
    ----------
    classifier : PartialLabelClassifier
        The model.
    material : Material
        What is shown of its training rows.
    log : Log
        Where decisions are written.
    reviewer : str
        Who decides.
    mode : {"verify", "decide"}
        In "verify" nothing that the model knows is shown.
    plan : VerificationPlan or None
        The rows to verify. In mode "decide", those of them that nobody has verified yet are left out.
    """

    def __init__(
        self,
        classifier: "PartialLabelClassifier",
        material: Material,
        log: Log,
        reviewer: str,
        mode: str,
        plan: VerificationPlan | None,
    ) -> None:
        assert classifier.fit_record_ is not None, "the caller checks that the model has its training rows"
        self.classifier, self.material, self.log = classifier, material, log
        self.reviewer, self.mode, self.plan = reviewer, mode, plan
        self.blind = mode == "verify"
        self.model = model_hash(classifier)
        self.candidates = classifier.fit_record_.candidates
        self.names = [str(name) for name in self.candidates.classes]
        n = len(self.candidates)
        self._answers: dict[int, Decision] = {}  # of this reviewer, by row
        self._decided = np.zeros(n, dtype=bool)
        self._seconds: list[float] = []
        self._known = {*self.names, *SPECIAL}
        self._added: set[str] = set()  # classes that reviewers added
        self._seen = 0
        self._guard = threading.RLock()
        if self.blind:
            assert plan is not None, "the caller makes a plan"
            self._order = np.array(plan.rows, dtype=np.int64)
        else:
            self._order = np.argsort(classifier.priority_, kind="stable")
            self._q = classifier.candidate_proba_
            self._outside = classifier.outside_
            self._changed = (self.candidates.matrix != classifier.candidates_.matrix).any(1)
        self._rank = np.full(n, -1, dtype=np.int64)  # the position of each row in the whole order
        self._rank[self._order] = np.arange(len(self._order))
        self._sync()

    def state(self) -> dict[str, Any]:
        """Return what the page needs once: names of classes, the reviewer, what can be filtered."""
        with self._guard:
            self._sync()
            found = {
                "mode": self.mode,
                "reviewer": visible(self.reviewer),
                "table": visible(self.material.rows.title),
                "classes": self._classes(),
                "known": len(self.names),
                "none": NOT_A_CANDIDATE,
                "unknown": UNKNOWN,
                "hidden_columns": self.material.hidden_columns,
                "batch": _BATCH,
            }
            if not self.blind:
                found["pairs"] = self._list_pairs()
            return found | {"progress": self.progress(View())}

    def progress(self, view: View) -> dict[str, Any]:
        """Return how many rows of a view have an answer, and how long the rest will take."""
        order = self._rows(View("all", view.class_, view.pair))
        decided = int(self._decided[order].sum())
        pace = median(self._seconds[-_RECENT:]) if self._seconds else None
        undo, redo = self.log.can_undo(self.reviewer, self.mode, self.model)
        left = None if pace is None else pace * (len(order) - decided)
        return {"decided": decided, "total": len(order), "left": left, "undo": undo, "redo": redo}

    def show(self, view: View, *, row: int | None = None, step: int = 0, after: bool = False) -> dict[str, Any]:
        """Return a row of a view with the progress.

        Parameters
        ----------
        view : View
            The rows to go through.
        row : int, optional
            The row to start from; by default the first.
        step : int
            How many rows to go on, or back if it is negative.
        after : bool
            Whether to go on to the next row without an answer, from the start again after the last.
        """
        with self._guard:
            self._sync()
            order = self._rows(view)
            if not len(order):
                return {"row": None, "progress": self.progress(view)}
            place = self._next(order, row) if after else self._place(order, row, step)
            return {"row": self._row(int(order[place]), place, len(order)), "progress": self.progress(view)}

    def batch(self, view: View, row: int | None) -> dict[str, Any]:
        """Return the next rows of a view without an answer, to accept what the model suggests for all of them."""
        with self._guard:
            self._sync()
            order = self._rows(view)
            if len(order):
                order = np.roll(order, -self._place(order, row, 0))
            some = order[~self._decided[order]][:_BATCH].tolist()
            return {"rows": [self._row(one, 0, 0) for one in some], "progress": self.progress(view)}

    def decide(self, items: Any) -> list[int]:
        """Write answers to the log; return their rows once they are on the disk.

        Parameters
        ----------
        items : list of dict
            From the page: row, answer (a class name, a special answer, or None to withdraw one) and seconds.
        """
        if not isinstance(items, list) or not 0 < len(items) <= _BATCH:
            raise ValueError(f"items must be a list of 1 to {_BATCH} answers")
        with self._guard:
            self._sync()
            read = [self._read_item(one) for one in items]
            if len({item.row for item in read}) < len(read):
                raise ValueError("items has two answers for one row")
            self.log.decide(self.reviewer, self.mode, self.model, read)
            self._sync()
            return [item.row for item in read]

    def take_back(self, action: str) -> int | None:
        """Undo or redo the last step of the reviewer; return the first of its rows, None if there was none."""
        with self._guard:
            change = self.log.undo if action == "undo" else self.log.redo
            written = change(self.reviewer, self.mode, self.model)
            self._sync()
            return self.material.rows.find(written[0]) if written else None

    def similar(self, row: int) -> dict[str, Any]:
        """Return the rows with the most similar features; none, with the reason, if the table is too large."""
        self._check(row)
        X = self._encoded
        if X is None:
            return {"rows": [], "reason": "the table is too large to search for similar rows"}
        distance = self._lengths - 2 * (X @ X[row])
        distance[row] = np.inf
        few = min(_SIMILAR, len(X) - 1)
        nearest = np.argpartition(distance, few - 1)[:few] if few else np.empty(0, dtype=np.int64)
        in_order = nearest[np.argsort(distance[nearest], kind="stable")].tolist()
        with self._guard:
            return {"rows": [self._summary(one) for one in in_order], "reason": None}

    def reviewers(self) -> dict[str, Any]:
        """Return how far reviewers agree, and the rows on which they do not."""
        with self._guard:
            self._sync()
            rows = []
            for key, answers in list(self.log.disagreements().items())[:_LISTED]:
                row = self.material.rows.find(next(iter(answers.values())))
                given = {visible(name): one.after for name, one in answers.items() if one.after is not None}
                rows.append({"row": row, "id": visible(str(key)), "answers": given})
            pairs = [
                {"reviewers": list(map(visible, one.reviewers)), "rows": one.rows}
                | {"observed": one.observed, "kappa": one.kappa}
                for one in self.log.agreement()
            ]
            return {"pairs": pairs, "disagreements": rows}

    def missing(self) -> int:
        """Return how many rows of the plan nobody has verified yet."""
        self.log.refresh()
        return len(self._withheld())

    def certificate(self) -> dict[str, Any]:
        """Return what is certified, once all rows of the plan have an answer; until then, how many are missing."""
        assert self.plan is not None, "the caller checks that there is a plan"
        missing = self.missing()
        if missing:
            return {"missing": missing, "lines": []}
        found = self.classifier.certify(self.log.verified(self.plan, self.candidates.classes), self.plan)
        return {"missing": 0, "lines": found.lines()}

    def _sync(self) -> None:
        """Take in what was written to the log since the last call, by this or another process."""
        self.log.refresh()
        for one in self.log.decisions[self._seen :]:
            if one.after is not None and one.after not in self._known:
                self._added.add(one.after)
            row = self.material.rows.find(one)
            mine = one.reviewer == self.reviewer and row is not None
            if mine and (not self.blind or (one.mode == "verify" and one.model == self.model)):
                assert row is not None
                self._answers[row] = one
                self._decided[row] = one.after is not None
                if 0 < one.seconds < _PAUSE and one.mode == self.mode:
                    self._seconds.append(one.seconds)
        self._seen = len(self.log.decisions)

    def _classes(self) -> list[str]:
        """Return the class names, followed by those that reviewers added."""
        return [*self.names, *sorted(self._added)]

    def _rows(self, view: View) -> NDArray[np.int64]:
        """Return the rows of a view, in order."""
        order = self._order
        if self.blind:
            return order
        keep = np.ones(len(self.candidates), dtype=bool)
        keep[list(self._withheld())] = False
        if view.class_ is not None:
            name = self.names[view.class_]
            keep &= self.candidates.matrix[:, view.class_]
            keep[[row for row, one in self._answers.items() if one.after == name]] = True
        if view.pair is not None:
            low, high = sorted(view.pair)
            keep &= self._pairs == low * len(self.names) + high
        if view.show == "decided":
            keep &= self._decided
        elif view.show == "undecided":
            keep &= ~self._decided
        elif view.show == "changed":
            keep &= self._changed
        elif view.show == "outside":
            keep &= self.classifier.outside_proba_ > 0
        elif view.show == "disagreements":
            differing = np.zeros_like(keep)
            for one in self.log.disagreements().values():
                row = self.material.rows.find(next(iter(one.values())))
                if row is not None:
                    differing[row] = True
            keep &= differing
        return order[keep[order]]

    def _withheld(self) -> set[int]:
        """Return the rows of the plan that nobody has verified yet: they must not be seen with the model's opinion."""
        if self.plan is None or self.plan.family != self.model:
            return set()
        return set(self.plan.rows) - self.log.verified(self.plan, self.names).keys()

    def _is_shown(self, row: int) -> bool:
        """Return whether a row can be answered in this mode."""
        return row in self._planned if self.blind else row not in self._withheld()

    @cached_property
    def _planned(self) -> frozenset[int]:
        return frozenset(self._order.tolist())

    def _place(self, order: NDArray[np.int64], row: int | None, step: int) -> int:
        """Return the position of a row in the rows of a view, or some steps from there; 0 without a row.

        If the view does not have the row, as after a decision, the row that follows is the next step.
        """
        if row is None:
            return 0
        rank = self._rank_of(row)
        place = int(np.searchsorted(self._rank[order], rank))
        gone = place == len(order) or int(self._rank[order[place]]) != rank
        return min(max(place + step - (gone and step > 0), 0), len(order) - 1)

    def _next(self, order: NDArray[np.int64], row: int | None) -> int:
        """Return the position of the next row without an answer, from the start again after the last.

        If all rows have one, it is the position of the row itself.
        """
        free = np.flatnonzero(~self._decided[order])
        if not len(free):
            return self._place(order, row, 0)
        later = free[self._rank[order[free]] > (-1 if row is None else self._rank_of(row))]
        return int(later[0] if len(later) else free[0])

    def _rank_of(self, row: int) -> int:
        self._check(row)
        return int(self._rank[row])

    def _row(self, row: int, place: int, total: int) -> dict[str, Any]:
        """Return all that the page shows of a row."""
        rows, votes = self.material.rows, self.material.votes
        answer = self._answers.get(row)
        found: dict[str, Any] = {
            "row": row,
            "id": self._id(row),
            "place": place,
            "total": total,
            "cells": self.material.cells(row),
            "image": self.material.images is not None and self.material.images.has(row),
            "answer": None if answer is None else answer.after,
        }
        own = np.flatnonzero(self.candidates.matrix[row]).tolist()
        if self.blind:
            return found | {"candidates": [{"name": self.names[j]} for j in own]}
        own.sort(key=lambda j: -self._q[row, j])
        kept = self.classifier.candidates_.matrix[row]
        listed = [{"name": self.names[j], "p": float(self._q[row, j]), "removed": not kept[j]} for j in own]
        if self._outside[row] is not None:
            p = float(self.classifier.outside_proba_[row])
            listed.append({"name": str(self._outside[row]), "p": p, "removed": False, "outside": True})
        given = [] if votes is None or rows.ids is None else votes.get(rows.ids[row], [])
        found["votes"] = [{"annotator": visible(name), "label": visible(label)} for name, label in given]
        return found | {"candidates": listed, "suggestion": self.names[own[0]]}

    def _summary(self, row: int) -> dict[str, Any]:
        """Return a row without the model's opinion: it may be one that is still to be verified."""
        answer = self._answers.get(row)
        own = [self.names[j] for j in np.flatnonzero(self.candidates.matrix[row])]
        found = {"row": row, "id": self._id(row), "cells": self.material.cells(row), "candidates": own}
        return found | {"answer": None if answer is None else answer.after}

    def _id(self, row: int) -> str:
        ids = self.material.rows.ids
        return visible(str(row) if ids is None else ids[row])

    def _read_item(self, item: Any) -> Item:
        if not isinstance(item, dict) or set(item) != {"row", "answer", "seconds"}:
            raise ValueError("an item must have row, answer and seconds")
        row, answer, seconds = item["row"], item["answer"], item["seconds"]
        if type(row) is not int or not 0 <= row < len(self._decided) or not self._is_shown(row):
            raise ValueError(f"row is {arguments.shown(row)}, which is not shown in this mode")
        if answer is not None:
            answer = self._read_answer(answer)
        if type(seconds) not in (int, float) or not seconds >= 0:
            raise ValueError(f"seconds is {arguments.shown(seconds)}; it must be a number of at least 0")
        rows = self.material.rows
        return Item(row, rows.id(row), rows.contents([row])[0], answer, min(float(seconds), _MOST_SECONDS))

    def _read_answer(self, answer: Any) -> str:
        """Return an answer: a class, a special answer, or the name of a new class; raise ValueError for a bad name."""
        if not isinstance(answer, str):
            raise ValueError(f"the answer is {arguments.shown(answer)}; it must be text")
        known = [*self._classes(), *SPECIAL]
        if answer in known:
            return answer
        schema = self.classifier.schema_
        separator = "|" if schema is None else schema.separator
        name = answer.strip()
        if not name or len(name) > _LONGEST_NAME or not name.isprintable() or separator in name:
            raise ValueError(
                f"{answer!r} cannot be the name of a class; use 1 to {_LONGEST_NAME} printable characters without "
                f"{separator!r}"
            )
        same = next((one for one in known if one.casefold() == name.casefold()), None)
        if same is not None and same != name:
            raise ValueError(f"{name!r} is nearly the class {same!r}; choose that one, or another name")
        return name

    def _check(self, row: int) -> None:
        if not 0 <= row < len(self.candidates):
            raise ValueError(f"row is {row}; rows are numbers from 0 to {len(self.candidates) - 1}")

    @cached_property
    def _encoded(self) -> NDArray[Any] | None:
        """The features as numbers, (n, d); None if they take too much memory."""
        features = self.classifier.features_
        if features.image is not None or len(self.candidates) * features.width > _MOST_NUMBERS:
            return None
        return np.ascontiguousarray(features.transform(self.material.rows.features), dtype=np.float32)

    @cached_property
    def _lengths(self) -> NDArray[Any]:
        assert self._encoded is not None
        return np.einsum("ij,ij->i", self._encoded, self._encoded)

    @cached_property
    def _top_two(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The two most probable classes of each row as one number, -1 if it has one; and the second's probability."""
        n, c = len(self.candidates), len(self.names)
        order = np.argpartition(self._q, c - 2, axis=1)[:, -2:]
        first = self._q.argmax(1)
        second = np.where(order[:, 0] == first, order[:, 1], order[:, 0])
        p = self._q[np.arange(n), second].copy()
        several = self.candidates.sizes > 1
        number = {name: j for j, name in enumerate(self.candidates.classes)}
        for row in np.flatnonzero(~several & (self.classifier.outside_proba_ > 0)).tolist():
            second[row], p[row], several[row] = (
                number[self._outside[row]],
                self.classifier.outside_proba_[row],
                True,
            )
        low, high = np.minimum(first, second), np.maximum(first, second)
        return np.where(several, low * c + high, -1), p

    @property
    def _pairs(self) -> NDArray[np.int64]:
        return self._top_two[0]

    def _list_pairs(self) -> list[dict[str, Any]]:
        """Return the pairs of classes that are confused most: by the probabilities of the second ones, in all rows."""
        numbers, p = self._top_two
        has = numbers >= 0
        pairs, inverse = np.unique(numbers[has], return_inverse=True)
        weight, rows = np.bincount(inverse, p[has]), np.bincount(inverse)
        c = len(self.names)
        return [
            {"pair": [int(pairs[i] // c), int(pairs[i] % c)], "rows": int(rows[i])}
            for i in np.argsort(-weight, kind="stable")[:_PAIRS].tolist()
        ]
