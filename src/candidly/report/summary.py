"""Summarise a fitted classifier for its report."""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from candidly import __version__, metrics
from candidly.candidates import Annotator, Candidates
from candidly.checks import arguments
from candidly.cleaning.audit import ALPHAS
from candidly.cleaning.budget import MIN_ROWS
from candidly.engine.description import describe
from candidly.estimator import FitRecord, PartialLabelClassifier, targets
from candidly.estimator.crossfit import Trained
from candidly.estimator.learners import Learners
from candidly.report.facts import (
    HISTORY,
    MOST_ANNOTATORS,
    MOST_DOUBTFUL,
    MOST_SHOWN,
    AnnotatorFacts,
    Bin,
    Curve,
    Doubtful,
    ReportFacts,
    Truth,
)
from candidly.tables.schema import Schema

_BINS = 10
_LONGEST = 1000  # characters of a setting or id
_MOST_CANDIDATES = 100_000  # of all rows in the list of doubtful rows
_SETTINGS = (
    "method",
    "cleaner",
    "quality",
    "net",
    "members",
    "folds",
    "alpha",
    "max_epochs",
    "lr",
    "batch_size",
    "weight_decay",
)
_SETTINGS_OF_LEARNERS = ("base", "rounds", "members", "folds", "alpha")

Setting = str | int | float | bool | None


def summarise(
    classifier: PartialLabelClassifier,
    title: str = "",
    ids: Iterable[Any] | None = None,
    y_true: Sequence[Any] | None = None,
    alphas: Sequence[float] = ALPHAS,
    verified: Any = None,
) -> ReportFacts:
    """Return the facts of a report on a fitted classifier and its training rows, for `write`.

    Parameters
    ----------
    classifier : PartialLabelClassifier
        Fitted, or loaded with its training rows.
    title : str
        Name of the data.
    ids : sequence, optional
        Names of the rows.
    y_true : sequence, optional
        True labels; None where unknown.
    alphas : sequence of float
        Levels to audit, besides `alpha`.
    verified : mapping of int to name, or sequence of names, optional
        True labels of rows that were drawn at random and checked by hand, as in `PartialLabelClassifier.audit`.
    """
    arguments.instance("classifier", classifier, PartialLabelClassifier, "a fitted PartialLabelClassifier")
    arguments.instance("title", title, str, "a text")
    check_is_fitted(classifier)
    record = classifier.fit_record_
    if record is None:
        raise ValueError(
            "the model was saved without its training rows, which a report needs; use `candidly report` for the saved "
            "report, or fit and save the model with its rows"
        )
    S, kept = record.candidates, classifier.candidates_
    labels = None if y_true is None else targets.number(y_true, S.classes, len(S))
    ids = None if ids is None else list(arguments.items("ids", ids, "a list with one name per row"))
    if ids is not None and len(ids) != len(S):
        raise ValueError(f"ids has {len(ids)} entries for {len(S)} rows; pass one per row")
    best, _ = targets.number(classifier.transduction_, S.classes, len(S))
    levels = [*arguments.items("alphas", alphas, "a list of levels, such as [0.05, 0.1]"), record.parameters["alpha"]]
    audit: Any = None if classifier.budget_ is None else classifier.audit(y_true, levels, verified=verified).to_json()
    shown = _choose(S)
    return ReportFacts(
        title=title,
        version=__version__,
        date=datetime.date.today().isoformat(),
        seconds=float(record.seconds),
        device=classifier.model_.device.type,
        words=_describe(classifier, record),
        settings=_settings(record, classifier.model_) | _columns(classifier.schema_),
        features=classifier.features_.describe(),
        classes=_texts(S.classes),
        rows=len(S),
        changed=int((S.sizes != kept.sizes).sum()),
        before=np.bincount(S.sizes, minlength=len(S.classes) + 1)[1:].tolist(),
        after=np.bincount(kept.sizes, minlength=len(S.classes) + 1)[1:].tolist(),
        history={name: _curve(values) for name, values in classifier.history_.items() if name in HISTORY},
        shown=shown.tolist(),
        together=_together(S, shown),
        removed=_removed(S.matrix & ~kept.matrix, best, shown),
        doubtful=_doubtful(classifier, record, best, ids, None if labels is None else labels[0]),
        reliability=_reliability(record, labels),
        annotators=_annotators(classifier.annotators_, S.classes),
        audit=audit,
        truth=None if labels is None else _compare_held_out(classifier, record, best, *labels),
    )


def _texts(names: Sequence[Any]) -> list[str]:
    """Return class names as text; names of different types that read alike are written as Python literals."""
    texts = [str(name) for name in names]
    return texts if len(set(texts)) == len(texts) else [repr(name) for name in names]


def _describe(classifier: PartialLabelClassifier, record: FitRecord) -> list[str]:
    """Return sentences on what was done."""
    S, kept, model = record.candidates, classifier.candidates_, classifier.model_
    folds, noun = len(classifier.calibration_.counts), "classifiers" if isinstance(model, Learners) else "networks"
    lines = [
        f"{len(S):,} rows have {S.mean_size:.2f} candidates on average, of {len(S.classes):,} classes; "
        f"{int(S.singletons.sum()):,} of them have one candidate.",
        _describe_training(model, classifier.n_iter_),
    ]
    held_out = len(record.held_out)
    if folds > 1:
        lines.append(f"Every row was scored by {noun} that were not trained on it ({folds} folds).")
    elif held_out:
        lines.append(f"{held_out:,} rows were held out; the {noun} that scored the other rows were trained on them.")
    else:
        lines.append("No rows were held out, so no candidate was removed.")
    if record.voted is not None:
        given, chosen = len(record.voted.table.task), classifier.transduction_
        outside = int((~S.matrix[np.arange(len(S)), targets.number(chosen, S.classes, len(S))[0]]).sum())
        lines.append(
            f"{given} votes were combined with these scores: each counts by how often its annotator gives this label "
            f"to rows of each class. In {outside} rows the chosen label is not a candidate."
        )
    declined = None if classifier.budget_ is None else classifier.budget_.declined
    if held_out and classifier.budget_ is None:
        lines.append(
            f"There are fewer than {MIN_ROWS} held-out rows, too few for estimates, so no candidate was removed."
        )
    elif declined and not record.parameters["force_cleaning"]:
        lines.append(f"No candidate was removed: {declined}.")
    elif held_out:
        removed, removable = int(S.sizes.sum() - kept.sizes.sum()), int(S.sizes.sum()) - len(S)
        lines.append(
            "The least likely candidates of each class were removed, as many as possible such that by a cautious "
            f"estimate at most {record.parameters['alpha']:.1%} of the rows lose their true label. The most likely "
            "candidate of a row was always kept."
        )
        lines.append(
            f"{removed:,} of {removable:,} removable candidates were removed; {kept.mean_size:.2f} per row remain."
        )
    return lines


def _describe_training(model: Trained, steps: int) -> str:
    """Return a sentence on what was trained, in a number of epochs or rounds."""
    several = model.runs > 1
    if isinstance(model, Learners):
        return (
            f"{model.runs} {type(model.base).__name__}{' were' if several else ' was'} trained with label weights that "
            f"were estimated in {steps} round{'s' * (steps > 1)}."
        )
    cleaner = " and without a cleaner" if model.cleaner["name"] == "cleaner" else ""
    return (
        f"{model.runs} network{'s were' if several else ' was'} trained for {steps} epoch{'s' * (steps > 1)} with the "
        f"method {describe(model.method)['name']}{cleaner}."
    )


def _settings(record: FitRecord, model: Trained) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for name in _SETTINGS if record.parameters["base"] is None else _SETTINGS_OF_LEARNERS:
        value = record.parameters[name]
        value = value.item() if isinstance(value, np.generic) else value
        found[name] = value if value is None or isinstance(value, str | int | float) else repr(value)[:_LONGEST]
    if not isinstance(model, Learners):
        found["lr"] = model.recipe.max_lr  # also where it is that of the method
    seed = record.parameters["random_state"]
    return found | {"random_state": seed if isinstance(seed, int | None) else repr(seed)[:_LONGEST]}


def _columns(schema: Schema | None) -> dict[str, Setting]:
    """Return which columns of the table were not features, if that is known."""
    if schema is None:
        return {}
    columns: dict[str, Setting] = {f"{role} column": name[:_LONGEST] for role, name in schema.named.items()}
    columns |= {f"encoder of {one.column}"[:_LONGEST]: one.encoder[:_LONGEST] for one in schema.encoders}
    return columns | ({"dropped columns": ", ".join(schema.drop)[:_LONGEST]} if schema.drop else {})


def _curve(values: NDArray[Any]) -> Curve:
    def plain(numbers: NDArray[Any]) -> list[float | None]:
        return [float(number) if np.isfinite(number) else None for number in numbers]

    return {"mean": plain(values.mean(1)), "low": plain(values.min(1)), "high": plain(values.max(1))}


def _choose(S: Candidates) -> NDArray[np.intp]:
    """Return the classes that are most often candidates together with others, in class order."""
    with_others = (S.matrix & ~S.singletons[:, None]).sum(0)
    return np.sort(np.argsort(-with_others, kind="stable")[:MOST_SHOWN])


def _together(S: Candidates, shown: NDArray[np.intp]) -> list[list[int]]:
    counts = S.matrix[:, shown].astype(np.float64)  # as in Candidates.co_occurrence
    found: list[list[int]] = (counts.T @ counts).astype(np.int64).tolist()
    return found


def _removed(removed: NDArray[np.bool_], best: NDArray[np.intp], shown: NDArray[np.intp]) -> list[list[int]]:
    counts: list[list[int]] = [removed[best == j][:, shown].sum(0).tolist() for j in shown]
    return counts


def _doubtful(
    classifier: PartialLabelClassifier,
    record: FitRecord,
    best: NDArray[np.intp],
    ids: Sequence[Any] | None,
    labels: NDArray[np.intp] | None,
) -> list[Doubtful]:
    S, kept = record.candidates, classifier.candidates_
    found: list[Doubtful] = []
    rows = np.argsort(classifier.priority_)[:MOST_DOUBTFUL]
    numbers = {name: number for number, name in enumerate(S.classes)}
    few = max(int((S.sizes[rows].cumsum() <= _MOST_CANDIDATES).sum()), 1)
    for row in rows[:few].tolist():
        candidates = np.flatnonzero(S.matrix[row])
        outside = classifier.outside_[row]
        true = -1 if labels is None else int(labels[row])
        found.append(
            {
                "priority": int(classifier.priority_[row]),
                "row": row,
                "id": None if ids is None else str(ids[row])[:_LONGEST],
                "candidates": candidates.tolist(),
                "removed": np.flatnonzero(S.matrix[row] & ~kept.matrix[row]).tolist(),
                "scores": [min(float(q), 1.0) for q in classifier.candidate_proba_[row, candidates]],
                "predicted": int(best[row]),
                "confidence": float(classifier.confidence_[row]),
                "outside": None if outside is None else numbers[outside],
                "outside_score": None if outside is None else min(float(classifier.outside_proba_[row]), 1.0),
                "true": None if true < 0 else true,
            }
        )
    return found


def _annotators(annotators: Sequence[Annotator], classes: Sequence[Any]) -> list[AnnotatorFacts]:
    """Return the annotators, the least accurate first."""
    numbers = {name: number for number, name in enumerate(classes)}
    return [
        {
            "name": None if one.name is None else str(one.name)[:_LONGEST],
            "votes": one.votes,
            "accuracy": [one.accuracy, one.low, one.high],
            "agreement": one.agreement,
            "confusions": [
                {
                    "true": numbers[each.true],
                    "given": numbers[each.given],
                    "votes": each.votes,
                    "fraction": each.fraction,
                }
                for each in one.confusions
            ],
        }
        for one in sorted(annotators, key=lambda one: one.high)[:MOST_ANNOTATORS]
    ]


def _reliability(record: FitRecord, labels: tuple[NDArray[np.intp], NDArray[np.bool_]] | None) -> list[Bin]:
    """Compare the probability of predictions, candidates or not, with how often they are candidates, and true."""
    probability, top = record.top_p.numpy(), record.top.numpy()
    place = np.minimum((probability * _BINS).astype(np.intp), _BINS - 1)
    covered = record.candidates.matrix[np.arange(len(top)), top]
    bins: list[Bin] = []
    for b in range(_BINS):
        rows = place == b
        bins.append(
            {
                "low": b / _BINS,
                "high": (b + 1) / _BINS,
                "count": int(rows.sum()),
                "probability": _mean(np.minimum(probability[rows], 1)),
                "covering": _mean(covered[rows]),
                "accuracy": None if labels is None else _mean((top == labels[0])[rows & labels[1]]),
            }
        )
    return bins


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if values.size else None


def _compare_held_out(
    classifier: PartialLabelClassifier,
    record: FitRecord,
    best: NDArray[np.intp],
    labels: NDArray[np.intp],
    known: NDArray[np.bool_],
) -> Truth:
    """Compare the rows that an audit is about with true labels; all rows if there is no audit."""
    if classifier.budget_ is not None:
        held_out = np.zeros_like(known)
        held_out[record.held_out.numpy()] = True
        known = known & held_out
    return compare(record.candidates, classifier.candidates_, best, labels, known)


def compare(
    S: Candidates,
    kept: Candidates,
    best: NDArray[np.intp],
    labels: NDArray[np.intp],
    known: NDArray[np.bool_],
) -> Truth:
    """Compare candidates before and after cleaning, and the best one of each row, with the known true labels."""
    before, after, y = (torch.from_numpy(array[known]) for array in (S.matrix, kept.matrix, labels))
    is_candidate = metrics.contains(before, y)
    return {
        "rows": len(y),
        "outside": int((~is_candidate).sum()),
        "accuracy": _mean(best[known] == labels[known]),
        "true_lost": _known(metrics.pruning_error(before, after, y)),
        "wrong_removed": _known(metrics.wrong_removed(before, after, y)),
    }


def _known(value: torch.Tensor) -> float | None:
    return None if value.isnan() else float(value)
