"""Temperatures and candidate probabilities against their literal twins."""

import pytest
import torch

from candidly import conformal
from tests.oracles import temperature as temperature_twin
from tests.oracles.scored import made, rows, sets


@pytest.mark.parametrize("seed", range(4))
def test_temperature(seed):
    """The grid's steps are 0.6 %, the search ends within 0.01 %."""
    z, S, _ = made(seed)
    for scale in (1.0, 0.3, 20.0):  # the best one lies inside, at 1 and at 10
        found = conformal.fit_temperature(scale * z, S)
        assert found == pytest.approx(temperature_twin.fit_temperature(rows(scale * z), sets(S), 400), rel=7e-3)
        assert 1 <= found <= 10.001


def test_temperatures_lie_inside_and_at_both_ends():
    z, S, _ = made(0)
    assert [round(conformal.fit_temperature(scale * z, S), 2) for scale in (0.3, 20.0)] == [1.0, 10.0]
    assert 1.05 < conformal.fit_temperature(2 * z, S) < 9


@pytest.mark.parametrize("scale", [1.0, 3.0, 30.0])
def test_each_run_is_tempered_by_its_own_valid_rows(scale):
    """The best temperature of the grid, given a literal candidate likelihood; the last rows of a run are padding."""
    runs = [made(seed) for seed in range(3)]
    p = torch.stack([(scale * z.double()).softmax(-1) for z, _, _ in runs])
    S = torch.stack([S for _, S, _ in runs])
    counts = [60, 100, 120]
    valid = torch.arange(p.shape[1]) < torch.tensor(counts)[:, None]
    found = conformal.fit_candidate_probabilities(p, S, valid)
    grid = [1.0] + [2 ** (k / 4) for k in range(1, 17)]
    for run, m in enumerate(counts):
        z = rows(conformal.log(p[run]))
        inside = sets(S[run])
        T = max(grid, key=lambda T, z=z, inside=inside, m=m: temperature_twin.likelihood(z[:m], inside[:m], T))
        wanted = temperature_twin.candidate_probabilities(z, inside, T)
        torch.testing.assert_close(found[run], torch.tensor(wanted, dtype=p.dtype))


def test_tempering_a_run_never_sharpens():
    z, S, _ = made(0)
    p = (0.1 * z.double()).softmax(-1)[None]
    found = conformal.fit_candidate_probabilities(p, S[None], torch.ones(1, len(S), dtype=torch.bool))
    torch.testing.assert_close(found[0], conformal.candidate_probabilities(p[0].log(), S, 1.0))
