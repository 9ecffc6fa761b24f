"""All runs of an experiment: what is done is skipped, what fails is kept for reading, the rest goes on."""

import json
import os
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import torch
from tqdm import tqdm

from candidly.bench import sets
from candidly.bench.run import Run, execute, fail
from candidly.bench.spec import Spec


@dataclass(frozen=True)
class Outcome:
    """What a sweep did.

    Attributes
    ----------
    done, skipped : tuple of Path
        The folders of the runs that were trained now, and of those that had been before.
    failed : dict of str to str
        For each run that failed, and for each dataset that could not be loaded, the reason in one line.
    """

    done: tuple[Path, ...]
    skipped: tuple[Path, ...]
    failed: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{len(self.done)} runs done, {len(self.skipped)} were done before, {len(self.failed)} failed."]
        return "\n".join([*lines, *(f"  {name}: {reason}" for name, reason in self.failed.items())])


def sweep(
    spec: Spec,
    out: str | os.PathLike[str],
    *,
    root: str | None = None,
    download: bool = False,
    device: str = "auto",
    jobs: int = 1,
    retry_failed: bool = False,
    progress: bool | None = None,
) -> Outcome:
    """Train all runs of an experiment that are not done yet.

    Killing it at any moment loses at most the runs that are training; calling it again goes on with them.

    Parameters
    ----------
    spec
        What to run.
    out
        The folder for the runs' folders, and for the candidate sets that are made (in ``candidates``).
    root, download
        Where datasets are, and whether to download missing ones; see `candidly.data.load`.
    device
        "auto", "cpu" or "cuda".
    jobs
        How many runs train at the same time, each in a process of its own. All seeds of a run train together anyway:
        more than one job pays on a CPU with many cores.
    retry_failed
        Whether to try again what failed before.
    progress
        Whether to show bars; None does so on a terminal.

    Examples
    --------
    >>> import tempfile
    >>> from candidly import Recipe
    >>> spec = Spec(("digits+uniform-0.3",), ("proden", "cc"), seeds=(0,), recipe=Recipe("short", epochs=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, again = (sweep(spec, folder, device="cpu") for _ in range(2))
    >>> len(first.done), len(again.done), len(again.skipped)
    (2, 0, 2)
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; train at least 1 run at a time")
    folder = Path(out)
    shown = sys.stderr.isatty() if progress is None else progress
    runs, failed = _resolve(spec, folder, root, download, device)
    skipped = tuple(run.folder for run in runs if run.done)
    waiting = [run for run in runs if not run.done and (retry_failed or not run.failed)]
    failed |= {_title(run): _reason(run) for run in runs if run.failed and not run.done and run not in waiting}
    done = []
    calls = [joblib.delayed(_attempt)(run, spec, folder, root, device, jobs, shown) for run in waiting]
    with tqdm(total=len(waiting), unit="run", disable=not (shown and sys.stderr.isatty())) as bar:
        start = time.perf_counter()
        for run in joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(calls):
            bar.update()
            if run.done:
                done.append(run.folder)
            else:
                failed[_title(run)] = _reason(run)
            if shown:
                finished = len(done) + sum(_title(one) in failed for one in waiting)
                left = (time.perf_counter() - start) / finished * (len(waiting) - finished)
                tqdm.write(f"[{finished}/{len(waiting)}] {_line(run)}; {_duration(left)} left")
    return Outcome(tuple(done), skipped, failed)


def _resolve(spec: Spec, out: Path, root: str | None, download: bool, device: str) -> tuple[list[Run], dict[str, str]]:
    """Return all runs, and why datasets could not be loaded; candidate sets are made here, before any run trains."""
    runs, failed = [], {}
    for name in spec.datasets:
        try:
            dataset = sets.load(name, out / "candidates", root, download, device)
        except (OSError, ValueError) as error:
            failed[name] = str(error)
        else:
            runs += Run.all_of(spec, dataset, name, out)
    return runs, failed


def _attempt(run: Run, spec: Spec, out: Path, root: str | None, device: str, jobs: int, shown: bool) -> Run:
    """Execute a run; keep its traceback when it fails."""
    if jobs > 1:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
    try:
        dataset = sets.load(run.dataset, out / "candidates", root, False, device)
        execute(run, spec, dataset, device, progress=None if shown and jobs == 1 else False)
    except Exception:  # whatever a method raises must not stop the other runs; it is kept and reported
        fail(run, traceback.format_exc())
    return run


def _title(run: Run) -> str:
    return f"{run.config['dataset']['name']} {run.method}"


def _reason(run: Run) -> str:
    """Return the last line of a failed run's traceback, and where the rest is."""
    path = run.folder / "failed.txt"
    lines = path.read_text(encoding="utf-8").strip().splitlines()
    return f"{lines[-1]} (see {path})"


def _line(run: Run) -> str:
    if not run.done:
        return f"{_title(run)} failed: {_reason(run)}"
    summary = json.loads((run.folder / "summary.json").read_text(encoding="utf-8"))
    accuracy = summary["metrics"].get("test_accuracy")
    score = f"test accuracy {100 * np.mean(accuracy):.2f}" if accuracy else "no true labels"
    return f"{_title(run)}: {score} ({_duration(summary['seconds'])})"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
