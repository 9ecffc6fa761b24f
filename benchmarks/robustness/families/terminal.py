"""Commands as processes: signals, pipes, encodings, closed streams, missing folders and full disks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.robustness import made, rule
from benchmarks.robustness.case import Case, Ended, Expected, either, error, right, start

FAMILY = "terminal"
FIT = "fit rows.csv --candidates tags --id id --labels truth --out made --epochs 4 --folds 2 --device cpu"
CLEAN = "clean rows.csv --candidates tags --id id --labels truth --epochs 4 --folds 2 --device cpu"


def shell(
    line: str, environment: Mapping[str, str | None] | None = None, prepare: Callable[[], object] = lambda: None
) -> Callable[[], Ended]:
    """Return a call of a shell command in a folder with good files."""

    def act() -> Ended:
        made.put("rows.csv", made.csv())
        made.put("new.csv", made.new_rows())
        made.model()
        prepare()
        return start(shell=line, environment=environment)

    return act


def quiet(ended: Ended) -> bool:
    """Check that nothing but the program's own words is on standard error."""
    return "Exception" not in ended.err and "Error" not in ended.err


def interrupted(wait: float, number: int) -> Callable[[], Any]:
    """Return a call that sends a signal to a long training after some time."""
    return lambda: _finished(["-m", "candidly", *FIT.replace("--epochs 4", "--epochs 9999").split()], wait, number)


def _finished(arguments: list[str], wait: float | None = None, number: int = 0) -> dict[str, Any]:
    """Run Python in a folder with the good table, and return how it ended and what it left."""
    made.put("rows.csv", made.csv())
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ) | {"PYTHONPATH": str(rule.PACKAGE.parent)},
    )
    if wait is not None:
        time.sleep(wait)
        process.send_signal(number)
    out, err = process.communicate(timeout=50)
    left = [name for name in sorted(os.listdir()) if name != "rows.csv"]
    return {"status": process.returncode, "err": err.decode(), "out": out.decode(), "left": left}


# Runs the program, and sends a signal to it when a module is first imported.
SIGNALLING = """
import os, runpy, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Finder())
runpy.run_module("candidly", run_name="__main__", alter_sys=True)
"""


def at_import(module: str, number: int) -> Callable[[], Any]:
    """Return a call that sends a signal to `candidly fit` when it first imports a module."""

    def act() -> dict[str, Any]:
        return _finished(["-c", SIGNALLING.format(module=module, number=int(number)), *FIT.split()])

    return act


def stopped(result: dict[str, Any]) -> bool:
    """Check that an interrupted command printed no traceback, failed, and left no files."""
    assert "Traceback" not in result["err"], result["err"][-300:]
    assert result["status"] != 0, result
    assert not result["left"], result
    return True


CASES: dict[str, tuple[Callable[[], Any], Expected]] = {
    "a closed pipe": (shell(f"$CANDIDLY {CLEAN} --out - | head -n 1; true"), right(quiet)),
    "a closed pipe of methods": (shell("set -o pipefail; $CANDIDLY methods | true; exit 0"), right(quiet)),
    "closed standard output": (
        shell(f"$CANDIDLY {CLEAN} --out made.csv >&-"),
        either("output", "written", check=quiet),
    ),
    "closed standard output of methods": (shell("$CANDIDLY methods >&-"), either("output", "written", check=quiet)),
    "closed standard error": (shell(f"$CANDIDLY {CLEAN} --out made.csv 2>&-"), right(quiet)),
    "an error with closed standard error": (
        shell("$CANDIDLY fit none.csv --candidates tags --out made 2>&-; test $? = 1"),
        right(quiet),
    ),
    "closed standard input": (shell(f"$CANDIDLY {CLEAN} --out made.csv <&-"), right(quiet)),
    "a table from closed standard input": (
        shell("$CANDIDLY clean - --candidates tags --out made.csv <&-"),
        error("standard input", "stdin"),
    ),
    "a full disk as standard output": (
        shell(f"$CANDIDLY {CLEAN} --out - > /dev/full"),
        error("output", "written", "space"),
    ),
    "a full disk as standard output of methods": (
        shell("$CANDIDLY methods > /dev/full"),
        error("output", "written", "space"),
    ),
    "a full disk as standard output of --help": (
        shell("$CANDIDLY --help > /dev/full"),
        either("output", "written", check=quiet),
    ),
    "a full disk as standard output of --version": (
        shell("$CANDIDLY --version > /dev/full"),
        error("output", "written", "space"),
    ),
    "a limit on file size": (shell(f"ulimit -f 1; $CANDIDLY {FIT}"), error("made", "written", "large")),
    "a limit on open files": (
        shell(f"ulimit -n 12; $CANDIDLY {FIT}"),
        either("files", "open", check=lambda ended: Path("made").exists()),
    ),
    "a limit on memory": (
        shell(f"ulimit -v 1200000; $CANDIDLY {FIT}"),
        either("memory", check=lambda ended: Path("made").exists()),
    ),
    "a cp1252 terminal": (
        shell(f"$CANDIDLY {CLEAN} --out made.csv", {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}),
        right(quiet),
    ),
    "an ASCII terminal": (
        shell(f"$CANDIDLY {CLEAN} --out made.csv", {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}),
        right(quiet),
    ),
    "an ASCII terminal and other names": (
        shell("$CANDIDLY fit ört.csv --candidates täg --out made", {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}),
        error("rt.csv"),
    ),
    "a cp1252 terminal and other names": (
        shell("$CANDIDLY fit 猫.csv --candidates tags --out made", {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}),
        error(".csv"),
    ),
    "a cp1252 terminal and Japanese classes": (
        shell(
            f"$CANDIDLY {CLEAN} --out -",
            {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"},
            lambda: made.put("rows.csv", made.csv().replace("cat", "猫")),
        ),
        either("猫", "encod", "written", "output", check=lambda ended: ended.out.count("\n") >= made.ROWS),
    ),
    "a cp1252 terminal and audit": (
        shell(CLEAN.replace("clean", "$CANDIDLY audit"), {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}),
        right(quiet),
    ),
    "a cp1252 terminal and datasets": (
        shell("$CANDIDLY datasets", {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}),
        right(quiet),
    ),
    "an ASCII terminal and datasets": (
        shell("$CANDIDLY datasets", {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}),
        right(quiet),
    ),
    "an ASCII terminal and --help": (
        shell("$CANDIDLY --help", {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}),
        right(quiet),
    ),
    "an ASCII terminal and an unknown option": (
        shell("$CANDIDLY fit --nonsense", {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}),
        error("nonsense"),
    ),
    "the C locale": (
        shell(
            f"$CANDIDLY {CLEAN} --out made.csv",
            {"LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            lambda: made.put("rows.csv", made.csv().replace("cat", "chaté")),
        ),
        right(lambda ended: "chaté" in Path("made.csv").read_text(encoding="utf-8")),
    ),
    "no HOME": (shell(f"$CANDIDLY {FIT}", {"HOME": None}), right(quiet)),
    "no HOME for datasets": (shell("$CANDIDLY datasets", {"HOME": None, "XDG_CACHE_HOME": None}), right(quiet)),
    "a HOME that is missing": (shell(f"$CANDIDLY {FIT}", {"HOME": "/nowhere"}), right(quiet)),
    "no PATH": (shell(f"$CANDIDLY {FIT}", {"PATH": ""}), right(quiet)),
    "no variables": (shell(f"env -i PYTHONPATH=$PYTHONPATH $CANDIDLY {FIT}"), right(quiet)),
    "COLUMNS of 0": (shell("$CANDIDLY --help", {"COLUMNS": "0"}), right(quiet)),
    "COLUMNS of 5": (shell("$CANDIDLY fit --help", {"COLUMNS": "5"}), right(quiet)),
    "COLUMNS as text": (shell("$CANDIDLY --help", {"COLUMNS": "wide"}), right(quiet)),
    "a temporary folder that is missing": (shell(f"$CANDIDLY {FIT}", {"TMPDIR": "/nowhere"}), right(quiet)),
    "OMP_NUM_THREADS as text": (
        shell(f"$CANDIDLY {FIT}", {"OMP_NUM_THREADS": "many"}),
        right(lambda ended: Path("made").exists()),
    ),
    "PYTHONOPTIMIZE": (
        shell("$CANDIDLY fit none.csv --candidates tags --out made", {"PYTHONOPTIMIZE": "2"}),
        error("none.csv"),
    ),
    "PYTHONOPTIMIZE and --help": (shell("$CANDIDLY fit --help", {"PYTHONOPTIMIZE": "2"}), right(quiet)),
    "warnings as errors": (shell(f"$CANDIDLY {FIT}", {"PYTHONWARNINGS": "error"}), right(quiet)),
    "an argument that is not UTF-8": (shell("$CANDIDLY fit $'\\xff.csv' --candidates tags --out made"), error(".csv")),
    "an option that is not UTF-8": (
        shell("$CANDIDLY fit rows.csv --candidates $'\\xff' --out made"),
        error("rows.csv", "column", "candidates"),
    ),
    "an argument with escapes": (
        shell("$CANDIDLY fit $'\\e[31m.csv' --candidates tags --out made"),
        error("\\x1b[31m"),
    ),
    "an output with escapes": (
        shell(f"$CANDIDLY {CLEAN} --out $'a\\e[31m.csv'"),
        right(lambda ended: "\x1b" not in ended.out + ended.err),
    ),
    "a model with escapes in its name": (
        shell(FIT.replace("--out made", "--out $'made\\e[31m'").replace("fit", "$CANDIDLY fit", 1)),
        right(lambda ended: "\x1b" not in ended.out + ended.err),
    ),
    "--version": (shell("$CANDIDLY --version"), right(lambda ended: ended.out.startswith("candidly "))),
    "python -c": (shell(f"{sys.executable} -c 'import candidly'"), right(quiet)),
    **{
        f"{name} while {module} is imported": (at_import(module, getattr(signal, name)), right(stopped))
        for name in ("SIGINT", "SIGTERM", "SIGHUP")
        for module in ("candidly.cli.app", "numpy", "pyarrow", "torch", "sklearn")
    },
    **{
        f"{name} while training": (interrupted(8.0, getattr(signal, name)), right(stopped))
        for name in ("SIGINT", "SIGTERM", "SIGHUP")
    },
}


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (act, expected) in CASES.items():
        yield Case(
            FAMILY, name, act, expected, seconds=60, keeps=("made.csv",) if name == "closed standard output" else ()
        )
