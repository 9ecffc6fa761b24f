"""Peak memory of a large experiment: 1,000,000 rows × 50 features × 100 classes, from a Parquet file, on a CPU.

    python -m benchmarks.memory

Makes the file, then runs `candidly bench` on it in a separate process: reading, one epoch of PRODEN with
conformal cleaning from the first step on, the prediction pass over all rows, and writing the predictions. The peak is
the largest resident set of that process, including interpreter and libraries.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

SPEC = """
datasets = ['{path}']
methods = ["at-once+proden"]
seeds = "0"
[recipe]
name = "one epoch"
epochs = 1
[own.at-once]
kind = "conformal"
warmup = 0
"""


def write_table(path: Path, rows: int, features: int, num_classes: int, block: int = 100_000) -> None:
    """Write rows around class centres, with the true label and about two wrong ones as candidates."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(num_classes, features)).astype(np.float32)
    names = np.array([f"class {j:03}" for j in range(num_classes)])
    writer = None
    for start in range(0, rows, block):
        n = min(block, rows - start)
        y = generator.integers(num_classes, size=n)
        X = centres[y] + generator.normal(size=(n, features)).astype(np.float32)
        others = generator.integers(num_classes, size=(n, 2))
        columns = {f"x{k}": X[:, k] for k in range(features)}
        texts = ["|".join(sorted({names[j], names[a], names[b]})) for j, (a, b) in zip(y, others, strict=True)]
        table = pa.table(columns | {"candidates": texts, "label": names[y]})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def main() -> None:
    """Make the file, run the experiment and report the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--out", default="benchmarks/results/memory.json")
    args = parser.parse_args()
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path, spec, runs = Path(folder, "large.parquet"), Path(folder, "spec.toml"), Path(folder, "runs")
        write_table(path, args.rows, args.features, args.classes)
        spec.write_text(SPEC.format(path=path), encoding="utf-8")
        start = time.perf_counter()
        command = [sys.executable, "-m", "candidly", "bench", str(spec), "--out", str(runs), "--device", "cpu"]
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20  # KiB on Linux
        (summary,) = (json.loads(found.read_text()) for found in runs.glob("*/summary.json"))
    result = {
        "rows": args.rows,
        "features": args.features,
        "classes": args.classes,
        "peak_gib": round(peak, 2),
        "seconds": round(seconds),
        "epoch_seconds": summary["seconds"],
        "test_accuracy": summary["metrics"]["test_accuracy"][0][0],
        "pruning_coverage": summary["metrics"]["pruning_coverage"][0][0],
        "machine": f"{platform.machine()}, torch {torch.__version__}",
    }
    Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
