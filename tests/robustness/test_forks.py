"""Processes that are forked after a training with several threads: they train and predict, and do not hang."""

import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import multiprocessing, sys, threading
import numpy as np, torch
from candidly import PartialLabelClassifier

rng = np.random.default_rng(0)
X, y = rng.normal(size=(200, 40)), np.arange(200) % 4

def train(seed=0):
    return PartialLabelClassifier(folds=2, max_epochs=1, device="cpu", random_state=seed).fit(X, y).predict_proba(X[:5])

if __name__ == "__main__":
    torch.set_num_threads(2)
    torch.ones(1000, 1000).add_(1)  # starts the threads
    first = train()
    beside = threading.Thread(target=train)
    beside.start()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.map_async(train, [0, 0]).get(60)
    beside.join()
    assert all(np.allclose(one, first, atol=1e-3) for one in found), found
    assert torch.get_num_threads() == 2
    print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_after_a_training_with_threads_trains(tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    environment = os.environ | {"OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", tmp_path / "script.py"], env=environment, capture_output=True, timeout=120
    )
    assert (done.stdout, done.returncode) == (b"done\n", 0), done.stderr.decode()
