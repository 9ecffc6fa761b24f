"""The tables that commands write: cleaned rows and predictions, whole or for a block of rows."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from candidly.cli.checks import check_id
from candidly.conformal.calibration import Rule
from candidly.estimator import Cleaned, PartialLabelClassifier
from candidly.tables import files
from candidly.tables.class_columns import score_column, set_column
from candidly.tables.labelled import Labelled, Unvoted
from candidly.tables.schema import Schema

_CLEANED = (
    *("candidates", "kept", "removed", "predicted", "confidence", "priority", "scores", "outside", "outside_score"),
    *("majority", "true"),
)
_PREDICTED = ("predicted", "probability", "set")
CLASS_COLUMNS = ("candidates", "kept", "removed", "predicted", "outside", "majority", "true", "set")
"""The columns of results that hold classes, or lists of them."""


def check_cleaned(schema: Schema, classes: Iterable[Hashable], out: str) -> None:
    """Raise if cleaned rows cannot be written such that they can be read again."""
    check_id(schema.id, _CLEANED)
    files.check_names(out, [str(name) for name in classes], schema.separator)


def training_rows(classifier: PartialLabelClassifier) -> Cleaned:
    """Return the training rows of a classifier after cleaning."""
    assert classifier.fit_record_ is not None, "rows are left out only when a model is saved"
    return Cleaned(
        classifier.original_candidates_,
        classifier.candidates_,
        classifier.transduction_,
        classifier.confidence_,
        classifier.candidate_proba_,
        classifier.priority_,
        classifier.outside_,
        classifier.outside_proba_,
    )


def cleaned_table(
    rows: Labelled,
    cleaned: Cleaned,
    out: str,
    *,
    first: int | None = None,
    classifier: PartialLabelClassifier | None = None,
) -> Any:
    """Return cleaned rows as an Arrow table.

    `first` is the number of the first row of a block. A block has no column of priorities, which rank all rows. Rows
    without votes are predicted by `classifier`; all classes are their candidates.
    """
    before, after = cleaned.candidates.matrix, cleaned.kept.matrix
    names = [str(name) for name in cleaned.candidates.classes]
    removed = before & ~after
    numbers = np.arange(len(before)) + (first or 0)
    columns = {
        rows.schema.id or "row": pa.array(numbers) if rows.id_column is None else rows.id_column,
        "candidates": set_column(before, names),
        "kept": set_column(after, names),
        "removed": set_column(removed, names),
        "predicted": pa.array([str(name) for name in cleaned.transduction.tolist()], pa.string()),
        "confidence": pa.array(cleaned.confidence, pa.float32()),
        "priority": pa.array(cleaned.priority, pa.int64()),
        "scores": score_column(before, cleaned.candidate_proba, names, with_names=files.is_text_file(out)),
        "outside": pa.array([_text(name) for name in cleaned.outside], pa.string()),
        "outside_score": pa.array(cleaned.outside_proba, pa.float32(), mask=cleaned.outside_proba == 0),
    }
    if first is not None:
        del columns["priority"]
    if rows.votes is not None:
        columns["majority"] = pa.array([_text(name) for name in rows.votes.majority()], pa.string())
    table = pa.table(columns | ({} if rows.labels is None else {"true": pa.array(rows.labels, pa.string())}))
    if rows.unvoted is None or classifier is None:
        return table
    return _add_unvoted(table, rows.unvoted, rows.schema.id, classifier, names, out)


def _add_unvoted(
    table: Any, others: Unvoted, id: str | None, classifier: PartialLabelClassifier, names: list[str], out: str
) -> Any:
    """Return the table of cleaned rows with those without votes, in the order of the features."""
    p = classifier.predict_proba(others.features).astype(np.float32)
    every = np.ones_like(p, dtype=bool)
    predicted = {
        id: others.id_column,
        "candidates": set_column(every, names),
        "kept": set_column(every, names),
        "removed": set_column(~every, names),
        "predicted": pa.array([names[j] for j in p.argmax(1)], pa.string()),
        "confidence": pa.array(p.max(1), pa.float32()),
        "scores": score_column(every, p, names, with_names=files.is_text_file(out)),
        "true": pa.array(others.labels or [None] * len(p), pa.string()),
    }
    more = pa.table({field.name: predicted.get(field.name, pa.nulls(len(p), field.type)) for field in table.schema})
    voted = np.setdiff1d(np.arange(table.num_rows + len(p)), others.place)
    return pa.concat_tables([table, more.cast(table.schema)]).take(np.argsort(np.concatenate([voted, others.place])))


def _text(name: Any) -> str | None:
    return None if name is None else str(name)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of rows, and how to write them.

    Attributes
    ----------
    table : pyarrow.Table
        Ids, predicted classes, their probabilities and, with a level, prediction sets.
    p : ndarray, shape (n,)
        The probability of each predicted class.
    sets : ndarray, shape (n, C), or None
        Prediction sets.
    blank : ndarray, shape (n,), or None
        Which rows have no prediction because of `max_risk`.
    """

    table: Any
    p: NDArray[np.float64]
    sets: NDArray[np.bool_] | None
    blank: NDArray[np.bool_] | None

    @classmethod
    def of(
        cls,
        classifier: PartialLabelClassifier,
        features: Any,
        ids: Any,
        id: str | None,
        *,
        alpha: float | None,
        rule: Rule,
        max_risk: float | None,
        first: int = 0,
    ) -> "Predictions":
        """Predict rows.

        Parameters
        ----------
        classifier : PartialLabelClassifier
        features : pyarrow.Table
            The rows.
        ids, id : pyarrow.ChunkedArray, str or None
            The column of ids and its name; without it, rows are numbered from `first` on.
        alpha, rule, max_risk
            Level and rule of prediction sets, and the risk above which there is no prediction; None for neither.
        first : int
            The number of the first row.
        """
        p, p_values = classifier.predict_all(features, [] if alpha is None else [rule])
        names = [str(name) for name in classifier.classes_.tolist()]
        best = p.max(1)
        chosen = None
        if alpha is not None:
            classifier.calibration_.check_level(alpha, rule)
            chosen = p_values[0] > alpha
        blank = None if max_risk is None else best < classifier.calibration_.threshold(max_risk)
        columns = {
            id or "row": pa.array(np.arange(len(p)) + first) if id is None else ids,
            "predicted": pa.array(names).take(pa.array(p.argmax(1), mask=blank)),
            "probability": pa.array(best, pa.float32()),
        }
        if chosen is not None:
            columns["set"] = set_column(chosen, names)
        return cls(pa.table(columns), best, chosen, blank)

    def counts(self) -> dict[str, Any]:
        """Return what is reported about the rows, as sums."""
        found: dict[str, Any] = {"rows": len(self.p), "probability": float(self.p.sum())}
        if self.blank is not None:
            found["abstained"] = int(self.blank.sum())
        if self.sets is not None:
            found |= {"in_sets": int(self.sets.sum()), "empty_sets": int((~self.sets.any(1)).sum())}
        return found


def check_predicted(id: str | None) -> None:
    """Raise if the id column has the name of another column of predictions."""
    check_id(id, _PREDICTED)
