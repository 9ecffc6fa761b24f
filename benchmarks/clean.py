"""Time and memory of `candidly clean` on a large table: 100,000 rows × 20 features, 10 classes, 3 candidates per row.

    python -m benchmarks.clean

Writes the table as CSV, runs the command with its defaults and its progress bar in a separate process, and records
the time and the peak memory of that process in benchmarks/results/clean.json.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch

from candidly.data import corrupt

RESULTS = Path(__file__).parent / "results" / "clean.json"


def make(rows: int, features: int, classes: int) -> pa.Table:
    """Return a table of overlapping clouds with uniformly drawn candidates and the true labels."""
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=rows)
    X = rng.normal(size=(rows, features)) + rng.normal(size=(classes, features))[y]
    S = corrupt.uniform(y, num_classes=classes, q=2 / (classes - 1), seed=0)
    names = np.array([f"class {j}" for j in range(classes)])
    columns = {f"x{j}": X[:, j].round(5) for j in range(features)}
    return pa.table(columns | {"candidates": ["|".join(names[row]) for row in S], "label": names[y]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, help="number of epochs (default: that of the command)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pyarrow.csv.write_csv(make(args.rows, 20, 10), folder / "table.csv")
        command = [sys.executable, "-m", "candidly", "clean", str(folder / "table.csv"), "--candidates", "candidates"]
        command += [
            "--labels",
            "label",
            "--out",
            str(folder / "cleaned.parquet"),
            "--report",
            str(folder / "page.html"),
        ]
        command += ["--json"] + ([] if args.epochs is None else ["--epochs", str(args.epochs)])
        begun = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        seconds = time.perf_counter() - begun
        sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    found = {
        "rows": args.rows,
        "seconds": round(seconds, 1),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20, 2),
        "bytes": sizes,
        "summary": json.loads(done.stdout) | {"cleaned": "cleaned.parquet", "report": "page.html"},
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "torch": str(torch.__version__)},
    }
    print(json.dumps(found, indent=1))
    if args.epochs is None:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
