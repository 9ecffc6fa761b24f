"""Cases: one bad or odd input each, with the answer that is expected."""

import contextlib
import io
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.robustness import rule

Check = Callable[[Any], object]


@dataclass(frozen=True)
class Expected:
    """The right answer: a clear error that contains one of `names`, a result that passes `check`, or either.

    A check fails by returning False or by raising AssertionError. With `warns`, acceptance needs a warning that
    contains one of `names`. With `elsewhere`, another library refuses the input before candidly sees it.
    """

    names: tuple[str, ...] = ()
    check: Check | None = None
    warns: bool = False
    elsewhere: bool = False


def error(*names: str) -> Expected:
    """Expect a clear error with one of these words."""
    return Expected(names)


def right(check: Check) -> Expected:
    """Expect a result that passes the check."""
    return Expected(check=check)


def either(*names: str, check: Check) -> Expected:
    """Expect a clear error with one of these words, or a result that passes the check."""
    return Expected(names, check)


def warning(*names: str, check: Check = lambda result: True) -> Expected:
    """Expect a result with a warning that contains one of these words, or a clear error that does."""
    return Expected(names, check, warns=True)


def elsewhere(*names: str, check: Check | None = None) -> Expected:
    """Expect an error of another library, which calls candidly, or a result that passes the check."""
    return Expected(names, check, elsewhere=True)


@dataclass(frozen=True)
class Case:
    """One input.

    Attributes
    ----------
    family, name : str
        Together unique.
    act : callable
        Called in a new, empty current folder, without arguments. Its result is what the check gets.
    expected : Expected
    seconds : float
        Time limit.
    gib : float or None
        Limit on the additional memory, for inputs that may claim a lot.
    keeps : tuple of str
        Files that a refused command may create or change.
    reports : bool
        Whether the command reports failures on standard output, as `candidly bench` does for each run.
    """

    family: str
    name: str
    act: Callable[[], Any]
    expected: Expected
    seconds: float = 30
    gib: float | None = None
    keeps: tuple[str, ...] = ()
    reports: bool = False


@dataclass(frozen=True)
class Verdict:
    """How a case ended, with the message of the error or what is wrong."""

    kind: str
    text: str = ""


KINDS = ("right", "clear", "unclear", "wrongly refused", "silently wrong", "endless", "traceback")
GOOD = ("right", "clear")


def judge(case: Case) -> Verdict:
    """Run a case in the current folder, and compare the answer with the expected one."""
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        try:
            result = case.act()
        except (Exception, KeyboardInterrupt) as caught:
            return _judge_refusal(case, caught)
    if isinstance(result, Ended):
        verdict = _judge_end(case, result)
        if verdict is not None:
            return verdict
    said = [result.err] if isinstance(result, Ended) else [str(one.message) for one in caught_warnings]
    if case.expected.warns and not any(name in text for name in case.expected.names for text in said):
        return Verdict("silently wrong", f"accepted without a warning: {_shown(result)}")
    if case.expected.check is None:
        return Verdict("silently wrong", f"accepted: {_shown(result)}")
    try:
        passed = case.expected.check(result)
    except AssertionError as wrong:
        return Verdict("silently wrong", f"the check failed: {wrong}")
    except Exception as wrong:
        return Verdict("silently wrong", f"the check failed with {type(wrong).__name__}: {wrong}")
    return Verdict("silently wrong", f"the check failed: {_shown(result)}") if passed is False else Verdict("right")


def _judge_refusal(case: Case, caught: BaseException) -> Verdict:
    message = f"{type(caught).__name__}: {caught}"
    if isinstance(caught, HarnessError):
        return Verdict("silently wrong", f"the case itself is wrong: {caught}")
    if not case.expected.names:
        return Verdict("wrongly refused", message)
    problem = rule.judge_exception(caught, case.expected.names, case.expected.elsewhere)
    return Verdict("unclear", f"{problem} — {message}") if problem else Verdict("clear", message)


class HarnessError(Exception):
    """A mistake in a case."""


# The command line.


@dataclass(frozen=True)
class Ended:
    """What a command did: its exit status, its output, the exception that escaped it, and the files it changed."""

    status: int
    out: str
    err: str
    escaped: str = ""
    changed: tuple[str, ...] = ()


def run(*arguments: str, stdin: bytes = b"") -> Ended:
    """Run a command in this process, as ``candidly`` would with these arguments."""
    from candidly.cli import main

    before = _state()
    escaped, status = "", 0
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    old = sys.stdin
    try:
        sys.stdin = given
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.resetwarnings()
            try:
                main(list(arguments))
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
                if isinstance(end.code, str):
                    print(end.code, file=err)
            except BaseException as caught:
                status, escaped = 1, "".join(traceback.format_exception_only(caught)).strip()
    finally:
        sys.stdin = old
    texts = [stream.buffer.getvalue().decode(errors="replace") for stream in (out, err)]
    return Ended(status, *texts, escaped, _changes(before))


def start(
    *arguments: str,
    stdin: bytes = b"",
    environment: Mapping[str, str | None] | None = None,
    seconds: float = 60,
    shell: str | None = None,
) -> Ended:
    """Run a command in a new process, by default ``python -m candidly`` with these arguments.

    `environment` sets variables, and removes those that are None. `shell` is a shell command in which "$CANDIDLY"
    stands for ``python -m candidly``.
    """
    before = _state()
    variables = dict(os.environ) | {"CANDIDLY": f"{sys.executable} -m candidly", "PYTHONPATH": str(rule.PACKAGE.parent)}
    for name, value in (environment or {}).items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    line = [sys.executable, "-m", "candidly", *arguments] if shell is None else ["/bin/bash", "-c", shell]
    ended = subprocess.run(line, input=stdin, capture_output=True, env=variables, timeout=seconds, check=False)
    texts = [text.decode(errors="replace") for text in (ended.stdout, ended.stderr)]
    return Ended(ended.returncode, *texts, changed=_changes(before))


def _judge_end(case: Case, ended: Ended) -> Verdict | None:
    """Judge a command that failed; return None if it succeeded."""
    if ended.escaped or rule.TRACEBACK in ended.err:
        return Verdict("traceback", ended.escaped or ended.err.strip().splitlines()[-1])
    if ended.status == 0:
        return None
    message = ended.err.strip().replace("\n", " ⏎ ")
    if not case.expected.names:
        return Verdict("wrongly refused", message)
    left = [name for name in ended.changed if not name.startswith(case.keeps or ("\0",))]
    if left:
        return Verdict("silently wrong", f"refused, but it left {left[0]} — {message}")
    if case.reports and not ended.err:
        message = ended.out.strip().replace("\n", " ⏎ ")
        problem = rule.judge_report(ended.status, ended.out, case.expected.names)
    else:
        problem = rule.judge_command(ended.status, ended.out, ended.err, case.expected.names, case.reports)
    return Verdict("unclear", f"{problem} — {message}") if problem else Verdict("clear", message)


def _state() -> dict[str, Any]:
    """Return every file below the current folder with its time and size."""
    found: dict[str, Any] = {}
    for path in Path().rglob("*"):
        with contextlib.suppress(OSError):
            facts = path.lstat()
            found[str(path)] = (facts.st_ino, facts.st_mtime_ns, facts.st_size) if path.is_file() else None
    return found


def _changes(before: Mapping[str, Any]) -> tuple[str, ...]:
    after = _state()
    return tuple(sorted(name for name in before.keys() | after.keys() if before.get(name, 0) != after.get(name, 0)))


def _shown(result: Any) -> str:
    if isinstance(result, Ended):
        return f"exit status 0, {result.out[:80]!r}, {result.err[:200]!r}"
    try:
        return " ".join(repr(result).split())[:200]
    except Exception as wrong:
        return f"a {type(result).__name__} whose repr raises {type(wrong).__name__}"
