"""Peak memory with many rows, and with many classes, on a CPU.

    python -m benchmarks.memory rows
    python -m benchmarks.memory classes

`rows` makes a Parquet file of 1,000,000 rows × 50 features × 100 classes and runs `candidly bench` on it: reading, one
epoch of PRODEN with conformal cleaning from the first step on, the prediction pass over all rows, and writing the
predictions. `classes` makes a table of 1,000 rows with 10,000 classes and runs every command on it, and the same steps
in Python. Each stage is a separate process; its peak is the largest resident set, including interpreter and libraries.
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
import pyarrow.parquet as pq
import torch

RESULTS = Path("benchmarks/results")
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
IN_PYTHON = """
import pyarrow.parquet as pq
from candidly import PartialLabelClassifier
from candidly.report import summarise, write

table = pq.read_table({table!r})
X, y = table.drop_columns(["candidates", "label"]), table["candidates"].to_pylist()
names = open({names!r}, encoding="utf-8").read().splitlines()
classifier = PartialLabelClassifier(classes=names, separator="|", max_epochs={epochs}, device="cpu", random_state=0)
classifier.fit(X, y)
print(classifier.audit())
classifier.save({model!r})
write(summarise(classifier), {page!r})
loaded = PartialLabelClassifier.load({model!r})
loaded.predict_set(X)
"""


def write_table(
    path: Path, rows: int, features: int, num_classes: int, wrong: int = 2, block: int = 100_000
) -> list[str]:
    """Write rows around class centres, with the true label and about `wrong` others as candidates; return the names."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(num_classes, features)).astype(np.float32)
    names = np.array([f"class {j:03}" for j in range(num_classes)])
    writer = None
    for start in range(0, rows, block):
        n = min(block, rows - start)
        y = generator.integers(num_classes, size=n)
        X = centres[y] + generator.normal(size=(n, features)).astype(np.float32)
        others = generator.integers(num_classes, size=(n, wrong))
        columns = {f"x{k}": X[:, k] for k in range(features)}
        texts = ["|".join(sorted({names[j], *names[some]})) for j, some in zip(y, others, strict=True)]
        table = pa.table(columns | {"candidates": texts, "label": names[y]})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return names.tolist()


def run(*arguments: str) -> dict[str, float]:
    """Run Python in a new process; return its seconds and its largest resident set in GiB."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)[:200]} failed with status {status}")
    peak = usage.ru_maxrss / 2**20  # KiB on Linux
    return {"peak_gib": round(peak, 2), "seconds": round(time.perf_counter() - start)}


def measure_rows(folder: Path, rows: int, features: int, num_classes: int) -> dict[str, Any]:
    """Run one experiment on a large table."""
    path, spec, runs = folder / "large.parquet", folder / "spec.toml", folder / "runs"
    write_table(path, rows, features, num_classes)
    spec.write_text(SPEC.format(path=path), encoding="utf-8")
    found = run("-m", "candidly", "bench", str(spec), "--out", str(runs), "--device", "cpu")
    (summary,) = (json.loads(one.read_text()) for one in runs.glob("*/summary.json"))
    return {
        **found,
        "epoch_seconds": summary["seconds"],
        "test_accuracy": summary["metrics"]["test_accuracy"][0][0],
        "pruning_coverage": summary["metrics"]["pruning_coverage"][0][0],
    }


def measure_classes(
    folder: Path, rows: int, features: int, num_classes: int, wrong: int, epochs: int
) -> dict[str, Any]:
    """Run every command on a table with many classes, then the same steps in Python."""
    table, classes, model = folder / "many.parquet", folder / "classes.txt", folder / "model"
    names = write_table(table, rows, features, num_classes, wrong)
    classes.write_text("\n".join(names), encoding="utf-8")
    columns = ("--candidates", "candidates", "--labels", "label", "--classes", f"@{classes}")
    training = (*columns, "--device", "cpu", "--quiet", "--epochs", str(epochs))
    page, script = folder / "page.html", folder / "script.py"
    places = {"table": str(table), "names": str(classes), "model": str(folder / "other"), "page": str(page)}
    script.write_text(IN_PYTHON.format(epochs=epochs, **places), encoding="utf-8")
    stages = {
        "fit": ("fit", str(table), *training, "--out", str(model), "--report", str(page)),
        "clean": ("clean", str(table), *training, "--out", str(folder / "kept.parquet")),
        "audit": ("audit", str(table), *training),
        "report": ("report", str(model), "--out", str(page)),
        "predict": ("predict", str(model), str(table), "--out", str(folder / "sets.parquet"), "--quiet"),
        "evaluate": ("evaluate", str(model), str(table), "--labels", "label", "--quiet"),
    }
    found: dict[str, Any] = {}
    for name, arguments in stages.items():
        found[name] = run("-m", "candidly", *arguments)
        print(f"{name}: {found[name]}", flush=True)
    found["page_mib"] = round(page.stat().st_size / 2**20, 2)
    found["model_mib"] = round(sum(one.stat().st_size for one in model.iterdir()) / 2**20, 2)
    found["python"] = run(str(script))
    return found


def main() -> None:
    """Make the table, run the stages and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rows", "classes"))
    parser.add_argument("--rows", type=int)
    parser.add_argument("--features", type=int)
    parser.add_argument("--classes", type=int)
    parser.add_argument("--wrong", type=int, default=20, help="wrong candidates per row; only for classes")
    parser.add_argument("--epochs", type=int, default=2, help="only for classes")
    parser.add_argument("--out")
    args = parser.parse_args()
    rows, features, num_classes = (1_000_000, 50, 100) if args.what == "rows" else (1_000, 20, 10_000)
    size = (args.rows or rows, args.features or features, args.classes or num_classes)
    out = Path(args.out or RESULTS / ("memory.json" if args.what == "rows" else "memory_classes.json"))
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        if args.what == "rows":
            found = measure_rows(Path(folder), *size)
        else:
            found = {"wrong": args.wrong, "epochs": args.epochs}
            found |= measure_classes(Path(folder), *size, args.wrong, args.epochs)
    machine = {"machine": f"{platform.machine()}, torch {torch.__version__}"}
    result = dict(zip(("rows", "features", "classes"), size, strict=True)) | found | machine
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
