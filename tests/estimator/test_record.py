"""The record of the training rows: what a model keeps of them, and what a loaded model does with it."""

import dataclasses

import numpy as np
import pytest
import torch

from candidly import PartialLabelClassifier, candidates, conformal
from candidly.candidates import Candidates
from candidly.estimator import FitRecord
from candidly.estimator.record import Scored
from candidly.store import states
from tests.store.cases import forge_index

NAMES = ("ant", "bee", "cow", "dog")
ARRAYS = (
    *("candidate_proba_", "transduction_", "confidence_", "priority_", "outside_", "outside_proba_"),
    "limits_",
)


def made(n=200, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    X = rng.normal(size=(n, 3)) + 2 * np.eye(4, 3)[y]
    return X, np.eye(4, dtype=bool)[y] | (rng.random((n, 4)) < 0.4)


def cheap(**changes):
    settings = {"classes": list(NAMES), "folds": 2, "max_epochs": 8, "device": "cpu", "random_state": 0}
    return PartialLabelClassifier(**(settings | changes))


@pytest.fixture(scope="module")
def fitted():
    return cheap().fit(*made())


@pytest.fixture(scope="module")
def folder(fitted, tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "model"
    fitted.save(place)
    return place


@pytest.fixture
def loaded(folder):
    return PartialLabelClassifier.load(folder)


def assert_same_results(one, other):
    assert one.candidates_ == other.candidates_
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype
    assert one.alpha_ == other.alpha_
    assert one.audit() == other.audit()


def assert_same_record(one, other):
    for field in dataclasses.fields(FitRecord):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, torch.Tensor):
            assert left.dtype == right.dtype
            assert torch.equal(left, right), field.name
        else:
            assert left == right, field.name


@pytest.mark.parametrize(
    "changes",
    [{}, {"folds": 1, "validation_fraction": 0.6}, {"members": 2, "alpha": 0.2}, {"force_cleaning": True, "lr": 1e-9}],
)
def test_a_loaded_model_knows_its_training_rows_to_the_bit(changes, tmp_path):
    classifier = cheap(**changes).fit(*made())
    classifier.save(tmp_path / "model")
    again = PartialLabelClassifier.load(tmp_path / "model")
    assert_same_record(again.fit_record_, classifier.fit_record_)
    assert_same_results(again, classifier)
    assert vars(again.budget_).keys() == vars(classifier.budget_).keys()
    again.save(tmp_path / "again")
    first, second = (
        sorted(path.name for path in (tmp_path / name).glob("*.safetensors")) for name in ("model", "again")
    )
    assert first == second  # named after their content


def test_few_rows_are_kept_without_a_rule(tmp_path):
    X, S = made(60)
    classifier = cheap().fit(X, S)
    classifier.save(tmp_path / "model")
    again = PartialLabelClassifier.load(tmp_path / "model")
    assert again.budget_ is again.limits_ is again.alpha_ is None
    assert again.candidates_ == classifier.candidates_
    np.testing.assert_array_equal(again.confidence_, classifier.confidence_)
    for one in (classifier, again):
        with pytest.raises(ValueError, match="cleaning needs at least 100 held-out rows at fit, and there were 60"):
            one.clean(X, S)


def test_groups_and_many_classes_are_kept():
    rng = np.random.default_rng(0)
    for classes in (3, 500):
        matrix = np.zeros((40, classes), dtype=bool)
        matrix[np.arange(40), rng.integers(classes, size=40)] = True
        matrix[:5] |= rng.random((5, classes)) < 0.4
        S = Candidates(matrix, tuple(range(classes)))
        p = torch.rand(40, classes)
        fold = torch.arange(40) % 3 - 1
        held_out = torch.randperm(40)
        held_out = held_out[fold[held_out] >= 0]
        more = {"fold": fold, "held_out": held_out, "groups": torch.arange(40) // 2 - 1}
        record = FitRecord.of(S, p, **more, parameters={}, seconds=1.5)
        tensors = record.tensors()
        assert ("rows.bits" in tensors) == (classes == 3)
        counts = fold[held_out].bincount()
        assert_same_record(FitRecord.of_tensors(tensors, S.classes, counts, {}, 1.5, 10**6), record)
        assert sum(value.nbytes for value in tensors.values()) < 40 * 20 + int(S.sizes.sum()) * 6


def test_only_probabilities_of_candidates_are_needed(fitted):
    record = fitted.fit_record_
    rows, sets = record.held_out, record.sets
    expected = fitted.budget_.keep(record.log_p(rows), sets[rows], 0.05)
    noise = torch.rand(sets.shape).log()
    other = torch.where(sets[rows], record.log_p(rows), noise[rows])
    assert torch.equal(fitted.budget_.keep(other, sets[rows], 0.05), expected)
    limits = fitted.budget_.limits(other, sets[rows], 0.05)
    assert torch.equal(fitted.budget_.apply(other, sets[rows], limits), expected)
    np.testing.assert_array_equal(limits, fitted.limits_)
    np.testing.assert_array_equal(fitted.candidates_.matrix[rows], expected)


def test_results_are_computed_when_they_are_needed(loaded):
    loaded.predict(made()[0])
    assert "_cleaned" not in vars(loaded)
    assert loaded.candidates_ is loaded.candidates_
    with pytest.raises(ValueError, match="read-only"):
        loaded.confidence_[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        loaded.limits_[0] = 1


def test_parameters_of_the_training_are_kept_beside_the_present_ones(fitted, tmp_path):
    again = PartialLabelClassifier.load(_save(fitted, tmp_path / "first")).set_params(alpha=0.3, lr=0.5)
    again = PartialLabelClassifier.load(_save(again, tmp_path / "second"))
    assert (again.alpha, again.lr, again.alpha_) == (0.3, 0.5, 0.05)
    assert (again.fit_record_.parameters["alpha"], again.fit_record_.parameters["lr"]) == (0.05, None)
    assert_same_results(again, fitted)


def test_fitting_again_forgets_the_record(loaded):
    before = loaded.candidates_
    X, S = made(60, seed=1)
    loaded.fit(X, S)
    assert len(loaded.candidates_) == len(loaded.fit_record_.candidates) == 60
    assert len(before) == 200
    assert loaded.limits_ is None


@pytest.mark.parametrize("forced", [False, True])
def test_cleaning_again_gives_what_training_at_that_level_gives(loaded, forced):
    other = cheap(alpha=0.2, force_cleaning=forced).fit(*made())
    assert loaded.set_params(alpha=0.2, force_cleaning=forced).reclean() is loaded
    assert_same_results(loaded, other)
    assert loaded.fit_record_.parameters == other.fit_record_.parameters


def test_a_declined_rule_warns_once_and_can_be_forced(tmp_path):
    X, S = made()
    with pytest.warns(UserWarning, match="no candidate was removed: the networks predict"):
        classifier = cheap(lr=1e-9).fit(X, S)
    classifier = PartialLabelClassifier.load(_save(classifier, tmp_path / "model"))  # without a warning
    assert classifier.candidates_.matrix.tolist() == S.tolist()
    new = made(50, seed=3)
    with pytest.warns(UserWarning, match="no candidate was removed: the networks predict"):
        kept = classifier.clean(*new)
    np.testing.assert_array_equal(kept.matrix, new[1])
    assert (classifier.set_params(force_cleaning=True).clean(*new).matrix < new[1]).any()
    assert (classifier.reclean().candidates_.matrix < S).any()


def test_a_lean_model_predicts_and_cleans_but_has_no_rows(fitted, tmp_path):
    lean = PartialLabelClassifier.load(_save(fitted, tmp_path / "model", lean=True))
    names = {name for name in states.read(tmp_path / "model", stem="model")[0] if name.startswith("rows.")}
    assert not names
    X, S = made(50, seed=5)
    np.testing.assert_array_equal(lean.predict_proba(X), fitted.predict_proba(X))
    assert lean.clean(X, S) == fitted.clean(X, S)
    np.testing.assert_array_equal(lean.limits_, fitted.limits_)
    for work in (lean.audit, lean.reclean):
        with pytest.raises(ValueError, match=r"the model was saved without its training rows, which .* needs: with"):
            work()
    for name in ("candidates_", *(name for name in ARRAYS if name != "limits_")):
        with pytest.raises(AttributeError, match="saved without its training rows"):
            getattr(lean, name)
        assert not hasattr(cheap(), name)


def test_further_rows_are_cleaned_by_the_class_limits(fitted, loaded):
    X, S = made(80, seed=7)
    kept = fitted.clean(X, S)
    p = torch.from_numpy(fitted.predict_proba(X)).float()
    q = conformal.candidate_probabilities(p.log(), torch.from_numpy(S), fitted.budget_.cautious).numpy()
    best = np.where(S, q, -1).argmax(1)
    expected = S & ~((q <= fitted.limits_) & (np.arange(4) != best[:, None]))
    np.testing.assert_array_equal(kept.matrix, expected)
    assert kept.classes == NAMES
    assert expected.sum() < S.sum()
    some = fitted.clean(X[30:50], S[30:50])  # rows do not depend on each other
    np.testing.assert_array_equal(some.matrix, kept.matrix[30:50])
    assert loaded.clean(X, candidates.encode(S, NAMES)) == kept
    whole = fitted.clean_all(X, S)
    assert whole.kept == kept
    assert whole.transduction.tolist() == [NAMES[j] for j in best]
    np.testing.assert_array_equal(whole.candidate_proba, q)
    np.testing.assert_array_equal(whole.confidence, q[np.arange(80), best])


def test_candidates_of_further_rows_come_in_many_forms(fitted):
    X, S = made(20, seed=7)
    expected = fitted.clean(X, S)
    lists = [[NAMES[j] for j in np.flatnonzero(row)] for row in S]
    sets = Candidates(S[:, ::-1], NAMES[::-1])
    for y in (lists, sets, [tuple(row) for row in lists]):
        assert fitted.clean(X, y) == expected
    with pytest.raises(ValueError, match="row 1 of y names 'gnu', which is not a class of the model; drop the row"):
        fitted.clean(X[:2], [["ant"], ["gnu", "bee"]])
    with pytest.raises(ValueError, match="row 1 of y names 'gnu', which is not a class of the model"):
        fitted.clean(X[:2], candidates.encode([["ant"], ["gnu", "bee"]]))
    with pytest.raises(ValueError, match="X has 20 rows but y has 2"):
        fitted.clean(X, [["ant"], ["bee"]])
    with pytest.raises(ValueError, match="has no candidates"):
        fitted.clean(X[:1], [[]])
    with pytest.raises(ValueError, match="y is None"):
        fitted.clean(X, None)


def test_training_rows_are_recognised(fitted):
    X, S = made()
    assert fitted.is_trained_on(X, S)
    assert not fitted.is_trained_on(X[::-1], S[::-1])
    with pytest.warns(UserWarning, match="these are the training rows, which the networks know; use candidates_"):
        fitted.clean(X, S)


def _save(classifier, place, **settings):
    classifier.save(place, **settings)
    return place


def _first(value):
    def change(tensor):
        wide = tensor if tensor.is_floating_point() or tensor.dtype == torch.uint8 else tensor.long()
        return wide.index_fill(0, torch.tensor([0]), value)

    return change


CHANGES = {
    "a negative probability": ("p", _first(-0.1)),
    "a probability above 1": ("p", _first(1.1)),
    "a probability that is not a number": ("p", _first(float("nan"))),
    "a candidate above the top": ("top_p", _first(0.0)),
    "too few probabilities": ("p", lambda t: t[:-1]),
    "probabilities of another type": ("p", lambda t: t.double()),
    "a matrix of probabilities": ("p", lambda t: t[None]),
    "top out of range": ("top", _first(4)),
    "a negative top": ("top", _first(-1)),
    "top as numbers with a point": ("top", lambda t: t.float()),
    "no rows": ("top_p", lambda t: t[:0]),
    "an unknown fold": ("fold", _first(2)),
    "a fold below -1": ("fold", _first(-2)),
    "another fold": ("fold", torch.zeros_like),
    "a row that was not held out": ("fold", _first(-1)),
    "a row held out twice": ("held_out", lambda t: t.index_copy(0, torch.tensor([0]), t[1:2])),
    "a held-out row out of range": ("held_out", _first(200)),
    "a negative row": ("held_out", _first(-1)),
    "too few held-out rows": ("held_out", lambda t: t[:-1]),
    "a row without candidates": ("bits", _first(0)),
    "too few bits": ("bits", lambda t: t[:-1]),
    "bits of another type": ("bits", lambda t: t.short()),
    "groups of other rows": ("groups", lambda t: torch.arange(3)),
    "an unknown tensor": ("more", lambda t: torch.zeros(1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_damaged_records_are_refused(fitted, change):
    name, change_tensor = CHANGES[change]
    tensors = fitted.fit_record_.tensors()
    tensors[f"rows.{name}"] = change_tensor(tensors.get(f"rows.{name}"))
    with pytest.raises(ValueError, match="the record of the training rows is damaged"):
        FitRecord.of_tensors(tensors, NAMES, fitted.calibration_.counts, {}, 1.0, 10**6)


LISTED = {
    "a class out of range": ("columns", _first(600)),
    "a class twice": ("columns", lambda t: t.index_copy(0, torch.tensor([1]), t[:1])),
    "an empty row": ("sizes", _first(0)),
    "too many candidates": ("sizes", _first(501)),
    "sizes that do not add up": ("sizes", _first(3)),
}


@pytest.mark.parametrize("change", LISTED)
def test_damaged_lists_of_candidates_are_refused(change):
    matrix = np.zeros((30, 500), dtype=bool)
    matrix[:, :2] = True
    S, zero = Candidates(matrix, tuple(range(500))), torch.zeros(30)
    more = {"fold": zero.long(), "held_out": torch.arange(30)}
    tensors = FitRecord.of(S, zero[:, None].expand(30, 500), **more, parameters={}, seconds=0.0).tensors()
    name, change_tensor = LISTED[change]
    counts = torch.tensor([30])
    FitRecord.of_tensors(tensors, S.classes, counts, {}, 0.0, 10**6)
    tensors[f"rows.{name}"] = change_tensor(tensors[f"rows.{name}"])
    with pytest.raises(ValueError, match="the record of the training rows is damaged"):
        FitRecord.of_tensors(tensors, S.classes, counts, {}, 0.0, 10**6)


def test_a_small_file_cannot_claim_a_large_matrix():
    with pytest.raises(ValueError, match=r"takes at least .* of memory, more than the limit"):
        FitRecord.of_tensors({"rows.top_p": torch.zeros(10**6)}, range(10**5), torch.tensor([1]), {}, 0.0, 10**6)


FACTS = {
    "no rule": ("cleaning", None),
    "a rule of another type": ("cleaning", [1]),
    "a level above 1": (("cleaning", "alpha"), 2),
    "a level as text": (("cleaning", "alpha"), "low"),
    "a temperature below 1": (("cleaning", "budget", "temperature"), 0.5),
    "a temperature above the cautious one": (("cleaning", "budget", "temperature"), 99),
    "an error above 1": (("cleaning", "budget", "error"), 1.5),
    "an interval that is turned around": (("cleaning", "budget", "missing"), [0.1, 0.2, 0.0]),
    "a flag as text": (("cleaning", "budget", "at_chance"), "no"),
    "another field": (("cleaning", "budget", "more"), 1),
    "no record": ("rows", None),
    "seconds as text": (("rows", "seconds"), "long"),
    "negative seconds": (("rows", "seconds"), -1),
    "an unknown parameter": (("rows", "parameters"), {"evil": 1}),
}


@pytest.mark.parametrize("change", FACTS)
def test_damaged_facts_are_refused(fitted, change, tmp_path):
    keys, value = FACTS[change]
    _save(fitted, tmp_path / "model")

    def edit(index):
        place = index["facts"]["estimator"]
        *path, last = [keys] if isinstance(keys, str) else keys
        for key in path:
            place = place[key]
        place[last] = value

    forge_index(tmp_path / "model" / "model.json", edit)
    with pytest.raises(ValueError, match=r"model is damaged \(.*\); restore a copy or save the model again"):
        PartialLabelClassifier.load(tmp_path / "model")


RULE = {
    "limits above 1": ("limits", _first(2.0)),
    "limits below 0": ("limits", _first(-0.5)),
    "limits that are not numbers": ("limits", _first(float("nan"))),
    "too few limits": ("limits", lambda t: t[:-1]),
    "no limits": ("limits", lambda t: None),
    "pairs of unknown classes": ("inseparable", lambda t: torch.tensor([[0, 4]])),
    "pairs of another shape": ("inseparable", lambda t: torch.zeros(2, 3).long()),
    "no pairs": ("inseparable", lambda t: None),
}


@pytest.mark.parametrize("change", RULE)
def test_damaged_rules_are_refused(fitted, change, tmp_path):
    _save(fitted, tmp_path / "model")
    tensors, facts = states.read(tmp_path / "model", stem="model")
    name, change_tensor = RULE[change]
    tensors[f"cleaning.{name}"] = change_tensor(tensors[f"cleaning.{name}"])
    tensors = {key: value for key, value in tensors.items() if value is not None}
    states.write_folder(tmp_path / "model", tensors, facts)
    with pytest.raises(ValueError, match=r"model is damaged \(.*(limits|pairs).*\); restore a copy"):
        PartialLabelClassifier.load(tmp_path / "model")


def test_the_most_doubtful_row_comes_first():
    p = torch.tensor(
        [
            [0.50, 0.01, 0.00, 0.49],  # sure among its candidates
            [0.01, 0.02, 0.90, 0.07],  # improbable candidates, but one of them twice as probable as the other
            [0.40, 0.38, 0.12, 0.10],  # probable candidates that can hardly be told apart
            [0.70, 0.10, 0.10, 0.10],  # one candidate, which the networks prefer
            [0.10, 0.80, 0.05, 0.05],  # one candidate, which they do not
        ]
    )
    matrix = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]], dtype=bool)
    scored = Scored.of(Candidates(matrix, NAMES), p)
    found = scored.cleaned(scored.sets, 1.0)
    assert found.priority.tolist() == [3, 2, 1, 5, 4]
    np.testing.assert_allclose(found.confidence, [50 / 51, 2 / 3, 40 / 78, 1, 1], rtol=1e-5)
    assert found.outside.tolist() == [None, NAMES[2], None, None, NAMES[1]]
    np.testing.assert_allclose(found.outside_proba, [0, 0.9, 0, 0, 0.8])
    softer = scored.cleaned(scored.sets, 3.0)
    assert (softer.confidence[:3] < found.confidence[:3]).all()
    assert softer.transduction.tolist() == found.transduction.tolist()


def test_confidence_means_the_same_everywhere(fitted):
    X, S = made(80, seed=7)
    for found in (fitted._cleaned, fitted.clean_all(X, S)):
        best = np.array([NAMES.index(name) for name in found.transduction])
        np.testing.assert_array_equal(found.confidence, found.candidate_proba[np.arange(len(best)), best].clip(max=1))
        np.testing.assert_allclose(found.candidate_proba.sum(1), 1, rtol=1e-5)
        assert sorted(found.priority) == list(range(1, len(best) + 1))
        assert (np.diff(found.confidence[np.argsort(found.priority)]) >= 0).all()
