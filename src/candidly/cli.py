"""The command line: parse, import late, call the library, print."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

import candidly
from candidly.options import (
    Candidate,
    Column,
    Columns,
    File,
    Flag,
    Number,
    Reading,
    Setting,
    Share,
    Telling,
    Text,
    Training,
    Voting,
)
from candidly.printable import visible

app = tyro.extras.SubcommandApp()
_LONGEST = 2000  # characters of a message
Inline = tyro.conf.arg(name="")  # options of a group, without its name in front


@app.command
def demo(seeds: int = 5, device: str = "auto") -> None:
    """Compare four methods on handwritten digits with ambiguous labels, in about a minute.

    The data are scikit-learn's 8x8 digits with instance-dependent candidate sets: a network that was trained on the
    true labels makes confusable digits candidates of each other.

    Args:
        seeds: How many random splits to average over; they train together.
        device: Where to train: auto, cpu or cuda.
    """
    from candidly.demo import run

    run(seeds, device)


@app.command
def methods() -> None:
    """List the methods."""
    from candidly.methods import METHODS

    for name, method in METHODS.items():
        print(f"{name:8} {(method.__doc__ or '').splitlines()[0]}")


@app.command
def datasets(
    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]", help_behavior_hint="")] = None,
    *,
    download: Flag = False,
    data: File = None,
) -> None:
    """List the datasets that are known by name, or tell more about one of them.

    Args:
        name: The dataset to tell about: size, source, licence, citation, and whether its files are there.
        download: Download its files if they are missing.
        data: A folder with the datasets' files, into which downloads go; left out, the user's cache.
    """
    from candidly.data import REGISTRY, load

    if name is None:
        for entry in REGISTRY.values():
            size = f"{entry.shape[0]} × {'×'.join(map(str, entry.shape[1:]))}"
            print(f"{entry.name:11}{size:18}{entry.num_classes:4} classes   {entry.licence}")
        return
    if name in REGISTRY:
        entry = REGISTRY[name]
        print(f"source: {entry.page}\nlicence: {entry.licence}\ncite: {entry.citation}")
    print(load(name, data, download=download))


@app.command
def bench(
    spec: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[SPEC.toml]", help_behavior_hint="")
    ] = None,
    *,
    suite: Text = None,
    datasets: Text = None,
    methods: Text = None,
    cleaners: Text = None,
    seeds: Text = None,
    inits: Number = None,
    protocol: Text = None,
    recipe: Text = None,
    epochs: Number = None,
    out: Path = Path("runs"),
    data: File = None,
    download: Flag = False,
    device: str = "auto",
    jobs: Number = None,
    retry_failed: Flag = False,
) -> int:
    """Run experiments: every method on every dataset, all seeds of a run as one stacked fit.

    What is done is skipped, so a killed sweep goes on when it is called again. Say what to run with a TOML file, with a
    suite, or with --datasets and --methods; other options override what the first two say.

    Args:
        spec: A TOML file with the options below, and with settings of your own for methods and cleaners.
        suite: One of the paper's evaluations: uai2025-realworld, uai2025-images or uai2025-ablation.
        datasets: Names or files, with commas between them. After a plus, how candidate sets are made from true labels:
            digits+uniform-0.3.
        methods: Names with commas between them, such as proden,conf+proden,clsp+proden.
        cleaners: Cleaners to run all methods with that name none, such as none,conf,clsp (default: none).
        seeds: Such as 0-4 or 0,2,7; each is a split and an initialisation (default: 0-4).
        inits: Initialisations per seed (default: 1).
        protocol: How datasets are prepared and split: default or uai2025 (default: default).
        recipe: How to train: uai2025 or quick (default: uai2025).
        epochs: Train that recipe for so many epochs.
        out: The folder for the runs.
        data: A folder with the datasets' files.
        download: Download datasets that are missing.
        device: Where to train: auto, cpu or cuda.
        jobs: How many runs train at the same time; by default 1, and up to 4 on CUDA, which one alone does not fill.
        retry_failed: Try again what failed before.
    """
    from candidly.bench import SUITES, Spec, read_spec, sweep
    from candidly.recipe import find_recipe

    given: dict[str, Any] = {"datasets": datasets, "methods": methods, "cleaners": cleaners, "seeds": seeds}
    given |= {"inits": inits, "protocol": protocol, "recipe": recipe}
    given = {name: value for name, value in given.items() if value is not None}
    if suite is not None and suite not in SUITES:
        raise ValueError(f"unknown suite {suite!r}; use one of {', '.join(SUITES)}")
    if spec is not None and suite is not None:
        raise ValueError("both a file and a suite were given; write suite = ... into the file")
    if spec is None and suite is None and not (datasets and methods):
        raise ValueError("say what to run: a TOML file, --suite, or --datasets and --methods")
    chosen = replace(read_spec(spec), **given) if spec is not None else Spec(**(SUITES.get(suite or "", {}) | given))
    if epochs is not None:
        chosen = replace(chosen, recipe=replace(find_recipe(chosen.recipe), name="custom", epochs=epochs))
    root = None if data is None else str(data)
    outcome = sweep(
        chosen, out, root=root, download=download, device=device, jobs=jobs, retry_failed=retry_failed, progress=True
    )
    print(outcome)
    return 1 if outcome.failed else 0


@app.command
def table(
    folders: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER ...", help_behavior_hint="")
    ],
    *,
    style: Literal["text", "markdown", "latex", "csv"] = "text",
    split: Literal["test", "train"] = "test",
    against: File = None,
    diagram: File = None,
    into: File = None,
) -> None:
    """Make a table of results: means and spreads, wins, ties and losses, average ranks.

    Args:
        folders: Folders with runs, or with Parquet files of predictions made elsewhere (columns dataset, method, seed,
            split, row, true, predicted, confidence).
        style: How to write it.
        split: Whether to score test or training rows.
        against: A CSV file with published accuracies (columns method, dataset, seed, test_accuracy) to compare with.
        diagram: Also draw the critical-difference diagram into this file (.svg, .pdf or .png).
        into: Write into this Markdown page, between its lines "<!-- begin candidly table -->" and
            "<!-- end candidly table -->", instead of printing.
    """
    from candidly.bench import diagram as diagrams
    from candidly.bench import read, read_csv
    from candidly.bench import table as tables

    if into is not None and style not in ("text", "markdown"):
        raise ValueError(f"a page is written in Markdown, not in {style}; leave --style or --into out")
    found = read(folders, split=split)
    published = None if against is None else read_csv(against)
    text = tables.render(found, style=style if into is None else "markdown", against=published)
    if diagram is not None:
        diagrams.draw(found, diagram)
    if into is None:
        print(text, end="")
    else:
        tables.insert(into, text)


@app.command
def fit(
    table: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE", help_behavior_hint="")],
    *,
    candidates: Annotated[str, tyro.conf.arg(metavar="COLUMN")],
    out: Path,
    report: File = None,
    reading: Annotated[Reading, Inline],
    training: Annotated[Training, Inline],
    telling: Annotated[Telling, Inline],
) -> None:
    """Train a model on a table whose rows have candidates, and save it.

    Columns that no option names are features: numbers, dates and text, also with gaps.

    Args:
        table: A .csv, .tsv, .parquet, .arrow or .feather file, or - for standard input.
        candidates: The column of candidates: text such as cat|dog, or lists.
        out: The folder for the model.
        report: Also write a page on what was found (.html).
    """
    from candidly import commands

    commands.fit(table, candidates, out, report, reading, training, telling)


@app.command
def clean(
    table: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[TABLE]", help_behavior_hint="")] = None,
    *,
    candidates: Column = None,
    out: str,
    report: File = None,
    voting: Annotated[Voting, Inline],
    reading: Annotated[Reading, Inline],
    training: Annotated[Training, Inline],
    telling: Annotated[Telling, Inline],
) -> None:
    """Remove unlikely candidates from a table's rows, or from what annotators voted for.

    Each row is scored by networks that did not train on it. The result has one line per row: its id, candidates, which
    of them were kept and removed, the predicted class with its confidence, and the p-values of what was removed.

    Args:
        table: A .csv, .tsv, .parquet, .arrow or .feather file, or - for standard input.
        candidates: The column of candidates: text such as cat|dog, or lists.
        out: The table to write, in one of these formats, or - for standard output.
        report: Also write a page on what was found (.html).
    """
    from candidly import commands

    commands.clean(table, candidates, out, report, voting, reading, training, telling)


@app.command
def predict(
    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL", help_behavior_hint="")],
    table: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE", help_behavior_hint="")],
    *,
    out: str,
    alpha: Share = None,
    setting: Annotated[Setting, Inline],
    max_risk: Share = None,
    id: Column = None,
    drop: Columns = None,
    separator: str = "|",
    delimiter: Text = None,
    telling: Annotated[Telling, Inline],
) -> None:
    """Predict the classes of new rows with a model.

    Args:
        model: The folder that `candidly fit` wrote.
        table: The rows, with the columns that the model was trained on. Columns of ids, candidates and labels that it
            had beside them may be there too.
        out: The table to write: ids, predicted class, confidence. A file, or - for standard output.
        alpha: Also write prediction sets: the classes whose p-value is more than this.
        max_risk: Leave the least confident rows without a prediction, so that of the others about this share is wrong
            at most. It is an estimate.
        id: The column that names the rows (default: the one of the training rows, if it is there).
        drop: Columns to leave out, with commas between them.
        separator: What stands between names in a cell of CSV.
        delimiter: What stands between the columns of CSV (default: a comma, and a tab in .tsv files).
    """
    from candidly import commands

    commands.predict(
        model,
        table,
        out,
        alpha=alpha,
        setting=setting,
        max_risk=max_risk,
        id=id,
        drop=drop,
        separator=separator,
        delimiter=delimiter,
        telling=telling,
    )


@app.command
def evaluate(
    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL", help_behavior_hint="")],
    table: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE", help_behavior_hint="")],
    *,
    labels: Annotated[str, tyro.conf.arg(metavar="COLUMN")],
    plot: File = None,
    candidate: Candidate = None,
    drop: Columns = None,
    delimiter: Text = None,
    telling: Annotated[Telling, Inline],
) -> None:
    """Compare a model with true labels: accuracy, prediction sets, and errors by confidence.

    Args:
        model: The folder that `candidly fit` wrote.
        table: Rows that it was not trained on, with the columns that it was.
        labels: The column of true labels. Rows without one do not count; a label that is no class is an error.
        plot: Also plot it (.svg, .pdf or .png).
        candidate: Sets go by a held-out row's best, mean or worst candidate, pooled or singletons (default: best).
        drop: Columns to leave out, with commas between them.
        delimiter: What stands between the columns of CSV (default: a comma, and a tab in .tsv files).
    """
    from candidly import commands

    commands.evaluate(
        model, table, labels, plot=plot, candidate=candidate, drop=drop, delimiter=delimiter, telling=telling
    )


@app.command
def report(
    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL", help_behavior_hint="")],
    *,
    out: Path,
    telling: Annotated[Telling, Inline],
) -> None:
    """Write the page on a model again.

    Args:
        model: The folder that `candidly fit` wrote.
        out: The page to write (.html).
    """
    from candidly import commands

    commands.report(model, out, telling)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line on `argv`, by default the process's own arguments."""
    description = f"candidly {candidly.__version__}: learning from ambiguous labels."
    with warnings.catch_warnings(), _tidy_end():
        warnings.showwarning = _show
        try:
            status = app.cli(prog="candidly", description=description, args=argv)
        except BrokenPipeError:  # whoever read the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 1
        except KeyboardInterrupt:
            print("candidly: interrupted; what was done is kept, and nothing is half-written", file=sys.stderr)
            status = 130
        except (ImportError, MemoryError, OSError, ValueError) as error:
            _show(str(error) or type(error).__name__)
            status = 1
    if status:
        sys.exit(status)


@contextmanager
def _tidy_end() -> Iterator[None]:
    """Let a process that is told to end remove its temporary files first."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, lambda number, frame: sys.exit(128 + number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(message: Warning | str, *place: Any, **more: Any) -> None:
    """Show a warning or an error in one line, without the line of code that it comes from."""
    text = visible(" ".join(str(message).splitlines()))
    if len(text) > _LONGEST:  # a cell that holds a book; what to do about it is said at the end
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    print(f"candidly: {text}", file=sys.stderr)
