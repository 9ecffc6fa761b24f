"""The audit equals its literal twin."""

import pytest
import torch

from candidly.cleaning import audit, budget
from candidly.cleaning.budget import Budget
from tests.oracles import audit as audit_twin
from tests.oracles.scored import NORMAL, made, rows, sets


@pytest.mark.parametrize(("part", "least"), [(0, 0.0), (10, 0.0), (3, 0.1)])
def test_missing_labels(part, least):
    """Every so many rows lose their true label."""
    z, S, y = made(part)
    without = S & ~torch.nn.functional.one_hot(y, 4).bool()
    if part:
        S[::part] = torch.where(without[::part].any(1, keepdim=True), without[::part], ~S[::part])
    wanted = audit_twin.estimate_missing(rows(z), sets(S), NORMAL)
    assert budget.estimate_missing(z, S) == pytest.approx(wanted, abs=1e-12)
    assert wanted[0] >= least


@pytest.mark.parametrize("seed", range(3))
def test_truth_of_an_audit(seed):
    z, S, y = made(seed)
    y[::3] = -1
    y[1] = int((~S[1]).nonzero()[0]) if not S[1].all() else -1  # not a candidate
    y[2] = -2  # not a class
    rule = Budget.of(z, S)
    for labels in (y, torch.full_like(y, -1)):
        for level in audit.audit(z, S, rule, alphas=(0.05, 0.2, 0.6), y=labels).levels:
            kept = rule.keep(z, S, level.alpha)
            wanted = audit_twin.truth(sets(S), sets(kept), labels.tolist())
            assert (level.true_lost, level.true_removed) == pytest.approx(wanted)
            assert level.candidates == int(S.sum() - kept.sum())
