"""Commands that train: fit, clean, audit."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from candidly.cli.options import (
    CleaningOptions,
    Column,
    File,
    Levels,
    Number,
    OutputOptions,
    ReadingOptions,
    Table,
    TableOption,
    Text,
    ToolOptions,
    TrainingOptions,
    VoteOptions,
)

# Everything heavy is imported by the functions that need it, so that `candidly --help` is immediate.
if TYPE_CHECKING:
    from candidly.candidates.votes import Votes
    from candidly.estimator import Cleaned, PartialLabelClassifier
    from candidly.review.merging import Merged
    from candidly.tables.labelled import Labelled


def fit(
    table: TableOption = None,
    *,
    candidates: Column = None,
    out: Path,
    decisions: File = None,
    cleaned: Table = None,
    report: File = None,
    lean: bool = False,
    votes: VoteOptions,
    reading: ReadingOptions,
    training: TrainingOptions,
    output: OutputOptions,
) -> None:
    """Train a model on a table with candidates, or on the votes of annotators, and save it.

    All columns that no option names are features: numbers, dates or text, with or without missing values. The model
    keeps the candidates of its rows and their held-out probabilities, so that `clean` and `audit` need not train again
    (--model). With votes (--annotations, --features), it also keeps who voted for what, and how often each annotator is
    right.

    Under torchrun (`torchrun --standalone --nproc-per-node 2 -m candidly fit 'rows/*.parquet' ...`) each process trains
    on its share of the rows, all train the same networks, and --cleaned is a folder with one file per process.

    Args:
        table: A .csv, .tsv, .parquet, .arrow or .feather file, or - for standard input; a .mat or .npz file, which
            needs no --candidates; or several files: a folder, or a pattern in quotes such as 'rows/*.parquet'.
        candidates: Column of candidates: text such as cat|dog, or lists.
        out: Folder for the model.
        decisions: Log of `candidly review`, or a .json file that Label Studio exported: rows that were decided have a
            single candidate.
        cleaned: Also write the table that `candidly clean` writes: a file, or - for standard output.
        report: Also write an HTML report to this file (.html).
        lean: Leave the training rows out of the model; then it can predict, and clean other rows, but not be audited.
    """
    from candidly.cli.checks import (
        check_apart,
        check_base,
        check_folder,
        check_folds,
        check_page,
        check_source,
        check_table,
    )
    from candidly.cli.output import describe_report, describe_size, describe_votes, name_place, write_page
    from candidly.cli.ranks import fit_share
    from candidly.cli.reading import read_share
    from candidly.cli.results import check_cleaned, cleaned_table, training_rows
    from candidly.engine.ranks import find_group
    from candidly.report import saved, summarise
    from candidly.tables import files
    from candidly.tables.parts import is_several

    options = CleaningOptions(
        table=table, candidates=candidates, votes=votes, reading=reading, training=training, output=output
    )
    check_source(options)
    group = find_group()
    if not group.alone:
        if decisions is not None:
            raise ValueError("--decisions cannot be used under torchrun; train on what `candidly apply` writes")
        if table is None or candidates is None:
            raise ValueError(
                f"--annotations is read by one process, and torchrun started {group.size}; run it without torchrun"
            )
        fit_share(group, table, candidates, out, cleaned, report, lean, reading, training, output)
        return
    with output.hide_warnings():
        replaced = check_folder(out)
        check_page(report, out)
        check_base(training.base)
        if cleaned is not None:
            check_folds(training.folds)
            if cleaned != "-":
                check_apart("the table", cleaned, out)
            check_table(cleaned, [table, votes.annotations, votes.features], output, "--cleaned")
        counted = None
        if table is not None and candidates is not None and is_several(table):
            with output.busy(f"reading {table}"):
                rows = read_share(table, candidates, reading)
        else:
            rows, counted, _ = _read(options)
        if decisions is not None:
            rows = _decided_rows(rows, _merge(rows, decisions))
        if cleaned is not None:
            check_cleaned(rows.schema, rows.candidates.classes, cleaned)
        classifier = train(rows, training, output)
        with output.busy("estimating what cleaning costs"):
            facts = summarise(classifier, rows.title, rows.ids, rows.labels)
        with output.busy("writing the results"):
            with files.writing(out):
                classifier.save(out, {saved.FILE: saved.to_bytes(facts)}, lean=lean)
            if cleaned is not None:
                result = cleaned_table(rows, training_rows(classifier), cleaned, classifier=classifier)
                files.write(result, cleaned, separator=rows.schema.separator)
            write_page(facts, report)
    lines, found = describe_report(facts, {"model": out, "cleaned": cleaned, "report": report})
    before, known = describe_votes(counted, rows, classifier)
    lines, found = [*before, *lines], found | known
    size, sizes = describe_size(out, classifier, lean)
    lines.append(size)
    if replaced:
        lines.append(f"the model that {name_place(out)} held before was replaced")
    output.show(lines, found | sizes | {"replaced": replaced}, to_stderr=cleaned == "-")


def clean(
    options: CleaningOptions,
    *,
    out: str,
    decisions: File = None,
    train_rows: Number = None,
    shard: Text = None,
    tools: ToolOptions,
) -> None:
    """Remove unlikely candidates from a table, or from the votes of annotators.

    Networks that were not trained on a row score its candidates. The result has one line per row: id, candidates,
    which of them were kept and removed, and the predicted candidate. Then confidence: the estimated probability that
    the predicted candidate is the true label; priority: the order in which to review the rows, from 1; scores: that
    probability for every candidate; and the class outside the candidates that the networks prefer, if there is one.
    With votes, labels and probabilities come from the networks and from how often each annotator is right; the majority
    is a column beside them, and rows without votes are predicted.
    Run `candidly audit` first for a guess of what cleaning costs.

    With --model nothing is trained. If the model was trained on this table, its held-out results are used. Otherwise
    the rows are new: the mean of all networks scores them, and candidates up to the model's class limits are removed,
    without an estimate of what that costs.

    A table larger than memory may be in several files: the table is then a folder, or a pattern in quotes such as
    'part-*.parquet', and --out a folder. Every file gives one file with the same name. Give --model, or --train-rows to
    train on a sample of all rows. Run the command again to go on after it was interrupted. There is no column priority.

    Args:
        out: Table to write: .csv, .tsv, .parquet, .arrow or .feather, or - for standard output; or a folder; with
            --format label-studio a .json file.
        decisions: Log of `candidly review`, or a .json file that Label Studio exported: rows that were decided have a
            single candidate.
        train_rows: With a folder: number of rows to train on, drawn at random from all files.
        shard: With a folder: take every n-th file, such as 3/16 for files 3, 19, 35, ... of 16 processes.
    """
    from candidly.cli.output import describe_new_rows, describe_report, describe_reuse, describe_votes, write_page
    from candidly.cli.ranks import check_alone
    from candidly.cli.reading import naming
    from candidly.cli.results import check_cleaned, cleaned_table, training_rows
    from candidly.cli.streams import clean_stream, is_stream
    from candidly.cli.suggestions import all_features, write_result
    from candidly.report import summarise

    check_alone("clean")
    in_folder = is_stream(options.table, out)
    _check_cleaning(options, out, decisions, train_rows, shard, tools, in_folder)
    if in_folder:
        clean_stream(options, out, train_rows, shard)
        return
    output = options.output
    with output.hide_warnings():
        rows, votes, known = _read(options)
        merged = None if decisions is None else _merge(rows, decisions)
        if merged is not None and known is None:
            rows = _decided_rows(rows, merged)
        elif merged is not None and merged.added:
            raise ValueError(
                f"{decisions} adds the class {merged.added[0]!r}, which {options.model} does not have; remove --model "
                "to train again"
            )
        classes = [str(name) for name in rows.candidates.classes]
        check_cleaned(rows.schema, classes, out)
        new = known is not None and not _is_trained_on(known, rows, options.model, output)
        if new and options.report is not None:
            raise ValueError(f"--report describes training rows, and those of {rows.title} are new; remove --report")
        if known is not None:
            set_level(known, options)
        classifier = train(rows, options.training, output) if known is None else known
        facts = None
        if new:
            with naming(rows.title):
                cleaned = classifier.clean_all(rows.features, rows.candidates)
        else:
            with output.busy("estimating what cleaning costs"):
                facts = summarise(classifier, rows.title, rows.ids, rows.labels)
            cleaned = training_rows(classifier)
        if merged is not None and known is not None:
            cleaned = _decide(cleaned, merged)
        with output.busy("writing the results"):
            result = cleaned_table(rows, cleaned, out, classifier=classifier)
            fields = all_features(rows, result.num_rows)
            version = "candidly" if options.model is None else options.model.name
            separator = rows.schema.separator
            write_result(
                result, fields, out, tools, classes=classes, version=version, separator=separator, export=rows.export
            )
            if facts is not None:
                write_page(facts, options.report)
        places = {"cleaned": out, "report": options.report}
        if facts is None:
            lines, found = describe_new_rows(rows, cleaned, classifier, options.model, places)
        else:
            lines, found = describe_reuse(*describe_report(facts, places), options.model)
        before, agreement = describe_votes(votes, rows, None if new else classifier)
    output.show([*before, *lines], found | agreement, to_stderr=out == "-")


def _check_cleaning(
    options: CleaningOptions,
    out: str,
    decisions: Path | None,
    train_rows: int | None,
    shard: str | None,
    tools: ToolOptions,
    in_folder: bool,
) -> None:
    """Raise unless the options of `clean` go together and its results can be written."""
    from candidly.cli.checks import check_folds, check_model, check_page, check_source
    from candidly.cli.suggestions import check_result

    if in_folder:
        if tools != ToolOptions():
            raise ValueError("--format is for results in one file, and --out is a folder; clean a table into a file")
        if decisions is not None:
            raise ValueError("--decisions is about one table, and --out is a folder; clean that table into a file")
        return
    for option, value in (("--train-rows", train_rows), ("--shard", shard)):
        if value is not None:
            raise ValueError(f"{option} applies to results in a folder; name one with --out, such as out/")
    check_folds(options.training.folds)
    check_source(options)
    check_model(options)
    tables = (options.table, options.votes.annotations, options.votes.features)
    check_result(out, tables, tools, options.output)
    check_page(options.report, out)


def audit(options: CleaningOptions, *, alphas: Levels = None, verified: Table = None) -> None:
    """Guess what cleaning would cost at several levels, without writing a table.

    Trains as `clean` does, or uses the model of --model, which must have been trained on this table. For each level,
    prints a guessed range for the fraction of rows that would lose their true label, one for the fraction of wrong
    candidates that would be removed, the number of candidates removed, and how many rows to check to certify the level
    (`candidly verify plan`); with --labels, also the true fractions. Then lists classes that cannot be told apart or
    have too few rows. Without true labels these are guesses, not measurements. With --verified, exact 90% intervals
    from rows that were checked by hand stand beside them; the rows must be drawn at random, not chosen.

    Args:
        alphas: Levels besides --alpha, separated by commas (default: 0.01,0.02,0.05,0.1,0.15,0.2,0.3).
        verified: Table of checked rows with the columns row (from 0) and answer, as `candidly verify plan` writes it.
    """
    from candidly.cleaning.budget import MIN_ROWS
    from candidly.cli.checks import check_folds, check_model, check_page, check_source
    from candidly.cli.output import describe_audit, describe_reuse, describe_status, describe_votes, write_page
    from candidly.cli.ranks import check_alone
    from candidly.cli.reading import read_checked
    from candidly.report import summarise

    check_alone("audit")
    with options.output.hide_warnings():
        check_folds(options.training.folds)
        check_source(options)
        check_model(options)
        check_page(options.report)
        levels = _read_levels(alphas)
        rows, votes, known = _read(options)
        if len(rows.candidates) < MIN_ROWS:
            raise ValueError(f"{rows.title} has {len(rows.candidates)} rows; an audit needs at least {MIN_ROWS}")
        if known is not None and not _is_trained_on(known, rows, options.model, options.output):
            raise ValueError(
                f"{options.model} was not trained on {rows.title}, or not on all of its rows in this order, and only "
                "its held-out rows can be audited; remove --model to train, or clean these rows with `candidly clean`"
            )
        if known is not None and known.budget_ is None:
            held_out = int(known.calibration_.counts.sum())
            raise ValueError(
                f"{options.model} has {held_out} held-out rows, and an audit needs at least {MIN_ROWS}; remove "
                "--model, or fit the model with --folds 5"
            )
        checked = None if verified is None else read_checked(verified, rows.candidates, known is not None)
        if known is not None:
            set_level(known, options)
        classifier = train(rows, options.training, options.output) if known is None else known
        with options.output.busy("estimating what cleaning costs"):
            facts = summarise(classifier, rows.title, rows.ids, rows.labels, levels, checked)
        write_page(facts, options.report)
    lines, found = describe_reuse(*describe_audit(facts, options.report), options.model)
    before, agreement = describe_votes(votes, rows, classifier)
    options.output.show([describe_status(facts), *before, *lines], found | agreement)


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


def _read(options: CleaningOptions) -> "tuple[Labelled, Votes | None, PartialLabelClassifier | None]":
    """Read the rows, and the model of --model, if it is given."""
    from candidly.cli.models import load
    from candidly.cli.reading import read_source

    known = None if options.model is None else load(options.model, options.output)
    with options.output.busy(f"reading {options.table or options.votes.annotations}"):
        return *read_source(options, known), known


def _is_trained_on(
    classifier: "PartialLabelClassifier", rows: "Labelled", model: Path | None, output: OutputOptions
) -> bool:
    """Return whether a model was trained on these rows; raise ValueError if it was, but does not know them any more."""
    from candidly.cli.reading import naming

    with naming(rows.title), output.busy("comparing the rows with those of the model"):
        same = classifier.is_trained_on(rows.features, rows.target)
    if same and classifier.fit_record_ is None:
        raise ValueError(
            f"{model} was trained on {rows.title}, but it was saved without its rows, so their held-out results are "
            "not known; remove --model to train again, or fit the model without --lean"
        )
    return same


def set_level(classifier: "PartialLabelClassifier", options: CleaningOptions) -> None:
    """Clean the training rows of a model again if --alpha or --force-cleaning asks for something else."""
    from candidly.checks.arguments import fraction

    level = None if options.training.alpha is None else fraction("alpha", options.training.alpha)
    force = options.training.force_cleaning
    other = level is not None and level != classifier.alpha_
    if other and classifier.fit_record_ is None:
        raise ValueError(
            f"alpha is {level}, but {options.model} was saved without its training rows, so only its level "
            f"{classifier.alpha_} is known; remove --alpha, or fit the model without --lean"
        )
    classifier.set_params(**({"alpha": level} if other else {}), **({"force_cleaning": True} if force else {}))
    if classifier.fit_record_ is not None and (other or force):
        classifier.reclean()


def train(rows: "Labelled", training: TrainingOptions, output: OutputOptions) -> "PartialLabelClassifier":
    """Train a classifier."""
    from candidly.cli.reading import naming
    from candidly.estimator import PartialLabelClassifier

    n = len(rows.candidates)
    if training.folds is not None and training.folds > n:
        raise ValueError(f"folds is {training.folds} but there are {n} rows; use fewer folds, or add rows")
    given: dict[str, Any] = {"method": training.method, "quality": training.quality}
    given |= {"members": training.members, "folds": training.folds}
    given |= {"max_epochs": training.epochs, "lr": training.lr, "alpha": training.alpha}
    given |= {"device": training.device, "base": training.base}
    given = {name: value for name, value in given.items() if value is not None}
    if training.cleaner is not None:
        given["cleaner"] = None if training.cleaner == "none" else training.cleaner
    classifier = PartialLabelClassifier(
        **given,
        force_cleaning=training.force_cleaning,
        random_state=0 if training.seed is None else training.seed,
        verbose=int(output.progress),
    )
    with naming(rows.title):
        classifier.fit(rows.features, rows.target, groups=rows.groups)
    classifier.schema_ = rows.schema
    return classifier


def _merge(rows: "Labelled", decisions: Path) -> "Merged":
    """Merge the decisions of a log into the candidates of a table."""
    from candidly.cli.review import read_log
    from candidly.review.merging import Rows, merge

    log = read_log(decisions, rows.schema)
    return merge(log, Rows.of(rows.title, rows.features, rows.ids, log.sessions[-1]), rows.candidates)


def _decided_rows(rows: "Labelled", merged: "Merged") -> "Labelled":
    """Return rows with the candidates after decisions, to train on; raise ValueError if they come from votes."""
    import dataclasses

    if rows.votes is not None:
        raise ValueError(
            "--decisions cannot be combined with --annotations for training; write a table of candidates with "
            "`candidly apply` and its --model, and train on that"
        )
    return dataclasses.replace(rows, candidates=merged.candidates)


def _decide(cleaned: "Cleaned", merged: "Merged") -> "Cleaned":
    """Return rows after cleaning with the classes that were decided; rows with another answer are unchanged."""
    import dataclasses

    import numpy as np

    from candidly.candidates import Candidates

    classes = cleaned.candidates.classes
    number = {str(name): j for j, name in enumerate(classes)}
    decided = {row: number[answer] for row, answer in merged.answers.items() if answer in number}
    rows, columns = list(decided), list(decided.values())
    kept, p = cleaned.kept.matrix.copy(), cleaned.candidate_proba.copy()
    transduction, confidence = cleaned.transduction.copy(), cleaned.confidence.copy()
    outside, outside_p = cleaned.outside.copy(), cleaned.outside_proba.copy()
    kept[rows], p[rows] = False, 0.0
    kept[rows, columns], p[rows, columns] = True, 1.0
    transduction[rows] = [classes[j] for j in columns]
    confidence[rows], outside[rows], outside_p[rows] = 1.0, None, 0.0
    priority = np.empty_like(cleaned.priority)
    priority[np.lexsort((-outside_p, confidence))] = np.arange(1, len(priority) + 1)
    return dataclasses.replace(
        cleaned,
        kept=Candidates(kept, classes),
        transduction=transduction,
        confidence=confidence,
        candidate_proba=p,
        priority=priority,
        outside=outside,
        outside_proba=outside_p,
    )
