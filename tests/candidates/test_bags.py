from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from candidly.candidates import encode, find_bags
from candidly.candidates.bags import _DEVIATIONS, _LEAST_PAIRS, _most_pairs, find_stretches, number_sets


@given(st.lists(st.integers(1, 7), min_size=1, max_size=12))
def test_bags_are_what_a_loop_finds(sets):
    S = np.array([[code >> j & 1 for j in range(3)] for code in sets], dtype=bool)
    expected = [0]
    for before, code in pairwise(sets):
        joined = before == code and code.bit_count() > 1
        expected.append(expected[-1] + (not joined))
    assert find_bags(S).tolist() == expected


def test_rows_of_one_bag_are_consecutive():
    S = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 0]], dtype=bool)
    assert find_bags(S).tolist() == [0, 1, 2]


def test_bags_of_candidates_and_refusals():
    S = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]], dtype=bool)
    assert find_bags(encode(S)).tolist() == [0, 0, 1]
    assert find_bags(S[:0]).tolist() == []
    for wrong in (S.astype(int), S[0], S.tolist(), None):
        with pytest.raises(ValueError, match=r"S is .*; pass a boolean matrix"):
            find_bags(wrong)


def sets(n, classes=8, size=2, seed=0):
    """Sets of a given number of random labels."""
    return np.argsort(np.random.default_rng(seed).random((n, classes)), axis=1) < size


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 6))
def test_the_limit_of_shuffled_rows_is_that_of_all_their_orders(counts, others):
    codes = np.repeat(np.arange(len(counts) + 1), [*counts, others])
    n = len(codes)
    if n < 4:
        return
    rng = np.random.default_rng(0)
    shuffled = np.stack([rng.permutation(codes) for _ in range(3000)])
    pairs = ((shuffled[:, 1:] == shuffled[:, :-1]) & (shuffled[:, 1:] < len(counts))).sum(1)
    expected = pairs.mean() + _LEAST_PAIRS + _DEVIATIONS * pairs.std()
    assert abs(_most_pairs(np.array(counts), n) - expected) < 0.6


@pytest.mark.parametrize("length", [2, 3, 10])
def test_stretches_are_found(length):
    S = np.repeat(sets(60), length, axis=0)
    found = find_stretches(S)
    assert found.bag.tolist() == find_bags(S).tolist()
    assert found.inside.all()
    assert found.longest >= length
    assert not found.by_set
    assert find_stretches(S[np.random.default_rng(0).permutation(len(S))]) is None


@pytest.mark.parametrize(
    "S",
    [
        sets(600),
        sets(600, size=1),
        np.repeat(sets(60, size=1), 10, axis=0),
        sets(600, classes=3),
        np.ones((600, 5), bool),
        np.repeat(sets(60, classes=2, size=1), 10, axis=0) | (np.arange(600)[:, None] % 3 == 0),
        np.concatenate([sets(300), np.ones((300, 8), bool)]),
        np.concatenate([sets(300), np.repeat(sets(1, size=3), 300, axis=0)]),
        np.repeat(sets(4), 2, axis=0),
    ],
    ids=["random", "single", "single in stretches", "few sets", "all", "two classes", "unlabelled", "default", "small"],
)
def test_nothing_is_found_without_stretches(S):
    assert find_stretches(S) is None


@pytest.mark.parametrize("rows_of_a_class", [30, 100])
def test_sets_that_change_slowly_are_no_stretches(rows_of_a_class):
    """Rows sorted by class: few sets are possible within a class."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), rows_of_a_class)
    S = np.eye(8, dtype=bool)[y]
    S[np.arange(len(y)), (y + 1) % 8] |= rng.random(len(y)) < 0.6
    assert find_stretches(S) is None


def test_rows_sorted_by_their_sets_are_told():
    S = np.repeat(sets(60, classes=20, size=3), 5, axis=0)
    assert not find_stretches(S).by_set
    texts = ["|".join(str(label) for label in np.flatnonzero(row)) for row in S]
    y = S.argmax(1)  # one of the labels
    orders = {
        "columns": np.lexsort(S.T),
        "columns, first to last": np.lexsort(S.T[::-1]),
        "descending": np.lexsort(S.T)[::-1],
        "texts": np.argsort(texts, kind="stable"),
        "labels": sorted(range(len(S)), key=lambda i: np.flatnonzero(S[i]).tolist()),
        "class, then set": np.lexsort([*S.T, y]),
    }
    for name, order in orders.items():
        assert find_stretches(S[order]).by_set, name


def test_equal_sets_have_equal_numbers():
    S = sets(50, classes=20)
    numbers = number_sets(S)
    assert ((numbers[:, None] == numbers) == (S[:, None] == S).all(-1)).all()
