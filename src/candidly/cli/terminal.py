"""The terminal: everything that the program prints goes through `say` and `complain`."""

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from candidly.messages import visible

_LONGEST = 2000  # characters of a message
# Signs that the program prints, for terminals whose encoding lacks them; other characters become escapes.
_PLAIN = {"→": "->", "±": "+/-", "–": "-", "−": "-", "×": "x", "…": "..."}


def say(text: str, *, to_stderr: bool = False) -> None:
    """Print lines; characters that a terminal could take for commands are escaped."""
    stream = sys.stderr if to_stderr else sys.stdout
    with _writing(stream):
        print("\n".join(map(visible, text.split("\n"))), file=stream, flush=True)


def complain(message: Warning | str, *place: Any, **more: Any) -> None:
    """Print a warning or an error in one line, without the line of code that raised it."""
    text = visible(" ".join(str(message).splitlines()))
    if len(text) > _LONGEST:  # a long cell may be quoted; the advice is at the end
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    with suppress(OSError):  # nobody reads it
        print(f"candidly: {text}", file=sys.stderr, flush=True)


@contextmanager
def ready() -> Iterator[None]:
    """Make standard streams usable: open those that were closed, and let no character fail to be printed."""
    opened = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in opened:
        # Open it at the number of the closed stream, which no file of the user must get. Writing to standard output
        # fails, because a result would be lost.
        handle = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
        setattr(sys, name, open(handle, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    before = [(stream, stream.errors) for stream in (sys.stdout, sys.stderr) if hasattr(stream, "reconfigure")]
    for stream, _ in before:
        stream.reconfigure(errors="candidly")
    try:
        yield
    finally:
        for stream, errors in before:
            with suppress(OSError, ValueError):  # it was closed, or what it holds cannot be written
                stream.reconfigure(errors=errors)
        for name in opened:
            with suppress(OSError):
                getattr(sys, name).close()
            setattr(sys, name, None)


def flush() -> None:
    """Write what is left to print."""
    with _writing(sys.stdout):
        sys.stdout.flush()


def discard() -> None:
    """Discard what is left to print if it cannot be written: Python would fail to write it again when it ends."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


@contextmanager
def _writing(stream: TextIO) -> Iterator[None]:
    """Let errors say what could not be written; a pipe that was closed is not an error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        name = "standard error" if stream is sys.stderr else "standard output"
        raise OSError(f"{name} cannot be written: {error.strerror or error}") from error


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    sign = _PLAIN.get(error.object[error.start])
    return codecs.backslashreplace_errors(error) if sign is None else (sign, error.start + 1)


codecs.register_error("candidly", _plain)
