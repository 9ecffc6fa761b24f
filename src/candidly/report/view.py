"""From findings to what the page's template shows: texts, numbers in words, and charts."""

from dataclasses import dataclass
from typing import Any

from candidly.cleaning.audit import NOISY
from candidly.messages import cut
from candidly.report import charts
from candidly.report.facts import HISTORY, AuditFacts, DoubtFacts, Doubtful, Findings, LevelFacts, PairFacts
from candidly.report.texts import MISSING, duration, fixed, interval, percent, rounded, visible, whole

_CURVES = {
    "loss": ("Loss", "what training makes small"),
    "alpha": ("Level αᵣ", "the larger, the more is removed"),
    "threshold": ("Threshold", "less probable candidates are removed"),
    "mean_candidates": ("Candidates per row", "what is left for training"),
    "covering_rate": ("Held-out covering rate", "predictions that are a candidate of their row"),
    "share_changed": ("Rows changed", "share of rows that lack a candidate"),
    "estimated_lost": ("True labels lost, estimated", "share of rows; no true label was used"),
    "accuracy": ("Accuracy", "where the true label is known"),
    "true_kept": ("True labels kept", "where the true label is known"),
}
_LONGEST_NAME, _LONGEST_HINT, _MOST_NAMES = 24, 1000, 8  # letters in the table, and on pointing; names in a cell
_MOST_PAIRS = 3  # of classes that are named in words
_MOST_DOUBTS = 20  # classes, and pairs of them, that cannot be trusted
_COSTS = {
    "lost": ("True labels lost", "share of the rows whose true label would go"),
    "removed": ("Wrong candidates removed", "share of all wrong candidates"),
}


@dataclass(frozen=True)
class Name:
    """A name as the table shows it, the whole of it where it had to be cut, and a removed label's score."""

    shown: str
    full: str | None
    score: str | None = None

    @classmethod
    def of(cls, name: str, score: float | None = None) -> "Name":
        """Cut a name."""
        shown = cut(name, _LONGEST_NAME)
        return cls(shown, None if shown == name else cut(name, _LONGEST_HINT), None if score is None else fixed(score))


def view(findings: Findings) -> dict[str, Any]:
    """Return everything that the template refers to.

    Charts are SVG already; the template escapes all other texts.
    """
    names = [visible(name) for name in findings.classes]
    epochs = max((len(curve["mean"]) for curve in findings.history.values()), default=0)
    curves = {name: (*_CURVES[name], findings.history[name]) for name in HISTORY if name in findings.history}
    return {
        "title": visible(findings.title),
        "run": [
            ("candidly", visible(findings.version)),
            ("date", visible(findings.date).replace("T", " ")),
            ("time taken", duration(findings.seconds)),
            ("device", visible(findings.device)),
        ],
        "words": [visible(line) for line in findings.words],
        "features": [visible(line) for line in findings.features],
        "settings": [(visible(name), _setting(value)) for name, value in findings.settings.items()],
        "headlines": _headlines(findings),
        "cost": None if findings.audit is None else _cost(findings, findings.audit, names),
        "sizes": [(size, whole(a), whole(b)) for size, a, b in charts.group_sizes(findings.before, findings.after)],
        "bars": charts.bars(findings.before, findings.after),
        "curves": [
            (label, words, charts.describe_curve(values), charts.curve(name, label, values, epochs))
            for name, (label, words, values) in curves.items()
        ],
        "maps": _maps(findings, names),
        "shown": len(findings.shown),
        "rest": len(names) - len(findings.shown),
        "doubtful": [_doubtful(row, names) for row in findings.doubtful],
        "has_ids": any(row["id"] is not None for row in findings.doubtful),
        "has_truth": any(row["true"] is not None for row in findings.doubtful),
        "options": _options(findings, names),
        "reliability": charts.reliability(findings.reliability) if findings.reliability else None,
        "bins": [
            (
                f"{rounded(one['low'])}–{rounded(one['high'])}",
                whole(one["count"]),
                percent(one["covering"]),
                percent(one["accuracy"]),
            )
            for one in findings.reliability
        ],
        "known": any(one["accuracy"] is not None for one in findings.reliability),
    }


def _headlines(findings: Findings) -> list[list[tuple[str, str, str]]]:
    """Return label, figure and a remark for each headline figure, in groups."""
    rows, truth = findings.rows, findings.truth
    before, after = (sum(i * n for i, n in enumerate(sizes, 1)) for sizes in (findings.before, findings.after))
    share = (before - after) / (before - rows) if before > rows else None
    spare = f"{whole(before - after)} of {whole(before - rows)}; every row keeps at least one"
    headlines = [
        ("Rows", whole(rows), ""),
        ("Classes", whole(len(findings.classes)), ""),
        ("Candidates per row", f"{before / rows:.2f} → {after / rows:.2f}", "before → after cleaning"),
        ("Spare labels removed", percent(share), spare),
        ("Rows changed", whole(findings.changed), f"{percent(findings.changed / rows)} of all rows"),
    ]
    cost = findings.cost
    groups = [headlines]
    if cost is not None and cost["lost"] is not None and cost["removed"] is not None:
        estimates = (
            ("True labels lost, estimated", cost["lost"]),
            ("Wrong candidates removed, estimated", cost["removed"]),
        )
        groups.append(
            [(label, f"about {percent(found[0])}", f"{interval(found)} (90 %)") for label, found in estimates]
        )
    if truth is None:
        return groups
    known = f"of {whole(truth['rows'])} rows whose true label is known"
    evaluation = [
        ("Accuracy", percent(truth["accuracy"]), f"of the predictions, {known}"),
        ("True labels kept", percent(truth["true_kept"]), known),
        ("Wrong labels removed", percent(truth["wrong_removed"]), known),
    ]
    return [*groups, evaluation]


def _cost(findings: Findings, audit: AuditFacts, names: list[str]) -> dict[str, Any]:
    """Return what there is to show of what cleaning costs."""
    levels, used = audit["levels"], findings.cost
    alpha = None if used is None else used["alpha"]
    points = {name: _points(levels, name) for name in _COSTS}
    return {
        "charts": [
            (name, *_COSTS[name], charts.trade_off(name, _COSTS[name][0], some, alpha))
            for name, some in points.items()
            if some
        ],
        "declined": [visible(why) for why in dict.fromkeys(one["declined"] for one in levels) if why is not None],
        "levels": [
            {
                "alpha": rounded(one["alpha"]),
                "used": one is used,
                "lost": (*_share(one["lost"]), percent(one["true_lost"])),
                "removed": (*_share(one["removed"]), percent(one["true_removed"])),
                "candidates": whole(one["candidates"]),
            }
            for one in levels
        ],
        "known": any(one["true_lost"] is not None for one in levels),
        "words": [visible(line) for line in audit["words"]],
        "noisy": audit["missing"][1] > NOISY,
        "missing": (percent(audit["missing"][0]), interval(audit["missing"])),
        "doubts": [
            {"label": label, "rows": rows[:_MOST_DOUBTS], "more": len(rows[_MOST_DOUBTS:])}
            for label, rows in (
                ("Classes that cannot be told apart", [_doubt(one["numbers"], one, names) for one in audit["pairs"]]),
                ("Classes not to trust", [_doubt([one["number"]], one, names) for one in audit["classes"]]),
            )
            if rows
        ],
    }


def _points(levels: list[LevelFacts], name: str) -> list[charts.Point]:
    """Return the levels that have an estimate of what is "lost", or "removed"."""
    found = []
    for one in levels:
        lost = name == "lost"
        estimate, true = (one["lost"], one["true_lost"]) if lost else (one["removed"], one["true_removed"])
        if estimate is not None:
            value, low, high = (100 * share for share in estimate)
            found.append(charts.Point(one["alpha"], value, low, high, None if true is None else 100 * true))
    return found


def _share(estimate: list[float] | None) -> tuple[str, str]:
    return (MISSING, "") if estimate is None else (percent(estimate[0]), interval(estimate))


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
    return visible(value) if isinstance(value, str) else rounded(value, 6)


def _maps(findings: Findings, names: list[str]) -> list[dict[str, Any]]:
    """Return the heat maps, with what there is to say of each."""
    shown = [names[index] for index in findings.shown]
    if len(shown) < 2:
        return []
    short = [cut(name, 80) for name in shown]
    cells = [(i, j) for i in range(len(shown)) for j in range(len(shown))]
    together, removed = findings.together, findings.removed
    both = [
        f"{short[i]} and {short[j]}: {whole(together[i][j])} rows"
        if i != j
        else f"{short[i]}: a candidate in {whole(together[i][i])} rows"
        for i, j in cells
    ]
    gone = [f"{short[i]} predicted, {short[j]} removed: {whole(removed[i][j])} rows" for i, j in cells]
    return [
        {
            "label": "Candidates of the same row",
            "words": "Rows in which both classes are candidates; on the diagonal, rows in which the class is.",
            "top": _top(together, [(i, j) for i, j in cells if i < j], both),
            "chart": charts.heat_map("together", "Candidates of the same row", shown, together, both),
            "shades": charts.shades("together", together),
        },
        {
            "label": "What cleaning removed",
            "words": "Down: the class that was predicted. Across: the candidate that was removed.",
            "top": _top(removed, cells, gone),
            "chart": charts.heat_map("removed", "What cleaning removed", shown, removed, gone),
            "shades": charts.shades("removed", removed),
        },
    ]


def _top(counts: list[list[int]], cells: list[tuple[int, int]], hints: list[str]) -> list[str]:
    """Return the words for the largest counts."""
    largest = sorted((cell for cell in cells if counts[cell[0]][cell[1]]), key=lambda c: -counts[c[0]][c[1]])
    return [hints[i * len(counts) + j] for i, j in largest[:_MOST_PAIRS]]


def _doubtful(row: Doubtful, names: list[str]) -> dict[str, Any]:
    gone = sorted(zip(row["removed"], row["scores"], strict=True), key=lambda pair: -pair[1])
    kept = [index for index in row["candidates"] if index not in set(row["removed"])]
    true = row["true"]
    fate = "removed" if true in row["removed"] else "kept" if true in kept else "was no candidate"
    return {
        "row": row["row"],
        "id": None if row["id"] is None else Name.of(visible(row["id"])),
        "kept": [Name.of(names[index]) for index in kept[:_MOST_NAMES]],
        "more_kept": len(kept[_MOST_NAMES:]),
        "removed": [Name.of(names[index], score) for index, score in gone[:_MOST_NAMES]],
        "more_removed": len(gone[_MOST_NAMES:]),
        "score": (gone[0][1], fixed(gone[0][1])) if gone else None,
        "predicted": Name.of(names[row["predicted"]]),
        "confidence": (row["confidence"], fixed(row["confidence"])),
        "true": None if true is None else Name.of(names[true]),
        "fate": fate,
        "classes": " ".join(map(str, _classes_of(row))),
    }


def _classes_of(row: Doubtful) -> list[int]:
    """Return the classes by which a row can be found."""
    return sorted({*row["candidates"], row["predicted"], *([] if row["true"] is None else [row["true"]])})


def _options(findings: Findings, names: list[str]) -> list[tuple[int, str]]:
    """Return number and name of the classes that occur in doubtful rows."""
    found = {index for row in findings.doubtful for index in _classes_of(row)}
    return [(index, cut(names[index], 60)) for index in sorted(found, key=lambda index: names[index].casefold())]
