"""The `candidly` program: `main`, its commands, and how errors and warnings are shown."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tyro

from candidly import __version__
from candidly.checks.machine import fault
from candidly.cli import experiments, models, training
from candidly.messages import visible

_COMMANDS = (
    *(training.fit, training.clean, training.audit),
    *(models.predict, models.evaluate, models.report),
    *(experiments.demo, experiments.methods, experiments.datasets, experiments.bench, experiments.table),
)
_LONGEST = 2000  # characters of a message
app = tyro.extras.SubcommandApp()
for command in _COMMANDS:
    app.command(command)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program with the arguments `argv`, by default those of the process."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments == ["--version"]:
        print(f"candidly {__version__}")
        return
    description = f"candidly {__version__}: learning from ambiguous labels. Use --version to print the version only."
    with warnings.catch_warnings(), _exit_on_signals():
        warnings.showwarning = _show
        try:
            status = app.cli(prog="candidly", description=description, args=arguments)
        except BrokenPipeError:  # the reader of a pipe, such as head, has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 1
        except KeyboardInterrupt:
            print("candidly: interrupted; finished work is kept, and no file is incomplete", file=sys.stderr)
            status = 130
        except Exception as error:
            reason = fault(error)
            if reason is None and not isinstance(error, ImportError | OSError | ValueError):
                raise
            _show(reason or str(error) or type(error).__name__)
            status = 1
    if status:
        sys.exit(status)


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `SystemExit`, so that temporary files are removed first."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, lambda number, frame: sys.exit(128 + number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(message: Warning | str, *place: Any, **more: Any) -> None:
    """Print a warning or an error in one line, without the line of code that raised it."""
    text = visible(" ".join(str(message).splitlines()))
    if len(text) > _LONGEST:  # a long cell may be quoted; the advice is at the end
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    print(f"candidly: {text}", file=sys.stderr)
