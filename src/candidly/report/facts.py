"""`ReportFacts`: everything a report shows, in JSON types."""

from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, TypedDict

from candidly.conformal.calibration import MOST_LEVELS
from candidly.store.validation import (
    Check,
    count,
    distinct,
    list_of,
    mapping,
    number,
    optional,
    record,
    require,
    share,
    text,
)

HISTORY = (
    *("loss", "alpha", "threshold", "mean_candidates", "covering_rate", "share_changed", "estimated_lost"),
    *("accuracy", "true_kept"),
)
MOST_SHOWN, MOST_DOUBTFUL = 30, 1000  # classes in the matrices, and rows in the list
MOST_ANNOTATORS = 200
_ROUNDING = 1e-9  # tolerance for a value that lies on computed bounds


class Curve(TypedDict):
    """A quantity by epoch: its mean, smallest and largest value over the networks that were trained together."""

    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]


class Doubtful(TypedDict):
    """A row to check by hand; classes are given by number.

    `scores` has the estimated probability that each candidate, kept or removed, is the true label; `confidence` is that
    of the predicted one; None where version 0.1 did not save it. `outside` is the most probable class of all if it is
    not a candidate, and `outside_score` its probability among all classes.
    """

    priority: int
    row: int
    id: str | None
    candidates: list[int]
    removed: list[int]
    scores: list[float | None]
    predicted: int
    confidence: float | None
    outside: int | None
    outside_score: float | None
    true: int | None


class ConfusionFacts(TypedDict):
    """A label that an annotator gives instead of the true one, as in `candidly.candidates.Confusion`, by number."""

    true: int
    given: int
    votes: float
    fraction: float


class AnnotatorFacts(TypedDict):
    """How an annotator votes, as in `candidly.candidates.Annotator`; all annotators of anonymous votes have no name."""

    name: str | None
    votes: int
    accuracy: list[float]
    agreement: float | None
    confusions: list[ConfusionFacts]


class Bin(TypedDict):
    """The rows whose predicted class has a probability between two bounds: their number, and means over them."""

    low: float
    high: float
    count: int
    probability: float | None
    covering: float | None
    accuracy: float | None


class Truth(TypedDict):
    """Results on the held-out rows with a known true label; None where there is nothing to count.

    In `outside` of these rows the true label is not a candidate, so it cannot be lost. `true_lost` is a fraction of all
    rows with a known true label, as in `candidly.cleaning.audit.Level`; `wrong_removed` is one of the wrong candidates
    of the other rows.
    """

    rows: int
    outside: int
    accuracy: float | None
    true_lost: float | None
    wrong_removed: float | None


class LevelFacts(TypedDict):
    """What cleaning does at a level, as in `candidly.cleaning.audit.Level`; estimates are [value, low, high]."""

    alpha: float
    lost: list[float] | None
    removed: list[float] | None
    candidates: int
    declined: str | None
    true_lost: float | None
    true_removed: float | None
    check: int | None
    verified: list[float] | None


class KnownFacts(TypedDict):
    """Rows with a known true label, and those of them in which it is not a candidate."""

    rows: int
    outside: int


class VerifiedFacts(TypedDict):
    """Rows that were checked by hand, as in `candidly.cleaning.audit.Verified`."""

    rows: int
    unanswered: int
    outside: int
    population: int
    missing: list[float]


class DoubtFacts(TypedDict):
    """A class, by number, whose predictions are doubtful, and its estimated number of rows."""

    number: int
    rows: float
    why: str


class PairFacts(TypedDict):
    """Two classes, by number, that cannot be told apart, and in how many rows (estimated)."""

    numbers: list[int]
    rows: float
    why: str


class AuditFacts(TypedDict):
    """What cleaning costs, as returned by `candidly.cleaning.Audit.to_json`."""

    levels: list[LevelFacts]
    missing: list[float]
    error: list[float]
    excess: float
    classes: list[DoubtFacts]
    pairs: list[PairFacts]
    words: list[str]
    known: KnownFacts | None
    verified: VerifiedFacts | None


@dataclass(frozen=True, kw_only=True)
class ReportFacts:
    """The facts of a report: what cleaning did to a table of ambiguously labelled rows.

    Attributes
    ----------
    title : str
        Name of the data, such as a file name.
    version, date, seconds, device : str, str, float, str
        Version of candidly, date of the run (ISO 8601), its duration, and where it ran.
    words, features : list of str
        Sentences on what was done, and on how columns were encoded.
    settings : dict of str to str, int, float, bool or None
    classes : list of str
        Names of all C classes.
    rows, changed : int
        Number of rows, and number of rows from which a candidate was removed.
    before, after : list of int
        Number of rows with 1, 2, …, C candidates, before and after cleaning.
    history : dict of str to Curve
        The quantities in `HISTORY` that were recorded, by epoch.
    shown : list of int
        At most 30 classes, the rows and columns of the next two matrices.
    together : list of list of int
        Number of rows in which both classes are candidates; on the diagonal, in which the class is one.
    removed : list of list of int
        Number of rows predicted as the first class from which the second class was removed.
    doubtful : list of Doubtful
        At most 1000 rows, the most doubtful first; fewer if they have very many candidates.
    reliability : list of Bin
    annotators : list of AnnotatorFacts
        At most 200 annotators, the least accurate first; empty without votes.
    checked : list of str
        Sentences on what people decided, and on the certificate that follows; empty if nobody did.
    truth : Truth or None
        None if no true labels are known.
    audit : AuditFacts or None
        None if fewer than 100 rows were held out.

    Examples
    --------
    >>> run = {"title": "birds.csv", "version": "0.2.0", "date": "2026-01-31", "seconds": 2.5, "device": "cpu"}
    >>> facts = ReportFacts(**run, classes=["owl", "wren"], rows=3, changed=1, before=[1, 2], after=[2, 1])
    >>> ReportFacts.from_json(facts.to_json()) == facts
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
    annotators: list[AnnotatorFacts] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    truth: Truth | None = None
    audit: AuditFacts | None = None

    @property
    def cost(self) -> LevelFacts | None:
        """The audit of the level that was used for cleaning, if it is one of the audited levels."""
        levels = [] if self.audit is None else self.audit["levels"]
        return next((one for one in levels if one["alpha"] == self.settings.get("alpha")), None)

    def to_json(self) -> dict[str, Any]:
        """Return a copy in JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, facts: Any) -> "ReportFacts":
        """Return the facts that `to_json` wrote; raise ValueError if they are damaged."""
        try:
            _check(facts, [one.name for one in fields(cls)])
        except ValueError as error:
            raise ValueError(f"the facts are damaged: {error}; train again to get new ones") from None
        return cls(**facts)


def _check(facts: Any, names: list[str]) -> None:
    record({name: lambda value, what: None for name in names})(facts, "the whole")
    classes, rows, shown = facts["classes"], facts["rows"], facts["shown"]
    distinct(list_of(text, 1))(classes, "classes")
    count(1, 2**63 - 1)(rows, "rows")
    distinct(list_of(count(0, len(classes) - 1), 0, MOST_SHOWN))(shown, "shown")
    checks = _run_checks() | _row_checks(len(classes), rows, len(shown))
    for name, check in (checks | {"audit": optional(_audit_check(len(classes), rows))}).items():
        check(facts[name], name)
    datetime.fromisoformat(facts["date"])
    require(facts["seconds"] >= 0, "seconds", facts["seconds"])
    totals = [sum(size * n for size, n in enumerate(facts[name], 1)) for name in ("before", "after")]
    require(totals[1] <= totals[0], "the number of candidates before and after", totals)
    for name in ("before", "after"):
        require(sum(facts[name]) == rows, f"the sum of {name}, which should be {rows},", sum(facts[name]))
    for i, row in enumerate(facts["doubtful"]):
        require(set(row["removed"]) < set(row["candidates"]), f"doubtful[{i}]['removed']", row["removed"])
        require(len(row["scores"]) == len(row["candidates"]), f"doubtful[{i}]['scores']", row["scores"])
        chosen = [*row["candidates"], row["outside"]]  # with votes, a class that is not a candidate may be chosen
        require(row["predicted"] in chosen, f"doubtful[{i}]['predicted']", row["predicted"])
        require(row["outside"] not in row["candidates"], f"doubtful[{i}]['outside']", row["outside"])
        both = (row["outside"] is None) == (row["outside_score"] is None)
        require(both, f"doubtful[{i}]['outside_score']", row["outside_score"])
    for i, one in enumerate(facts["reliability"]):
        require(one["low"] <= one["high"], f"reliability[{i}]['low']", one["low"])
    for name, curve in facts["history"].items():
        require(name in HISTORY, "a key of history", name)
        lengths = [len(values) for values in curve.values()]
        require(len(set(lengths)) == 1, f"the number of epochs of {name}", lengths)
    if facts["audit"] is not None:
        _check_levels(facts["audit"]["levels"])


def _check_levels(levels: list[LevelFacts]) -> None:
    alphas = [one["alpha"] for one in levels]
    require(alphas == sorted(set(alphas)), "the order of audit['levels']", alphas)
    for i, one in enumerate(levels):
        require(0 < one["alpha"] < 1, f"audit['levels'][{i}]['alpha']", one["alpha"])
        for name in ("lost", "removed"):  # either a guess, or a reason for its absence
            require((one[name] is None) != (one["declined"] is None), f"audit['levels'][{i}][{name!r}]", one[name])


def _run_checks() -> dict[str, Check]:
    lines = list_of(text, 0)
    curve = record(dict.fromkeys(Curve.__annotations__, list_of(optional(number), 0)))
    return {
        **dict.fromkeys(("title", "version", "date", "device"), text),
        **dict.fromkeys(("words", "features", "checked"), lines),
        "seconds": number,
        "settings": mapping(_check_setting),
        "history": mapping(curve),
    }


def _row_checks(classes: int, rows: int, shown: int) -> dict[str, Check]:
    index, counted, rate = count(0, classes - 1), count(0, rows), optional(share)
    sizes, matrix = list_of(counted, classes, classes), list_of(list_of(counted, shown, shown), shown, shown)
    doubtful = {
        "priority": count(1, rows),
        "row": count(0, rows - 1),
        "id": optional(text),
        "candidates": distinct(list_of(index, 1, classes)),
        "removed": distinct(list_of(index, 0, classes)),
        "scores": list_of(optional(share), 0, classes),
        "predicted": index,
        "confidence": optional(share),
        "outside": optional(index),
        "outside_score": optional(share),
        "true": optional(index),
    }
    confusion = {"true": index, "given": index, "votes": number, "fraction": share}
    annotator = {"name": optional(text), "votes": count(1), "accuracy": _check_estimate, "agreement": rate}
    annotator |= {"confusions": list_of(record(confusion), 0)}
    one_bin = {"low": share, "high": share, "count": counted, "probability": rate, "covering": rate, "accuracy": rate}
    truth = {"rows": counted, "outside": counted, "accuracy": rate, "true_lost": rate, "wrong_removed": rate}
    return {
        "changed": counted,
        **dict.fromkeys(("before", "after"), sizes),
        **dict.fromkeys(("together", "removed"), matrix),
        "doubtful": list_of(record(doubtful), 0, MOST_DOUBTFUL),
        "reliability": list_of(record(one_bin), 0),
        "annotators": list_of(record(annotator), 0, MOST_ANNOTATORS),
        "truth": optional(record(truth)),
    }


def _audit_check(classes: int, rows: int) -> Check:
    index, rate, counted = count(0, classes - 1), optional(share), count(0, rows)
    level = {
        "alpha": share,
        **dict.fromkeys(("lost", "removed", "verified"), optional(_check_estimate)),
        "check": optional(counted),
        "candidates": count(0, rows * (classes - 1)),
        "declined": optional(text),
        **dict.fromkeys(("true_lost", "true_removed"), rate),
    }
    doubt = {"number": index, "rows": _check_rows(rows), "why": text}
    pair = {"numbers": distinct(list_of(index, 2, 2)), "rows": _check_rows(rows), "why": text}
    return record(
        {
            "levels": list_of(record(level), 1, MOST_LEVELS),
            "missing": _check_estimate,
            "error": _check_estimate,
            "excess": number,
            "classes": list_of(record(doubt), 0, classes),
            "pairs": list_of(record(pair), 0),
            "words": list_of(text, 0),
            "known": optional(record({"rows": counted, "outside": counted})),
            "verified": optional(
                record(
                    {
                        **dict.fromkeys(("rows", "unanswered", "outside", "population"), counted),
                        "missing": _check_estimate,
                    }
                )
            ),
        }
    )


def _check_estimate(value: Any, what: str) -> None:
    """Check a fraction with its interval: value, low, high."""
    list_of(share, 3, 3)(value, what)
    middle, low, high = value
    require(low - _ROUNDING <= middle <= high + _ROUNDING, what, value)


def _check_rows(rows: int) -> Check:
    """Return the check of an estimated number of rows."""

    def check(value: Any, what: str) -> None:
        number(value, what)
        require(0 <= value <= rows * (1 + _ROUNDING), what, value)

    return check


def _check_setting(value: Any, what: str) -> None:
    if isinstance(value, str):
        text(value, what)
    elif not isinstance(value, bool):
        optional(number)(value, what)
