"""The scikit-learn face: candidate sets in, class names out. No algorithm lives here."""

import dataclasses
import numbers
import operator
import time
import warnings
from collections.abc import Hashable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from tqdm import tqdm

from candidly import persistence, scoring, targets
from candidly.calibration import SCORES, Calibration
from candidly.candidates import Candidates
from candidly.cleaning import Cleaner, find_cleaner
from candidly.engine import fit
from candidly.features import Features
from candidly.findings import Findings
from candidly.intake import count_rows
from candidly.methods import Method, find_method
from candidly.model import Model
from candidly.nets import Factory
from candidly.plan import Plan, count_copies, make_plan
from candidly.problem import Problem, check_weights
from candidly.recipe import Recipe
from candidly.summary import summarise

_BLOCK = (
    64  # rows to predict at a time, always: a product's last bits depend on its size, so a row's would on the others
)


class PartialLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that learns from ambiguous labels: rows with several candidate classes, one of them true.

    Networks are trained together and averaged. A training row's own results (`transduction_`, `confidence_`,
    `candidates_`) come from those that did not train on it, where there are such. The defaults were measured
    (docs/defaults.md).

    Parameters
    ----------
    method : str or Method
        How to learn from candidate sets: "proden", "rc", "cc", "cavl", "pop", "valen", "crosel", or an instance.
    cleaner : {"conformal", "clsp"}, Cleaner or None
        What prunes candidate sets during training.
    net : {"mlp", "linear", "resnet9"} or callable
        The network, or a function that returns a new torch module.
    members : int
        Networks to train on each part of the rows and to average.
    folds : int
        With 2 or more, as many networks per member, each without one part of the rows. With 1, every network trains on
        all rows but a fraction.
    alpha : float
        Level of `candidates_`: the candidates of a training row with a p-value of at most `alpha` are removed.
    max_epochs : int or None
        Passes over the training rows; None is 50, and 25 from 2000 rows on.
    lr, weight_decay : float
        Adam's; the learning rate is the maximum of a cycle.
    batch_size : int or None
        None is a power of two near a 64th of the rows, from 16 to 256.
    early_stopping, n_iter_no_change : bool, int
        Whether to stop when the covering rate of held-out rows, the share whose most probable class is a candidate,
        has not risen for so many epochs, and to keep the networks that had the best one.
    validation_fraction : float
        With ``folds=1``, the share of rows that is held out, for early stopping and `predict_set`; 0 is none.
    classes : list, optional
        All class names, in order; by default those found in y, sorted.
    separator : str, optional
        What stands between the names where y is text, as in ``cat|dog``; by default text is one name.
    max_categories : int
        How many categories of a text column of X get a column of their own.
    device : str
        "auto", "cpu" or "cuda".
    random_state : int, RandomState or None
        Decides folds, first weights and the order of rows.
    verbose : int
        Whether to show a progress bar.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Class names.
    candidates_ : Candidates
        The training rows' candidates, cleaned. Where nothing was held out, nothing is removed.
    transduction_ : ndarray, shape (n,)
        The most probable candidate of each training row, by name.
    confidence_ : ndarray, shape (n,)
        Its probability.
    p_values_ : ndarray, shape (n, C)
        P-value of each class of each training row, against held-out rows.
    history_ : dict of ndarray, shape (epochs, networks)
        The record of every epoch: loss, mean_candidates, share_changed and, where they exist, covering_rate, alpha and
        threshold.
    features_, model_ : Features, Model
        What becomes of the columns of X (``features_.describe()`` says it in words), and the networks.
    n_features_in_, feature_names_in_ : int, ndarray
        Number of columns of X and, if it is a table, their names.

    Examples
    --------
    >>> X = [[0.0], [0.1], [0.2], [0.8], [0.9], [1.0]]
    >>> y = [["cat"], ["cat", "dog"], ["cat"], ["dog"], ["cat", "dog"], ["dog"]]
    >>> classifier = PartialLabelClassifier(folds=2, random_state=0).fit(X, y)
    >>> classifier.predict([[0.05], [0.95]]).tolist()
    ['cat', 'dog']
    """

    def __init__(
        self,
        method: str | Method = "proden",
        cleaner: str | Cleaner | None = "conformal",
        *,
        net: str | Factory = "mlp",
        members: int = 1,
        folds: int = 5,
        alpha: float = 0.05,
        max_epochs: int | None = None,
        lr: float = 0.01,
        batch_size: int | None = None,
        weight_decay: float = 1e-4,
        early_stopping: bool = False,
        n_iter_no_change: int = 10,
        validation_fraction: float = 0.1,
        classes: Iterable[Hashable] | None = None,
        separator: str | None = None,
        max_categories: int = 50,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.cleaner = cleaner
        self.net = net
        self.members = members
        self.folds = folds
        self.alpha = alpha
        self.max_epochs = max_epochs
        self.lr = lr
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.n_iter_no_change = n_iter_no_change
        self.validation_fraction = validation_fraction
        self.classes = classes
        self.separator = separator
        self.max_categories = max_categories
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, weights: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X : array, sparse matrix, or table of pandas, polars or pyarrow; shape (n, d)
            Features. Numbers are standardised, categories become columns, missing values the mean and an indicator.
        y : matrix, list, or column of pandas, polars or pyarrow
            Candidates: a boolean matrix (n, C), dense or sparse; lists or sets of class names; text with a `separator`;
            or plain labels, each its own single candidate. A row with all classes is unlabelled.
        sample_weight : array, shape (n,), optional
            Weights of rows, by which they train more often: a weight of 2 is the row twice. Weights that are not whole
            numbers are rounded by chance after dividing by their mean.
        weights : array, shape (n, C), optional
            How much to trust each candidate to start with, such as vote counts.
        """
        begun = time.monotonic()
        self._check()
        seeds = np.random.SeedSequence(check_random_state(self.random_state).randint(2**31)).spawn(3)
        n = count_rows(X)
        if n < 2:
            raise ValueError(f"X has n_samples={n}; give at least two rows to learn from")
        S = targets.read(y, n, self.classes, self.separator)
        weights = None if weights is None else check_weights(weights, S.matrix.shape)
        copies = count_copies(sample_weight, n, np.random.default_rng(seeds[0]))
        rows = None if sample_weight is None else np.repeat(np.arange(n), copies)
        features = Features.fit(X, rows=rows, max_categories=self.max_categories)
        with nullcontext() if rows is None else warnings.catch_warnings(action="ignore"):  # of rows without weight
            encoded = features.transform(X)
        rng = np.random.default_rng(seeds[1])
        plan = make_plan(encoded, S.matrix, copies, self.folds, self.validation_fraction, rng)
        self.model_ = self._train(encoded, S, plan, weights, seeds[2])
        self._note_features(features)
        self.classes_ = persistence.as_array(S.classes)
        self.trained_on_ = persistence.fingerprint(encoded, S)
        self.history_ = dict(self.model_.history)
        self.n_iter_ = len(self.history_["loss"])
        self._score_rows(encoded, S, plan)
        self._seconds = time.monotonic() - begun
        return self

    def _check(self) -> None:
        """Check what nobody else checks before training."""
        find_method(self.method), find_cleaner(self.cleaner)
        for name in ("members", "folds", "max_epochs", "n_iter_no_change"):
            value = getattr(self, name)
            if value is None and name == "max_epochs":
                continue
            if not isinstance(value, numbers.Integral) or value < 1:
                raise ValueError(f"{name} is {value!r}; give a whole number of at least 1")
        _check_share("alpha", self.alpha)
        if self.validation_fraction != 0:
            _check_share("validation_fraction", self.validation_fraction)
        if self.early_stopping and self.folds == 1 and not self.validation_fraction:
            raise ValueError("early_stopping watches held-out rows, and there are none; set validation_fraction=0.1")

    def _note_features(self, features: Features) -> None:
        self.features_ = features
        self.n_features_in_ = self.features_.n_features_in_
        if self.features_.names_ is not None:
            self.feature_names_in_ = np.array(self.features_.names_, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _train(
        self, X: NDArray[Any], S: Candidates, plan: Plan, weights: Tensor | None, seed: np.random.SeedSequence
    ) -> Model:
        """Train `members` networks for each fold: run r is member r // folds without fold r % folds."""
        parts = [k for _ in range(self.members) for k in range(plan.folds)]
        held_out = [plan.held_out(k) for k in parts]
        watch = bool(len(held_out[0]))
        # Standardised numbers become (x + 4) / 8, mostly between 0 and 1: networks overfit less (docs/defaults.md).
        problem = Problem.of(
            X[plan.index],
            Candidates(S.matrix[plan.index], S.classes),
            rows=[plan.trained(k) for k in parts],
            seeds=seed.generate_state(len(parts)).tolist(),
            shift=0.0 if X.dtype == np.uint8 else -4.0,
            scale=1 / 255 if X.dtype == np.uint8 else 1 / 8,
            weights=None if weights is None else weights[plan.index],
        )
        usual = 2 ** int(np.log2(len(plan.index) / 64).round().clip(4, 8))
        batch_size = usual if self.batch_size is None else operator.index(self.batch_size)
        epochs = (50 if len(plan.index) < 2000 else 25) if self.max_epochs is None else int(self.max_epochs)
        recipe = Recipe("custom", epochs, batch_size, max_lr=self.lr, weight_decay=self.weight_decay)
        method, cleaner = find_method(self.method), find_cleaner(self.cleaner)
        model = fit(
            problem,
            method,
            None if cleaner is None else cleaner.take(plan.index),
            recipe,
            net=self.net,
            device=self.device,
            progress=bool(self.verbose),
            held_out=held_out if watch else None,
            patience=int(self.n_iter_no_change) if self.early_stopping else None,
        )
        lean = dataclasses.replace(model, kept=model.kept[:, :0])
        rebuilt = Model.of_parts(*lean.parts(), net=self.net if callable(self.net) else None, method=method)
        return rebuilt.to(model.problem.X.device)  # without what the method stores per row

    def _score_rows(self, X: NDArray[Any], S: Candidates, plan: Plan) -> None:
        """Score every row with networks that did not train on it, if there are such, and clean its candidates."""
        index, held_in = torch.from_numpy(plan.index), torch.from_numpy(plan.fold)
        fold, member = torch.from_numpy(plan.row_fold).clamp_min(0), torch.zeros(len(S), dtype=torch.bool)
        member[index] = held_in >= 0
        p = torch.empty(len(S), len(S.classes))
        for rows, some in self._probabilities(X, plan.folds):
            p[rows] = some[fold[rows], torch.arange(some.shape[1])].float()
        if not p.isfinite().all():
            raise ValueError("training diverged, so that probabilities are not finite; use a smaller lr")
        sets = torch.from_numpy(S.matrix.copy())
        self.calibration_ = Calibration.of(p[index], sets[index], held_in, plan.folds)
        p_values = self.calibration_.own_p_values(p, sets, fold, member)
        kept = S.matrix & (p_values.numpy() > float(self.alpha))
        kept = np.where(kept.any(1, keepdims=True), kept, S.matrix)
        confidence, best = p.masked_fill(~sets, -1).max(1)
        self.p_values_ = p_values.numpy()
        self.candidates_ = Candidates(kept, S.classes)
        self.transduction_ = self.classes_[best.numpy()]
        self.confidence_ = confidence.numpy()
        self._original, self._top = S, tuple(part.numpy() for part in reversed(p.max(1)))

    def _probabilities(self, X: NDArray[Any], folds: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of rows with their probabilities by each fold's networks, (folds, b, C)."""
        size = _BLOCK if self.model_.problem.X.device.type == "cpu" else 64 * _BLOCK
        bar = {"unit": "block", "disable": not self.verbose, "delay": 2, "leave": False}
        for start in tqdm(range(0, len(X), size), "predicting", **bar):
            rows = slice(start, min(start + size, len(X)))
            block = X[np.arange(start, start + size).clip(max=len(X) - 1)]
            p = self.model_.predict(block)[:, : rows.stop - start].double()
            yield rows, p.unflatten(0, (-1, folds)).mean(0)

    def _by_fold(self, X: Any) -> Iterator[tuple[slice, Tensor]]:
        """Do the same for new rows."""
        check_is_fitted(self)
        encoded = self.features_.transform(X)
        return self._probabilities(encoded, len(self.calibration_.counts))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n, C), averaged over all networks."""
        p = np.concatenate([some.mean(0).numpy() for _, some in self._by_fold(X)])
        found: NDArray[np.float64] = p / p.sum(1, keepdims=True)
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, by name."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def predict_set(self, X: Any, alpha: float = 0.1, *, score: Literal["best", "worst"] = "best") -> NDArray[np.bool_]:
        """Return the classes of each row that held-out rows do not speak against, a boolean matrix (n, C).

        Split-conformal sets: a class is in the set if its p-value against the held-out rows' scores exceeds `alpha`. A
        set may be empty, where no class conforms.

        Parameters
        ----------
        X : array or table
            Rows.
        alpha : float
            Level, between 0 and 1; the sets are nested.
        score : {"best", "worst"}
            What a held-out row's score is: the probability of its most or of its least probable candidate.

        Notes
        -----
        Let training and new rows be exchangeable. If every held-out row has one candidate, the true one, or if `score`
        is "worst" and the true label is always a candidate, then with ``folds=1`` a set holds the true label with
        probability at least 1 − `alpha`, and with more folds at least about 1 − 2·`alpha`, as a rule about 1 − `alpha`
        (`candidly.conformal.cross_p_values`); a little less with early stopping, which the same rows decide. With
        "best" and several candidates there is no guarantee: where the most probable candidate is wrong, sets are too
        small. With "worst" they are large.
        """
        _check_share("alpha", alpha)
        if score not in SCORES:
            raise ValueError(f"score is {score!r}; use one of {', '.join(SCORES)}")
        blocks = self._by_fold(X)
        held_out = int(self.calibration_.counts.sum())
        if not held_out:
            raise ValueError(
                "no rows were held out to calibrate on; set folds=5, or validation_fraction=0.2 with folds=1, and fit"
            )
        if 1 / (held_out + 1) >= alpha:
            warnings.warn(
                f"{held_out} held-out rows are too few for alpha = {alpha}: every set holds all classes; use a larger "
                "alpha or hold out more rows",
                stacklevel=2,
            )
        sets = [(self.calibration_.p_values(some.float(), score) > alpha).numpy() for _, some in blocks]
        return np.concatenate(sets)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the covering rate: the share of rows whose predicted class is among their candidates in y.

        With one label per row that is the accuracy. A class that `fit` did not see is never predicted.
        """
        return scoring.covering_rate(self, X, y, sample_weight)

    def findings(self, title: str = "", ids: Any = None, y_true: Any = None) -> Findings:
        """Return what the report shows of the training rows, for ``candidly.report.write(findings, path)``.

        Parameters
        ----------
        title : str
            What was cleaned.
        ids : sequence, optional
            Names of the rows.
        y_true : sequence, optional
            True labels where they are known; None, and whatever is no class, elsewhere.
        """
        check_is_fitted(self)
        return summarise(self, title, ids, y_true)

    def save(self, folder: str | Path, findings: Findings | None = None) -> None:
        """Write the model to a folder: `model.safetensors`, `model.json` and, where given, `findings.json`.

        What belongs to training rows (`candidates_`, `transduction_`, `confidence_`, `p_values_`) is not saved.
        """
        check_is_fitted(self)
        persistence.save(self, folder, findings)

    @classmethod
    def load(cls, folder: str | Path, net: Factory | None = None, method: Method | None = None) -> Self:
        """Read a model that `save` wrote, running no code from it; `net` and `method` where they were your own."""
        return persistence.load(cls, folder, net, method)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


def _check_share(name: str, value: Any) -> None:
    if not isinstance(value, int | float | np.number) or not 0 < value < 1:
        raise ValueError(f"{name} is {value!r}; it must lie between 0 and 1")
