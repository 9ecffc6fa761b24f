"""What commands say of their results, in words and as facts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.evaluation import Evaluation
from candidly.findings import Findings


def describe_findings(findings: Findings, places: Mapping[str, str | Path | None]) -> tuple[list[str], dict[str, Any]]:
    """Say what was found and where it is, in words and as facts."""
    before, after = (
        sum(size * n for size, n in enumerate(counts, 1)) / findings.rows
        for counts in (findings.before, findings.after)
    )
    lines = [
        f"{findings.title}: {findings.rows} rows, {len(findings.classes)} classes",
        f"candidates per row: {before:.2f} → {after:.2f}; rows changed: {findings.changed}",
    ]
    truth = findings.truth
    if truth is not None:
        shares = {"accuracy": truth["accuracy"], "true labels kept": truth["true_kept"]}
        shares["wrong ones removed"] = truth["wrong_removed"]
        known = [f"{what} {share:.1%}" for what, share in shares.items() if share is not None]
        lines.append(f"of {truth['rows']} rows with a known label: {', '.join(known) or 'nothing to score'}")
    lines += [f"{what}: {name_place(place)}" for what, place in places.items() if place is not None]
    facts: dict[str, Any] = {"rows": findings.rows, "classes": len(findings.classes), "candidates_before": before}
    facts |= {"candidates_after": after, "changed": findings.changed, "seconds": findings.seconds, "truth": truth}
    return lines, facts | {what: None if place is None else str(place) for what, place in places.items()}


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


def name_place(place: str | Path) -> str:
    """Return what messages call a file.

    Examples
    --------
    >>> name_place("new.csv"), name_place("-")
    ('new.csv', 'standard output')
    """
    return "standard output" if place == "-" else str(place)
