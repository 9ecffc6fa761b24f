"""Training all runs of an experiment: finished runs are skipped, and a failed run does not stop the others."""

import os
import platform
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from tqdm import tqdm

from candidly import store
from candidly.bench import datasets as sets
from candidly.bench import marker
from candidly.bench.processes import Processes
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
# Names of the errors by which executors say that the process of a call died: importing them needs their packages.
_DEATHS = {"BrokenExecutor", "KilledWorker", "WorkerCrashedError", "OutOfMemoryError", "NodeDiedError"}


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
        space, a device or file failed, or a worker process died. The next sweep tries again.
    elsewhere : tuple of Path
        Folders of the runs that another process is training. That is not a failure: several sweeps can share a folder.
    """

    done: tuple[Path, ...]
    skipped: tuple[Path, ...]
    failed: dict[str, str]
    postponed: dict[str, str] = field(default_factory=dict)
    elsewhere: tuple[Path, ...] = ()

    def __str__(self) -> str:
        counts = f"{len(self.done)} done, {len(self.skipped)} done before, {len(self.failed)} failed"
        if self.postponed:
            counts += f", {len(self.postponed)} to try again"
        if self.elsewhere:
            counts += f", {len(self.elsewhere)} being trained elsewhere"
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
    executor: Executor | None = None,
) -> Outcome:
    """Train all runs of an experiment that are not finished yet.

    Killing the process loses at most the runs that are training; calling `sweep` again continues with them. Several
    sweeps can share a folder, also from several machines: each trains the runs that no other is training.

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
        multi-layer perceptrons leaves most of a GPU idle, whereas convolutions fill it. With an executor, which decides
        this itself, `jobs` only says how many workers share the cores of a machine; see Notes.
    retry_failed
        Whether to train runs again that failed before.
    progress
        Whether to show progress bars; by default only on a terminal.
    executor
        Where to train: any `concurrent.futures.Executor`, such as a cluster's from `find_executor`. All its workers
        must see `out` and the files of the datasets under the same paths. The default is this machine.

    Notes
    -----
    A worker process that dies fails its run alone: it is `postponed`. (A process pool of the standard library loses
    all unfinished runs then; `jobs` without an executor does not.) On an executor, a run uses as many threads as
    ``OMP_NUM_THREADS`` says in the environment of its worker: Dask and Ray set it to 1. Without that, it uses the cores
    of the machine divided by `jobs`, and one thread if `jobs` is None.

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
    if executor is not None:
        instance("executor", executor, Executor, "a concurrent.futures.Executor")
    # The machines of an executor may have other devices than this one; a name is checked here in any case.
    here = str(find_device("auto" if executor is not None and str(device).startswith("cuda") else device))
    folder = arguments.path("out", out).absolute() if executor is not None else arguments.path("out", out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"{folder} cannot hold runs: {error.strerror}; name another folder with {option('out')}"
        ) from error
    shown = sys.stderr.isatty() if progress is None else flag("progress", progress)
    try:
        runs, failed, colour = _resolve(spec, folder, root, download, here, shown)
        finished = [run for run in runs if run.done]
        waiting = [run for run in runs if run not in finished and (retry_failed or not run.failed)]
        resting = [run for run in runs if run not in waiting]
        failed |= {run.title: _failure(run) for run in resting if run not in finished}
        _tidy(waiting, resting)
        root = root or os.environ.get("CANDIDLY_DATA")  # which workers on other machines may not have
        shared = {"spec": spec, "out": folder, "root": root and os.path.abspath(os.path.expanduser(root))}
        shared |= {"device": here if executor is None else str(device), "retry_failed": retry_failed}
        if executor is not None:
            outcomes = _on_engine(executor, waiting, shared | {"jobs": jobs or os.cpu_count() or 1})
        else:
            wished = jobs or (_STREAMS if here.startswith("cuda") and not colour else 1)
            outcomes = _on_machine(waiting, shared, min(wished, max(1, len(waiting))), shown)
        ends = _train(outcomes, len(waiting), shown)
    finally:
        _release()

    def folders(state: State) -> tuple[Path, ...]:
        return tuple(end.run.folder for end in ends if end.state == state)

    def reasons(state: State) -> dict[str, str]:
        return {end.run.title: end.text for end in ends if end.state == state}

    skipped = (*(run.folder for run in finished), *folders("skipped"))
    failed |= reasons("failed")
    return Outcome(folders("done"), skipped, failed, reasons("postponed"), folders("elsewhere"))


State = Literal["done", "skipped", "failed", "postponed", "elsewhere"]


@dataclass(frozen=True)
class _End:
    """How a run ended: the part of an `Outcome` it belongs to, and its result or the reason."""

    run: Run
    state: State
    text: str = ""

    def __str__(self) -> str:
        match self.state:
            case "done":
                return f"{self.run.title}: {self.text}"
            case "skipped":
                return f"{self.run.title} was finished by another process"
            case "failed":
                return f"{self.run.title} failed: {self.text}"
            case "postponed":
                return f"{self.run.title} was not trained, the next call tries again: {self.text}"
            case "elsewhere":
                return f"{self.run.title} is being trained by another process"


def _tidy(waiting: list[Run], resting: list[Run]) -> None:
    """Warn of finished runs that must be trained again, and remove lock files that killed processes left."""
    # Another process may have finished a run since: its marker is there, and its files are as they should be.
    damaged = [str(run.folder) for run in waiting if marker.exists(run.folder) and not run.done]
    if damaged:
        warn(f"files of finished runs are missing or were changed, so these are trained again: {listed(damaged)}")
    for run in resting:
        if (run.folder / "lock").exists():
            with locked(run.folder / "lock", wait=False):  # which removes it, unless another process holds it
                pass


def _train(outcomes: Generator[_End, None, None], total: int, shown: bool) -> list[_End]:
    """Let runs train; return how each of them ended."""
    ends: list[_End] = []
    start = time.perf_counter()
    bar = tqdm(total=total, unit="run", disable=not (shown and sys.stderr.isatty()))
    with closing(outcomes), bar:  # an error or an interrupt stops the workers
        for end in outcomes:
            bar.update()
            ends.append(end)
            if shown:
                left = (time.perf_counter() - start) / len(ends) * (total - len(ends))
                _say(f"[{len(ends)}/{total}] {end}; {_duration(left)} left")
    return ends


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
            found = Run.all_of(spec, dataset, sets.absolute(source), out)
            runs += found
            colour |= dataset.X.ndim == 4
            with _holding:
                size = sum(_num_bytes(one) for one in (*_held.values(), dataset))
                if size <= _HELD_BYTES and not all(run.done for run in found):
                    _held[found[0].content] = dataset
    return runs, failed, colour


def _on_machine(waiting: list[Run], shared: dict[str, Any], jobs: int, shown: bool) -> Generator[_End, None, None]:
    """Train runs on this machine, `jobs` of them at a time; yield how each of them ended."""
    if jobs == 1:
        yield from (_attempt(run, **shared, progress=None if shown else False) for run in waiting)
        return
    if shared["device"].startswith("cuda"):
        executor: Executor = ThreadPoolExecutor(jobs)
    else:
        _release()  # worker processes load their datasets themselves
        executor = Processes(jobs)
    try:
        yield from _submit(executor, waiting, shared)
    finally:
        executor.shutdown(cancel_futures=True)


def _on_engine(executor: Executor, waiting: list[Run], shared: dict[str, Any]) -> Generator[_End, None, None]:
    """Train runs on an executor of the user, which remains open; yield how each of them ended."""
    threads = torch.get_num_threads()
    try:
        yield from _submit(executor, waiting, shared)
    finally:
        torch.set_num_threads(threads)  # which a thread of this process may have changed


def _submit(executor: Executor, waiting: list[Run], shared: dict[str, Any]) -> Generator[_End, None, None]:
    """Submit runs to an executor; yield how each of them ended. An interrupt stops threads between two steps."""
    stop = threading.Event()
    if isinstance(executor, ThreadPoolExecutor):
        shared = shared | {"stop": stop}
    calls: dict[Future[_End], Run] = {}
    try:
        for last in (False, True):
            calls = {}
            for run in waiting:
                try:
                    calls[executor.submit(_attempt, run, **shared)] = run
                except BrokenExecutor as error:
                    yield _End(run, "postponed", _explain(error))
            waiting = []
            for call in as_completed(calls):
                run = calls[call]
                try:
                    end = call.result()
                except Exception as error:
                    # Dask blames all runs that were assigned to a dead worker; one that left no lock had not begun.
                    if _is_death(error) and not last and not (run.folder / "lock").exists():
                        waiting.append(run)
                        continue
                    end = _End(run, "postponed", _explain(error))
                yield end
    finally:
        stop.set()
        for call in calls:
            call.cancel()


def _is_death(error: Exception) -> bool:
    """Return whether an executor says that the process of a call died."""
    return any(kind.__name__ in _DEATHS for kind in type(error).__mro__)


def _explain(error: Exception) -> str:
    """Return in one line why a run has no result; `error` is what its future raised."""
    if _is_death(error):
        return "a worker process died, perhaps for lack of memory"
    if isinstance(error, CancelledError):
        return "the engine cancelled it, or the connection to the engine was lost"
    cause = getattr(error, "cause", None) or error  # Ray's errors hold the one that the call raised
    return f"a worker could not run it ({one_line(cause)}); check that all workers have the same packages"


def _attempt(
    run: Run,
    spec: Spec,
    out: Path,
    root: str | None,
    device: str,
    retry_failed: bool,
    progress: bool | None = False,
    jobs: int | None = None,
    stop: threading.Event | None = None,
) -> _End:
    """Execute a run; return how it ended. If its method failed, the traceback is in the run folder.

    `jobs` is given on executors: the number of workers that share the cores.
    """
    if jobs is not None:
        torch.set_num_threads(_num_threads(jobs))
    if not out.is_dir():
        missing = f"the folder {out} does not exist on {platform.node()}"
        return _End(run, "postponed", f"{missing}; name a folder that all machines share with {option('out')}")
    try:
        device = str(find_device(device))
    except ValueError as error:
        return _End(run, "postponed", f"{platform.node()}: {error}")
    with locked(run.folder / "lock", wait=False) as mine:
        if not mine:
            return _End(run, "elsewhere")
        if run.done:  # another process finished it in the meantime
            return _End(run, "skipped")
        if run.failed and not retry_failed:  # likewise
            return _End(run, "failed", _failure(run))
        try:
            dataset = _dataset(run, out, root, device)
            execute(run, spec, dataset, device, progress=progress, stop=stop)
        except (Exception, SystemExit) as error:  # an error in one method must not stop the other runs
            reason = fault(error) or (one_line(error) if isinstance(error, OSError) else None)
            if reason is not None:
                return _End(run, "postponed", reason)
            fail(run, error)
            return _End(run, "failed", _failure(run))
        return _End(run, "done", _result(run))


def _num_threads(jobs: int) -> int:
    """Return how many threads a worker uses: as its environment says, otherwise its share of the cores."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(given) if given.isdecimal() else (os.cpu_count() or 1) // jobs)


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
