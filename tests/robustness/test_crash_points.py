"""Every process that is killed before an operation on files leaves the old or the new content, and no leftovers."""

import json
import os
import subprocess
import sys

import pytest

LEAST = {
    "new model": 15,
    "model": 15,
    "model of 0.1": 30,
    "t.csv": 8,
    "t.csv.gz": 8,
    "t.parquet": 8,
    "candidates": 15,
    "checkpoint": 30,
    "run": 40,
    "damaged run": 25,
    "failing run": 30,
}


@pytest.fixture(scope="module")
def found():
    """Run all scenarios in one process, which imports everything once and forks the processes that are killed."""
    command = [sys.executable, "-m", "tests.robustness.crash_points"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize("scenario", LEAST)
def test_nothing_is_lost_or_left(scenario, found):
    result = found[scenario]
    assert result["lost"] == []
    assert result["left"] == []
    assert result["points"] >= LEAST[scenario], "operations are counted"
    assert result["old"] > 0
    assert result["new"] > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_all_scenarios_are_tested(found):
    assert found.keys() == LEAST.keys()
