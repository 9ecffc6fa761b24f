"""What an estimator found in its training rows, for the report."""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from candidly import __version__
from candidly.candidates import Candidates
from candidly.cleaning.audit import ALPHAS
from candidly.cleaning.budget import MIN_ROWS
from candidly.engine.description import describe
from candidly.estimator import targets
from candidly.report.facts import HISTORY, MOST_DOUBTFUL, MOST_SHOWN, Bin, Curve, Doubtful, Findings, Truth

_BINS = 10
_SETTINGS = ("method", "cleaner", "net", "members", "folds", "alpha", "max_epochs", "lr", "batch_size", "weight_decay")


def summarise(
    estimator: Any,
    title: str = "",
    ids: Iterable[Any] | None = None,
    y_true: Sequence[Any] | None = None,
    alphas: Sequence[float] = ALPHAS,
) -> Findings:
    """Summarise what a fitted `candidly.PartialLabelClassifier` found in its training rows, for `write`.

    Parameters
    ----------
    estimator : PartialLabelClassifier
        Fitted, not loaded.
    title : str
        What was cleaned.
    ids : sequence, optional
        Names of the rows.
    y_true : sequence, optional
        True labels where they are known; None, and whatever is no class, elsewhere.
    alphas : sequence of float
        Levels to audit, beside `alpha`.
    """
    check_is_fitted(estimator)
    if not hasattr(estimator, "_original"):
        raise ValueError("a loaded model has no training rows to report on; candidly report shows what was saved")
    S, kept = estimator._original, estimator.candidates_
    labels = None if y_true is None else targets.number(y_true, S.classes, len(S))[0]
    ids = None if ids is None else list(ids)
    if ids is not None and len(ids) != len(S):
        raise ValueError(f"ids has {len(ids)} entries for {len(S)} rows; give one per row")
    best, _ = targets.number(estimator.transduction_, S.classes, len(S))
    confidence, predicted = (part.numpy() for part in estimator._log_p.exp().max(1))
    shown = _choose(S)
    return Findings(
        title=title,
        version=__version__,
        date=datetime.date.today().isoformat(),
        seconds=float(estimator._seconds),
        device=estimator.model_.problem.X.device.type,
        words=_words(estimator, S, kept),
        settings=_settings(estimator),
        features=estimator.features_.describe(),
        classes=_texts(S.classes),
        rows=len(S),
        changed=int((S.sizes != kept.sizes).sum()),
        before=np.bincount(S.sizes, minlength=len(S.classes) + 1)[1:].tolist(),
        after=np.bincount(kept.sizes, minlength=len(S.classes) + 1)[1:].tolist(),
        history={name: _curve(values) for name, values in estimator.history_.items() if name in HISTORY},
        shown=shown.tolist(),
        together=_together(S, shown),
        removed=_removed(S.matrix & ~kept.matrix, best, shown),
        doubtful=_doubtful(estimator, S, kept, best, ids, labels),
        reliability=_reliability(predicted, confidence, S, labels),
        audit=None if estimator.budget_ is None else _audit(estimator, y_true, alphas),
        truth=None if labels is None else _truth(S, kept, best, labels),
    )


def _plain(name: Any) -> Any:
    return name.item() if isinstance(name, np.generic) else name


def _audit(estimator: Any, y_true: Sequence[Any] | None, alphas: Sequence[float]) -> Any:
    """Audit at these levels and at the estimator's own."""
    return estimator.audit(y_true, [*alphas, estimator._fitted["alpha"]]).to_json()


def _texts(names: Sequence[Any]) -> list[str]:
    """Return class names as text; names of different types may read alike, and are told apart by their type."""
    texts = [str(name) for name in names]
    return texts if len(set(texts)) == len(texts) else [repr(name) for name in names]


def _words(estimator: Any, S: Candidates, kept: Candidates) -> list[str]:
    single, removed, removable = int(S.singletons.sum()), int(S.sizes.sum() - kept.sizes.sum()), int(S.sizes.sum())
    networks, epochs = estimator.model_.problem.runs, len(estimator.history_["loss"])
    cleaner = estimator.model_.cleaner
    pruned = " without cleaning" if cleaner is None or cleaner.get("name") == "cleaner" else ""
    words = [
        f"{len(S)} rows have {S.mean_size:.2f} candidates each, of {len(S.classes)} classes; {single} have just one.",
        f"{networks} network{'s' * (networks > 1)} trained together for {epochs} epoch{'s' * (epochs > 1)}{pruned}, by "
        f"the method {describe(estimator.model_.method)['name']}.",
    ]
    held_out = len(estimator._tested)
    folds = len(estimator.calibration_.counts)
    if folds > 1:
        words.append(f"Every row was scored by networks that did not train on it ({folds} folds).")
    elif held_out:
        words.append(f"{held_out} rows were held out; all others were scored by networks that trained on them.")
    else:
        words.append("No rows were held out, so no candidate was removed.")
    if held_out and estimator.budget_ is None:
        words.append(f"They are too few to judge by, fewer than {MIN_ROWS}, so no candidate was removed.")
    elif held_out:
        words.append(
            "The least likely candidates of each class were removed, as many as may cost "
            f"{estimator._fitted['alpha']:.1%} of the rows their true label by a cautious estimate; the most likely "
            "candidate of a row always stayed."
        )
        words.append(
            f"{removed} of {removable - len(S)} labels that could go were removed; {kept.mean_size:.2f} remain per row."
        )
    return words


def _settings(estimator: Any) -> dict[str, str | int | float | bool | None]:
    found: dict[str, str | int | float | bool | None] = {}
    for name in _SETTINGS:
        value = _plain(estimator._fitted[name])
        found[name] = value if value is None or isinstance(value, str | int | float) else repr(value)[:1000]
    seed = estimator._fitted["random_state"]
    return found | {"random_state": seed if isinstance(seed, int | None) else repr(seed)[:1000]}


def _curve(values: NDArray[Any]) -> Curve:
    def plain(numbers: NDArray[Any]) -> list[float | None]:
        return [float(number) if np.isfinite(number) else None for number in numbers]

    return {"mean": plain(values.mean(1)), "low": plain(values.min(1)), "high": plain(values.max(1))}


def _choose(S: Candidates) -> NDArray[np.intp]:
    """Return the classes that are candidates together with others most often, in class order."""
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
    estimator: Any,
    S: Candidates,
    kept: Candidates,
    best: NDArray[np.intp],
    ids: Sequence[Any] | None,
    labels: NDArray[np.intp] | None,
) -> list[Doubtful]:
    found: list[Doubtful] = []
    for row in np.argsort(estimator.confidence_, kind="stable")[:MOST_DOUBTFUL].tolist():
        removed = np.flatnonzero(S.matrix[row] & ~kept.matrix[row])
        true = -1 if labels is None else int(labels[row])
        found.append(
            {
                "row": row,
                "id": None if ids is None else str(ids[row])[:1000],
                "candidates": np.flatnonzero(S.matrix[row]).tolist(),
                "removed": removed.tolist(),
                "scores": [float(p) for p in estimator.candidate_proba_[row, removed]],
                "predicted": int(best[row]),
                "confidence": min(float(estimator.confidence_[row]), 1.0),
                "true": None if true < 0 else true,
            }
        )
    return found


def _reliability(
    top: NDArray[np.intp], confidence: NDArray[np.float32], S: Candidates, labels: NDArray[np.intp] | None
) -> list[Bin]:
    """Compare the probability of the most probable class, candidate or not, with how often it is one, or right."""
    place = np.minimum((confidence * _BINS).astype(np.intp), _BINS - 1)
    covered = S.matrix[np.arange(len(S)), top]
    bins: list[Bin] = []
    for b in range(_BINS):
        rows = place == b
        known = rows if labels is None else rows & (labels >= 0)
        bins.append(
            {
                "low": b / _BINS,
                "high": (b + 1) / _BINS,
                "count": int(rows.sum()),
                "confidence": _mean(np.minimum(confidence[rows], 1)),
                "covering": _mean(covered[rows]),
                "accuracy": None if labels is None else _mean(top[known] == labels[known]),
            }
        )
    return bins


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if values.size else None


def _truth(S: Candidates, kept: Candidates, best: NDArray[np.intp], labels: NDArray[np.intp]) -> Truth:
    known = np.flatnonzero(labels >= 0)
    true = np.zeros_like(S.matrix)
    true[known, labels[known]] = True
    wrong = (S.matrix & ~true)[known]
    return {
        "rows": len(known),
        "accuracy": _mean(best[known] == labels[known]),
        "true_kept": _mean(kept.matrix[S.matrix & true]),
        "wrong_removed": _mean(~kept.matrix[known][wrong]),
    }
