"""Checks of what options ask for, before anything is trained."""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from candidly.cli.options import Telling, Training, Voting
from candidly.tables import files

_PAGES = (".html", ".htm")
_MODEL = {"model.json", "model.safetensors", "findings.json"}


def check_folds(training: Training) -> None:
    """Check that there are rows that did not train."""
    if training.folds is not None and training.folds < 2:
        raise ValueError(
            f"folds is {training.folds}; every row is scored by networks that did not train on it, use 2 or more"
        )


def check_source(table: str | None, candidates: str | None, voting: Voting) -> None:
    """Check that there is one source of candidates, and all of it."""
    given = [name.replace("_", "-") for name, value in vars(voting).items() if value is not None]
    if voting.annotations is None:
        if table is None or candidates is None:
            raise ValueError("say what to read: a table and its --candidates, or --annotations and --features")
        if given:
            raise ValueError(f"--{given[0]} is for votes; name their table with --annotations, or leave it out")
    elif table is not None or candidates is not None:
        raise ValueError("candidates of a table and --annotations exclude each other; leave one out")
    elif voting.features is None:
        raise ValueError("--annotations needs --features, the table with the features of the tasks; name it")
    elif voting.annotations == voting.features == "-":
        raise ValueError("standard input is one table; name a file for --annotations or --features")


def check_folder(out: Path) -> None:
    """Check that a model can be written, before it is trained."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder for the model")
    others = sorted({path.name for path in out.iterdir()} - _MODEL) if out.exists() else []
    if others:
        raise ValueError(f"{out} holds {others[0]!r}, which would be lost; name a new or an empty folder")
    files.check_folder(next(parent for parent in out.absolute().parents if parent.exists()))


def check_table(out: str, tables: Sequence[str | None], telling: Telling) -> None:
    """Check that a table can be written, and is none that is read."""
    files.check_writable(out)
    if out == "-" and telling.json:
        raise ValueError("--json and --out - both write to standard output; leave one out")
    for table in tables:
        if table is not None and out != "-" and os.path.realpath(table) == os.path.realpath(out):
            raise ValueError(f"{out} is both read and written; name another file with --out")


def check_page(page: Path | None, out: str | Path | None = None) -> None:
    """Check that a page can be made and written, beside whatever else is."""
    if page is None:
        return
    if out is not None and Path(os.path.realpath(page)).is_relative_to(os.path.realpath(out)):
        raise ValueError(f"{page} is or lies in {out}, which is written as a whole; name another place for the page")
    files.check_writable(page, _PAGES)
    if importlib.util.find_spec("jinja2") is None:
        raise ModuleNotFoundError("reports need jinja2, which is not installed; run `pip install 'candidly[report]'`")


def check_id(id: str | None, results: Sequence[str]) -> None:
    """Check that the id column keeps its name in the result."""
    if id in results:
        raise ValueError(f"the id column has the name {id!r} of a column of the result; rename it")
