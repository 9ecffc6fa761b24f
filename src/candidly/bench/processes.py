"""Worker processes of this machine, each in a pool alone: one that dies loses only the call that it was running."""

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

import torch
from joblib.externals.loky.process_executor import ProcessPoolExecutor
from tqdm import tqdm

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Processes(Executor):
    """Run calls in `jobs` processes, which share the cores of this machine and end with this process.

    Every thread of a thread pool has one process. Classes of unknown modules are sent by value.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._threads = ThreadPoolExecutor(jobs, initializer=_block_signals)
        self._pools: dict[int, ProcessPoolExecutor] = {}  # by thread
        self._changing = threading.Lock()
        self._closed = False

    def submit(self, fn: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_R]:
        """Run a call as soon as a process is free; if its process dies, the future raises `BrokenExecutor`."""
        return self._threads.submit(self._call, partial(fn, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; with `cancel_futures`, also those that are busy."""
        self._threads.shutdown(wait=wait and not cancel_futures, cancel_futures=cancel_futures)
        with self._changing:
            self._closed = True
        for pool in self._pools.values():
            pool.shutdown(kill_workers=cancel_futures)
        self._threads.shutdown(wait=wait)

    def _call(self, call: Callable[[], Any]) -> Any:
        with self._changing:
            if self._closed:
                raise BrokenExecutor("the processes were ended")
            running = self._pool().submit(call)
        try:
            return running.result()
        except BrokenExecutor:
            with self._changing:
                if not self._closed:
                    self._pools.pop(threading.get_ident()).shutdown()
            raise

    def _pool(self) -> ProcessPoolExecutor:
        """Return the process of this thread, which is started if there is none."""
        thread = threading.get_ident()
        if thread not in self._pools:
            share = max(1, (os.cpu_count() or 1) // self._jobs)
            names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
            environment = {name: os.environ.get(name, str(share)) for name in names}
            self._pools[thread] = ProcessPoolExecutor(
                1, initializer=_prepare, initargs=(share, os.getpid()), env=environment
            )
        return self._pools[thread]


def _block_signals() -> None:
    """Block signals in this thread and in the processes that it starts.

    Ctrl-C and a hangup reach the whole group of processes. Only the main thread of this one handles them, and ends the
    others; they would print tracebacks.
    """
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def _prepare(threads: int, parent: int) -> None:
    """Limit the threads of this worker process, and end it soon after its parent."""
    torch.set_num_threads(min(torch.get_num_threads(), threads))
    tqdm.set_lock(threading.RLock())  # its default has semaphores, which a killed worker leaves with a warning
    if os.name == "posix":
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(pid: int) -> None:
    """End this process soon after another one, so that the next sweep does not compete with it.

    Only POSIX systems can ask whether a process exists without touching it; elsewhere, a worker whose sweep was killed
    may finish its run first.
    """
    with suppress(PermissionError):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                os._exit(1)
            time.sleep(1)
