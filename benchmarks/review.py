"""The review page in headless Chromium: how fast it answers a key, and what axe-core finds.

    python -m benchmarks.review speed --rows 100000    # benchmarks/results/review.json, in some minutes on one core
    python -m benchmarks.review axe                    # downloads axe-core with npm; fails on serious findings
    python -m benchmarks.review pictures               # the screenshots of docs/guides/review.md

A key's answer takes from the key's event to the frame that shows the next row, after the decision was flushed to the
disk. chromium and chromedriver must be installed.
"""

import argparse
import json
import os
import platform
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import pyarrow as pa

from candidly import PartialLabelClassifier, store
from candidly.tables import Schema, write
from tests.report.webdriver import Browser, started

RESULTS, IMAGES = Path("benchmarks/results/review.json"), Path("docs/images")
ENTER, RIGHT, ESCAPE = "\ue007", "\ue014", "\ue00c"
CLASSES, COLUMNS = 10, 20
SERIOUS = ("serious", "critical")
FINDINGS = """axe.run().then(({ violations, passes }) => [
    violations.map((one) => [one.impact, one.id, one.nodes.length, one.nodes[0].html]), passes.length])"""


@contextmanager
def page(folder: Path, *options: object) -> Iterator[Browser]:
    """Serve the model in a folder, and open its page in a browser."""
    command = [sys.executable, "-m", "candidly", "review", "model", "--no-browser", "--json", *map(str, options)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, env=environment) as server:
        profile = tempfile.mkdtemp()
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            with started(profile) as browser:
                browser.resize(1280)
                browser.open(address)
                wait(lambda: browser.run("!!document.getElementById('title').textContent"))
                yield browser
        finally:
            server.terminate()
            shutil.rmtree(profile, ignore_errors=True)


def wait(ready: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError("the page does not answer")
        time.sleep(0.005)


def press(browser: Browser, *keys: str) -> None:
    actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
    browser.call("POST", "actions", actions=[{"type": "key", "id": "keys", "actions": actions}])


def make_large(folder: Path, rows: int) -> float:
    """Write a table and a model of it; return the seconds that the fit took."""
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=rows)
    X = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
    X[np.arange(rows), y] += 2.0
    S = rng.random((rows, CLASSES)) < 0.2
    S[np.arange(rows), y] = True
    names = np.array([f"class {j}" for j in range(CLASSES)])
    table = pa.table({f"x{j}": X[:, j] for j in range(COLUMNS)})
    sets = pa.array([names[own].tolist() for own in S])
    write(
        table.append_column("id", pa.array([f"r{i}" for i in range(rows)])).append_column("tags", sets),
        folder / "rows.parquet",
    )
    start = time.monotonic()
    classifier = PartialLabelClassifier(folds=2, max_epochs=2, random_state=0, classes=names.tolist())
    classifier.fit(table, [names[own].tolist() for own in S])
    classifier.schema_ = Schema("tags", id="id")
    classifier.save(folder / "model")
    return time.monotonic() - start


def measure(rows: int, keys: int) -> dict[str, Any]:
    """Return how long answers to keys take on a table of this size, in milliseconds."""
    count = "performance.getEntriesByName('answer').length"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fitted = make_large(folder, rows)
        start = time.monotonic()
        with page(folder, "--table", "rows.parquet", "--reviewer", "ann") as browser:
            opened = time.monotonic() - start
            wait(lambda: browser.run("document.querySelectorAll('#similar li').length"), 60)  # computed once
            for number in range(keys):
                before = browser.run(count)
                press(browser, ("1", ENTER, "n", "c", RIGHT, "u")[number % 6])
                wait(lambda before=before: browser.run(count) > before)
            found = browser.run("performance.getEntriesByName('answer').map(one => one.duration)")
            start = time.monotonic()
            press(browser, RIGHT)
            similar = browser.run(
                """(async () => {
                    const start = performance.now();
                    await (await fetch("api/similar?mode=decide&row=5")).json();
                    return performance.now() - start;
                })()"""
            )
    return {
        "rows": rows,
        "keys": len(found),
        "median": median(found),
        "p95": quantiles(found, n=20)[-1],
        "largest": max(found),
        "similar": similar,
        "seconds_to_open": opened,
        "seconds_to_fit": fitted,
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
    }


@contextmanager
def birds() -> Iterator[Path]:
    """Make the birds of the guides and a model of them; yield their folder."""
    with tempfile.TemporaryDirectory() as name:
        folder, here, script = Path(name), Path.cwd(), Path("examples/make_birds.py").absolute()
        os.chdir(folder)
        try:
            runpy.run_path(str(script), run_name="__main__")
        finally:
            os.chdir(here)
        columns = ("--candidates", "candidates", "--id", "id", "--labels", "label", "--epochs", "20")
        command = [sys.executable, "-m", "candidly", "fit", "birds.csv", *columns, "--out", "model", "--quiet"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path("src").absolute()), *sys.path])}
        subprocess.run(command, cwd=folder, check=True, env=environment)
        yield folder


def find_axe() -> str:
    """Download axe-core with npm, and return its script."""
    with tempfile.TemporaryDirectory() as name:
        packed = subprocess.run(
            ["npm", "pack", "axe-core", "--silent"], cwd=name, check=True, capture_output=True, text=True
        )
        with tarfile.open(Path(name, packed.stdout.split()[-1])) as files:
            script = files.extractfile("package/axe.min.js")
            assert script is not None
            return script.read().decode()


def check_with_axe() -> int:
    """Run axe-core on every state of the page; print its findings, and return how many are serious."""
    script, serious, checks = find_axe(), 0, 0
    with birds() as folder:
        for options in (("--rows", 60, "--alpha", 0.1), ("--mode", "decide", "--annotations", "votes.csv")):
            with page(folder, "--table", "birds.csv", "--reviewer", "ann", *options) as browser:
                browser.call("POST", "execute/sync", script=script, args=[])
                states = {"row": (), "help": ("?",), "search": (ESCAPE, "/")}
                if "decide" in options:
                    states |= {"several": (ESCAPE, "b"), "again": ("b", "1")}
                for width in (1280, 390):
                    for scheme in ("light", "dark"):
                        browser.resize(width, 844)
                        browser.use_colours(scheme)
                        for state, keys in states.items():
                            press(browser, *keys) if keys else None
                            time.sleep(0.5)
                            found, passed = browser.run(FINDINGS)
                            checks += passed
                            for impact, rule, nodes, html in found:
                                print(f"{options[0]} {width} {scheme} {state}: {impact} {rule} ({nodes}): {html[:120]}")
                                serious += impact in SERIOUS
                        press(browser, ESCAPE)
    print(f"{serious} serious findings; {checks} checks passed")
    return serious


def take_pictures() -> None:
    """Write the screenshots of the guide."""
    with birds() as folder:
        with page(folder, "--table", "birds.csv", "--reviewer", "ann", "--rows", 60, "--alpha", 0.1) as browser:
            browser.resize(1000, 480)
            time.sleep(0.3)
            (IMAGES / "review-verify.png").write_bytes(browser.picture())
        with page(folder, "--table", "birds.csv", "--reviewer", "ann", "--mode", "decide") as browser:
            browser.resize(1000, 860)
            press(browser, "1", "2")
            time.sleep(1)
            (IMAGES / "review-decide.png").write_bytes(browser.picture())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["speed", "axe", "pictures"])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=120)
    given = parser.parse_args()
    if given.part == "axe":
        return int(check_with_axe() > 0)
    if given.part == "pictures":
        take_pictures()
        return 0
    found = measure(given.rows, given.keys)
    store.replace(RESULTS, (json.dumps(found, indent=1) + "\n").encode())
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
