"""Decisions find their rows again, and become candidates."""

import numpy as np
import pyarrow as pa
import pytest

from candidly.candidates import Candidates
from candidly.review import Log
from candidly.review.decisions import Item
from candidly.review.merging import Rows, merge
from tests.review.made import SESSION

FEATURES = pa.table({"size": [1.0, 2.0, 3.0, 4.0], "colour": ["red", None, "blue", "red"]})
IDS = ["a", "b", "c", "d"]
SETS = Candidates(np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 0]], dtype=bool), ("cat", "dog", "emu"))


def log_of(folder, rows, answers, reviewer="ann"):
    log = Log(folder / "log.jsonl", create=True)
    if not log.sessions:
        log.start(SESSION)
    for row, name in answers.items():
        log.decide(reviewer, "decide", "0f", [Item(row, rows.id(row), rows.contents([row])[0], name, 1.0)])
    return log


@pytest.fixture
def rows():
    return Rows("rows.csv", FEATURES, IDS)


@pytest.fixture
def numbered():
    return Rows("rows.csv", FEATURES, None)


def test_decided_rows_have_one_candidate(tmp_path, rows):
    log = log_of(tmp_path, rows, {0: "dog", 1: "cat", 2: "cannot tell"})
    merged = merge(log, rows, SETS)
    assert merged.candidates.decode() == [("dog",), ("cat",), ("cat", "dog", "emu"), ("cat",)]
    assert merged.answers == {0: "dog", 1: "cat", 2: "cannot tell"}
    assert (merged.added, merged.disputed) == ((), 0)


def test_none_of_these_leaves_the_other_classes(tmp_path, rows):
    log = log_of(tmp_path, rows, {0: "none of these", 2: "none of these"})
    with pytest.warns(UserWarning, match="in 1 rows with the answer 'none of these' all classes are candidates"):
        merged = merge(log, rows, SETS)
    assert merged.candidates.decode()[0] == ("emu",)
    assert merged.candidates.decode()[2] == ("cat", "dog", "emu")


def test_a_new_class_takes_its_place(tmp_path, rows):
    merged = merge(log_of(tmp_path, rows, {3: "cow", 0: "none of these"}), rows, SETS)
    assert merged.added == ("cow",)
    assert merged.candidates.classes == ("cat", "cow", "dog", "emu")
    assert merged.candidates.decode() == [("cow", "emu"), ("dog", "emu"), ("cat", "dog", "emu"), ("cow",)]


def test_integers_are_ordered_by_value(tmp_path, rows):
    sets = Candidates(SETS.matrix, ("2", "9", "10"))
    assert merge(log_of(tmp_path, rows, {3: "3"}), rows, sets).candidates.classes == ("2", "3", "9", "10")
    plain = Candidates(SETS.matrix, (2, 9, 10))
    assert merge(log_of(tmp_path, rows, {3: "9"}), rows, plain).candidates.decode()[0] == (2, 9)


@pytest.mark.filterwarnings("ignore:reviewers disagree")
def test_ids_survive_a_shuffle(tmp_path, rows):
    log = log_of(tmp_path, rows, {0: "dog", 3: "emu"})
    order = [2, 3, 0, 1]
    shuffled = Rows("rows.csv", FEATURES.take(pa.array(order)), [IDS[i] for i in order])
    merged = merge(log, shuffled, SETS[order])
    assert merged.answers == {2: "dog", 1: "emu"}


def test_removed_and_changed_rows_with_ids_are_reported(tmp_path, rows):
    log = log_of(tmp_path, rows, {0: "dog", 3: "emu"})
    fewer = Rows("rows.csv", FEATURES.slice(0, 3), IDS[:3])
    with pytest.warns(UserWarning, match="some decided rows are not in the table, such as 'd'"):
        assert merge(log, fewer, SETS[[0, 1, 2]]).answers == {0: "dog"}
    changed = Rows("rows.csv", FEATURES.set_column(0, "size", pa.array([9.0, 2.0, 3.0, 4.0])), IDS)
    with pytest.warns(UserWarning, match="1 decided rows have other features"):
        assert merge(log, changed, SETS).answers == {0: "dog", 3: "emu"}


@pytest.mark.parametrize("order", [[1, 0, 2, 3], [0, 1, 2], [0, 1, 3, 2]])
def test_without_ids_a_changed_table_is_refused(tmp_path, numbered, order):
    log = log_of(tmp_path, numbered, {0: "dog", 3: "emu"})
    assert merge(log, numbered, SETS).answers == {0: "dog", 3: "emu"}
    moved = Rows("rows.csv", FEATURES.take(pa.array(order)), None)
    with pytest.raises(ValueError, match=r"row [03] is not the row that was decided.*column of ids"):
        merge(log, moved, SETS[order])


def test_without_ids_undecided_rows_may_change(tmp_path, numbered):
    log = log_of(tmp_path, numbered, {0: "dog"})
    moved = Rows("rows.csv", FEATURES.take(pa.array([0, 3, 2, 1])), None)
    assert merge(log, moved, SETS).answers == {0: "dog"}


def test_reviewers_who_disagree_decide_nothing(tmp_path, rows):
    log_of(tmp_path, rows, {0: "dog", 1: "dog"})
    log = log_of(tmp_path, rows, {0: "cat", 1: "dog"}, "bob")
    with pytest.warns(UserWarning, match="reviewers disagree on 1 rows"):
        merged = merge(log, rows, SETS)
    assert (merged.answers, merged.disputed) == ({1: "dog"}, 1)
    assert merge(log, rows, SETS, "bob").answers == {0: "cat", 1: "dog"}
    with pytest.raises(ValueError, match=r"reviewer is 'eve', who decided nothing in .*; use one of ann, bob"):
        merge(log, rows, SETS, "eve")


def test_the_columns_by_which_rows_are_known():
    assert Rows.of("t.csv", FEATURES, IDS, SESSION).features.column_names == ["size", "colour"]
    assert Rows.of("t.csv", FEATURES.select(["size"]), IDS, SESSION).features is None
    with pytest.raises(ValueError, match=r"t\.csv is read without ids, .* column 'id'; name it with --id"):
        Rows.of("t.csv", FEATURES, None, SESSION)


def test_content_is_that_of_the_features(numbered):
    prints = numbered.contents([0, 1, 2, 3])
    assert len(set(prints)) == 4
    assert numbered.contents([2]) == [prints[2]]
