"""The harness of bad inputs: it counts what it should, covers the public API, and a sample of it passes."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.robustness import pool, rule
from benchmarks.robustness.__main__ import passed, table
from benchmarks.robustness.case import GOOD, KINDS, Case, Verdict, right
from benchmarks.robustness.families import FAMILIES, all_cases, parameters

ROOT = Path(__file__).parents[2]
PLANTED = "tests.robustness.planted"
SAMPLE = {
    "parameters": 12,
    "tensors": 2,
    "features": 8,
    "labels": 8,
    "weights": 4,
    "votes": 4,
    "prediction": 6,
    "tables": 8,
    "datasets": 4,
    "saved": 6,
    "experiments": 6,
    "custom": 3,
    "training": 3,
    "tools": 3,
    "commands": 6,
}


def test_every_verdict_is_given_where_it_should():
    from tests.robustness import planted

    results = pool.run_all(planted.all_cases(), 1, PLANTED)
    wrong = [(case.name, verdict) for case, verdict, _ in results if not case.name.startswith(verdict.kind)]
    assert wrong == []
    assert {verdict.kind for _, verdict, _ in results} == set(KINDS)
    assert not passed(results)


def test_a_passing_run():
    case = Case("one", "case", lambda: 1, right(lambda one: True))
    results = [(case, Verdict("right"), 0.1)] * 99 + [(case, Verdict("unclear"), 0.1)]
    assert passed(results)
    assert not passed([*results, (case, Verdict("unclear"), 0.1)])
    assert not passed([(case, Verdict("silently wrong"), 0.1)])
    assert table(results).splitlines()[-1].split() == ["all", "100", "99", "0", "1", "0", "0", "0", "0"]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("alpha is 2; pass a number between 0 and 1", ""),
        ("alpha is 2, but it must be below 1", ""),
        ("alpha is 2", "what to do"),
        ("beta is 2; pass a number", "names none"),
        ("alpha is \x1b[31m; pass a number", "control"),
        ("alpha is " + "2" * 3000 + "; pass a number", "characters"),
    ],
)
def test_the_rule_for_messages(message, problem):
    found = rule.judge_message(message, ["alpha"])
    assert (problem in found) if problem else found == ""


def test_the_public_api_is_covered():
    assert parameters.uncovered() == []


def test_there_are_enough_cases_of_every_family():
    families = [case.family for case in all_cases()]
    assert len(families) >= 700
    assert set(families) == set(FAMILIES)
    assert min(map(families.count, FAMILIES)) >= 40


def test_the_command_lists_cases():
    line = [sys.executable, "-W", "ignore", "-m", "benchmarks.robustness", "--list", "--family", "weights"]
    found = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, check=True).stdout.splitlines()
    assert len(found) == sum(case.family == "weights" for case in all_cases())


def test_a_sample_passes():
    """Run every n-th case of the families that start no processes."""
    chosen = []
    for family, number in SAMPLE.items():
        cases = [case for case in all_cases() if case.family == family]
        chosen += cases[:: -(-len(cases) // number)]
    results = pool.run_all(chosen, 1, "benchmarks.robustness.families")
    assert [(case.name, verdict) for case, verdict, _ in results if verdict.kind not in GOOD] == []
