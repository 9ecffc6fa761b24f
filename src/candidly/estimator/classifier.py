"""The scikit-learn face: candidate sets in, class names out. No algorithm lives here."""

import time
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from candidly import conformal
from candidly.candidates import Candidates
from candidly.cleaning import Cleaner
from candidly.cleaning.audit import ALPHAS, Audit, audit
from candidly.cleaning.budget import MIN_ROWS, Budget
from candidly.conformal.calibration import Calibration, Candidate, Kind, Rule, Score, check_share, read_levels
from candidly.engine.nets.build import Factory
from candidly.engine.problem import check_weights
from candidly.estimator import crossfit, scoring, targets
from candidly.estimator import saving as saving
from candidly.estimator.folds import Plan, count_copies, make_plan
from candidly.methods import Method
from candidly.tables.columns import count_rows
from candidly.tables.features import Features


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
        Level of `candidates_`: at most this share of the training rows are to lose their true label. It is met by
        estimates, which `audit` shows; docs/trust.md says what was measured, and when not to believe it.
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
        The training rows' candidates, cleaned by `budget_` at level `alpha`. Only rows that were held out are, so with
        ``folds=1`` few, and none without weight. A row's most probable candidate always stays.
    transduction_ : ndarray, shape (n,)
        The most probable candidate of each training row, by name.
    confidence_ : ndarray, shape (n,)
        Its probability.
    candidate_proba_ : ndarray, shape (n, C)
        Estimated probability that each candidate of a training row is the true one; 0 for other classes.
    budget_ : Budget or None
        What held-out rows say about such probabilities (`candidly.cleaning.budget.Budget`); None if there are fewer than 100.
    history_ : dict of ndarray, shape (epochs, networks)
        The record of every epoch: loss, mean_candidates, share_changed and, where they exist, covering_rate, alpha,
        threshold and estimated_lost.
    risk_curve_ : dict of ndarray, shape (points,)
        By falling confidence ("threshold"), the share of held-out rows that have it ("coverage") and an estimate of how
        many of them are errors ("risk"), which `predict` with `max_risk` goes by.
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
        crossfit.check(self)
        seeds = np.random.SeedSequence(check_random_state(self.random_state).randint(2**31)).spawn(4)
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
        recipe = crossfit.make_recipe(len(plan.index), self.max_epochs, self.batch_size, self.lr, self.weight_decay)
        chosen = {name: getattr(self, name) for name in ("method", "cleaner", "net", "members", "device")}
        patience = int(self.n_iter_no_change) if self.early_stopping else None
        self.model_ = crossfit.train(
            encoded, S, plan, weights, seeds[2], recipe, patience=patience, progress=bool(self.verbose), **chosen
        )
        self._note_features(features)
        self.classes_ = saving.as_array(S.classes)
        self.trained_on_ = saving.fingerprint(encoded, S)
        self.history_ = dict(self.model_.history)
        self.n_iter_ = len(self.history_["loss"])
        self._score_rows(encoded, S, plan, int(seeds[3].generate_state(1)[0]))
        self._seconds, self._fitted = time.monotonic() - begun, self.get_params(deep=False)
        return self

    def _note_features(self, features: Features) -> None:
        self.features_, self.n_features_in_ = features, features.n_features_in_
        if features.names_ is not None:
            self.feature_names_in_ = np.array(features.names_, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _score_rows(self, X: NDArray[Any], S: Candidates, plan: Plan, seed: int) -> None:
        """Score every row with networks that did not train on it, if there are such, and clean its candidates."""
        p = crossfit.out_of_fold(self.model_, X, plan, bool(self.verbose))
        tested, sets = torch.from_numpy(plan.tested()), torch.from_numpy(S.matrix.copy())
        log_p, kept = conformal.log(p), sets.clone()
        self.budget_ = Budget.of(log_p[tested], sets[tested]) if len(tested) >= MIN_ROWS else None
        if self.budget_ is not None:
            kept[tested] = self.budget_.keep(log_p[tested], sets[tested], float(self.alpha))
        T = 1.0 if self.budget_ is None else self.budget_.cautious
        fold = torch.from_numpy(plan.row_fold)[tested]
        self.calibration_ = Calibration.of(X[tested], p[tested], sets[tested], fold, plan.folds, seed, T)
        confidence, best = p.masked_fill(~sets, -1).max(1)
        self.candidate_proba_ = conformal.candidate_probabilities(log_p, sets, T).numpy()
        self.candidates_ = Candidates(kept.numpy(), S.classes)
        self.transduction_ = self.classes_[best.numpy()]
        self.confidence_ = confidence.numpy()
        self._original, self._log_p, self._tested = S, log_p, tested

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n, C), averaged over all networks."""
        check_is_fitted(self)
        folds = len(self.calibration_.counts)
        blocks = crossfit.probabilities(self.model_, self.features_.transform(X), folds, bool(self.verbose))
        p = np.concatenate([some.mean(0).numpy() for _, some in blocks])
        found: NDArray[np.float64] = p / p.sum(1, keepdims=True)
        return found

    def predict(self, X: Any, max_risk: float | None = None) -> NDArray[Any]:
        """Return the most probable class of each row, by name.

        Parameters
        ----------
        X : array or table
            Rows.
        max_risk : float, optional
            Abstain where it is too risky: the least confident rows get None instead of a name, so many that the
            estimated share of errors among the others is at most this, between 0 and 1.

        Notes
        -----
        The share is an estimate from candidates alone (`candidly.conformal.calibration.row_errors`), no guarantee. It is that of
        networks that did not train on a row; all together, as here, are less sure and as a rule more often right.
        """
        if max_risk is not None:
            check_share("max_risk", max_risk)
        p = self.predict_proba(X)
        found = self.classes_[p.argmax(1)]
        if max_risk is not None:
            found = found.astype(object)
            found[p.max(1) < self.calibration_.threshold(float(max_risk))] = None
        return found

    def predict_p(
        self, X: Any, *, kind: Kind = "cv+", score: Score = "lac", candidate: Candidate = "best", smooth: bool = False
    ) -> NDArray[np.float64]:
        """Return the p-value of each class of each row against held-out rows, shape (n, C).

        It is the share of held-out rows that conform to their candidates no better than this row to the class.

        Parameters
        ----------
        X : array or table
            Rows.
        kind : {"split", "cv+", "averaged"}
            Whose probabilities are compared with which rows. "split": those of the first fold's networks with the rows
            that these did not train on. "cv+": each fold's with the rows held out from it, counted together. With
            ``folds=1`` that is the same. "averaged": the mean over all networks with all held-out rows.
        score : {"lac", "aps"}
            How well a label conforms: its probability (M. Sadinle, J. Lei and L. Wasserman, *Least ambiguous set-valued
            classifiers with bounded error levels*, JASA 114, 2019), which gives the smallest sets if probabilities are
            right; or the mass of what is less probable, randomised (`candidly.conformal.aps`), whose sets adapt more to
            how hard a row is.
        candidate : {"best", "mean", "pooled", "worst", "singletons"}
            The score of a held-out row: that of its best candidate, their mean, each of them as a score of its own,
            that of its worst, or that of its only one, leaving rows with several out.
        smooth : bool
            Whether to break ties by chance, which makes p-values smaller, and the level exact where it holds.

        Notes
        -----
        `predict_set` keeps the classes with a p-value above α. Let training and new rows be exchangeable, hardly any of
        them have equal features (such rows are held out together), and every true label be a candidate. If every
        held-out row has one candidate, or with "worst", whose sets are large, or with "singletons" if rows with one
        candidate are exchangeable with all, a set holds the true label with probability

        - at least 1 − α with "split" (V. Vovk, A. Gammerman and G. Shafer, *Algorithmic Learning in a Random World*,
          2005; H. Papadopoulos et al., ECML 2002),
        - at least 1 − 2α − 2(K − 1)/(m + K) with "cv+", for m rows in K folds, and as a rule about 1 − α
          (`candidly.conformal.cross_p_values`; Y. Romano, M. Sesia and E. J. Candès, NeurIPS 2020).

        Nothing is guaranteed with "averaged", because no held-out row was scored by the mean of all networks, nor with
        "best" and "mean" for rows with several candidates: where the best one is wrong, sets are too small. "pooled"
        counts candidates, not rows (`candidly.conformal.pooled`). All this is a little less with `early_stopping`,
        which held-out rows decide, and by what they contribute to scaling the columns of X. Chance, in ties and "aps",
        comes from `random_state` and the row's content: a row has the same p-values everywhere.
        """
        return self._p_values(X, [Rule(kind, score, candidate, smooth)])[0]

    def predict_set(
        self,
        X: Any,
        alpha: float = 0.1,
        *,
        kind: Kind = "cv+",
        score: Score = "lac",
        candidate: Candidate = "best",
        smooth: bool = False,
    ) -> NDArray[np.bool_]:
        """Return the classes of each row that held-out rows do not speak against, a boolean matrix (n, C).

        They are ``predict_p(X, ...) > alpha``. A set may be empty, where no class conforms.

        Parameters
        ----------
        X : array or table
            Rows.
        alpha : float
            Level, between 0 and 1; the sets are nested.
        kind, score, candidate, smooth
            As in `predict_p`, which also says what is guaranteed.
        """
        check_share("alpha", alpha)
        found = self.predict_p(X, kind=kind, score=score, candidate=candidate, smooth=smooth)
        self.calibration_.check_level(float(alpha), Rule(kind, score, candidate, smooth))
        return found > float(alpha)

    def _p_values(self, X: Any, rules: Sequence[Rule]) -> list[NDArray[np.float64]]:
        """Return the p-values (n, C) by each of several rules, predicting once."""
        check_is_fitted(self)
        return crossfit.p_values(self.model_, self.calibration_, self.features_.transform(X), rules, bool(self.verbose))

    @property
    def risk_curve_(self) -> dict[str, NDArray[np.float64]]:
        """The estimated share of errors by confidence."""
        return dict(zip(("threshold", "coverage", "risk"), self.calibration_.risk.numpy(), strict=True))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the covering rate: the share of rows whose predicted class is among their candidates in y.

        With one label per row that is the accuracy. A class that `fit` did not see is never predicted.
        """
        return scoring.covering_rate(self, X, y, sample_weight)

    def audit(self, y_true: Any = None, alphas: Sequence[float] = ALPHAS) -> Audit:
        """Estimate what cleaning the training rows costs at several levels, from candidates alone.

        True labels, given where they are known and None elsewhere, only show the truth beside the estimates.
        """
        check_is_fitted(self)
        if not hasattr(self, "_original"):
            raise ValueError("a loaded model has no training rows to audit; fit one")
        levels, tested, original = read_levels(alphas), self._tested, self._original
        if self.budget_ is None:
            raise ValueError(
                f"an audit needs {MIN_ROWS} held-out rows and there are {len(tested)}; add rows, and set folds=5"
            )
        S = torch.from_numpy(original.matrix.copy())[tested]
        labels = None if y_true is None else targets.number(y_true, original.classes, len(original))[0]
        y = None if labels is None else torch.from_numpy(labels)[tested]
        return audit(self._log_p[tested], S, self.budget_, alphas=levels, y=y, class_names=original.classes)

    def save(self, folder: str | Path, more: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Write the model to a folder: `model.safetensors`, `model.json` and, where given, further files by name.

        What belongs to training rows (`candidates_`, `candidate_proba_`, `transduction_`, `confidence_`, `budget_`) is
        not saved.
        """
        check_is_fitted(self)
        saving.save(self, folder, more)

    @classmethod
    def load(cls, folder: str | Path, net: Factory | None = None, method: Method | None = None) -> Self:
        """Read a model that `save` wrote, running no code from it; `net` and `method` where they were your own."""
        return saving.load(cls, folder, net, method)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags
