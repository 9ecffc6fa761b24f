"""Options that several commands share, in groups, and how commands print."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from candidly.messages import visible

Text = Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]
Column = Annotated[str | None, tyro.conf.arg(metavar="COLUMN", help_behavior_hint="")]
Columns = Annotated[str | None, tyro.conf.arg(metavar="COLUMNS", help_behavior_hint="")]
Table = Annotated[str | None, tyro.conf.arg(metavar="TABLE", help_behavior_hint="")]
Number = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")]
Levels = Annotated[str | None, tyro.conf.arg(metavar="FLOATS", help_behavior_hint="")]
Share = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")]
File = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]
Kind = Annotated[Literal["split", "cv+", "averaged"] | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]
Score = Annotated[Literal["lac", "aps"] | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]
Candidate = Annotated[
    Literal["best", "mean", "pooled", "worst", "singletons"] | None,
    tyro.conf.arg(metavar="TEXT", help_behavior_hint=""),
]
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help_behavior_hint="")]


@dataclass(frozen=True)
class Reading:
    """How to read tables.

    Args:
        id: The column that names the rows, all differently. It is kept, and is no feature.
        labels: The column of true labels, where they are known. It is for evaluation only, and is no feature.
        drop: Columns to leave out, with commas between them.
        separator: What stands between names in a cell of CSV.
        classes: All class names, with commas between them, or @FILE with one name per line (default: those found).
        delimiter: What stands between the columns of CSV (default: a comma, and a tab in .tsv files).
    """

    id: Column = None
    labels: Column = None
    drop: Columns = None
    separator: str = "|"
    classes: Text = None
    delimiter: Text = None


@dataclass(frozen=True)
class Voting:
    """Votes, in a table of their own, instead of candidates.

    Args:
        annotations: A table of votes, instead of one with candidates.
        features: The table with the features of the tasks that were voted on; --id names its column of tasks.
        task: The votes' column of tasks (default: task).
        worker: The votes' column of workers (default: worker).
        label: The votes' column of labels (default: label).
        annotators: Columns with one annotator's labels each, if the votes have one row per task; commas between them.
        min_votes: Votes that a label needs to be a candidate (default: 1).
        min_share: Share of a task's votes that a label needs to be a candidate (default: 0).
    """

    annotations: Table = None
    features: Table = None
    task: Column = None
    worker: Column = None
    label: Column = None
    annotators: Columns = None
    min_votes: Number = None
    min_share: Share = None


@dataclass(frozen=True)
class Training:
    """How to train.

    Args:
        method: How to learn from candidate sets; `candidly methods` lists the methods.
        cleaner: What prunes candidate sets during training: conformal, clsp or none.
        members: Networks to train on each part of the rows, and to average (default: 1).
        folds: Parts to divide the rows into; each is scored by networks that did not train on it (default: 5).
        epochs: Passes over the rows (default: 50, and 25 from 2000 rows on).
        alpha: Share of rows that may lose their true label when candidates are removed, estimated (default: 0.05).
        seed: Decides folds, first weights and the order of rows.
        device: Where to train: auto, cpu or cuda.
    """

    method: str = "proden"
    cleaner: str = "conformal"
    members: Number = None
    folds: Number = None
    epochs: Number = None
    alpha: Share = None
    seed: int = 0
    device: str = "auto"


@dataclass(frozen=True)
class Setting:
    """How prediction sets are made.

    Args:
        kind: Which networks and rows sets go by: split, cv+ or averaged (default: cv+).
        score: How well a class conforms: lac or aps (default: lac).
        candidate: The score of a held-out row: that of its best, mean or worst candidate, pooled or singletons
            (default: best). Guarantees need worst, or rows with one candidate.
    """

    kind: Kind = None
    score: Score = None
    candidate: Candidate = None

    def of(self, alpha: float | None) -> dict[str, Any]:
        """Return the options that were given; they need a level."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if given and alpha is None:
            option = next(iter(given))
            raise ValueError(f"--{option} is for prediction sets; give their level with --alpha, or leave it out")
        return given


@dataclass(frozen=True)
class Telling:
    """What to print.

    Args:
        json: Print one JSON object instead of a summary.
        quiet: Print nothing but errors, and what --json asks for.
    """

    json: Flag = False
    quiet: Flag = False

    def tell(self, lines: Iterable[str], facts: Mapping[str, Any], *, to_stderr: bool = False) -> None:
        """Print a summary, or the facts as JSON."""
        if self.json:
            print(json.dumps(facts).replace("\x7f", r"\u007f"))  # which JSON leaves as it is
        elif not self.quiet:
            for line in lines:
                print(visible(line), file=sys.stderr if to_stderr else sys.stdout)
