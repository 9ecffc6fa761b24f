"""What the page shows: order, filters, blindness, and what it refuses."""

import json
import shutil

import numpy as np
import pytest

from candidly import PartialLabelClassifier
from candidly.review import Log
from candidly.review.desk import View
from tests.review.made import ROWS, TRUE, answer, desk, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "copy")


def walk(one, view=View(), most=300):  # noqa: B008 - it is frozen
    """Return the rows of a view in the order of the arrow keys."""
    rows, found = [], one.show(view)
    while found["row"] is not None and len(rows) < most:
        rows.append(found["row"]["row"])
        if found["row"]["place"] == found["row"]["total"] - 1:
            break
        found = one.show(view, row=rows[-1], step=1)
    return rows


def test_the_most_doubtful_rows_come_first(folder):
    one = desk(folder)
    classifier = one.classifier
    assert walk(one) == np.argsort(classifier.priority_, kind="stable").tolist()
    row = one.show(View())["row"]
    assert row["candidates"][0]["name"] == row["suggestion"] == classifier.transduction_[row["row"]]
    p = [c["p"] for c in row["candidates"] if not c.get("outside")]
    assert p == sorted(p, reverse=True)
    assert sum(p) == pytest.approx(1, abs=1e-5)
    assert {cell["name"] for cell in row["cells"]} <= {"size", "colour"}  # neither candidates nor labels
    assert row["id"] == ROWS["id"][row["row"]].as_py()


def test_verify_is_blind(folder):
    one = desk(folder, "verify", plan=50)
    plan = one.plan
    assert walk(one) == list(plan.rows)
    shown = one.show(View())
    text = json.dumps([shown, one.state()])
    for word in ("suggestion", '"p"', "removed", "outside", "pairs", "priority", "label"):
        assert word not in text.replace("removed_rows", "")
    names = [c["name"] for c in shown["row"]["candidates"]]
    assert names == ROWS["tags"][plan.rows[0]].as_py()  # in the order of the classes
    assert shown["row"]["candidates"] == [{"name": name} for name in names]


def test_rows_that_await_verification_are_not_decided(folder):
    one = desk(folder, plan=50)
    planned = set(one.plan.rows)
    assert planned.isdisjoint(walk(one))
    with pytest.raises(ValueError, match="not shown in this mode"):
        one.decide([answer(one.plan.rows[0], "cat")])
    verify = desk(folder, "verify", plan=50)
    assert one.missing() == 50
    for row in one.plan.rows:
        verify.decide([answer(row, TRUE[row])])
    assert one.missing() == 0
    assert set(walk(one)) == set(range(200))


def test_the_certificate_is_that_of_the_classifier(folder):
    one = desk(folder, "verify", plan=60)
    assert one.certificate() == {"missing": 60, "lines": []}
    for row in one.plan.rows:
        one.decide([answer(row, TRUE[row])])
    wanted = one.classifier.certify({row: TRUE[row] for row in one.plan.rows})
    assert one.certificate() == {"missing": 0, "lines": wanted.lines()}


def test_a_decision_goes_on_to_the_next_row_without_an_answer(folder):
    one = desk(folder)
    order = walk(one)
    one.decide([answer(order[1], "cat")])
    one.decide([answer(order[0], "dog")])
    assert one.show(View(), row=order[0], after=True)["row"]["row"] == order[2]
    assert one.show(View(), row=order[0], step=1)["row"]["answer"] == "cat"  # arrows go to every row
    assert one.show(View(), row=order[0], step=-1)["row"]["row"] == order[0]
    for row in order[2:]:
        one.decide([answer(row, "cannot tell")])
    found = one.show(View(), row=order[7], after=True)
    assert found["row"]["row"] == order[7]
    assert found["progress"]["decided"] == found["progress"]["total"] == 200


def test_the_last_row_is_followed_by_the_first(folder):
    one = desk(folder)
    order = walk(one)
    one.decide([answer(order[-1], "cat")])
    assert one.show(View(), row=order[-1], after=True)["row"]["row"] == order[0]


def test_filters(folder):
    one = desk(folder)
    classifier, matrix = one.classifier, one.candidates.matrix
    changed = (classifier.candidates_.matrix != matrix).any(1)
    assert set(walk(one, View("changed"))) == set(np.flatnonzero(changed).tolist())
    assert set(walk(one, View(class_=1))) == set(np.flatnonzero(matrix[:, 1]).tolist())
    assert set(walk(one, View("outside"))) == {row for row in range(200) if classifier.outside_[row] is not None}
    pair = one.state()["pairs"][0]
    inside = walk(one, View(pair=tuple(pair["pair"])))
    assert len(inside) == pair["rows"]
    for row in inside:
        best = set(np.argsort(-classifier.candidate_proba_[row])[:2].tolist())
        assert best == set(pair["pair"]) or not matrix[row].sum() > 1
    one.decide([answer(inside[0], "cat")])
    assert walk(one, View("decided")) == [inside[0]]
    left = walk(one, View("undecided", pair=tuple(pair["pair"])))
    assert left == inside[1:]
    view = View("undecided")
    order = walk(one, view)
    one.decide([answer(order[3], "dog")])  # the row leaves the view; the next one follows
    assert one.show(view, row=order[3], after=True)["row"]["row"] == order[4]
    assert one.show(view, row=order[3], step=1)["row"]["row"] == order[4]
    assert one.show(view, row=order[3], step=-1)["row"]["row"] == order[2]


def test_two_tabs_and_two_reviewers(folder):
    log = Log(folder / "log.jsonl", create=True)
    first, tab = desk(folder, log=log), desk(folder)
    other = desk(folder, reviewer="bob")
    row, second = walk(first)[:2]
    first.decide([answer(row, "cat")])
    tab.decide([answer(second, "dog")])
    tab.decide([answer(row, "dog")])
    assert first.show(View(), row=row)["row"]["answer"] == "dog"
    assert other.show(View(), row=row)["row"]["answer"] is None  # reviewers do not see each other's answers
    other.decide([answer(row, "cat"), answer(second, "dog")])
    assert walk(first, View("disagreements")) == [row]
    found = other.reviewers()
    assert found["pairs"][0]["observed"] == 0.5
    assert found["disagreements"][0]["answers"] == {"ann": "dog", "bob": "cat"}
    assert first.take_back("undo") == row  # of the other tab
    assert first.show(View(), row=row)["row"]["answer"] == "cat"
    assert walk(first, View("disagreements")) == []


def test_batches(folder):
    one = desk(folder)
    some = one.batch(View(), None)["rows"]
    assert [row["row"] for row in some] == walk(one)[:12]
    assert one.decide([answer(row["row"], row["suggestion"]) for row in some]) == [row["row"] for row in some]
    assert one.progress(View())["decided"] == 12
    one.take_back("undo")  # all of them
    assert one.progress(View())["decided"] == 0
    one.take_back("redo")
    assert one.progress(View())["decided"] == 12


def test_time_left(folder):
    one = desk(folder)
    assert one.progress(View())["left"] is None
    order = walk(one)
    for row, seconds in zip(order, (2.0, 4.0, 90_000.0), strict=False):  # the last one was a night
        one.decide([answer(row, "cat", seconds)])
    assert one.progress(View())["left"] == pytest.approx(3.0 * 197)


def test_similar_rows(folder):
    one = desk(folder)
    X = one.classifier.features_.transform(one.material.rows.features)
    distance = ((X - X[17]) ** 2).sum(1)
    distance[17] = np.inf
    found = one.similar(17)
    assert len(found["rows"]) == 5
    wanted = np.sort(distance)[:5]
    assert np.allclose(np.sort([distance[row["row"]] for row in found["rows"]]), wanted, atol=1e-4)
    assert "p" not in json.dumps(list(found["rows"][0]))  # no opinion about rows that may await verification


def test_votes_are_shown_by_id_and_not_in_verify(folder):
    (folder / "votes.csv").write_text("task,worker,label\n000,eve,cat\n000,joe,dog\n001,eve,dog\n")
    one = desk(folder, annotations=str(folder / "votes.csv"))
    assert one.show(View(), row=0)["row"]["votes"] == [
        {"annotator": "eve", "label": "cat"},
        {"annotator": "joe", "label": "dog"},
    ]
    blind = desk(folder, "verify", plan=50, annotations=str(folder / "votes.csv"))
    assert "votes" not in blind.show(View())["row"]


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([], "list of 1 to 12"),
        ({"row": 1}, "list of 1 to 12"),
        ([answer(1, "cat")] * 2, "two answers for one row"),
        ([answer(i, "cat") for i in range(13)], "list of 1 to 12"),
        ([{"row": 1}], "must have row, answer and seconds"),
        ([answer(200, "cat")], "not shown in this mode"),
        ([answer(-1, "cat")], "not shown in this mode"),
        ([answer("1", "cat")], "not shown in this mode"),
        ([answer(True, "cat")], "not shown in this mode"),
        ([answer(1, 3)], "must be text"),
        ([answer(1, "")], "cannot be the name of a class"),
        ([answer(1, "a|b")], "cannot be the name of a class"),
        ([answer(1, "a\nb")], "cannot be the name of a class"),
        ([answer(1, "a\u202eb")], "cannot be the name of a class"),
        ([answer(1, "x" * 201)], "cannot be the name of a class"),
        ([answer(1, "CAT")], "is nearly the class 'cat'"),
        ([answer(1, "None of these")], "is nearly"),
        ([answer(1, "cat", -1)], "seconds"),
        ([answer(1, "cat", float("nan"))], "seconds"),
        ([answer(1, "cat", "1")], "seconds"),
    ],
)
def test_what_is_refused_is_not_written(folder, items, reason):
    one = desk(folder)
    with pytest.raises(ValueError, match=reason):
        one.decide(items)
    assert not (folder / "log.jsonl").exists()


def test_a_new_class_can_be_chosen_again(folder):
    one = desk(folder)
    one.decide([answer(1, " heron ")])
    assert one.state()["classes"][-1] == "heron"
    one.decide([answer(2, "heron")])
    assert one.state()["known"] == len(PartialLabelClassifier.load(folder / "model").classes_)


@pytest.mark.parametrize(
    "given", [{"show": "nothing"}, {"class": "99"}, {"class": "-1"}, {"pair": "1"}, {"pair": "1,99"}]
)
def test_views_that_do_not_exist(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        View.of(given, 3)


def test_rows_of_an_earlier_review_are_decided(folder):
    first = desk(folder)
    first.decide([answer(5, "cat")])
    again = desk(folder)
    assert again.show(View(), row=5)["row"]["answer"] == "cat"
    assert again.progress(View())["undo"]
