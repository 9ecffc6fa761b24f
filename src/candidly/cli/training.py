"""Commands that train: fit, clean, audit."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from candidly.cli.options import (
    CleaningOptions,
    File,
    Levels,
    OutputOptions,
    ReadingOptions,
    RequiredColumn,
    TableArgument,
    TrainingOptions,
)

# Everything heavy is imported by the functions that need it, so that `candidly --help` is immediate.
if TYPE_CHECKING:
    from candidly.estimator import PartialLabelClassifier
    from candidly.tables.labelled import Labelled

_RESULT = ("candidates", "kept", "removed", "predicted", "confidence", "scores", "true")


def fit(
    table: TableArgument,
    *,
    candidates: RequiredColumn,
    out: Path,
    report: File = None,
    reading: ReadingOptions,
    training: TrainingOptions,
    output: OutputOptions,
) -> None:
    """Train a model on a table with candidates, and save it.

    All columns that no option names are features: numbers, dates or text, with or without missing values.

    Args:
        table: A .csv, .tsv, .parquet, .arrow or .feather file, or - for standard input.
        candidates: Column of candidates: text such as cat|dog, or lists.
        out: Folder for the model.
        report: Also write an HTML report to this file (.html).
    """
    from candidly.cli.checks import check_base, check_folder, check_page
    from candidly.cli.output import describe_report, name_place, write_page
    from candidly.cli.reading import read
    from candidly.report import saved, summarise
    from candidly.tables import files

    with output.hide_warnings():
        replaced = check_folder(out)
        check_page(report, out)
        check_base(training.base)
        rows = read(table, candidates, reading)
        classifier = _train(rows, training, output)
        facts = summarise(classifier, rows.title, rows.ids, rows.labels)
        with files.writing(out):
            classifier.save(out, {saved.FILE: saved.to_bytes(facts)})
        write_page(facts, report)
    lines, found = describe_report(facts, {"model": out, "report": report})
    if replaced:
        lines.append(f"the model that {name_place(out)} held before was replaced")
    output.show(lines, found | {"replaced": replaced})


def clean(options: CleaningOptions, *, out: str) -> None:
    """Remove unlikely candidates from a table, or from the votes of annotators.

    Networks that were not trained on a row score its candidates. The result has one line per row: id, candidates,
    which of them were kept and removed, predicted class, confidence, and scores: the estimated probability that a
    removed candidate was the true label. Run `candidly audit` first to see what cleaning costs.

    Args:
        out: Table to write: .csv, .tsv, .parquet, .arrow or .feather, or - for standard output.
    """
    from candidly.cli.checks import check_folds, check_id, check_page, check_source, check_table
    from candidly.cli.output import describe_report, describe_votes, write_page
    from candidly.cli.reading import read_source
    from candidly.report import summarise
    from candidly.tables import files

    output, separator = options.output, options.reading.separator
    with output.hide_warnings():
        check_folds(options.training.folds)
        check_source(options)
        check_table(out, (options.table, options.votes.annotations, options.votes.features), output)
        check_page(options.report, out)
        rows, votes = read_source(options)
        check_id(rows.schema.id, _RESULT)
        files.check_names(out, [str(name) for name in rows.candidates.classes], separator)
        classifier = _train(rows, options.training, output)
        facts = summarise(classifier, rows.title, rows.ids, rows.labels)
        files.write(_result(rows, classifier, out), out, separator=separator)
        write_page(facts, options.report)
    lines, found = describe_report(facts, {"cleaned": out, "report": options.report})
    before, agreement = describe_votes(votes)
    output.show([*before, *lines], found | agreement, to_stderr=out == "-")


def audit(options: CleaningOptions, *, alphas: Levels = None) -> None:
    """Estimate what cleaning would cost at several levels, without writing a table.

    Trains as `clean` does. For each level, prints the estimated fraction of rows that would lose their true label, the
    estimated fraction of wrong candidates that would be removed (both with 90% intervals), and the number of candidates
    removed; with --labels, also the true fractions. Then lists classes that cannot be told apart or have too few
    rows. These are estimates without a guarantee: they assume that the true label is a candidate, and that wrong
    candidates depend on the features no more than in the synthetic sets that were tested.

    Args:
        alphas: Levels besides --alpha, separated by commas (default: 0.01,0.02,0.05,0.1,0.15,0.2,0.3).
    """
    from candidly.cleaning.budget import MIN_ROWS
    from candidly.cli.checks import check_folds, check_page, check_source
    from candidly.cli.output import describe_audit, describe_votes, write_page
    from candidly.cli.reading import read_source
    from candidly.report import summarise

    with options.output.hide_warnings():
        check_folds(options.training.folds)
        check_source(options)
        check_page(options.report)
        levels = _read_levels(alphas)
        rows, votes = read_source(options)
        if len(rows.candidates) < MIN_ROWS:
            raise ValueError(f"{rows.title} has {len(rows.candidates)} rows; an audit needs at least {MIN_ROWS}")
        classifier = _train(rows, options.training, options.output)
        facts = summarise(classifier, rows.title, rows.ids, rows.labels, levels)
        write_page(facts, options.report)
    lines, found = describe_audit(facts, options.report)
    before, agreement = describe_votes(votes)
    options.output.show([*before, *lines], found | agreement)


def _read_levels(text: str | None) -> tuple[float, ...]:
    """Read levels that are separated by commas; return the default levels if there is no text.

    Examples
    --------
    >>> _read_levels(".1, 0.02")
    (0.1, 0.02)
    """
    from candidly.cleaning.audit import ALPHAS
    from candidly.conformal.calibration import MOST_LEVELS

    if text is None:
        return ALPHAS
    if text.count(",") >= MOST_LEVELS - 1:  # --alpha is one more
        raise ValueError(f"--alphas has {text.count(',') + 1} levels; give fewer than {MOST_LEVELS}")
    advice = f"--alphas is {text!r}; give levels between 0 and 1, separated by commas, such as 0.02,0.05"
    try:
        levels = tuple(map(float, text.split(",")))
    except ValueError:
        raise ValueError(advice) from None
    if not all(0 < level < 1 for level in levels):
        raise ValueError(advice)
    return levels


def _train(rows: "Labelled", training: TrainingOptions, output: OutputOptions) -> "PartialLabelClassifier":
    from candidly.cli.reading import naming
    from candidly.estimator import PartialLabelClassifier

    n = len(rows.candidates)
    if training.folds is not None and training.folds > n:
        raise ValueError(f"folds is {training.folds} but there are {n} rows; use fewer folds, or add rows")
    given: dict[str, Any] = {"members": training.members, "folds": training.folds, "alpha": training.alpha}
    given |= {"max_epochs": training.epochs, "base": training.base}
    classifier = PartialLabelClassifier(
        training.method,
        None if training.cleaner == "none" else training.cleaner,
        **{name: value for name, value in given.items() if value is not None},
        force_cleaning=training.force_cleaning,
        device=training.device,
        random_state=training.seed,
        verbose=int(output.progress),
    )
    with naming(rows.title):
        classifier.fit(rows.features, rows.candidates, weights=rows.weights, groups=rows.groups)
    classifier.schema_ = rows.schema
    return classifier


def _result(rows: "Labelled", classifier: "PartialLabelClassifier", out: str) -> Any:
    """Return the cleaned rows as an Arrow table."""
    import numpy as np
    import pyarrow as pa

    from candidly.tables import files
    from candidly.tables.class_columns import score_column, set_column

    before, after, names = rows.candidates.matrix, classifier.candidates_.matrix, classifier.classes_.tolist()
    removed = before & ~after
    ids = pa.array(np.arange(len(before))) if rows.id_column is None else rows.id_column
    columns = {
        rows.schema.id or "row": ids,
        "candidates": set_column(before, names),
        "kept": set_column(after, names),
        "removed": set_column(removed, names),
        "predicted": pa.array(classifier.transduction_.tolist(), pa.string()),
        "confidence": pa.array(classifier.confidence_, pa.float32()),
        "scores": score_column(removed, classifier.candidate_proba_, names, with_names=files.is_text_file(out)),
    }
    return pa.table(columns | ({} if rows.labels is None else {"true": pa.array(rows.labels, pa.string())}))
