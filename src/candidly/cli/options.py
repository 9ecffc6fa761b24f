"""Option groups that several commands share, and how commands print."""

import csv
import json
import sys
import warnings
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from candidly.cli.parsing import Named
from candidly.cli.terminal import say
from candidly.messages import busy

Text = Annotated[str | None, Named("TEXT")]
Column = Annotated[str | None, Named("COLUMN")]
Columns = Annotated[str | None, Named("COLUMNS")]
Table = Annotated[str | None, Named("TABLE")]
Number = Annotated[int | None, Named("INT")]
Levels = Annotated[str | None, Named("FLOATS")]
Fraction = Annotated[float | None, Named("FLOAT")]
File = Annotated[Path | None, Named("PATH")]
Names = Annotated[str | None, Named("NAMES")]
Model = Annotated[Path | None, Named("MODEL")]
RequiredColumn = Annotated[str, Named("COLUMN")]
TableArgument = Annotated[str, Named("TABLE", positional=True)]
TableOption = Annotated[str | None, Named("TABLE", positional=True)]
ModelArgument = Annotated[Path, Named("MODEL", positional=True)]

# The values are those of `candidly.conformal.calibration`, whose import would make `candidly --help` slow.
Kind = Annotated[Literal["split", "cv+", "averaged"] | None, Named("TEXT")]
Score = Annotated[Literal["lac", "aps"] | None, Named("TEXT")]
Quality = Annotated[Literal["fast", "best"] | None, Named("TEXT")]
Format = Annotated[Literal["table", "label-studio", "argilla", "huggingface"] | None, Named("TEXT")]
Candidate = Annotated[Literal["best", "mean", "pooled", "worst", "singletons"] | None, Named("TEXT")]


def split_names(text: str | None, option: str) -> list[str]:
    """Split names at commas; a name that contains a comma must be in double quotes.

    Examples
    --------
    >>> split_names('a, "b,c"', "--drop"), split_names(None, "--drop")
    (['a', 'b,c'], [])
    """
    if text is None:
        return []
    try:
        names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True, strict=True), [])]
    except csv.Error as error:
        raise ValueError(f"{option} cannot be split at commas: {error}; correct the quotes") from None
    if not names or "" in names:
        raise ValueError(f"{option} is {text!r}, which contains an empty name; separate names by single commas")
    return names


@dataclass(frozen=True)
class ReadingOptions:
    """How to read the table.

    Args:
        id: Column of row ids. Ids must be unique. It is kept and is not a feature.
        labels: Column of true labels, where known. Used for evaluation only; it is not a feature.
        groups: Column of groups, such as scenes or recordings. Rows of a group are held out together. Not a feature.
        drop: Columns to ignore, separated by commas.
        separator: Separator between class names in a CSV cell (default: |).
        classes: All class names, separated by commas, or @FILE with one name per line (default: those found).
        delimiter: Column delimiter of CSV files (default: a comma; a tab for .tsv files).
    """

    id: Column = None
    labels: Column = None
    groups: Column = None
    drop: Columns = None
    separator: Text = None
    classes: Text = None
    delimiter: Text = None


@dataclass(frozen=True)
class VoteOptions:
    """Annotators' votes as the source of candidates.

    Args:
        annotations: Votes, instead of a table with candidates: a table, or the .json file that Label Studio exports
            (JSON or JSON-MIN), a folder of such files, or records of Argilla (.json, .jsonl or a table).
        features: Table with the features of the tasks; --id names its task column (default: the fields of the tasks,
            if --annotations comes from Label Studio or Argilla).
        task: Task column of the votes (default: task); of Label Studio or Argilla, the field with ids (default: the
            field that --id names, or else the ids of the tool).
        worker: Worker column of the votes (default: worker).
        label: Label column of the votes (default: label); of Label Studio or Argilla, the control tag or question.
        annotators: For votes with one row per task: one column per annotator, separated by commas.
        min_votes: Minimum number of votes for a label to be a candidate (default: 1).
        min_share: Minimum fraction of a task's votes for a label to be a candidate (default: 0).
        votes_delimiter: Column delimiter of the votes, if they are CSV (default: that of --delimiter).
        anonymous: Annotators are not persons, as with columns for first and second votes: all make the same errors.
        skip_tasks: Leave out tasks that have no row in the features, instead of stopping.
    """

    annotations: Table = None
    features: Table = None
    task: Column = None
    worker: Column = None
    label: Column = None
    annotators: Columns = None
    min_votes: Number = None
    min_share: Fraction = None
    votes_delimiter: Text = None
    anonymous: bool = False
    skip_tasks: bool = False


@dataclass(frozen=True)
class TrainingOptions:
    """How to train.

    Args:
        method: Learning method; `candidly methods` lists them (default: balanced).
        quality: How much to train: fast, or best, which takes 8 to 16 times as long (default: fast).
        base: Train a scikit-learn classifier instead of networks; `candidly methods` lists them.
        cleaner: Removes candidates in training: conformal, clsp, conf, algorithm1, random or none (default: conformal).
        members: Number of networks per fold, which are averaged (default: 1; 4 for the quality best).
        folds: Number of folds. Networks that were not trained on a fold score its rows (default: 5).
        epochs: Passes over the training rows (default: as many as --quality needs).
        lr: Largest learning rate (default: 0.01; 0.001 for the method lws).
        alpha: Fraction of rows that may lose their true label when candidates are removed (default: 0.05).
        force_cleaning: Remove candidates even if the networks are no better than chance or true labels seem missing.
        seed: Random seed for folds, initialisation and the order of rows (default: 0).
        device: Where to train: auto, cpu, cuda, or several cards such as cuda:0,cuda:1 (default: auto).
    """

    method: Text = None
    quality: Quality = None
    base: Text = None
    cleaner: Text = None
    members: Number = None
    folds: Number = None
    epochs: Number = None
    lr: Fraction = None
    alpha: Fraction = None
    force_cleaning: bool = False
    seed: Number = None
    device: Text = None


@dataclass(frozen=True)
class SetOptions:
    """How to make prediction sets.

    Args:
        kind: Networks and held-out rows to compare: split, cv+ or averaged (default: cv+).
        score: Conformity score of a class: lac or aps (default: lac).
        candidate: Candidate that scores a held-out row: best, mean, pooled, worst or singletons (default: best).
    """

    kind: Kind = None
    score: Score = None
    candidate: Candidate = None

    def given(self, alpha: float | None) -> dict[str, Any]:
        """Return the options that were given; raise if there are some but no level `alpha`."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if given and alpha is None:
            option = next(iter(given))
            raise ValueError(f"--{option} applies to prediction sets; set their level with --alpha, or remove it")
        return given


@dataclass(frozen=True)
class ToolOptions:
    """Results for annotation tools.

    Args:
        format: table; label-studio, tasks with predictions in a .json file; argilla, a table with suggestions; or
            huggingface, a .parquet table whose classes are numbers with names (default: table).
        question: For label-studio, the control tag and the object tag of the labelling interface, such as bird,photo;
            for argilla, the question (default: those of the export; or answer and the first column; or label).
        first: Number of tasks to write, of those that need a review most (default: all).
    """

    format: Format = None
    question: Text = None
    first: Number = None


@dataclass(frozen=True)
class OutputOptions:
    """What to print.

    Args:
        json: Print one JSON object instead of a summary.
        quiet: Print only errors, and what --json prints.
    """

    json: bool = False
    quiet: bool = False

    @property
    def progress(self) -> bool:
        """Whether to show progress bars."""
        return sys.stderr.isatty() and not self.quiet

    def busy(self, what: str) -> AbstractContextManager[None]:
        """Return a context that shows what is done in it, if that takes long."""
        return busy(what, self.progress)

    def hide_warnings(self) -> AbstractContextManager[Any]:
        """Return a context that hides warnings if --quiet was given."""
        return warnings.catch_warnings(action="ignore") if self.quiet else nullcontext()

    def show(self, lines: Iterable[str], facts: Mapping[str, Any], *, to_stderr: bool = False) -> None:
        """Print the lines of a summary, or the facts as JSON."""
        if self.json:
            say(json.dumps(facts).replace("\x7f", r"\u007f"))  # JSON does not escape this control character
        elif not self.quiet:
            for line in lines:
                say(line, to_stderr=to_stderr)


@dataclass(frozen=True, kw_only=True)
class CleaningOptions:
    """All that `clean` and `audit` have in common.

    Args:
        table: A .csv, .tsv, .parquet, .arrow or .feather file, or - for standard input; or a .mat or .npz file, which
            needs no --candidates.
        candidates: Column of candidates: text such as cat|dog, or lists.
        model: Folder that `candidly fit` wrote: use this model instead of training. It also knows the columns.
        report: Also write an HTML report to this file (.html).
    """

    table: TableOption = None
    candidates: Column = None
    model: Model = None
    report: File = None
    votes: VoteOptions
    reading: ReadingOptions
    training: TrainingOptions
    output: OutputOptions
