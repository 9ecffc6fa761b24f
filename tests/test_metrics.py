"""Metrics against slow twins that loop over runs and rows."""

import pytest
import torch

from candidly import metrics

R, N, C = 3, 40, 5


def data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(2 * torch.randn(R, N, C, generator=generator), dim=-1)
    y = torch.randint(C, (N,), generator=generator)
    before = torch.rand(R, N, C, generator=generator) < 0.5
    before[:, torch.arange(N), y] = True
    after = before & (torch.rand(R, N, C, generator=generator) < 0.7)
    return p, y, before, after


def loop_accuracy(p, y):
    return sum(row.index(max(row)) == t for row, t in zip(p, y, strict=True)) / len(y)


def loop_covering_rate(p, S):
    return sum(s[row.index(max(row))] for row, s in zip(p, S, strict=True)) / len(p)


def loop_approximated_accuracy(p, S):
    total = 0.0
    for row, s in zip(p, S, strict=True):
        best = row.index(max(row))
        if s[best]:
            total += row[best] / sum(v for v, inside in zip(row, s, strict=True) if inside)
    return total / len(p)


def loop_coverage(sets, y):
    return sum(s[t] for s, t in zip(sets, y, strict=True)) / len(y)


def loop_set_size(sets):
    return sum(sum(s) for s in sets) / len(sets)


def loop_pruning_error(before, after, y):
    return sum(b[t] and not a[t] for b, a, t in zip(before, after, y, strict=True)) / len(y)


def loop_pruning_coverage(before, after):
    removed = sum(sum(b) - sum(a) for b, a in zip(before, after, strict=True))
    return removed / sum(sum(b) - 1 for b in before)


def loop_pruning_f(before, after, y):
    P, R = 1 - loop_pruning_error(before, after, y), loop_pruning_coverage(before, after)
    return 1.25 * P * R / (0.25 * P + R)


def counted(before, y):
    """Rows whose true label is known and a candidate."""
    return [i for i, (b, t) in enumerate(zip(before, y, strict=True)) if 0 <= t < len(b) and b[t]]


def loop_true_kept(before, after, y):
    rows = counted(before, y)
    return sum(after[i][y[i]] for i in rows) / len(rows)


def loop_true_lost(before, after, y):
    rows = counted(before, y)
    return sum(not after[i][y[i]] for i in rows) / len(rows)


def loop_wrong_removed(before, after, y):
    wrong = [after[i][j] for i in counted(before, y) for j in range(C) if before[i][j] and j != y[i]]
    return wrong.count(False) / len(wrong)


def loop_calibration_error(p, y, bins=15):
    error = 0.0
    for b in range(bins):
        rows = [(max(row), row.index(max(row)) == t) for row, t in zip(p, y, strict=True)]
        rows = [(top, hit) for top, hit in rows if b / bins < top <= (b + 1) / bins]
        if rows:
            error += abs(sum(hit for _, hit in rows) - sum(top for top, _ in rows)) / len(p)
    return error


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("accuracy", "py"),
        ("covering_rate", "pb"),
        ("approximated_accuracy", "pb"),
        ("coverage", "ay"),
        ("set_size", "a"),
        ("pruning_error", "bay"),
        ("pruning_coverage", "ba"),
        ("pruning_f", "bay"),
        ("true_kept", "bay"),
        ("true_lost", "bay"),
        ("wrong_removed", "bay"),
        ("calibration_error", "py"),
    ],
)
def test_equals_its_loop(name, arguments):
    function, twin = getattr(metrics, name), globals()[f"loop_{name}"]
    all_data = dict(zip("pyba", data(), strict=True))
    values = [all_data[letter] for letter in arguments]

    runs = function(*values)
    assert runs.shape == (R,)
    for r in range(R):
        one = [v if v.ndim == 1 else v[r] for v in values]
        single = function(*one)
        assert single.shape == ()
        assert single.item() == pytest.approx(twin(*[v.tolist() for v in one]), abs=1e-6)
        torch.testing.assert_close(single, runs[r])

    nested = function(*[v if v.ndim == 1 else v.expand(2, R, *v.shape[1:]) for v in values])
    torch.testing.assert_close(nested, runs.expand(2, R))
    each = function(*[v.expand(R, N) if v.ndim == 1 else v for v in values])
    torch.testing.assert_close(each, runs)


def test_leading_axes_broadcast_either_way():
    p, y, before, after = data()
    shared = before[0]
    torch.testing.assert_close(metrics.covering_rate(p, shared), metrics.covering_rate(p, shared.expand(R, N, C)))
    torch.testing.assert_close(metrics.covering_rate(p[0], before)[1], metrics.covering_rate(p[0], before[1]))
    torch.testing.assert_close(
        metrics.approximated_accuracy(p, shared), metrics.approximated_accuracy(p, shared.expand(R, N, C))
    )
    torch.testing.assert_close(metrics.approximated_accuracy(p[0], before).shape, torch.Size([R]))
    labels = torch.stack([y, (y + 1) % C])
    torch.testing.assert_close(metrics.accuracy(p[0], labels)[1], metrics.accuracy(p[0], labels[1]))
    torch.testing.assert_close(metrics.coverage(after[0], labels)[1], metrics.coverage(after[0], labels[1]))
    torch.testing.assert_close(metrics.pruning_f(shared, after, y), metrics.pruning_f(shared.expand(R, N, C), after, y))


def test_labels_of_unknown_classes_are_never_hit():
    p, _, before, after = data()
    unknown = torch.where(torch.arange(N) % 2 == 0, -1, C)
    assert not metrics.accuracy(p, unknown).any()
    assert not metrics.coverage(before, unknown).any()
    assert not metrics.pruning_error(before, after, unknown).any()


def test_the_aggregates_are_means_of_the_rows():
    p, _, before, _ = data()
    hits, confidence = metrics.covered(p, before), metrics.candidate_confidence(p, before)
    assert hits.shape == confidence.shape == (R, N)
    assert hits.any()
    assert not hits.all()
    assert torch.equal(hits.float().mean(-1), metrics.covering_rate(p, before))
    assert torch.equal(confidence.mean(-1), metrics.approximated_accuracy(p, before))
    assert torch.equal(confidence > 0, hits)


def test_rows_without_a_true_candidate_count_for_nothing():
    _, y, before, after = data()
    y = torch.where(torch.arange(N) % 3 == 0, -1, y)  # unknown
    y[1] = C  # not a class
    before[:, 2, y[2]] = after[:, 2, y[2]] = False  # not a candidate
    for name in ("true_kept", "true_lost", "wrong_removed"):
        found, twin = getattr(metrics, name)(before, after, y), globals()[f"loop_{name}"]
        assert found.dtype == torch.float64
        assert found.tolist() == [twin(before[r].tolist(), after[r].tolist(), y.tolist()) for r in range(R)]
        assert getattr(metrics, name)(before, after, torch.full((N,), -1)).isnan().all()


def test_without_wrong_candidates_none_can_be_removed():
    before, y = torch.eye(3, dtype=torch.bool), torch.arange(3)
    assert metrics.wrong_removed(before, before, y).isnan()
    assert metrics.true_kept(before, before, y).item() == 1
    assert metrics.true_lost(before, before, y).item() == 0


def test_approximated_accuracy_survives_underflow():
    p = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    S = torch.tensor([[False, True, True], [True, False, True]])
    assert metrics.approximated_accuracy(p, S).item() == 0.5


def test_pruning_without_anything_to_prune():
    before = torch.eye(3, dtype=torch.bool)
    y = torch.arange(3)
    assert metrics.pruning_coverage(before, before).item() == 0
    assert metrics.pruning_f(before, before, y).item() == 0
    assert metrics.pruning_f(before, torch.zeros_like(before), y).item() == 0


def test_pruning_f_by_hand():
    before = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 0]], dtype=torch.bool)
    after = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 0]], dtype=torch.bool)
    y = torch.tensor([0, 0, 0])
    P, R = 2 / 3, 3 / 4
    assert metrics.pruning_error(before, after, y).item() == pytest.approx(1 / 3)
    assert metrics.pruning_coverage(before, after).item() == pytest.approx(R)
    assert metrics.pruning_f(before, after, y, beta=2).item() == pytest.approx(5 * P * R / (4 * P + R))


def test_calibration_error_at_the_ends():
    y = torch.tensor([0, 0])
    sure = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert metrics.calibration_error(sure, y).item() == 0
    assert metrics.calibration_error(sure, 1 - y).item() == 1
    assert metrics.calibration_error(sure, torch.tensor([0, 1]), bins=1).item() == 0.5


def test_half_precision_is_summed_in_single():
    p = torch.tensor([[0.75, 0.25]], dtype=torch.bfloat16).expand(3000, 2)
    y = torch.zeros(3000, dtype=torch.int64)
    assert metrics.calibration_error(p, y).item() == pytest.approx(0.25)
    S = torch.ones(3000, 2, dtype=torch.bool)
    assert metrics.approximated_accuracy(p, S).item() == pytest.approx(0.75)


@pytest.mark.parametrize("shape", [(N, 1), (1,), (), (N + 1,)])
def test_labels_never_broadcast_over_rows(shape):
    p, _, before, after = data()
    y = torch.zeros(shape, dtype=torch.int64)
    for call in (
        lambda: metrics.accuracy(p, y),
        lambda: metrics.coverage(before, y),
        lambda: metrics.pruning_error(before, after, y),
        lambda: metrics.true_kept(before, after, y),
        lambda: metrics.true_lost(before, after, y),
        lambda: metrics.wrong_removed(before, after, y),
        lambda: metrics.calibration_error(p, y),
    ):
        with pytest.raises(ValueError, match="but the rows have shape"):
            call()


def test_arguments_are_checked():
    p, y, before, after = data()
    with pytest.raises(ValueError, match="bins is 0"):
        metrics.calibration_error(p, y, bins=0)
    with pytest.raises(ValueError, match="beta is 0"):
        metrics.pruning_f(before, after, y, beta=0)


def loop_risk_coverage(confidence, errors):
    points = []
    for limit in sorted(confidence, reverse=True):
        accepted = [error for own, error in zip(confidence, errors, strict=True) if own >= limit]
        points.append((limit, len(accepted) / len(errors), sum(accepted) / len(accepted)))
    return points


@pytest.mark.parametrize("levels", [None, 5])
def test_the_risk_coverage_curve_equals_its_loop(levels):
    p, y, _, _ = data()
    confidence, errors = p.amax(-1), (p.argmax(-1) != y).float()
    if levels is not None:
        confidence = (confidence * levels).round() / levels  # so that rows tie
    found = torch.stack(metrics.risk_coverage(confidence, errors), -1)
    assert found.shape == (R, N, 3)
    for r in range(R):
        wanted = torch.tensor(loop_risk_coverage(confidence[r].tolist(), errors[r].tolist()))
        torch.testing.assert_close(found[r], wanted)
        torch.testing.assert_close(metrics.aurc(confidence[r], errors[r]), wanted[:, 2].mean())
        order = torch.randperm(N, generator=torch.Generator().manual_seed(r))
        again = torch.stack(metrics.risk_coverage(confidence[r][order], errors[r][order]), -1)
        torch.testing.assert_close(again, found[r])  # also where rows tie
    torch.testing.assert_close(found[:, -1, 2], 1 - metrics.accuracy(p, y))
    torch.testing.assert_close(metrics.aurc(confidence, errors), found[..., 2].mean(-1))


def test_the_area_is_low_where_errors_are_unsure():
    confidence, errors = torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([0.0, 0.0, 0.0, 1.0])
    assert metrics.aurc(confidence, errors).item() == pytest.approx(1 / 16)
    assert metrics.aurc(confidence.flip(0), errors).item() == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert metrics.aurc(torch.ones(4), errors).item() == pytest.approx(1 / 4)


def test_the_coverage_curve_is_coverage_and_size_at_each_level():
    p, y, _, _ = data()
    alphas = torch.tensor([0.05, 0.2, 0.6])
    coverage, size = metrics.coverage_curve(p, y, alphas)
    assert coverage.shape == size.shape == (R, 3)
    for k, alpha in enumerate(alphas):
        torch.testing.assert_close(coverage[:, k], metrics.coverage(p > alpha, y))
        torch.testing.assert_close(size[:, k], metrics.set_size(p > alpha))
    assert (coverage.diff() <= 0).all()
    assert not metrics.coverage_curve(p, torch.full((N,), -1), alphas)[0].any()


def test_levels_that_are_p_values_leave_them_out():
    p_values = torch.tensor([[0.1, 0.2, 0.7]], dtype=torch.float64)
    for dtype in (torch.float32, torch.float64):
        found = metrics.coverage_curve(
            p_values.to(dtype), torch.tensor([0]), torch.tensor([0.1, 0.7], dtype=torch.float64)
        )
        assert found[1].tolist() == [2, 0]
