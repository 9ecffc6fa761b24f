"""Tests on accuracies, against values worked out by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from candidly.bench.scores import Scores
from candidly.bench.statistics import compare, critical_distance, holm, paired, ranks, wins_ties_losses


def seeds(*values):
    return dict(enumerate(values))


def table(methods, **rows):
    """Scores with one seed from rows of mean accuracies."""
    return Scores({(d, m): {0: a} for d, row in rows.items() for m, a in zip(methods, row, strict=True) if a})


names = st.sampled_from(["proden", "cc", "conf+proden", "conf+cc", "own"])
values = st.integers(0, 4).map(lambda value: value / 4)
cells = st.dictionaries(
    st.tuples(st.sampled_from("abc"), names),
    st.dictionaries(st.integers(0, 4), values, min_size=1),
    min_size=1,
)


def test_paired_by_hand():
    # d = (0.1, 0, 0.2): mean 0.1, deviation 0.1, t = 0.1 / (0.1 / √3) = √3. With two degrees of freedom the two-sided
    # p-value is 1 − t / √(t² + 2) = 1 − √(3 / 5).
    test = paired(seeds(0.8, 0.7, 0.9), seeds(0.7, 0.7, 0.7))
    assert test == pytest.approx((0.1, 1 - math.sqrt(3 / 5), 3))


def test_paired_agrees_with_scipy_and_is_antisymmetric():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.6, 0.9, (2, 5))
    test, back = paired(seeds(*a), seeds(*b)), paired(seeds(*b), seeds(*a))
    assert test.p == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert back == pytest.approx((-test.difference, test.p, 5))


def test_paired_takes_the_common_seeds_only():
    assert paired({0: 0.5, 1: 0.6, 7: 0.9}, {1: 0.5, 0: 0.5, 8: 0.1}).n == 2
    # d = (0, 0.1): mean 0.05, deviation 0.1 / √2, t = 0.05 / (0.1 / 2) = 1. With one degree of freedom, p = 1/2.
    assert paired({0: 0.5, 1: 0.6, 7: 0.9}, {1: 0.5, 0: 0.5, 8: 0.1}) == pytest.approx((0.05, 0.5, 2))


@pytest.mark.parametrize(
    ("a", "b", "difference", "p", "n"),
    [
        (seeds(0.5, 0.7), seeds(0.5, 0.7), 0, 1, 2),
        (seeds(0.3, 0.5, 0.7), seeds(0.2, 0.4, 0.6), 0.1, 0, 3),  # constant up to rounding
        (seeds(0.2, 0.4, 0.6), seeds(0.3, 0.5, 0.7), -0.1, 0, 3),
        (seeds(0.1 + 0.2), seeds(0.2), 0.1, math.nan, 1),
        (seeds(0.5), {5: 0.5}, math.nan, math.nan, 0),
    ],
)
def test_paired_where_there_is_no_variance(a, b, difference, p, n):
    assert paired(a, b) == pytest.approx((difference, p, n), nan_ok=True)


def test_wins_ties_and_losses_by_hand():
    scores = Scores(
        {
            ("a", "proden"): seeds(0.5, 0.5),
            ("a", "cc"): seeds(0.6, 0.6),
            ("a", "conf+proden"): seeds(0.55, 0.55),  # wins against proden, loses against cc
            ("b", "proden"): seeds(0.5, 0.7),
            ("b", "conf+proden"): seeds(0.7, 0.5),  # ties with proden; cc is missing
            ("c", "proden"): {0: 0.1},
            ("c", "cc"): {0: 0.1},
            ("c", "conf+proden"): {0: 0.9},  # one seed decides nothing
            ("d", "conf+proden"): seeds(0.1, 0.2),  # nothing to compare with
        }
    )
    assert wins_ties_losses(scores, "conf+proden") == (1, 1, 1)
    assert wins_ties_losses(scores, "proden") == (0, 0, 1)
    assert wins_ties_losses(scores, "cc") == (1, 0, 0)
    assert wins_ties_losses(scores, "proden", against=["conf+proden", "proden"]) == (0, 1, 1)


def test_unknown_methods_are_named():
    scores = table(["proden"], a=[0.5])
    with pytest.raises(ValueError, match="no method 'pop' in these scores; choose from proden"):
        wins_ties_losses(scores, "pop")
    with pytest.raises(ValueError, match="no method 'rc'"):
        wins_ties_losses(scores, "proden", against=["rc"])


@given(cells)
def test_wins_ties_and_losses_add_up(cells):
    scores = Scores(cells)
    records = {method: wins_ties_losses(scores, method) for method in scores.methods}
    for method, record in records.items():
        made = [
            (dataset, rival)
            for dataset, rival in itertools.product(scores.datasets, scores.base_methods)
            if rival != method and len(cells.get((dataset, method), {}).keys() & cells.get((dataset, rival), {})) > 1
        ]
        assert sum(record) == len(made)
    base = [records[method] for method in scores.base_methods]
    assert sum(record.wins for record in base) == sum(record.losses for record in base)


@given(cells)
def test_renaming_datasets_changes_nothing_else(cells):
    swap = {"a": "z", "b": "y", "c": "x"}
    scores = Scores(cells)
    renamed = Scores({(swap[dataset], method): seeds for (dataset, method), seeds in cells.items()})
    for method in scores.methods:
        assert wins_ties_losses(scores, method) == wins_ties_losses(renamed, method)
    before, after = ranks(scores), ranks(renamed)
    assert sorted(swap[dataset] for dataset in before.datasets) == list(after.datasets)
    assert after.average == pytest.approx(before.average)
    assert (after.distance, after.reason) == (before.distance, before.reason)
    assert after.p == (None if before.p is None else pytest.approx(before.p))


def test_ranks_and_friedman_by_hand():
    scores = table(["proden", "cc", "pop"], a=[0.9, 0.8, 0.7], b=[0.9, 0.8, 0.7], c=[0.9, 0.7, 0.8], d=[0.8, 0.9, 0.7])
    found = ranks(scores)
    # Ranks (1 2 3), (1 2 3), (1 3 2), (2 1 3) sum up to 5, 8, 11.
    assert found.average == {"proden": 5 / 4, "cc": 8 / 4, "pop": 11 / 4}
    # 12 / (4·3·4) · (25 + 64 + 121) − 3·4·4 = 52.5 − 48; with two degrees of freedom p = exp(−χ²/2).
    assert found.statistic == pytest.approx(4.5)
    assert found.p == pytest.approx(math.exp(-2.25))
    assert (found.datasets, found.reason) == (("a", "b", "c", "d"), "")


def test_friedman_with_ties_by_hand():
    found = ranks(table(["proden", "cc", "pop"], a=[0.9, 0.8, 0.8], b=[0.9, 0.8, 0.7]))
    # Ranks (1 2.5 2.5), (1 2 3) sum up to 2, 4.5, 5.5: 12 / (2·3·4) · (4 + 20.25 + 30.25) − 3·2·4 = 3.25, divided by
    # 1 − (2³ − 2) / (2·3·(3² − 1)) = 0.875 for the tie.
    assert found.average == {"proden": 1, "cc": 2.25, "pop": 2.75}
    assert found.statistic == pytest.approx(3.25 / 0.875)


def test_equal_methods_share_their_rank():
    found = ranks(table(["proden", "cc", "pop"], a=[0.5, 0.5, 0.5], b=[0.7, 0.7, 0.7]))
    assert set(found.average.values()) == {2}
    assert (found.statistic, found.p) == (0, 1)
    assert found.groups == (("proden", "cc", "pop"),)


def test_ranks_use_complete_datasets_only():
    found = ranks(table(["proden", "cc", "pop"], a=[0.9, 0.8, 0.7], b=[0.9, None, 0.7], c=[0.5, 0.6, 0.7]))
    assert found.datasets == ("a", "c")
    assert found.average == {"proden": 2, "cc": 2, "pop": 2}


def test_why_there_are_no_ranks_or_no_test():
    none = ranks(table(["proden", "cc"], a=[0.9, None], b=[None, 0.5]))
    assert (none.datasets, none.average, none.p, none.distance, none.groups) == ((), {}, None, None, ())
    assert none.reason == "there is no dataset on which every method has a cell"
    two = ranks(table(["proden", "cc"], a=[0.9, 0.8], b=[0.9, 0.8]))
    assert two.average == {"proden": 1, "cc": 2}
    assert two.p is None
    assert "not 2 and 2" in two.reason
    assert two.distance == pytest.approx(1.960 * math.sqrt(2 * 3 / 12), abs=1e-3)
    one = ranks(table(["proden"], a=[0.9]))
    assert (one.average, one.distance, one.groups) == ({"proden": 1}, None, ())


@pytest.mark.parametrize(
    ("methods", "q"),
    list(enumerate([1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164], start=2)),  # Demšar 2006
)
def test_critical_distance_against_the_published_table(methods, q):
    for datasets in (1, 14):
        expected = q * math.sqrt(methods * (methods + 1) / (6 * datasets))
        assert critical_distance(methods, datasets) == pytest.approx(expected, rel=5e-4)


@pytest.mark.parametrize(
    ("datasets", "groups"),
    [
        (2, ["abcd"]),  # 2.569·√(20 / 12) = 3.32 > 3
        (4, ["abc", "bcd"]),  # 2.569·√(20 / 24) = 2.35
        (14, ["ab", "bc", "cd"]),  # 2.569·√(20 / 84) = 1.25
        (40, []),  # 2.569·√(20 / 240) = 0.74 < 1
    ],
)
def test_groups_are_maximal(datasets, groups):
    found = ranks(table("abcd", **{f"d{i}": [0.9, 0.8, 0.7, 0.6] for i in range(datasets)}))
    assert found.average == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert found.groups == tuple(map(tuple, groups))


def test_groups_leave_out_methods_that_stand_alone():
    found = ranks(table("abcd", **{f"d{i}": [0.9, 0.8, 0.6 + i % 2 / 10, 0.7 - i % 2 / 10] for i in range(40)}))
    assert found.average == {"a": 1, "b": 2, "c": 3.5, "d": 3.5}
    assert found.groups == (("c", "d"),)


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.03, 0.9 times 4, 3, 2, 1 gives 0.04, 0.06, 0.06, 0.9.
    assert holm([0.03, 0.9, 0.01, 0.02]) == pytest.approx([0.06, 0.9, 0.04, 0.06])
    # 0.04·2 = 0.08 lies above 0.05·1: the adjusted values never decrease.
    assert holm([0.05, math.nan, 0.04]) == pytest.approx([0.08, math.nan, 0.08], nan_ok=True)
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []
    assert math.isnan(holm([math.nan])[0])


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_rejects_what_its_definition_rejects(p_values):
    adjusted = holm(p_values)
    for level in (0.05, 0.3):
        rejected = set()
        for step, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
            if p_values[i] * (len(p_values) - step) >= level:
                break
            rejected.add(i)
        assert {i for i, p in enumerate(adjusted) if p < level} == rejected


def test_compare_by_hand():
    ours = Scores(
        {
            ("a", "proden"): seeds(0.8, 0.7, 0.9),
            ("a", "cc"): seeds(0.5, 0.5, 0.5),
            ("a", "pop"): {0: 0.5, 9: 0.9},
            ("a", "rc"): {4: 0.5},
            ("b", "proden"): seeds(0.5),
        }
    )
    theirs = Scores(
        {
            ("a", "proden"): seeds(0.7, 0.7, 0.7),
            ("a", "cc"): seeds(0.6, 0.6, 0.6),
            ("a", "pop"): {0: 0.4, 8: 0.1},
            ("a", "rc"): {5: 0.6, 6: 0.8},
            ("c", "proden"): seeds(0.5),
        }
    )
    found = compare(ours, theirs)
    assert list(found) == [("a", "proden"), ("a", "rc"), ("a", "cc"), ("a", "pop")]
    p = 1 - math.sqrt(3 / 5)  # as above
    assert found["a", "proden"] == pytest.approx((0.8, 0.7, 0.1, p, p, 3))
    assert found["a", "cc"] == pytest.approx((0.5, 0.6, -0.1, 0, 0, 3))
    assert found["a", "pop"] == pytest.approx((0.5, 0.4, 0.1, math.nan, math.nan, 1), nan_ok=True)
    assert found["a", "rc"] == pytest.approx((0.5, 0.7, -0.2, math.nan, math.nan, 0), nan_ok=True)
    assert [row.significant for row in found.values()] == [False, False, True, False]


def test_compare_adjusts_over_all_cells():
    ours = Scores({(d, "cc"): seeds(0.8, 0.7, 0.9) for d in "abc"})
    theirs = Scores({(d, "cc"): seeds(0.7, 0.7, 0.7) for d in "abc"})
    p = 1 - math.sqrt(3 / 5)
    assert [row.p_holm for row in compare(ours, theirs).values()] == pytest.approx([3 * p] * 3)


def test_training_rows_are_not_compared_with_test_rows():
    train = Scores({("lost", "proden"): {0: 0.5}}, split="train")
    with pytest.raises(ValueError, match="on train rows cannot be compared with those on test rows"):
        compare(train, Scores({("lost", "proden"): {0: 0.5}}))
