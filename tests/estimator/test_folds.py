import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from candidly.estimator.folds import count_copies, make_plan


def rows(n=12, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    S = rng.random((n, classes)) < 0.4
    S[np.arange(n), rng.integers(classes, size=n)] = True
    return rng.normal(size=(n, 2)).astype(np.float32), S


def plan_of(X, S, copies=None, folds=3, fraction=0.0, seed=0, groups=None):
    copies = np.ones(len(X), np.intp) if copies is None else np.asarray(copies)
    groups = None if groups is None else np.asarray(groups)
    return make_plan(X, S, copies, folds, fraction, np.random.default_rng(seed), groups)


def components(X, groups):
    """The smallest row that each row is connected with, by a shared group or equal features, in the plainest way."""
    found = list(range(len(X)))
    for _ in X:
        for i, j in itertools.product(range(len(X)), repeat=2):
            if groups[i] == groups[j] or (X[i] == X[j]).all():
                found[i] = found[j] = min(found[i], found[j])
    return np.array(found)


@given(st.integers(4, 30), st.integers(2, 5), st.integers(0, 3))
def test_every_row_is_held_out_once(n, folds, seed):
    X, S = rows(max(n, folds), seed=seed)
    plan = plan_of(X, S, folds=folds, seed=seed)
    assert sorted(np.concatenate([plan.held_out(k) for k in range(folds)]).tolist()) == list(range(len(X)))
    for k in range(folds):
        assert not set(plan.held_out(k)) & set(plan.trained(k))
        assert len(plan.held_out(k)) + len(plan.trained(k)) == len(X)
    sizes = [len(plan.held_out(k)) for k in range(folds)]
    assert max(sizes) - min(sizes) <= 1


@given(st.permutations(range(12)))
def test_the_order_of_rows_does_not_matter(order):
    X, S = rows()
    order = np.array(order)
    one, other = plan_of(X, S), plan_of(X[order], S[order])
    assert one.fold.tolist() == other.fold.tolist()
    assert one.index.tolist() == order[other.index].tolist()


@given(st.lists(st.integers(0, 3), min_size=12, max_size=12).filter(lambda copies: np.count_nonzero(copies) > 3))
def test_a_row_with_weight_two_is_the_row_twice(copies):
    X, S = rows()
    index = np.repeat(np.arange(12), copies)
    one, other = plan_of(X, S, copies), plan_of(X[index], S[index])
    assert one.fold.tolist() == other.fold.tolist()
    assert one.index.tolist() == index[other.index].tolist()


def test_equal_rows_are_held_out_together():
    X, S = rows()
    X, S = np.repeat(X, 3, axis=0), np.repeat(S, 3, axis=0)
    X[X == 0] = 0
    X[0, 0], X[1, 0] = 0.0, -0.0
    plan = plan_of(X, S)
    fold = np.empty(len(X), int)
    fold[plan.index] = plan.fold
    X[1, 0] = 0.0
    for i in range(len(X)):
        same = (X[i] == X).all(1)
        assert len(set(fold[same])) == 1


def test_rows_of_equal_features_are_held_out_together_whatever_their_candidates():
    """One row per annotator of the same item: a network that knows one of them knows the item."""
    X, S = rows()
    X = np.repeat(X[:6], 2, axis=0)
    plan = plan_of(X, S)
    assert (plan.row_fold[::2] == plan.row_fold[1::2]).all()


def test_rows_without_weight_have_the_fold_of_their_like():
    X, S = rows()
    X[6:] = X[:6]
    plan = plan_of(X, S, copies=[1] * 6 + [0] * 6)
    assert plan.row_fold[6:].tolist() == plan.row_fold[:6].tolist()
    assert len(set(plan.row_fold)) == 3
    X[6:] += 1
    assert plan_of(X, S, copies=[1] * 6 + [0] * 6).row_fold[6:].tolist() == [0] * 6


@pytest.mark.parametrize(("fraction", "held"), [(0.25, 3), (0.5, 6), (0.0, 0)])
def test_a_fraction_is_held_out(fraction, held):
    plan = plan_of(*rows(), folds=1, fraction=fraction)
    assert (plan.fold == 0).sum() == held
    assert (plan.fold == -1).sum() == 12 - held


@given(
    st.lists(st.integers(0, 3), min_size=12, max_size=12).filter(lambda copies: np.count_nonzero(copies) > 3),
    st.sampled_from([1, 3]),
    st.permutations(range(12)),
)
def test_tested_rows_are_those_held_out_each_once_whatever_the_order(copies, folds, order):
    X, S = rows()
    copies, order = np.array(copies), np.array(order)
    plan = plan_of(X, S, copies, folds=folds, fraction=0.5)
    tested = plan.tested()
    assert sorted(tested.tolist()) == sorted({int(i) for i, k in zip(plan.index, plan.fold, strict=True) if k >= 0})
    assert (copies[tested] > 0).all()
    place = {int(i): n for n, i in reversed(list(enumerate(plan.index)))}
    assert [place[i] for i in tested.tolist()] == sorted(place[i] for i in tested.tolist())
    other = plan_of(X[order], S[order], copies[order], folds=folds, fraction=0.5)
    assert order[other.tested()].tolist() == tested.tolist()


def test_nothing_is_tested_where_nothing_is_held_out():
    assert plan_of(*rows(), folds=1).tested().tolist() == []


def test_bytes_are_compared_as_they_are():
    images = np.random.default_rng(0).integers(0, 255, (6, 1, 2, 2), dtype=np.uint8)
    assert sorted(plan_of(images, rows(6)[1]).fold.tolist()) == [0, 0, 1, 1, 2, 2]


def test_there_are_no_more_folds_than_rows():
    with pytest.warns(UserWarning, match="folds is 5 but only 4 rows differ"):
        plan = plan_of(*rows(4), folds=5)
    assert plan.folds == 4
    assert sorted(plan.fold.tolist()) == [0, 1, 2, 3]


def test_refusals():
    X, S = rows(4)
    with pytest.raises(ValueError, match="all 8 rows have the same features"):
        plan_of(X[[0] * 8], S[[0] * 8], folds=5)
    with pytest.raises(ValueError, match="a network would be trained on 1 of 2 rows"):
        plan_of(X[:2], S[:2], folds=2)
    with pytest.raises(ValueError, match=r"validation_fraction is 0.01, which holds out 0 of 4"):
        plan_of(X, S, folds=1, fraction=0.01)
    with pytest.raises(ValueError, match="holds out 4 of 4"):
        plan_of(X, S, folds=1, fraction=0.99)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, 2], "sample_weight has shape"),
        ([[1, 2, 3]], "sample_weight has shape"),
        ([1, -1, 1], "sample_weight is -1.0 in row 1"),
        ([1, np.nan, 1], "sample_weight is nan in row 1"),
        ([1, 0, 0], "sample_weight is zero for all rows but 1"),
        ([0, 0, 0], "sample_weight is zero for all 3 rows"),
    ],
)
def test_weights_are_checked(weight, message):
    with pytest.raises(ValueError, match=message):
        count_copies(weight, 3, np.random.default_rng(0))


def test_weights_that_are_not_whole_are_right_on_average():
    weight = np.array([0.3, 1.2, 2.6, 0.9, 1.1, 1.5])
    rng = np.random.default_rng(0)
    mean = np.mean([count_copies(weight, 6, rng) for _ in range(4000)], axis=0)
    np.testing.assert_allclose(mean, weight / weight.mean(), atol=0.03)


def test_large_weights_do_not_make_many_rows():
    assert count_copies([1000, 2000, 3000], 3, np.random.default_rng(0)).sum() < 10


many_groups = st.lists(st.integers(0, 11), min_size=12, max_size=12)


@given(many_groups, st.lists(st.integers(0, 11), min_size=12, max_size=12), st.sampled_from([1, 2, 3]))
def test_connected_rows_are_held_out_together(groups, features, folds):
    X, S = rows()
    X = X[features]
    expected = components(X, groups)
    if len(set(expected)) < max(folds, 2):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of large groups
        try:
            plan = plan_of(X, S, folds=folds, fraction=0.3, groups=groups)
        except ValueError as error:
            assert "a network would be trained on" in str(error)  # noqa: PT017
            return
    for one in set(expected):
        assert len(set(plan.row_fold[expected == one])) == 1
        assert len(set(plan.groups[expected == one])) == 1
    assert len(set(plan.groups)) == len(set(expected))
    assert set(plan.fold) == (set(range(folds)) if folds > 1 else {-1, 0})
    assert plan.row_fold[plan.index].tolist() == plan.fold.tolist()


@given(st.permutations(range(12)), st.permutations(range(6)), st.sampled_from([1, 3]))
def test_neither_the_order_of_rows_nor_the_numbers_of_groups_matter(order, numbers, folds):
    X, S = rows()
    groups = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5])
    order = np.array(order)
    one = plan_of(X, S, folds=folds, fraction=0.3, groups=groups)
    other = plan_of(X[order], S[order], folds=folds, fraction=0.3, groups=np.array(numbers)[groups][order])
    assert one.fold.tolist() == other.fold.tolist()
    assert one.row_fold[order].tolist() == other.row_fold.tolist()


@given(st.lists(st.integers(2, 8), min_size=3, max_size=12), st.integers(2, 3), st.integers(0, 3))
def test_folds_of_groups_are_balanced(sizes, folds, seed):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    X, S = rows(len(groups))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = plan_of(X, S, folds=folds, seed=seed, groups=groups)
    held = np.bincount(plan.fold, minlength=folds)
    assert held.max() - held.min() <= max(sizes)
    assert held.min() > 0


@pytest.mark.parametrize("folds", [1, 3])
def test_groups_of_one_row_change_nothing(folds):
    X, S = rows()
    X[3] = X[4]  # equal features are one group anyway
    one, other = plan_of(X, S, folds=folds, fraction=0.25), plan_of(X, S, folds=folds, fraction=0.25, groups=range(12))
    assert one.fold.tolist() == other.fold.tolist()
    assert one.row_fold.tolist() == other.row_fold.tolist()
    assert one.groups is None


@pytest.mark.parametrize(
    ("sizes", "held"), [([6, 3, 2, 1], {3}), ([8, 4], {4}), ([2] * 6, {2}), ([3] * 4, {3}), ([5, 5, 2], {2, 5})]
)
def test_about_a_fraction_of_the_rows_is_held_out(sizes, held):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    found = {int((plan_of(*rows(), folds=1, fraction=0.25, seed=s, groups=groups).fold == 0).sum()) for s in range(9)}
    assert found == held


def test_rows_without_weight_connect_nothing_and_have_the_fold_of_their_group():
    X, S = rows()
    groups = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    X[1] = X[2]  # would connect groups 0 and 1
    copies = [1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0]
    plan = plan_of(X, S, copies, groups=groups)
    kept = np.flatnonzero(copies)
    other = plan_of(X[kept], S[kept], groups=groups[kept])
    assert plan.fold.tolist() == other.fold.tolist()
    assert plan.groups[0] != plan.groups[2] == plan.groups[1]
    assert plan.groups[5] == plan.groups[4]
    assert plan.row_fold[5] == plan.row_fold[4]
    assert plan.groups[10:].tolist() == [-1, -1]
    assert plan.row_fold[10:].tolist() == [0, 0]


def test_refusals_of_groups():
    X, S = rows()
    for settings in ({"folds": 3}, {"folds": 1, "fraction": 0.1}):
        with pytest.raises(ValueError, match="groups connects all 12 rows, so none can be held out"):
            plan_of(X, S, groups=[0] * 12, **settings)
    assert plan_of(X, S, folds=1, groups=[0] * 12).tested().tolist() == [], "nothing has to be held out"
    with pytest.raises(ValueError, match=r"trained on 1 of 12 rows, .*; pass smaller groups, or leave groups out"):
        plan_of(X, S, groups=[0] * 11 + [1], folds=2)
    with pytest.warns(UserWarning, match="folds is 5 but there are only 3 groups"):
        assert plan_of(X, S, groups=[0] * 4 + [1] * 4 + [2] * 4, folds=5).folds == 3
    with pytest.warns(UserWarning, match=r"one group holds 10 of 12 rows.*train on only 2 rows. Check --groups"):
        plan_of(X, S, groups=[0] * 10 + [1, 2], folds=3)
