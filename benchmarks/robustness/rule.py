"""The rule for clear errors, as functions of an exception or of what a command printed."""

import dis
import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import CodeType

import candidly

PACKAGE = Path(candidly.__file__).parent
PROJECT = Path(__file__).parents[2]
MOST_CHARACTERS = 2048
ADVICE = re.compile(
    r";\s*\S|\b(must|should|expected|expecting|required|needs?|at least|at most|allowed|valid|one of|did you mean|call|"
    r"use|pass|give|choose|check|set|reshape|remove)\b",
    re.IGNORECASE,
)
REASONS = tuple(map(os.strerror, (errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EROFS)))
REASONS += tuple(map(os.strerror, (errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EBADF, errno.ENAMETOOLONG, errno.ELOOP)))
# A warning or an error of a command is one such line.
WARNING = re.compile(r"(candidly|warning): ")
ERROR = re.compile(r"(candidly: )?(error: )?")
TRACEBACK = "Traceback (most recent call last)"

_ACCEPTED = (ValueError, TypeError, ImportError, OSError)


def judge_exception(error: BaseException, names: Sequence[str], elsewhere: bool = False) -> str:
    """Return why an error of the Python API is not clear, or "" if it is.

    Its message must contain one of the names. With `elsewhere`, any library may raise it.
    """
    if _is_binding(error):
        return "" if any(name in str(error) for name in names) else f"it names none of {', '.join(names)}"
    return _class_problem(error) or ("" if elsewhere else _origin_problem(error)) or judge_message(str(error), names)


def judge_message(message: str, names: Sequence[str]) -> str:
    """Return why a message is not clear, or "" if it is."""
    if not any(name in message for name in names):
        return f"it names none of {', '.join(names)}"
    if not ADVICE.search(message) and not any(reason in message for reason in REASONS):
        return "it does not say what to do"
    if len(message) > MOST_CHARACTERS:
        return f"it has {len(message)} characters"
    if not message.replace("\n", " ").isprintable():
        return "it contains raw control characters"
    return ""


def judge_report(status: int, out: str, names: Sequence[str]) -> str:
    """Return why the failures that a command lists on standard output are not clear, or "" if they are."""
    lines = [line for line in out.splitlines() if any(name in line for name in names)]
    if status not in (1, 2):
        return f"the exit status is {status}"
    return judge_message(lines[-1] if lines else out, names)


def judge_command(status: int, out: str, err: str, names: Sequence[str], reports: bool = False) -> str:
    """Return why the error of a command is not clear, or "" if it is. With `reports`, it may print before it fails."""
    lines = err.splitlines()
    if status not in (1, 2):
        return f"the exit status is {status}"
    if not lines:
        return "nothing is printed on standard error"
    if out and not reports:
        return f"it printed {out[:40]!r} on standard output"
    other = next((line for line in lines[:-1] if not WARNING.match(line)), None)
    if other is not None:
        return f"it has the line {other[:60]!r} beside the error"
    if not WARNING.match(lines[-1]) and not lines[-1].startswith("error: "):
        return f"its last line {lines[-1][:60]!r} is not an error"
    return judge_message(ERROR.sub("", lines[-1], count=1), names)


def _class_problem(error: BaseException) -> str:
    kind = type(error)
    module = kind.__module__.split(".")[0]
    builtin = module == "builtins" and isinstance(error, _ACCEPTED) and not issubclass(kind, UnicodeError)
    if builtin or module == "candidly" or kind.__name__ == "NotFittedError":
        return ""
    return f"its class is {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")


def _origin_problem(error: BaseException) -> str:
    code, instruction = _origin(error)
    if type(error).__name__ == "NotFittedError":
        return ""
    if not Path(code.co_filename).is_relative_to(PACKAGE):
        return f"it was raised in {Path(code.co_filename).name}, outside candidly"
    if instruction not in ("RAISE_VARARGS", "RERAISE"):
        return f"it was raised by a function that {Path(code.co_filename).name} calls"
    return ""


def _is_binding(error: BaseException) -> bool:
    """Return whether Python refused the arguments of the case's own call, which may be to a decorated function."""
    file = Path(_origin(error)[0].co_filename)
    own = any(file.is_relative_to(PROJECT / folder) for folder in ("benchmarks", "tests"))
    return type(error) is TypeError and (own or file.name == "contextlib.py")


def _origin(error: BaseException) -> tuple[CodeType, str]:
    """Return the code that raised an error, and the name of the instruction."""
    frame = error.__traceback__
    assert frame is not None
    while frame.tb_next is not None:
        frame = frame.tb_next
    code = frame.tb_frame.f_code
    return code, dis.opname[code.co_code[frame.tb_lasti]]
