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


def plan_of(X, S, copies=None, folds=3, fraction=0.0, seed=0):
    copies = np.ones(len(X), np.intp) if copies is None else np.asarray(copies)
    return make_plan(X, S, copies, folds, fraction, np.random.default_rng(seed))


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
