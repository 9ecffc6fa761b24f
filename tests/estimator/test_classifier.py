import copy
import json
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from candidly import Clsp, Conformal, Oracle, PartialLabelClassifier, candidates, data, metrics, report
from candidly.cleaning.audit import ALPHAS
from candidly.cleaning.budget import Budget
from candidly.data import corrupt
from candidly.estimator import Rule, crossfit, evaluate, scoring
from candidly.methods import Cc, Pop
from candidly.report.facts import ReportFacts
from candidly.tables import columns
from tests.store.cases import forge_index

pytestmark = pytest.mark.usefixtures("narrow_networks")

NAMES = ("ant", "bee", "cow")


def made(n=60, seed=0):
    """Three clouds, their candidate sets and their true classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, 3)) + 4 * np.eye(3)[y]
    S = np.eye(3, dtype=bool)[y] | (rng.random((n, 3)) < 0.3)
    return X, S, y


def cheap(**changes):
    settings = {"members": 1, "folds": 2, "max_epochs": 18, "device": "cpu", "random_state": 0}
    return PartialLabelClassifier(**(settings | changes))


def lists(S):
    return [[name for name, there in zip(NAMES, row, strict=True) if there] for row in S]


@pytest.fixture(scope="module")
def fitted():
    X, S, _ = made()
    return cheap().fit(X, lists(S))


@pytest.fixture(scope="module")
def cleaned():
    """Enough rows to clean by."""
    X, S, _ = made(150)
    return cheap().fit(X, lists(S))


X, S, Y = made()
FORMS = {
    "boolean matrix": (S, {"classes": NAMES}),
    "0-1 matrix": (S.astype(int), {"classes": NAMES}),
    "sparse matrix": (scipy.sparse.csr_matrix(S), {"classes": NAMES}),
    "frame of a matrix": (pd.DataFrame(S, columns=list(NAMES)), {}),
    "lists": (lists(S), {}),
    "sets": ([set(row) for row in lists(S)], {}),
    "candidates": (candidates.encode(lists(S)), {}),
    "pandas column": (pd.Series(lists(S)), {}),
    "arrow column": (pa.chunked_array([pa.array(lists(S))]), {}),
    "arrow array": (pa.array(lists(S)), {}),
    "texts": (["|".join(row) for row in lists(S)], {"separator": "|"}),
    "pandas texts": (pd.Series(["|".join(row) for row in lists(S)]), {"separator": "|"}),
    "arrow texts": (pa.array(["|".join(row) for row in lists(S)]), {"separator": "|"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_candidates_come_in_many_forms(form, fitted):
    y, settings = FORMS[form]
    again = cheap(**settings).fit(X, y)
    assert again.classes_.tolist() == list(NAMES)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.score(X, y) == fitted.score(X, S)


def test_polars_columns():
    pl = pytest.importorskip("polars", reason="polars is not installed")
    y = pl.Series("candidates", lists(S))
    again = cheap().fit(pl.DataFrame(X, schema=["a", "b", "c"]), y)
    assert again.classes_.tolist() == list(NAMES)
    assert again.feature_names_in_.tolist() == ["a", "b", "c"]


def test_what_was_learned(fitted):
    assert (fitted.predict(X) == np.array(NAMES)[Y]).mean() > 0.9
    assert set(fitted.transduction_) <= set(NAMES)
    column = {name: j for j, name in enumerate(NAMES)}
    assert all(S[i, column[name]] for i, name in enumerate(fitted.transduction_))
    assert fitted.confidence_.shape == (60,)
    assert ((fitted.confidence_ > 0) & (fitted.confidence_ <= 1)).all()
    assert fitted.n_features_in_ == 3
    assert not hasattr(fitted, "feature_names_in_")
    assert fitted.history_["covering_rate"].shape == (18, 2)
    np.testing.assert_allclose(fitted.predict_proba(X).sum(1), 1)


def test_rows_are_scored_by_networks_that_did_not_train_on_them():
    """A network that saw a row would repeat whatever label it has; one that did not cannot know a label of noise."""
    rng = np.random.default_rng(0)
    noise, labels = rng.normal(size=(80, 5)), rng.integers(2, size=80)
    settings = {"max_epochs": 100, "cleaner": None}
    seen = cheap(folds=1, validation_fraction=0.0, **settings).fit(noise, labels)
    assert (seen.predict(noise) == labels).mean() > 0.95
    unseen = cheap(folds=4, **settings).fit(noise, labels)
    p = unseen.model_.predict(unseen.features_.transform(noise)).numpy()  # (4, n, 2)
    own = p.max(0) > 0.9
    assert own.any(1).mean() > 0.9  # three of four networks know each row by heart
    assert unseen.fit_record_.p.mean() < 0.75  # the fourth does not


def test_the_order_of_rows_does_not_matter(cleaned):
    X, S, y = made(150)
    order = np.random.default_rng(1).permutation(150)
    again = cheap().fit(X[order], candidates.encode(lists(S[order])))
    np.testing.assert_array_equal(again.predict_proba(X), cleaned.predict_proba(X))
    np.testing.assert_array_equal(again.candidate_proba_, cleaned.candidate_proba_[order])
    np.testing.assert_array_equal(again.candidates_.matrix, cleaned.candidates_.matrix[order])
    true = np.array(NAMES)[y]
    assert again.audit(true[order]) == cleaned.audit(true)


def test_candidates_are_cleaned_by_the_budget(cleaned):
    X, S, y = made(150)
    rule, kept, sets = cleaned.budget_, cleaned.candidates_.matrix, torch.from_numpy(S)
    encoded, fold = cleaned.features_.transform(X), cleaned.fit_record_.fold
    p = crossfit.out_of_fold(cleaned.model_, encoded, fold, 2, progress=False)
    again = Budget.of(p.log(), sets)
    assert (rule.temperature, rule.cautious) == pytest.approx((again.temperature, again.cautious), rel=1e-6)
    np.testing.assert_array_equal(kept, rule.keep(p.log(), sets, 0.05).numpy())
    np.testing.assert_allclose(cleaned.candidate_proba_, rule.probabilities(p.log(), sets), rtol=1e-6)
    record = cleaned.fit_record_
    np.testing.assert_array_equal(record.p, p[sets])
    np.testing.assert_array_equal(record.top, p.argmax(1))
    np.testing.assert_array_equal(record.top_p, p.amax(1))
    np.testing.assert_allclose(cleaned.candidate_proba_.sum(1), 1, rtol=1e-5)
    assert (cleaned.candidate_proba_[~S] == 0).all()
    assert (kept <= S).all()
    assert kept.sum() < S.sum()
    best = [NAMES.index(name) for name in cleaned.transduction_]
    assert kept[np.arange(150), best].all()
    assert kept[np.arange(150), y].mean() > 0.9


def test_a_higher_level_removes_more():
    X, S, _ = made(150)
    X = X / 4 + np.random.default_rng(0).normal(size=X.shape)  # clouds that overlap
    kept = [cheap(alpha=alpha, max_epochs=10).fit(X, S).candidates_.matrix for alpha in (0.01, 0.1, 0.4)]
    assert (kept[0] >= kept[1]).all()
    assert (kept[1] >= kept[2]).all()
    assert S.sum() > kept[0].sum() > kept[1].sum() > kept[2].sum()


@pytest.mark.parametrize(("rows", "enough"), [(99, False), (100, True)])
def test_a_hundred_rows_are_enough_to_clean_by(rows, enough):
    X, S, _ = made(rows)
    classifier = cheap(max_epochs=15).fit(X, S)
    assert (classifier.budget_ is not None) == enough
    assert (classifier.candidates_.matrix < S).any() == enough
    said = " ".join(report.summarise(classifier).words)
    assert (
        "There are fewer than 100 held-out rows, too few for estimates, so no candidate was removed." in said
    ) != enough
    assert ("The least likely candidates of each class were removed" in said) == enough
    assert (report.summarise(classifier).audit is None) != enough
    np.testing.assert_allclose(classifier.candidate_proba_.sum(1), 1, rtol=1e-5)


def test_rows_without_weight_are_not_cleaned():
    X, S, _ = made(220)
    weight = np.arange(220) % 2
    classifier = cheap(max_epochs=15).fit(X, S, sample_weight=weight)
    changed = (classifier.candidates_.matrix != S).any(1)
    assert changed[weight == 1].mean() > 0.3
    assert not changed[weight == 0].any()
    assert classifier.audit().levels[-1].candidates < (S.sum() - 220) * 0.6  # of half the rows
    few = cheap(max_epochs=2).fit(X[:80], S[:80], sample_weight=np.full(80, 2))
    assert few.budget_ is None  # copies are no more rows
    with pytest.raises(ValueError, match="an audit needs at least 100 held-out rows, and there are 80"):
        few.audit()


def test_with_one_fold_only_held_out_rows_are_cleaned():
    X, S, _ = made(240)
    classifier = cheap(folds=1, validation_fraction=0.5, max_epochs=15).fit(X, S)
    held_out = np.isin(np.arange(240), classifier.fit_record_.held_out)
    changed = (classifier.candidates_.matrix != S).any(1)
    assert held_out.sum() == 120
    assert changed[held_out].mean() > 0.3
    assert not changed[~held_out].any()
    assert "120 rows were held out; the networks that scored the other rows were trained on them." in (
        report.summarise(classifier).words
    )
    few = cheap(folds=1, validation_fraction=0.25, max_epochs=2).fit(X, S)
    assert few.budget_ is None
    np.testing.assert_array_equal(few.candidates_.matrix, S)
    with pytest.raises(
        ValueError, match=r"an audit needs at least 100 held-out rows, and there are 60; add rows, or set folds"
    ):
        few.audit()


def test_an_audit_estimates_and_shows_the_truth(cleaned):
    _, S, y = made(150)
    true = np.array(NAMES)[y]
    told, untold = cleaned.audit(true), cleaned.audit()
    assert [level.alpha for level in untold.levels] == list(ALPHAS)
    kept = cleaned.candidates_.matrix
    used = told.levels[ALPHAS.index(0.05)]
    assert used.candidates == S.sum() - kept.sum()
    assert used.true_lost == pytest.approx(1 - kept[np.arange(150), y].mean())
    wrong = S & ~np.eye(3, dtype=bool)[y]
    assert used.true_removed == pytest.approx((wrong & ~kept).sum() / wrong.sum())
    assert used.lost.low <= used.true_lost <= used.lost.high
    assert [level.lost for level in told.levels] == [level.lost for level in untold.levels]
    assert {level.true_lost for level in untold.levels} == {None}
    assert report.summarise(cleaned, y_true=true).audit == told.to_json()
    assert report.summarise(cleaned).audit == untold.to_json()


def test_an_audit_takes_labels_in_many_forms_and_levels_of_any_kind(cleaned):
    true = np.array(NAMES)[made(150)[2]]
    wanted = cleaned.audit(true, alphas=[0.1])
    for labels in (true.tolist(), pd.Series(true, index=range(7, 157)), pa.array(true), pa.chunked_array([true])):
        assert cleaned.audit(labels, alphas=[0.1]) == wanted
    partly = cleaned.audit([*true[:30], *[None] * 119, "wasp"], alphas=[0.1]).levels[0]
    assert partly.lost == wanted.levels[0].lost
    assert partly.true_lost is not None
    assert cleaned.audit([None] * 150, alphas=[0.1]).levels[0].true_lost is None
    found = cleaned.audit(alphas=np.array([0.2, 0.1], np.float32))
    assert json.loads(json.dumps(found.to_json()))["levels"][0]["alpha"] == pytest.approx(0.1)


def test_audits_that_cannot_be_made(fitted, cleaned, tmp_path):
    with pytest.raises(
        ValueError, match="an audit needs at least 100 held-out rows, and there are 60; add rows, or set folds=5"
    ):
        fitted.audit()
    none = cheap(folds=1, validation_fraction=0.0, max_epochs=2).fit(X, S)
    with pytest.raises(ValueError, match="and there are 0"):
        none.audit()
    for wrong in (0, 1, 5, "low", None):
        with pytest.raises(ValueError, match=r"one of alphas is .*; it must lie between 0 and 1"):
            cleaned.audit(alphas=[0.1, wrong])
    with pytest.raises(ValueError, match="there are 150 rows but 2 true labels; pass one per row"):
        cleaned.audit(["ant", "bee"])
    with pytest.raises(
        ValueError, match="no true label is one of the classes; the first label is 'gnu', the first class 'ant'"
    ):
        cleaned.audit([None, *["gnu"] * 149])
    with pytest.raises(ValueError, match="alphas has 121 levels; give at least one and fewer than 100"):
        report.summarise(cleaned, alphas=np.linspace(0.01, 0.5, 120))
    with pytest.raises(NotFittedError):
        cheap().audit()
    cleaned.save(tmp_path / "model", lean=True)
    with pytest.raises(ValueError, match=r"saved without its training rows, which an audit needs: with --lean"):
        PartialLabelClassifier.load(tmp_path / "model").audit()


def test_true_labels_may_come_in_many_forms(cleaned):
    true = [None, *cleaned.transduction_[1:]]
    wanted = cleaned.audit(true, [0.1])
    assert wanted.levels[0].true_lost is not None
    column = pd.Series(true, dtype="string")  # with pandas' NA
    for form in (column, np.array(true, dtype=object)[:, None], pa.array(true)):
        assert cleaned.audit(form, iter([0.1])) == wanted


def test_reports_say_what_was_fitted_with(cleaned):
    changed = copy.deepcopy(cleaned).set_params(alpha=0.2, lr=0.5)
    assert report.summarise(changed).settings == report.summarise(cleaned).settings
    assert report.summarise(changed).words == report.summarise(cleaned).words


def test_weights_do_not_make_more_rows_to_compare_with(fitted):
    heavy = cheap().fit(X, S, sample_weight=np.full(60, 3))
    assert heavy.calibration_.counts.sum() == fitted.calibration_.counts.sum() == 60


def test_weights_are_copies():
    weight = np.array([0, 1, 2] * 20)
    rows = np.repeat(np.arange(60), weight)
    weighted = cheap().fit(X, S, sample_weight=weight)
    repeated = cheap().fit(X[rows], S[rows])
    np.testing.assert_array_equal(weighted.predict_proba(X), repeated.predict_proba(X))
    assert len(weighted.candidates_) == 60


def test_start_weights_matter_and_are_checked(fitted):
    votes = np.where(np.eye(3, dtype=bool)[Y], 5, 1) * S
    told = cheap(max_epochs=1).fit(X, S, weights=votes)
    untold = cheap(max_epochs=1).fit(X, S)
    assert not np.array_equal(told.predict_proba(X), untold.predict_proba(X))
    with pytest.raises(ValueError, match=r"weights has shape \(60, 2\)"):
        cheap().fit(X, S, weights=votes[:, :2])


def test_tables_with_all_kinds_of_columns():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"size": X[:, 0], "colour": np.array(["red", "green"])[rng.integers(2, size=60)], "x": X[:, 1]}
    )
    table.loc[3, "size"] = np.nan
    table.loc[5, "colour"] = None
    classifier = cheap().fit(table, lists(S))
    assert classifier.feature_names_in_.tolist() == ["size", "colour", "x"]
    said = " ".join(classifier.features_.describe())
    assert "standardised" in said
    assert "categories" in said
    np.testing.assert_array_equal(classifier.predict(table[["x", "colour", "size"]]), classifier.predict(table))
    arrow = pa.Table.from_pandas(table)
    np.testing.assert_array_equal(classifier.predict(arrow), classifier.predict(table))
    with pytest.raises(ValueError, match="lacks the columns 'colour'"):
        classifier.predict(table[["size", "x"]])


def test_images_with_a_network_of_ones_own():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 100, (40, 1, 4, 4), dtype=np.uint8)
    y = rng.integers(2, size=40)
    images[y == 1, 0, :2] += 100

    def net():
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 2)
        )

    classifier = cheap(net=net, max_epochs=20).fit(images, y)
    assert classifier.score(images, y) > 0.9


def test_sets_are_nested_and_cover(fitted):
    sets = [fitted.predict_set(X, alpha) for alpha in (0.05, 0.2, 0.5)]
    assert (sets[0] >= sets[1]).all()
    assert (sets[1] >= sets[2]).all()
    assert sets[0].sum() > sets[2].sum()
    assert sets[0][np.arange(60), Y].mean() > 0.85
    assert (fitted.predict_set(X, 0.2, candidate="worst") >= sets[1]).all()


RULES = [
    {"kind": kind, "score": score, "candidate": candidate, "smooth": smooth}
    for kind in ("split", "cv+", "averaged")
    for score in ("lac", "aps")
    for candidate in ("best", "mean", "pooled", "worst", "singletons")
    for smooth in (False, True)
]


def test_sets_are_p_values_above_the_level(fitted):
    np.testing.assert_array_equal(fitted.predict_p(X), fitted.predict_p(X, kind="cv+", score="lac", candidate="best"))
    seen = set()
    for rule in RULES:
        p = fitted.predict_p(X, **rule)
        assert p.shape == (60, 3)
        assert p.dtype == np.float64
        assert ((p >= 0) & (p <= 1)).all()
        for alpha in (0.15, np.float64(0.3), np.float32(0.5)):
            np.testing.assert_array_equal(fitted.predict_set(X, alpha, **rule), p > float(alpha))
        seen.add(p.tobytes())
    assert len(seen) == len(RULES)  # each is something else


def test_probabilities_and_several_rules_take_one_pass(fitted, monkeypatch):
    rules = [Rule(**rule) for rule in RULES]
    wanted = [fitted.predict_proba(X), *(fitted.predict_p(X, **rule) for rule in RULES)]
    passes, original = [], type(fitted.model_).predict_blocks
    monkeypatch.setattr(
        type(fitted.model_), "predict_blocks", lambda model, rows: passes.append(len(rows)) or original(model, rows)
    )
    p, p_values = fitted.predict_all(X, rules)
    assert passes == [len(X)]
    for found, one in zip([p, *p_values], wanted, strict=True):
        np.testing.assert_array_equal(found, one)
    assert fitted.predict_all(X)[1] == []
    passes.clear()
    evaluate(fitted, X, np.array(NAMES)[Y])
    assert passes == [len(X)]


def test_fit_reads_its_rows_once(monkeypatch):
    reads, original = [], columns.read
    monkeypatch.setattr(columns, "read", lambda X: reads.append(type(X).__name__) or original(X))
    monkeypatch.setattr("candidly.tables.features.read", columns.read)
    table = pd.DataFrame({"a": X[:, 0], "b": ["x", "y", None] * 20})
    cheap(max_epochs=1).fit(table, S)
    assert reads == ["DataFrame", "Table", "Table"]  # which come back as they are


def test_worse_candidates_give_larger_sets(fitted):
    for score in ("lac", "aps"):
        found = [fitted.predict_p(X, score=score, candidate=one) for one in ("best", "mean", "worst")]
        assert (found[0] <= found[1]).all()
        assert (found[1] <= found[2]).all()
    assert (fitted.predict_p(X, smooth=True) <= fitted.predict_p(X)).all()


def test_a_row_has_the_same_p_values_everywhere(fitted):
    rule = {"score": "aps", "smooth": True}
    whole = fitted.predict_p(X, **rule)
    order = np.random.default_rng(2).permutation(60)
    np.testing.assert_array_equal(fitted.predict_p(X[order], **rule), whole[order])
    np.testing.assert_array_equal(fitted.predict_p(X[7:9], **rule), whole[7:9])
    np.testing.assert_array_equal(fitted.predict_p(np.repeat(X, 3, axis=0), **rule), np.repeat(whole, 3, axis=0))
    other = cheap(random_state=1).fit(X, S)
    assert other.calibration_.seed != fitted.calibration_.seed


def test_one_fold_makes_all_kinds_alike():
    one = cheap(folds=1, validation_fraction=0.5, max_epochs=3).fit(X, S)
    found = [one.predict_p(X, kind=kind, score="aps") for kind in ("split", "cv+", "averaged")]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_split_sets_go_by_the_first_folds_networks(fitted):
    p = fitted.model_.predict(fitted.features_.transform(X)).numpy()  # (2, n, 3)
    scores, counts = fitted.calibration_.scores["lac.best"][0].numpy(), fitted.calibration_.counts
    wanted = (1 + (scores[:, None, None] <= p[0]).sum(0)) / (1 + int(counts[0]))
    np.testing.assert_allclose(fitted.predict_p(X, kind="split"), wanted, atol=2 / 31)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"kind": "cv"}, r"kind is 'cv'; use one of split, cv\+, averaged"),
        ({"score": "worst"}, "score is 'worst'; use one of lac, aps"),
        ({"candidate": "true"}, "candidate is 'true'; use one of best, mean, pooled, worst, singletons"),
        ({"smooth": 1}, "smooth is 1; use True or False"),
    ],
)
def test_unknown_rules_are_refused(fitted, rule, message):
    for call in (fitted.predict_p, fitted.predict_set):
        with pytest.raises(ValueError, match=message):
            call(X, **rule)


def test_singletons_must_be_there():
    pairs = ~np.eye(3, dtype=bool)[Y]
    classifier = cheap(max_epochs=2).fit(X, pairs)
    with pytest.raises(ValueError, match="no held-out row has a single candidate"):
        classifier.predict_set(X, candidate="singletons")
    few = pairs.copy()
    few[:4] = np.eye(3, dtype=bool)[Y[:4]]
    with pytest.warns(UserWarning, match=r"4 held-out rows with one candidate are too few for alpha = 0.1"):
        assert cheap(max_epochs=2).fit(X, few).predict_set(X, candidate="singletons").all()


def test_rows_that_are_too_risky_are_not_predicted(fitted):
    plain, confidence = fitted.predict(X), fitted.predict_proba(X).max(1)
    curve = fitted.risk_curve_
    assert set(curve) == {"threshold", "coverage", "risk"}
    assert (np.diff(curve["threshold"]) <= 0).all()
    assert (np.diff(curve["coverage"]) >= 0).all()
    assert curve["coverage"][-1] == 1
    accepted = []
    for risk in (curve["risk"].min() + 1e-6, np.median(curve["risk"]), 0.999):
        found = fitted.predict(X, max_risk=risk)
        assert found.dtype == object
        there = np.array([name is not None for name in found])
        np.testing.assert_array_equal(found[there], plain[there])
        limit = curve["threshold"][np.flatnonzero(curve["risk"] <= risk)[-1]]
        np.testing.assert_array_equal(there, confidence >= limit)
        accepted.append(there.sum())
    assert accepted == sorted(accepted)
    assert accepted[0] < accepted[-1]
    for wrong in (0, 1, -0.1, "low"):
        with pytest.raises(ValueError, match="max_risk is"):
            fitted.predict(X, max_risk=wrong)


def test_abstaining_leaves_fewer_errors():
    """Two classes that overlap: of those that are predicted, about as many are wrong as asked for, at most."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=800)
    rows = rng.normal(size=(800, 2)) + np.array([[0, 0], [1.5, 0]])[y]
    classifier = cheap(folds=4, net="linear", max_epochs=15, cleaner=None).fit(rows[:400], y[:400])
    plain = (classifier.predict(rows[400:]) != y[400:]).mean()
    found = classifier.predict(rows[400:], max_risk=0.1)
    there = np.array([name is not None for name in found])
    assert plain > 0.15
    assert 0.2 < there.mean() < 0.9
    assert (found[there] != y[400:][there]).mean() < 0.13


def test_a_risk_that_cannot_be_reached_leaves_no_prediction():
    classifier = cheap(max_epochs=2, cleaner=None).fit(X, ~np.eye(3, dtype=bool)[Y])  # nothing is ever sure
    with pytest.warns(UserWarning, match="use a larger max_risk"):
        assert all(name is None for name in classifier.predict(X, max_risk=0.001))
    none = cheap(folds=1, validation_fraction=0.0, max_epochs=2).fit(X, S)
    with pytest.raises(ValueError, match="no rows were held out to estimate errors on"):
        none.predict(X, max_risk=0.1)


def test_sets_need_held_out_rows():
    none = cheap(folds=1, validation_fraction=0.0).fit(X, S)
    with pytest.raises(ValueError, match=r"set folds=5, or validation_fraction=0.2"):
        none.predict_set(X)
    assert (none.candidates_.matrix == S).all()
    few = cheap(folds=1, validation_fraction=0.1).fit(X, S)
    with pytest.warns(UserWarning, match="6 held-out rows are too few for alpha = 0.1"):
        assert few.predict_set(X, 0.1).all()


def test_early_stopping_stops():
    classifier = cheap(max_epochs=200, early_stopping=True, n_iter_no_change=3).fit(X, S)
    rate = classifier.history_["covering_rate"].mean(1)
    assert len(rate) < 200
    assert rate.argmax() == len(rate) - 4


@pytest.mark.parametrize("method", ["proden", "rc", "cc", "cavl", "pop", "valen", "crosel"])
@pytest.mark.parametrize("cleaner", [None, "conformal", "clsp"])
def test_every_method_and_cleaner_by_name(method, cleaner, tmp_path):
    classifier = cheap(method=method, cleaner=cleaner, max_epochs=2).fit(X, S)
    classifier.save(tmp_path / "model")
    again = PartialLabelClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


@pytest.mark.parametrize("score", [None, scoring.covering_rate, scoring.approximated_accuracy])
def test_grid_search_without_true_labels(score):
    digits = data.load("digits")
    rows = np.arange(200)
    y = candidates.encode(corrupt.uniform(digits.y, 10, q=0.2, seed=0)[rows]).matrix
    grid = [
        {"partiallabelclassifier__method": [method], "partiallabelclassifier__cleaner": [cleaner]}
        for method, cleaner in (("proden", None), ("cc", "conformal"))
    ]
    pipeline = make_pipeline(StandardScaler(), cheap(max_epochs=12))
    search = GridSearchCV(pipeline, grid, scoring=score, cv=2, error_score="raise").fit(digits.X[rows], y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert 0.5 < search.best_score_ <= 1
    assert (search.predict(digits.X[rows]) == digits.y[rows]).mean() > 0.5


def test_cross_validation_of_plain_labels():
    assert cross_val_score(cheap(), X, np.array(NAMES)[Y], cv=3).mean() > 0.9


def test_scores_agree_with_the_metrics(fitted):
    p, sets = torch.from_numpy(fitted.predict_proba(X)), torch.from_numpy(S)
    assert scoring.covering_rate(fitted, X, S) == pytest.approx(float(metrics.covering_rate(p, sets)))
    assert scoring.approximated_accuracy(fitted, X, S) == pytest.approx(float(metrics.approximated_accuracy(p, sets)))
    weight = np.arange(60)
    hits = S[np.arange(60), p.argmax(1)]
    assert fitted.score(X, S, weight) == pytest.approx(np.average(hits, weights=weight))


def test_a_class_that_fit_did_not_see_is_never_right(fitted):
    with pytest.warns(UserWarning, match="no candidate in y is one of the classes: y holds 'wasp'"):
        assert fitted.score(X[:2], ["wasp", "wasp"]) == 0
    assert fitted.score(X, [*np.array(NAMES)[Y[:-1]], "wasp"]) <= 59 / 60
    with pytest.raises(ValueError, match="there are 3 classes; pass one column per class"):
        fitted.score(X, np.ones((60, 4), dtype=bool))
    with pytest.raises(ValueError, match="X has 60 rows but y has 2"):
        fitted.score(X, ["ant", "bee"])


def test_parameters_survive(fitted, tmp_path):
    assert clone(fitted).get_params() == fitted.get_params()
    assert "PartialLabelClassifier" in fitted._repr_html_()
    classifier = cheap(method=Pop(start=2), cleaner=Conformal(warmup=1))
    classifier.fit(X, S).save(tmp_path / "model")
    again = PartialLabelClassifier.load(tmp_path / "model")
    assert again.method == classifier.method
    assert again.cleaner == classifier.cleaner
    assert again.get_params().keys() == classifier.get_params().keys()
    assert again.max_epochs == 18


def test_saved_models_predict_identically(fitted, tmp_path):
    fitted.save(tmp_path / "model", {"report.json": b"{}"})
    assert sorted(path.name.split(".", 1)[1] for path in (tmp_path / "model").iterdir()) == [
        "json",
        "report.json",
        "safetensors",
    ]
    again = PartialLabelClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    for rule in RULES:
        np.testing.assert_array_equal(again.predict_p(X, **rule), fitted.predict_p(X, **rule))
    np.testing.assert_array_equal(again.predict(X, max_risk=0.3), fitted.predict(X, max_risk=0.3))
    assert again.risk_curve_.keys() == fitted.risk_curve_.keys()
    for name, values in fitted.risk_curve_.items():
        np.testing.assert_array_equal(again.risk_curve_[name], values)
    assert again.classes_.tolist() == fitted.classes_.tolist()
    assert again.n_features_in_ == 3
    assert again.trained_on_ == fitted.trained_on_
    assert report.summarise(again) == report.summarise(fitted)
    fitted.save(tmp_path / "model")  # replaces it as a whole
    assert not list((tmp_path / "model").glob("*.report.json"))


def test_a_network_of_ones_own_is_asked_for(tmp_path):
    def net():
        return torch.nn.Linear(3, 3)

    classifier = cheap(net=net).fit(X, S)
    classifier.save(tmp_path / "model")
    with pytest.raises(ValueError, match="net=factory"):
        PartialLabelClassifier.load(tmp_path / "model")
    again = PartialLabelClassifier.load(tmp_path / "model", net=net)
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    assert again.net is net


def test_a_method_of_ones_own_is_asked_for(tmp_path):
    class Mine(Cc):
        pass

    classifier = cheap(method=Mine()).fit(X, S)
    with pytest.warns(UserWarning, match="Mine is not saved"):
        classifier.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"pass load\(..., method="):
        PartialLabelClassifier.load(tmp_path / "model")
    again = PartialLabelClassifier.load(tmp_path / "model", method=Mine())
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    assert isinstance(again.method, Mine)


def test_models_of_other_kinds_are_refused(fitted, tmp_path):
    fitted.model_.save(tmp_path / "plain")
    with pytest.raises(ValueError, match=r"use candidly.Model.load"):
        PartialLabelClassifier.load(tmp_path / "plain")


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("estimator", "features"), None),
        (("estimator", "features", "columns"), []),
        (("estimator", "features", "columns"), [{"kind": "number", "mean": 0.0, "scale": 1.0, "missing": 0}]),
        (("estimator", "parameters"), {"unknown": 1}),
        (("estimator", "parameters"), []),
        (("classes",), ["ant", "bee"]),
        (("seeds",), [1]),
    ],
)
def test_changed_facts_are_refused(where, value, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"

    def change(index):
        place = index["facts"]
        for key in where[:-1]:
            place = place[key]
        place[where[-1]] = value

    forge_index(path, change)
    with pytest.raises(ValueError, match=r"."):
        PartialLabelClassifier.load(tmp_path / "model")


def test_reports_say_what_happened(cleaned):
    _, S, y = made(150)
    true = np.array(NAMES)[y]
    ids = pd.Series([f"row {i}" for i in range(150)], index=range(100, 250))
    found = report.summarise(cleaned, "clouds", ids=ids, y_true=pd.Series(true, index=ids.index))
    assert ReportFacts.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found.rows == 150
    assert found.before == np.bincount(S.sum(1), minlength=4)[1:].tolist()
    kept = cleaned.candidates_.matrix
    assert sum(sum(row) for row in found.removed) == S.sum() - kept.sum() > 0
    assert found.changed == (kept != S).any(1).sum()
    assert found.truth["accuracy"] == pytest.approx((cleaned.transduction_ == true).mean())
    assert found.truth["true_lost"] == pytest.approx(1 - kept[np.arange(150), y].mean())
    assert found.truth["true_lost"] == found.cost["true_lost"]  # one number
    assert found.truth["outside"] == found.audit["known"]["outside"] == 0
    wrong = S & ~np.eye(3, dtype=bool)[y]
    assert found.truth["wrong_removed"] == pytest.approx(1 - (kept & wrong).sum() / wrong.sum())
    assert found.together == (S.T.astype(int) @ S).tolist()
    confidence = [row["confidence"] for row in found.doubtful]
    assert confidence == sorted(confidence)
    first = found.doubtful[0]
    assert first["id"] == f"row {first['row']}"
    assert NAMES[first["true"]] == true[first["row"]]
    assert sum(one["count"] for one in found.reliability) == 150


def test_true_labels_may_be_unknown(fitted):
    partly = report.summarise(fitted, y_true=[None] * 30 + ["wasp"] + list(np.array(NAMES)[Y[31:]]))
    assert (partly.truth["rows"], partly.truth["outside"]) == (30, 1)  # a wasp is no candidate
    assert report.summarise(fitted, y_true=[None] * 60).truth == {
        "rows": 0,
        "outside": 0,
        "accuracy": None,
        "true_lost": None,
        "wrong_removed": None,
    }
    with pytest.raises(ValueError, match="ids has 2 entries for 60 rows"):
        report.summarise(fitted, ids=[1, 2])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "prodn"}, "unknown method 'prodn'; use one of balanced"),
        ({"cleaner": "soap"}, "unknown cleaner 'soap'; use one of conformal, conf,"),
        ({"members": 0}, "members is 0; it must be an integer of at least 1"),
        ({"folds": 2.5}, r"folds is 2.5; it must be an integer"),
        ({"alpha": 0}, "alpha is 0; it must lie between 0 and 1"),
        ({"validation_fraction": 1.0}, r"validation_fraction is 1.0"),
        ({"early_stopping": True, "folds": 1, "validation_fraction": 0}, "early_stopping needs held-out rows"),
        ({"max_epochs": 0}, "max_epochs is 0"),
        ({"lr": -1}, "lr is -1; it must be a finite number above 0"),
        ({"batch_size": 1}, "batch_size is 1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"net": "cnn"}, "unknown network 'cnn'"),
        ({"classes": ["ant", "bee"]}, "2 class names for 3 columns"),
        ({"separator": "|"}, "separator= splits rows of strings, but y is a matrix"),
        ({"max_categories": 0}, "max_categories is 0"),
        ({"device": "tpu"}, "tpu"),
    ],
)
def test_bad_parameters_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        cheap(**settings).fit(X, S)


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="X has 60 rows but y has 59"):
        cheap().fit(X, S[:-1])
    with pytest.raises(ValueError, match="row 1 has no candidates"):
        cheap().fit(X[:2], [["ant", "bee"], []])


def test_cleaners_that_know_rows_know_the_right_ones():
    """The estimator sorts rows by their content; what a cleaner holds of each must follow."""
    told = cheap(cleaner=Oracle(Y), max_epochs=2).fit(X, S)
    blind = cheap(cleaner=Oracle(Y[::-1].copy()), max_epochs=2).fit(X, S)
    assert told.history_["mean_candidates"][-1] == pytest.approx(1)
    assert not np.array_equal(told.predict_proba(X), blind.predict_proba(X))
    own = cheap(cleaner=Clsp(), max_epochs=2).fit(X, S)
    given = cheap(cleaner=Clsp(features=(own.features_.transform(X) + 4) / 8), max_epochs=2).fit(X, S)
    np.testing.assert_allclose(given.history_["mean_candidates"], own.history_["mean_candidates"])


def test_the_level_may_be_any_kind_of_number():
    X, S, _ = made(120)
    plain, array = (cheap(alpha=alpha, max_epochs=5).fit(X, S) for alpha in (0.125, np.float32(0.125)))
    assert plain.candidates_ == array.candidates_
    assert plain.candidates_.mean_size < S.sum(1).mean()


def test_columns_of_a_frame_are_taken_by_name(fitted):
    frame = pd.DataFrame(S, columns=list(NAMES))
    again = cheap(classes=("cow", "ant", "bee"), max_epochs=2).fit(X, frame)
    assert set(again.fit_record_.candidates.decode()[0]) == set(lists(S)[0])
    assert fitted.score(X, frame[["cow", "ant", "bee"]]) == fitted.score(X, frame) == fitted.score(X, S)
    arrow = pa.table({name: S[:, j] for j, name in enumerate(NAMES)})
    np.testing.assert_array_equal(cheap().fit(X, arrow).predict_proba(X), fitted.predict_proba(X))


def test_candidates_are_scored_whatever_the_separator():
    sets = candidates.encode(lists(S))
    classifier = cheap(separator="|", max_epochs=2).fit(X, ["|".join(row) for row in lists(S)])
    assert classifier.score(X, sets) == classifier.score(X, ["|".join(row) for row in lists(S)])


@pytest.mark.parametrize("names", [(b"a", b"b"), (("x", 1), ("y", 2))])
def test_names_that_cannot_be_kept_are_refused_at_once(names):
    with pytest.raises(ValueError, match="use text or numbers as class names"):
        cheap(classes=names).fit(X, np.c_[S[:, :1], ~S[:, :1]])


def test_a_failed_refit_leaves_what_was_fitted():
    classifier = cheap(max_epochs=2).fit(X, S)
    before = classifier.predict_proba(X)
    with pytest.raises(ValueError, match="unknown network"):
        classifier.set_params(net="cnn").fit(X[:, :2], S)
    np.testing.assert_array_equal(classifier.predict_proba(X), before)


def test_divergence_is_an_error():
    with pytest.raises(ValueError, match="training diverged"):
        cheap(lr=1e30, max_epochs=3).fit(X, S)


def test_a_finite_divergence_removes_nothing():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    noise = rng.normal(size=(300, 4))
    sets = (rng.random((300, 3)) < 0.5) | np.eye(3, dtype=bool)[y]
    with pytest.warns(UserWarning, match="no candidate was removed: the networks predict held-out rows no better"):
        kept = cheap().fit(noise, sets).candidates_
    np.testing.assert_array_equal(kept.matrix, sets)
    forced = cheap(force_cleaning=True).fit(noise, sets).candidates_
    assert forced.mean_size < kept.mean_size


def test_sets_without_true_labels_are_left_alone():
    rng = np.random.default_rng(0)
    y = np.arange(600) % 4
    clear = np.eye(4)[y] * 9 + rng.normal(size=(600, 4))
    wrong = np.where(rng.random(600) < 0.4, rng.integers(4, size=600), y)
    sets = (rng.random((600, 4)) < 0.3) | np.eye(4, dtype=bool)[wrong]
    with pytest.warns(UserWarning, match="no candidate was removed: the true label seems to be missing"):
        kept = cheap(max_epochs=50).fit(clear, sets).candidates_
    np.testing.assert_array_equal(kept.matrix, sets)


def test_weights_and_categories_meet():
    table = pd.DataFrame({"a": X[:, 0], "b": ["x", "y", None] * 20})
    weight = [0] + [1] * 58 + [2]
    weighted = cheap(max_epochs=2).fit(table, S, sample_weight=weight)
    rows = np.repeat(np.arange(60), weight)
    repeated = cheap(max_epochs=2).fit(table.iloc[rows], S[rows])
    np.testing.assert_array_equal(weighted.predict_proba(table), repeated.predict_proba(table))
    assert weighted.n_iter_ == 2


def test_several_axes_of_settings_meet():
    classifier = cheap(members=3, folds=2, cleaner=Clsp(), weight_decay=0.0, batch_size=np.int64(16)).fit(X, S)
    assert classifier.model_.problem.runs == 6
    p = classifier.model_.predict(classifier.features_.transform(X[:5])).numpy()
    np.testing.assert_allclose(classifier.predict_proba(X[:5]), p.mean(0), atol=1e-6)


def test_importing_the_package_does_not_import_the_estimator():
    code = "import sys, candidly; print('sklearn' in sys.modules, candidly.PartialLabelClassifier.__name__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "PartialLabelClassifier"]


INDEX = [f"r{i}" for i in range(60)]


@pytest.mark.parametrize("name", ["y", "sample_weight", "weights"])
def test_rows_in_another_order_are_refused(name):
    X, S, _ = made()
    frame = pd.DataFrame(X, index=INDEX)
    given = {
        "y": pd.DataFrame(S, columns=NAMES, index=INDEX),
        "sample_weight": pd.Series(np.ones(60), index=INDEX),
        "weights": pd.DataFrame(S.astype(float), columns=NAMES, index=INDEX),
    }
    cheap(max_epochs=1).fit(frame, **given)
    for change in (slice(None, None, -1), [*range(1, 60), 0]):
        with pytest.raises(ValueError, match=rf"{name} has the index of X in another order: row 0 is 'r0' in X and "):
            cheap(max_epochs=1).fit(frame, **given | {name: given[name].iloc[change]})
    other = given[name].set_axis([f"q{i}" for i in range(60)], axis=0)
    with pytest.raises(ValueError, match=f"{name} has another index than X: row 0 is 'r0' in X and 'q0'"):
        cheap(max_epochs=1).fit(frame, **given | {name: other})


def test_an_index_that_counts_says_nothing_but_may_be_permuted(fitted):
    X, S, _ = made()
    labels = pd.Series(lists(S))
    first = cheap(max_epochs=1).fit(pd.DataFrame(X, index=INDEX), labels).predict_proba(X)
    np.testing.assert_array_equal(first, cheap(max_epochs=1).fit(X, labels[::-1][::-1]).predict_proba(X))
    for call in (cheap(max_epochs=1).fit, fitted.score, lambda *given: evaluate(fitted, *given)):
        with pytest.raises(ValueError, match="y has the index of X in another order"):
            call(pd.DataFrame(X), labels[::-1])


def test_tasks_of_votes_are_compared_with_the_index():
    X, _, y = made()
    votes = candidates.from_annotations({"task": INDEX, "worker": ["w"] * 60, "label": np.array(NAMES)[y]})
    frame = pd.DataFrame(X, index=INDEX)
    cheap(max_epochs=1).fit(frame, votes.candidates, weights=votes.weights())
    cheap(max_epochs=1).fit(X, votes.candidates)
    with pytest.raises(ValueError, match=r"another order: row 0 is 'r59' .*; pass X.loc\[list\(y.index\)\]"):
        cheap(max_epochs=1).fit(frame[::-1], votes.candidates)
    with pytest.raises(ValueError, match=r"y.candidates has .*; pass X.loc\[list\(y.candidates.index\)\]"):
        cheap(max_epochs=1).fit(frame[::-1], votes)
    assert cheap(max_epochs=1).fit(frame, votes).score(frame, votes) <= 1


def test_weights_of_a_frame_are_matched_by_class():
    X, S, _ = made()
    weights = pd.DataFrame(S * [1.0, 2.0, 3.0], columns=NAMES)
    first = cheap(max_epochs=2).fit(X, lists(S), weights=weights.to_numpy()).predict_proba(X)
    second = cheap(max_epochs=2).fit(X, lists(S), weights=weights[["cow", "ant", "bee"]]).predict_proba(X)
    np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match="weights has the columns 'x', 'ant', 'bee', but the classes are 'ant'"):
        cheap().fit(X, lists(S), weights=weights.set_axis(["x", "ant", "bee"], axis=1))
    with pytest.raises(ValueError, match="weights has dtype object; pass numbers"):
        cheap().fit(X, lists(S), weights=np.ma.array(weights, mask=~S))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            lambda names: [name.upper() for name in names],
            "y holds '[A-Z]+', but the class is '[a-z]+'; write them alike",
        ),
        (lambda names: [f"{name} " for name in names], "write them alike"),
        (lambda names: [name.encode() for name in names], "y holds b'"),
        (lambda names: [f"{name}|ant" for name in names], r"looks like several classes; set separator='\|'"),
        (lambda names: [*names[:-1], names[-1].upper()], "write them alike"),
        (
            lambda names: range(len(names)),
            "the names in y are of another type than the classes: y holds 0, 1, 2 and 57",
        ),
        (lambda names: np.ma.array(names, mask=[1] + 59 * [0]), "row 0 holds a missing name"),
        (lambda names: [[], *names[1:]], "row 0 of y has no candidates"),
        (lambda names: np.zeros((60, 3), dtype=bool), "row 0 has no candidates"),
        (lambda names: None, "y is None; pass the candidates of each row"),
    ],
)
def test_labels_that_are_no_classes_are_not_scored_as_errors(fitted, labels, message):
    X, _, y = made()
    with pytest.raises(ValueError, match=message):
        fitted.score(X, labels(np.array(NAMES)[y].tolist()))


def test_numbers_are_not_texts_in_scores():
    X, _, y = made()
    classifier = cheap(max_epochs=1).fit(X, y.tolist())
    assert classifier.score(X, y.astype(float)) == classifier.score(X, y)
    for call in (classifier.score, lambda *given: evaluate(classifier, *given)):
        with pytest.raises(ValueError, match=r"y holds '[012]', but the class is [012]; write them"):
            call(X, [*y[:-1].tolist(), str(y[-1])])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-np.ones(60), "sample_weight is -1.0 in row 0"),
        (np.full(60, np.nan), "sample_weight is nan in row 0"),
        (np.full(60, np.inf), "sample_weight is inf in row 0"),
        (np.zeros(60), "sample_weight is zero for all 60 rows"),
        (np.ones(59), r"sample_weight has shape \(59,\), but there are 60 rows"),
        (2.0, r"sample_weight has shape \(\)"),
        (["1"] * 60, "sample_weight does not hold plain numbers; pass one number per row"),
        (np.ones(60) + 1j, "sample_weight does not hold plain numbers"),
        (np.array(["2020-01-01"] * 60, "M8[D]"), "sample_weight does not hold plain numbers"),
        ((1 for _ in range(60)), "sample_weight does not hold plain numbers"),
        (np.ma.array(np.ones(60), mask=np.arange(60) == 7), "sample_weight is nan in row 7"),
    ],
)
def test_weights_of_rows_are_checked_everywhere(fitted, weight, message):
    X, S, _ = made()
    for call in (cheap().fit, fitted.score):
        with pytest.raises(ValueError, match=message):
            call(X, lists(S), sample_weight=weight)


def test_huge_weights_are_only_proportions(fitted):
    X, S, _ = made()
    assert fitted.score(X, S, sample_weight=np.full(60, 1e308)) == fitted.score(X, S)


@pytest.mark.parametrize("names", [(2**63, -1, 0), (2**64, -1, 0), (2**63, 5, 7), (2**53, 2**53 + 1, 2**53 + 2)])
def test_integers_of_any_size_are_class_names(names, tmp_path):
    X, _, y = made()
    classifier = cheap(max_epochs=3).fit(X, [names[k] for k in y])
    assert sorted(classifier.classes_.tolist()) == sorted(names)
    assert all(isinstance(name, int) for name in classifier.classes_.tolist())
    classifier.save(tmp_path / "model")
    assert PartialLabelClassifier.load(tmp_path / "model").predict(X).tolist() == classifier.predict(X).tolist()


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.linspace(0, 1, 60), "Unknown label type: continuous. y holds "),
        (np.linspace(0, 1, 60).tolist(), "Unknown label type: continuous. y holds "),
        (np.where(np.arange(60) == 5, np.nan, 1.0), "Input y contains NaN. Drop row 5"),
        ([np.inf, 1.0] * 30, "Input y contains infinity"),
        (np.array([2.0**63, 1.0] * 30), "Unknown label type: continuous. y holds 9.22"),
        (np.ones((3, 60), dtype=bool), "X has 60 rows but y has 3; transpose it"),
    ],
)
def test_numbers_that_are_no_class_names(y, message):
    with pytest.raises(ValueError, match=message), warnings.catch_warnings(action="ignore"):
        cheap().fit(made()[0], y)


@pytest.mark.parametrize("form", ["Candidates", "sets", "matrix", "text"])
def test_scikit_learn_splits_candidates(form):
    X, S, _ = made()
    sets = candidates.encode(lists(S))
    y = {"Candidates": sets, "sets": [set(row) for row in sets], "matrix": S, "text": ["|".join(row) for row in sets]}
    classifier = cheap(max_epochs=2, separator="|" if form == "text" else None)
    search = GridSearchCV(classifier, {"lr": [0.01, 0.02]}, cv=2, error_score="raise").fit(X, y[form])
    scores = cross_val_score(classifier, X, y[form], cv=KFold(2), error_score="raise")
    assert search.best_score_ > 0.3
    assert scores.shape == (2,)
    if form == "Candidates":
        train, test = train_test_split(y[form], test_size=20, random_state=0)
        assert train.classes == test.classes == NAMES


def test_lists_need_a_splitter_of_their_own():
    X, S, _ = made()
    assert cross_val_score(cheap(max_epochs=2), X, lists(S), cv=KFold(2), error_score="raise").shape == (2,)


@pytest.mark.parametrize("y", [None, "ant", {"ant": 1}, 5])
def test_true_labels_of_other_types(fitted, y):
    with pytest.raises(ValueError, match=r"the true labels are a .*; pass one class name per row, None where unknown"):
        evaluate(fitted, made()[0], y)


def test_masked_true_labels_are_unknown(fitted):
    X, _, y = made()
    labels = np.ma.array(np.array(NAMES)[y], mask=np.arange(60) < 20)
    assert evaluate(fitted, X, labels).rows == 40
    with pytest.raises(ValueError, match="pass one class name per row"):
        evaluate(fitted, X, candidates.encode(labels.data))


def by_tens(n=60):
    return np.arange(n) // 10


def test_groups_are_held_out_together_and_recorded():
    X, S, _ = made()
    classifier = cheap(max_epochs=2, folds=3).fit(X, lists(S), groups=by_tens())
    groups = classifier.fit_record_.groups.numpy()
    assert len(set(groups)) == 6
    assert all(len(set(groups[by_tens() == one])) == 1 for one in range(6))
    assert sorted(classifier.calibration_.counts.tolist()) == [20, 20, 20]
    texts = cheap(max_epochs=2, folds=3).fit(X, lists(S), groups=[f"scene {9 - one}" for one in by_tens()])
    np.testing.assert_array_equal(classifier.predict_p(X), texts.predict_p(X), "their names do not matter")
    assert cheap(max_epochs=2).fit(X, lists(S)).fit_record_.groups is None


def test_groups_of_one_row_change_nothing():
    X, S, _ = made()
    for settings in ({}, {"folds": 1, "early_stopping": True}, {"cleaner": Conformal(calibration="holdout")}):
        classifier = cheap(max_epochs=3, **settings)
        expected = classifier.fit(X, lists(S)).predict_p(X)
        for alone in (range(60), [None] * 60, np.full(60, np.nan)):
            np.testing.assert_array_equal(classifier.fit(X, lists(S), groups=alone).predict_p(X), expected)


def test_early_stopping_and_calibration_hold_groups_out(monkeypatch):
    X, S, _ = made()
    seen = {}
    fit = crossfit.fit

    def watch(problem, method, cleaner, recipe, **given):
        seen.update(problem=problem, cleaner=cleaner, **given)
        return fit(problem, method, cleaner, recipe, **given)

    monkeypatch.setattr(crossfit, "fit", watch)
    group = np.random.default_rng(0).permutation(by_tens())
    cleaner = Conformal(calibration="holdout")
    cheap(max_epochs=2, folds=1, early_stopping=True, validation_fraction=0.2, cleaner=cleaner).fit(
        X, lists(S), groups=group
    )
    number = seen["problem"].groups.numpy()
    (trained,), (held_out,) = seen["problem"].rows, seen["held_out"]
    assert len(held_out) == 10
    assert not set(number[held_out]) & set(number[trained])
    again = copy.deepcopy(cleaner)
    kept = again.setup(seen["problem"]).rows[0]
    assert not set(number[again.rows[0]]) & set(number[kept])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0, 1], "groups has 2 values, but there are 60 rows"),
        ([0] * 60, r"groups connects all 60 rows, .*--groups \(in Python, groups=\)"),
        ("scene", "groups is 'scene'; pass one text or number per row"),
        ([[0]] * 60, r"groups holds \[0\] in row 0; pass one text or number per row"),
        (np.zeros((60, 2)), r"groups has shape \(60, 2\); pass one"),
        (7, "groups is 7; pass one"),
        (pd.Series(range(60), index=range(60, 0, -1)), None),
    ],
)
def test_wrong_groups(groups, message):
    X, S, _ = made()
    if message is None:
        X, message = pd.DataFrame(X, index=range(1, 61)), "groups has the index of X in another order"
    with pytest.raises(ValueError, match=message):
        cheap(max_epochs=1).fit(X, lists(S), groups=groups)


def test_groups_are_routed():
    X, S, _ = made()
    group = by_tens()
    with config_context(enable_metadata_routing=True):
        classifier = cheap(max_epochs=1).set_fit_request(groups=True)
        scores = cross_val_score(
            classifier, X, lists(S), cv=GroupKFold(3), params={"groups": group}, error_score="raise"
        )
        assert scores.shape == (3,)
        with pytest.raises(ValueError, match="groups connects all"):
            cross_val_score(
                classifier, X, lists(S), cv=GroupKFold(2), params={"groups": group // 3}, error_score="raise"
            )


def test_an_audit_takes_checked_rows_by_number_or_one_per_row(cleaned):
    true = np.array(NAMES)[made(150)[2]]
    drawn = np.random.default_rng(0).choice(150, 70, replace=False)
    by_number = cleaned.audit(verified={row: true[row] for row in drawn})
    listed = [true[row] if row in set(drawn) else None for row in range(150)]
    for form in (listed, pd.Series(listed), np.array(listed, dtype=object)):
        assert cleaned.audit(verified=form) == by_number
    assert by_number.verified.rows == 70
    for one, other in zip(by_number.levels, cleaned.audit(true).levels, strict=True):
        assert one.verified.low <= other.true_lost <= one.verified.high
        assert (one.lost, one.true_lost) == (other.lost, None)
    partly = cleaned.audit(verified={row: None if row == drawn[0] else "none of these" for row in drawn})
    assert (partly.verified.unanswered, partly.verified.outside) == (1, 69)
    assert report.summarise(cleaned, verified=listed).audit["verified"]["rows"] == 70


@pytest.mark.parametrize(
    ("verified", "message"),
    [
        ({150: "ant"}, "verified has the row 150; rows are numbers from 0 to 149"),
        ({0: "gnu"}, "the answer for row 0 is 'gnu', which is not a class"),
        (["ant"], "verified has 1 entries, but there are 150 rows; pass one per row, None where it was not checked"),
        ([None] * 150, "verified has no checked row"),
        ({}, "verified has no checked row"),
        (7, "verified is 7"),
    ],
)
def test_checked_rows_must_be_rows_and_classes(cleaned, verified, message):
    with pytest.raises(ValueError, match=message):
        cleaned.audit(verified=verified)
