"""scikit-learn classifiers as learners: the algorithm against a literal twin, nesting, odd classifiers, and files."""

import hashlib
import json
import warnings
import zipfile

import numpy as np
import pytest
import sklearn
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from candidly import PartialLabelClassifier, evaluate, scoring
from candidly.candidates import Candidates
from candidly.checks.machine import Shortage
from candidly.estimator import learner_files, learners
from candidly.estimator.folds import make_plan
from candidly.methods import Proden
from candidly.report import summarise
from candidly.store import states

C = 4
FOREST = ExtraTreesClassifier(5)


def rows(n=120, seed=0, extra=0.3):
    """Return features, candidates and true labels of four classes of different sizes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = (X[:, 0] > 0) + 2 * (X[:, 1] > 0.7)
    return X, np.eye(C, dtype=bool)[y] | (rng.random((n, C)) < extra), y


def classifier(base, **settings):
    return PartialLabelClassifier(base=base, **({"folds": 2, "rounds": 2, "random_state": 0} | settings))


def twin(X, S, plan, weights, seed, base, rounds, members):
    """The module's docstring, row by row; returns the learners' probabilities of all rows, (runs, n, C)."""
    found = []
    for run, stream in enumerate(seed.spawn(members * plan.folds)):
        rng = np.random.default_rng(stream)
        trained = [i for i in range(len(plan.index)) if plan.fold[i] != run % plan.folds]
        x = [X[plan.index[i]] for i in trained]
        s = [S[plan.index[i]] for i in trained]
        q = []
        for i, one in zip(trained, s, strict=True):
            w = [1.0 if weights is None else float(weights[plan.index[i], j]) for j in range(C)]
            w = [w[j] if one[j] else 0.0 for j in range(C)]
            w = w if sum(w) else [float(one[j]) for j in range(C)]
            q.append([value / sum(w) for value in w])
        kinds = sorted({one.tobytes() for one in x})
        for _ in range(rounds):
            place = rng.permutation(len(kinds))
            part = [place[kinds.index(one.tobytes())] % learners.PARTS for one in x]
            totals = [sum(one[j] for one in q) for j in range(C)]
            pi = [max(total, 0.5) / len(q) for total in totals]
            p = [None] * len(x)
            for k in range(learners.PARTS):
                rest = [i for i in range(len(x)) if part[i] != k]
                model = twin_fit(base, [x[i] for i in rest], [q[i] for i in rest], rng)
                for i in range(len(x)):
                    if part[i] == k:
                        p[i] = twin_predict(model, x[i], len(rest))
            for i in range(len(x)):
                z = [p[i][j] / pi[j] ** learners.PRIOR_POWER if s[i][j] else 0.0 for j in range(C)]
                q[i] = [value / sum(z) for value in z]
        model = twin_fit(base, x, q, rng)
        found.append([twin_predict(model, one, len(x)) for one in X])
    return np.array(found)


def twin_fit(base, x, q, rng):
    rng.integers(2**31 - 1)  # the seed of the fit
    copies, labels, w = [], [], []
    for one, weights in zip(x, q, strict=True):
        kept = [value if value >= 1e-3 * max(weights) else 0.0 for value in weights]
        for j, value in enumerate(kept):
            if value:
                copies.append(one)
                labels.append(j)
                w.append(value / sum(kept))
    return clone(base).fit(np.array(copies), np.array(labels), sample_weight=np.array(w))


def twin_predict(model, x, n):
    p = np.zeros(C)
    p[model.classes_] = model.predict_proba(x[None])[0]
    return (n * p + 1 / C) / (n + 1)


@pytest.mark.parametrize("weighted", [False, True])
def test_learners_equal_their_twin(weighted):
    X, S, _ = rows(60)
    X = X.astype(np.float64)  # in float32 the order of sums shows
    X[7], S[7] = X[3], S[3]  # equal features are held out together
    weights = np.random.default_rng(1).random((60, C)) if weighted else None
    if weighted:
        weights[5] = 0
    plan = make_plan(X, S, np.ones(60, np.intp), 3, 0, np.random.default_rng(0))
    seed = 5, 6
    given = None if weights is None else torch.from_numpy(weights)
    found = learners.train(
        X,
        Candidates(S, tuple("abcd")),
        plan,
        given,
        np.random.SeedSequence(seed),
        GaussianNB(),
        rounds=3,
        members=2,
        progress=False,
    )
    (_, p), *_ = found.predict_blocks(X)
    expected = twin(X, S, plan, weights, np.random.SeedSequence(seed), GaussianNB(), 3, 2)
    np.testing.assert_allclose(p.numpy(), expected, rtol=1e-6, atol=1e-9)
    assert {name: values.shape for name, values in found.history.items()} == {"loss": (3, 6), "covering_rate": (3, 6)}


def test_candidates_of_held_out_rows_do_not_influence_their_learner():
    X, S, _ = rows()
    plan = make_plan(X, S, np.ones(len(X), np.intp), 3, 0, np.random.default_rng(0))

    def train(sets):
        sets = Candidates(sets, tuple(range(C)))
        seed = np.random.SeedSequence(0)
        found = learners.train(X, sets, plan, None, seed, FOREST, rounds=2, members=1, progress=False)
        return next(found.predict_blocks(X))[1]

    before = train(S)
    changed = S.copy()
    held_out = plan.index[plan.held_out(1)]
    changed[held_out] = np.roll(S[held_out], 1, axis=1)
    after = train(changed)
    assert (before[1] == after[1]).all()
    assert (before[0] != after[0]).any()
    assert (before[2] != after[2]).any()


def test_rows_of_a_group_are_held_out_together():
    """No fit sees a part of a group without the rest, but for the learners' own folds."""
    X, S, _ = rows(60)
    groups = np.arange(60) % 12
    code = {row.tobytes(): group for row, group in zip(X, groups, strict=True)}
    fits = []

    class Watched(GaussianNB):
        def fit(self, X, y, sample_weight=None):
            fits.append({code[row.tobytes()] for row in X})
            return super().fit(X, y, sample_weight)

    plan = make_plan(X, S, np.ones(60, np.intp), 3, 0, np.random.default_rng(0), groups)
    seed, sets = np.random.SeedSequence(0), Candidates(S, tuple(range(C)))
    learners.train(X, sets, plan, None, seed, Watched(), rounds=2, members=1, progress=False)
    assert len(fits) == 3 * (2 * learners.PARTS + 1)
    for run in range(3):
        first, second = fits[5 * run], fits[5 * run + 1]  # the two parts of a round
        assert not first & second
        assert first | second == fits[5 * run + 4]
        assert not fits[5 * run + 4] & set(groups[plan.index[plan.held_out(run)]])


@pytest.mark.parametrize(
    "base",
    [
        "extra-trees",
        FOREST,
        HistGradientBoostingClassifier(max_iter=3),
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(PCA(3), make_pipeline(StandardScaler(), DecisionTreeClassifier())),
        CalibratedClassifierCV(GaussianNB(), cv=2),
        KNeighborsClassifier(3),
        LinearDiscriminantAnalysis(),
    ],
    ids=lambda base: base if isinstance(base, str) else type(base).__name__,
)
def test_any_classifier_with_probabilities_learns(base):
    X, S, y = rows(200)
    before = None if isinstance(base, str) else repr(base.get_params())
    found = classifier(base).fit(X, S)
    assert found.score(X, np.eye(C, dtype=bool)[y]) > 0.75
    assert before is None or repr(base.get_params()) == before
    np.testing.assert_allclose(found.predict_proba(X).sum(1), 1)
    again = classifier(base).fit(X, S)
    np.testing.assert_array_equal(again.predict_proba(X), found.predict_proba(X))


@pytest.mark.parametrize(("power", "low", "high"), [(0, 0, 0.75), (learners.PRIOR_POWER, 0.85, 1)])
def test_frequent_wrong_candidates_are_not_taken_for_labels(power, low, high, monkeypatch):
    """Candidates are all that is in a picture: a frequent class is in most sets, and the label of few rows."""
    monkeypatch.setattr(learners, "PRIOR_POWER", power)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(600) < 0.6, 0, rng.integers(1, C, 600))
    X = rng.normal(size=(600, 8)) + 3 * np.eye(C, 8)[y]
    bags = rng.permutation(600) // 3
    S = np.zeros((200, C), bool)
    S[bags, y] = True
    learned = classifier(ExtraTreesClassifier(30), rounds=4).fit(X, S[bags])
    assert low < (learned.transduction_ == y).mean() < high


def test_results_of_training_rows_survive_zeros_and_ones():
    X, S, y = rows(300, extra=0.2)
    learned = classifier(DecisionTreeClassifier()).fit(X, S)  # whose probabilities are 0 and 1
    p = learned.fit_record_.p.log()
    assert p.isfinite().all()
    assert p.min() > -12  # one more row of unknown class
    assert 1 <= learned.budget_.temperature < 10
    assert np.isfinite(learned.candidate_proba_).all()
    assert (learned.candidates_.sizes >= 1).all()
    assert learned.audit(y).levels
    assert 0 < learned.predict_set(X).mean() < 1
    assert evaluate(learned, X, y).accuracy > 0.8
    facts = summarise(learned, y_true=y)
    assert "2 DecisionTreeClassifier were trained with label weights that were estimated in 2 rounds." in facts.words
    assert facts.settings["base"] == "DecisionTreeClassifier()"
    assert set(facts.history) == {"loss", "covering_rate"}


def test_classes_without_rows_are_possible():
    X, S, _ = rows()
    learned = classifier(FOREST, classes=[*range(C), "never", "also never"]).fit(X, np.pad(S, ((0, 0), (0, 2))))
    p = learned.predict_proba(X)
    assert p.shape == (len(X), C + 2)
    assert ((p[:, C:] > 0) & (p[:, C:] < 0.01)).all()


def test_a_single_class_is_learned_without_the_base():
    with pytest.warns(UserWarning, match="all 8 rows have the same candidates"):
        learned = classifier(LogisticRegression(), classes=["cat", "dog"]).fit(np.arange(8.0)[:, None], ["cat"] * 8)
    assert learned.predict([[3.0]]).tolist() == ["cat"]


def test_weights_of_rows_and_labels_members_and_one_fold():
    X, S, y = rows()
    one = classifier(FOREST, folds=1, validation_fraction=0.25, members=2).fit(X, S)
    assert one.model_.runs == 2
    assert len(one.fit_record_.held_out) == 30
    copies = np.random.default_rng(0).integers(0, 3, len(X))
    assert classifier(FOREST).fit(X, S, sample_weight=copies).model_.rows[0] <= copies.sum()
    unlabelled = np.ones_like(S)
    unlabelled[0] = S[0]
    sure = classifier(FOREST, folds=1, rounds=1).fit(X, unlabelled, weights=np.eye(C)[y])
    assert (sure.predict(X) == y).mean() > 0.6


def test_images_are_flattened():
    X, S, _ = rows(40)
    images = (np.abs(np.repeat(X[:, :, None, None], 4, axis=2)) * 60).clip(0, 255).astype(np.uint8)
    learned = classifier(FOREST).fit(images, S)
    assert learned.predict_proba(images[:3]).shape == (3, C)
    assert learned.model_.shape == images.shape[1:]


def test_parameters_of_the_base_can_be_searched():
    X, S, _ = rows(60)
    search = GridSearchCV(
        classifier(DecisionTreeClassifier(), rounds=1),
        {"base__max_depth": [1, 3], "base": [DecisionTreeClassifier(), ExtraTreesClassifier(2)]},
        scoring=scoring.covering_rate,
        cv=KFold(2),
    ).fit(X, Candidates(S, tuple(range(C))))
    assert search.best_params_["base__max_depth"] in (1, 3)
    assert classifier(DecisionTreeClassifier()).get_params()["base__max_depth"] is None
    with pytest.raises(ValueError, match="base__max_depth is a setting of base, which is 'extra-trees'"):
        classifier("extra-trees").set_params(base__max_depth=3)


class Diverging(ClassifierMixin, BaseEstimator):
    """Predicts NaN."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), np.nan)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": ExtraTreesClassifier}, "base is the class ExtraTreesClassifier; pass an instance"),
        ({"base": 3}, "base is 3; it must be a scikit-learn classifier, None, or one of extra-trees"),
        ({"base": "trees"}, "unknown base 'trees'; use one of extra-trees"),
        ({"base": LinearSVC()}, r"base is LinearSVC\(\), which has no predict_proba"),
        ({"base": make_pipeline(StandardScaler(), SGDClassifier())}, "which has no predict_proba"),
        ({"base": FOREST, "method": Proden()}, "method is Proden.*applies to networks, and base is ExtraTrees"),
        ({"base": FOREST, "cleaner": "clsp"}, "cleaner is 'clsp', but it applies to networks"),
        ({"base": FOREST, "net": "linear"}, "net is 'linear', but it applies to networks"),
        ({"base": FOREST, "early_stopping": True}, "early_stopping is True, but it applies to networks"),
        ({"base": FOREST, "max_epochs": 5}, "max_epochs is 5, but it applies to networks"),
        ({"base": FOREST, "rounds": 0}, "rounds is 0; it must be an integer of at least 1"),
        ({"base": ExtraTreesClassifier(0)}, "base cannot be fitted: .*n_estimators"),
        ({"base": Diverging()}, "base, Diverging, returns probabilities that are not finite"),
        ({"base": FOREST, "members": 10_000}, "20000 learners would be fitted, and at most 10000 can be"),
    ],
)
def test_what_cannot_be_learned_with_is_refused(settings, message):
    X, S, _ = rows(20)
    with pytest.raises(ValueError, match=message):
        PartialLabelClassifier(**{"folds": 2, "rounds": 1, **settings}).fit(X, S)


def test_cleaner_may_be_none_and_defaults_may_be_numpy_values():
    X, S, _ = rows(30)
    settings = {"cleaner": None, "weight_decay": np.float64(1e-4), "n_iter_no_change": np.int64(10)}
    assert classifier(FOREST, **settings).fit(X, S).n_iter_ == 2


def test_rows_for_which_memory_is_missing_are_refused(monkeypatch):
    monkeypatch.setattr("candidly.checks.machine.available_memory", lambda: 2**16)
    monkeypatch.setattr("candidly.engine.memory._SMALL", 0)
    X, S, _ = rows(5000)
    with pytest.raises(Shortage, match="5000 rows, repeated for each of their candidates"):
        classifier(FOREST).fit(X, S)


def test_metadata_routing_does_not_matter():
    X, S, _ = rows(40)
    with sklearn.config_context(enable_metadata_routing=True):
        found = classifier(make_pipeline(StandardScaler(), GaussianNB())).fit(X, S)
    plain = classifier(make_pipeline(StandardScaler(), GaussianNB())).fit(X, S)
    np.testing.assert_array_equal(found.predict_proba(X), plain.predict_proba(X))


# --- files ---


@pytest.mark.parametrize(
    "base",
    [
        "hist-gradient-boosting",
        FOREST,
        RandomForestClassifier(3),
        HistGradientBoostingClassifier(max_iter=3),
        LogisticRegression(),
        make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=2)),
    ],
    ids=lambda base: base if isinstance(base, str) else type(base).__name__,
)
def test_a_loaded_model_predicts_the_same_bits(base, tmp_path):
    pytest.importorskip("skops")
    X, S, _ = rows(60)
    learned = classifier(base, rounds=1).fit(X, S)
    learned.save(tmp_path / "model", {"notes.txt": b"mine"})
    loaded = PartialLabelClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), learned.predict_proba(X))
    np.testing.assert_array_equal(loaded.predict_set(X), learned.predict_set(X))
    assert repr(loaded) == repr(learned)
    assert loaded.n_iter_ == 1
    again = loaded.fit(X, S)
    np.testing.assert_array_equal(again.predict_proba(X), learned.predict_proba(X))


def test_a_single_class_can_be_saved(tmp_path):
    pytest.importorskip("skops")
    with pytest.warns(UserWarning, match="all 8 rows have the same candidates"):
        learned = classifier(LogisticRegression(), classes=["cat", "dog"]).fit(np.arange(8.0)[:, None], ["cat"] * 8)
    learned.save(tmp_path)
    assert PartialLabelClassifier.load(tmp_path).predict([[3.0]]).tolist() == ["cat"]


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (GaussianNB(), "GaussianNB"),
        (make_pipeline(PCA(2), LogisticRegression()), "PCA"),
        (make_pipeline(StandardScaler(), GaussianNB()), "GaussianNB"),
    ],
)
def test_other_types_refuse_to_be_saved(base, name, tmp_path):
    X, S, _ = rows(40)
    learned = classifier(base, rounds=1).fit(X, S)
    with pytest.raises(ValueError, match=f"a model with a base of type {name} cannot be saved; use one of ExtraTrees"):
        learned.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_skops_is_asked_for(monkeypatch, tmp_path):
    X, S, _ = rows(40)
    learned = classifier(FOREST, rounds=1).fit(X, S)
    monkeypatch.setattr(learner_files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'candidly\[skops\]'"):
        learned.save(tmp_path / "model")


@pytest.fixture
def saved(tmp_path):
    """Return the parts of a saved forest, and a function that reads them."""
    pytest.importorskip("skops")
    X, S, _ = rows(60)
    learned = classifier(FOREST, rounds=1).fit(X, S)
    return learner_files.to_parts(learned.model_)


def read(parts, data=None, **changes):
    tensors, facts, files = parts
    content = files[learner_files.FILE] if data is None else data
    known = facts["learners"] | {"sha256": hashlib.sha256(content).hexdigest()} | changes
    return learner_files.of_parts(tensors, known, content)


def forged(**changes):
    """Return a file of skops with other content."""
    import skops.io

    return skops.io.dumps(changes)


def test_damaged_files_are_refused(saved, tmp_path):
    data = saved[2][learner_files.FILE]
    assert read(saved).runs == 2
    for wrong in (b"", data[:1000], data[:-200], b"PK" + data[2:50]):
        with pytest.raises(ValueError, match="the learners cannot be read"):
            read(saved, wrong)
    with pytest.raises(ValueError, match="the checksum"):
        read(saved, sha256="0" * 64)
    for name, value in (("rows", [3]), ("rows", "no"), ("shape", [2]), ("classes", [0, 1]), ("shape", [])):
        with pytest.raises(ValueError, match="the learners cannot be read"):
            read(saved, **{name: value})


def test_flipped_bits_are_noticed(tmp_path):
    pytest.importorskip("skops")
    X, S, _ = rows(40)
    classifier(FOREST, rounds=1).fit(X, S).save(tmp_path)
    [path] = tmp_path.glob(f"*.{learner_files.FILE}")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="is truncated or was changed"):
        PartialLabelClassifier.load(tmp_path)


def test_other_types_are_not_created(saved):
    for base in (GaussianNB(), make_pipeline(StandardScaler(), GaussianNB()), np.zeros(2), 3):
        with pytest.raises(ValueError, match=r"a model with a base of type|the learners cannot be read"):
            read(saved, forged(base=base, estimators=[FOREST, FOREST]))
    for estimators in ([FOREST, FOREST], [GaussianNB()] * 2, 3, [3, 4]):
        with pytest.raises(ValueError, match="the learners cannot be read"):
            read(saved, forged(base=FOREST, estimators=estimators))
    with pytest.raises(ValueError, match=r"a type in it is \['.*Diverging'\]"):
        read(saved, forged(base=FOREST, estimators=[Diverging()]))


@pytest.mark.parametrize("field", ["left_child", "right_child", "feature"])
def test_trees_that_point_outside_are_refused(field, saved):
    import skops.io

    content = skops.io.loads(saved[2][learner_files.FILE], trusted=learner_files._TRUSTED)
    tree = content["estimators"][0].estimators_[0].tree_
    state = tree.__getstate__()
    state["nodes"][field][0] = 10**6
    tree.__setstate__(state)
    with pytest.raises(ValueError, match=r"a child of a node|the feature of a node"):
        read(saved, forged(**content))


@pytest.mark.parametrize("field", ["left", "right", "feature_idx", "is_categorical"])
def test_boosted_trees_that_point_outside_are_refused(field):
    pytest.importorskip("skops")
    X, S, _ = rows(200)
    model = classifier(HistGradientBoostingClassifier(max_iter=2), rounds=1).fit(X, S).model_
    nodes = model.estimators[0]._predictors[0][0].nodes
    nodes[field][0] = 1 if field == "is_categorical" else 10**6
    with pytest.raises(ValueError, match=r"a child of a node|the feature of a node|the categories of a tree"):
        read(learner_files.to_parts(model))


def test_files_that_expand_too_much_are_refused(saved, monkeypatch):
    monkeypatch.setenv("CANDIDLY_MAX_BYTES", "10000")
    with pytest.raises(ValueError, match=r"learners\.skops takes at least"):
        read(saved)


def test_another_version_of_scikit_learn_is_pointed_out(saved):
    with pytest.warns(UserWarning, match=r"saved with scikit-learn 1\.0 and is loaded with"):
        assert read(saved, **{"scikit-learn": "1.0"}).runs == 2


def test_files_hold_no_code(saved, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(saved[2][learner_files.FILE])
    with zipfile.ZipFile(path) as archive:
        assert {name.rpartition(".")[2] for name in archive.namelist()} <= {"npy", "json"}
        json.loads(archive.read("schema.json"))


def test_models_of_networks_have_no_further_file(tmp_path):
    X, S, _ = rows(40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PartialLabelClassifier(folds=2, max_epochs=1, random_state=0).fit(X, S).save(tmp_path)
    with pytest.raises(KeyError):
        states.read_more(tmp_path, learner_files.FILE)
    assert PartialLabelClassifier.load(tmp_path).base is None
