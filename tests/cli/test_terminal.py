"""What the program prints, on terminals of any kind: encodings, closed streams, full disks, escapes, signals."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from candidly.cli import app as cli
from candidly.cli import terminal

HOSTILE = "\x1b[31mred\x07\r\u202ex.csv"
posix = pytest.mark.skipif(os.name != "posix", reason="the system has other streams and signals")


def run(*arguments, shell="", **environment):
    """Run the program in a process of its own; `shell` redirects its streams."""
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, "-m", "candidly", *arguments]
    known = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    return subprocess.run(command, capture_output=True, env=known, check=False, timeout=60)


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1:strict", "ascii:strict"])
def test_every_encoding_will_do(encoding):
    done = run("datasets", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b"4998 x 38" if "ascii" in encoding else "4998 × 38".encode(encoding.partition(":")[0])) in done.stdout


@posix
def test_the_plain_locale():
    done = run("datasets", "→", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 1
    assert done.stderr.startswith(b"candidly: ")
    assert done.stderr.count(b"\n") == 1


def test_signs_have_plain_forms_and_other_characters_become_escapes(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    with terminal.ready():
        terminal.say("1 → 2 ± 3 × 4 … 北")
        stream.flush()
    assert stream.buffer.getvalue() == b"1 -> 2 +/- 3 x 4 ... \\u5317\n"
    assert stream.errors == "strict", "as before"


@posix
@pytest.mark.parametrize(
    ("shell", "status", "text"),
    [
        (">/dev/full", 1, b"standard output cannot be written: No space left on device"),
        (">&-", 1, b"candidly: standard output cannot be written: Bad file descriptor\n"),
        ("2>&-", 0, b""),
        ("<&-", 0, b""),
        ("2>/dev/full", 0, b""),
        ("| true", 0, b""),
    ],
)
@pytest.mark.parametrize("command", ["--help", "fit --help"])
def test_streams_that_cannot_be_used(command, shell, status, text):
    if not Path("/dev/full").exists() and "full" in shell:
        pytest.skip("the system has no /dev/full")
    done = run(*command.split(), shell=shell)
    assert (done.returncode, done.stderr.count(b"\n")) == (status, bool(text))
    assert text in done.stderr


@posix
def test_errors_without_a_stream_for_them_are_not_on_the_other():
    done = run("dmeo", shell="2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")


@posix
def test_a_folder_that_was_deleted(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    source = Path(__file__).parents[2] / "src"
    command = f"cd {gone} && rmdir {gone} && exec {sys.executable} -m candidly table runs"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, env=os.environ | {"PYTHONPATH": str(source)}, check=False
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", HOSTILE, "--candidates", "tags", "--out", "model"],
        ["predict", HOSTILE, "rows.csv", "--out", "new.csv"],
        ["predict", "model", "rows.csv", "--out", f"{HOSTILE}.txt"],
        ["table", HOSTILE],
        ["bench", HOSTILE],
        ["bench", "--datasets", HOSTILE, "--methods", "proden"],
        ["bench", "--datasets", "digits", "--methods", HOSTILE],
        ["bench", "--datasets", "digits", "--methods", "proden", "--own", f"{HOSTILE}.py:Mine"],
        ["datasets", HOSTILE],
        [HOSTILE],
        ["fit", f"--{HOSTILE}"],
        ["fit", "rows.csv", "--candidates", "tags", "--out", "model", "--seed", HOSTILE],
    ],
)
def test_names_cannot_control_the_terminal(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code in (1, 2)
    out, err = capsys.readouterr()
    assert r"\x1b[31m" in out + err
    assert all(line.isprintable() for line in (out + err).split("\n"))


def test_names_in_results_cannot_control_the_terminal(tmp_path, monkeypatch, capsys):
    from tests.test_docs import make_up_results

    monkeypatch.chdir(tmp_path)
    make_up_results(tmp_path / "runs", (HOSTILE,), ("proden", "\x1b]0;title\x07"))
    for style in ("text", "markdown", "latex", "csv"):
        cli.main(["table", "runs", "--style", style])
    out, err = capsys.readouterr()
    assert all(line.isprintable() for line in (out + err).split("\n"))


@posix
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
@pytest.mark.parametrize("seconds", [0.3, 0.8])
def test_signals_while_modules_are_imported(name, status, seconds, tmp_path):
    (tmp_path / "rows.csv").write_text("a,tags\n" + "1,x|y\n2,x\n3,y\n" * 20)
    command = [sys.executable, "-m", "candidly", "fit", "rows.csv", "--candidates", "tags", "--out", "model"]
    path = str(Path(__file__).parents[2] / "src")
    started = subprocess.Popen(
        [*command, "--epochs", "100000"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(getattr(signal, name), signal.SIG_DFL),  # a background shell ignores it
    )
    time.sleep(seconds)
    started.send_signal(getattr(signal, name))
    try:
        _, err = started.communicate(timeout=60)
    finally:
        started.kill()
    assert started.returncode == status
    assert err.endswith(b"; finished work is kept, and no file is incomplete\n")
    assert err.count(b"\n") == 1


@posix
def test_ignored_signals_stay_ignored(tmp_path):
    """As nohup starts a program."""
    code = "import signal, os; from candidly.cli import signals\n"
    code += "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    code += "with signals.handled(): os.kill(os.getpid(), signal.SIGHUP)\nprint('alive')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "alive\n", done.stderr


@posix
def test_a_signal_in_a_finaliser_is_not_lost():
    code = """
import os, signal, time
from candidly.cli import signals

class Noisy:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass

try:
    with signals.handled():
        Noisy()
        time.sleep(10)
except signals.Stopped as stopped:
    print(stopped.status)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("143\n", "")
