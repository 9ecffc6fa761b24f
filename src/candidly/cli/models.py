"""The commands that use a model: predict, evaluate, report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from candidly.cli.checks import check_id, check_page, check_table
from candidly.cli.options import Setting, Telling
from candidly.cli.output import describe_evaluation, describe_findings, describe_predictions
from candidly.cli.pages import known_columns, read_findings, write_page
from candidly.cli.reading import naming, progress, quiet, split
from candidly.conformal.calibration import Candidate, check_share
from candidly.estimator import evaluation
from candidly.estimator.classifier import PartialLabelClassifier
from candidly.store.figures import FORMATS
from candidly.tables import files, labelled
from candidly.tables.class_columns import set_column
from candidly.tables.column_encoders import Category
from candidly.tables.schema import check_column

_PREDICTED = ("predicted", "confidence", "set")


def predict(
    model: Path,
    table: str,
    out: str,
    *,
    alpha: float | None,
    setting: Setting,
    max_risk: float | None,
    id: str | None,
    drop: str | None,
    separator: str,
    delimiter: str | None,
    telling: Telling,
) -> None:
    """Predict the classes of a table's rows with a model and write them to another."""
    with quiet(telling):
        for name, value in (("alpha", alpha), ("max_risk", max_risk)):
            if value is not None:
                check_share(name, value)
        rule = setting.of(alpha)
        check_table(out, [table], telling)
        estimator = _load(model).set_params(verbose=progress(telling))
        names = [str(name) for name in estimator.classes_.tolist()]
        if alpha is not None:
            files.check_names(out, names, separator)
        rows, found, known = _read_new(estimator, table, {"--id": id}, split(drop, "--drop"), model, delimiter)
        id = id or next((name for name in known.get("id", ()) if name in found.column_names), None)
        check_id(id, _PREDICTED)
        ids = pa.array(np.arange(found.num_rows)) if id is None else found.column(id)
        with naming(labelled.name_of(table)):
            p = estimator.predict_proba(rows)
        sets = None if alpha is None else estimator.predict_set(rows, alpha, **rule)
        blank = None if max_risk is None else p.max(1) < estimator.calibration_.threshold(max_risk)
        columns = {id or "row": ids, "predicted": pa.array(names).take(pa.array(p.argmax(1), mask=blank))}
        columns["confidence"] = pa.array(p.max(1), pa.float32())
        if sets is not None:
            columns["set"] = set_column(sets, names)
        files.write(pa.table(columns), out, separator=separator)
    telling.tell(*describe_predictions(p, sets, blank, out), to_stderr=out == "-")


def evaluate(
    model: Path,
    table: str,
    labels: str,
    *,
    plot: Path | None,
    candidate: Candidate | None,
    drop: str | None,
    delimiter: str | None,
    telling: Telling,
) -> None:
    """Compare a model's predictions with the true labels of a table's rows."""
    with quiet(telling):
        if plot is not None:
            files.check_writable(plot, FORMATS)
        estimator = _load(model).set_params(verbose=progress(telling))
        rows, found, _ = _read_new(estimator, table, {"--labels": labels}, split(drop, "--drop"), model, delimiter)
        classes = {str(name): name for name in estimator.classes_.tolist()}
        texts = labelled.column_texts(found.column(labels))
        true = [None if text is None else classes.get(text, text) for text in texts]
        with naming(labelled.name_of(table)):
            result = evaluation.evaluate(estimator, rows, true, candidate=candidate or "best")
        if plot is not None:
            with files.writing(plot):
                evaluation.draw(result, plot)
    telling.tell(*describe_evaluation(result, plot))


def report(model: Path, out: Path, telling: Telling) -> None:
    """Write the page on a model anew."""
    check_page(out, model)
    findings = read_findings(model)
    if findings is None:
        raise FileNotFoundError(f"{model / 'findings.json'} does not exist; `candidly fit` writes it with the model")
    write_page(findings, out)
    telling.tell(*describe_findings(findings, {"report": out}))


def _load(model: Path) -> PartialLabelClassifier:
    try:
        return PartialLabelClassifier.load(model)
    except ValueError as error:
        reason = str(error)
        raise ValueError(reason if reason.startswith(str(model)) else f"{model}: {reason}") from error


def _read_new(
    estimator: PartialLabelClassifier,
    table: str,
    named: Mapping[str, str | None],
    drop: list[str],
    model: Path,
    delimiter: str | None,
) -> tuple[Any, Any, dict[str, list[str]]]:
    """Return the features of new rows, their whole table, and the columns that were none in training.

    Neither are those that options name.
    """
    features, known = estimator.features_, known_columns(model)
    used = features.names_ or ()
    # As text, like those that were fitted: 01 would be another category than 1.
    categories = [name for name, column in zip(used, features.columns, strict=False) if isinstance(column, Category)]
    others = [name for names in known.values() for name in names]
    given = [(option, name) for option, name in named.items() if name is not None]
    found = files.read(table, delimiter=delimiter, texts=[*categories, *others, *(name for _, name in given)])
    for option, name in [*given, *(("--drop", name) for name in drop)]:
        check_column(found, labelled.name_of(table), name, option)
    if named.get("--labels") in used:
        raise ValueError(f"--labels is {named['--labels']!r}, which the model was trained on; name the true labels")
    left_out = {*others, *drop, *(name for _, name in given)} - set(used)
    rows = found.select([name for name in found.column_names if name not in left_out])
    labelled.check_types(rows, labelled.name_of(table))
    return rows, found, known
