"""Turn the facts of a report into what the template of the page shows: texts, formatted numbers and charts."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from candidly.cleaning.audit import NOISY, Audit
from candidly.messages import cut
from candidly.report import charts
from candidly.report.facts import (
    HISTORY,
    MOST_ANNOTATORS,
    AnnotatorFacts,
    AuditFacts,
    DoubtFacts,
    Doubtful,
    LevelFacts,
    PairFacts,
    ReportFacts,
)
from candidly.report.texts import MISSING, duration, fixed, guess, interval, percent, rounded, visible, whole

_CURVES = {
    "loss": ("Loss", "what training minimises"),
    "alpha": ("Level αᵣ", "a higher level removes more candidates"),
    "threshold": ("Threshold", "candidates below this probability are removed"),
    "mean_candidates": ("Candidates per row", "candidates that the method learns from"),
    "covering_rate": ("Held-out covering rate", "fraction of predictions that are candidates"),
    "share_changed": ("Rows changed", "fraction of rows with a removed candidate"),
    "estimated_lost": (
        "Lost while training (guess)",
        "fraction of rows; computed without true labels",
    ),
    "accuracy": ("Accuracy", "on rows with a known true label"),
    "true_kept": ("True labels kept", "on rows with a known true label"),
}
_LONGEST_NAME = 24  # characters of a name in the table
_LONGEST_HINT = 400  # characters of a name in a tooltip
_LONGEST_LINE = 1000  # characters of a sentence or setting
_MOST_OPTIONS = 200  # classes that doubtful rows can be filtered by
_MOST_NAMES = 6  # names in a cell
_MOST_CONFUSIONS = 3  # confusions of an annotator
_MOST_PAIRS = 3  # pairs of classes listed below a heat map
_MOST_DOUBTS = 10  # doubtful classes, and pairs of them, that are shown at once
_MOST_FOLDED = 200  # further ones, in a list that can be opened
_COSTS = {
    "lost": ("True labels lost (guess)", "fraction of rows whose true label is removed"),
    "removed": ("Wrong candidates removed (guess)", "fraction of all wrong candidates"),
}


@dataclass(frozen=True)
class Name:
    """A name as the table shows it, the full name if it was cut, and the probability of the class."""

    shown: str
    full: str | None
    score: str | None = None

    @classmethod
    def of(cls, name: str, score: float | None = None) -> "Name":
        """Return a name, cut to the width of the table."""
        shown = cut(name, _LONGEST_NAME)
        return cls(shown, None if shown == name else cut(name, _LONGEST_HINT), None if score is None else fixed(score))


def view(facts: ReportFacts) -> dict[str, Any]:
    """Return the variables of the template.

    Charts are SVG; the template escapes all other texts.
    """
    names = [visible(name) for name in facts.classes]
    epochs = max((len(curve["mean"]) for curve in facts.history.values()), default=0)
    options, more_options = _options(facts, names)
    curves = {name: (*_CURVES[name], facts.history[name]) for name in HISTORY if name in facts.history}
    return {
        "title": _line(facts.title),
        "rows": whole(facts.rows),
        "run": [
            ("candidly", visible(facts.version)),
            ("date", visible(facts.date).replace("T", " ")),
            ("duration", duration(facts.seconds)),
            ("device", visible(facts.device)),
        ],
        "words": [_line(line) for line in facts.words],
        "features": [_line(line) for line in facts.features],
        "checked": [_line(line) for line in facts.checked],
        "settings": [(_line(name), _setting(value)) for name, value in facts.settings.items()],
        "headlines": _headlines(facts),
        "cost": None if facts.audit is None else _cost(facts, facts.audit, names),
        "sizes": [(size, whole(a), whole(b)) for size, a, b in charts.group_sizes(facts.before, facts.after)],
        "bars": charts.bars(facts.before, facts.after),
        "curves": [
            (label, words, charts.describe_curve(values), charts.curve(name, label, values, epochs))
            for name, (label, words, values) in curves.items()
        ],
        "maps": _maps(facts, names),
        "shown": len(facts.shown),
        "rest": len(names) - len(facts.shown),
        "doubtful": [_doubtful(row, names, set(options)) for row in facts.doubtful],
        "has_ids": any(row["id"] is not None for row in facts.doubtful),
        "has_outside": any(row["outside"] is not None for row in facts.doubtful),
        "has_truth": any(row["true"] is not None for row in facts.doubtful),
        "options": [(index, cut(names[index], 60)) for index in options],
        "more_options": more_options,
        "annotators": [_annotator(one, names) for one in facts.annotators],
        "most_annotators": MOST_ANNOTATORS,
        "reliability": charts.reliability(facts.reliability) if facts.reliability else None,
        "bins": [
            (
                f"{rounded(one['low'])}–{rounded(one['high'])}",
                whole(one["count"]),
                percent(one["covering"]),
                percent(one["accuracy"]),
            )
            for one in facts.reliability
        ],
        "known": any(one["accuracy"] is not None for one in facts.reliability),
    }


def _headlines(facts: ReportFacts) -> list[list[tuple[str, str, str]]]:
    """Return label, value and remark of each headline figure, in groups."""
    rows, truth = facts.rows, facts.truth
    before, after = (sum(i * n for i, n in enumerate(sizes, 1)) for sizes in (facts.before, facts.after))
    share = (before - after) / (before - rows) if before > rows else None
    spare = f"{whole(before - after)} of {whole(before - rows)}; every row keeps at least one candidate"
    headlines = [
        ("Rows", whole(rows), ""),
        ("Classes", whole(len(facts.classes)), ""),
        ("Candidates per row", f"{before / rows:.2f} → {after / rows:.2f}", "before → after cleaning"),
        ("Extra candidates removed", percent(share), spare),
        ("Rows changed", whole(facts.changed), f"{percent(facts.changed / rows)} of all rows"),
    ]
    cost = facts.cost
    groups = [headlines]
    if cost is not None and facts.audit is not None:
        found = []
        if cost["lost"] is not None:
            remark = "a range, not a measurement"
            status = remark if cost["verified"] is not None else _status(facts.audit, cost["alpha"])
            found = [
                ("True labels lost (guess)", guess(cost["lost"]), status),
                ("Wrong candidates removed (guess)", guess(cost["removed"]), remark),
            ]
        if cost["verified"] is not None:
            remark = f"90 % interval: {interval(cost['verified'])}"
            found.append(("True labels lost (checked rows)", percent(cost["verified"][0]), remark))
        groups += [found] if found else []
    if truth is None:
        return groups
    known = f"{whole(truth['rows'])} rows with a known true label"
    outside = f"; in {whole(truth['outside'])} of them it is not a candidate, so it cannot be lost"
    evaluation = [
        ("Accuracy", percent(truth["accuracy"]), f"of the predicted candidates, on {known}"),
        ("True labels lost", percent(truth["true_lost"]), f"of {known}{outside * (truth['outside'] > 0)}"),
        (
            "Wrong candidates removed",
            percent(truth["wrong_removed"]),
            f"in {whole(truth['rows'] - truth['outside'])} rows whose true label is a candidate",
        ),
    ]
    return [*groups, evaluation]


def _status(audit: AuditFacts, alpha: float | None) -> str:
    return Audit.from_json(audit).status(alpha)


def _cost(facts: ReportFacts, audit: AuditFacts, names: list[str]) -> dict[str, Any]:
    """Return the variables of the section on what cleaning costs."""
    levels, used = audit["levels"], facts.cost
    alpha = None if used is None else used["alpha"]
    points = {name: _points(levels, name) for name in _COSTS}
    return {
        "charts": [
            (name, *_COSTS[name], charts.trade_off(name, _COSTS[name][0], some, alpha))
            for name, some in points.items()
            if some
        ],
        "status": _status(audit, alpha),
        "truths": Audit.from_json(audit).truths(),
        "declined": [visible(why) for why in dict.fromkeys(one["declined"] for one in levels) if why is not None],
        "levels": [
            {
                "alpha": rounded(one["alpha"]),
                "used": one is used,
                "lost": (guess(one["lost"]), percent(one["true_lost"])),
                "removed": (guess(one["removed"]), percent(one["true_removed"])),
                "verified": _measured(one["verified"]),
                "candidates": whole(one["candidates"]),
                "check": MISSING if one["check"] is None else whole(one["check"]),
            }
            for one in levels
        ],
        "known": any(one["true_lost"] is not None for one in levels),
        "verified": audit["verified"] is not None,
        "words": [_line(line) for line in audit["words"]],
        "noisy": audit["missing"][1] > NOISY,
        "missing": guess(audit["missing"]),
        "doubts": [
            {
                "label": label,
                "rows": rows[:_MOST_DOUBTS],
                "folded": rows[_MOST_DOUBTS:_MOST_FOLDED],
                "more": len(rows[_MOST_FOLDED:]),
            }
            for label, rows in (
                ("Classes that cannot be told apart", [_doubt(one["numbers"], one, names) for one in audit["pairs"]]),
                ("Doubtful classes", [_doubt([one["number"]], one, names) for one in audit["classes"]]),
            )
            if rows
        ],
    }


def _points(levels: list[LevelFacts], name: str) -> list[charts.Point]:
    """Return the levels with a guess of what is "lost" or "removed"."""
    found = []
    for one in levels:
        lost = name == "lost"
        estimate, true = (one["lost"], one["true_lost"]) if lost else (one["removed"], one["true_removed"])
        if estimate is not None:
            _, low, high = (100 * share for share in estimate)
            found.append(charts.Point(one["alpha"], low, high, None if true is None else 100 * true))
    return found


def _measured(estimate: list[float] | None) -> str:
    return MISSING if estimate is None else f"{percent(estimate[0])} ({interval(estimate)})"


def _doubt(numbers: list[int], found: DoubtFacts | PairFacts, names: list[str]) -> dict[str, Any]:
    return {
        "names": [Name.of(names[number]) for number in numbers],
        "rows": whole(round(found["rows"])),
        "why": visible(found["why"]),
    }


def _setting(value: str | float | None) -> str:
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _line(value) if isinstance(value, str) else rounded(value, 6)


def _line(words: str) -> str:
    return cut(visible(words), _LONGEST_LINE)


def _maps(facts: ReportFacts, names: list[str]) -> list[dict[str, Any]]:
    """Return the heat maps, with their captions."""
    shown = [names[index] for index in facts.shown]
    if len(shown) < 2:
        return []
    short = [cut(name, 80) for name in shown]
    cells = [(i, j) for i in range(len(shown)) for j in range(len(shown))]
    together, removed = facts.together, facts.removed
    both = [
        f"{short[i]} and {short[j]}: {whole(together[i][j])} rows"
        if i != j
        else f"{short[i]} is a candidate: {whole(together[i][i])} rows"
        for i, j in cells
    ]
    gone = [f"{short[i]} predicted, {short[j]} removed: {whole(removed[i][j])} rows" for i, j in cells]
    return [
        {
            "label": "Classes that are candidates together",
            "words": "Number of rows in which both classes are candidates; on the diagonal, in which the class is one.",
            "top": _top(together, [(i, j) for i, j in cells if i < j], both),
            "chart": charts.heat_map("together", "Classes that are candidates together", shown, together, both),
            "shades": charts.shades("together", together),
        },
        {
            "label": "Removed candidates",
            "words": "Number of rows. Vertical: predicted class. Horizontal: removed candidate.",
            "top": _top(removed, cells, gone),
            "chart": charts.heat_map("removed", "Removed candidates", shown, removed, gone),
            "shades": charts.shades("removed", removed),
        },
    ]


def _top(counts: list[list[int]], cells: list[tuple[int, int]], hints: list[str]) -> list[str]:
    """Return the texts of the largest counts."""
    largest = sorted((cell for cell in cells if counts[cell[0]][cell[1]]), key=lambda c: -counts[c[0]][c[1]])
    return [hints[i * len(counts) + j] for i, j in largest[:_MOST_PAIRS]]


def _doubtful(row: Doubtful, names: list[str], options: set[int]) -> dict[str, Any]:
    removed = set(row["removed"])
    scored = sorted(zip(row["candidates"], row["scores"], strict=True), key=lambda pair: -(pair[1] or 0.0))
    gone = [(index, score) for index, score in scored if index in removed]
    kept = [(index, score) for index, score in scored if index not in removed]
    true, outside = row["true"], row["outside"]
    fate = "removed" if true in removed else "kept" if true in row["candidates"] else "not a candidate"
    return {
        "priority": row["priority"],
        "row": row["row"],
        "id": None if row["id"] is None else Name.of(visible(row["id"])),
        "kept": [Name.of(names[index], score) for index, score in kept[:_MOST_NAMES]],
        "more_kept": len(kept[_MOST_NAMES:]),
        "removed": [Name.of(names[index], score) for index, score in gone[:_MOST_NAMES]],
        "more_removed": len(gone[_MOST_NAMES:]),
        "predicted": Name.of(names[row["predicted"]]),
        "confidence": ("", MISSING) if row["confidence"] is None else (row["confidence"], fixed(row["confidence"])),
        "outside": None if outside is None else Name.of(names[outside], row["outside_score"]),
        "outside_score": row["outside_score"],
        "true": None if true is None else Name.of(names[true]),
        "fate": fate,
        "classes": " ".join(map(str, sorted(options.intersection(_classes_of(row))))),
    }


def _annotator(one: AnnotatorFacts, names: list[str]) -> dict[str, Any]:
    return {
        "name": Name.of("all annotators" if one["name"] is None else visible(one["name"])),
        "votes": whole(one["votes"]),
        "accuracy": percent(one["accuracy"][0]),
        "interval": interval(one["accuracy"]),
        "agreement": percent(one["agreement"]),
        "confusions": [
            (Name.of(names[each["true"]]), Name.of(names[each["given"]]), percent(each["fraction"]))
            for each in one["confusions"][:_MOST_CONFUSIONS]
        ],
    }


def _classes_of(row: Doubtful) -> set[int]:
    """Return the classes that a row can be filtered by."""
    return {*row["candidates"], *(index for index in (row["outside"], row["true"]) if index is not None)}


def _options(facts: ReportFacts, names: list[str]) -> tuple[list[int], int]:
    """Return the classes of most doubtful rows, by name, and the number of others."""
    rows = Counter(index for row in facts.doubtful for index in sorted(_classes_of(row)))
    most = [index for index, _ in rows.most_common(_MOST_OPTIONS)]
    return sorted(most, key=lambda index: (names[index].casefold(), index)), len(rows) - len(most)
