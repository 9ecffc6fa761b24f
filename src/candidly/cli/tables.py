"""Commands on a user's own tables: fit, clean, audit, predict, evaluate, report."""

from pathlib import Path
from typing import Annotated

import tyro

from candidly.cli.options import (
    Candidate,
    Column,
    Columns,
    File,
    Levels,
    Reading,
    Setting,
    Share,
    Telling,
    Text,
    Training,
    Voting,
)

Inline = tyro.conf.arg(name="")  # options of a group, without its name in front


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
    from candidly.cli import training as commands

    commands.fit(table, candidates, out, report, reading, training, telling)


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
    of them were kept and removed, the predicted class with its confidence, and scores: the estimated probability of
    each removed label that it was the true one. `candidly audit` shows what cleaning costs before it is done.

    Args:
        table: A .csv, .tsv, .parquet, .arrow or .feather file, or - for standard input.
        candidates: The column of candidates: text such as cat|dog, or lists.
        out: The table to write, in one of these formats, or - for standard output.
        report: Also write a page on what was found (.html).
    """
    from candidly.cli import training as commands

    commands.clean(table, candidates, out, report, voting, reading, training, telling)


def audit(
    table: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[TABLE]", help_behavior_hint="")] = None,
    *,
    candidates: Column = None,
    alphas: Levels = None,
    report: File = None,
    voting: Annotated[Voting, Inline],
    reading: Annotated[Reading, Inline],
    training: Annotated[Training, Inline],
    telling: Annotated[Telling, Inline],
) -> None:
    """Estimate what cleaning would cost at several levels, and where not to trust it; no table is written.

    It trains as `clean` does. For each level it prints the estimated share of rows that would lose their true label and
    of wrong candidates that would go, with 90% intervals, and how many candidates that are; with --labels, the truth
    beside it. Then it names classes that cannot be told apart, or that have too few rows of their own. These are
    estimates, no guarantee. They hold if the true label is a candidate, and if wrong candidates resemble the features
    of their row no more than in the synthetic sets that were tried.

    Args:
        table: A .csv, .tsv, .parquet, .arrow or .feather file, or - for standard input.
        candidates: The column of candidates: text such as cat|dog, or lists.
        alphas: Levels to try beside --alpha, with commas between them (default: 0.01,0.02,0.05,0.1,0.15,0.2,0.3).
        report: Also write a page on what was found (.html).
    """
    from candidly.cli import training as commands

    commands.audit(table, candidates, alphas, report, voting, reading, training, telling)


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
    from candidly.cli import models as commands

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
        labels: The column of true labels. Rows without one do not count; where it is no class, the prediction is wrong.
        plot: Also plot it (.svg, .pdf or .png).
        candidate: Sets go by a held-out row's best, mean or worst candidate, pooled or singletons (default: best).
        drop: Columns to leave out, with commas between them.
        delimiter: What stands between the columns of CSV (default: a comma, and a tab in .tsv files).
    """
    from candidly.cli import models as commands

    commands.evaluate(
        model, table, labels, plot=plot, candidate=candidate, drop=drop, delimiter=delimiter, telling=telling
    )


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
    from candidly.cli import models as commands

    commands.report(model, out, telling)
