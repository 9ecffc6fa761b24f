"""What cleaning found, as plain facts of bounded size: all that a report shows, in JSON types."""

from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, TypedDict

from candidly.checks import Check, count, distinct, list_of, mapping, number, optional, record, require, share, text

__all__ = ["HISTORY", "MOST_DOUBTFUL", "MOST_SHOWN", "Bin", "Curve", "Doubtful", "Findings", "Truth"]

HISTORY = (
    *("loss", "alpha", "threshold", "mean_candidates", "covering_rate", "share_changed", "estimated_lost"),
    *("accuracy", "true_kept"),
)
MOST_SHOWN, MOST_DOUBTFUL = 30, 1000
_MOST_LINES, _MOST_BINS, _MOST_CLASSES, _MOST_EPOCHS = 1000, 100, 100_000, 100_000


class Curve(TypedDict):
    """A quantity by epoch, over the networks that trained together: its mean, smallest and largest value."""

    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]


class Doubtful(TypedDict):
    """A row that somebody should look at; classes are given by number, and `scores` has one of each removed label."""

    row: int
    id: str | None
    candidates: list[int]
    removed: list[int]
    scores: list[float]
    predicted: int
    confidence: float
    true: int | None


class Bin(TypedDict):
    """The rows whose confidence lies between two bounds: their number, and means over them."""

    low: float
    high: float
    count: int
    confidence: float | None
    covering: float | None
    accuracy: float | None


class Truth(TypedDict):
    """How well cleaning did on the rows whose label is known; None stands where there was nothing to count."""

    rows: int
    accuracy: float | None
    true_kept: float | None
    wrong_removed: float | None


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What cleaning did to a table of ambiguously labelled rows.

    Attributes
    ----------
    title : str
        What was cleaned, such as a file's name.
    version, date, seconds, device : str, str, float, str
        The version of candidly, when it ran (ISO 8601), for how long, and where.
    words, features : list of str
        What was done, and what happened to which columns, in plain sentences.
    settings : dict of str to str, int, float, bool or None
    classes : list of str
        The names of all C classes.
    rows, changed : int
        How many rows there are, and how many lost a candidate.
    before, after : list of int
        How many rows have 1, 2, …, C candidates, before and after cleaning.
    history : dict of str to Curve
        By epoch, of what is in `HISTORY`; whatever was not recorded is left out.
    shown : list of int
        At most 30 classes, to which the next two refer.
    together : list of list of int
        In how many rows both classes are candidates; on the diagonal, in how many the class is.
    removed : list of list of int
        From how many rows that were predicted to be of the first class the second was removed.
    doubtful : list of Doubtful
        At most 1000 rows, the most doubtful first.
    reliability : list of Bin
    truth : Truth or None
        None if no true label is known.

    Examples
    --------
    >>> run = {"title": "birds.csv", "version": "0.1.0", "date": "2026-01-31", "seconds": 2.5, "device": "cpu"}
    >>> findings = Findings(**run, classes=["owl", "wren"], rows=3, changed=1, before=[1, 2], after=[2, 1])
    >>> Findings.from_json(findings.to_json()) == findings
    True
    """

    title: str
    version: str
    date: str
    seconds: float
    device: str
    words: list[str] = field(default_factory=list)
    settings: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    features: list[str] = field(default_factory=list)
    classes: list[str]
    rows: int
    changed: int
    before: list[int]
    after: list[int]
    history: dict[str, Curve] = field(default_factory=dict)
    shown: list[int] = field(default_factory=list)
    together: list[list[int]] = field(default_factory=list)
    removed: list[list[int]] = field(default_factory=list)
    doubtful: list[Doubtful] = field(default_factory=list)
    reliability: list[Bin] = field(default_factory=list)
    truth: Truth | None = None

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON types, as a copy."""
        return asdict(self)

    @classmethod
    def from_json(cls, facts: Any) -> "Findings":
        """Read what `to_json` returned, trusting nothing."""
        try:
            _check(facts, [one.name for one in fields(cls)])
        except ValueError as error:
            raise ValueError(f"the findings are damaged: {error}; clean the table again to get new ones") from None
        return cls(**facts)


def _check(facts: Any, names: list[str]) -> None:
    record({name: lambda value, what: None for name in names})(facts, "the whole")
    classes, rows, shown = facts["classes"], facts["rows"], facts["shown"]
    distinct(list_of(text, 1, _MOST_CLASSES))(classes, "classes")
    count(1, 2**63 - 1)(rows, "rows")
    distinct(list_of(count(0, len(classes) - 1), 0, MOST_SHOWN))(shown, "shown")
    for name, check in (_run_checks() | _row_checks(len(classes), rows, len(shown))).items():
        check(facts[name], name)
    datetime.fromisoformat(facts["date"])
    require(facts["seconds"] >= 0, "seconds", facts["seconds"])
    totals = [sum(size * n for size, n in enumerate(facts[name], 1)) for name in ("before", "after")]
    require(totals[1] <= totals[0], "the number of candidates before and after", totals)
    for name in ("before", "after"):
        require(sum(facts[name]) == rows, f"the sum of {name}, which should be {rows},", sum(facts[name]))
    for i, row in enumerate(facts["doubtful"]):
        require(set(row["removed"]) < set(row["candidates"]), f"doubtful[{i}]['removed']", row["removed"])
        require(len(row["scores"]) == len(row["removed"]), f"doubtful[{i}]['scores']", row["scores"])
    for i, one in enumerate(facts["reliability"]):
        require(one["low"] <= one["high"], f"reliability[{i}]['low']", one["low"])
    for name, curve in facts["history"].items():
        require(name in HISTORY, "a key of history", name)
        lengths = [len(values) for values in curve.values()]
        require(len(set(lengths)) == 1, f"the number of epochs of {name}", lengths)


def _run_checks() -> dict[str, Check]:
    lines = list_of(text, 0, _MOST_LINES)
    curve = record(dict.fromkeys(Curve.__annotations__, list_of(optional(number), 0, _MOST_EPOCHS)))
    return {
        **dict.fromkeys(("title", "version", "date", "device"), text),
        **dict.fromkeys(("words", "features"), lines),
        "seconds": number,
        "settings": mapping(_check_setting, _MOST_LINES),
        "history": mapping(curve, _MOST_LINES),
    }


def _row_checks(classes: int, rows: int, shown: int) -> dict[str, Check]:
    index, counted, rate = count(0, classes - 1), count(0, rows), optional(share)
    sizes, matrix = list_of(counted, classes, classes), list_of(list_of(counted, shown, shown), shown, shown)
    doubtful = {
        "row": count(0, rows - 1),
        "id": optional(text),
        "candidates": distinct(list_of(index, 1, classes)),
        "removed": distinct(list_of(index, 0, classes)),
        "scores": list_of(number, 0, classes),
        "predicted": index,
        "confidence": share,
        "true": optional(index),
    }
    one_bin = {"low": share, "high": share, "count": counted, "confidence": rate, "covering": rate, "accuracy": rate}
    truth = {"rows": counted, "accuracy": rate, "true_kept": rate, "wrong_removed": rate}
    return {
        "changed": counted,
        **dict.fromkeys(("before", "after"), sizes),
        **dict.fromkeys(("together", "removed"), matrix),
        "doubtful": list_of(record(doubtful), 0, MOST_DOUBTFUL),
        "reliability": list_of(record(one_bin), 0, _MOST_BINS),
        "truth": optional(record(truth)),
    }


def _check_setting(value: Any, what: str) -> None:
    if isinstance(value, str):
        text(value, what)
    elif not isinstance(value, bool):
        optional(number)(value, what)
