"""The process in which cases run: ``python -m benchmarks.robustness.worker MODULE``.

It reads a line of JSON per case, family and name, and answers with a line, the verdict. What cases print is dropped.
"""

import importlib
import json
import os
import resource
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

MEMORY = 6 << 30  # bytes of address space


def main() -> None:
    """Run cases until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogateescape")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    sys.stdout = os.fdopen(os.dup(quiet), "w", encoding="utf-8")
    os.dup2(quiet, 2)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    cases = {(case.family, case.name): case for case in importlib.import_module(sys.argv[1]).all_cases()}
    print("ready", file=answers, flush=True)
    with tempfile.TemporaryDirectory(prefix="robustness-") as folder:
        for number, line in enumerate(sys.stdin):
            verdict = _run(cases[tuple(json.loads(line))], Path(folder) / str(number))
            print(json.dumps(verdict), file=answers, flush=True)


def _run(case, folder):
    """Run a case in a new folder, and restore what it may have changed in the process."""
    import torch

    from benchmarks.robustness.case import judge

    folder.mkdir()
    os.chdir(folder)
    variables, limit = dict(os.environ), MEMORY
    if case.gib is not None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = min(MEMORY, used + int(case.gib * 2**30))
    state = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            resource.setrlimit(resource.RLIMIT_AS, (limit, MEMORY))
            verdict = judge(case)
        if verdict.kind == "right" and state != (
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.get_num_threads(),
        ):
            return ["silently wrong", "torch's default dtype, gradient mode or number of threads was changed"]
        return [verdict.kind, verdict.text[:2000]]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        torch.set_default_dtype(state[0])
        torch.set_grad_enabled(state[1])
        torch.set_num_threads(state[2])
        os.environ.clear()
        os.environ.update(variables)
        os.chdir("/")
        for path in folder.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
