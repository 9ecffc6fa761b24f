"""Options of the commands: wrong values, contradictions, places that cannot be written."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.robustness import made
from benchmarks.robustness.case import Case, Ended, Expected, either, error, right, run, warning

FAMILY = "commands"


def prepared(*arguments: str, prepare: Callable[[], object] = lambda: None) -> Callable[[], Ended]:
    """Return a call of a command in a folder with good tables and a model."""

    def act() -> Ended:
        made.put("rows.csv", made.csv())
        made.put("new.csv", made.new_rows())
        made.put("votes.csv", made.csv(made.votes()))
        made.model()
        prepare()
        return run(*arguments)

    return act


FIT = ("fit", "rows.csv", "--candidates", "tags", "--id", "id", "--labels", "truth", *made.TINY)
CLEAN = ("clean", "rows.csv", "--candidates", "tags", "--id", "id", "--labels", "truth", *made.TINY)
AUDIT = ("audit", "rows.csv", "--candidates", "tags", "--id", "id", "--labels", "truth", *made.TINY)
PREDICT = ("predict", "model", "new.csv")
EVALUATE = ("evaluate", "model", "rows.csv", "--labels", "truth", "--drop", "tags")
OUT, RESULT = ("--out", "made"), ("--out", "made.csv")
NUMBERS = ("-1", "0", "1.5", "nan", "inf", "x", "", "1e3", "10000000000000000000000", "0x10", "１２", "1,5", "٣")
BAD_SHARES = ("-0.1", "0", "1", "1.5", "nan", "inf", "-inf", "x", "", "50%", "0,05")


def _shares(
    command: tuple[str, ...], option: str, out: tuple[str, ...] = ()
) -> dict[str, tuple[Callable[[], Any], Expected]]:
    word = option.lstrip("-")
    return {
        f"{command[0]} {option} {value!r}": (
            prepared(*command, *out, option, value),
            error(word, word.replace("-", "_")),
        )
        for value in BAD_SHARES
    }


def _numbers(
    command: tuple[str, ...], option: str, out: tuple[str, ...], zero: bool = False
) -> dict[str, tuple[Callable[[], Any], Expected]]:
    word = option.lstrip("-")
    found = {}
    for value in NUMBERS:
        if (zero and value == "0") or value in ("１２", "٣"):
            continue
        expected = error(word, "max_epochs" if word == "epochs" else word, "random_state" if word == "seed" else word)
        found[f"{command[0]} {option} {value!r}"] = (
            prepared(*_without(command, option), *out, option, value),
            expected,
        )
    return found


def _without(command: tuple[str, ...], option: str) -> tuple[str, ...]:
    if option not in command:
        return command
    at = command.index(option)
    return (*command[:at], *command[at + 2 :])


OPTIONS: dict[str, tuple[Callable[[], Any], Expected]] = {
    **_shares(FIT, "--alpha", OUT),
    **_shares(PREDICT, "--alpha", RESULT),
    **_shares(PREDICT, "--max-risk", RESULT),
    **_numbers(FIT, "--members", OUT),
    **_numbers(FIT, "--folds", OUT),
    **_numbers(FIT, "--epochs", OUT),
    **_numbers(FIT, "--seed", OUT, zero=True),
    "fit --members 10**9": (prepared(*FIT, *OUT, "--members", "1000000000"), error("members")),
    "fit --members 10**7": (prepared(*FIT, *OUT, "--members", "10000000"), error("members")),
    "fit --epochs 10**9": (prepared(*_without(FIT, "--epochs"), *OUT, "--epochs", "1000000000"), error("epochs")),
    "fit --folds 10**9": (prepared(*_without(FIT, "--folds"), *OUT, "--folds", "1000000000"), error("folds")),
    "fit --seed 2**32": (prepared(*FIT, *OUT, "--seed", str(2**32)), error("seed", "random_state")),
    "fit --method unknown": (prepared(*FIT, *OUT, "--method", "prodn"), error("prodn")),
    "fit --method ''": (prepared(*FIT, *OUT, "--method", ""), error("method")),
    "fit --method of 10,000 characters": (prepared(*FIT, *OUT, "--method", "x" * 10_000), error("method")),
    "fit --cleaner unknown": (prepared(*FIT, *OUT, "--cleaner", "soap"), error("soap")),
    "fit --device mps": (prepared(*_without(FIT, "--device"), *OUT, "--device", "mps"), error("device")),
    "fit --device xpu": (prepared(*_without(FIT, "--device"), *OUT, "--device", "xpu"), error("device")),
    "fit --device abacus": (prepared(*_without(FIT, "--device"), *OUT, "--device", "abacus"), error("device")),
    "fit --device None": (prepared(*_without(FIT, "--device"), *OUT, "--device", "None"), error("device")),
    "fit --device cuda:99": (
        prepared(*_without(FIT, "--device"), *OUT, "--device", "cuda:99"),
        error("device", "CUDA"),
    ),
    "fit --device meta": (prepared(*_without(FIT, "--device"), *OUT, "--device", "meta"), error("device")),
    "fit --candidates missing": (prepared("fit", "rows.csv", "--candidates", "tag", *OUT), error("tags")),
    "fit --candidates in another case": (prepared("fit", "rows.csv", "--candidates", "Tags", *OUT), error("tags")),
    "fit --candidates ''": (prepared("fit", "rows.csv", "--candidates", "", *OUT), error("candidates", "column")),
    "fit without --candidates": (prepared("fit", "rows.csv", *OUT), error("candidates")),
    "fit without --out": (prepared(*FIT), error("out")),
    "fit without table": (prepared("fit", "--candidates", "tags", *OUT), error("table", "TABLE")),
    "fit with two tables": (prepared(*FIT, "new.csv", *OUT), error("new.csv")),
    "fit --candidates of a number": (
        prepared("fit", "rows.csv", "--candidates", "size", "--drop", "id,tags", *OUT, *made.TINY),
        warning("size", "class"),
    ),
    "fit --id of a feature that repeats": (
        prepared("fit", "rows.csv", "--candidates", "tags", "--id", "colour", *OUT),
        error("colour", "id"),
    ),
    "fit --id of the candidates": (
        prepared("fit", "rows.csv", "--candidates", "tags", "--id", "tags", *OUT),
        error("tags"),
    ),
    "fit --labels of the candidates": (
        prepared("fit", "rows.csv", "--candidates", "tags", "--labels", "tags", *OUT),
        error("tags"),
    ),
    "fit --drop of the candidates": (
        prepared("fit", "rows.csv", "--candidates", "tags", "--drop", "tags", *OUT),
        error("tags"),
    ),
    "fit --drop of all features": (
        prepared("fit", "rows.csv", "--candidates", "tags", "--drop", "id,size,age,colour,truth", *OUT),
        error("feature"),
    ),
    "fit --drop missing": (prepared(*FIT, *OUT, "--drop", "siz"), error("siz")),
    "fit --drop twice": (
        prepared(*FIT, *OUT, "--drop", "size,size"),
        either("size", check=lambda ended: Path("made").exists()),
    ),
    "fit --drop ''": (prepared(*FIT, *OUT, "--drop", ""), error("drop")),
    "fit --drop ,": (prepared(*FIT, *OUT, "--drop", ","), error("drop")),
    "fit --drop with an unclosed quote": (prepared(*FIT, *OUT, "--drop", '"size'), error("drop", "size")),
    "fit --separator ''": (prepared(*FIT, *OUT, "--separator", ""), error("separator")),
    "fit --separator that is not in the cells": (
        prepared(*FIT, *OUT, "--separator", ";"),
        either("separator", "truth", "label", "|", check=lambda ended: "separator" in ended.err),
    ),
    "fit --delimiter ''": (prepared(*FIT, *OUT, "--delimiter", ""), error("delimiter")),
    "fit --delimiter of two": (prepared(*FIT, *OUT, "--delimiter", "::"), error("delimiter")),
    "fit --delimiter newline": (prepared(*FIT, *OUT, "--delimiter", "\n"), error("delimiter")),
    "fit --delimiter quote": (prepared(*FIT, *OUT, "--delimiter", '"'), error("delimiter")),
    "fit --classes too few": (prepared(*FIT, *OUT, "--classes", "cat,dog"), error("emu")),
    "fit --classes twice": (prepared(*FIT, *OUT, "--classes", "cat,cat,dog,emu"), error("cat")),
    "fit --classes ''": (prepared(*FIT, *OUT, "--classes", ""), error("classes")),
    "fit --classes @missing": (prepared(*FIT, *OUT, "--classes", "@none.txt"), error("none.txt")),
    "fit --classes @folder": (prepared(*FIT, *OUT, "--classes", "@model"), error("model")),
    "fit --classes @empty": (
        prepared(*FIT, *OUT, "--classes", "@empty.txt", prepare=lambda: made.put("empty.txt", "")),
        error("empty.txt", "classes"),
    ),
    "fit --classes @latin-1": (
        prepared(*FIT, *OUT, "--classes", "@bad.txt", prepare=lambda: made.put("bad.txt", b"caf\xe9\n")),
        error("bad.txt"),
    ),
    "fit --classes @device": (prepared(*FIT, *OUT, "--classes", "@/dev/zero"), error("/dev/zero")),
    "fit --classes @": (prepared(*FIT, *OUT, "--classes", "@"), error("classes")),
    "fit an unknown option": (prepared(*FIT, *OUT, "--epoch", "3"), error("epoch")),
    "fit an option twice": (
        prepared(*FIT, *OUT, "--folds", "3"),
        either(
            "folds",
            check=lambda ended: (
                json.loads(Path("made/model.json").read_text())["facts"]["estimator"]["parameters"]["folds"] == 3
            ),
        ),
    ),
    "fit an option without value": (prepared(*FIT, "--out"), error("out")),
    "fit --quiet=maybe": (prepared(*FIT, *OUT, "--quiet=maybe"), error("quiet")),
    "fit --report pdf": (prepared(*FIT, *OUT, "--report", "page.pdf"), error("page.pdf")),
    "fit --report nowhere": (prepared(*FIT, *OUT, "--report", "nowhere/page.html"), error("nowhere")),
    "fit --report in the model": (prepared(*FIT, *OUT, "--report", "made/page.html"), error("made")),
    "fit --report over the table": (prepared(*FIT, *OUT, "--report", "rows.csv"), error("rows.csv")),
    "fit --out a file": (prepared(*FIT, "--out", "rows.csv"), error("rows.csv")),
    "fit --out below a file": (prepared(*FIT, "--out", "rows.csv/model"), error("rows.csv")),
    "fit --out a folder with files": (
        prepared(*FIT, "--out", "other", prepare=lambda: made.put("other/mine.txt", "x")),
        error("mine.txt"),
    ),
    "fit --out the current folder": (prepared(*FIT, "--out", "."), error("rows.csv", "holds", "folder")),
    "fit --out ''": (prepared(*FIT, "--out", ""), error("out", "folder", "holds")),
    "fit --out in /proc": (prepared(*FIT, "--out", "/proc/model"), error("/proc")),
    "fit --out with a null character": (prepared(*FIT, "--out", "a\0b"), error("out", "null", "\\x00")),
    "fit --out of 5,000 characters": (prepared(*FIT, "--out", "x" * 5000), error("xxx")),
    "fit --out a read-only folder": (
        prepared(*FIT, "--out", "locked/model", prepare=lambda: _locked()),
        error("locked", "/sys"),
    ),
    "fit --out over a model": (
        prepared(*FIT, "--out", "model"),
        right(lambda ended: "replace" in (ended.out + ended.err).lower()),
    ),
    "clean --out the table": (prepared(*CLEAN, "--out", "rows.csv"), error("rows.csv")),
    "clean --out a link to the table": (
        prepared(*CLEAN, "--out", "link.csv", prepare=lambda: os.symlink("rows.csv", "link.csv")),
        error("link.csv", "rows.csv"),
    ),
    "clean --out a hard link to the table": (
        prepared(*CLEAN, "--out", "link.csv", prepare=lambda: os.link("rows.csv", "link.csv")),
        either("link.csv", check=lambda ended: Path("rows.csv").read_text() == made.csv()),
    ),
    "clean --out a folder": (prepared(*CLEAN, "--out", "model"), error("model")),
    "clean --out unknown": (prepared(*CLEAN, "--out", "made.xlsx"), error("made.xlsx")),
    "clean --out nowhere": (prepared(*CLEAN, "--out", "nowhere/made.csv"), error("nowhere")),
    "clean --out - --json": (prepared(*CLEAN, "--out", "-", "--json"), error("--json")),
    "clean --out a pipe": (
        prepared(*CLEAN, "--out", "pipe.csv", prepare=lambda: os.mkfifo("pipe.csv")),
        error("pipe.csv"),
    ),
    "clean --out a link to a pipe": (
        prepared(
            *CLEAN, "--out", "link.csv", prepare=lambda: (os.mkfifo("pipe.csv"), os.symlink("pipe.csv", "link.csv"))
        ),
        error("link.csv", "pipe.csv"),
    ),
    "clean --folds 1": (prepared(*_without(CLEAN, "--folds"), *RESULT, "--folds", "1"), error("folds")),
    "clean --separator in names": (
        prepared(*CLEAN, *RESULT, "--separator", "a"),
        either("separator", "row", "label", check=lambda ended: "label" in ended.err),
    ),
    "clean --id named kept": (
        prepared(
            "clean",
            "rows.csv",
            "--candidates",
            "tags",
            "--id",
            "kept",
            *RESULT,
            *made.TINY,
            prepare=lambda: made.put("rows.csv", made.csv().replace("id,", "kept,", 1)),
        ),
        error("kept"),
    ),
    "clean without anything": (prepared("clean", *RESULT), error("table", "--candidates")),
    "clean --annotations and table": (prepared(*CLEAN, *RESULT, "--annotations", "votes.csv"), error("--annotations")),
    "clean --annotations without features": (
        prepared("clean", "--annotations", "votes.csv", *RESULT),
        error("--features"),
    ),
    "clean --task without votes": (prepared(*CLEAN, *RESULT, "--task", "id"), error("--task")),
    "clean --min-votes x": (
        prepared(
            "clean", "--annotations", "votes.csv", "--features", "new.csv", "--id", "id", *RESULT, "--min-votes", "x"
        ),
        error("min-votes"),
    ),
    "audit --alphas 0": (prepared(*AUDIT, "--alphas", "0,0.1"), error("alphas")),
    "audit --alphas nan": (prepared(*AUDIT, "--alphas", "nan"), error("alphas")),
    "audit --alphas words": (prepared(*AUDIT, "--alphas", "low"), error("alphas")),
    "audit --alphas ''": (prepared(*AUDIT, "--alphas", ""), error("alphas")),
    "audit --alphas 1,000 levels": (prepared(*AUDIT, "--alphas", "0.1," * 999 + "0.1"), error("alphas")),
    "audit --alphas with semicolons": (prepared(*AUDIT, "--alphas", "0.1;0.2"), error("alphas")),
    "audit of a small table": (
        prepared(
            "audit",
            "small.csv",
            "--candidates",
            "tags",
            "--drop",
            "id,truth",
            *made.TINY,
            prepare=lambda: made.put("small.csv", "\n".join(made.csv().splitlines()[:51]) + "\n"),
        ),
        error("small.csv"),
    ),
    "predict a missing model": (prepared("predict", "none", "new.csv", *RESULT), error("none")),
    "predict a table as model": (prepared("predict", "rows.csv", "new.csv", *RESULT), error("rows.csv")),
    "predict a missing table": (prepared("predict", "model", "none.csv", *RESULT), error("none.csv")),
    "predict a missing column": (
        prepared("predict", "model", "bad.csv", *RESULT, prepare=lambda: made.put("bad.csv", made.new_rows(size=None))),
        error("size"),
    ),
    "predict an additional column": (
        prepared(
            "predict",
            "model",
            "bad.csv",
            *RESULT,
            prepare=lambda: made.put("bad.csv", made.new_rows(weight=["1"] * made.ROWS)),
        ),
        error("weight"),
    ),
    "predict an additional column, with advice": (
        prepared(
            "predict",
            "model",
            "bad.csv",
            *RESULT,
            prepare=lambda: made.put("bad.csv", made.new_rows(weight=["1"] * made.ROWS)),
        ),
        error("--drop"),
    ),
    "predict a renamed column": (
        prepared(
            "predict",
            "model",
            "bad.csv",
            *RESULT,
            prepare=lambda: made.put("bad.csv", made.new_rows().replace("size", "Size", 1)),
        ),
        error("size", "Size"),
    ),
    "predict text for numbers": (
        prepared(
            "predict",
            "model",
            "bad.csv",
            *RESULT,
            prepare=lambda: made.put("bad.csv", made.new_rows(size={7: "heavy"})),
        ),
        error("heavy"),
    ),
    "predict infinity": (
        prepared(
            "predict", "model", "bad.csv", *RESULT, prepare=lambda: made.put("bad.csv", made.new_rows(size={7: "inf"}))
        ),
        error("row 7"),
    ),
    "predict 1e300": (
        prepared(
            "predict",
            "model",
            "bad.csv",
            *RESULT,
            prepare=lambda: made.put("bad.csv", made.new_rows(size={7: "1e300"})),
        ),
        either("row 7", "size", check=lambda ended: _predictions() == made.ROWS),
    ),
    "predict decimal commas": (
        prepared(
            "predict",
            "model",
            "bad.csv",
            *RESULT,
            prepare=lambda: made.put("bad.csv", made.new_rows(size={7: '"1,5"'})),
        ),
        either("row 7", "size", check=lambda ended: "size" in ended.err),
    ),
    "predict columns in another order": (
        prepared(
            "predict",
            "model",
            "bad.csv",
            *RESULT,
            prepare=lambda: made.put(
                "bad.csv", made.csv({name: made.columns()[name] for name in ("colour", "age", "id", "size")})
            ),
        ),
        right(lambda ended: _same_predictions()),
    ),
    "predict no rows": (
        prepared("predict", "model", "bad.csv", *RESULT, prepare=lambda: made.put("bad.csv", "id,size,age,colour\n")),
        error("bad.csv"),
    ),
    "predict --drop of a feature": (prepared(*PREDICT, *RESULT, "--drop", "size"), error("size")),
    "predict --drop missing": (prepared(*PREDICT, *RESULT, "--drop", "nothing"), error("nothing")),
    "predict --id of a feature": (
        prepared(*PREDICT, *RESULT, "--id", "size"),
        either("size", check=lambda ended: _predictions() == made.ROWS),
    ),
    "predict --id missing": (prepared(*PREDICT, *RESULT, "--id", "name"), error("name")),
    "predict --kind without --alpha": (prepared(*PREDICT, *RESULT, "--kind", "split"), error("--alpha")),
    "predict --kind unknown": (prepared(*PREDICT, *RESULT, "--alpha", "0.1", "--kind", "x"), error("kind")),
    "predict --score unknown": (prepared(*PREDICT, *RESULT, "--alpha", "0.1", "--score", "x"), error("score")),
    "predict --candidate unknown": (
        prepared(*PREDICT, *RESULT, "--alpha", "0.1", "--candidate", "x"),
        error("candidate"),
    ),
    "predict --separator ''": (prepared(*PREDICT, *RESULT, "--alpha", "0.5", "--separator", ""), error("separator")),
    "predict --separator in a name": (
        prepared(*PREDICT, *RESULT, "--alpha", "0.5", "--separator", "a"),
        error("separator", "cat"),
    ),
    "predict --out the table": (prepared(*PREDICT, "--out", "new.csv"), error("new.csv")),
    "predict --out in the model": (prepared(*PREDICT, "--out", "model/model.json"), error("model.json")),
    "evaluate --labels missing": (
        prepared("evaluate", "model", "rows.csv", "--labels", "true"),
        error("true", "truth"),
    ),
    "evaluate --labels of a feature": (
        prepared("evaluate", "model", "rows.csv", "--labels", "colour", "--drop", "tags,truth"),
        error("colour"),
    ),
    "evaluate --labels of candidates": (
        prepared("evaluate", "model", "rows.csv", "--labels", "tags", "--drop", "truth"),
        either("tags", "label", "class", check=lambda ended: "tags" in ended.err or "class" in ended.err),
    ),
    "evaluate labels that are not classes": (
        prepared(*EVALUATE, prepare=lambda: made.put("rows.csv", made.csv(made.columns(truth=["x"] * made.ROWS)))),
        error("class", "label"),
    ),
    "evaluate labels in another case": (
        prepared(
            *EVALUATE,
            prepare=lambda: made.put(
                "rows.csv", made.csv(made.columns(truth=[t.upper() for t in made.columns()["truth"]]))
            ),
        ),
        error("class", "label"),
    ),
    "evaluate without labels": (
        prepared(*EVALUATE, prepare=lambda: made.put("rows.csv", made.csv(made.columns(truth=[""] * made.ROWS)))),
        error("truth", "label"),
    ),
    "evaluate --plot unknown": (prepared(*EVALUATE, "--plot", "a.xyz"), error("a.xyz")),
    "evaluate --plot nowhere": (prepared(*EVALUATE, "--plot", "nowhere/a.svg"), error("nowhere")),
    "evaluate --candidate unknown": (prepared(*EVALUATE, "--candidate", "x"), error("candidate")),
    "report --out pdf": (prepared("report", "model", "--out", "a.pdf"), error("a.pdf")),
    "report --out nowhere": (prepared("report", "model", "--out", "nowhere/a.html"), error("nowhere")),
    "report --out in the model": (prepared("report", "model", "--out", "model/a.html"), error("model")),
    "report of nothing": (prepared("report", "none", "--out", "a.html"), error("none")),
    "review of nothing": (prepared("review", "none", "--table", "rows.csv"), error("none")),
    "review --port 99999": (prepared("review", "model", "--table", "rows.csv", "--port", "99999"), error("port")),
    "review --rows 0": (prepared("review", "model", "--table", "rows.csv", "--rows", "0"), error("rows", "held-out")),
    "review --images alone": (prepared("review", "model", "--table", "rows.csv", "--images", "."), error("--image")),
    "review --log nowhere": (prepared("review", "model", "--table", "rows.csv", "--log", "no/log"), error("no")),
    "review of no table": (prepared("review", "model", "--table", "none.csv"), error("none.csv")),
    "apply of nothing": (prepared("apply", "none", "--table", "rows.csv", "--out", "a.csv"), error("none")),
    "apply of a table": (prepared("apply", "rows.csv", "--table", "rows.csv", "--out", "a.csv"), error("rows.csv")),
    "certify of nothing": (prepared("certify", "model", "--out", "a.csv"), error("decisions", "answers")),
    "fit --decisions of nothing": (prepared(*FIT, *OUT, "--decisions", "none"), error("none")),
    "demo --seeds 0": (prepared("demo", "--seeds", "0"), error("seeds")),
    "demo --seeds -1": (prepared("demo", "--seeds", "-1"), error("seeds")),
    "demo --seeds 10**9": (prepared("demo", "--seeds", "1000000000"), error("seeds")),
    "demo --device abacus": (prepared("demo", "--device", "abacus"), error("device")),
    "demo --device mps": (prepared("demo", "--device", "mps"), error("device")),
    "no command": (prepared(), either("command", "COMMAND", "fit", check=lambda ended: "fit" in ended.out)),
    "an unknown command": (prepared("ft"), error("fit")),
    "a command in upper case": (prepared("FIT"), error("fit")),
    "a command with a typo": (prepared("predcit"), error("predict")),
    "an empty command": (prepared(""), error("command", "COMMAND", "fit")),
    "an unknown global option": (prepared("--verbose"), error("verbose")),
    "control characters in a command": (prepared("fi\x1b[31mt"), error("fi\\x1b", "fit")),
    "control characters in an option": (prepared(*FIT, *OUT, "--ep\x1b[31m", "3"), error("--ep")),
}


def _locked() -> None:
    os.mkdir("locked")
    os.chmod("locked", 0o500)
    if os.geteuid() == 0:  # root writes everywhere, but not to /sys
        os.rmdir("locked")
        os.symlink("/sys", "locked")


def _predictions() -> int:
    return len(Path("made.csv").read_text().splitlines()) - 1


def _same_predictions() -> bool:
    found = Path("made.csv").read_text()
    run(*PREDICT, "--out", "again.csv")
    return Path("again.csv").read_text() == found


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (act, expected) in OPTIONS.items():
        yield Case(FAMILY, name, act, expected)
