"""Experiments: spec files, run folders, published accuracies, and the commands bench and table."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.robustness import made
from benchmarks.robustness.case import Case, Ended, Expected, either, error, right, run
from candidly import bench

FAMILY = "experiments"
GOOD = 'datasets = ["lost"]\nmethods = ["proden"]\n'


def spec(text: str | bytes) -> Callable[[], Any]:
    """Return a call of `read_spec` on a file with this text."""
    return lambda: bench.read_spec(made.put("bad.toml", text))


def own(kind: str, settings: str) -> str:
    """Return the text of a spec with an own method or cleaner."""
    name = "mine+proden" if kind in ("conformal", "clsp") else "mine"
    return f'datasets = ["lost"]\nmethods = ["{name}"]\n[own.mine]\nkind = "{kind}"\n{settings}\n'


# Settings of custom methods and cleaners in a spec that are refused, by kind.
OWN = {
    "conformal": (
        'finite = "no"',
        'per_batch = "no"',
        'dkw = "no"',
        "warmup = -5",
        "warmup = nan",
        "warmup = 1.5",
        'warmup = "10"',
        "alpha = nan",
        "alpha = -0.1",
        "alpha = 1.5",
        'alpha = "0.1"',
        "alpha = inf",
        "fraction = 0",
        "fraction = nan",
        'fraction = "a"',
        "delta = nan",
        "delta = 0",
        "slack = nan",
        "slack = inf",
        'slack = "a"',
        "stop = nan",
        "stop = -1",
        'rule = "x"',
        "rule = 3",
        'level = "x"',
        'score = "x"',
        "score = [1]",
        'calibration = "x"',
    ),
    "clsp": (
        "k = 0",
        "k = -1",
        "k = nan",
        "k = 2.5",
        'k = "5"',
        "tau = -1",
        "tau = 2",
        "tau = nan",
        'tau = "a"',
        'features = "a"',
    ),
    "crosel": (
        "warmup = -5",
        "warmup = nan",
        "warmup = 2.5",
        'warmup = "a"',
        "confidence = nan",
        "confidence = 2",
        "confidence = -1",
        "lambda_cr = nan",
        "lambda_cr = -1",
        'lambda_cr = "a"',
    ),
    "pop": (
        "start = -1",
        "start = nan",
        "every = 0",
        "every = 2.5",
        "theta = nan",
        "theta = -1",
        'theta = "a"',
        "step_size = nan",
        "theta_end = -1",
        'growth = "x"',
        "growth = 3",
    ),
    "valen": (
        "warmup = 0",
        "warmup = nan",
        "k = 0",
        "k = 1.5",
        "beta = nan",
        "gamma = -1",
        "theta = inf",
        "c = nan",
        'c_x = "a"',
    ),
}

SPECS: dict[str, tuple[str | bytes, Expected]] = {
    "good": (GOOD, right(lambda s: s.methods == ("proden",))),
    "empty": ("", error("datasets", "methods")),
    "no TOML": ("datasets = [", error("bad.toml")),
    "JSON": ('{"datasets": ["lost"]}', error("bad.toml")),
    "latin-1": ('datasets = ["é"]\n'.encode("latin-1"), error("bad.toml")),
    "UTF-16": (GOOD.encode("utf-16"), error("bad.toml")),
    "a byte order mark": (
        b"\xef\xbb\xbf" + GOOD.encode(),
        either("bad.toml", check=lambda s: s.methods == ("proden",)),
    ),
    "null characters": (b"\0" * 100, error("bad.toml")),
    "a key twice": (GOOD + GOOD, error("bad.toml")),
    "an unknown key": (GOOD + "epoch = 3\n", error("epoch")),
    "an unknown table": (GOOD + "[other]\na = 1\n", error("other")),
    "nested arrays": (f"datasets = {'[' * 5000}{']' * 5000}\n", error("bad.toml")),
    "nested tables": ("datasets" + ".a" * 5000 + " = 1\n", error("bad.toml")),
    "a file of 100 MB": (b"# " + b"x" * (100 << 20), error("bad.toml")),
    "datasets a number": ('datasets = 3\nmethods = ["proden"]\n', error("datasets")),
    "datasets of numbers": ('datasets = [1, 2]\nmethods = ["proden"]\n', error("datasets")),
    "datasets a table": ('methods = ["proden"]\n[datasets]\na = 1\n', error("datasets")),
    "no datasets": ('datasets = []\nmethods = ["proden"]\n', error("datasets")),
    "methods a boolean": ('datasets = ["lost"]\nmethods = true\n', error("methods")),
    "an unknown method": ('datasets = ["lost"]\nmethods = ["prodn"]\n', error("prodn")),
    "seeds negative": (GOOD + "seeds = [-1]\n", error("seeds")),
    "seeds of floats": (GOOD + "seeds = [0.5]\n", error("seeds")),
    "seeds NaN": (GOOD + "seeds = [nan]\n", error("seeds")),
    "seeds of texts": (GOOD + 'seeds = ["0"]\n', error("seeds")),
    "seeds true": (GOOD + "seeds = true\n", error("seeds")),
    "seeds beyond 64 bits": (GOOD + "seeds = [99999999999999999999]\n", error("seeds", "bad.toml")),
    "inits 0": (GOOD + "inits = 0\n", error("inits")),
    "inits true": (GOOD + "inits = true\n", error("inits")),
    "inits a fraction": (GOOD + "inits = 1.5\n", error("inits")),
    "an unknown protocol": (GOOD + 'protocol = "uai"\n', error("protocol")),
    "protocol a list": (GOOD + 'protocol = ["default"]\n', error("protocol")),
    "protocol a number": (GOOD + "protocol = 3\n", error("protocol")),
    "an unknown recipe": (GOOD + 'recipe = "slow"\n', error("recipe")),
    "recipe a number": (GOOD + "recipe = 3\n", error("recipe")),
    "recipe with an unknown key": (GOOD + "[recipe]\nlr = 0.1\n", error("lr")),
    "recipe with epochs NaN": (GOOD + "[recipe]\nepochs = nan\n", error("epochs")),
    "recipe with epochs 1.5": (GOOD + "[recipe]\nepochs = 1.5\n", error("epochs")),
    "recipe with epochs 0": (GOOD + "[recipe]\nepochs = 0\n", error("epochs")),
    "recipe with max_lr inf": (GOOD + "[recipe]\nmax_lr = inf\n", error("max_lr")),
    "recipe with max_lr -1": (GOOD + "[recipe]\nmax_lr = -1\n", error("max_lr")),
    "recipe with a date": (GOOD + "[recipe]\nepochs = 2020-01-01\n", error("epochs")),
    "own a list": (GOOD + "own = [1]\n", error("own")),
    "own without kind": (GOOD + "[own.mine]\nalpha = 0.1\n", error("kind")),
    "own of an unknown kind": (GOOD + '[own.mine]\nkind = "soap"\n', error("kind")),
    "own with a name in use": (GOOD + '[own.proden]\nkind = "proden"\n', error("proden")),
    "own with an odd name": (GOOD + '[own."a/b"]\nkind = "proden"\n', error("a/b")),
    "own with an unknown setting": (own("conformal", "warmups = 3"), error("warmups")),
    **{
        f"own {kind} {setting}": (own(kind, setting), error(setting.split(" ")[0]))
        for kind, settings in OWN.items()
        for setting in settings
    },
}


def table(change: Callable[[Path], object], *more: str) -> Callable[[], Ended]:
    """Return a call of `candidly table` on a changed folder of runs."""

    def act() -> Ended:
        change(made.runs())
        return run("table", "runs", *more)

    return act


def first(runs: Path) -> Path:
    """Return one of the run folders."""
    return sorted(runs.iterdir())[0]


def in_run(name: str, change: Callable[[Path], object]) -> Callable[[Path], object]:
    """Return a function that changes a file of a run."""
    return lambda runs: change(first(runs) / name)


def edit(*keys: Any, **to: Any) -> Callable[[Path], object]:
    """Return a function that changes a fact of a summary."""
    return lambda path: made.edit_json(path, *keys, **to)


def plain(ended: Ended) -> bool:
    """Check that the table has the accuracies of both runs."""
    return "proden" in ended.out and "cc" in ended.out


def rest(ended: Ended) -> bool:
    """Check that the damaged run is not in the table, and that a message names it."""
    return "cc" not in ended.out.split("\n", 3)[2].split() and "toy-cc" in ended.err


def keep(path: Path) -> None:
    """Change nothing."""


RUNS: dict[str, tuple[Callable[[], Any], Expected]] = {
    "good": (table(keep), right(plain)),
    "no folder": (lambda: run("table", "nowhere"), error("nowhere")),
    "an empty folder": (lambda: (os.mkdir("runs"), run("table", "runs"))[1], error("runs")),
    "a file": (lambda: run("table", made.put("runs", b"x")), error("runs")),
    "no arguments": (lambda: run("table"), error("folders", "FOLDER")),
    "no done": (table(in_run("done", os.remove)), either("toy-cc", check=lambda ended: plain(ended) or rest(ended))),
    "done is empty": (table(in_run("done", lambda p: p.write_text(""))), either("toy-cc", check=rest)),
    "done is garbage": (table(in_run("done", lambda p: p.write_text("garbage"))), either("toy-cc", check=rest)),
    "done is a folder": (
        table(in_run("done", lambda p: (p.unlink(), p.mkdir()))),
        either("toy-cc", check=lambda ended: plain(ended) or rest(ended)),
    ),
    "done of another run": (
        table(lambda runs: shutil.copy(sorted(runs.iterdir())[1] / "done", first(runs) / "done")),
        either("toy-cc", check=rest),
    ),
    "summary is empty": (table(in_run("summary.json", lambda p: p.write_text(""))), either("toy-cc", check=rest)),
    "summary is truncated": (
        table(in_run("summary.json", lambda p: p.write_bytes(p.read_bytes()[:-30]))),
        either("toy-cc", check=rest),
    ),
    "summary is a list": (table(in_run("summary.json", lambda p: p.write_text("[]"))), either("toy-cc", check=rest)),
    "summary is nested": (
        table(in_run("summary.json", lambda p: p.write_text("[" * 10**6))),
        either("toy-cc", check=rest),
    ),
    "an accuracy changed": (
        table(in_run("summary.json", edit("metrics", "test_accuracy", to=[[0.99], [0.99]]))),
        either("toy-cc", check=rest),
    ),
    "an accuracy of NaN": (
        table(in_run("summary.json", edit("metrics", "test_accuracy", text="[[NaN], [0.5]]"))),
        either("toy-cc", check=rest),
    ),
    "an accuracy of 50": (
        table(in_run("summary.json", edit("metrics", "test_accuracy", to=[[50], [50]]))),
        either("toy-cc", check=rest),
    ),
    "accuracies as text": (
        table(in_run("summary.json", edit("metrics", "test_accuracy", to="high"))),
        either("toy-cc", check=rest),
    ),
    "seeds changed": (table(in_run("summary.json", edit("seeds", to=[7, 8]))), either("toy-cc", check=rest)),
    "format 99": (table(in_run("summary.json", edit("format", to=99))), either("toy-cc", check=rest)),
    "method as number": (table(in_run("summary.json", edit("method", to=3))), either("toy-cc", check=rest)),
    "no predictions": (
        table(in_run("predictions.parquet", os.remove)),
        either("toy-cc", check=lambda ended: plain(ended) or rest(ended)),
    ),
    "predictions are truncated": (
        table(in_run("predictions.parquet", lambda p: p.write_bytes(p.read_bytes()[:-30]))),
        either("toy-cc", check=lambda ended: plain(ended) or rest(ended)),
    ),
    "a copy of a run": (
        table(lambda runs: shutil.copytree(first(runs), runs / "copy")),
        either("toy-cc", "copy", check=plain),
    ),
    "the folder twice": (lambda: (made.runs(), run("table", "runs", "runs"))[1], either("runs", check=plain)),
    "another file": (table(lambda runs: (runs / "notes.txt").write_text("x")), right(plain)),
    "a link to nowhere": (table(lambda runs: (runs / "gone").symlink_to("nowhere")), either("gone", check=plain)),
    "style unknown": (table(keep, "--style", "pdf"), error("style")),
    "split unknown": (table(keep, "--split", "all"), error("split")),
    "against nothing": (table(keep, "--against", "none.csv"), error("none.csv")),
    "diagram unknown": (table(keep, "--diagram", "a.xyz"), error("a.xyz", "diagram")),
    "diagram nowhere": (table(keep, "--diagram", "nowhere/a.svg"), error("nowhere")),
    "into nothing": (table(keep, "--into", "none.md"), error("none.md")),
    "into a page without marks": (
        lambda: (made.runs(), made.put("page.md", "hello"), run("table", "runs", "--into", "page.md"))[2],
        error("page.md"),
    ),
    "into a page with one mark": (
        lambda: (
            made.runs(),
            made.put("page.md", "<!-- begin candidly table -->"),
            run("table", "runs", "--into", "page.md"),
        )[2],
        error("page.md"),
    ),
    "into with style": (table(keep, "--into", "page.md", "--style", "latex"), error("--into", "--style")),
}

HEAD = "method,dataset,seed,test_accuracy\n"
PUBLISHED: dict[str, tuple[str | bytes, Expected]] = {
    "good": (HEAD + "cc,toy,0,0.5\n", right(lambda scores: scores.mean("toy", "cc") == 0.5)),
    "empty": ("", error("bad.csv")),
    "header only": (HEAD, error("bad.csv")),
    "a missing column": ("method,dataset,seed\ncc,toy,0\n", error("test_accuracy")),
    "an accuracy as text": (HEAD + "cc,toy,0,high\n", error("high", "line 2", "row")),
    "an accuracy of NaN": (HEAD + "cc,toy,0,nan\n", error("nan", "line 2", "row")),
    "an accuracy of 50": (HEAD + "cc,toy,0,50\n", error("50", "line 2", "row")),
    "an accuracy of -1": (HEAD + "cc,toy,0,-1\n", error("-1", "line 2", "row")),
    "a decimal comma": ("method;dataset;seed;test_accuracy\ncc;toy;0;0,5\n", error("bad.csv")),
    "an empty accuracy": (HEAD + "cc,toy,0,\n", error("line 2", "row", "bad.csv")),
    "a seed as text": (HEAD + "cc,toy,first,0.5\n", error("first", "line 2", "row")),
    "a seed of 0.5": (HEAD + "cc,toy,0.5,0.5\n", error("0.5", "line 2", "row")),
    "a seed twice": (HEAD + "cc,toy,0,0.5\ncc,toy,0,0.75\n", error("seed", "toy")),
    "a missing cell": (HEAD + "cc,toy,0\n", error("line 2", "row", "bad.csv")),
    "an additional cell": (HEAD + "cc,toy,0,0.5,9\n", error("line 2", "row", "bad.csv")),
    "an unclosed quote": (HEAD + 'cc,"toy,0,0.5\ncc,toy,1,0.5\n', error("bad.csv")),
    "an empty method": (HEAD + ",toy,0,0.5\n", error("line 2", "row", "method")),
    "latin-1": ("method,dataset,seed,test_accuracy\né,toy,0,0.5\n".encode("latin-1"), error("bad.csv")),
    "UTF-16": ((HEAD + "cc,toy,0,0.5\n").encode("utf-16"), error("bad.csv")),
    "a null character": (HEAD + "c\0c,toy,0,0.5\n", either("bad.csv", check=lambda scores: True)),
    "semicolons": (HEAD.replace(",", ";") + "cc;toy;0;0.5\n", error("bad.csv")),
}


def sweep(*arguments: str, prepare: Callable[[], object] = lambda: None) -> Callable[[], Ended]:
    """Return a call of `candidly bench` in a folder with a dataset."""

    def act() -> Ended:
        made.npz()
        prepare()
        return run("bench", *arguments)

    return act


TOY = ("--datasets", "toy.npz", "--methods", "proden", "--seeds", "0", "--epochs", "1", "--device", "cpu")
BENCH: dict[str, tuple[Callable[[], Any], Expected]] = {
    "good": (sweep(*TOY), right(lambda ended: len(list(Path("runs").glob("*/done"))) == 1)),
    "nothing to do": (sweep(), error("TOML", "--datasets")),
    "no methods": (sweep("--datasets", "toy.npz"), error("--methods")),
    "an unknown method": (sweep(*TOY, "--methods", "prodn"), error("prodn")),
    "an unknown cleaner": (sweep(*TOY, "--cleaners", "soap"), error("soap")),
    "an unknown dataset": (sweep(*TOY, "--datasets", "losst"), error("lost")),
    "a missing dataset": (sweep(*TOY, "--datasets", "none.npz"), error("none.npz")),
    "a damaged dataset": (
        sweep(*TOY, "--datasets", "bad.npz", prepare=lambda: made.put("bad.npz", b"x")),
        error("bad.npz"),
    ),
    "an unknown corruption": (sweep(*TOY, "--datasets", "digits+unifrm-0.3"), error("unifrm")),
    "a corruption of 2": (sweep(*TOY, "--datasets", "digits+uniform-2"), error("uniform", "q")),
    "a corruption of nan": (sweep(*TOY, "--datasets", "digits+uniform-nan"), error("uniform", "q", "nan")),
    "a corruption of candidates": (
        sweep(*TOY, "--datasets", "toy.npz+uniform-0.3"),
        either("toy", check=lambda ended: False),
    ),
    "seeds as words": (sweep(*TOY, "--seeds", "all"), error("seeds")),
    "seeds backwards": (sweep(*TOY, "--seeds", "4-0"), error("seeds")),
    "a million seeds": (sweep(*TOY, "--seeds", "0-999999"), error("seeds")),
    "inits 0": (sweep(*TOY, "--inits", "0"), error("inits")),
    "inits a billion": (sweep(*TOY, "--inits", "1000000000"), error("inits", "memory", "seeds")),
    "epochs 0": (sweep(*TOY, "--epochs", "0"), error("epochs")),
    "epochs a billion": (sweep(*TOY, "--epochs", "1000000000"), error("epochs")),
    "jobs 0": (sweep(*TOY, "--jobs", "0"), error("jobs")),
    "jobs -1": (sweep(*TOY, "--jobs", "-1"), error("jobs")),
    "jobs a billion": (
        sweep(*TOY, "--jobs", "1000000000"),
        either("jobs", check=lambda ended: len(list(Path("runs").glob("*/done"))) == 1),
    ),
    "an unknown protocol": (sweep(*TOY, "--protocol", "x"), error("protocol")),
    "an unknown recipe": (sweep(*TOY, "--recipe", "x"), error("recipe")),
    "an unknown suite": (sweep("--suite", "x"), error("suite")),
    "a suite and a file": (sweep("a.toml", "--suite", "uai2025-images"), error("--suite")),
    "a missing file": (sweep("none.toml"), error("none.toml")),
    "a folder as file": (sweep("folder", prepare=lambda: os.mkdir("folder")), error("folder")),
    "device mps": (sweep(*TOY, "--device", "mps"), error("device", "mps")),
    "device xpu": (sweep(*TOY, "--device", "xpu"), error("device", "xpu")),
    "device abacus": (sweep(*TOY, "--device", "abacus"), error("device", "abacus")),
    "device cuda:99": (sweep(*TOY, "--device", "cuda:99"), error("device", "cuda:99")),
    "out is a file": (sweep(*TOY, "--out", "toy.npz"), error("toy.npz")),
    "out in /proc": (sweep(*TOY, "--out", "/proc/runs"), error("/proc")),
    "a learning rate that diverges": (
        sweep(
            "bad.toml",
            "--device",
            "cpu",
            prepare=lambda: made.put(
                "bad.toml",
                'datasets = ["toy.npz"]\nmethods = ["proden"]\nseeds = [0]\n[recipe]\nepochs = 2\nmax_lr = 1e30\n',
            ),
        ),
        error("proden", "finite", "learning rate", "max_lr"),
    ),
    "a learning rate of 10": (
        sweep(
            "bad.toml",
            "--device",
            "cpu",
            prepare=lambda: made.put(
                "bad.toml",
                'datasets = ["toy.npz"]\nmethods = ["proden"]\nseeds = [0]\n[recipe]\nepochs = 2\nmax_lr = 10\n',
            ),
        ),
        either(
            "proden", "max_lr", check=lambda ended: "NaN" not in next(Path("runs").glob("*/summary.json")).read_text()
        ),
    ),
}


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (text, expected) in SPECS.items():
        yield Case(FAMILY, f"spec: {name}", spec(text), expected)
    for name, (act, expected) in RUNS.items():
        yield Case(FAMILY, f"table: {name}", act, expected)
    for name, (text, expected) in PUBLISHED.items():
        yield Case(
            FAMILY,
            f"published accuracies: {name}",
            lambda text=text: bench.read_csv(made.put("bad.csv", text)),
            expected,
        )
    for name, (act, expected) in BENCH.items():
        yield Case(FAMILY, f"bench: {name}", act, expected, keeps=("runs",), seconds=60, reports=True)
