"""Tables whose cells take long: one JSON file per cell, so that processes share the work and repeat none of it."""

import json
import multiprocessing
import re
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from candidly import store
from candidly.store.lock import locked

BEGIN, END = "<!-- begin {} -->", "<!-- end {} -->"

Work = Callable[..., dict[str, Any]]


def share(
    cells: Sequence[tuple[Any, ...]], work: Work, folder: Path, jobs: int, minutes: float, threads: bool = False
) -> None:
    """Call ``work(*cell)`` for the cells without a file in the folder, several at a time.

    Several processes, also on several machines, can share a folder: each works on cells that no other works on. A cell
    that fails does not stop the others; at the end, SystemExit names them.

    Parameters
    ----------
    cells : sequence of tuples
        In order; the text of a cell names its file.
    work : function
        Returns the content of the file.
    folder : path
    jobs : int
        Number of cells at a time.
    minutes : float
        No cell is begun after this time.
    threads : bool
        Whether to use threads instead of processes.
    """
    workers: Executor = (
        ThreadPoolExecutor(jobs) if threads else ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
    )
    with workers:
        calls = [workers.submit(_run, cells, work, folder, minutes) for _ in range(jobs)]
    failed = [name for call in calls for name in call.result()]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(cells)} cells failed, the next call tries again: {', '.join(failed)}")


def _run(cells: Sequence[tuple[Any, ...]], work: Work, folder: Path, minutes: float) -> list[str]:
    """Measure the cells that no other worker has begun; return the names of those that failed."""
    begun = time.monotonic()
    failed: list[str] = []
    for cell in cells:
        name = " ".join(map(str, cell))
        file = folder / (re.sub(r"[^a-z0-9.+-]+", "_", name) + ".json")
        if file.exists() or time.monotonic() - begun > 60 * minutes:
            continue
        with locked(file.with_suffix(".lock"), wait=False) as mine:
            if not mine or file.exists():
                continue
            try:
                found = work(*cell)
            except Exception:
                traceback.print_exc()
                failed.append(name)
                continue
            store.replace(file, (json.dumps(found) + "\n").encode())
        print(name, found.get("shown", ""), f"({found['seconds']:.0f} s)", flush=True)
    return failed


def collect(folder: Path, results: Path, key: Callable[[dict[str, Any]], str]) -> None:
    """Write the cells of a folder into one file; cells with a new key are added, others replaced."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    old = read(results) if results.exists() else []
    content = {key(cell): cell for cell in [*old, *found]}
    lines = ",\n".join(json.dumps(content[name]) for name in sorted(content))
    store.replace(results, f'{{"cells": [\n{lines}\n]}}\n'.encode())


def read(results: Path) -> list[dict[str, Any]]:
    """Return the cells that `collect` wrote."""
    cells: list[dict[str, Any]] = json.loads(results.read_text(encoding="utf-8"))["cells"]
    return cells


def fill(page: Path, text: str, block: str = "tables") -> None:
    """Replace what is between the markers of a block on a page."""
    begin, end = BEGIN.format(block), END.format(block)
    before, rest = page.read_text(encoding="utf-8").split(begin)
    store.replace(page, f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}".encode())
