"""Scorers that need no true labels, for example ``GridSearchCV(..., scoring=candidly.scoring.covering_rate)``."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from candidly import metrics
from candidly.estimator import targets

__all__ = ["approximated_accuracy", "covering_rate"]


def covering_rate(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return the fraction of rows whose predicted class is a candidate; with one candidate per row, the accuracy.

    The covering rate of Wang et al., ICLR 2025 (`candidly.metrics.covering_rate`). It is higher for rows with more
    candidates, so compare it on the same rows only.

    Parameters
    ----------
    estimator : estimator or pipeline
        Fitted, with `predict_proba` and `classes_`.
    X : array or table
        Rows.
    y : candidates, as in `candidly.PartialLabelClassifier.fit`
        A class that is not in the estimator's `classes_` is never predicted.
    sample_weight : array, optional
        Weights of rows: finite, not negative, and not all 0.

    Raises
    ------
    ValueError
        If a name in y differs from a class only by its type, case or blanks: the int 1 is not the text "1".

    Warns
    -----
    UserWarning
        If no name in y is a class.

    Examples
    --------
    >>> from candidly import PartialLabelClassifier
    >>> X, y = [[0.0], [0.1], [0.2], [0.9], [1.0], [1.1]], [{"cat"}, {"cat", "dog"}, {"cat"}, {"dog"}, {"dog"}, {"dog"}]
    >>> covering_rate(PartialLabelClassifier(folds=2, random_state=0).fit(X, y), X, y)
    1.0
    """
    return _mean(metrics.covered(*_predict(estimator, X, y)), sample_weight)


def approximated_accuracy(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return the mean probability of the predicted class among the row's candidates; 0 where it is not a candidate.

    The approximated accuracy of Wang et al., ICLR 2025 (`candidly.metrics.approximated_accuracy`): norm_S(p) at
    argmax p. It also rewards confidence, so it can compare estimators that always predict a candidate. Parameters as
    in `covering_rate`.
    """
    return _mean(metrics.candidate_confidence(*_predict(estimator, X, y)), sample_weight)


def _mean(values: Tensor, sample_weight: Any) -> float:
    weights = None if sample_weight is None else targets.row_weights(sample_weight, len(values))
    return float(np.average(values.numpy(), weights=weights))


def _predict(estimator: Any, X: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Return the probabilities and the candidates of rows, (n, C) each."""
    targets.check_index(X, y, "y")
    p = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    classes = [name.item() if isinstance(name, np.generic) else name for name in estimator.classes_]
    last = estimator[-1] if hasattr(estimator, "steps") else estimator
    sets = targets.align(y, classes, getattr(last, "separator", None))
    if len(sets) != len(p):
        raise ValueError(f"X has {len(p)} rows but y has {len(sets)}; pass the candidates of each row")
    return torch.from_numpy(p), torch.from_numpy(np.array(sets))
