"""The log: nothing that was written is lost, and what follows from it."""

import json
import threading
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candidly.cleaning import VerificationPlan
from candidly.review import Decision, Log
from candidly.review.decisions import _DECISION, Item
from tests.review.made import SESSION


def item(row, name, seconds=1.0):
    return Item(row, f"id{row}", "c0", name, seconds)


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path / "log.jsonl", create=True)
    log.start(SESSION)
    return log


def answers(log, reviewer=None):
    return {key: one.after for key, one in log.settled(reviewer).items()}


def test_a_line_has_everything(log):
    (decision,) = log.decide("ann", "decide", "0f", [item(3, "owl", 2.5)])
    session, line = map(json.loads, log.path.read_text().splitlines())
    assert session["session"]["table"] == "rows.csv"
    assert line == {name.name: getattr(decision, name.name) for name in fields(Decision)}
    assert (line["reviewer"], line["id"], line["before"], line["after"]) == ("ann", "id3", None, "owl")
    assert (line["seconds"], line["model"], line["mode"], line["row"]) == (2.5, "0f", "decide", 3)
    assert line.keys() == _DECISION.keys()


def test_what_was_written_is_read_again(log):
    log.decide("ann", "decide", "0f", [item(1, "owl"), item(2, "wren")])
    log.decide("ann", "decide", "0f", [item(1, "wren")])
    again = Log(log.path)
    assert again.decisions == log.decisions
    assert again.sessions == [SESSION]
    assert answers(again) == {"id1": "wren", "id2": "wren"}
    assert [one.before for one in again.decisions] == [None, None, "owl"]


def test_undo_and_redo_are_lines_too(log):
    log.decide("ann", "decide", "0f", [item(1, "owl")])
    log.decide("ann", "decide", "0f", [item(2, "wren"), item(3, "wren")])  # one step
    assert log.can_undo("ann", "decide", "0f") == (True, False)
    assert len(log.undo("ann", "decide", "0f")) == 2
    assert answers(log) == {"id1": "owl"}
    log.undo("ann", "decide", "0f")
    assert answers(log) == {}
    assert log.undo("ann", "decide", "0f") == []
    assert len(log.redo("ann", "decide", "0f")) == 1
    log = Log(log.path)  # another process goes on
    assert len(log.redo("ann", "decide", "0f")) == 2
    assert log.redo("ann", "decide", "0f") == []
    assert answers(log) == {"id1": "owl", "id2": "wren", "id3": "wren"}
    log.undo("ann", "decide", "0f")
    log.decide("ann", "decide", "0f", [item(9, "owl")])
    assert log.can_undo("ann", "decide", "0f") == (True, False)  # a new step forgets what was undone
    assert len(log.path.read_text().splitlines()) == 1 + 3 + 3 + 3 + 2 + 1


def test_undo_concerns_one_reviewer_mode_and_model(log):
    log.decide("ann", "decide", "0f", [item(1, "owl")])
    assert log.undo("bob", "decide", "0f") == []
    assert log.undo("ann", "verify", "0f") == []
    assert log.undo("ann", "decide", "1f") == []


@settings(max_examples=25)  # every step is flushed to the disk
@given(st.data())
def test_the_fold_is_that_of_a_list(tmp_path_factory, data):
    log = Log(tmp_path_factory.mktemp("log") / "log.jsonl", create=True)
    log.start(SESSION)
    state, done, undone = {}, [], []
    steps = data.draw(
        st.lists(
            st.one_of(
                st.just("undo"), st.just("redo"), st.tuples(st.integers(0, 3), st.text("ab", min_size=1, max_size=2))
            )
        )
    )
    for step in steps:
        if step == "undo":
            log.undo("ann", "decide", "0f")
            if done:
                undone.append(dict(state))
                state = done.pop()
        elif step == "redo":
            log.redo("ann", "decide", "0f")
            if undone:
                done.append(dict(state))
                state = undone.pop()
        else:
            log.decide("ann", "decide", "0f", [item(*step)])
            done.append(dict(state))
            undone.clear()
            state = state | {f"id{step[0]}": step[1]}
        assert answers(log) == state
    assert answers(Log(log.path)) == state


@pytest.mark.parametrize("cut", [1, 5, 40, 200])
def test_a_torn_last_line_is_ignored_and_replaced(log, cut):
    log.decide("ann", "decide", "0f", [item(1, "owl")])
    log.decide("ann", "decide", "0f", [item(2, "wren")])
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[:-cut])
    again = Log(log.path)
    complete = cut == 1  # only the newline is missing, as some editors leave it
    assert answers(again) == ({"id1": "owl", "id2": "wren"} if complete else {"id1": "owl"})
    again.decide("bob", "decide", "0f", [item(3, "owl")])
    lines = log.path.read_text().splitlines()
    assert [json.loads(line).get("id") for line in lines] == [None, "id1", *(["id2"] if complete else []), "id3"]


def test_zeros_at_the_end_are_a_torn_line(log):
    log.decide("ann", "decide", "0f", [item(1, "owl")])
    with log.path.open("ab") as file:
        file.write(bytes(100))
    again = Log(log.path)
    again.decide("ann", "decide", "0f", [item(2, "wren")])
    assert answers(Log(log.path)) == {"id1": "owl", "id2": "wren"}


@pytest.mark.parametrize(
    "line",
    ["{}", "[]", "nonsense", '{"session": 3}', '{"session": {"format": 99}}', "[" * 100_000, '{"time": "now"}'],
)
def test_a_damaged_line_is_named(log, line):
    with log.path.open("a") as file:
        file.write(f"{line}\n")
    log.path.write_bytes(log.path.read_bytes() + log.path.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(ValueError, match=r"log\.jsonl: line 2 cannot be read .* restore the file from a copy"):
        Log(log.path)


@pytest.mark.parametrize(
    ("name", "value"), [("mode", "blind"), ("row", -1), ("row", "1"), ("seconds", "1"), ("after", "")]
)
def test_a_wrong_value_is_refused(log, name, value):
    log.decide("ann", "decide", "0f", [item(1, "owl")])
    facts = json.loads(log.path.read_text().splitlines()[-1])
    with log.path.open("a") as file:
        file.write(json.dumps(facts | {name: value}) + "\n")
    with pytest.raises(ValueError, match="line 3 cannot be read"):
        Log(log.path)


def test_a_write_that_fails_leaves_nothing(log, monkeypatch):
    log.decide("ann", "decide", "0f", [item(1, "owl")])
    before = log.path.read_bytes()

    def fail(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("candidly.review.decisions.os.fsync", fail)
        with pytest.raises(OSError, match="No space"):
            log.decide("ann", "decide", "0f", [item(2, "wren")])
        assert answers(log) == {"id1": "owl"}
    assert log.path.read_bytes().startswith(before)


def test_a_log_that_vanishes_or_shrinks_is_noticed(log):
    log.decide("ann", "decide", "0f", [item(1, "owl")])
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[:50])
    with pytest.raises(ValueError, match="has become shorter"):
        log.refresh()
    log.path.unlink()
    with pytest.raises(FileNotFoundError, match="was removed"):
        log.decide("ann", "decide", "0f", [item(1, "owl")])


def test_a_log_is_about_one_table(log):
    log.start(replace(SESSION, reviewer="bob", model="ff"))
    with pytest.raises(ValueError, match=r"is about rows\.csv with the id column 'id', not None; name another file"):
        log.start(replace(SESSION, id=None))


def test_a_missing_log_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl does not exist"):
        Log(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="is a folder"):
        Log(tmp_path, create=True)


def write_many(path, reviewer, n):
    log = Log(path)
    for row in range(n):
        log.decide(reviewer, "decide", "0f", [item(row, "owl" if row % 3 else reviewer)])


def test_several_writers_lose_nothing(log):
    # Each opens the file and its lock by itself, as processes do.
    writers = [threading.Thread(target=write_many, args=(log.path, name, 40)) for name in ("ann", "ann", "bob")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    log.refresh()
    assert len(log.decisions) == 120
    assert len(log.path.read_text().splitlines()) == 121
    steps = [one.step for one in log.decisions if one.reviewer == "ann"]
    assert steps == list(range(1, 81))  # two writers of one reviewer number their steps together


def test_agreement(log):
    for row, (ann, bob) in enumerate([("owl", "owl"), ("owl", "wren"), ("wren", "wren"), ("wren", "wren")]):
        log.decide("ann", "decide", "0f", [item(row, ann)])
        log.decide("bob", "decide", "0f", [item(row, bob)])
    log.decide("ann", "decide", "0f", [item(8, "owl")])  # only one of them
    log.decide("bob", "decide", "0f", [item(9, "cannot tell")])
    log.decide("ann", "decide", "0f", [item(9, "owl")])
    (found,) = log.agreement()
    assert (found.reviewers, found.rows, found.observed) == (("ann", "bob"), 4, 0.75)
    assert found.kappa == pytest.approx((0.75 - 0.5) / 0.5)  # by hand: chance = 2/4 · 1/4 + 2/4 · 3/4
    assert list(log.disagreements()) == ["id1"]
    assert answers(log) == {"id0": "owl", "id2": "wren", "id3": "wren", "id8": "owl", "id9": "owl"}
    assert answers(log, "bob")["id1"] == "wren"
    log.decide("bob", "decide", "0f", [item(1, "owl")])
    assert log.disagreements() == {}
    assert log.agreement()[0].observed == 1.0


def test_kappa_agrees_with_scikit_learn(log):
    import numpy as np
    from sklearn.metrics import cohen_kappa_score

    rng = np.random.default_rng(0)
    pairs = rng.choice(["a", "b", "c"], (30, 2))
    for row, (ann, bob) in enumerate(pairs.tolist()):
        log.decide("ann", "decide", "0f", [item(row, ann)])
        log.decide("bob", "decide", "0f", [item(row, bob)])
    assert log.agreement()[0].kappa == pytest.approx(cohen_kappa_score(pairs[:, 0], pairs[:, 1]))


def test_kappa_of_one_answer_is_not_known(log):
    log.decide("ann", "decide", "0f", [item(1, "owl")])
    log.decide("bob", "decide", "0f", [item(1, "owl")])
    assert log.agreement()[0].kappa is None


def test_only_blind_answers_count_for_a_certificate(log):
    plan = VerificationPlan(
        rows=(1, 2, 3, 4, 5, 6),
        alpha=0.05,
        confidence=0.9,
        seed=0,
        sequential=False,
        family="0f",
        number=1,
        n=10,
        population=8,
    )
    log.decide("ann", "verify", "0f", [item(1, "owl")])
    log.decide("ann", "decide", "0f", [item(1, "wren")])  # with the model's opinion in view
    log.decide("ann", "decide", "0f", [item(2, "owl")])
    log.decide("ann", "verify", "ff", [item(3, "owl")])  # of another model
    log.decide("ann", "verify", "0f", [item(4, "heron")])  # a class that was added
    log.decide("ann", "verify", "0f", [item(5, "owl")])
    log.decide("bob", "verify", "0f", [item(5, "wren")])  # they disagree
    log.decide("ann", "verify", "0f", [item(6, "owl")])
    log.undo("ann", "verify", "0f")
    found = log.verified(plan, ("owl", "wren"))
    assert found == {1: "owl", 4: "none of these", 5: "cannot tell"}
    assert answers(log, "ann")["id1"] == "wren"  # what the table gets is the last word
