"""Learners: scikit-learn classifiers in place of networks, fitted to label weights that are estimated out of fold.

A scikit-learn classifier learns from labels, not from candidate sets. So each row is given weights q on its candidates,
and the classifier is fitted to all candidates with these weights. They start equal and are estimated again in rounds.
For the learner of fold k, with T the training rows of that fold:

1. Divide T into `PARTS` parts at random; rows that must be held out together are in the same part.
2. Fit the base to each part's complement, and predict the part: p (|T|, C).
3. Set q to norm_S(p / π^τ), where π are the mean weights of the classes and τ is `PRIOR_POWER`, and repeat from 1.
4. After the last round, fit the base to T with the weights q: the learner.

A frequent class is a likely label, and often also a frequent wrong candidate. With τ = 0, classifiers that average over
similar rows, as trees do, give it too much weight: with candidates such as "all that is in the picture", the candidate
set already says how likely a frequent class is, and p counts it twice. Each round would add to it. With τ = 1, all
candidates of a row count as equally likely before its features are seen, which is wrong if wrong candidates are equally
frequent. See docs/evidence/bases.md.

The folds are nested: the rows of fold k are in no part, so neither their features nor their candidates influence the
learner that scores them. One division for all folds would need as many fits of the same size and leak: the weights of
the training rows would come from classifiers that were fitted to the candidates of the held-out rows.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor
from tqdm import tqdm

from candidly.candidates import Candidates
from candidly.checks import arguments
from candidly.checks.machine import Need
from candidly.engine.memory import FEWER_RUNS, MOST_RUNS, require_memory
from candidly.estimator.folds import Plan, content

PARTS = 2
"""Number of parts that the training rows of a learner are divided into, in every round."""

PRIOR_POWER = 0.5
"""Power of the class frequencies that label weights are divided by."""

_NEGLIGIBLE = 1e-3  # weights below this fraction of the row's largest are left out
_ROWS = 4096  # rows to predict at a time


@dataclass(frozen=True, eq=False)
class Learners:
    """Fitted scikit-learn classifiers, one per run: run r is member r // folds without fold r % folds.

    Attributes
    ----------
    base : estimator
        An unfitted copy of the classifier that was passed.
    estimators : tuple of estimator
        The fitted classifiers. Their classes are numbers, from 0 to C - 1; a class without weight is missing.
    rows : tuple of int
        Number of training rows of each.
    classes : tuple
        Class names.
    shape : tuple of int
        Shape of a row of encoded features.
    history : dict of arrays (rounds, R)
        Read-only. "loss": the mean of -log Σ_{j∈S} p_j over the training rows, where p are the probabilities by a
        classifier that was not fitted to the row. "covering_rate": the fraction of rows where the most probable class
        is a candidate.
    """

    base: Any
    estimators: tuple[Any, ...]
    rows: tuple[int, ...]
    classes: tuple[Any, ...]
    shape: tuple[int, ...]
    history: Mapping[str, NDArray[np.float64]]

    def __post_init__(self) -> None:
        for values in self.history.values():
            values.setflags(write=False)

    @property
    def runs(self) -> int:
        """Number of learners."""
        return len(self.estimators)

    @property
    def device(self) -> torch.device:
        """Where the learners predict: the CPU."""
        return torch.device("cpu")

    def to(self, device: str | torch.device) -> "Learners":
        """Return the learners themselves: they always predict on the CPU."""
        return self

    def predict_blocks(self, X: NDArray[Any], index: Tensor | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of rows with each learner's class probabilities, (R, b, C) in float64.

        With `index` (R, M), the rows of X that each learner predicts, blocks are slices of M.
        """
        number = len(X) if index is None else index.shape[1]
        for start in range(0, number, _ROWS):
            block = slice(start, min(start + _ROWS, number))
            asked: list[Any] = [block] * self.runs if index is None else list(index[:, block].numpy())
            learners = zip(self.estimators, self.rows, asked, strict=True)
            p = [probabilities(one, as_matrix(X[rows]), len(self.classes), count) for one, count, rows in learners]
            yield block, torch.from_numpy(np.stack(p))


BASES: dict[str, Callable[[], Any]] = {
    "extra-trees": ExtraTreesClassifier,
    "hist-gradient-boosting": lambda: HistGradientBoostingClassifier(max_iter=30, early_stopping=False),
    "logistic-regression": lambda: LogisticRegression(C=0.1, max_iter=1000),
}
"""Names of classifiers, and functions that return them with settings that suit label weights."""


def find_base(base: Any) -> Any:
    """Return a classifier by its name in `BASES`; an instance is returned as it is.

    Raises
    ------
    ValueError
        If it is not a scikit-learn classifier that predicts probabilities.

    Examples
    --------
    >>> find_base("logistic-regression")
    LogisticRegression(C=0.1, max_iter=1000)
    """
    if isinstance(base, str):
        if base not in BASES:
            raise ValueError(f"unknown base {base!r}; use one of {', '.join(BASES)}, or an instance")
        return BASES[base]()
    if isinstance(base, type):
        raise ValueError(f"base is the class {base.__name__}; pass an instance, such as {base.__name__}()")
    if not all(hasattr(base, name) for name in ("fit", "get_params", "set_params")):
        wanted = f"a scikit-learn classifier, None, or one of {', '.join(BASES)}"
        raise ValueError(f"base is {arguments.shown(base)}; it must be {wanted}")
    if not hasattr(base, "predict_proba"):
        raise ValueError(
            f"base is {arguments.shown(base)}, which has no predict_proba; pass a classifier that predicts "
            "probabilities, such as HistGradientBoostingClassifier(), or wrap it in CalibratedClassifierCV"
        )
    return base


def train(
    X: NDArray[Any],
    S: Candidates,
    plan: Plan,
    weights: Tensor | None,
    seed: np.random.SeedSequence,
    base: Any,
    *,
    rounds: int,
    members: int,
    progress: bool,
) -> Learners:
    """Fit `members` learners for each fold.

    Parameters
    ----------
    X, S, plan, weights
        As in `candidly.estimator.crossfit.train`.
    seed : numpy.random.SeedSequence
        Determines parts and every parameter of the base that is named random_state.
    base, rounds, members
        As in `candidly.PartialLabelClassifier`.
    progress : bool
        Whether to show a bar.
    """
    runs = members * plan.folds
    if runs > MOST_RUNS:
        raise ValueError(f"{runs} learners would be fitted, and at most {MOST_RUNS} can be; {FEWER_RUNS}")
    index = plan.index
    sets = S.matrix[index]
    # A fit copies the row of each candidate; scikit-learn needs at least as much again.
    copied = Need(2 * 4 * int(sets.sum()) * int(np.prod(X.shape[1:])), "use fewer rows, columns or candidates")
    require_memory({f"{len(index)} rows, repeated for each of their candidates": copied})
    features, unit = as_matrix(X)[index], find_units(X, plan)
    initial = initial_weights(sets, None if weights is None else weights[index].numpy())
    estimators, histories = [], []
    with tqdm(total=runs * (rounds * PARTS + 1), desc="training", unit="fit", disable=not progress) as bar:
        for run, stream in enumerate(seed.spawn(runs)):
            rows = plan.trained(run % plan.folds)
            fitting = _Fitting(base, np.random.default_rng(stream), bar)
            q, history = reweigh(features[rows], sets[rows], initial[rows], unit[rows], rounds, fitting)
            estimators.append(fitting.fit(features[rows], q, last=True))
            histories.append(history)
    counts = tuple(len(plan.trained(run % plan.folds)) for run in range(runs))
    found = {name: np.array([one[name] for one in histories]).T for name in histories[0]}
    return Learners(clone(base), tuple(estimators), counts, S.classes, tuple(X.shape[1:]), found)


def reweigh(
    X: NDArray[Any],
    S: NDArray[np.bool_],
    q: NDArray[np.float64],
    unit: NDArray[np.intp],
    rounds: int,
    fitting: "_Fitting",
) -> tuple[NDArray[np.float64], dict[str, list[float]]]:
    """Return the label weights of rows after several rounds, and the history of each round."""
    history: dict[str, list[float]] = {"loss": [], "covering_rate": []}
    units, unit = np.unique(unit, return_inverse=True)
    for _ in range(rounds):
        part = fitting.rng.permutation(len(units))[unit] % PARTS
        p = np.full(S.shape, 1 / S.shape[1])
        for k in range(PARTS):
            out, rest = part == k, part != k
            if out.any() and rest.any():
                estimator = fitting.fit(X[rest], q[rest])
                p[out] = probabilities(estimator, X[out], S.shape[1], int(rest.sum()))
        frequency = np.maximum(q.sum(0), 0.5) / len(q)
        q = np.where(S, p / frequency**PRIOR_POWER, 0)
        q /= q.sum(1, keepdims=True)
        history["loss"].append(float(-np.log(np.where(S, p, 0).sum(1).clip(max=1)).mean()))
        history["covering_rate"].append(float(S[np.arange(len(S)), p.argmax(1)].mean()))
    return q, history


class _Fitting:
    """Fits copies of the base to label weights.

    Parameters
    ----------
    base : estimator
        It is copied, never changed.
    rng : numpy.random.Generator
        Gives the seed of every fit, and draws labels where the base takes no weights.
    bar : tqdm
        Advanced by 1 after each fit.
    """

    def __init__(self, base: Any, rng: np.random.Generator, bar: Any) -> None:
        self.base, self.rng, self.bar = base, rng, bar
        self.weighted = weight_parameter(base)

    def fit(self, X: NDArray[Any], q: NDArray[np.float64], last: bool = False) -> Any:
        """Return a copy of the base, fitted to rows with the label weights q.

        If the base takes sample_weight, every row is repeated for each of its candidates, with their weights.
        Otherwise a label is drawn for each row by its weights or, for the last fit, the label with the largest weight
        is taken.
        """
        seed = int(self.rng.integers(2**31 - 1))
        shares = np.where(q >= _NEGLIGIBLE * q.max(1, keepdims=True), q, 0)
        shares /= shares.sum(1, keepdims=True)
        if self.weighted is not None:
            rows, labels = np.nonzero(shares)
            estimator = self._fit(X[rows], labels, {self.weighted: shares[rows, labels]}, seed)
        else:
            noise = self.rng.random((len(X), 1))
            drawn = (shares.cumsum(1) < noise).sum(1).clip(max=q.shape[1] - 1)
            labels = shares.argmax(1) if last else drawn
            estimator = self._fit(X, labels, {}, seed)
        self.bar.update()
        return estimator

    def _fit(self, X: NDArray[Any], labels: NDArray[np.intp], weights: dict[str, Any], seed: int) -> Any:
        if len(X) and (labels == labels[0]).all():  # many classifiers refuse a single class
            return DummyClassifier(strategy="prior").fit(X, labels)
        estimator = clone(self.base)
        seeds = [name for name in sorted(estimator.get_params()) if name.rpartition("__")[2] == "random_state"]
        estimator.set_params(**{name: (seed + k) % (2**31 - 1) for k, name in enumerate(seeds)})
        try:
            with sklearn.config_context(enable_metadata_routing=False):
                return estimator.fit(X, labels, **weights)
        except (ValueError, TypeError) as error:
            raise ValueError(f"base cannot be fitted: {error}; choose other settings of {_name(self.base)}") from error


def weight_parameter(base: Any) -> str | None:
    """Return the name by which `base.fit` takes weights of rows; None if it takes none.

    The last step of a pipeline takes them.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.preprocessing import StandardScaler
    >>> weight_parameter(Pipeline([("scale", StandardScaler()), ("learn", LogisticRegression())]))
    'learn__sample_weight'
    >>> weight_parameter(KNeighborsClassifier()) is None
    True
    """
    if isinstance(base, Pipeline):
        name, last = base.steps[-1]
        inner = weight_parameter(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(base, "sample_weight") else None


def probabilities(estimator: Any, X: NDArray[Any], num_classes: int, rows: int) -> NDArray[np.float64]:
    """Return the class probabilities (n, C) by a classifier that was fitted to a number of rows.

    Classes that it was not fitted to are impossible, and trees find many classes impossible. No number of rows
    justifies that, so the probabilities are those after one more row that is equally likely of every class:
    (rows·p + 1/C) / (rows + 1).
    """
    found = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    labels = np.asarray(estimator.classes_, dtype=np.intp)
    if found.shape != (len(X), len(labels)) or not (np.isfinite(found).all() and (found >= 0).all()):
        raise ValueError(
            f"base, {_name(estimator)}, returns probabilities that are not finite numbers from 0, one for each row and "
            "class; choose other settings or another classifier"
        )
    p = np.zeros((len(X), num_classes))
    p[:, labels] = found
    total = p.sum(1, keepdims=True)
    p = np.where(total > 0, p / np.where(total > 0, total, 1), 1 / num_classes)
    return (rows * p + 1 / num_classes) / (rows + 1)


def as_matrix(X: NDArray[Any]) -> NDArray[np.float32]:
    """Return encoded features as a matrix (n, d); images are flattened, and bytes become numbers from 0 to 1."""
    flat = X.reshape(len(X), -1)
    return flat.astype(np.float32) / np.float32(255) if X.dtype == np.uint8 else flat


def find_units(X: NDArray[Any], plan: Plan) -> NDArray[np.intp]:
    """Return a number for each training row; rows with the same number are held out together."""
    if plan.groups is not None:
        return plan.groups[plan.index]
    return np.unique(content(X[plan.index]), return_inverse=True)[1]


def initial_weights(S: NDArray[np.bool_], weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return label weights to start with: proportional to `weights`, or equal where these are missing or all 0."""
    equal = S / S.sum(1, keepdims=True)
    if weights is None:
        return equal
    inside = np.where(S, weights, 0)
    total = inside.sum(1, keepdims=True)
    return np.where(total > 0, inside / np.where(total > 0, total, 1), equal)


def _name(estimator: Any) -> str:
    return type(estimator).__name__
