"""A classifier that is fitted to votes: labels, annotators, cleaning, certificates, and saving."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs

from candidly import PartialLabelClassifier, from_annotations
from candidly.cleaning import VerificationPlan
from tests.store.cases import forge_index

NAMES = np.array(["cat", "dog", "emu"])
ACCURACY = np.array([0.95, 0.6, 0.6, 0.6])


def simulate(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X, y = make_blobs(n, centers=[[0, 0], [3, 0], [0, 3]], random_state=seed)
    worker = rng.random((n, 4)).argsort(1)[:, :3].ravel()
    row = np.repeat(np.arange(n), 3)
    right = rng.random(len(row)) < ACCURACY[worker]
    label = np.where(right, y[row], (y[row] + rng.integers(1, 3, size=len(row))) % 3)
    table = {"task": row, "worker": np.array(["ann", "bob", "cem", "eve"])[worker], "label": NAMES[label]}
    return X, NAMES[y], from_annotations(table)


def make(**more):
    return PartialLabelClassifier(max_epochs=8, folds=3, random_state=0, device="cpu", **more)


@pytest.fixture(scope="module")
def fitted():
    X, _, votes = simulate()
    return make().fit(X, votes)


def test_labels_use_votes_and_features(fitted):
    X, y, votes = simulate()
    forgotten = make().fit(X, votes.candidates, weights=votes.weights())
    right = (fitted.transduction_ == y).mean()
    assert right > (forgotten.transduction_ == y).mean()
    assert right > (votes.majority() == y).mean()
    np.testing.assert_array_equal(fitted.predict_proba(X), forgotten.predict_proba(X))
    assert forgotten.annotators_ == ()
    accuracy = {one.name: one.accuracy for one in fitted.annotators_}
    assert max(accuracy, key=accuracy.__getitem__) == "ann"


def test_results_agree_with_each_other(fitted):
    q, chosen = fitted.candidate_proba_, np.searchsorted(NAMES, fitted.transduction_)
    rows = np.arange(len(q))
    np.testing.assert_array_equal(fitted.confidence_, q[rows, chosen])
    np.testing.assert_array_equal(q.argmax(1), chosen)
    assert (q.sum(1) <= 1.0001).all()
    S, kept = fitted.fit_record_.candidates.matrix, fitted.candidates_.matrix
    inside = S[rows, chosen]
    assert kept[rows, chosen][inside].all(), "the chosen label is kept if it is a candidate"
    assert [one is None for one in fitted.outside_] == inside.tolist()
    assert (fitted.outside_[~inside] == fitted.transduction_[~inside]).all()
    assert (fitted.confidence_[np.argsort(fitted.priority_)] == np.sort(fitted.confidence_)).all()


def test_certificates_and_audits_use_the_same_family(fitted, tmp_path):
    X, y, votes = simulate()
    fitted.save(tmp_path / "model")
    classifier = PartialLabelClassifier.load(tmp_path / "model")
    plan = classifier.plan_verification(60, alpha=0.1)
    assert isinstance(plan, VerificationPlan)
    certificate = classifier.certify({row: y[row] for row in plan.rows})
    S = votes.candidates.matrix
    true = np.searchsorted(NAMES, y)
    lost = (S & ~certificate.candidates.matrix)[np.arange(len(y)), true]
    assert lost.sum() <= 0.1 * len(y)
    level = classifier.audit(y, alphas=[0.05]).levels[0]
    removed = int((S & ~classifier.candidates_.matrix).sum())
    assert level.alpha == classifier.alpha_
    assert level.candidates == removed
    other = make().fit(X, votes.candidates, weights=votes.weights())
    with pytest.raises(ValueError, match="plan belongs to another fit"):
        other.certify({}, plan)


def test_votes_are_saved(fitted, tmp_path):
    X, _, votes = simulate()
    fitted.save(tmp_path / "model")
    loaded = PartialLabelClassifier.load(tmp_path / "model")
    assert loaded.annotators_ == fitted.annotators_
    for name in ("transduction_", "candidate_proba_", "confidence_", "priority_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(fitted, name))
    assert loaded.candidates_ == fitted.candidates_
    table = loaded.fit_record_.voted.table
    assert table.workers == votes.workers
    np.testing.assert_array_equal(table.task, votes.table.task)
    assert loaded.is_trained_on(X, votes)
    assert loaded.is_trained_on(X, votes.candidates)
    swapped = from_annotations(
        {"task": votes.table.task, "worker": votes.table.worker, "label": NAMES[votes.table.label]}
    )
    assert not loaded.is_trained_on(X, swapped), "other workers"
    fitted.save(tmp_path / "lean", lean=True)
    lean = PartialLabelClassifier.load(tmp_path / "lean")
    assert not hasattr(lean, "annotators_")


@pytest.mark.parametrize(
    "change",
    [
        lambda votes: votes.pop("annotators"),
        lambda votes: votes["annotators"].pop(),
        lambda votes: votes["workers"].pop(),
        lambda votes: votes["annotators"][0].update(accuracy=2),
        lambda votes: votes["annotators"][0].update(confusions=[[0, 9, 1.0, 0.5]]),
        lambda votes: votes.update(temperature="hot"),
    ],
)
def test_damaged_votes_are_refused(fitted, tmp_path, change):
    fitted.save(tmp_path / "model")
    forge_index(tmp_path / "model" / "model.json", lambda index: change(index["facts"]["estimator"]["rows"]["votes"]))
    with pytest.raises(ValueError, match=r"model is damaged \(.*\); restore a copy or save the model again"):
        PartialLabelClassifier.load(tmp_path / "model")


def test_votes_with_listed_classes_and_an_index():
    X, _, votes = simulate()
    frame = pd.DataFrame(X, index=list(votes.tasks))
    listed = make(classes=["yak", "emu", "dog", "cat"]).fit(frame, votes)
    assert listed.classes_.tolist() == ["yak", "emu", "dog", "cat"]
    table = listed.fit_record_.voted.table
    assert [listed.classes_[k] for k in table.label] == [NAMES[k] for k in votes.table.label]
    with pytest.raises(ValueError, match=r"y\.candidates has the index of X in another order"):
        make().fit(frame.iloc[::-1], votes)


def test_rows_that_train_all_networks_are_labelled_by_votes_alone():
    X, _, votes = simulate()
    classifier = make().set_params(folds=1, validation_fraction=0.2).fit(X, votes)
    trained = (classifier.fit_record_.fold < 0).numpy()
    assert trained.mean() > 0.7
    unanimous = votes.counts.max(1) == 3
    majority = votes.majority()
    assert (classifier.transduction_ == majority)[trained & unanimous].all()


def test_limits_for_new_rows_do_not_depend_on_votes(fitted):
    X, _, votes = simulate()
    forgotten = make().fit(X, votes.candidates, weights=votes.weights())
    np.testing.assert_array_equal(fitted.limits_, forgotten.limits_)
    new, _, later = simulate(seed=1)
    assert fitted.clean(new, later) == forgotten.clean(new, later.candidates)


def test_another_level(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    classifier = PartialLabelClassifier.load(tmp_path / "model")
    few = classifier.set_params(alpha=0.01).reclean().candidates_
    many = classifier.set_params(alpha=0.2).reclean().candidates_
    assert (many.matrix <= few.matrix).all()
    assert many.mean_size < few.mean_size
