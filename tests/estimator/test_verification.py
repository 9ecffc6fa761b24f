"""Certified cleaning of a classifier: plans in a ledger, answers by name, saved models."""

import numpy as np
import pytest

from candidly import PartialLabelClassifier
from tests.store.cases import forge_index

NAMES = ("cat", "dog", "emu")


def made(n=300, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = np.stack([y + rng.normal(0, 0.4, n), rng.normal(size=n)], 1)
    S = np.eye(3, dtype=bool)[y] | (rng.random((n, 3)) < 0.4)
    return X, [[NAMES[j] for j in np.flatnonzero(row)] for row in S], [NAMES[j] for j in y]


X, SETS, TRUE = made()


def cheap(**changes):
    settings = {"folds": 2, "max_epochs": 8, "device": "cpu", "random_state": 0}
    return PartialLabelClassifier(**(settings | changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    cheap().fit(X, SETS).save(place / "model")
    return place / "model"


@pytest.fixture
def fitted(folder):
    return PartialLabelClassifier.load(folder)


def right(plan):
    return [TRUE[row] for row in plan.rows]


def test_plans_are_recorded_and_saved(fitted, tmp_path):
    assert fitted.ledger_ == ()
    first = fitted.plan_verification(60)
    second = fitted.plan_verification(80, alpha=0.1, confidence=0.8, seed=3, sequential=True)
    assert fitted.ledger_ == (first, second)
    assert (second.number, second.seed, second.sequential, second.family) == (2, 3, True, first.family)
    fitted.save(tmp_path / "model")
    loaded = PartialLabelClassifier.load(tmp_path / "model")
    assert loaded.ledger_ == fitted.ledger_
    one, other = fitted.certify(right(second)), loaded.certify(right(second))
    assert one.to_json() == other.to_json()
    assert one.candidates == other.candidates
    assert one.confidence == 0.7
    assert loaded.certify(right(first), first).plan == first
    loaded.save(tmp_path / "lean", lean=True)
    lean = PartialLabelClassifier.load(tmp_path / "lean")
    assert lean.ledger_ == ()
    for call in (lambda: lean.plan_verification(60), lambda: lean.certify({})):
        with pytest.raises(ValueError, match=r"saved without its training rows, which a certificate needs"):
            call()


def test_answers_come_by_row_or_in_order(fitted):
    plan = fitted.plan_verification(60)
    by_row = fitted.certify({np.int64(row): np.str_(TRUE[row]) for row in plan.rows})
    for answers in (right(plan), np.array(right(plan))):
        assert fitted.certify(answers).candidates == by_row.candidates
    for missing in (None, "", "?", "Cannot tell", float("nan")):
        assert fitted.certify([missing, *right(plan)[1:]]).unknown == 1
    assert fitted.certify(["none of these", *right(plan)[1:]]).missing.value == 1 / 60
    assert fitted.candidates_.decode() == PartialLabelClassifier.reclean(fitted).candidates_.decode()


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (["cat"], "answers has 1 entries, but the plan has 60 rows"),
        ("cat", "answers is 'cat'; it must be a mapping"),
        (None, "answers is None; it must be a mapping"),
        ({300: "cat"}, "answers has the row 300; rows are numbers from 0 to 299"),
        ({"1": "cat"}, "answers has the row '1'"),
        ({1: "Cat"}, r"the answer for row 1 is 'Cat', which is not a class \(did you mean 'cat'\?\)"),
        ({1: ["cat"]}, "the answer for row 1 is"),
    ],
)
def test_wrong_answers_are_refused(fitted, answers, message):
    fitted.plan_verification(60)
    with pytest.raises(ValueError, match=message):
        fitted.certify(answers)


def test_plans_of_other_fits_are_refused(fitted, folder):
    with pytest.raises(ValueError, match="no verification was planned"):
        fitted.certify({})
    plan = fitted.plan_verification(60)
    with pytest.raises(ValueError, match="plan is not in ledger_"):
        PartialLabelClassifier.load(folder).certify(right(plan), plan)
    other = cheap(random_state=7).fit(X, SETS)
    assert other.ledger_ == ()
    with pytest.raises(ValueError, match="plan belongs to another fit"):
        other.certify(right(plan), plan)
    with pytest.raises(ValueError, match="plan is 3; it must be what plan_verification returned"):
        fitted.certify(right(plan), 3)
    fitted.fit(X, SETS)
    assert fitted.ledger_ == ()


def test_cleaning_at_another_level_keeps_plans(fitted):
    plan = fitted.plan_verification(60)
    before = fitted.certify(right(plan))
    fitted.set_params(alpha=0.2).reclean()
    assert fitted.certify(right(plan)).candidates == before.candidates


def test_risks_are_added_until_one_half(fitted):
    for _ in range(4):
        plan = fitted.plan_verification(60)
    assert fitted.certify(right(plan)).confidence == 0.6
    with pytest.raises(ValueError, match=r"confidence is 0\.9, which leaves 0\.5 after 4 earlier plans"):
        fitted.plan_verification(60)
    assert len(fitted.ledger_) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"m": 0}, "m is 0; it must be an integer of at least 1"),
        ({"m": 60, "alpha": 0}, "alpha is 0; it must lie between 0 and 1"),
        ({"m": 60, "confidence": 90}, "confidence is 90; it must lie between 0 and 1"),
        ({"m": 60, "seed": -1}, "seed is -1"),
        ({"m": 60, "sequential": "no"}, "sequential is 'no'; use True or False"),
        ({"m": 5}, "m is 5, which is too few"),
    ],
)
def test_wrong_plans_are_refused(fitted, settings, message):
    with pytest.raises(ValueError, match=message):
        fitted.plan_verification(**settings)
    assert fitted.ledger_ == ()


def test_groups_and_rows_that_are_not_held_out():
    groups = np.arange(300) // 3
    grouped = cheap().fit(X, SETS, groups=groups)
    plan = grouped.plan_verification(60)
    assert len({row // 3 for row in plan.rows}) > 30  # row by row
    assert grouped.certify(right(plan)).limit is not None
    weight = np.ones(300)
    weight[:50] = 0
    weighted = cheap().fit(X, SETS, sample_weight=weight)
    plan = weighted.plan_verification(60)
    assert plan.n == 300
    assert plan.population <= 250
    assert min(plan.rows) >= 50
    found = weighted.certify(right(plan))
    assert (found.candidates.matrix[:50] == weighted.fit_record_.candidates.matrix[:50]).all()
    few = cheap(folds=1, validation_fraction=0.2).fit(X, SETS)
    with pytest.raises(ValueError, match="needs at least 100 held-out rows"):
        few.plan_verification(60)


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: ledger + ledger,
        lambda ledger: [ledger[0] | {"n": 299}],
        lambda ledger: [ledger[0] | {"number": 2}],
        lambda ledger: [ledger[0] | {"rows": []}],
        lambda ledger: [ledger[0] | {"rows": [1.5]}],
        lambda ledger: {"plans": ledger},
    ],
)
def test_damaged_ledgers_are_refused(fitted, change, tmp_path):
    fitted.plan_verification(60)
    fitted.save(tmp_path / "model")

    def forge(index):
        own = index["facts"]["estimator"]
        own["ledger"] = change(own["ledger"])

    forge_index(tmp_path / "model" / "model.json", forge)
    with pytest.raises(ValueError, match="is damaged"):
        PartialLabelClassifier.load(tmp_path / "model")


def test_a_plan_is_added_to_a_saved_model_in_one_step(fitted, tmp_path):
    from candidly.estimator.saving import record_plan

    fitted.save(tmp_path / "model")
    plan = fitted.plan_verification(60)
    record_plan(tmp_path / "model", plan)
    assert PartialLabelClassifier.load(tmp_path / "model").ledger_ == (plan,)
    with pytest.raises(ValueError, match="was changed while a verification was planned; run the command again"):
        record_plan(tmp_path / "model", plan)


def test_an_audit_with_the_answers_of_a_plan_says_nothing_about_rows_that_the_plan_could_not_draw(fitted):
    plan = fitted.plan_verification(100, alpha=0.02)
    found = fitted.audit(alphas=[0.02, 0.99], verified=dict(zip(plan.rows, right(plan), strict=True)))
    assert found.verified.population == plan.population
    assert found.levels[0].verified is not None
    assert found.levels[1].verified is None
    rows = np.random.default_rng(0).choice(len(TRUE), 60, replace=False).tolist()
    assert fitted.audit(alphas=[0.99], verified={row: TRUE[row] for row in rows}).levels[0].verified is not None
