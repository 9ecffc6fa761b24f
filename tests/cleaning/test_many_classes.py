"""Memory does not grow with the square of the number of classes."""

import subprocess
import sys

import pytest

PEAK = """
import resource
import torch
from candidly.cleaning import Budget
from candidly.cleaning.audit import audit

C = int({classes})
generator = torch.Generator().manual_seed(0)
log_p = torch.randn(100, C, generator=generator).log_softmax(-1)
S = torch.zeros(100, C, dtype=torch.bool).scatter_(1, torch.randint(C, (100, 20), generator=generator), True)
S[:50, :2] = True
log_p[:50, :2] += 12
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rule = Budget.of(log_p, S)
print(audit(log_p, S, rule))
print(rule.inseparable.tolist())
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs")
def test_budget_and_audit_of_many_classes():
    script = PEAK.format(classes=10_000)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *_, pairs, peak = done.stdout.splitlines()
    assert pairs == "[[0, 1], [1, 0]]"
    assert int(peak) < 800, "MiB; a matrix of pairs of classes in float64 takes 3052"
