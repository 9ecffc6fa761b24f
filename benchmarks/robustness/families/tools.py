"""scikit-learn's tools, pickling and copying around the classifier."""

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier
from sklearn.inspection import permutation_importance
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    train_test_split,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import candidly
from benchmarks.robustness import made
from benchmarks.robustness.case import Case, Expected, either, elsewhere, error, right

FAMILY = "tools"
X, Y = made.features, made.names


def new(**options: Any) -> Any:
    """Return a small classifier that is not fitted."""
    return candidly.PartialLabelClassifier(**(dict(made.SMALL) | options))


def folds() -> Any:
    """Return the split of cross-validation."""
    return KFold(3, shuffle=True, random_state=0)


def by_hand(y: list[Any]) -> list[float]:
    """Return the scores of cross-validation, computed without scikit-learn's functions."""
    return [
        new().fit(X()[train], [y[i] for i in train]).score(X()[test], [y[i] for i in test])
        for train, test in folds().split(X())
    ]


def scores(y: Any) -> Callable[[], Any]:
    """Return a call of `cross_val_score` with these labels; scikit-learn's own error is as good as candidly's."""
    return lambda: cross_val_score(new(), X(), y() if callable(y) else y, cv=folds(), error_score="raise")


def equal(found: Any) -> bool:
    """Check scores against those computed by hand."""
    return made.same(list(map(float, found)), by_hand(Y()))


def objects() -> Any:
    """Return the good candidates as an array of lists."""
    array = np.empty(made.ROWS, dtype=object)
    array[:] = Y()
    return array


CASES: dict[str, tuple[Callable[[], Any], Expected]] = {
    "cross_val_score with a boolean matrix": (
        scores(lambda: made.matrix()),
        right(lambda found: len(found) == 3 and np.isfinite(found).all()),
    ),
    "cross_val_score with an array of lists": (scores(objects), right(equal)),
    "cross_val_score with a Series of lists": (scores(lambda: pd.Series(Y())), right(equal)),
    "cross_val_score with lists": (scores(Y), elsewhere("y", check=equal)),
    "cross_val_score with tuples": (scores(lambda: [tuple(row) for row in Y()]), elsewhere("y", check=equal)),
    "cross_val_score with sets": (scores(lambda: [set(row) for row in Y()]), elsewhere("y", check=equal)),
    "cross_val_score with Candidates": (
        scores(lambda: candidly.encode(Y())),
        elsewhere("y", "Candidates", check=equal),
    ),
    "cross_val_score with a polars Series": (scores(lambda: pl.Series(Y())), elsewhere("y", check=equal)),
    "cross_val_score with texts": (
        lambda: cross_val_score(new(separator="|"), X(), np.array(made.texts()), cv=folds(), error_score="raise"),
        right(equal),
    ),
    "cross_val_score with plain labels": (
        scores(lambda: np.array(made.CLASSES)[made.truth()]),
        right(lambda found: np.isfinite(found).all()),
    ),
    "cross_val_score with scoring=covering_rate": (
        lambda: cross_val_score(
            new(), X(), objects(), cv=folds(), scoring=candidly.scoring.covering_rate, error_score="raise"
        ),
        right(equal),
    ),
    "cross_val_predict": (
        lambda: cross_val_predict(new(), X(), objects(), cv=folds()),
        right(lambda found: set(found) <= set(made.CLASSES)),
    ),
    "cross_validate": (
        lambda: cross_validate(new(), X(), objects(), cv=folds(), error_score="raise")["test_score"],
        right(equal),
    ),
    "GridSearchCV": (
        lambda: (
            GridSearchCV(new(), {"method": ["proden", "cc"], "alpha": [0.05, 0.1]}, cv=folds(), error_score="raise")
            .fit(X(), objects())
            .best_params_
        ),
        right(lambda best: best["method"] in ("proden", "cc")),
    ),
    "GridSearchCV over numpy values": (
        lambda: (
            GridSearchCV(
                new(),
                {"lr": np.array([0.0078125, 0.015625], np.float32), "max_epochs": np.array([1, 2])},
                cv=folds(),
                error_score="raise",
            )
            .fit(X(), objects())
            .best_params_
        ),
        right(lambda best: "lr" in best),
    ),
    "GridSearchCV over method__beta": (
        lambda: (
            GridSearchCV(
                new(method=candidly.Valen(warmup=1)), {"method__beta": [0.01, 0.1]}, cv=folds(), error_score="raise"
            )
            .fit(X(), objects())
            .best_params_
        ),
        either("method__beta", "beta", "method", check=lambda best: best["method__beta"] in (0.01, 0.1)),
    ),
    "GridSearchCV over an unknown parameter": (
        lambda: GridSearchCV(new(), {"epochs": [1]}, cv=folds(), error_score="raise").fit(X(), objects()),
        elsewhere("epochs"),
    ),
    "RandomizedSearchCV": (
        lambda: (
            RandomizedSearchCV(new(), {"alpha": [0.05, 0.1]}, n_iter=2, cv=folds(), random_state=0, error_score="raise")
            .fit(X(), objects())
            .best_score_
        ),
        right(np.isfinite),
    ),
    "set_params(method__beta)": (
        lambda: new(method="valen").set_params(method__beta=0.1),
        either("method__beta", "beta", "method", check=lambda c: c.method.beta == 0.1),
    ),
    "set_params of an unknown parameter": (lambda: new().set_params(epochs=3), elsewhere("epochs")),
    "an unknown parameter": (lambda: candidly.PartialLabelClassifier(epochs=3), error("epochs")),
    "a third positional argument": (
        lambda: candidly.PartialLabelClassifier("proden", "conformal", "mlp"),
        error("positional"),
    ),
    "train_test_split with lists": (
        lambda: train_test_split(X(), Y(), random_state=0),
        right(lambda parts: made.fit(parts[0], parts[2]).score(parts[1], parts[3]) > 0),
    ),
    "a pipeline": (
        lambda: make_pipeline(StandardScaler(), new()).fit(X(), Y()).score(X(), Y()),
        right(lambda score: score > 0.4),
    ),
    "a pipeline with covering_rate": (
        lambda: candidly.scoring.covering_rate(make_pipeline(StandardScaler(), new()).fit(X(), Y()), X(), Y()),
        right(lambda score: score > 0.4),
    ),
    "a pipeline with sample_weight": (
        lambda: make_pipeline(StandardScaler(), new()).fit(
            X(), Y(), partiallabelclassifier__sample_weight=np.ones(made.ROWS)
        ),
        right(lambda _: True),
    ),
    "clone": (lambda: clone(made.fitted()).fit(X(), Y()), right(lambda c: made.same(c, made.fitted()))),
    "clone with an instance": (
        lambda: clone(new(method=candidly.Valen(warmup=1), cleaner=candidly.Clsp(3))).fit(X(), Y()),
        right(lambda c: len(c.candidates_) == made.ROWS),
    ),
    "pickle": (
        lambda: pickle.loads(pickle.dumps(made.fitted())),
        right(lambda c: made.same(c.predict_proba(X()), made.fitted().predict_proba(X()))),
    ),
    "pickle of a classifier that is not fitted": (
        lambda: pickle.loads(pickle.dumps(new())).fit(X(), Y()),
        right(lambda c: made.same(c, made.fitted())),
    ),
    "joblib": (
        lambda: (joblib.dump(made.fitted(), "model.joblib"), joblib.load("model.joblib"))[1],
        right(lambda c: made.same(c.predict_proba(X()), made.fitted().predict_proba(X()))),
    ),
    "deepcopy": (
        lambda: copy.deepcopy(made.fitted()),
        right(lambda c: made.same(c.predict_proba(X()), made.fitted().predict_proba(X()))),
    ),
    "pickle of Candidates": (
        lambda: pickle.loads(pickle.dumps(candidly.encode(Y()))),
        right(lambda c: made.same(c, candidly.encode(Y()))),
    ),
    "pickle of a model": (
        lambda: pickle.loads(pickle.dumps(made.trained())).predict(X()),
        right(lambda p: made.same(p, made.trained().predict(X()))),
    ),
    "BaggingClassifier with labels": (
        lambda: BaggingClassifier(new(), 2, random_state=0).fit(X(), np.array(made.CLASSES)[made.truth()]).predict(X()),
        right(lambda found: set(found) <= set(made.CLASSES)),
    ),
    "CalibratedClassifierCV with labels": (
        lambda: CalibratedClassifierCV(new(), cv=3).fit(X(), np.array(made.CLASSES)[made.truth()]).predict_proba(X()),
        right(lambda p: np.isfinite(p).all()),
    ),
    "OneVsRestClassifier with labels": (
        lambda: OneVsRestClassifier(new()).fit(X(), np.array(made.CLASSES)[made.truth()]).predict(X()),
        right(lambda found: set(found) <= set(made.CLASSES)),
    ),
    "permutation_importance": (
        lambda: permutation_importance(made.fitted(), X(), objects(), n_repeats=2, random_state=0).importances_mean,
        right(lambda found: np.isfinite(found).all()),
    ),
    "repr": (lambda: repr(made.fitted()), right(lambda text: "PartialLabelClassifier" in text)),
    "repr with an instance": (
        lambda: repr(new(method=candidly.Valen(), net=lambda: None)),
        right(lambda text: "Valen" in text),
    ),
    "HTML repr": (lambda: new()._repr_html_(), right(lambda text: "PartialLabelClassifier" in text)),
    "predict after pandas output": (
        lambda: (
            make_pipeline(StandardScaler().set_output(transform="pandas"), new())
            .fit(pd.DataFrame(X(), columns=list("abc")), Y())
            .predict(pd.DataFrame(X(), columns=list("cba"))[["a", "b", "c"]])
        ),
        right(lambda found: len(found) == made.ROWS),
    ),
    "fit without y": (lambda: new().fit(X(), None), error("y")),
    "fit with X and y exchanged": (lambda: new().fit(Y(), X()), error("X", "y")),
    "fit with a string as sample_weight position": (lambda: new().fit(X(), Y(), "balanced"), error("weight")),
    "fit with four arguments too many": (
        lambda: new().fit(X(), Y(), None, None, 3, 4),
        error("positional", "argument"),
    ),
}


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (act, expected) in CASES.items():
        yield Case(FAMILY, name, act, expected)
