"""The file `report.json` of a saved model: the facts of the report on its training."""

import json
from pathlib import Path
from typing import Any

from candidly.cleaning import exact
from candidly.cleaning.audit import CONFIDENCE
from candidly.report.facts import ReportFacts
from candidly.store import states
from candidly.store.files import parse_json

FILE = "report.json"
_FILE_0_1 = "findings.json"  # its name in version 0.1


def to_bytes(facts: ReportFacts) -> bytes:
    """Return the content of the file."""
    return json.dumps(facts.to_json()).encode()


def read(model: Path) -> ReportFacts:
    """Read the facts that were saved with a model, also by version 0.1."""
    for name in (FILE, _FILE_0_1):
        try:
            content = states.read_more(model, name)
        except KeyError:
            continue
        try:
            return ReportFacts.from_json(_upgrade(parse_json(content, model / name)))
        except ValueError as error:
            raise ValueError(f"{name} of {model} cannot be read: {error}") from None
    raise FileNotFoundError(f"{model} has no report; `candidly fit` saves one with the model")


def _upgrade(facts: Any) -> Any:
    """Return facts of older versions in their present form, with None for what those versions did not save.

    Other facts, also damaged ones, are returned as they are.
    """
    try:
        new = {
            "doubtful": [_upgrade_row(row, i) for i, row in enumerate(facts["doubtful"], 1)],
            "reliability": [_rename(one, "confidence", "probability") for one in facts["reliability"]],
            "truth": _upgrade_truth(facts["truth"]),
            "audit": _upgrade_audit(facts["audit"], facts["rows"]),
            "annotators": facts.get("annotators", []),
            "checked": facts.get("checked", []),
        }
    except (TypeError, KeyError, AttributeError, ValueError):
        return facts
    return facts | new


def _upgrade_row(row: dict[str, Any], priority: int) -> dict[str, Any]:
    """Return a doubtful row; scores were those of removed candidates, and confidence was one among all classes."""
    if "priority" in row:
        return row
    known = dict(zip(row["removed"], row["scores"], strict=True))
    scores = [known.get(index) for index in row["candidates"]]
    more = {"priority": priority, "scores": scores, "confidence": None, "outside": None, "outside_score": None}
    return row | more


def _upgrade_truth(truth: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what true labels showed; kept labels were a fraction of another number of rows."""
    if truth is None or "true_kept" not in truth:
        return truth
    return {name: value for name, value in truth.items() if name != "true_kept"} | {"outside": 0, "true_lost": None}


def _upgrade_audit(audit: dict[str, Any] | None, rows: int) -> dict[str, Any] | None:
    """Return an audit with the largest number of rows that a certificate can need."""
    if audit is None or "known" in audit:
        return audit
    levels = []
    for one in audit["levels"]:
        allowed = exact.count_allowed(rows, one["alpha"])
        check = exact.rows_needed(rows, allowed, exact.risk(CONFIDENCE)) if rows > allowed else None
        levels.append(one | {"check": check, "verified": None})
    return audit | {"levels": levels, "error": [audit["error"]] * 3, "known": None, "verified": None}


def _rename(facts: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in facts.items()}
