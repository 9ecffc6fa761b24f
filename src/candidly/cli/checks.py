"""Checks of a command's options before anything is trained."""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from candidly.checks import arguments
from candidly.cli.options import CleaningOptions, OutputOptions
from candidly.tables import files

_PAGES = (".html", ".htm")


def check_folds(folds: int | None) -> None:
    """Raise unless there are enough folds to hold every row out."""
    if folds is not None and folds < 2:
        raise ValueError(f"folds is {folds}; use at least 2, because held-out rows are needed to clean candidates")


def check_source(options: CleaningOptions) -> None:
    """Raise unless there is exactly one source of candidates, and it is complete."""
    table, candidates, votes = options.table, options.candidates, options.votes
    given = [name.replace("_", "-") for name, value in vars(votes).items() if value not in (None, False)]
    if votes.annotations is None:
        arrays = table is not None and files.suffix_of(table) in (".mat", ".npz")
        if table is None or (candidates is None and options.model is None and not arrays):
            raise ValueError("nothing to read; give a table and --candidates, or --annotations and --features")
        if given:
            raise ValueError(f"--{given[0]} applies to votes; name their table with --annotations, or remove it")
    elif table is not None or candidates is not None:
        raise ValueError("a table with candidates and --annotations were both given; remove one of them")
    elif votes.features is None and files.is_text_file(votes.annotations):
        raise ValueError("--annotations needs --features, the table with the features of the tasks")
    elif votes.annotations == votes.features == "-":
        raise ValueError("standard input holds only one table; name a file for --annotations or --features")


def check_model(options: CleaningOptions) -> None:
    """Raise if there is a model, which is not trained again, and an option that applies to training."""
    if options.model is None:
        return
    named = vars(options.training) | {"classes": options.reading.classes}
    for name, value in named.items():
        if value is not None and value is not False and name not in ("alpha", "force_cleaning"):
            raise ValueError(
                f"--{name.replace('_', '-')} applies to training, but --model {options.model} is already trained; "
                "remove one of them"
            )


def check_folder(out: Path) -> bool:
    """Return whether the folder holds a model; raise unless one can be written to it."""
    from candidly.store import states

    holds_model = states.check_folder(out)
    files.check_folder(next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists()))
    return holds_model


def check_base(base: str | None) -> None:
    """Raise unless a model with this base can be saved."""
    from candidly.estimator.learner_files import require_skops
    from candidly.estimator.learners import find_base

    if base is not None:
        find_base(base)
        require_skops()


def check_table(
    out: str,
    tables: Sequence[str | None],
    output: OutputOptions,
    option: str = "--out",
    suffixes: Sequence[str] = files.SUFFIXES,
) -> None:
    """Raise unless the result can be written to `out`, which must not be one of the tables that are read."""
    files.check_writable(out, suffixes)
    if out == "-" and output.json:
        raise ValueError(f"--json and {option} - both write to standard output; remove one of them")
    for table in tables:
        if table is None or out == "-":
            continue
        if os.path.realpath(arguments.path("the table's path", table)) == os.path.realpath(out):
            raise ValueError(f"{out} is both read and written; name another file with {option}")


def check_page(page: Path | None, out: str | Path | None = None) -> None:
    """Raise unless the report can be rendered and written, outside of `out`."""
    if page is None:
        return
    if out is not None:
        check_apart("the report", page, out)
    files.check_writable(page, _PAGES)
    if importlib.util.find_spec("jinja2") is None:
        raise ModuleNotFoundError("reports need jinja2, which is not installed; run `pip install 'candidly[report]'`")


def check_apart(what: str, place: str | Path, out: str | Path) -> None:
    """Raise if a file that is also written is or lies in `out`."""
    if Path(os.path.realpath(place)).is_relative_to(os.path.realpath(out)):
        raise ValueError(f"{what} {place} is or lies in {out}, which is replaced; name another place for it")


def check_id(id: str | None, results: Sequence[str]) -> None:
    """Raise if the id column has the name of another column of the result."""
    if id in results:
        raise ValueError(f"the id column is named {id!r}, like a column of the result; rename it")
