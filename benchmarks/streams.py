"""Streams: rows per second and peak memory of `candidly clean` and `predict` on tables in several files, on a CPU.

    python -m benchmarks.streams memory     # 1 M and 8 M rows, Parquet and CSV
    python -m benchmarks.streams rate       # 20 M rows × 20 columns, Parquet

Rows have 20 numbers, 10 classes, and the true label and up to two others as candidates. The model is a linear network
per fold (five folds), trained on 20,000 rows before. Files have 1,000,000 rows. Every command is a separate process
with one thread; its peak is the largest resident set, including interpreter and libraries. The command is also measured
on 65,536 rows, so that its start is known. Results are in benchmarks/results/streams.json.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from candidly import PartialLabelClassifier
from candidly.tables import Schema, files
from candidly.tables.class_columns import set_column

RESULTS = Path("benchmarks/results/streams.json")
COLUMNS, CLASSES, PART_ROWS = 20, 10, 1_000_000
NAMES = [f"class {j}" for j in range(CLASSES)]
SMALL = 65_536
# The peak is that of the kernel for this program; `ru_maxrss` includes the memory of the process that started it.
MEASURED = """
import re, sys, time
from candidly.cli.app import main
main(sys.argv[1:])
peak = re.search(r"VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())[1]
print(time.process_time(), int(peak) / 1024)
"""


def make_rows(number: int, seed: int) -> pa.Table:
    """Return rows around class centres, with the true label and up to two others as candidates."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, COLUMNS))
    rng = np.random.default_rng([1, seed])
    y = rng.integers(CLASSES, size=number)
    X = (centres[y] + rng.normal(size=(number, COLUMNS))).astype(np.float32)
    S = np.zeros((number, CLASSES), dtype=bool)
    for chosen in (y, *rng.integers(CLASSES, size=(2, number))):
        S[np.arange(number), chosen] = True
    return pa.table({f"x{j}": X[:, j] for j in range(COLUMNS)} | {"candidates": set_column(S, NAMES)})


def write_files(folder: Path, rows: int, suffix: str) -> int:
    """Write a table in files of at most 1,000,000 rows; return its bytes."""
    folder.mkdir()
    for i, start in enumerate(range(0, rows, PART_ROWS)):
        files.write(make_rows(min(PART_ROWS, rows - start), i), folder / f"part-{i:03}{suffix}")
    return sum(path.stat().st_size for path in folder.iterdir())


def train(folder: Path) -> None:
    """Train and save the model."""
    table = make_rows(20_000, 10**6)
    y = table.column("candidates").to_pylist()
    classifier = PartialLabelClassifier(net="linear", max_epochs=5, device="cpu", random_state=0)
    classifier.fit(table.drop_columns(["candidates"]), y)
    classifier.schema_ = Schema("candidates")
    classifier.save(folder, lean=True)


def measure(arguments: list[str]) -> dict[str, float]:
    """Run a command with one thread; return its seconds and its peak memory in MB."""
    start = time.perf_counter()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MEASURED, *arguments, "--quiet"]
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    cpu, peak = map(float, found.stdout.split())
    return {"seconds": seconds, "cpu_seconds": cpu, "peak_mb": peak}


def stream(place: Path, rows: int, suffix: str, commands: list[str]) -> list[dict[str, Any]]:
    """Measure commands on a table; its files and results are removed afterwards."""
    found = []
    with tempfile.TemporaryDirectory(dir=place) as folder:
        size = write_files(Path(folder, "in"), rows, suffix)
        for command in commands:
            out = Path(folder, "out")
            source, model = f"{folder}/in", str(place / "model")
            given = {"clean": ["clean", source, "--model", model], "predict": ["predict", model, source]}
            row: dict[str, Any] = {"command": command, "format": suffix[1:], "rows": rows}
            row |= measure([*given[command], "--out", f"{out}/"])
            written = sum(path.stat().st_size for path in out.glob(f"*{suffix}"))
            row |= {"bytes_in": size / rows, "bytes_out": written / rows, "rows_per_second": rows / row["seconds"]}
            print(json.dumps(row), flush=True)
            found.append(row)
            subprocess.run(["rm", "-r", str(out)], check=True)
    return found


def main() -> None:
    """Measure one section and write it to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=["memory", "rate"])
    parser.add_argument("--rows", type=int, help="rows of the larger table")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        train(place / "model")
        found = stream(place, SMALL, ".parquet", ["clean"])
        if given.section == "rate":
            found += stream(place, given.rows or 20_000_000, ".parquet", ["clean", "predict"])
        else:
            for rows in (1_000_000, given.rows or 8_000_000):
                found += stream(place, rows, ".parquet", ["clean", "predict"])
                found += stream(place, rows, ".csv", ["clean"])
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["machine"] = {"cpu": platform.processor() or platform.machine(), "torch": str(torch.__version__)}
    results[given.section] = found
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
