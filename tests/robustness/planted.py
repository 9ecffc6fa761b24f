"""Planted cases: each must get the verdict in its name, or the harness counts wrongly."""

import os
import time
import warnings

import candidly
from benchmarks.robustness.case import Case, Ended, either, error, right, run, warning

FAMILY = "planted"


def refuse(alpha):
    """Let candidly raise an error about alpha."""
    return candidly.PartialLabelClassifier(alpha=alpha).fit([[0.0], [1.0]], ["a", "b"])


def warned():
    warnings.warn("column 'a' is odd; drop it", stacklevel=1)
    return 1


def unprintable():
    raise ValueError("alpha is \x1b[31m; pass a number")


ACTS = {
    "right": (lambda: 1, right(lambda one: one == 1)),
    "right, with a warning": (warned, warning("'a'")),
    "right, either": (lambda: 1, either("x", check=lambda one: one == 1)),
    "clear": (lambda: refuse(2), error("alpha")),
    "clear, either": (lambda: refuse(2), either("alpha", check=lambda one: True)),
    "clear, by Python's own matching of arguments": (lambda: candidly.encode(), error("y")),
    "unclear: another word": (lambda: refuse(2), error("beta")),
    "unclear: a KeyError": (lambda: {}["alpha"], error("alpha")),
    "unclear: raised elsewhere": (lambda: int("alpha; pass"), error("alpha")),
    "unclear: raised by the case": (unprintable, error("alpha")),
    "wrongly refused": (lambda: refuse(2), right(lambda one: True)),
    "silently wrong: accepted": (lambda: 1, error("alpha")),
    "silently wrong: the check fails": (lambda: 1, right(lambda one: one == 2)),
    "silently wrong: the check raises": (lambda: 1, right(lambda one: one.missing)),
    "silently wrong: no warning": (lambda: 1, warning("'a'")),
    "silently wrong: a file is left": (
        lambda: Ended(1, "", "candidly: a.csv is bad; drop it\n", changed=("b.csv",)),
        error("a.csv"),
    ),
    "traceback": (lambda: Ended(1, "", "Traceback (most recent call last):\n  …\nKeyError: 1\n"), error("1")),
    "traceback: an exception escapes": (lambda: Ended(1, "", "", escaped="KeyError: 1"), error("1")),
    "clear: a command": (lambda: run("fit", "none.csv", "--candidates", "a", "--out", "b"), error("none.csv")),
    "unclear: a command with two errors": (
        lambda: Ended(1, "", "oh\ncandidly: a.csv is bad; drop it\n"),
        error("a.csv"),
    ),
    "unclear: a command with output": (lambda: Ended(1, "hello", "candidly: a.csv is bad; drop it\n"), error("a.csv")),
    "unclear: a command with status 3": (lambda: Ended(3, "", "candidly: a.csv is bad; drop it\n"), error("a.csv")),
    "endless": (lambda: time.sleep(60), right(lambda one: True)),
    "endless: the process ends": (lambda: os._exit(3), right(lambda one: True)),
    "right, after a process was replaced": (lambda: 1, right(lambda one: one == 1)),
}


def all_cases():
    """Return the cases; `benchmarks.robustness.worker` calls this."""
    return [
        Case(FAMILY, name, act, expected, seconds=2 if name == "endless" else 20)
        for name, (act, expected) in ACTS.items()
    ]
