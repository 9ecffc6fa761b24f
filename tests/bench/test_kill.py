"""Killing a sweep at any moment loses nothing that was done, and changes nothing that comes after."""

import json
import os
import subprocess
import sys

import pytest

# One interpreter imports everything once, then forks a sweep after the other. All but the first, which has a folder of
# its own, and the last are killed: each at a random moment after it has finished none to two runs.
SWEEPS = """
import json, os, random, signal, sys, time
import torch
torch.set_num_threads(1)
import pyarrow.csv, pyarrow.parquet, sklearn.datasets, torch._dynamo
from candidly import data
from candidly.bench import Spec, sweep
from candidly.engine.recipe import Recipe

table, undisturbed, out, kills = sys.argv[1:]
spec = Spec((table, "digits+uniform-0.3"), ("proden", "cc", "rc"), cleaners=("none", "clsp"), seeds=(0, 1),
            recipe=Recipe("short", epochs=4, batch_size=64))

[data.load(name) for name in (table, "digits")]  # imports what is imported late

def start(out):
    child = os.fork()
    if child == 0:
        outcome = sweep(spec, out, device="cpu")
        os._exit(len(outcome.failed))
    return child

def count():
    return sum("done" in names for _, _, names in os.walk(out))

_, alone = os.waitpid(start(undisturbed), 0)
chance, seen = random.Random(20251), []
for _ in range(int(kills)):
    child, enough = start(out), count() + chance.randrange(3)
    while count() < min(enough, 11):
        time.sleep(0.002)
    time.sleep(chance.uniform(0, 0.5))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    seen.append([status, count()])
_, status = os.waitpid(start(out), 0)
print(json.dumps({"undisturbed": alone, "status": status, "kills": seen}))
"""


def run_sweeps(*arguments):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SWEEPS, *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def contents(out, pattern):
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob(pattern))}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the test forks its sweeps")
def test_killed_sweeps_end_with_the_same_predictions(table, tmp_path):
    killed = run_sweeps(table, tmp_path / "undisturbed", tmp_path / "killed", 10)
    assert (killed["undisturbed"], killed["status"]) == (0, 0)
    assert [status for status, _ in killed["kills"]].count(9) >= 7, "sweeps were killed before their end"
    progress = [count for _, count in killed["kills"]]
    assert progress == sorted(progress), "what is done stays done"
    assert len(set(progress)) > 3, "the kills hit different runs"
    expected = contents(tmp_path / "undisturbed", "predictions.parquet")
    assert len(expected) == 12
    assert contents(tmp_path / "killed", "predictions.parquet") == expected
    assert len(contents(tmp_path / "killed", "done")) == 12
    assert not contents(tmp_path / "killed", "*.tmp")
