"""Exact tests of a sample that was drawn without replacement."""

from candidly.cleaning import exact


def test_rows_that_are_needed():
    assert exact.rows_needed(10**6, 50_000, 0.1) == 45
    for population, allowed, losses in [(360, 20, 0), (360, 20, 4), (50, 10, 2), (30, 29, 0)]:
        m = exact.rows_needed(population, allowed, 0.1, losses)
        assert exact.tolerated(population, allowed, m, 0.1) >= losses
        assert m == 0 or exact.tolerated(population, allowed, m - 1, 0.1) < losses
