"""The commands that train: fit, clean, audit."""

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from candidly.cleaning.audit import ALPHAS
from candidly.cleaning.budget import MIN_ROWS
from candidly.cli.checks import check_folder, check_folds, check_id, check_page, check_source, check_table
from candidly.cli.options import Reading, Telling, Training, Voting
from candidly.cli.output import describe_audit, describe_findings, describe_votes
from candidly.cli.pages import DROPPED, ROLES, write_page
from candidly.cli.reading import naming, progress, quiet, read, read_source
from candidly.conformal.calibration import MOST_LEVELS
from candidly.estimator.classifier import PartialLabelClassifier
from candidly.report import summarise
from candidly.report.facts import Findings
from candidly.tables import files
from candidly.tables.class_columns import score_column, set_column
from candidly.tables.labelled import Labelled

_CLEANED = ("candidates", "kept", "removed", "predicted", "confidence", "scores", "true")
_LONGEST = 10_000  # characters that findings take


def fit(
    table: str, candidates: str, out: Path, report: Path | None, reading: Reading, training: Training, telling: Telling
) -> None:
    """Train a model on a table and write it to a folder."""
    with quiet(telling):
        check_folder(out)
        check_page(report, out)
        rows = read(table, candidates, reading)
        estimator = _train(rows, training, telling)
        findings = _find(estimator, rows)
        with files.writing(out):
            estimator.save(out, {"findings.json": json.dumps(findings.to_json()).encode()})
        write_page(findings, report)
    telling.tell(*describe_findings(findings, {"model": out, "report": report}))


def clean(
    table: str | None,
    candidates: str | None,
    out: str,
    report: Path | None,
    voting: Voting,
    reading: Reading,
    training: Training,
    telling: Telling,
) -> None:
    """Clean the candidates of a table, or those that votes make, and write them to another."""
    with quiet(telling):
        check_folds(training)
        check_source(table, candidates, voting)
        check_table(out, (table, voting.annotations, voting.features), telling)
        check_page(report, out)
        rows, votes = read_source(table, candidates, voting, reading)
        check_id(rows.schema.id, _CLEANED)
        files.check_names(out, [str(name) for name in rows.candidates.classes], reading.separator)
        estimator = _train(rows, training, telling)
        findings = _find(estimator, rows)
        files.write(_cleaned(rows, estimator, out), out, separator=reading.separator)
        write_page(findings, report)
    lines, facts = describe_findings(findings, {"cleaned": out, "report": report})
    before, agreement = describe_votes(votes)
    telling.tell([*before, *lines], facts | agreement, to_stderr=out == "-")


def audit(
    table: str | None,
    candidates: str | None,
    alphas: str | None,
    report: Path | None,
    voting: Voting,
    reading: Reading,
    training: Training,
    telling: Telling,
) -> None:
    """Train as `clean` does, and tell what cleaning would cost at several levels."""
    with quiet(telling):
        check_folds(training)
        check_source(table, candidates, voting)
        check_page(report)
        levels = _read_levels(alphas)
        rows, votes = read_source(table, candidates, voting, reading)
        if len(rows.candidates) < MIN_ROWS:
            raise ValueError(f"{rows.title} has {len(rows.candidates)} rows; an audit needs {MIN_ROWS}, add rows")
        findings = _find(_train(rows, training, telling), rows, levels)
        write_page(findings, report)
    lines, facts = describe_audit(findings, report)
    before, agreement = describe_votes(votes)
    telling.tell([*before, *lines], facts | agreement)


def _read_levels(text: str | None) -> tuple[float, ...]:
    """Read levels with commas between them.

    Examples
    --------
    >>> _read_levels(".1, 0.02")
    (0.1, 0.02)
    """
    if text is None:
        return ALPHAS
    if text.count(",") >= MOST_LEVELS - 1:  # one more is that of the estimator
        raise ValueError(f"--alphas has {text.count(',') + 1} levels; give fewer than {MOST_LEVELS}")
    advice = f"--alphas is {text!r}; give levels between 0 and 1 with commas between them, such as 0.02,0.05"
    try:
        levels = tuple(map(float, text.split(",")))
    except ValueError:
        raise ValueError(advice) from None
    if not all(0 < level < 1 for level in levels):
        raise ValueError(advice)
    return levels


def _train(rows: Labelled, training: Training, telling: Telling) -> PartialLabelClassifier:
    n = len(rows.candidates)
    if training.folds is not None and training.folds > n:
        raise ValueError(f"folds is {training.folds} but there are {n} rows; use fewer folds, or add rows")
    given: dict[str, Any] = {"members": training.members, "folds": training.folds, "alpha": training.alpha}
    given["max_epochs"] = training.epochs
    estimator = PartialLabelClassifier(
        training.method,
        None if training.cleaner == "none" else training.cleaner,
        **{name: value for name, value in given.items() if value is not None},
        device=training.device,
        random_state=training.seed,
        verbose=progress(telling),
    )
    with naming(rows.title):
        return estimator.fit(rows.features, rows.candidates, weights=rows.weights)


def _find(estimator: PartialLabelClassifier, rows: Labelled, alphas: Sequence[float] = ALPHAS) -> Findings:
    """Return the findings; their settings also say which columns are no features."""
    findings = summarise(estimator, rows.title, rows.ids, rows.labels, alphas)
    roles = {f"{role} column": getattr(rows.schema, role) for role in ROLES}
    if rows.schema.drop:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(rows.schema.drop)
        roles[DROPPED] = line.getvalue()
    columns = {what: text for what, text in roles.items() if text is not None and len(text) <= _LONGEST}
    return dataclasses.replace(findings, settings=findings.settings | columns)


def _cleaned(rows: Labelled, estimator: PartialLabelClassifier, out: str) -> Any:
    before, after, names = rows.candidates.matrix, estimator.candidates_.matrix, estimator.classes_.tolist()
    removed = before & ~after
    ids = pa.array(np.arange(len(before))) if rows.id_column is None else rows.id_column
    columns = {
        rows.schema.id or "row": ids,
        "candidates": set_column(before, names),
        "kept": set_column(after, names),
        "removed": set_column(removed, names),
        "predicted": pa.array(estimator.transduction_.tolist(), pa.string()),
        "confidence": pa.array(estimator.confidence_, pa.float32()),
        "scores": score_column(removed, estimator.candidate_proba_, names, with_names=files.is_text_file(out)),
    }
    return pa.table(columns | ({} if rows.labels is None else {"true": pa.array(rows.labels, pa.string())}))
