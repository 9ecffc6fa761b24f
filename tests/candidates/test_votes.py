"""Votes of annotators: every kind of table, counts, thresholds, agreement against loops over pairs of votes."""

import math
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import FrozenInstanceError
from fractions import Fraction
from itertools import permutations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from candidly import candidates
from candidly.candidates import encode
from candidly.candidates.votes import from_annotations

TABLE = {
    "task": ["p1", "p1", "p1", "p2", "p2", "p3"],
    "worker": ["ann", "bob", "eve", "ann", "bob", "eve"],
    "label": ["cat", "dog", "cat", "dog", "dog", "owl"],
}
ROWS = [dict(zip(TABLE, row, strict=True)) for row in zip(*TABLE.values(), strict=True)]
COUNTS = [[2, 1, 0], [0, 2, 0], [0, 0, 1]]
WIDE = {"id": ["p1", "p2", "p3"], "ann": ["cat", "dog", None], "bob": ["dog", "dog", ""], "eve": ["cat", None, "owl"]}


def structured(table):
    columns = [np.array(column) for column in table.values()]
    return np.rec.fromarrays(columns, names=list(table)).view(np.ndarray)


def polars(table):
    return pytest.importorskip("polars", reason="polars is not installed").DataFrame(table)


MAKERS = {
    "dict": lambda table: table,
    "dict of arrays": lambda table: {name: np.array(column, dtype=object) for name, column in table.items()},
    "dict of series": lambda table: {name: pd.Series(column) for name, column in table.items()},
    "dict of Arrow arrays": lambda table: {name: pa.array(column) for name, column in table.items()},
    "list": lambda table: [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)],
    "pandas": pd.DataFrame,
    "pandas categories": lambda table: pd.DataFrame(table).astype("category"),
    "pandas objects": lambda table: pd.DataFrame(table, dtype=object),
    "pandas over Arrow": lambda table: pd.DataFrame(table).convert_dtypes(dtype_backend="pyarrow"),
    "pyarrow": pa.table,
    "pyarrow categories": lambda table: pa.table({k: pa.array(v).dictionary_encode() for k, v in table.items()}),
    "polars": polars,
}
every_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@every_kind
def test_long_tables_of_every_kind(make):
    votes = from_annotations(make(TABLE))
    assert votes.candidates == encode([["cat", "dog"], ["dog"], ["owl"]])
    assert votes.counts.tolist() == COUNTS
    assert votes.counts.dtype == np.int64
    assert votes.tasks == ("p1", "p2", "p3")
    assert votes.workers == ("ann", "bob", "eve")


def test_structured_arrays():
    for table in (structured(TABLE), np.rec.fromarrays(list(TABLE.values()), names=list(TABLE))):
        votes = from_annotations(table)
        assert votes.counts.tolist() == COUNTS
        assert votes.candidates.classes == ("cat", "dog", "owl")
        assert {type(name) for name in (*votes.tasks, *votes.workers, *votes.candidates.classes)} == {str}


@every_kind
def test_wide_tables_of_every_kind(make):
    votes = from_annotations(make(WIDE), task="id", columns=["ann", "bob", "eve"])
    assert votes.counts.tolist() == COUNTS
    assert votes.tasks == ("p1", "p2", "p3")
    assert votes.workers == ("ann", "bob", "eve")
    assert from_annotations(make(WIDE), columns=(name for name in ("ann", "bob", "eve"))).tasks == (0, 1, 2)


def test_wide_and_long_agree():
    wide, long = from_annotations(WIDE, task="id", columns=["ann", "bob", "eve"]), from_annotations(TABLE)
    assert wide.agreement.alpha == long.agreement.alpha
    assert np.array_equal(wide.agreement.workers, long.agreement.workers)
    assert repr(wide) == repr(long)


def test_columns_of_other_names():
    other = {"Item": TABLE["task"], 7: TABLE["worker"], "ANSWER": TABLE["label"], "rest": [[]] * 6}
    for table in (other, pd.DataFrame(other)):
        assert from_annotations(table, task="Item", worker=7, label="ANSWER").counts.tolist() == COUNTS


def test_a_worker_without_votes_stays_in_a_wide_table():
    votes = from_annotations({"ann": ["a", "b"], "bob": [None, float("nan")]}, columns=["ann", "bob"])
    assert votes.workers == ("ann", "bob")
    assert np.isnan(votes.agreement.workers).all()


@pytest.mark.parametrize("missing", [None, float("nan"), np.nan, pd.NA, pd.NaT, "", "  \t", b"", np.datetime64("NaT")])
def test_missing_labels_are_no_votes_and_are_counted(missing):
    table = {"task": [1, 1, 2, 2], "worker": [1, 2, 1, 2], "label": ["a", missing, "b", missing]}
    with pytest.warns(UserWarning, match="2 rows have no label and are left out") as caught:
        votes = from_annotations(table)
    assert [one.filename for one in caught] == [__file__]
    assert votes.counts.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    "label",
    [
        np.array([3, np.nan, 5]),
        [3.0, float("nan"), 5],
        pd.Series([3, None, 5]),
        pd.Series([3, None, 5], dtype="Int64"),
        pd.Series([3, None, 5], dtype="Float64"),
        pa.chunked_array([[3, None], [5]]),
        pa.array([3, None, 5]),
    ],
)
def test_numbers_beside_a_missing_label_stay_integers(label):
    columns = {"task": [0, 1, 2], "worker": [0, 0, 0], "label": label}
    for table in (columns, (pa.table if isinstance(label, (pa.Array, pa.ChunkedArray)) else pd.DataFrame)(columns)):
        with pytest.warns(UserWarning, match="1 rows have no label|1 tasks have no vote") as caught:
            votes = from_annotations(table)
        assert len(caught) == 2
        assert votes.candidates.classes == (3, 5)
        assert {type(name) for name in votes.candidates.classes} == {int}
        assert votes.tasks == (0, 2)


def test_numbers_that_are_not_whole_stay():
    table = {"task": [0, 1, 2], "worker": [0, 0, 0], "label": np.array([2.0, 0.5, 2.0])}
    assert from_annotations(table).candidates.classes == (0.5, 2.0)


def test_large_integers_beside_a_missing_one_are_exact():
    big = 2**53 + 1
    votes = from_annotations(pd.DataFrame({"a": pd.array([big, None], "Int64"), "b": [0, 1]}), columns=["a", "b"])
    assert votes.candidates.classes == (0, 1, big)


def test_tasks_without_votes_are_left_out_and_counted():
    with pytest.warns(UserWarning, match="2 tasks have no vote and are left out; .* Votes.tasks"):
        votes = from_annotations({"ann": [None, "a", None, "b"], "bob": ["", "b", " ", None]}, columns=["ann", "bob"])
    assert votes.tasks == (1, 3)
    assert votes.counts.tolist() == [[1, 1], [0, 1]]


def test_tasks_and_workers_stand_in_order_of_first_appearance():
    votes = from_annotations({"task": [9, 2, 9, 5], "worker": ["z", "a", "m", "a"], "label": ["a", "b", "a", "c"]})
    assert votes.tasks == (9, 2, 5)
    assert votes.workers == ("z", "a", "m")
    assert votes.candidates.decode() == [("a",), ("b",), ("c",)]


def test_a_repeated_vote_counts_once_and_different_labels_all_count():
    table = {"task": [1, 1, 1, 1, 2], "worker": ["ann", "ann", "ann", "ann", "bob"], "label": ["a", "b", "a", "a", "b"]}
    with pytest.warns(UserWarning, match="2 votes repeat a worker's label for a task and count once") as caught:
        votes = from_annotations(table)
    assert caught[0].filename == __file__
    assert votes.counts.tolist() == [[1, 1], [0, 1]]
    assert votes.agreement.observed == 0


def test_classes_fix_names_and_order():
    votes = from_annotations(TABLE, classes=["owl", "emu", "dog", "cat"])
    assert votes.candidates.classes == ("owl", "emu", "dog", "cat")
    assert votes.counts.tolist() == [[0, 0, 1, 2], [0, 0, 2, 0], [1, 0, 0, 0]]
    assert from_annotations(TABLE, classes=iter(["owl", "dog", "cat"])).candidates.classes == ("owl", "dog", "cat")
    mixed = {"task": [1, 2], "worker": [1, 1], "label": np.array([1, "b"], dtype=object)}
    assert from_annotations(mixed, classes=["b", 1]).candidates.decode() == [(1,), ("b",)]


@pytest.mark.parametrize("make", [MAKERS["dict"], MAKERS["list"], MAKERS["pandas"], MAKERS["pyarrow"], polars])
def test_hostile_names_are_kept_as_they_are(make):
    names = [
        "a|b",
        " a",
        "a ",
        "A",
        "nan",
        "None",
        "<NA>",
        "1",
        "01",
        "a\nb",
        "[x]",
        "é",
        "e\u0301",
        "🦉",
        "'",
        "\x00x",
    ]
    table = {"task": list(range(len(names))), "worker": names[::-1], "label": names}
    with pytest.warns(UserWarning, match="differ only by case|for a missing value"):
        votes = from_annotations(make(table))
    assert [row[0] for row in votes.candidates.decode()] == names
    assert votes.candidates.classes == tuple(sorted(names))
    assert votes.workers == tuple(names[::-1])


def test_scalars_of_array_libraries_are_plain_names():
    rows = [{"task": torch.tensor(k), "worker": np.int64(0), "label": np.str_("ab"[k % 2])} for k in (0, 1, 0)]
    with pytest.warns(UserWarning, match="1 votes repeat"):
        votes = from_annotations(rows)
    assert votes.tasks == (0, 1)
    assert [type(name) for name in (votes.tasks[0], votes.workers[0], votes.candidates.classes[0])] == [int, int, str]


def test_rows_may_lack_a_key():
    with pytest.warns(UserWarning, match="1 rows have no label"):
        votes = from_annotations([*ROWS, {"task": "p1", "worker": "joe"}])
    assert votes.workers == ("ann", "bob", "eve", "joe")
    assert math.isnan(votes.agreement.workers[3])


@pytest.mark.parametrize(
    ("options", "sets", "fallbacks"),
    [
        ({}, ["abc", "ab", "abc"], 0),
        ({"min_votes": 2}, ["ab", "ab", "abc"], 1),
        ({"min_votes": 4}, ["a", "ab", "abc"], 2),
        ({"min_votes": np.int64(94)}, ["a", "a", "abc"], 3),
        ({"min_share": 0.07}, ["abc", "ab", "abc"], 0),  # 7 of 100, although 0.07 * 100 > 7
        ({"min_share": 1 / 3}, ["ab", "a", "abc"], 0),
        ({"min_share": 0.5}, ["a", "a", "abc"], 1),
        ({"min_share": 1}, ["a", "a", "abc"], 3),
        ({"min_votes": 3, "min_share": 0.05}, ["a", "ab", "abc"], 1),
    ],
)
def test_thresholds(options, sets, fallbacks):
    counts = {"x": {"a": 3, "b": 2, "c": 1}, "y": {"a": 93, "b": 7}, "z": {"a": 1, "b": 1, "c": 1}}
    rows = [
        {"task": task, "worker": worker, "label": label}
        for task, row in counts.items()
        for worker, label in enumerate(Counter(row).elements())
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        votes = from_annotations(rows, **options)
    assert ["".join(row) for row in votes.candidates.decode()] == sets
    assert votes.counts.tolist() == [[3, 2, 1], [93, 7, 0], [1, 1, 1]]
    assert votes.fallbacks == fallbacks
    told = [str(one.message) for one in caught]
    assert [text.startswith(f"{fallbacks} tasks have no label with min_votes=") for text in told] == [True] * bool(told)
    assert bool(told) == bool(fallbacks) == ("below the thresholds" in repr(votes))


def test_weights_are_shares_among_the_candidates():
    table = {"task": [1, 1, 1, 1, 1, 1, 2, 2], "worker": [0, 1, 2, 3, 4, 5, 0, 1], "label": [*"aaabbccc"]}
    votes = from_annotations(table, min_votes=2)
    assert votes.counts.tolist() == [[3, 2, 1], [0, 0, 2]]
    assert votes.weights().tolist() == [[0.6, 0.4, 0], [0, 0, 1]]


def test_votes_read_well_and_cannot_be_changed():
    votes = from_annotations(TABLE)
    assert str(votes) == repr(votes)
    assert str(votes).splitlines() == [
        "Votes: 3 tasks, 3 workers, 6 votes, 3 classes",
        "  candidates per task 1.33, tasks with one candidate 66.7%",
        "  agreement 0.600, Krippendorff's alpha 0.333",
    ]
    with pytest.raises(FrozenInstanceError):
        votes.counts = None
    for array in (votes.counts, votes.agreement.workers):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def wide(*workers):
    """Return the agreement of workers whose labels are the letters of a text, with dots for missing ones."""
    columns = {f"w{k}": [None if mark == "." else mark for mark in text] for k, text in enumerate(workers)}
    return from_annotations(columns, columns=columns, classes=sorted({*"".join(workers), "x"} - {"."})).agreement


def test_alpha_by_hand():
    # Tasks aab, bb: n_a = 2, n_b = 3, n = 5. Coincidences: o_aa = 2·1/2 = 1, o_bb = 2·1/1 = 2, so 3/5 agree. Chance:
    # (2·1 + 3·2) / (5·4) = 2/5. Hence 1 − (2/5) / (3/5) = 1/3. The third task has a single vote and does not count.
    found = wide("abc", "ab.", "b..")
    assert found.observed == pytest.approx(3 / 5)
    assert found.alpha == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("workers", "agreeing", "by_label", "alpha"),
    [
        (["0100000010", "1110010000"], 12, [14, 6], 0.095),
        (["aabbdcccedda", "babbbccceddd"], 18, [4, 6, 6, 6, 2], 0.692),
        (["123321412...", "1233224125.3", ".3332342251.", "12332441251."], 32, [9, 13, 10, 5, 3], 0.743),
        (["....341211333", "1213343......", ".21344.211334"], 20, [7, 4, 10, 5], 0.691),
    ],
)
def test_alpha_of_published_examples(workers, agreeing, by_label, alpha):
    """Three of Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011, and the one of Wikipedia's article.

    The sum of coincidences on the diagonal and the votes by label are counted by hand.
    """
    n, chance = sum(by_label), sum(k * (k - 1) for k in by_label)
    exact = Fraction((n - 1) * agreeing - chance, n * (n - 1) - chance)
    assert round(float(exact), 3) == alpha
    assert wide(*workers).alpha == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize(
    ("workers", "observed", "alpha"),
    [
        (["ab", "ab", "ab"], 1, 1),
        (["aa", "a."], 1, None),  # no second label among the votes that can be compared
        (["aab", "aa."], 1, None),
        (["ab.", "..a"], None, None),
        (["ab", "ba"], 0, -0.5),
    ],
)
@pytest.mark.filterwarnings("ignore:all .* rows have the same candidates")
def test_agreement_at_its_ends(workers, observed, alpha):
    found = wide(*workers)
    assert (found.observed, found.alpha) == (observed, alpha)


def test_unknown_agreement_is_called_so():
    votes = from_annotations({"ann": ["a", "b"]}, columns=["ann"])
    assert repr(votes).endswith("agreement unknown, Krippendorff's alpha unknown")


@pytest.mark.parametrize(
    ("workers", "shares"),
    [
        (["ab", "ab", "ba"], [0.5, 0.5, 0]),
        (["a", "a", "a"], [1, 1, 1]),
        (["aa", "ab", "b."], [0.25, 0.25, 0]),
        (["ab", "a.", "a."], [1, 1, 1]),
        (["ab", ".a"], [0, 0]),
    ],
)
@pytest.mark.filterwarnings("ignore:all .* rows have the same candidates")
def test_agreement_with_the_majority_of_the_others(workers, shares):
    assert wide(*workers).workers.tolist() == shares


votes_of = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.sampled_from("abcd")), min_size=1, max_size=40)


@given(votes_of, st.integers(1, 4), st.sampled_from([0, 0.25, 1 / 3, 0.5, 0.6, 1]))
def test_everything_equals_loops_over_votes(rows, min_votes, min_share):
    table = [{"task": task, "worker": worker, "label": label} for task, worker, label in rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        votes = from_annotations(table, classes=iter("abcd"), min_votes=min_votes, min_share=min_share)
    once = list(dict.fromkeys(rows))
    assert votes.tasks == tuple(dict.fromkeys(task for task, _, _ in rows))
    assert votes.workers == tuple(dict.fromkeys(worker for _, worker, _ in rows))
    fallbacks = 0
    for i, task in enumerate(votes.tasks):
        tally = Counter(label for t, _, label in once if t == task)
        assert votes.counts[i].tolist() == [tally[label] for label in "abcd"]
        kept = {k for k, v in tally.items() if v >= min_votes and v / tally.total() >= min_share}
        fallbacks += not kept
        kept = kept or leaders(tally)
        assert set(votes.candidates.decode()[i]) == kept
        among = sum(tally[label] for label in kept)
        weights = [tally[label] / among if label in kept else 0 for label in "abcd"]
        assert votes.weights()[i] == pytest.approx(weights)
    assert votes.fallbacks == fallbacks
    observed, alpha = literal_agreement(once)
    assert votes.agreement.observed == (None if observed is None else pytest.approx(float(observed)))
    assert votes.agreement.alpha == (None if alpha is None else pytest.approx(float(alpha)))
    shares = [literal_share(once, worker) for worker in votes.workers]
    assert votes.agreement.workers == pytest.approx(shares, nan_ok=True)


def leaders(tally):
    return {label for label, count in tally.items() if count == max(tally.values())}


def literal_agreement(rows):
    """Return observed agreement and alpha from all ordered pairs of votes; alpha's chance is that of any two votes."""
    units = [[label for t, _, label in rows if t == task] for task in {task for task, _, _ in rows}]
    units = [unit for unit in units if len(unit) > 1]
    values = [label for unit in units for label in unit]
    if not values:
        return None, None
    apart = Fraction(0)
    for unit in units:
        apart += Fraction(sum(a != b for a, b in permutations(unit, 2)), len(unit) - 1)
    apart /= len(values)
    by_chance = Fraction(sum(a != b for a, b in permutations(values, 2)), len(values) * (len(values) - 1))
    return 1 - apart, 1 - apart / by_chance if by_chance else None


def literal_share(rows, worker):
    credits = []
    for task, by, label in rows:
        others = Counter(other for t, w, other in rows if t == task and w != worker)
        if by == worker and others:
            credits.append((label in leaders(others)) / len(leaders(others)))
    return sum(credits) / len(credits) if credits else math.nan


GOOD = {"task": [1, 2], "worker": [1, 1], "label": ["a", "b"]}


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (GOOD | {"label": ["a", "x"]}, {"classes": ["a", "b"]}, "row 1 has the label 'x' in column 'label', which is"),
        (WIDE, {"columns": ["ann", "eve"], "classes": ["cat", "dog"]}, "row 2 has the label 'owl' in column 'eve'"),
        (GOOD, {"classes": ["a", "a"]}, "class 'a' is listed twice"),
        (GOOD, {"classes": "ab"}, "classes is the single text 'ab'"),
        (
            GOOD,
            {"label": "lable"},
            r"no column 'lable' \(did you mean 'label'\?\); name it with label=, out of 'task', ",
        ),
        (pd.DataFrame(GOOD), {"task": " TASK"}, r"no column ' TASK' \(did you mean 'task'\?\); name it with task="),
        (pa.table({"Worker": [1], "task": [1]}), {}, r"no column 'worker' \(did you mean 'Worker'\?\)"),
        (GOOD, {"worker": "zzz"}, "no column 'zzz'; name it with worker=, out of 'task', 'worker', 'label'$"),
        (WIDE, {"columns": ["ann", "bop"]}, r"no column 'bop' \(did you mean 'bob'\?\); name it with columns="),
        (WIDE, {"columns": ["ann"], "task": "ID"}, r"no column 'ID' \(did you mean 'id'\?\); name it with task="),
        ({f"c{k}": [1] for k in range(30)}, {}, "'c19' and 10 more$"),
        ({}, {}, "the table is empty"),
        ([], {}, "the table is empty"),
        ([{}], {}, "the table is empty"),
        (pd.DataFrame(), {}, "the table is empty"),
        (pd.DataFrame(GOOD)[:0], {}, "the table has no rows; pass at least one vote"),
        ({"task": [], "worker": [], "label": []}, {}, "the table has no rows"),
        ({"ann": []}, {"columns": ["ann"]}, "the table has no rows"),
        (GOOD | {"label": [None, " "]}, {}, "the table has no votes, all labels are missing"),
        ({"ann": [None]}, {"columns": ["ann"]}, "the table has no votes"),
        (GOOD, {"min_votes": 0}, "min_votes is 0; pass an integer of at least 1"),
        (GOOD, {"min_votes": 1.5}, "min_votes is 1.5; pass an integer"),
        (GOOD, {"min_share": -0.1}, "min_share is -0.1; pass a fraction between 0 and 1"),
        (GOOD, {"min_share": 50}, "min_share is 50"),
        (GOOD, {"min_share": math.nan}, "min_share is nan"),
        (WIDE, {"columns": ["ann"], "worker": "bob"}, "columns= is for wide tables, worker= and label= are for long"),
        (WIDE, {"columns": ["ann"], "label": "bob"}, "columns= is for wide tables"),
        (WIDE, {"columns": "ann"}, "columns is the single text 'ann'"),
        (WIDE, {"columns": []}, "columns is empty"),
        (WIDE, {"columns": ["ann", "ann"]}, "a column twice"),
        (WIDE, {"columns": ["ann", "id"], "task": "id"}, "or the column of task="),
        (GOOD, {"worker": "task"}, "task, worker and label name a column twice"),
        (GOOD | {"label": ["a", ["b", "c"]]}, {}, "row 1 holds a list in column 'label'; .* several labels as several"),
        (GOOD | {"label": [("a", []), "b"]}, {}, "row 0 holds a tuple in column 'label'"),
        (pa.table(GOOD | {"label": [["a"], ["b"]]}), {}, "row 0 holds a list in column 'label'"),
        (GOOD | {"label": np.eye(2)}, {}, "row 0 holds a list in column 'label'"),
        (GOOD | {"task": [{}, 1]}, {}, "row 0 holds a dict in column 'task'"),
        (GOOD | {"task": [1, None]}, {}, "row 1 has no task in column 'task'; fill it or drop the row"),
        (GOOD | {"task": ["", "p2"]}, {}, "row 0 has no task in column 'task'"),
        (GOOD | {"task": np.array([1, np.nan])}, {}, "row 1 has no task in column 'task'"),
        (GOOD | {"worker": [1, None]}, {}, "row 1 has no worker in column 'worker'"),
        (WIDE | {"id": ["p1", None, "p3"]}, {"columns": ["ann"], "task": "id"}, "row 1 has no task in column 'id'"),
        (WIDE | {"id": ["p1", "p2", "p1"]}, {"columns": ["ann"], "task": "id"}, "row 2 repeats task 'p1'"),
        (GOOD | {"label": ["a", 1]}, {}, "types int, str cannot be sorted; fix their order with classes="),
        (GOOD | {"label": ["a", "a"]}, {}, "number of classes is 1; at least two are needed, list all with classes="),
        (GOOD | {"label": ["a"]}, {}, "column 'label' has 1 rows, others 2; pass columns of equal length"),
        (GOOD | {"label": "ab"}, {}, "column 'label' is a str; pass a list with one value per row"),
        (GOOD | {"label": 3}, {}, "column 'label' is a int"),
        (GOOD | {"label": np.array(3)}, {}, "column 'label' is a ndarray"),
        (
            pd.DataFrame([[1, 2, 3]], columns=["task", "task", "label"]),
            {},
            "the table has columns of the same name",
        ),
        ("votes.csv", {}, "the table is a str; pass a pandas, polars"),
        (np.eye(2), {}, "the table is a ndarray"),
        ([GOOD, 3], {}, "the table is a list"),
        (pd.Series([1]), {}, "the table is a Series"),
    ],
)
def test_errors_are_one_line_that_says_what_to_do(table, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        from_annotations(table, **options)
    assert "\n" not in str(caught.value)


def test_lazy_frames_are_refused():
    frame = polars(GOOD)
    with pytest.raises(ValueError, match="the table is a lazy LazyFrame; compute it first"):
        from_annotations(frame.lazy())


def test_no_library_of_tables_is_imported():
    code = (
        "import sys; from candidly.candidates.votes import from_annotations; assert 'narwhals' not in sys.modules; "
        f"from_annotations({GOOD}); print({{'pandas', 'polars', 'pyarrow', 'torch'}} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_candidates_has_it_too():
    assert candidates.from_annotations is from_annotations
    with pytest.raises(AttributeError, match="no attribute 'from_votes'"):
        _ = candidates.from_votes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": [1, "1", 2]}, "column 'task' has 1 and '1'; convert it to one type"),
        ({"worker": [1, "1", 2]}, "column 'worker' has 1 and '1'"),
        ({"label": ["x|y", "x", "y"]}, r"the class name 'x\|y' looks like several names; pass several votes"),
        ({"label": [True, 1, 2]}, "class names are of types bool, int"),
    ],
)
def test_values_of_two_types_and_joined_labels(change, message):
    table = {"task": [1, 1, 2], "worker": ["v", "w", "v"], "label": ["x", "y", "x"]} | change
    with pytest.raises(ValueError, match=message):
        from_annotations(table)


def test_far_dates_as_tasks():
    pa = pytest.importorskip("pyarrow")
    table = {"worker": ["v", "w"], "label": ["x", "y"]}
    for task in (pa.array([2**60] * 2, pa.timestamp("s")), pa.array([2**31 - 1] * 2, pa.date32())):
        with pytest.raises(
            ValueError, match="column 'task' has dates outside of the years 1 to 9999; pass them as text"
        ):
            from_annotations(pa.table(table | {"task": task}))
    tasks = np.array(["2020-01-01", "2020-01-02"], "M8[ns]")
    assert from_annotations(table | {"task": tasks}).tasks == tuple(tasks)


def test_candidates_know_their_tasks():
    votes = from_annotations(TABLE)
    assert tuple(votes.candidates.index) == votes.tasks


@pytest.mark.parametrize("options", [{"min_votes": True}, {"min_share": "a"}, {"min_share": None}, {"task": ["task"]}])
def test_arguments_of_other_types(options):
    with pytest.raises(ValueError, match=r"min_votes is True|min_share is ('a'|None)|no column \['task'\]"):
        from_annotations(TABLE, **options)
