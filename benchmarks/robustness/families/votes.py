"""Votes of annotators: `from_annotations` and the commands that read votes."""

import datetime
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import candidly
from benchmarks.robustness import made
from benchmarks.robustness.case import Case, Expected, either, error, right, run, warning

FAMILY = "votes"
_V = made.votes


def plain(votes: Any) -> bool:
    """Check that votes equal those of the good table."""
    return made.same(votes.candidates, read(_V()).candidates) and list(votes.tasks) == list(read(_V()).tasks)


def read(table: Any, **options: Any) -> Any:
    """Read a long table of votes."""
    return candidly.from_annotations(table, **({"task": "task", "worker": "worker", "label": "label"} | options))


def frame(**changes: Any) -> pd.DataFrame:
    """Return the good votes as a table."""
    return pd.DataFrame(_V(**changes))


def wide(**changes: Any) -> pd.DataFrame:
    """Return votes with one row per task and one column per annotator."""
    votes = _V()
    table = {worker: votes["label"][i::3] for i, worker in enumerate(("ann", "bob", "eve"))}
    return pd.DataFrame({"task": votes["task"][::3]} | table | changes)


LONG: dict[str, tuple[Callable[[], Any], Expected]] = {
    "None": (lambda: None, error("table", "votes")),
    "a text": (lambda: "votes.csv", error("table", "votes")),
    "a number": (lambda: 3, error("table", "votes")),
    "an object": (lambda: object(), error("table", "votes")),
    "an array": (lambda: np.zeros((5, 3)), error("table", "votes", "column")),
    "no rows": (lambda: frame().iloc[:0], error("votes", "table")),
    "no columns": (lambda: pd.DataFrame(), error("task", "column", "table")),
    "lists of different lengths": (
        lambda: {"task": ["a"], "worker": ["b", "c"], "label": ["d"]},
        error("length", "column", "table", "task", "worker"),
    ),
    "a missing task": (lambda: _V(task={7: None}), error("row 7")),
    "an empty task": (lambda: _V(task={7: ""}), error("row 7")),
    "a NaN task": (lambda: _V(task={7: math.nan}), error("row 7")),
    "a missing worker": (lambda: _V(worker={7: None}), error("row 7")),
    "all labels missing": (lambda: _V(label=[None] * 360), error("votes", "label")),
    "one label": (lambda: _V(label=["cat"] * 360), error("class", "label")),
    "a label of another type": (lambda: _V(label={7: 3}), error("class", "type", "label")),
    "a list as label": (lambda: _V(label={7: ["cat", "dog"]}), error("row 7", "label")),
    "a list as task": (lambda: _V(task={7: ["r001"]}), error("row 7", "task")),
    "a NaN label": (lambda: _V(label={7: math.nan}), either("row 7", check=lambda v: v.counts.sum() == 359)),
    "labels that differ by case": (lambda: _V(label={7: "Cat"}), warning("Cat")),
    "labels that differ by blanks": (lambda: _V(label={7: "cat "}), warning("cat ")),
    "labels with separators": (lambda: _V(label=["cat|dog", "cat", "dog|emu"] * 120), warning("|", "separator")),
    "tasks that differ by type": (
        lambda: {"task": [1, "1", 2, "2"], "worker": list("abab"), "label": ["x", "y", "x", "y"]},
        warning("task", "type"),
    ),
    "tasks 1 and 1.0": (
        lambda: {"task": [1, 1.0, 2, 2], "worker": list("abab"), "label": ["x", "y", "x", "y"]},
        either("task", check=lambda v: len(v.tasks) == 2),
    ),
    "infinite tasks": (lambda: _V(task={7: math.inf}), either("row 7", "task", check=lambda v: math.inf in v.tasks)),
    "far timestamps as tasks": (
        lambda: pa.table(
            {
                "task": pa.array([2**62, 2**62, -(2**62), -(2**62)], pa.timestamp("s")),
                "worker": list("abab"),
                "label": ["x", "y", "x", "y"],
            }
        ),
        either("task", check=lambda v: len(v.tasks) == 2),
    ),
    "dates as tasks": (
        lambda: frame().assign(task=[datetime.date(2020, 1, 1) + datetime.timedelta(days=i // 3) for i in range(360)]),
        right(lambda v: len(v.tasks) == 120),
    ),
    "structs as tasks": (
        lambda: pa.table({"task": [{"a": 1}] * 4, "worker": list("abab"), "label": ["x", "y", "x", "y"]}),
        error("task"),
    ),
    "a duplicated vote": (
        lambda: {name: [*values, values[0]] for name, values in _V().items()},
        either("row 360", "task", "worker", check=plain),
    ),
    "a worker with two labels": (
        lambda: {
            name: [*values, extra] for (name, values), extra in zip(_V().items(), ("r000", "ann", "emu"), strict=True)
        },
        either(
            "row 360",
            "task",
            "worker",
            check=lambda v: (
                v.candidates.decode()[list(v.tasks).index("r000")] == ("cat", "emu")
                or "emu" in v.candidates.decode()[list(v.tasks).index("r000")]
            ),
        ),
    ),
    "duplicate column names": (
        lambda: pd.DataFrame([["r0", "ann", "x", "y"]] * 4, columns=["task", "worker", "label", "label"]),
        error("label", "column"),
    ),
    "another index": (lambda: frame().set_index(pd.Index(range(360, 0, -1))), right(plain)),
    "a shuffled table": (
        lambda: frame().sample(frac=1, random_state=0),
        right(
            lambda v: (
                sorted(zip(map(str, v.tasks), map(str, v.candidates.decode()), strict=True))
                == sorted(zip(map(str, read(_V()).tasks), map(str, read(_V()).candidates.decode()), strict=True))
            )
        ),
    ),
    "a polars table": (lambda: pl.DataFrame(_V()), right(plain)),
    "an Arrow table": (lambda: pa.table(_V()), right(plain)),
    "Arrow dictionaries with nulls": (
        lambda: pa.table(_V(label={7: None}) | {}).set_column(
            2, "label", pa.array(_V(label={7: None})["label"]).dictionary_encode()
        ),
        right(lambda v: v.counts.sum() == 359),
    ),
    "a pandas table of categories": (lambda: frame().astype("category"), right(plain)),
    "a dict of arrays": (lambda: {name: np.array(values) for name, values in _V().items()}, right(plain)),
    "a list of dicts": (
        lambda: [dict(zip(_V(), row, strict=True)) for row in zip(*_V().values(), strict=True)],
        either("table", check=plain),
    ),
    "bytes as labels": (
        lambda: _V(label=[b"cat", b"dog", b"emu"] * 120),
        either("label", "class", "bytes", check=lambda v: v.candidates.classes == (b"cat", b"dog", b"emu")),
    ),
    "complex labels": (lambda: _V(label=[1j, 2j] * 180), error("label", "class")),
    "labels of 10**400": (
        lambda: _V(label=[10**400, 1] * 180),
        either("label", "class", check=lambda v: set(v.candidates.classes) == {1, 10**400}),
    ),
}
WIDE: dict[str, tuple[Callable[[], Any], dict[str, Any], Expected]] = {
    "a repeated task": (lambda: wide(task=["r000"] * 120), {}, error("task", "r000")),
    "a missing annotator": (lambda: wide(), {"columns": ["ann", "zoe"]}, error("zoe")),
    "no annotators": (lambda: wide(), {"columns": []}, error("columns")),
    "an annotator twice": (lambda: wide(), {"columns": ["ann", "ann"]}, error("ann", "columns")),
    "the task as annotator": (lambda: wide(), {"columns": ["task", "ann"]}, error("task")),
    "a text": (lambda: wide(), {"columns": "ann"}, error("columns")),
    "a task without votes": (
        lambda: wide(ann=[None, *["cat", "dog"] * 59, "cat"], bob=[None] * 120, eve=[None] * 120),
        {},
        either("row 0", "r000", "task", check=lambda v: len(v.tasks) == 119 or v.fallbacks > 0),
    ),
    "annotators of different types": (lambda: wide(bob=[1] * 120), {}, error("type", "class", "label")),
    "lists in cells": (lambda: wide(bob=[["cat"]] * 120), {}, error("bob", "row 0", "label")),
    "all votes missing": (lambda: wide(ann=[None] * 120, bob=[None] * 120, eve=[None] * 120), {}, error("votes")),
}


def clean(votes: str = "votes.csv", *more: str) -> Any:
    """Clean the votes of a file with the good features."""
    made.put("rows.csv", made.csv(made.columns(tags=None, truth=None)))
    return run(
        "clean", "--annotations", votes, "--features", "rows.csv", "--id", "id", "--out", "new.csv", *made.TINY, *more
    )


def files(text: str, features: str | None = None, *more: str) -> Callable[[], Any]:
    """Return a call of `clean` on a file of votes."""

    def act() -> Any:
        made.put("votes.csv", text)
        made.put("rows.csv", made.csv(made.columns(tags=None, truth=None)) if features is None else features)
        return run(
            "clean",
            "--annotations",
            "votes.csv",
            "--features",
            "rows.csv",
            "--id",
            "id",
            "--out",
            "new.csv",
            *made.TINY,
            *more,
        )

    return act


def _features(**changes: Any) -> str:
    return made.csv(made.columns(tags=None, truth=None, **changes))


def _result(*lines: int) -> Callable[[Any], bool]:
    return lambda ended: len(Path("new.csv").read_text(encoding="utf-8").splitlines()) == made.ROWS + 1


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (make, expected) in LONG.items():
        yield Case(FAMILY, f"long votes: {name}", lambda make=make: read(make()), expected)
    for name, (make, options, expected) in WIDE.items():
        yield Case(
            FAMILY,
            f"wide votes: {name}",
            lambda make=make, options=options: candidly.from_annotations(
                make(), **({"task": "task", "columns": ["ann", "bob", "eve"]} | options)
            ),
            expected,
        )
    csv = made.csv
    commands: dict[str, tuple[Callable[[], Any], Expected]] = {
        "good votes": (files(csv(_V())), right(_result())),
        "a task without features": (files(csv(_V(task={0: "r999", 1: "r999", 2: "r999"}))), error("r999")),
        "a task without votes": (
            files(csv({name: values[3:] for name, values in _V().items()})),
            either(
                "r000",
                "votes",
                check=lambda ended: (
                    "r000" not in Path("new.csv").read_text(encoding="utf-8") or "r000" in ended.err + ended.out
                ),
            ),
        ),
        "tasks with blanks": (
            files(csv(_V(task={0: " r000", 1: "r000 ", 2: "r000"}))),
            either("r000", check=_result()),
        ),
        "tasks as numbers in one file": (
            files(csv(_V(task=[str(i // 3) for i in range(360)])), _features(id=[f"{i:03}" for i in range(120)])),
            error("task", "votes.csv", "rows.csv"),
        ),
        "a duplicated id": (files(csv(_V()), _features(id={1: "r000"})), error("r000", "id")),
        "semicolons": (files(csv(_V(), ";")), error("votes.csv", "delimiter", ";")),
        "a delimiter given": (
            files(csv(_V(), ";"), None, "--delimiter", ";"),
            error("rows.csv", "delimiter", "id", ";"),
        ),
        "no header": (files(csv(_V()).split("\n", 1)[1]), error("votes.csv", "column")),
        "one column": (files("task\nr000\n"), error("votes.csv", "column")),
        "an empty file": (files(""), error("votes.csv")),
        "min-votes of 0": (files(csv(_V()), None, "--min-votes", "0"), error("min_votes", "min-votes")),
        "min-votes of -1": (files(csv(_V()), None, "--min-votes", "-1"), error("min_votes", "min-votes")),
        "min-votes of 99": (
            files(csv(_V()), None, "--min-votes", "99"),
            either("min_votes", "min-votes", check=_result()),
        ),
        "min-share of nan": (files(csv(_V()), None, "--min-share", "nan"), error("min_share", "min-share")),
        "min-share of -1": (files(csv(_V()), None, "--min-share", "-1"), error("min_share", "min-share")),
        "unknown classes": (files(csv(_V()), None, "--classes", "cat,dog"), error("emu")),
        "labels with separators": (files(csv(_V(label={7: "cat|dog"}))), error("cat|dog", "|")),
        "labels that differ by case": (files(csv(_V(label={7: "Cat"}))), warning("Cat")),
        "an unclosed quote": (files(csv(_V(label={7: '"cat'}))), error("votes.csv", "line")),
        "features with a duplicate column": (files(csv(_V()), csv().replace("size", "age", 1)), error("age")),
    }
    for name, (act, expected) in commands.items():
        yield Case(FAMILY, f"clean: {name}", act, expected)
