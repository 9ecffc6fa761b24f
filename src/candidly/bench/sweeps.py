"""Training all runs of an experiment: finished runs are skipped, and a failed run does not stop the others."""

import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from tqdm import tqdm

from candidly import store
from candidly.bench import datasets as sets
from candidly.bench import marker
from candidly.bench.run import Run, execute, fail, one_line
from candidly.bench.spec import Spec
from candidly.checks import arguments
from candidly.checks.arguments import flag, instance, integer
from candidly.checks.machine import fault
from candidly.data.dataset import Dataset
from candidly.data.protocols import PROTOCOLS
from candidly.engine.device import find_device
from candidly.messages import listed, option, visible, warn
from candidly.store.lock import locked

_STREAMS = 4  # runs of multi-layer perceptrons at a time on CUDA: more are not faster
_HELD_BYTES = 2**30  # size of the datasets that are kept in memory until their runs train


@dataclass(frozen=True)
class Outcome:
    """The result of a sweep.

    Attributes
    ----------
    done, skipped : tuple of Path
        Folders of the runs that were trained now, and of those that were finished before.
    failed : dict of str to str
        The reason, in one line, for each run that failed and each dataset that could not be loaded.
    postponed : dict of str to str
        The reason for each run that was not trained, but not because of its method: the machine lacks memory or disk
        space, a device or file failed, or another process is training it. The next sweep tries again.
    """

    done: tuple[Path, ...]
    skipped: tuple[Path, ...]
    failed: dict[str, str]
    postponed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        counts = f"{len(self.done)} done, {len(self.skipped)} done before, {len(self.failed)} failed"
        if self.postponed:
            counts += f", {len(self.postponed)} to try again"
        reasons = self.failed | self.postponed
        return "\n".join([f"runs: {counts}", *(f"  {name}: {reason}" for name, reason in reasons.items())])


def sweep(
    spec: Spec,
    out: str | os.PathLike[str],
    *,
    root: str | None = None,
    download: bool = False,
    device: str = "auto",
    jobs: int | None = None,
    retry_failed: bool = False,
    progress: bool | None = None,
) -> Outcome:
    """Train all runs of an experiment that are not finished yet.

    Killing the process loses at most the runs that are training; calling `sweep` again continues with them.

    Parameters
    ----------
    spec
        The experiment.
    out
        The folder for the run folders, and for generated candidate sets (in ``candidates``).
    root, download
        The folder of the datasets, and whether to download missing ones; see `candidly.data.load`.
    device
        "auto", "cpu" or "cuda".
    jobs
        Number of runs that train at the same time: on a CPU in separate processes, which share the cores; on CUDA in
        threads with separate streams. The default is 1, and 4 on CUDA if no dataset has colour images: one run of
        multi-layer perceptrons leaves most of a GPU idle, whereas convolutions fill it.
    retry_failed
        Whether to train runs again that failed before.
    progress
        Whether to show progress bars; by default only on a terminal.

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
    instance("spec", spec, Spec, "a candidly.bench.Spec")
    jobs = None if jobs is None else integer("jobs", jobs, least=1)
    retry_failed, download = flag("retry_failed", retry_failed), flag("download", download)
    if root is not None:
        arguments.path("root", root)
    folder, device = arguments.path("out", out), str(find_device(device))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"{folder} cannot hold runs: {error.strerror}; name another folder with {option('out')}"
        ) from error
    shown = sys.stderr.isatty() if progress is None else flag("progress", progress)
    try:
        runs, failed, colour = _resolve(spec, folder, root, download, device, shown)
        finished = [run for run in runs if run.done]
        waiting = [run for run in runs if run not in finished and (retry_failed or not run.failed)]
        resting = [run for run in runs if run not in waiting]
        failed |= {run.title: _failure(run) for run in resting if run not in finished}
        _tidy(waiting, resting)
        wished = jobs or (_STREAMS if device.startswith("cuda") and not colour else 1)
        shared = {"spec": spec, "out": folder, "root": root, "device": device, "shown": shown}
        done, reasons, postponed = _train(waiting, shared, min(wished, max(1, len(waiting))))
        return Outcome(done, tuple(run.folder for run in finished), failed | reasons, postponed)
    finally:
        _release()


@dataclass(frozen=True)
class _End:
    """How a run ended: done if there is no reason. The next sweep tries a run again that its method did not fail."""

    run: Run
    reason: str | None = None
    again: bool = False


def _tidy(waiting: list[Run], resting: list[Run]) -> None:
    """Warn of finished runs that must be trained again, and remove lock files that killed processes left."""
    damaged = [str(run.folder) for run in waiting if marker.exists(run.folder)]
    if damaged:
        warn(f"files of finished runs are missing or were changed, so these are trained again: {listed(damaged)}")
    for run in resting:
        if (run.folder / "lock").exists():
            with locked(run.folder / "lock", wait=False):  # which removes it, unless another process holds it
                pass


def _train(
    waiting: list[Run], shared: dict[str, Any], jobs: int
) -> tuple[tuple[Path, ...], dict[str, str], dict[str, str]]:
    """Train runs, with `jobs` of them at a time; return the folders of those that are done, and why others are not."""
    if jobs == 1 or not shared["device"].startswith("cuda"):
        if jobs > 1:  # worker processes load their datasets themselves
            _release()
        outcomes = _in_processes(waiting, shared | {"jobs": jobs})
    else:
        outcomes = _in_threads(waiting, shared | {"jobs": jobs})
    done: list[Path] = []
    failed: dict[str, str] = {}
    postponed: dict[str, str] = {}
    start, shown = time.perf_counter(), shared["shown"]
    bar = tqdm(total=len(waiting), unit="run", disable=not (shown and sys.stderr.isatty()))
    with closing(outcomes), bar:  # an error or an interrupt stops the workers
        for number, end in enumerate(outcomes, 1):
            bar.update()
            run = end.run
            if end.reason is None:
                done.append(run.folder)
                result = f": {_result(run)}"
            elif end.again:
                postponed[run.title] = end.reason
                result = f" was not trained, the next call tries again: {end.reason}"
            else:
                failed[run.title] = end.reason
                result = f" failed: {end.reason}"
            if shown:
                left = (time.perf_counter() - start) / number * (len(waiting) - number)
                _say(f"[{number}/{len(waiting)}] {run.title}{result}; {_duration(left)} left")
    return tuple(done), failed, postponed


def _resolve(
    spec: Spec, out: Path, root: str | None, download: bool, device: str, shown: bool
) -> tuple[list[Run], dict[str, str], bool]:
    """Return all runs, why datasets could not be loaded, and whether any has colour images.

    Candidate sets are made here, before any run trains. Datasets that will be trained on are kept in memory, as far as
    `_HELD_BYTES` allows, so that runs in this process need not load and hash them again.
    """
    runs: list[Run] = []
    colour = False
    names: dict[str, str] = {}
    failed: dict[str, str] = {}
    for source in spec.datasets:
        if shown:
            _say(f"loading {source}")
        try:
            dataset = sets.load(source, out / "candidates", root, download, device)
            PROTOCOLS[spec.protocol].check(dataset)
            if dataset.name in names:
                both = f"{names[dataset.name]} and {source}"
                raise ValueError(f"{both} would both be called {dataset.name!r} in tables; rename one of the files")
        except Exception as error:
            reason = fault(error)
            if reason is None and not isinstance(error, ImportError | OSError | ValueError):
                raise
            failed[source] = reason or str(error)
        else:
            names[dataset.name] = source
            found = Run.all_of(spec, dataset, source, out)
            runs += found
            colour |= dataset.X.ndim == 4
            with _holding:
                size = sum(_num_bytes(one) for one in (*_held.values(), dataset))
                if size <= _HELD_BYTES and not all(run.done for run in found):
                    _held[found[0].content] = dataset
    return runs, failed, colour


def _in_processes(waiting: list[Run], shared: dict[str, Any]) -> Generator[_End, None, None]:
    """Yield how each run ended; if a worker dies, no unfinished run is trained."""
    ended = set()
    parent = (platform.node(), os.getpid()) if shared["jobs"] > 1 else None
    calls = [joblib.delayed(_attempt)(run, **shared, parent=parent) for run in waiting]
    try:
        with _without_signals():
            outcomes = joblib.Parallel(n_jobs=shared["jobs"], return_as="generator_unordered")(calls)
        for end in outcomes:
            ended.add(end.run.folder)
            yield end
    except TerminatedWorkerError:
        died = "a worker process died, perhaps because memory ran out; use fewer jobs"
        yield from (_End(run, died, again=True) for run in waiting if run.folder not in ended and not run.done)


@contextmanager
def _without_signals() -> Iterator[None]:
    """Block signals, also in the processes that are started meanwhile.

    Ctrl-C and a hangup reach the whole group of processes. Only this one handles them, and ends the others; they would
    print tracebacks.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_threads(waiting: list[Run], shared: dict[str, Any]) -> Generator[_End, None, None]:
    """Yield how each run ended; an interrupt stops training between two steps."""
    stop = threading.Event()
    with ThreadPoolExecutor(shared["jobs"]) as pool:
        try:
            calls = [pool.submit(partial(_attempt, run, **shared, stop=stop)) for run in waiting]
            for call in as_completed(calls):
                yield call.result()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _attempt(
    run: Run,
    spec: Spec,
    out: Path,
    root: str | None,
    device: str,
    jobs: int,
    shown: bool,
    parent: tuple[str, int] | None = None,
    stop: threading.Event | None = None,
) -> _End:
    """Execute a run; return how it ended. If its method failed, the traceback is in the run folder."""
    if parent is not None:
        torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // jobs)))
        _end_with(*parent)
        tqdm.set_lock(threading.RLock())  # its default has semaphores, which a killed worker leaves with a warning
    with locked(run.folder / "lock", wait=False) as mine:
        if not mine:
            return _End(run, "another process is training it", again=True)
        if run.done:  # another process finished it in the meantime
            return _End(run)
        try:
            dataset = _dataset(run, out, root, device)
            execute(run, spec, dataset, device, progress=None if shown and jobs == 1 else False, stop=stop)
        except (Exception, SystemExit) as error:  # an error in one method must not stop the other runs
            reason = fault(error) or (one_line(error) if isinstance(error, OSError) else None)
            if reason is not None:
                return _End(run, reason, again=True)
            fail(run, error)
            return _End(run, _failure(run))
    return _End(run)


_held: dict[str, Dataset] = {}  # datasets in the memory of this process, by the hash of their content
_holding = threading.Lock()


def _dataset(run: Run, out: Path, root: str | None, device: str) -> Dataset:
    """Return the dataset of a run, from memory if possible; loading it removes the others from memory.

    All runs on a dataset come one after the other, so each is loaded at most once more.
    """
    with _holding:
        if run.content not in _held:
            _held.clear()
            dataset = sets.load(run.source, out / "candidates", root, False, device)
            if sets.fingerprint(dataset, grouped=PROTOCOLS[run.config["protocol"]].grouped) != run.content:
                raise OSError(f"{run.source} changed during the sweep; start the sweep again")
            _held[run.content] = dataset
        return _held[run.content]


def _release() -> None:
    """Remove the datasets from memory: the next sweep reads them again, because files may have changed."""
    with _holding:
        _held.clear()


def _num_bytes(dataset: Dataset) -> int:
    arrays = (dataset.X, dataset.S, dataset.y)
    return sum(array.nbytes for array in arrays if array is not None)


_parents: set[tuple[str, int]] = set()  # processes that this worker watches


def _end_with(node: str, pid: int) -> None:
    """End this worker process soon after the sweep that started it, so that the next sweep does not compete with it.

    Only POSIX systems can ask whether a process exists without touching it; elsewhere, a worker whose sweep was killed
    may finish its run first.
    """

    def watch() -> None:
        with suppress(PermissionError):
            while True:
                try:
                    os.kill(pid, 0)
                except ProcessLookupError:
                    os._exit(1)
                time.sleep(1)

    if os.name == "posix" and node == platform.node() and (node, pid) not in _parents:
        _parents.add((node, pid))
        threading.Thread(target=watch, daemon=True).start()


def _say(text: str) -> None:
    """Print a line above the progress bar; names from files cannot control the terminal."""
    tqdm.write(visible(text))


def _failure(run: Run) -> str:
    path = run.folder / "failed.txt"
    reason = path.read_text(encoding="utf-8").partition("\n")[0]
    return f"{reason} (traceback in {path}; --retry-failed tries again)"


def _result(run: Run) -> str:
    summary = store.read_json(run.folder / "summary.json")
    accuracy = summary["metrics"].get("test_accuracy")
    score = f"test accuracy {100 * np.mean(accuracy):.2f}" if accuracy else "no true labels"
    return f"{score} ({_duration(summary['seconds'])})"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
