"""Time and memory of `candidly clean` on two large tables, beside those of another version.

    git worktree add ../before fbc0085
    python -m benchmarks.clean --baseline ../before/src --runs 3

Both tables have 100,000 rows × 20 features, 10 classes and 3 candidates per row. Clouds overlap little in one, and so
much in the other that the most probable candidate is right in 80 % of the rows. Every run is the command with its
defaults, in a separate process. With --baseline, the versions take turns. benchmarks/results/clean.json has the time
and the peak memory of each run, what the cleaned tables are worth, and the ratio of the median times.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch

from candidly.data import corrupt

RESULTS = Path(__file__).parent / "results" / "clean.json"
SOURCE = Path(__file__).parents[1] / "src"
TABLES = {"apart": 1.0, "overlapping": 0.35}  # distances between clouds
FEATURES, CLASSES = 20, 10


def make(rows: int, distance: float) -> pa.Table:
    """Return a table of overlapping clouds with uniformly drawn candidates and the true labels."""
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=rows)
    X = rng.normal(size=(rows, FEATURES)) + distance * rng.normal(size=(CLASSES, FEATURES))[y]
    S = corrupt.uniform(y, num_classes=CLASSES, q=2 / (CLASSES - 1), seed=0)
    names = np.array([f"class {j}" for j in range(CLASSES)])
    columns = {f"x{j}": X[:, j].round(5) for j in range(FEATURES)}
    return pa.table(columns | {"candidates": ["|".join(names[row]) for row in S], "label": names[y]})


def run(source: Path, folder: Path, options: list[str]) -> dict[str, Any]:
    """Clean table.csv in a folder with the version whose packages are in `source`."""
    command = [sys.executable, "-m", "candidly", "clean", "table.csv", "--candidates", "candidates"]
    command += ["--labels", "label", "--out", "cleaned.parquet", "--report", "page.html", "--json", *options]
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=folder, env=os.environ | {"PYTHONPATH": str(source.resolve())}
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{source}: the command failed")
    return {
        "seconds": round(time.perf_counter() - begun, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_gib": round(usage.ru_maxrss / 2**20, 2),
        "summary": json.loads(output),
    }


def compare(sources: dict[str, Path], rows: int, distance: float, runs: int, options: list[str]) -> dict[str, Any]:
    """Return the results of each version on a table; the versions take turns."""
    found: dict[str, Any] = {name: {"seconds": [], "cpu_seconds": [], "peak_gib": []} for name in sources}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pyarrow.csv.write_csv(make(rows, distance), folder / "table.csv")
        for _ in range(runs):
            for version, source in sources.items():
                result = run(source, folder, options)
                for measured in ("seconds", "cpu_seconds", "peak_gib"):
                    found[version][measured].append(result[measured])
                found[version]["summary"] = result["summary"]
                print(version, distance, {key: value for key, value in result.items() if key != "summary"}, flush=True)
        found["bytes"] = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    if "before" in sources:
        for measured in ("seconds", "cpu_seconds"):
            before, now = (statistics.median(found[version][measured]) for version in ("before", "now"))
            found[f"times_as_fast_{measured}"] = round(before / now, 2)
        for measured in ("accuracy", "true_kept", "wrong_removed"):
            before, now = (found[version]["summary"]["truth"][measured] for version in ("before", "now"))
            found[f"{measured}_gained"] = round(now - before, 5)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, help="number of epochs (default: that of the command)")
    parser.add_argument("--runs", type=int, default=1, help="runs of each version and table")
    parser.add_argument("--baseline", type=Path, help="folder `src` of another version to compare with")
    args = parser.parse_args()
    options = [] if args.epochs is None else ["--epochs", str(args.epochs)]
    sources = ({} if args.baseline is None else {"before": args.baseline}) | {"now": SOURCE}
    found = {
        "rows": args.rows,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "tables": {name: compare(sources, args.rows, at, args.runs, options) for name, at in TABLES.items()},
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "torch": str(torch.__version__)},
    }
    print(json.dumps(found, indent=1))
    if args.epochs is None:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
