"""What commands say of their results, in words and as facts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates.votes import Votes
from candidly.cleaning.budget import FEW
from candidly.estimator.evaluation import Evaluation
from candidly.messages import cut, visible
from candidly.report import write
from candidly.report.facts import AuditFacts, Findings, LevelFacts
from candidly.tables import files

ASSUMPTIONS = (
    "Estimates, no guarantee: they assume that the true label is a candidate, and that wrong candidates resemble the "
    "features of their row no more than in the synthetic sets that were tried."
)
_MOST_NAMED, _LONGEST_NAME = 10, 40


def describe_findings(findings: Findings, places: Mapping[str, str | Path | None]) -> tuple[list[str], dict[str, Any]]:
    """Say what was found and where it is, in words and as facts."""
    before, after = _mean_sizes(findings)
    lines = [
        f"{findings.title}: {findings.rows} rows, {len(findings.classes)} classes",
        f"candidates per row: {before:.2f} → {after:.2f}; rows changed: {findings.changed}",
    ]
    if findings.cost is not None:
        lines.append(_describe_cost(findings.cost))
    elif findings.audit is None:
        lines.append(f"no candidate was removed: that needs {FEW} rows that are held out")
    truth = findings.truth
    if truth is not None:
        shares = {"accuracy": truth["accuracy"], "true labels kept": truth["true_kept"]}
        shares["wrong ones removed"] = truth["wrong_removed"]
        known = [f"{what} {share:.1%}" for what, share in shares.items() if share is not None]
        lines.append(f"of {truth['rows']} rows with a known label: {', '.join(known) or 'nothing to score'}")
    lines += [f"{what}: {name_place(place)}" for what, place in places.items() if place is not None]
    facts: dict[str, Any] = {"rows": findings.rows, "classes": len(findings.classes), "candidates_before": before}
    facts |= {"candidates_after": after, "changed": findings.changed, "seconds": findings.seconds, "truth": truth}
    facts["estimate"] = findings.cost
    return lines, facts | {what: None if place is None else str(place) for what, place in places.items()}


def describe_audit(findings: Findings, page: Path | None) -> tuple[list[str], dict[str, Any]]:
    """Say what cleaning would cost at each level, and where not to trust it."""
    audit = findings.audit
    assert audit is not None, "the caller audited"
    before = _mean_sizes(findings)[0]
    lines = [
        f"{findings.title}: {findings.rows} rows, {len(findings.classes)} classes, {before:.2f} candidates per row",
        *_table(audit["levels"], findings.cost),
        *dict.fromkeys(f"No estimate: {one['declined']}." for one in audit["levels"] if one["declined"] is not None),
        ASSUMPTIONS,
        *audit["words"],
        *_doubts(audit, findings.classes),
        *([] if page is None else [f"report: {page}"]),
    ]
    named: dict[str, Any] = {
        "classes": [{"name": findings.classes[one["number"]], **one} for one in audit["classes"]],
        "pairs": [{"names": [findings.classes[j] for j in one["numbers"]], **one} for one in audit["pairs"]],
    }
    facts: dict[str, Any] = {"rows": findings.rows, "classes": len(findings.classes), "candidates": before}
    facts |= {"alpha": findings.settings["alpha"], "seconds": findings.seconds, "audit": {**audit, **named}}
    return lines, facts | {"report": None if page is None else str(page)}


def describe_votes(votes: Votes | None) -> tuple[list[str], dict[str, Any]]:
    """Say how far annotators agree, if there are some."""
    if votes is None:
        return [], {}
    agreement = {"observed": votes.agreement.observed, "krippendorff_alpha": votes.agreement.alpha}
    return str(votes).splitlines(), {"agreement": agreement}


def describe_predictions(
    p: NDArray[Any], sets: NDArray[np.bool_] | None, blank: NDArray[np.bool_] | None, out: str
) -> tuple[list[str], dict[str, Any]]:
    """Say what was predicted and where it is, given probabilities, sets and which rows have no prediction."""
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
    """Say how good a model is and where the plot is."""
    place = None if plot is None else str(plot)
    return [*str(result).splitlines(), *([] if place is None else [f"plot: {place}"])], result.to_json() | {
        "plot": place
    }


def write_page(findings: Findings, page: Path | None) -> None:
    """Write the report, if a file is given for it."""
    if page is not None:
        with files.writing(page):
            write(findings, page)


def name_place(place: str | Path) -> str:
    """Return what messages call a file.

    Examples
    --------
    >>> name_place("new.csv"), name_place("-")
    ('new.csv', 'standard output')
    """
    return "standard output" if place == "-" else str(place)


def _mean_sizes(findings: Findings) -> tuple[float, float]:
    before, after = (
        sum(size * n for size, n in enumerate(counts, 1)) / findings.rows
        for counts in (findings.before, findings.after)
    )
    return before, after


def _describe_cost(level: LevelFacts) -> str:
    if level["lost"] is None or level["removed"] is None:
        return f"true labels lost: not estimated, because {level['declined']}"
    lost, removed = _interval(level["lost"]), _interval(level["removed"])
    return f"true labels lost: about {lost}, estimated; wrong candidates removed: about {removed}"


def _interval(estimate: Sequence[float] | None) -> str:
    """Write a share with its interval.

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
    """Write what happens at each level, below each other; the truth stands beside what is estimated."""
    known = any(one["true_lost"] is not None for one in levels)
    heads = ["level", "true labels lost", "in truth", "wrong candidates removed", "in truth", "candidates removed"]
    rows = [heads if known else [heads[i] for i in (0, 1, 3, 5)]]
    for one in levels:
        truth = [("–" if share is None else f"{share:.1%}") for share in (one["true_lost"], one["true_removed"])]
        lost, removed = _interval(one["lost"]), _interval(one["removed"])
        shares = [lost, truth[0], removed, truth[1]] if known else [lost, removed]
        rows.append([f"{one['alpha']:g}{' *' if one is used else ''}", *shares, str(one["candidates"])])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return [*lines, "intervals: 90%; *: the level of --alpha, at which clean and fit remove candidates"]


def _doubts(audit: AuditFacts, classes: Sequence[str]) -> list[str]:
    """Name the pairs of classes and the classes that are in doubt, a few of each."""
    names = [cut(visible(name), _LONGEST_NAME) for name in classes]
    pairs = [f"  {' and '.join(names[j] for j in one['numbers'])}: {one['why']}" for one in audit["pairs"]]
    doubts = [f"  {names[one['number']]}: {one['why']}" for one in audit["classes"]]
    return [*_some("classes that cannot be told apart:", pairs), *_some("classes not to trust:", doubts)]


def _some(head: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    more = len(lines) - _MOST_NAMED
    return [head, *lines[:_MOST_NAMED], *([f"  … and {more} more"] if more > 0 else [])]
