"""`candidly fit` under torchrun: each process trains on its share of the rows, and the first one writes the model."""

import tempfile
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from candidly.cli.checks import check_apart, check_folder, check_folds, check_page
from candidly.cli.options import OutputOptions, ReadingOptions, TrainingOptions
from candidly.cli.output import describe_report, describe_size, name_place, write_page
from candidly.cli.reading import read_share
from candidly.cli.results import check_cleaned, cleaned_table, training_rows
from candidly.cli.training import train
from candidly.engine.ranks import Group, find_group
from candidly.estimator import PartialLabelClassifier
from candidly.report import saved, summarise
from candidly.tables import files


def check_alone(command: str) -> None:
    """Raise ValueError under torchrun, for a command that trains in one process."""
    group = find_group()
    if not group.alone:
        raise ValueError(
            f"`candidly {command}` works in one process, and torchrun started {group.size}; run it without torchrun, "
            "or train with `torchrun ... -m candidly fit`"
        )


def fit_share(
    group: Group,
    table: str,
    candidates: str,
    out: Path,
    cleaned: str | None,
    report: Path | None,
    lean: bool,
    reading: ReadingOptions,
    training: TrainingOptions,
    output: OutputOptions,
) -> None:
    """Train on the rows of this process. The cleaned rows of each process are one file in the folder `cleaned`."""
    main = group.rank == 0
    own = None if cleaned is None else _place(cleaned, group)
    if not main:
        output = replace(output, quiet=True)
    with warnings.catch_warnings(action="ignore") if output.quiet else nullcontext():
        replaced = check_folder(out)
        check_page(report, out)
        if own is not None:
            check_folds(training.folds)
            check_apart("the folder of cleaned rows", own.parent, out)
        with output.busy(f"reading {table}"):
            rows = read_share(table, candidates, reading, group.rank, group.size)
        if own is not None:
            check_cleaned(rows.schema, rows.candidates.classes, str(own))
        classifier = train(rows, training, output)
        if own is not None:
            own.parent.mkdir(parents=True, exist_ok=True)
            files.write(cleaned_table(rows, training_rows(classifier), str(own)), own, separator=rows.schema.separator)
        if not main:
            return
        with output.busy("estimating what cleaning costs"), tempfile.TemporaryDirectory() as folder:
            classifier.save(folder)
            facts = summarise(PartialLabelClassifier.load(folder), rows.title)  # of the rows that the model keeps
        with output.busy("writing the results"):
            with files.writing(out):
                classifier.save(out, {saved.FILE: saved.to_bytes(facts)}, lean=lean)
            write_page(facts, report)
    places = {"model": out, "cleaned": None if own is None else str(own.parent), "report": report}
    lines, found = describe_report(facts, places)
    size, sizes = describe_size(out, classifier, lean)
    lines.append(size)
    if replaced:
        lines.append(f"the model that {name_place(out)} held before was replaced")
    output.show(lines, found | sizes | {"replaced": replaced, "ranks": group.size})


def _place(cleaned: str, group: Group) -> Path:
    """Return the file for the cleaned rows of this process."""
    if cleaned == "-" or (files.suffix_of(cleaned) in files.SUFFIXES and not Path(cleaned).is_dir()):
        raise ValueError(
            f"--cleaned is {cleaned!r}, but {group.size} processes write their cleaned rows; name a folder, such as "
            "cleaned/"
        )
    return Path(cleaned) / f"part-{group.rank + 1}-of-{group.size}.parquet"
