"""What `candidly.bench` shows: the same names to type checkers and at run time, and tables without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import candidly.bench

TABLES = """
import sys
from pathlib import Path
from candidly.bench import Scores, read, render
from candidly.bench.table import BEGIN, END, insert
scores = read(sys.argv[1])
page = Path(sys.argv[2])
page.write_text(f"{BEGIN}\\n{END}\\n")
insert(page, render(scores, style="markdown"))
print(*sorted({"torch", "sklearn", "joblib"} & sys.modules.keys()), "read", len(scores.cells))
"""


def test_type_checkers_see_the_names_that_exist():
    tree = ast.parse(Path(candidly.bench.__file__).read_text(encoding="utf-8"))
    (typed,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in typed.body for alias in node.names}
    assert sorted(candidly.bench.__all__) == sorted(seen) == dir(candidly.bench)
    for name, module in seen.items():
        assert getattr(candidly.bench, name) is getattr(sys.modules[module], name)


def test_tables_are_made_without_torch(tmp_path):
    results = Path(__file__).parents[2] / "benchmarks" / "results" / "cifar10_cleaning"
    command = [sys.executable, "-c", TABLES, str(results), str(tmp_path / "page.md")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["read", "6"], done.stderr
