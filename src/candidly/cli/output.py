"""What commands print about their results, as lines and as JSON, and the report they write."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates.votes import Votes
from candidly.cleaning.audit import ASSUMPTIONS
from candidly.cleaning.budget import MIN_ROWS
from candidly.estimator.evaluation import Evaluation
from candidly.messages import cut, visible
from candidly.report import write
from candidly.report.facts import AuditFacts, LevelFacts, ReportFacts
from candidly.tables import files

_MOST_NAMED, _LONGEST_NAME = 10, 40


def describe_report(report: ReportFacts, places: Mapping[str, str | Path | None]) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about a training."""
    before, after = _mean_sizes(report)
    lines = [
        f"{report.title}: {report.rows} rows, {len(report.classes)} classes",
        f"candidates per row: {before:.2f} → {after:.2f}; rows changed: {report.changed}",
    ]
    if report.cost is not None:
        lines.append(_describe_cost(report.cost))
    elif report.audit is None:
        lines.append(f"no candidate was removed: this needs at least {MIN_ROWS} held-out rows")
    truth = report.truth
    if truth is not None:
        shares = {"accuracy": truth["accuracy"], "true labels kept": truth["true_kept"]}
        shares["wrong candidates removed"] = truth["wrong_removed"]
        known = [f"{what} {share:.1%}" for what, share in shares.items() if share is not None]
        lines.append(f"on {truth['rows']} rows with a known label: {', '.join(known) or 'nothing to score'}")
    lines += [f"{what}: {name_place(place)}" for what, place in places.items() if place is not None]
    facts: dict[str, Any] = {"rows": report.rows, "classes": len(report.classes), "candidates_before": before}
    facts |= {"candidates_after": after, "changed": report.changed, "seconds": report.seconds, "truth": truth}
    facts["estimate"] = report.cost
    return lines, facts | {what: None if place is None else str(place) for what, place in places.items()}


def describe_audit(report: ReportFacts, page: Path | None) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about an audit."""
    audit = report.audit
    assert audit is not None, "commands check that there are enough rows"
    before = _mean_sizes(report)[0]
    lines = [
        f"{report.title}: {report.rows} rows, {len(report.classes)} classes, {before:.2f} candidates per row",
        *_table(audit["levels"], report.cost),
        *dict.fromkeys(f"No estimate: {one['declined']}." for one in audit["levels"] if one["declined"] is not None),
        ASSUMPTIONS,
        *audit["words"],
        *_doubts(audit, report.classes),
        *([] if page is None else [f"report: {page}"]),
    ]
    named: dict[str, Any] = {
        "classes": [{"name": report.classes[one["number"]], **one} for one in audit["classes"]],
        "pairs": [{"names": [report.classes[j] for j in one["numbers"]], **one} for one in audit["pairs"]],
    }
    facts: dict[str, Any] = {"rows": report.rows, "classes": len(report.classes), "candidates": before}
    facts |= {"alpha": report.settings["alpha"], "seconds": report.seconds, "audit": {**audit, **named}}
    return lines, facts | {"report": None if page is None else str(page)}


def describe_votes(votes: Votes | None) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about the agreement of annotators, if there are votes."""
    if votes is None:
        return [], {}
    agreement = {"observed": votes.agreement.observed, "krippendorff_alpha": votes.agreement.alpha}
    return str(votes).splitlines(), {"agreement": agreement}


def describe_predictions(
    p: NDArray[Any], sets: NDArray[np.bool_] | None, blank: NDArray[np.bool_] | None, out: str
) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about predictions: probabilities, sets, and rows without a prediction."""
    rows, classes = p.shape
    confidence = float(p.max(1).mean())
    lines = [f"{rows} rows, {classes} classes, mean confidence {confidence:.1%}"]
    facts: dict[str, Any] = {"rows": rows, "classes": classes, "mean_confidence": confidence, "predictions": out}
    if blank is not None:
        lines.append(f"rows without a prediction: {blank.sum()}")
        facts["abstained"] = int(blank.sum())
    if sets is not None:
        size, empty = float(sets.sum(1).mean()), int((~sets.any(1)).sum())
        lines.append(f"classes per set: {size:.2f}; empty sets: {empty}")
        facts |= {"mean_set_size": size, "empty_sets": empty}
    return [*lines, f"predictions: {name_place(out)}"], facts


def describe_evaluation(result: Evaluation, plot: Path | None) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the facts to print about an evaluation."""
    place = None if plot is None else str(plot)
    return [*str(result).splitlines(), *([] if place is None else [f"plot: {place}"])], result.to_json() | {
        "plot": place
    }


def write_page(report: ReportFacts, page: Path | None) -> None:
    """Write the report, if a file is given for it."""
    if page is not None:
        with files.writing(page):
            write(report, page)


def name_place(place: str | Path) -> str:
    """Return the name of a file in messages.

    Examples
    --------
    >>> name_place("new.csv"), name_place("-")
    ('new.csv', 'standard output')
    """
    return "standard output" if place == "-" else str(place)


def _mean_sizes(report: ReportFacts) -> tuple[float, float]:
    before, after = (
        sum(size * n for size, n in enumerate(counts, 1)) / report.rows for counts in (report.before, report.after)
    )
    return before, after


def _describe_cost(level: LevelFacts) -> str:
    if level["lost"] is None or level["removed"] is None:
        return f"true labels lost: no estimate ({level['declined']})"
    lost, removed = _interval(level["lost"]), _interval(level["removed"])
    return f"estimated: true labels lost {lost}, wrong candidates removed {removed}"


def _interval(estimate: Sequence[float] | None) -> str:
    """Format a fraction with its interval.

    Examples
    --------
    >>> _interval([0.021, 0.009, 0.044]), _interval(None)
    ('2.1% (0.9 to 4.4%)', '–')
    """
    if estimate is None:
        return "–"
    value, low, high = estimate
    return f"{value:.1%} ({100 * low:.1f} to {high:.1%})"


def _table(levels: Sequence[LevelFacts], used: LevelFacts | None) -> list[str]:
    """Return a table with one line per level; true values are beside the estimates."""
    known = any(one["true_lost"] is not None for one in levels)
    heads = ["level", "true labels lost", "true value", "wrong candidates removed", "true value", "candidates removed"]
    rows = [heads if known else [heads[i] for i in (0, 1, 3, 5)]]
    for one in levels:
        truth = [("–" if share is None else f"{share:.1%}") for share in (one["true_lost"], one["true_removed"])]
        lost, removed = _interval(one["lost"]), _interval(one["removed"])
        shares = [lost, truth[0], removed, truth[1]] if known else [lost, removed]
        rows.append([f"{one['alpha']:g}{' *' if one is used else ''}", *shares, str(one["candidates"])])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return [*lines, "intervals: 90%; *: the level --alpha, at which clean and fit remove candidates"]


def _doubts(audit: AuditFacts, classes: Sequence[str]) -> list[str]:
    """Return lines on classes that cannot be told apart and on doubtful classes, a few of each."""
    names = [cut(visible(name), _LONGEST_NAME) for name in classes]
    pairs = [f"  {' and '.join(names[j] for j in one['numbers'])}: {one['why']}" for one in audit["pairs"]]
    doubts = [f"  {names[one['number']]}: {one['why']}" for one in audit["classes"]]
    return [*_some("Classes that cannot be told apart:", pairs), *_some("Doubtful classes:", doubts)]


def _some(head: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    more = len(lines) - _MOST_NAMED
    return [head, *lines[:_MOST_NAMED], *([f"  … and {more} more"] if more > 0 else [])]
