"""`PartialLabelClassifier`: candidate sets in, class names out. It connects the other rooms and holds no algorithm."""

import functools
import inspect
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from candidly import conformal
from candidly.candidates import Annotator, Candidates, Votes
from candidly.checks import arguments
from candidly.cleaning import Certificate, Cleaner, VerificationPlan, certify, find_cleaner
from candidly.cleaning.audit import ALPHAS, NOT_CHECKED, Audit, audit
from candidly.cleaning.budget import MIN_ROWS, Budget
from candidly.conformal.calibration import Calibration, Candidate, Kind, Rule, Score, read_levels
from candidly.engine.device import find_device, find_devices, usual_settings
from candidly.engine.model import Model
from candidly.engine.nets.build import Factory
from candidly.engine.problem import check_weights
from candidly.engine.ranks import Shards, find_group
from candidly.estimator import crossfit, exporting, learners, saving, scoring, targets, verification
from candidly.estimator.crossfit import Trained
from candidly.estimator.folds import Plan, count_copies, make_plan
from candidly.estimator.leaks import point_out_bags
from candidly.estimator.learners import find_base
from candidly.estimator.record import Cleaned, FitRecord, Scored, as_array
from candidly.estimator.saving import Cleaning, SavedClassifier
from candidly.estimator.sharing import HeldOut, Sharing
from candidly.estimator.vote_record import VoteRecord
from candidly.messages import busy, option, warn
from candidly.methods import Method, find_method
from candidly.tables import columns
from candidly.tables.features import Features

# Parameters without an effect on learners other than networks.
_FOR_NETWORKS = (
    *("method", "cleaner", "quality", "net", "max_epochs", "lr", "batch_size", "weight_decay", "early_stopping"),
    "n_iter_no_change",
)


class PartialLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier for ambiguous labels: every training row has several candidate classes, one of them true.

    Several networks are trained together and averaged. Training rows are held out in turn (`folds`), so that their
    results (`transduction_`, `confidence_`, `candidates_`) come from networks that were not trained on them. The
    defaults were chosen by measurements (docs/evidence/defaults.md).

    Two parameters remove candidates. `cleaner` acts while training: in every epoch it decides anew which candidates
    the method learns from, and removes none for good. `alpha` acts after training: at this level, unlikely candidates
    of the training rows are removed once, by held-out probabilities; the result is `candidates_`, and the networks stay
    as they are.

    Parameters
    ----------
    method : str or Method
        How to learn from candidate sets: "balanced", "proden", "rc", "cc", "cavl", "pop", "valen", "crosel", "lws",
        "plcr", "pico", or an instance.
    cleaner : str, Cleaner or None
        What removes candidates while training: "conformal", "clsp", another name in `candidly.CLEANERS`, an instance,
        or None.
    quality : {"fast", "best"}
        How much to train: "fast" means one network per fold, for about 3200 minibatches or at most 50 epochs, "best"
        four networks, for 12800 minibatches or at most 120 epochs, which takes about ten to sixteen times as long. From
        2000 rows on, there are at most half as many epochs.
    net : {"mlp", "linear", "resnet9"} or callable
        The network, or a function that returns a new torch module.
    base : str, estimator or None
        What to train instead of networks: a scikit-learn classifier with `predict_proba`, such as
        ``HistGradientBoostingClassifier()`` or a pipeline, or a name: "extra-trees", "hist-gradient-boosting",
        "logistic-regression". Label weights are estimated out of fold, and the classifier is fitted to them
        (`candidly.estimator.learners`); one that takes no `sample_weight` is fitted to one label per row. It is copied,
        with every `random_state` set from that of this classifier. Its parameters can be set as ``base__max_depth``.
        Parameters that apply to networks must have their defaults: `method`, `cleaner` (or None), `quality`, `net`,
        `max_epochs`, `lr`, `weight_decay`, `batch_size`, `early_stopping` and `n_iter_no_change`.
    rounds : int
        With `base`, how often label weights are estimated again.
    members : int or None
        Number of networks per fold, which are averaged; None means that of `quality`. With `base`, the number of its
        copies; None means 1.
    folds : int
        Number of folds. With 2 or more, every fold is held out from `members` networks. With 1, all networks are
        trained on the same rows, without `validation_fraction` of them.
    alpha : float
        Level of `candidates_`: the fraction of training rows that may lose their true label. It is met by guesses
        that networks make about themselves (`audit`; docs/evidence/trust.md reports how good they are and when they
        fail). For a level that holds, check some rows by hand (`plan_verification`, `certify`).
    force_cleaning : bool
        Whether to remove candidates after training even if losses cannot be estimated: the networks predict held-out
        rows no better than chance, or true labels seem to be missing. Otherwise a warning says so, and all candidates
        are kept.
    max_epochs : int or None
        Passes over the training rows; None means as many as `quality` needs, at least 5. A method or cleaner that is
        given by name has a warm-up of at most half of them.
    lr : float or None
        Learning rate of Adam: the maximum of a one-cycle schedule. None means that of the method: 0.01, and 0.001 for
        LWS.
    weight_decay : float
        Weight of Adam's L2 penalty.
    batch_size : int or None
        None means a power of two near n / 64, between 16 and 256.
    early_stopping : bool
        Whether to stop when the held-out covering rate, the fraction of held-out rows whose most probable class is a
        candidate, has not improved for `n_iter_no_change` epochs, and to keep the networks of the best epoch.
    n_iter_no_change : int
        Epochs without improvement after which early stopping ends the training.
    validation_fraction : float
        With ``folds=1``, the fraction of rows that is held out, for early stopping and `predict_set`; may be 0.
    classes : list, optional
        All class names, in order; by default those found in y, sorted.
    separator : str, optional
        Separator between class names if y is text, as in ``cat|dog``; by default a text is one class name.
    max_categories : int
        Maximum number of categories of a text column of X that get their own encoded column.
    n_components : int or None
        Number of components to which a sparse X, such as word counts, is reduced by a truncated SVD if it has more than
        ten times as many columns. None keeps all columns, and makes a dense matrix of them.
    device : str or list of str
        "auto", "cpu" or "cuda". With several, such as "cuda:0,cuda:1", the networks are divided among them and train at
        the same time.
    random_state : int, RandomState or None
        Determines folds, initialisation and the order of rows.
    verbose : int
        Whether to show a progress bar.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Class names.
    candidates_ : Candidates
        The training rows' candidates after cleaning by `budget_` at level `alpha`. Only held-out rows with a positive
        weight are cleaned, so with ``folds=1`` few are. The most probable candidate of a row is always kept.
    original_candidates_ : Candidates
        The training rows' candidates before cleaning.
    transduction_ : ndarray, shape (n,)
        The most probable candidate of each training row, by name. With votes: its most probable class by votes and
        features, also if nobody voted for it (`fit`, Notes).
    confidence_ : ndarray, shape (n,)
        Estimated probability that `transduction_` is the true label: its entry in `candidate_proba_`.
    candidate_proba_ : ndarray, shape (n, C)
        Estimated probability that each candidate of a training row is the true label; 0 for other classes. A row sums
        to 1: this is the probability among the candidates, at the temperature of `budget_`, not among all classes.
        With votes: the posterior probability among all classes, for candidates and for `transduction_`.
    priority_ : ndarray of int, shape (n,)
        The order in which to review the training rows: 1 for the lowest `confidence_`. Of rows with equal confidence,
        such as rows with one candidate, those with the highest `outside_proba_` come first.
    outside_ : ndarray of object, shape (n,)
        The most probable class of all, by name, if it is not a candidate of the training row; None if it is one.
    outside_proba_ : ndarray, shape (n,)
        The probability of `outside_` among all classes; 0 where that is None.
    annotators_ : tuple of Annotator
        With votes, how each annotator votes (`candidly.candidates.Annotator`): number of votes, accuracy with an
        interval, agreement with the others, and the most frequent confusions. Empty without votes.
    budget_ : Budget or None
        The rule that cleans candidates (`candidly.cleaning.Budget`); None with fewer than 100 held-out rows.
    limits_ : ndarray, shape (C,), or None
        The class limits of `budget_` at level `alpha_`: `clean` removes candidates up to these probabilities. They are
        those of rows without votes.
    alpha_ : float or None
        The level of `candidates_` and `limits_`; None if `budget_` is None.
    fit_record_ : FitRecord or None
        What `audit`, `reclean` and reports need to know about the training rows (`candidly.estimator.FitRecord`). If
        the rows were divided into shards, it is about a sample of the held-out rows of all of them, while the
        attributes from `candidates_` to `outside_proba_` are those of this process until the model is saved. A
        model that was saved with ``lean=True``, or by an older version, has None, and none of the attributes from
        `candidates_` to `annotators_`.
    ledger_ : tuple of VerificationPlan
        The verifications that were planned since `fit` (`plan_verification`); it is saved with the model.
    history_ : dict of ndarray, shape (epochs, networks)
        One value per epoch of loss, mean_candidates and share_changed and, where they exist, covering_rate, alpha,
        threshold and estimated_lost. Without early stopping, covering_rate is that of 2,500 to 5,000 held-out rows per
        network, or of all if there are fewer. With `base`, loss and covering_rate of every round (`Learners`).
    n_iter_ : int
        Number of epochs, or of rounds with `base`.
    risk_curve_ : dict of ndarray, shape (points,)
        For falling probability of the predicted class ("threshold"), the fraction of held-out rows with at least that
        probability ("coverage") and their estimated error rate ("risk"). `predict` uses it for `max_risk`.
    features_, model_, calibration_ : Features, Model or Learners, Calibration
        The encoding of the columns of X (``features_.describe()`` explains it), the networks or, with `base`, the
        fitted classifiers, and the scores of held-out rows that p-values are computed from.
    schema_ : Schema or None
        The columns of the table that X and y came from (`candidly.tables.schema.Schema`). None unless it is set, as
        ``candidly fit`` does; it is saved with the model, and ``candidly predict`` reads new tables by it.
    trained_on_ : str
        A hash of the training rows.
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
        method: str | Method = "balanced",
        cleaner: str | Cleaner | None = "conformal",
        *,
        quality: str = "fast",
        net: str | Factory = "mlp",
        base: Any = None,
        rounds: int = 10,
        members: int | None = None,
        folds: int = 5,
        alpha: float = 0.05,
        force_cleaning: bool = False,
        max_epochs: int | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        weight_decay: float = 1e-4,
        early_stopping: bool = False,
        n_iter_no_change: int = 10,
        validation_fraction: float = 0.1,
        classes: Iterable[Hashable] | None = None,
        separator: str | None = None,
        max_categories: int = 50,
        n_components: int | None = 100,
        device: str | Sequence[str] = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.cleaner = cleaner
        self.quality = quality
        self.net = net
        self.base = base
        self.rounds = rounds
        self.members = members
        self.folds = folds
        self.alpha = alpha
        self.force_cleaning = force_cleaning
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
        self.n_components = n_components
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @usual_settings
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        weights: Any = None,
        groups: Any = None,
        shards: int | Sequence[int] = 1,
    ) -> Self:
        """Train the networks, and clean the training rows' candidates.

        Under torchrun, each process passes its own rows, and all train the same networks (docs/guides/scale.md).

        Parameters
        ----------
        X : array, sparse matrix, or table of pandas, polars or pyarrow; shape (n, d)
            Features. Numbers are standardised, categories become columns of 0 and 1, and missing values become the
            mean, with an indicator column. A sparse matrix with more than 1000 columns and no missing values is first
            reduced to 100 numbers per row (`n_components`).
        y : matrix, list, or column of pandas, polars or pyarrow
            Candidates: a boolean matrix (n, C), dense or sparse; lists or sets of class names; text with a `separator`;
            or plain labels, which are single candidates. A row with all classes is unlabelled. If X and y both have an
            index, as in pandas, it must be the same; rows are not reordered. Or `candidly.candidates.Votes` on the
            rows: labels are then chosen by votes and features together (Notes).
        sample_weight : array, shape (n,), optional
            Weights of rows. A weight of 2 has the effect of repeating the row. Weights that are not integers are
            divided by their mean and rounded at random.
        weights : array, shape (n, C), optional
            How much to trust each candidate initially, such as vote counts. Columns of a data frame are matched by
            class name. With votes, the default is each candidate's fraction of them.
        groups : sequence, length n, optional
            The group of each row, such as its scene, recording or patient: text, numbers or other hashable values. A
            row without a group (None, NaN or an empty text) is a group by itself. Rows that share a group or have equal
            features, directly or through other rows, are held out together: in the folds or the
            `validation_fraction`, for early stopping, and by a cleaner that holds calibration rows out. If the rows are
            divided, those of one group must be in one shard.
        shards : int or sequence of int
            Into how many consecutive shards the rows are divided, or the number of rows of each: what torchrun does
            with that many processes, in one.

        Notes
        -----
        Rows of one group resemble each other. If some of them train the networks that score the others, held-out
        results are those for new rows of known groups, and flatter a model that will meet new groups. With `groups`
        they are those for rows of new groups. Without it, `fit` warns if consecutive rows look like groups
        (`candidly.candidates.find_bags`).

        With votes, the probability of a training row's label is ``p^(1/T) · Π_w π^w``: the networks' held-out
        probabilities, and for each vote the probability that this annotator gives this label to a row of that class.
        T and the confusion matrices π^w are fitted to the votes by EM (`candidly.candidates.annotators`). This decides
        `transduction_`, `candidate_proba_`, `confidence_`, `priority_` and `outside_`, and in which order candidates
        are removed: `candidates_`, `audit` and `certify`. A label without a vote can be the most probable one. Votes
        are assumed to be independent given the true label; `certify` needs no such assumption, because its rules are
        fixed before rows are drawn. Rows that all networks were trained on (``folds=1``) are labelled by votes alone.
        `predict` and its relatives do not use votes.

        The guarantees of `predict_p` assume exchangeable rows. With `groups`, assume instead that groups are
        exchangeable: those of the training rows and a new one. If all groups have the same number of rows and g of
        them are in a fold, a row drawn at random from the new group has the same guarantees less 1/(g + 1) with
        "split" and less 2/(g + 1) with "cv+". If their numbers of rows differ, this holds only approximately, on
        average over the rows of many new groups. There is no guarantee for further rows of known groups, nor for all
        rows of one group together.
        """
        started = time.monotonic()
        self._validate_parameters()
        table = columns.read(X)
        n = int(table.shape[0])
        if n < 2:
            raise ValueError(f"X has n_samples={n}; at least two rows are needed")
        sharing = Sharing(Shards.of(shards, n), n)
        if sharing.divided and self.base is not None:
            raise ValueError("base is trained in one process, and the rows are divided; leave base or the shards out")
        votes, given = (y, "y.candidates") if isinstance(y, Votes) else (None, "y")
        if sharing.divided and votes is not None:
            raise ValueError(
                "y is a Votes, and the rows are divided; votes are combined in one process: leave the shards out, or "
                "pass y=votes.candidates"
            )
        y = y if votes is None else votes.candidates
        seeds = self._seeds(sharing)
        by_row = {given: y, "sample_weight": sample_weight, "weights": weights, "groups": groups}
        for name, rows_of_x in by_row.items():
            targets.check_index(X, rows_of_x, name)
        S = sharing.unite(targets.read(y, n, self.classes, self.separator))
        if votes is not None and weights is None:
            weights = targets.spread(votes.weights(), votes.candidates.classes, S.classes)
        weights = None if weights is None else check_weights(targets.label_weights(weights, S), S.matrix.shape)
        group = None if groups is None else targets.group_numbers(groups, n)
        copies = count_copies(sample_weight, n, np.random.default_rng(seeds[0]))
        rows = None if sample_weight is None else np.repeat(np.arange(n), copies)
        with busy("encoding the features", bool(self.verbose)):
            sample = table
            if sharing.divided:
                sample, rows = sharing.table(table, sharing.draw(np.repeat(np.arange(n), copies), seeds[0])), None
            features = Features.fit(
                sample, rows=rows, max_categories=self.max_categories, n_components=self.n_components
            )
            saving.check_size(features, S.classes)
            quiet = rows is not None or sharing.divided  # rows without weight, or outside the sample, may be new
            encoded = features.transform(table, quiet=quiet)
        with busy("comparing the rows", bool(self.verbose)):
            if group is None:
                used = slice(None) if sample_weight is None else copies > 0
                point_out_bags(encoded[used], S.matrix[used])
            folds, fraction = int(self.folds), float(self.validation_fraction)

            def plan_rows(part: slice, rng: np.random.Generator) -> Plan:
                own = None if group is None else group[part]
                return make_plan(encoded[part], S.matrix[part], copies[part], folds, fraction, rng, own)

            plan = sharing.by_shard(seeds[1], plan_rows)
        model = self._train(encoded, S, plan, weights, seeds[2], sharing)
        p = crossfit.out_of_fold(model, encoded, torch.from_numpy(plan.row_fold), plan.folds, bool(self.verbose))
        with busy("estimating which candidates are wrong", bool(self.verbose)):
            self._set_results(encoded, S, plan, p, features, model, seeds[3], started, sharing, votes)
        return self

    def _set_results(
        self,
        X: NDArray[Any],
        S: Candidates,
        plan: Plan,
        p: Tensor,
        features: Features,
        model: Trained,
        seeds: np.random.SeedSequence,
        started: float,
        sharing: Sharing,
        votes: Votes | None,
    ) -> None:
        """Set everything that follows from the probabilities p (n, C) of the training rows, and from votes on them.

        If the rows are divided, what follows from all of them follows from a sample of the held-out ones, which all
        ranks have; the results of the rows stay with their process.
        """
        seed = int(seeds.generate_state(1)[0])
        held_out, fold = torch.from_numpy(plan.tested()), torch.from_numpy(plan.row_fold)
        trained_on = sharing.fingerprint(X, S)
        own: tuple[Scored, Tensor] | None = None
        if sharing.divided:
            own = Scored.of(S, p), held_out
            drawn = sharing.draw(plan.tested(), seeds)
            tested = HeldOut(X[drawn], Candidates(S.matrix[drawn], S.classes), p[drawn], fold[drawn])
            sample = sharing.held_out(tested)
            X, S, p, fold, held_out = sample.X, sample.S, sample.p, sample.fold, torch.arange(len(sample.fold))
        sets = torch.from_numpy(S.matrix.copy())[held_out]
        # The rule is fitted to the probabilities of all classes; later only those of candidates are needed.
        budget = Budget.of(conformal.log(p)[held_out], sets) if len(held_out) >= MIN_ROWS else None
        temperature = 1.0 if budget is None else budget.cautious
        calibration = Calibration.of(X[held_out], p[held_out], sets, fold[held_out], plan.folds, seed, temperature)
        parameters = self.get_params(deep=False)
        self._set_fitted(SavedClassifier(parameters, model, calibration, features, None, trained_on, None, None))
        more: dict[str, Any] = {"fold": fold, "held_out": held_out}
        more |= {"parameters": parameters, "seconds": time.monotonic() - started}
        more["groups"] = None if plan.groups is None or sharing.divided else torch.from_numpy(plan.groups)
        if votes is not None:
            more["voted"] = VoteRecord.of(votes, S.classes, torch.from_numpy(S.matrix.copy()), p, fold)
        self.budget_ = budget
        self._own_rows = own  # rows of this process, where others have further ones
        self.fit_record_: FitRecord | None = FitRecord.of(S, p, **more)
        self.reclean()

    def _train(
        self,
        X: NDArray[Any],
        S: Candidates,
        plan: Plan,
        weights: Tensor | None,
        seed: np.random.SeedSequence,
        sharing: Sharing,
    ) -> Trained:
        """Train networks, or copies of `base`."""
        quality, progress = crossfit.QUALITIES[self.quality], bool(self.verbose)
        if self.base is not None:
            base, rounds, copies = find_base(self.base), int(self.rounds), int(self.members or 1)
            return learners.train(X, S, plan, weights, seed, base, rounds=rounds, members=copies, progress=progress)
        lr, decay = self.lr, self.weight_decay
        return crossfit.train(
            X,
            S,
            plan,
            weights,
            seed,
            crossfit.make_recipe(sharing.total(len(plan.index)), quality, self.max_epochs, self.batch_size, lr, decay),
            method=self.method,
            cleaner=self.cleaner,
            net=self.net,
            members=int(self.members or quality.members),
            device=self.device,
            patience=int(self.n_iter_no_change) if self.early_stopping else None,
            progress=progress,
            shards=sharing.sizes(plan.index),
        )

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name. Settings of a method or cleaner are set with a new instance of it."""
        for name in params:
            part, nested, setting = name.partition("__")
            if nested and part in ("method", "cleaner"):
                value = params.get(part, getattr(self, part))
                kind = value.__class__.__name__ if isinstance(value, Method | Cleaner) else part.capitalize()
                raise ValueError(
                    f"{name} cannot be set by itself; set {part}= to an instance with other settings, such as "
                    f"{kind}({setting}=...)"
                )
            if nested and part == "base" and not hasattr(params.get(part, self.base), "set_params"):
                found = arguments.shown(params.get(part, self.base))
                raise ValueError(f"{name} is a setting of base, which is {found}; set base= to a classifier first")
        return super().set_params(**params)

    def _validate_parameters(self) -> None:
        """Raise ValueError for a constructor argument that cannot be used and that nothing else checks."""
        find_method(self.method)
        find_cleaner(self.cleaner)
        arguments.choice("quality", self.quality, crossfit.QUALITIES)
        find_devices(self.device)
        for name in ("rounds", "folds", "n_iter_no_change", "max_categories"):
            arguments.integer(name, getattr(self, name), least=1)
        for name, least in (("members", 1), ("max_epochs", 1), ("batch_size", 2), ("n_components", 1)):
            if getattr(self, name) is not None:
                arguments.integer(name, getattr(self, name), least=least)
        if self.lr is not None:
            arguments.real("lr", self.lr, above=0)
        arguments.real("weight_decay", self.weight_decay, least=0)
        arguments.fraction("alpha", self.alpha)
        arguments.real("validation_fraction", self.validation_fraction, least=0, below=1)
        if arguments.flag("early_stopping", self.early_stopping) and self.folds == 1 and not self.validation_fraction:
            raise ValueError("early_stopping needs held-out rows, and there are none; set validation_fraction=0.1")
        arguments.flag("force_cleaning", self.force_cleaning)
        if self.base is not None:
            find_base(self.base)
            self._refuse_settings_of_networks()
        if self.separator is not None:
            arguments.text("separator", self.separator, "None or a text, such as '|'")
        if not isinstance(self.verbose, bool | np.bool_):
            arguments.integer("verbose", self.verbose, least=0)

    def _refuse_settings_of_networks(self) -> None:
        """Raise ValueError for an argument other than its default that has no effect with `base`."""
        defaults = inspect.signature(type(self).__init__).parameters
        for name in _FOR_NETWORKS:
            value, default = getattr(self, name), defaults[name].default
            same = value is default or (isinstance(value, str | int | float | np.generic) and value == default)
            if not same and (name, value) != ("cleaner", None):
                raise ValueError(
                    f"{name} is {arguments.shown(value)}, but it applies to networks, and base is "
                    f"{arguments.shown(self.base)}; leave one of them out"
                )

    def _seeds(self, sharing: Sharing) -> list[np.random.SeedSequence]:
        """Return independent seeds for the parts of a training."""
        try:
            state = check_random_state(self.random_state)
        except (TypeError, ValueError):
            found = arguments.shown(self.random_state)
            wanted = "None, an integer from 0 to 2**32 - 1, or a numpy.random.RandomState"
            raise ValueError(f"random_state is {found}; it must be {wanted}") from None
        return np.random.SeedSequence(sharing.entropy(int(state.randint(2**31)))).spawn(4)

    @usual_settings
    def reclean(self) -> Self:
        """Clean the training rows' candidates again with the present `alpha` and `force_cleaning`, without training.

        Sets `candidates_`, `limits_` and `alpha_`, from the held-out probabilities of `fit_record_`.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 2))
        >>> y = np.stack([X[:, 0] > 0.5 * rng.normal(size=200), X[:, 0] < 0.5 * rng.normal(size=200) + 0.5], 1)
        >>> y[~y.any(1)] = True
        >>> classifier = PartialLabelClassifier(alpha=0.01, max_epochs=10, random_state=0).fit(X, y)
        >>> before = classifier.candidates_.mean_size
        >>> classifier.set_params(alpha=0.2).reclean().candidates_.mean_size < before
        True
        """
        record = self._training_rows("cleaning them again")
        alpha = arguments.fraction("alpha", self.alpha)
        forced = arguments.flag("force_cleaning", self.force_cleaning)
        self.fit_record_ = replace(
            record, parameters={**record.parameters, "alpha": self.alpha, "force_cleaning": self.force_cleaning}
        )
        if self.budget_ is not None:
            sets = record.sets[record.held_out]
            self._set_limits(alpha, self.budget_.limits(record.log_p(record.held_out), sets, alpha))
        self._cleaned, reason = self._clean(*(self._own_rows or (self.fit_record_, record.held_out)), forced)
        self._warn(reason)
        return self

    @usual_settings
    def clean_all(self, X: Any, y: Any) -> Cleaned:
        """Clean the candidates of further rows; as `clean`, but also return probabilities.

        Returns
        -------
        Cleaned
            `candidly.estimator.Cleaned`: the candidates before and after cleaning, the most probable candidate of each
            row, the estimated probability that each candidate is the true label, and the order in which to review
            the rows.
        """
        check_is_fitted(self)
        if self.budget_ is None:
            self._refuse_to_clean()
        targets.check_index(X, y, "y")
        encoded = self.features_.transform(X)
        S = Candidates(targets.align(y, self._class_names, self.separator, unknown=False), self._class_names)
        if len(S) != len(encoded):
            raise ValueError(f"X has {len(encoded)} rows but y has {len(S)}; pass the candidates of each row")
        if saving.fingerprint(encoded, S) == self.trained_on_:
            warn(
                "these are the training rows, which the networks know; use candidates_, which networks cleaned that "
                "were not trained on them"
            )
        p, _ = crossfit.predict(self.model_, self.calibration_, encoded, (), bool(self.verbose))
        scored = Scored.of(S, torch.from_numpy(p).float())
        cleaned, reason = self._clean(scored, torch.arange(len(S)), bool(self.force_cleaning))
        self._warn(reason)
        return cleaned

    def clean(self, X: Any, y: Any) -> Candidates:
        """Return the candidates of further rows without the unlikely ones, by the class limits of the training rows.

        Parameters
        ----------
        X : array or table
            Rows that the networks were not trained on, with the columns of `fit`.
        y : matrix, list, or column of pandas, polars or pyarrow
            Their candidates, in the same forms as in `fit`. All must be classes of the model.

        Notes
        -----
        The mean probabilities of all networks are compared with `limits_`, so a row's result does not depend on the
        other rows. It is meant for rows that arrive after training and come from the same source. The limits come from
        held-out rows that single folds scored, and the level `alpha_` was met for those by estimates. For further
        rows nothing is promised: the mean of all networks is usually right more often, but it is less confident, and
        an audit needs held-out rows. For the training rows use `candidates_`: networks are too confident about rows
        that they were trained on. A row always keeps its most probable candidate. All candidates are kept, with a
        warning, where `fit` would keep them: see `force_cleaning`.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> y = np.stack([X[:, 0] < 0.2, X[:, 0] > -0.2], 1)
        >>> classifier = PartialLabelClassifier(alpha=0.1, max_epochs=10, random_state=0).fit(X, y)
        >>> classifier.clean([[-0.19, 0.0], [0.19, 0.0]], np.ones((2, 2), dtype=bool)).decode()
        [(0,), (1,)]
        """
        return self.clean_all(X, y).kept

    def is_trained_on(self, X: Any, y: Any) -> bool:
        """Return whether these are the rows that `fit` was called with, in the same order."""
        check_is_fitted(self)
        voted = None if self.fit_record_ is None else self.fit_record_.voted
        if isinstance(y, Votes) and voted is not None and not voted.same_votes(y):
            return False
        matrix = targets.align(y, self._class_names, self.separator, unknown=False)
        encoded = self.features_.transform(X)
        return saving.fingerprint(encoded, Candidates(matrix, self._class_names)) == self.trained_on_

    @property
    def _class_names(self) -> tuple[Any, ...]:
        return self.model_.classes

    def _clean(self, scored: Scored, rows: Tensor, forced: bool) -> tuple[Cleaned, str | None]:
        """Return scored rows after cleaning some of them, and why nothing was removed, if it was kept for a reason."""
        kept, reason = scored.sets, None
        if self.budget_ is not None:
            sets = kept[rows]
            scores, limits = scored.scores(rows, self.budget_.temperature), torch.tensor(self.limits_, device="cpu")
            if isinstance(scored, FitRecord) and scored.voted is not None and self.alpha_ is not None:
                # The limits of the model are for rows without votes, whose probabilities are less certain.
                limits = self.budget_.limits(scores, sets, self.alpha_)
            cleaned = self.budget_.apply(scores, sets, limits)
            reason = None if forced or torch.equal(cleaned, sets) else self.budget_.declined
            if reason is None:
                kept[rows] = cleaned
        return scored.cleaned(kept, 1.0 if self.budget_ is None else self.budget_.cautious), reason

    def _warn(self, reason: str | None) -> None:
        if reason is not None:
            advice = f"{option('force-cleaning', python='force_cleaning')} removes candidates all the same"
            warn(f"no candidate was removed: {reason}. {advice}")

    def _refuse_to_clean(self) -> NoReturn:
        rows = int(self.calibration_.counts.sum())
        if rows < MIN_ROWS:
            raise ValueError(
                f"cleaning needs at least {MIN_ROWS} held-out rows at fit, and there were {rows}; add rows, or set "
                "folds=5, and fit again"
            )
        raise ValueError("the model was saved by an older version, without class limits; fit and save it again")

    def _training_rows(self, purpose: str) -> FitRecord:
        """Return the record of the training rows; raise ValueError if they were not saved."""
        check_is_fitted(self)
        if self.fit_record_ is None:
            raise ValueError(
                f"the model was saved without its training rows, which {purpose} needs: with {option('lean')}, or by "
                "an older version; fit and save it with them"
            )
        return self.fit_record_

    @functools.cached_property
    def _cleaned(self) -> Cleaned:
        """The training rows after cleaning; computed when it is needed, because most loaded models only predict."""
        try:
            record = self._training_rows("this attribute")
        except (NotFittedError, ValueError) as error:
            raise AttributeError(str(error)) from None
        return self._clean(record, record.held_out, bool(record.parameters["force_cleaning"]))[0]

    @property
    @usual_settings
    def candidates_(self) -> Candidates:
        """The training rows' candidates after cleaning."""
        return self._cleaned.kept

    @property
    @usual_settings
    def original_candidates_(self) -> Candidates:
        """The training rows' candidates before cleaning."""
        return self._cleaned.candidates

    @property
    @usual_settings
    def transduction_(self) -> NDArray[Any]:
        """The most probable candidate of each training row."""
        return self._cleaned.transduction

    @property
    @usual_settings
    def confidence_(self) -> NDArray[np.float32]:
        """Estimated probability that `transduction_` is the true label."""
        return self._cleaned.confidence

    @property
    @usual_settings
    def candidate_proba_(self) -> NDArray[np.float32]:
        """Estimated probability that each candidate of a training row is the true label."""
        return self._cleaned.candidate_proba

    @property
    @usual_settings
    def priority_(self) -> NDArray[np.int64]:
        """The order in which to review the training rows, from 1."""
        return self._cleaned.priority

    @property
    @usual_settings
    def outside_(self) -> NDArray[np.object_]:
        """The most probable class of each training row where it is not a candidate, else None."""
        return self._cleaned.outside

    @property
    @usual_settings
    def outside_proba_(self) -> NDArray[np.float32]:
        """The probability of `outside_`; 0 where it is None."""
        return self._cleaned.outside_proba

    @property
    def annotators_(self) -> tuple[Annotator, ...]:
        """How each annotator votes; empty if `fit` was called without votes."""
        try:
            voted = self._training_rows("this attribute").voted
        except (NotFittedError, ValueError) as error:
            raise AttributeError(str(error)) from None
        return () if voted is None else voted.annotators

    def _set_limits(self, alpha: float | None, limits: Tensor | None) -> None:
        self.alpha_ = alpha
        self.limits_ = None if limits is None else limits.numpy()
        if self.limits_ is not None:
            self.limits_.setflags(write=False)

    def _set_fitted(self, saved: SavedClassifier) -> None:
        """Set the fitted attributes that are saved with a model."""
        self.__dict__.pop("_cleaned", None)
        self._own_rows = None
        self.model_, self.calibration_ = saved.model, saved.calibration
        self.fit_record_, self.ledger_ = saved.record, saved.ledger
        cleaning = saved.cleaning
        self.budget_ = None if cleaning is None else cleaning.budget
        self._set_limits(*((None, None) if cleaning is None else (cleaning.alpha, cleaning.limits)))
        self.classes_ = as_array(saved.model.classes)
        self.history_ = dict(saved.model.history)
        self.n_iter_ = len(self.history_["loss"])
        self.trained_on_, self.schema_ = saved.trained_on, saved.schema
        self.features_, self.n_features_in_ = saved.features, saved.features.n_features_in_
        if saved.features.names_ is not None:
            self.feature_names_in_ = np.array(saved.features.names_, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    @usual_settings
    def predict_all(self, X: Any, rules: Sequence[Rule] = ()) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
        """Return class probabilities, and p-values by several rules, with one pass through the networks.

        Parameters
        ----------
        X : array or table
            Rows.
        rules : sequence of Rule
            How to compute p-values (`candidly.estimator.Rule`); the arguments of `predict_p` are those of a rule.

        Returns
        -------
        p : ndarray, shape (n, C)
            What `predict_proba` returns.
        p_values : list of ndarray, shape (n, C)
            What `predict_p` returns by each rule.

        Examples
        --------
        >>> X, y = [[0.0], [0.1], [0.2], [0.8], [0.9], [1.0]], ["cat", "cat", "cat", "dog", "dog", "dog"]
        >>> classifier = PartialLabelClassifier(folds=2, random_state=0).fit(X, y)
        >>> p, (split, worst) = classifier.predict_all(X, [Rule(kind="split"), Rule(candidate="worst")])
        >>> bool((worst == classifier.predict_p(X, candidate="worst")).all())
        True
        """
        check_is_fitted(self)
        for rule in arguments.items("rules", rules, "a list of rules"):
            arguments.instance("one of rules", rule, Rule, "a candidly.estimator.Rule")
        encoded = self.features_.transform(X)
        return crossfit.predict(self.model_, self.calibration_, encoded, rules, bool(self.verbose))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n, C), averaged over all networks."""
        return self.predict_all(X)[0]

    def predict(self, X: Any, max_risk: float | None = None) -> NDArray[Any]:
        """Return the most probable class of each row, by name.

        Parameters
        ----------
        X : array or table
            Rows.
        max_risk : float, optional
            Abstain from risky predictions: the rows with the least probable predictions get None instead of a class
            name, such that the estimated error rate of the other rows is at most `max_risk`, between 0 and 1.

        Notes
        -----
        The error rate is estimated from candidates alone (`candidly.conformal.calibration.row_errors`), without a
        guarantee. It is the error rate of networks on held-out rows. Here all networks are averaged, which is less
        confident and usually more often right.
        """
        if max_risk is not None:
            max_risk = arguments.fraction("max_risk", max_risk)
        p = self.predict_proba(X)
        found = self.classes_[p.argmax(1)]
        if max_risk is not None:
            found = found.astype(object)
            found[p.max(1) < self.calibration_.threshold(max_risk)] = None
        return found

    def predict_p(
        self, X: Any, *, kind: Kind = "cv+", score: Score = "lac", candidate: Candidate = "best", smooth: bool = False
    ) -> NDArray[np.float64]:
        """Return the p-value of each class of each row, shape (n, C).

        The p-value is the fraction of held-out rows that conform to their candidates no better than this row conforms
        to the class.

        Parameters
        ----------
        X : array or table
            Rows.
        kind : {"split", "cv+", "averaged"}
            Which networks score new rows, and which held-out rows they are compared with. "split": the networks of the
            first fold, and the rows held out from them. "cv+": the networks of each fold, and the rows held out from
            these; the counts of all folds are added. With ``folds=1`` both are the same. "averaged": the mean of all
            networks, and all held-out rows.
        score : {"lac", "aps"}
            Conformity score of a label. "lac" is its probability (M. Sadinle, J. Lei and L. Wasserman, *Least ambiguous
            set-valued classifiers with bounded error levels*, JASA 114, 2019); it gives the smallest sets if the
            probabilities are right. "aps" is the total probability of less probable labels, randomised
            (`candidly.conformal.aps`); its sets adapt better to how hard a row is.
        candidate : {"best", "mean", "pooled", "worst", "singletons"}
            The score of a held-out row: that of its best candidate, the mean over its candidates, one score per
            candidate, that of its worst candidate, or that of its only candidate, without the rows that have several.
        smooth : bool
            Whether to break ties at random. This makes p-values smaller, and the level exact where it holds.

        Notes
        -----
        `predict_set` contains the classes with a p-value above α. Assume that training and new rows are exchangeable,
        that hardly any rows have equal features (such rows are held out together), that there are no groups (`fit` says
        what holds with them), and that every true label is a candidate. Assume further that every held-out row has one
        candidate, or that `candidate` is "worst", whose sets are large, or "singletons" and rows with one candidate are
        exchangeable with all rows. Then a set contains the true label with probability

        - at least 1 − α with "split" (V. Vovk, A. Gammerman and G. Shafer, *Algorithmic Learning in a Random World*,
          2005; H. Papadopoulos et al., ECML 2002),
        - at least 1 − 2α − 2(K − 1)/(m + K) with "cv+", for m rows in K folds, and usually about 1 − α
          (`candidly.conformal.cross_p_values`; Y. Romano, M. Sesia and E. J. Candès, NeurIPS 2020).

        There is no guarantee with "averaged", because no held-out row was scored by the mean of all networks, nor with
        "best" and "mean" if rows have several candidates: where the best candidate is wrong, sets are too small.
        "pooled" counts candidates instead of rows (`candidly.conformal.pooled`). Guarantees are slightly weakened by
        `early_stopping`, which uses held-out rows, and by the held-out rows' part in standardising the columns of X.
        Randomness, in ties and in "aps", depends on `random_state` and on the content of the row only: a row always
        has the same p-values.
        """
        return self.predict_all(X, [Rule(kind, score, candidate, smooth)])[1][0]

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
        """Return the prediction set of each row: the classes with a p-value above `alpha`, a boolean matrix (n, C).

        A set may be empty, if no class conforms.

        Parameters
        ----------
        X : array or table
            Rows.
        alpha : float
            Level, between 0 and 1. Sets at a higher level are subsets of those at a lower level.
        kind, score, candidate, smooth
            As in `predict_p`, which also states the guarantees.
        """
        alpha = arguments.fraction("alpha", alpha)
        found = self.predict_p(X, kind=kind, score=score, candidate=candidate, smooth=smooth)
        self.calibration_.check_level(alpha, Rule(kind, score, candidate, smooth))
        return found > alpha

    @property
    def risk_curve_(self) -> dict[str, NDArray[np.float64]]:
        """The estimated error rate of held-out rows by the probability of the predicted class."""
        return dict(zip(("threshold", "coverage", "risk"), self.calibration_.risk.numpy().copy(), strict=True))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the covering rate: the fraction of rows whose predicted class is one of their candidates in y.

        With one label per row this is the accuracy. A class that is not in `classes_` is never predicted.
        """
        return scoring.covering_rate(self, X, y, sample_weight)

    @usual_settings
    def audit(self, y_true: Any = None, alphas: Sequence[float] = ALPHAS, *, verified: Any = None) -> Audit:
        """Guess what cleaning the training rows costs at several levels; with checked rows, measure it.

        Without true labels the result is a guess, not a measurement, and says so: docs/evidence/trust.md shows how
        often it was right. Check rows by hand to know (`verified`), or to get a bound that holds (`plan_verification`).

        Parameters
        ----------
        y_true : sequence, optional
            True labels by name, None where unknown. They are only shown beside the guesses.
        alphas : sequence of float
            Levels.
        verified : mapping of int to name, or sequence of names, optional
            True labels of rows that were drawn at random and checked by hand: by row number, or one per row with None
            where it was not checked. They give exact 90 % intervals of the lost labels at every level, and of the
            fraction of rows whose true label is not a candidate. The rows must be drawn at random, from all rows, from
            those with several candidates, or by `plan_verification`; rows that were chosen, such as the most doubtful
            ones, give wrong intervals. In a mapping, None means that nobody can tell, and "none of these" that no
            candidate is right.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(400, 2))
        >>> true = np.where(X[:, 0] > 0, "right", "left")
        >>> y = [{label, name} for label, name in zip(true, rng.choice(["left", "right", "up"], 400))]
        >>> classifier = PartialLabelClassifier(max_epochs=30, random_state=0).fit(X, y)
        >>> drawn = rng.choice(400, 100, replace=False).tolist()
        >>> found = classifier.audit(verified={row: true[row] for row in drawn}, alphas=[0.05])
        >>> found.verified.rows, found.verified.outside, found.levels[0].verified.high < 0.05
        (100, 0, True)
        """
        record = self._training_rows("an audit")
        levels, S, rows = read_levels(alphas), record.candidates, record.held_out
        if self.budget_ is None:
            raise ValueError(
                f"an audit needs at least {MIN_ROWS} held-out rows, and there are {len(rows)}; add rows, or set folds=5"
            )
        y = checked = drawn_from = None
        if y_true is not None:
            labels, known = targets.number(y_true, S.classes, len(S))
            y = torch.from_numpy(np.where(known & (labels < 0), certify.NONE_OF_THESE, labels))[rows]
        if verified is not None:
            answers = verification.read_checked(verified, len(S), S.classes)
            checked = torch.from_numpy(answers)[rows]
            _, family, order = self._rules()
            plan = verification.plan_of(self.ledger_, np.flatnonzero(answers != NOT_CHECKED), family)
            if plan is not None:
                drawn_from = certify.use_levels(order, plan.alpha).isfinite().any(1)
        return audit(
            record.scores(rows, self.budget_.temperature),
            record.sets[rows],
            self.budget_,
            alphas=levels,
            top=record.top[rows],
            n=len(S),
            y=y,
            verified=checked,
            drawn_from=drawn_from,
            class_names=S.classes,
        )

    @usual_settings
    def plan_verification(
        self, m: int, *, alpha: float = 0.05, confidence: float = 0.9, seed: int = 0, sequential: bool = False
    ) -> VerificationPlan:
        """Draw training rows to check by hand, so that `certify` can bound the number of lost labels.

        The plan is added to `ledger_` before any row is checked; save the model to keep it. The rows are drawn one by
        one from the held-out rows that can lose a candidate, also if the classifier was fitted with groups.

        Parameters
        ----------
        m : int
            Number of rows to check; with `sequential`, the largest number. At least 45 are needed at the default
            `alpha` and `confidence`; more rows let `certify` remove more candidates.
        alpha : float
            Fraction of all training rows that may lose their true label.
        confidence : float
            Probability, over the draw, with which the certificate holds.
        seed : int
            Seed of the draw. Every plan of a classifier is another draw, also with the same seed.
        sequential : bool
            Whether `certify` may be called after any number of rows, checked in the order of ``plan.rows``, to stop
            early. This tolerates fewer losses than checking all `m` rows.

        Returns
        -------
        VerificationPlan
            Its ``rows`` are the numbers of the rows to check. Check them without looking at what the model predicts.

        Raises
        ------
        ValueError
            If nothing could be certified: too few rows, or a level that allows more rows to lose their label than can
            lose a candidate. Also if earlier plans leave too little confidence: a plan lowers the confidence of all
            statements about this classifier by 1 − `confidence`, and more than one half must be left.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(400, 2))
        >>> true = np.where(X[:, 0] > 0, "right", "left")
        >>> y = [{label, name} for label, name in zip(true, rng.choice(["left", "right", "up"], 400))]
        >>> classifier = PartialLabelClassifier(max_epochs=10, random_state=0).fit(X, y)
        >>> plan = classifier.plan_verification(60)
        >>> certificate = classifier.certify({row: true[row] for row in plan.rows})
        >>> certificate.statement  # doctest: +ELLIPSIS
        'With 90% confidence, at most 20 of 400 rows (5%; alpha 0.05) have lost their true label: 60 rows drawn ...'
        >>> certificate.candidates.mean_size < classifier.fit_record_.candidates.mean_size
        True
        """
        record, family, levels = self._rules()
        m, n = arguments.integer("m", m, least=1), len(record.candidates)
        terms = certify.Terms.of(alpha, confidence, seed, sequential, family)
        plan = certify.draw(levels, record.held_out, n, m, terms, self.ledger_)
        self.ledger_ = (*self.ledger_, plan)
        return plan

    @usual_settings
    def certify(self, answers: Any, plan: VerificationPlan | None = None) -> Certificate:
        """Remove as many candidates as the checked rows allow, with a bound on the number of lost labels.

        Parameters
        ----------
        answers : mapping of int to name, or sequence of names
            True labels of rows that were checked by hand: by row number, or in the order of ``plan.rows``. None means
            that nobody can tell, "none of these" that no candidate is the true label. Rows of the plan without an
            answer count as lost. Rows outside the plan may be answered, too: their labels are fixed, but only rows that
            were drawn count.
        plan : VerificationPlan, optional
            The plan of these rows, by default the last one in `ledger_`.

        Returns
        -------
        Certificate
            The cleaned candidates and what is certified about them. `candidates_` and `limits_` do not change.

        Notes
        -----
        With the confidence of the certificate, over the draw of the rows, at most a fraction `alpha` of all training
        rows lose their true label. This needs no assumption about networks, groups, or how candidates came about, but
        it needs right answers, by somebody who does not know what the model predicts. `candidly.cleaning.certify` holds
        the proof. To ask again with more answers of the same plan is fine.
        """
        record, family, levels = self._rules()
        plan = verification.find_plan(self.ledger_, plan, family)
        found = verification.read_answers(answers, plan, record.candidates.classes)
        confidence = certify.left(self.ledger_)
        return certify.certify(plan, levels, record.held_out, record.candidates, found, confidence)

    def _rules(self) -> tuple[FitRecord, str, Tensor]:
        """Return the training rows, the hash of the rules that clean them, and the level of each held-out candidate."""
        record = self._training_rows("a certificate")
        if self.budget_ is None:
            self._refuse_to_clean()
        with busy("ordering the candidates", bool(self.verbose)):
            scores = record.scores(record.held_out, self.budget_.temperature)
            levels = self.budget_.levels(scores, record.sets[record.held_out])
            return record, verification.fingerprint(record, self.budget_), levels

    def save(self, folder: str | Path, more: Mapping[str, bytes] = MappingProxyType({}), *, lean: bool = False) -> None:
        """Write the model to a folder: `model.json`, a file of tensors, and further files in `more`, by name.

        A model that the folder holds is replaced: if the process is killed, the old or the new model is complete.

        Parameters
        ----------
        folder : path
        more : mapping of str to bytes
            Further files.
        lean : bool
            Whether to leave out the training rows (`fit_record_`): their candidates, the probabilities of these, and
            the folds. Then the loaded model predicts and cleans further rows at level `alpha_`, but it has no
            `candidates_` and cannot `audit`, `reclean` or `certify`.
        """
        check_is_fitted(self)
        if find_group().rank:
            return
        record = None if arguments.flag("lean", lean) else self.fit_record_
        cleaning = None
        if self.budget_ is not None and self.alpha_ is not None:
            cleaning = Cleaning(self.budget_, self.alpha_, torch.tensor(self.limits_, device="cpu"))
        SavedClassifier(
            self.get_params(deep=False),
            self.model_,
            self.calibration_,
            self.features_,
            self.schema_,
            self.trained_on_,
            cleaning,
            record,
            self.ledger_,
        ).write(arguments.path("folder", folder), more)

    @classmethod
    @usual_settings
    def load(cls, folder: str | Path, net: Factory | None = None, method: Method | None = None) -> Self:
        """Read a model that `save` wrote, without running code from it.

        Parameters
        ----------
        folder : path
        net, method : callable, Method, optional
            Needed if the network or method is user-defined.
        """
        saved = SavedClassifier.read(arguments.path("folder", folder), cls._get_param_names(), net, method)
        classifier = cls(**saved.parameters)
        on_cpu = set(str(classifier.device).split(",")) == {"cpu"}
        place = find_device("cpu" if on_cpu else "auto")  # a model from a GPU also runs without one
        classifier._set_fitted(replace(saved, model=saved.model.to(place)))
        return classifier

    def export(self, path: str | Path) -> None:
        """Write all networks as one program that runs without candidly.

        Its input are encoded rows, as ``features_.transform(X)`` returns them (float32, or bytes for images); its
        output are the probabilities that `predict_proba` returns, up to rounding. Scaling and the mean over all
        networks are part of the program; encoding texts, categories and missing values is not. Class names are in the
        file's metadata.

        Parameters
        ----------
        path : path
            A file that ends in .onnx (``pip install 'candidly[onnx]'``) or in .pt2, for ``torch.export.load``.

        Raises
        ------
        ValueError
            If the name ends differently, or the classifier has scikit-learn learners (`base`) instead of networks.

        Examples
        --------
        >>> import tempfile
        >>> X, y = [[0.0], [0.1], [0.2], [0.8], [0.9], [1.0]], ["cat", "cat", "cat", "dog", "dog", "dog"]
        >>> classifier = PartialLabelClassifier(folds=2, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     classifier.export(f"{folder}/cats.pt2")
        ...     program = torch.export.load(f"{folder}/cats.pt2").module()
        >>> rows = torch.from_numpy(classifier.features_.transform(X)).float()
        >>> np.allclose(program(rows).detach(), classifier.predict_proba(X), atol=1e-5)
        True
        """
        check_is_fitted(self)
        if not isinstance(self.model_, Model):
            raise ValueError(
                f"the classifier has learners of scikit-learn (base={self.base!r}), and only networks can be exported; "
                "convert the estimators in model_.estimators with a tool for scikit-learn"
            )
        exporting.export(self.model_, arguments.path("path", path))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags
