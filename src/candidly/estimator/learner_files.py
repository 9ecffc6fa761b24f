"""Read and write fitted scikit-learn classifiers with skops, which stores arrays and settings and runs no code.

Only the types in `SAVED` can be saved, in pipelines after the scalers in `_SCALERS`, too. A file may be untrusted: its
size is checked before it is read, its types before they are created, and all numbers that compiled code of scikit-learn
uses as addresses before they are used.
"""

import hashlib
import importlib.util
import io
import math
import warnings
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from torch import Tensor

from candidly.candidates.labels import class_names
from candidly.checks.limits import check_bytes
from candidly.engine.memory import MOST_RUNS
from candidly.estimator.learners import Learners
from candidly.messages import warn
from candidly.store.validation import count, instance, list_of, record, require, text

FILE = "learners.skops"
"""Name of the file with the classifiers, beside that of the tensors."""

SAVED = (ExtraTreesClassifier, RandomForestClassifier, HistGradientBoostingClassifier, LogisticRegression)
"""Types of classifiers that can be saved."""

_SCALERS = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)
_FORESTS = (ExtraTreesClassifier, RandomForestClassifier)
_TREES = (ExtraTreeClassifier, DecisionTreeClassifier)
_LEAF = -1
_LOSSES = ("CyHalfBinomialLoss", "CyHalfMultinomialLoss")
# What skops does not create unless it is listed; all but the first two are known to newer versions of it.
_BOOSTING = "sklearn.ensemble._hist_gradient_boosting"
_TRUSTED = [
    *("sklearn.tree._tree.Tree", f"{_BOOSTING}.predictor.TreePredictor", f"{_BOOSTING}.binning._BinMapper"),
    *(f"sklearn._loss.link.{name}" for name in ("Interval", "LogitLink", "MultinomialLogit")),
    *(f"sklearn._loss.loss.{name}" for name in ("HalfBinomialLoss", "HalfMultinomialLoss")),
    *(f"{place}.{name}" for place in ("_loss", "sklearn._loss._loss") for name in _LOSSES),
]
# What skops and scikit-learn raise for damaged files, besides ValueError.
_ERRORS = (
    *(zipfile.BadZipFile, ArithmeticError, AttributeError, EOFError, ImportError, LookupError, MemoryError),
    *(RuntimeError, TypeError),
)
_AGAIN = "restore a copy or save the model again"
_FACTS = record(
    {
        "rows": list_of(count(1), 1, MOST_RUNS),
        "classes": list_of(instance(str, int, float), 1),
        "shape": list_of(count(1), 1, 3),
        "sha256": text,
        "scikit-learn": text,
    }
)


def to_parts(learners: Learners) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, bytes]]:
    """Return everything that makes up the learners: tensors by name, facts in JSON types, and files by name.

    Raises
    ------
    ValueError
        If the type of the base is not in `SAVED`.
    ModuleNotFoundError
        If skops is not installed.
    """
    _check_type(learners.base)
    require_skops()
    import skops.io

    content = {"base": learners.base, "estimators": list(learners.estimators)}
    data = skops.io.dumps(content, compression=zipfile.ZIP_DEFLATED)
    tensors = {f"history.{name}": torch.tensor(values) for name, values in learners.history.items()}
    facts = {
        "learners": {
            "rows": list(learners.rows),
            "classes": list(learners.classes),
            "shape": list(learners.shape),
            "sha256": hashlib.sha256(data).hexdigest(),
            "scikit-learn": sklearn.__version__,
        }
    }
    return tensors, facts, {FILE: data}


def of_parts(tensors: Mapping[str, Tensor], facts: Any, data: bytes) -> Learners:
    """Return learners made of what `to_parts` returned; `facts` are those under "learners".

    Raises
    ------
    ValueError
        If they are not the parts of learners, or need types that are not allowed.
    """
    require_skops()
    try:
        _FACTS(facts, "the facts about learners")
        require(hashlib.sha256(data).hexdigest() == facts["sha256"], "the checksum", facts["sha256"])
        base, estimators = _load(data, facts["scikit-learn"])
        classes, shape = class_names(facts["classes"]), tuple(facts["shape"])
        require(len(estimators) == len(facts["rows"]), "the number of learners", len(estimators))
        for estimator in estimators:
            _check_fitted(estimator, math.prod(shape), len(classes))
        history = {name.removeprefix("history."): value.cpu().numpy() for name, value in tensors.items()}
        require("loss" in history, "the names of the history", list(history))
        for name, values in history.items():
            good = values.dtype == np.float64 and values.ndim == 2 and values.shape[1] == len(estimators)
            require(good, f"the history of {name}", values.shape)
    except (ValueError, *_ERRORS) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"the learners cannot be read ({reason}); {_AGAIN}") from None
    return Learners(base, tuple(estimators), tuple(facts["rows"]), classes, shape, history)


def require_skops() -> None:
    """Raise ModuleNotFoundError if skops is not installed."""
    if importlib.util.find_spec("skops") is None:
        raise ModuleNotFoundError(
            "models with a scikit-learn base are saved and loaded with skops, which is not installed; run "
            "`pip install 'candidly[skops]'`"
        )


def _load(data: bytes, version: str) -> tuple[Any, list[Any]]:
    """Return the base and the fitted classifiers in a file of skops, without checking the latter."""
    import skops.io

    if version != sklearn.__version__:
        warn(
            f"this model was saved with scikit-learn {version} and is loaded with {sklearn.__version__}; predictions "
            f"may differ. Install scikit-learn {version}, or train the model again"
        )
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        check_bytes(FILE, sum(entry.file_size for entry in archive.infolist()), len(data))
    unknown = sorted(set(skops.io.get_untrusted_types(data=data)) - set(_TRUSTED))
    require(not unknown, "a type in it", unknown[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)  # the warning above says so
        found = skops.io.loads(data, trusted=_TRUSTED)
    require(isinstance(found, dict) and found.keys() == {"base", "estimators"}, "its content", type(found))
    _check_type(found["base"])
    require(isinstance(found["estimators"], list), "the list of learners", type(found["estimators"]))
    return found["base"], found["estimators"]


def _check_type(estimator: Any) -> None:
    """Raise ValueError unless a classifier is of a type that can be saved."""
    steps = [step for _, step in estimator.steps] if type(estimator) is Pipeline else [estimator]
    allowed = [type(steps[-1]) in SAVED, *(type(step) in _SCALERS for step in steps[:-1])] if steps else [False]
    if not all(allowed):
        wrong = type(steps[allowed[1:].index(False)] if allowed and allowed[0] else steps[-1]).__name__
        names = ", ".join(kind.__name__ for kind in SAVED)
        raise ValueError(
            f"a model with a base of type {wrong} cannot be saved; use one of {names}, or a pipeline of scalers and "
            "one of these"
        )


def _check_fitted(estimator: Any, width: int, num_classes: int) -> None:
    """Raise ValueError unless a fitted classifier predicts rows of this width, and refers to no memory outside."""
    if type(estimator) is not DummyClassifier:
        _check_type(estimator)
    if type(estimator) is Pipeline:
        for _, step in estimator.steps:
            require(getattr(step, "n_features_in_", None) == width, "the number of features", type(step).__name__)
        estimator = estimator.steps[-1][1]
    name = type(estimator).__name__
    if type(estimator) is not DummyClassifier:
        require(getattr(estimator, "n_features_in_", None) == width, "the number of features", name)
    labels: Any = getattr(estimator, "classes_", None)
    good = isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind == "i" and labels.size > 0
    require(good and set(labels.tolist()) <= set(range(num_classes)), f"the classes of {name}", labels)
    require(len(np.unique(labels)) == len(labels), f"the classes of {name}", labels)
    if type(estimator) in _FORESTS:
        trees = estimator.estimators_
        require(isinstance(trees, list) and len(trees) > 0, "the trees", type(trees))
        for one in trees:
            require(type(one) in _TREES, "a tree", type(one))
            _check_tree(one.tree_, width, len(labels))
    elif type(estimator) is HistGradientBoostingClassifier:
        for iteration in estimator._predictors:
            require(len(iteration) == estimator.n_trees_per_iteration_, "the number of trees", len(iteration))
            for predictor in iteration:
                _check_nodes(predictor.nodes, width)


def _check_tree(tree: Any, width: int, classes: int) -> None:
    """Raise ValueError if a tree of a forest has nodes that point backwards or outside of its arrays."""
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    inner = left != _LEAF
    require(tree.n_features == width and tree.node_count == len(left) > 0, "the size of a tree", tree.n_features)
    require(tree.value.shape == (len(left), 1, classes), "the values of a tree", tree.value.shape)
    _check_children(inner, left, right, feature, width)


def _check_nodes(nodes: NDArray[Any], width: int) -> None:
    """Raise ValueError if a tree of gradient boosting has nodes that point backwards or outside of its array."""
    fields = {"left", "right", "feature_idx", "is_leaf", "is_categorical"}
    good = isinstance(nodes, np.ndarray) and nodes.ndim == 1 and len(nodes) and fields <= set(nodes.dtype.names or ())
    require(bool(good), "the nodes of a tree", type(nodes))
    require(not nodes["is_categorical"].any(), "the categories of a tree", True)  # encoded columns are numbers
    inner = nodes["is_leaf"] == 0
    _check_children(inner, nodes["left"].astype(np.int64), nodes["right"].astype(np.int64), nodes["feature_idx"], width)


def _check_children(
    inner: NDArray[np.bool_], left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], width: int
) -> None:
    place = np.arange(len(inner))[inner]
    for child in (left[inner], right[inner]):
        require(bool(((child > place) & (child < len(inner))).all()), "a child of a node", "outside of the tree")
    split = feature[inner]
    require(bool(((split >= 0) & (split < width)).all()), "the feature of a node", "not a column")
