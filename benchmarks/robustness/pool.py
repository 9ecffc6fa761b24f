"""Run cases in worker processes with limits on time and memory."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from benchmarks.robustness.case import Case, Verdict

START_SECONDS = 120  # to import everything and to prepare the shared models


class Worker:
    """A process that runs one case at a time. It is replaced when a case hangs or ends it."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.process: subprocess.Popen[bytes] | None = None
        self.folder = ""

    def run(self, case: Case) -> Verdict:
        """Run a case, found by its family and name in the worker."""
        if self.process is None:
            self._start()
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([case.family, case.name]).encode() + b"\n")
        self.process.stdin.flush()
        started = time.monotonic()
        line = self._read(case.seconds)
        if line:
            return Verdict(*json.loads(line))
        with contextlib.suppress(subprocess.TimeoutExpired):  # standard output is closed before the process has ended
            self.process.wait(0 if time.monotonic() - started > case.seconds else 10)
        ended = self.process.poll()
        self.stop()
        what = f"not finished after {case.seconds:g} s" if ended is None else f"the process ended with status {ended}"
        return Verdict("endless", what)

    def _start(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="robustness-")
        environment = dict(os.environ) | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default", "TMPDIR": self.folder}
        line = [sys.executable, "-m", "benchmarks.robustness.worker", self.module]
        self.process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        if not self._read(START_SECONDS):
            raise RuntimeError("a worker process did not start")

    def _read(self, seconds: float) -> bytes:
        """Return the worker's next line, or nothing if there is none within the time limit."""
        assert self.process is not None
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline() if ready else b""

    def stop(self) -> None:
        """End the process and the processes it started, and remove their files."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self.process = None
        shutil.rmtree(self.folder, ignore_errors=True)


def run_all(
    cases: Sequence[Case], jobs: int, module: str, progress: Callable[[int], object] = lambda done: None
) -> list[tuple[Case, Verdict, float]]:
    """Run the cases of a module in several processes; return them with their verdicts and seconds, in order."""
    waiting: SimpleQueue[tuple[int, Case]] = SimpleQueue()
    for item in enumerate(cases):
        waiting.put(item)
    found: dict[int, tuple[Case, Verdict, float]] = {}

    def work() -> None:
        worker = Worker(module)
        try:
            while True:
                try:
                    number, case = waiting.get_nowait()
                except Empty:
                    return
                started = time.monotonic()
                verdict = worker.run(case)
                found[number] = (case, verdict, time.monotonic() - started)
                progress(len(found))
        finally:
            worker.stop()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in sorted(found)]
