"""Nearest neighbours against brute force."""

import pytest
import torch

from candidly.engine.nets import neighbours


def points(n=40, d=3, seed=0, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def brute_force(x, k):
    """Neighbours by sorting all distances in double precision, a row's own left out."""
    found = []
    for i, row in enumerate(x.double()):
        distances = [(float((row - other).square().sum()), j) for j, other in enumerate(x.double()) if j != i]
        found.append([j for _, j in sorted(distances)[:k]])
    return torch.tensor(found)


@pytest.mark.parametrize("k", [1, 3, 39])
def test_equals_brute_force(k):
    x = points()
    found = neighbours.nearest(x, k)
    assert found.dtype == torch.int64
    assert torch.equal(found, brute_force(x, k))


@pytest.mark.parametrize("entries", [1, 40, 130, 10**6])
def test_blocks_change_nothing(monkeypatch, entries):
    x, calls = points(), []
    plain = torch.addmm
    monkeypatch.setattr(neighbours, "_BLOCK_ENTRIES", entries)
    monkeypatch.setattr(torch, "addmm", lambda *a, **k: calls.append(len(a[1])) or plain(*a, **k))
    assert torch.equal(neighbours.nearest(x, 4), brute_force(x, 4))
    assert max(calls) == min(40, max(1, entries // 40))
    assert sum(calls) == 40


def test_self_is_left_out_beside_duplicates():
    x = points(8).repeat(3, 1)
    found = neighbours.nearest(x, 2)
    for i, row in enumerate(found.tolist()):
        assert sorted(row) == sorted({i % 8, i % 8 + 8, i % 8 + 16} - {i})


def test_all_rows_alike():
    found = neighbours.nearest(torch.ones(6, 2), 5)
    for i, row in enumerate(found.tolist()):
        assert sorted(row) == [j for j in range(6) if j != i]


@pytest.mark.parametrize("k", [0, -1, 5, 6])
def test_k_out_of_range(k):
    with pytest.raises(ValueError, match=rf"k is {k}, but there are 5 rows; use 1 <= k <= 4"):
        neighbours.nearest(points(5), k)


@pytest.mark.parametrize("offset", [0.0, 30.0, 3000.0])
def test_far_from_the_origin_in_single_precision(offset):
    """A shift of all rows moves no distance: neighbours must not drown in the squares' rounding."""
    x = points(60, 5, dtype=torch.float32) + offset
    wrong = (neighbours.nearest(x, 3) != brute_force(x, 3)).any(1)
    assert int(wrong.sum()) == 0
