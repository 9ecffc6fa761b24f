"""Evaluations against loops over rows, what they print and draw, and what they refuse."""

import dataclasses
import json
import sys

import matplotlib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from candidly import PartialLabelClassifier
from candidly.estimator import evaluation
from candidly.estimator.evaluation import draw, evaluate

NAMES = np.array(["ant", "bee", "cow"])


def made(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[y]
    return X, np.eye(3, dtype=bool)[y] | (rng.random((n, 3)) < 0.3), NAMES[y]


X, S, _ = made(120, 0)
Z, _, TRUE = made(80, 1)


@pytest.fixture(scope="module")
def fitted():
    return PartialLabelClassifier(folds=3, max_epochs=8, device="cpu", classes=NAMES, random_state=0).fit(X, S)


@pytest.fixture(scope="module")
def found(fitted):
    return evaluate(fitted, Z, TRUE)


def test_accuracy_and_sets_equal_loops(fitted, found):
    assert (found.rows, found.classes, found.unknown) == (80, 3, 0)
    assert found.accuracy == pytest.approx((fitted.predict(Z) == TRUE).mean(), abs=1e-6)
    assert [(one.kind, one.score) for one in found.sets] == [
        (kind, score) for kind in ("split", "cv+", "averaged") for score in ("lac", "aps")
    ]
    column = [NAMES.tolist().index(name) for name in TRUE]
    for one in found.sets:
        for alpha, coverage, size in zip(found.alphas, one.coverage, one.size, strict=True):
            sets = fitted.predict_p(Z, kind=one.kind, score=one.score) > alpha
            assert coverage == pytest.approx(np.mean([row[j] for row, j in zip(sets, column, strict=True)]), abs=1e-6)
            assert size == pytest.approx(sets.sum(1).mean(), abs=1e-6)


def test_the_risk_curve_equals_a_loop(fitted, found):
    confidence, wrong = fitted.predict_proba(Z).max(1), fitted.predict(Z) != TRUE
    limits = sorted(confidence, reverse=True)
    assert found.coverage == pytest.approx([(confidence >= limit).mean() for limit in limits], abs=1e-6)
    assert found.risk == pytest.approx([wrong[confidence >= limit].mean() for limit in limits], abs=1e-6)
    assert found.area == pytest.approx(np.mean(found.risk), abs=1e-6)
    assert found.risk[-1] == pytest.approx(1 - found.accuracy, abs=1e-6)
    assert found.estimated_risk == pytest.approx(fitted.risk_curve_["risk"], abs=1e-6)
    assert found.estimated_coverage[-1] == 1


def test_rules_and_levels_are_taken(fitted):
    found = evaluate(fitted, Z, TRUE, alphas=[0.4, 0.2], candidate="worst", smooth=True)
    assert found.alphas == (0.2, 0.4)
    sets = fitted.predict_set(Z, 0.2, kind="split", candidate="worst", smooth=True)
    assert found.sets[0].size[0] == pytest.approx(sets.sum(1).mean(), abs=1e-6)
    assert (found.candidate, found.smooth) == ("worst", True)


def test_long_curves_are_thinned_out(fitted):
    rows, _, true = made(500, 2)
    found = evaluate(fitted, rows, true)
    assert len(found.risk) == len(found.coverage) == 200
    assert found.coverage[-1] == 1
    assert found.risk[-1] == pytest.approx(1 - found.accuracy, abs=1e-6)


@pytest.mark.parametrize("form", [list, np.asarray, pd.Series, pa.array, lambda y: pa.chunked_array([y])])
def test_labels_come_in_many_forms(fitted, found, form):
    assert evaluate(fitted, Z, form(TRUE)) == found


def test_rows_without_a_label_do_not_count(fitted):
    some = evaluate(fitted, Z, [None, float("nan"), *TRUE[2:]])
    assert some == evaluate(fitted, Z[2:], TRUE[2:])
    with pytest.raises(ValueError, match="none of 80 rows has a true label"):
        evaluate(fitted, Z, [None] * 80)


def test_a_label_that_is_no_class_is_an_error_in_every_sense(fitted):
    found = evaluate(fitted, Z, ["yak"] * 40 + TRUE[40:].tolist())
    assert (found.rows, found.unknown) == (80, 40)
    assert found.accuracy <= 0.5
    assert all(share <= 0.5 for one in found.sets for share in one.coverage)
    assert "80 rows, 40 with a label that is not a class of the model, 3 classes" in str(found)


def test_numbers_as_names():
    y = np.array([3, 5, 7])[NAMES.searchsorted(TRUE)]
    fitted = PartialLabelClassifier(folds=2, max_epochs=3, device="cpu", random_state=0).fit(Z, y)
    found = evaluate(fitted, Z, y)
    assert found.unknown == 0
    assert found.accuracy == pytest.approx((fitted.predict(Z) == y).mean(), abs=1e-6)


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        (TRUE[1:], {}, "there are 80 rows but 79 true labels; pass one per row"),
        ([["ant", "bee"], *TRUE[1:]], {}, r"the true label of row 0 is \['ant', 'bee'\]; pass one class name per row"),
        (TRUE, {"alphas": [0.1, 1]}, "one of alphas is 1; it must lie between 0 and 1"),
        (TRUE, {"alphas": []}, "alphas has 0 levels; give at least one"),
        (TRUE, {"candidate": "true"}, "candidate is 'true'; use one of"),
    ],
)
def test_what_cannot_be_evaluated(fitted, y, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(fitted, Z, y, **options)


def test_models_without_held_out_rows_have_no_sets():
    bare = PartialLabelClassifier(folds=1, validation_fraction=0, max_epochs=2, device="cpu", random_state=0).fit(X, S)
    with pytest.raises(ValueError, match="no rows were held out to calibrate on"):
        evaluate(bare, Z, TRUE)


def test_it_is_json(found):
    facts = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert facts.keys() == {field.name for field in dataclasses.fields(found)}
    assert facts["sets"][0]["coverage"] == list(found.sets[0].coverage)


def test_it_reads_as_a_table(found):
    lines = str(found).splitlines()
    assert lines[0] == f"80 rows, 3 classes, accuracy {found.accuracy:.1%}"
    assert f"{found.risk[-1]:.1%} of the most probable 100%" in lines[1]
    assert lines[3].split() == [f"{alpha:g}" for alpha in found.alphas]
    assert len(lines) == 4 + 6
    assert lines[4].split()[:4] == ["split", "lac", f"{found.sets[0].coverage[0]:.1%}", f"{found.sets[0].size[0]:.2f}"]
    assert len({len(line) for line in lines[3:]}) == 1


@pytest.mark.parametrize("ending", ["svg", "pdf", "png", "SVG"])
def test_the_same_evaluation_gives_the_same_bytes(found, tmp_path, ending):
    draw(found, tmp_path / f"a.{ending}")
    with matplotlib.rc_context({"svg.hashsalt": "other", "font.family": ["serif"]}):
        draw(found, tmp_path / f"b.{ending}")
    first, second = ((tmp_path / f"{name}.{ending}").read_bytes() for name in "ab")
    assert first == second
    assert len(first) > 1000
    assert ending == "png" or b"date" not in first.lower()


def test_what_is_drawn(found, tmp_path, monkeypatch):
    kept, original = [], evaluation._figure
    monkeypatch.setattr(evaluation, "_figure", lambda *arguments: kept.append(original(*arguments)) or kept[0])
    draw(found, tmp_path / "a.png")
    left, right = kept[0].axes
    assert [line.get_label() for line in left.lines] == [f"{one.kind} {one.score}" for one in found.sets]
    assert left.lines[0].get_xydata().tolist() == np.c_[found.sets[0].size, found.sets[0].coverage].tolist()
    assert right.lines[0].get_xydata().tolist() == np.c_[found.coverage, found.risk].tolist()
    assert right.lines[1].get_xydata().tolist() == np.c_[found.estimated_coverage, found.estimated_risk].tolist()
    assert len({(line.get_color(), line.get_linestyle()) for line in left.lines}) == 6  # all can be told apart


def test_nothing_half_drawn_is_left(found, tmp_path, monkeypatch):
    (tmp_path / "a.svg").write_text("old")
    with pytest.raises(ValueError, match=r"ends in '.gif'; choose one of .pdf, .png, .svg"):
        draw(found, tmp_path / "a.gif")
    monkeypatch.setattr(evaluation, "_figure", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        draw(found, tmp_path / "a.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]
    assert (tmp_path / "a.svg").read_text() == "old"


def test_plots_need_matplotlib(found, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'candidly\[report\]'"):
        draw(found, tmp_path / "a.svg")
