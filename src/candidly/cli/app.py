"""The command line: parse, import late, call the library, print."""

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
from candidly.cli import experiments, tables
from candidly.messages import visible

_COMMANDS = (
    *(experiments.demo, experiments.methods, experiments.datasets, experiments.bench, experiments.table),
    *(tables.fit, tables.clean, tables.audit, tables.predict, tables.evaluate, tables.report),
)
_LONGEST = 2000  # characters of a message
app = tyro.extras.SubcommandApp()
for command in _COMMANDS:
    app.command(command)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line on `argv`, by default the process's own arguments."""
    description = f"candidly {__version__}: learning from ambiguous labels."
    with warnings.catch_warnings(), _tidy_end():
        warnings.showwarning = _show
        try:
            status = app.cli(prog="candidly", description=description, args=argv)
        except BrokenPipeError:  # whoever read the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 1
        except KeyboardInterrupt:
            print("candidly: interrupted; what was done is kept, and nothing is half-written", file=sys.stderr)
            status = 130
        except (ImportError, MemoryError, OSError, ValueError) as error:
            _show(str(error) or type(error).__name__)
            status = 1
    if status:
        sys.exit(status)


@contextmanager
def _tidy_end() -> Iterator[None]:
    """Let a process that is told to end remove its temporary files first."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, lambda number, frame: sys.exit(128 + number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(message: Warning | str, *place: Any, **more: Any) -> None:
    """Show a warning or an error in one line, without the line of code that it comes from."""
    text = visible(" ".join(str(message).splitlines()))
    if len(text) > _LONGEST:  # a cell that holds a book; what to do about it is said at the end
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    print(f"candidly: {text}", file=sys.stderr)
