"""Experiments: specs, runs in hashed folders, sweeps that can be killed and resumed, and tables of their results."""

from candidly.bench.spec import CLEANERS, SUITES, Spec, read_spec
from candidly.bench.sweep import Outcome, sweep

__all__ = ["CLEANERS", "SUITES", "Outcome", "Spec", "read_spec", "sweep"]
