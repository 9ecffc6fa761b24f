"""Scorers that need no true labels, for GridSearchCV: ``scoring=candidly.estimator.scoring.covering_rate``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.estimator import targets

__all__ = ["approximated_accuracy", "covering_rate"]


def covering_rate(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Share of rows whose predicted class is a candidate; with one candidate per row, the accuracy.

    The covering rate of Wang et al., ICLR 2025. It is the easier to reach the more candidates rows have, so compare it
    on the same rows only.

    Parameters
    ----------
    estimator : estimator or pipeline
        Fitted, with `predict_proba` and `classes_`.
    X : array or table
        Rows.
    y : candidates, as in `candidly.PartialLabelClassifier.fit`
        A class that the estimator does not know is never predicted.
    sample_weight : array, optional
        Weights of rows.

    Examples
    --------
    >>> from candidly import PartialLabelClassifier
    >>> X, y = [[0.0], [0.1], [0.2], [0.9], [1.0], [1.1]], [{"cat"}, {"cat", "dog"}, {"cat"}, {"dog"}, {"dog"}, {"dog"}]
    >>> covering_rate(PartialLabelClassifier(folds=2, random_state=0).fit(X, y), X, y)
    1.0
    """
    best, sets, _ = _evaluate(estimator, X, y)
    return float(np.average(sets[np.arange(len(best)), best], weights=sample_weight))


def approximated_accuracy(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Mean probability of the predicted class among the row's candidates; 0 where it is none.

    The approximated accuracy of Wang et al., ICLR 2025: norm_S(p) at argmax p. Unlike the covering rate it asks for
    confidence, so it still tells estimators apart that always predict a candidate. Parameters as in `covering_rate`.
    """
    best, sets, p = _evaluate(estimator, X, y)
    rows = np.arange(len(best))
    inside = sets[rows, best]
    mass = np.where(inside, (p * sets).sum(1), 1)
    return float(np.average(np.where(inside, p[rows, best] / mass, 0), weights=sample_weight))


def _evaluate(estimator: Any, X: Any, y: Any) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.float64]]:
    p = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    classes = [name.item() if isinstance(name, np.generic) else name for name in estimator.classes_]
    last = estimator[-1] if hasattr(estimator, "steps") else estimator
    sets = targets.align(y, classes, getattr(last, "separator", None))
    if len(sets) != len(p):
        raise ValueError(f"X has {len(p)} rows but y has {len(sets)}; give each row its candidates")
    return p.argmax(1), sets, p
