import dataclasses
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from candidly import __version__
from candidly.cli import app as cli
from candidly.data import REGISTRY
from candidly.engine.nets import mlp
from candidly.engine.recipe import RECIPES
from candidly.methods import METHODS


def test_methods_lists_every_method(capsys):
    cli.main(["methods"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*METHODS, "--base"]
    assert all(len(line.split()) > 2 for line in lines)


def test_version(capsys):
    cli.main(["--version"])
    assert capsys.readouterr().out == f"candidly {__version__}\n"


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["dmeo"])
    assert stop.value.code != 0
    assert "demo" in capsys.readouterr().err


def test_demo_reports_all_four_combinations(capsys, monkeypatch):
    short = dataclasses.replace(RECIPES["quick"], epochs=13)  # past the warm-ups of cleaner and CroSel
    monkeypatch.setitem(RECIPES, "quick", short)
    monkeypatch.setattr(mlp, "HIDDEN", 64)
    cli.main(["demo", "--seeds", "2", "--device", "cpu"])
    out = capsys.readouterr().out
    assert "quick" in out
    rows = re.findall(r"^(\S+) +([\d.]+) ± ([\d.]+) +([\d.]+)% +([\d.]+)% +[\d.]+$", out, re.MULTILINE)
    assert [row[0] for row in rows] == ["proden", "conformal+proden", "crosel", "conformal+crosel"]
    accuracy, kept, removed = ({row[0]: float(row[i]) for row in rows} for i in (1, 3, 4))
    assert min(accuracy.values()) > 60  # chance is 10
    assert (kept["proden"], removed["proden"]) == (100, 0)
    assert 70 < kept["conformal+proden"] < 100
    assert removed["conformal+proden"] > 30


FEWER = "use fewer members, folds, seeds or jobs, a smaller batch size, or another device"
SMALL = ["--methods", "proden,conf+proden", "--seeds", "0-1", "--epochs", "2", "--device", "cpu"]


@pytest.fixture
def runs(tmp_path, capsys):
    cli.main(["bench", "--datasets", "digits+uniform-0.3", *SMALL, "--out", str(tmp_path / "runs")])
    assert "runs: 2 done, 0 done before, 0 failed" in capsys.readouterr().out
    return tmp_path / "runs"


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(list(arguments))
    assert stop.value.code
    return str(stop.value.code) + capsys.readouterr().err


def test_bench_and_table(runs, capsys, tmp_path):
    cli.main(["bench", "--datasets", "digits+uniform-0.3", *SMALL, "--out", str(runs)])
    assert "runs: 0 done, 2 done before" in capsys.readouterr().out
    cli.main(["table", str(runs)])
    assert re.search(r"^conf\+proden +\d\d\.\d\d ± \d", capsys.readouterr().out, re.MULTILINE)
    cli.main(["table", str(runs), "--style", "csv", "--split", "train"])
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.startswith("dataset,method,seeds,mean")
    assert len(lines) == 2

    page = tmp_path / "page.md"
    page.write_text("# Mine\n<!-- begin candidly table -->\n<!-- end candidly table -->\n")
    published = tmp_path / "published.csv"
    published.write_text("method,dataset,seed,test_accuracy\n" + "proden,digits+uniform-0.3,0,0.5\n")
    cli.main(["table", str(runs), "--into", str(page), "--against", str(published)])
    assert capsys.readouterr().out == ""
    assert "| proden |" in page.read_text()
    assert "50.00" in page.read_text()

    page.write_text("<!-- begin candidly table again -->\n<!-- end candidly table again -->\n")
    options = ["--against", str(published), "--without", "proden", "--beside", str(runs)]
    cli.main(["table", str(runs), "--into", str(page), "--block", "again", *options])
    assert "| mean difference without proden |" in page.read_text()
    assert f"**digits+uniform-0.3, beside {runs.name}**" in page.read_text()
    for given, message in ((["--block", "x"], "--block names a table in a page"), (["--without", "cc"], "--against")):
        assert message in refused(capsys, "table", str(runs), *given)


def test_bench_takes_a_file_and_overrides_it(tmp_path, capsys):
    spec = tmp_path / "spec.toml"
    spec.write_text('datasets = ["digits+uniform-0.3"]\nmethods = ["proden", "cc", "rc"]\nseeds = [0]\n')
    cli.main(
        ["bench", str(spec), "--methods", "cc", "--epochs", "1", "--device", "cpu", "--out", str(tmp_path / "runs")]
    )
    assert "[1/1] digits+uniform-0.3 cc: test accuracy" in capsys.readouterr().out


def test_bench_runs_a_suite_and_reports_what_is_missing(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CANDIDLY_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        cli.main(["bench", "--suite", "uai2025-realworld", "--out", str(tmp_path / "runs")])
    assert stop.value.code == 1
    out = capsys.readouterr().out
    assert "runs: 0 done, 0 done before, 6 failed" in out
    assert "yahoo-news.mat was not found" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to run"),
        (["--datasets", "digits"], "nothing to run"),
        (["--suite", "uai2024"], "unknown suite 'uai2024'; use one of uai2025-realworld"),
        (["spec.toml", "--suite", "uai2025-images"], "both a file and --suite"),
        (["nothing.toml"], "nothing.toml"),
        (["--datasets", "digits", "--methods", "prodne"], "unknown method 'prodne'"),
        (["--datasets", "digits", "--methods", "proden", "--seeds", "4-0"], "seeds is '4-0'"),
        (["--datasets", "digits", "--methods", "proden", "--jobs", "0"], "jobs is 0"),
    ],
)
def test_bench_refuses_in_one_line(capsys, arguments, message):
    text = refused(capsys, "bench", *arguments)
    assert message in text
    assert "Traceback" not in text


def test_table_refuses_in_one_line(capsys, tmp_path):
    assert f"{tmp_path / 'nothing'} does not exist" in refused(capsys, "table", str(tmp_path / "nothing"))
    assert "no accuracies of the split 'test' under" in refused(capsys, "table", str(tmp_path))


def test_datasets(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("CANDIDLY_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cli.main(["datasets"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(REGISTRY)
    cli.main(["datasets", "digits"])
    out = capsys.readouterr().out
    assert "1797 rows" in out
    assert "licence: " in out
    assert "soccer.mat was not found" in refused(capsys, "datasets", "soccer")


def test_options_of_one_dataset_need_its_name(capsys):
    assert "--download applies to one dataset; name it" in refused(capsys, "datasets", "--download")
    assert "--data applies to one dataset; name it" in refused(capsys, "datasets", "--data", "folder")


def test_a_table_of_some_methods_with_other_names(runs, capsys, tmp_path):
    chosen = ["--methods", "conf+proden,proden", "--names", "proden=PRODEN,digits+uniform-0.3=Digits"]
    cli.main(["table", str(runs), *chosen, "--diagram", str(tmp_path / "ranks.svg")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["method", "Digits"]
    assert [line.split()[0] for line in lines[2:4]] == ["conf+proden", "PRODEN"]
    assert "--methods has 'prodne'" in refused(capsys, "table", str(runs), "--methods", "prodne")
    assert "write it as NAME=SHOWN" in refused(capsys, "table", str(runs), "--names", "proden")


def test_bench_takes_a_method_from_a_file(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text("from candidly import Proden\n\n\nclass Mine(Proden):\n    pass\n")
    spec = tmp_path / "spec.toml"
    spec.write_text('datasets = ["digits+uniform-0.3"]\nmethods = ["mine"]\nseeds = [0]\n')
    rest = ["--epochs", "1", "--device", "cpu", "--out", str(tmp_path / "runs")]
    cli.main(["bench", str(spec), "--own", f"{path}:Mine", *rest])
    assert "[1/1] digits+uniform-0.3 mine: test accuracy" in capsys.readouterr().out
    assert "spec.toml: unknown method 'mine'" in refused(capsys, "bench", str(spec), *rest)


def test_a_feature_of_the_model_cannot_be_dropped(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b,tags\n" + "1,2,x|y\n2,3,x\n3,1,y\n" * 10)
    cli.main(["fit", "rows.csv", "--candidates", "tags", "--out", "model", "--epochs", "1", "--folds", "2", "--quiet"])
    for drop, message in (("a", "--drop is 'a', but 'a' is a feature of the model"), ("c", "has no column 'c'")):
        assert message in refused(capsys, "predict", "model", "rows.csv", "--out", "new.csv", "--drop", drop)


def ends_with(capsys, *arguments):
    """Return the exit status of a command, and what it prints on standard error."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(arguments))
    return stop.value.code, capsys.readouterr().err


def raising(monkeypatch, error):
    """Let a command raise an error."""

    def run(*arguments):
        raise error

    monkeypatch.setattr("candidly.cli.demo.run", run)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fit"],
        ["fit", "t.csv"],
        ["clean", "t.csv"],
        ["audit", "--alpha"],
        ["predict", "model"],
        ["fit", "--folds", "two"],
    ],
)
def test_wrong_usage_ends_with_2(capsys, arguments):
    status, text = ends_with(capsys, *arguments)
    assert status == 2
    assert "--help" in text


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ValueError("wrong\nin two lines \x1b[31m\u202e"), 1, r"candidly: wrong in two lines \x1b[31m\u202e"),
        (
            OSError(28, "full"),
            1,
            "candidly: no space left where output is written ([Errno 28] full); free some, or choose another folder",
        ),
        (MemoryError("tried to allocate 7 TiB"), 1, f"candidly: not enough memory (tried to allocate 7 TiB); {FEWER}"),
        (MemoryError(), 1, f"candidly: not enough memory; {FEWER}"),
        (RuntimeError("DefaultCPUAllocator: no"), 1, f"candidly: not enough memory (DefaultCPUAllocator: no); {FEWER}"),
        (ModuleNotFoundError("install it"), 1, "candidly: install it"),
        (KeyboardInterrupt(), 130, "candidly: interrupted; finished work is kept, and no file is incomplete"),
    ],
)
def test_errors_are_one_line(capsys, monkeypatch, error, status, text):
    raising(monkeypatch, error)
    assert ends_with(capsys, "demo") == (status, f"{text}\n")


def test_a_long_error_keeps_its_advice(capsys, monkeypatch):
    raising(monkeypatch, ValueError(f"row 3 holds {'x' * 10**6}; correct it"))
    _, text = ends_with(capsys, "demo")
    assert len(text) < 3000
    assert text.startswith("candidly: row 3 holds xxx")
    assert text.endswith("xxx; correct it\n")


def test_a_fault_of_the_library_is_one_line_too(capsys, monkeypatch):
    raising(monkeypatch, TypeError("a bug\nin two lines"))
    status, text = ends_with(capsys, "demo")
    assert status == 1
    assert text.startswith("candidly: this is a bug in candidly (TypeError: a bug in two lines); please open an issue")
    assert text.count("\n") == 1


@pytest.mark.parametrize("error", [TypeError("a bug"), ValueError("wrong input")])
def test_the_traceback_is_shown_on_request(capsys, monkeypatch, error):
    raising(monkeypatch, error)
    assert "Traceback" not in ends_with(capsys, "demo")[1]
    monkeypatch.setenv("CANDIDLY_TRACEBACK", "1")
    assert "Traceback" in ends_with(capsys, "demo")[1]


def test_signals_are_handled_as_before_afterwards(capsys):
    before = signal.getsignal(signal.SIGTERM)
    cli.main(["methods"])
    assert signal.getsignal(signal.SIGTERM) is before
    thread = threading.Thread(target=cli.main, args=(["methods"],))  # where no signal can be handled
    thread.start()
    thread.join()
    assert len(capsys.readouterr().out.splitlines()) == 2 * (len(METHODS) + 1)  # and the scikit-learn classifiers


# One interpreter imports everything once, and forks a process for every signal.
TERMINATED = """
import os, signal, sys
import pyarrow as pa
from candidly.cli import app as cli
from candidly.cli import demo
from candidly.tables import files

def run(*arguments):
    real = os.fsync
    os.fsync = lambda handle: (real(handle), os.kill(os.getpid(), getattr(signal, name)))
    files.write(pa.table({"a": [1]}), sys.argv[1])

demo.run = run
for name in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        cli.main(["demo"])
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), *os.listdir(os.path.dirname(sys.argv[1])), flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="the system has other signals")
def test_a_process_that_is_told_to_end_leaves_no_temporary_file(tmp_path):
    def default():
        for name in statuses:
            signal.signal(getattr(signal, name), signal.SIG_DFL)  # a background shell ignores it

    statuses = {"SIGTERM": 143, "SIGHUP": 129, "SIGINT": 130}
    (tmp_path / "old.csv").write_text("old")
    command = [sys.executable, "-c", TERMINATED, str(tmp_path / "old.csv"), *statuses]
    done = subprocess.run(command, check=False, capture_output=True, text=True, preexec_fn=default)
    assert done.stdout.splitlines() == [f"{status} old.csv" for status in statuses.values()], done.stderr
    assert (tmp_path / "old.csv").read_text() == "old"
