"""Signals that end the program: it cleans up and says so in one line, also while modules are imported."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

TYPE_CHECKING = False  # as in `candidly`: importing `typing` takes longer than the rest of this module
if TYPE_CHECKING:
    from typing import Any

_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "ended by a hangup"}

_PAUSE = 0.01  # seconds


class Stopped(KeyboardInterrupt):
    """The process was asked to end by the signal `number`."""

    def __init__(self, number: int) -> None:
        self.number = number
        what = _WORDS[signal.Signals(number).name]
        super().__init__(f"{what}; finished work is kept, and no file is incomplete")

    @property
    def status(self) -> int:
        """The exit status of a process that ends by this signal."""
        return 128 + self.number


@contextmanager
def handled(*, to_the_end: bool = False) -> Iterator[None]:
    """Raise `Stopped` for signals that ask the process to end; signals that it was started to ignore stay ignored.

    With `to_the_end` the process is about to end when the block does, and signals end it without a message then.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    numbers = [getattr(signal, name) for name in _WORDS if hasattr(signal, name)]
    before: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
    hook = sys.unraisablehook
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, _stop)
        sys.unraisablehook = _resend
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if to_the_end and handler is not signal.SIG_IGN else handler)


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise; end at once while a module is imported: extension modules may ignore an exception, or crash by it."""
    stopped = Stopped(number)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            with suppress(OSError):  # standard error is closed
                os.write(2, f"candidly: {stopped}\n".encode())
            os._exit(stopped.status)
        frame = frame.f_back
    raise stopped


def _resend(unraisable: "Any") -> None:
    """Send a signal again whose exception was raised where Python can only print it, as in a finaliser."""
    if isinstance(unraisable.exc_value, Stopped):
        again = threading.Timer(_PAUSE, os.kill, (os.getpid(), unraisable.exc_value.number))  # not inside this function
        again.daemon = True
        again.start()
    elif os.environ.get("CANDIDLY_TRACEBACK"):
        sys.__unraisablehook__(unraisable)
