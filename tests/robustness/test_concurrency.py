"""Processes that save and load models in one folder at the same time do not disturb each other."""

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_two_writers_and_two_readers():
    command = [sys.executable, "-m", "tests.robustness.concurrency", "100"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["writers"] == [{"saves": 50, "errors": []}] * 2
    for reader in found["readers"]:
        assert reader["errors"] == []
        assert reader["mixed"] == 0
        assert reader["models"] > 1, "models were replaced meanwhile"
    assert found["files"] == ["json", "number.txt", "safetensors"]
