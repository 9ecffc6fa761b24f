"""Commands for certified cleaning: verify, certify."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from candidly.cli.options import (
    Columns,
    File,
    Fraction,
    ModelArgument,
    Number,
    OutputOptions,
    Table,
    Text,
)
from candidly.cli.parsing import Named

# Everything heavy is imported by the functions that need it, so that `candidly --help` is immediate.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from candidly.cleaning import Certificate, VerificationPlan
    from candidly.estimator import PartialLabelClassifier

Action = Annotated[Literal["plan", "export"], Named("plan|export", positional=True)]
Format = Annotated[Literal["table", "label-studio"] | None, Named("TEXT")]

_PLAN, _ROW, _CANDIDATES, _ANSWER = "plan", "row", "candidates", "answer"
_FILE = (_PLAN, _ROW, _CANDIDATES, _ANSWER)
_RESULT = (_ROW, _CANDIDATES, "kept", "removed", "checked")


def verify(
    action: Action,
    model: ModelArgument,
    *,
    out: str,
    rows: Number = None,
    alpha: Fraction = None,
    confidence: Fraction = None,
    seed: Number = None,
    sequential: bool = False,
    table: Table = None,
    format: Format = None,
    drop: Columns = None,
    delimiter: Text = None,
    output: OutputOptions,
) -> None:
    """Draw rows to check by hand, so that `candidly certify` can bound the number of lost labels.

    The rows are drawn at random from those in which candidates can be removed. The model's folder records the draw
    before the file is written. The file shows candidates in the order of the classes, and not what the model
    predicts. Fill in the column answer: a class name, "none of these" if no candidate is right, or nothing if you
    cannot tell. Every plan lowers the confidence of later statements about the model. `candidly verify export` writes
    the rows of the last plan again, without a new draw.

    The folder of a finished `candidly clean` of several files works like a model: rows are drawn from all files.

    Args:
        action: plan draws rows; export writes those of the last plan again.
        model: Folder that `candidly fit` wrote; or one that `candidly clean` wrote, with results of all files.
        out: File to write: a table, or - for standard output; with --format label-studio a .json file.
        rows: Number of rows to check; at least 45 at the default --alpha and --confidence.
        alpha: Fraction of all training rows that may lose their true label (default: 0.05).
        confidence: Probability, over the draw, with which the certificate holds (default: 0.9).
        seed: Seed of the draw (default: 0).
        sequential: Allow a certificate after any number of rows, checked in their order, at the cost of some power.
        table: Training table of the model, or the files that were cleaned: copy its columns but candidates and labels.
        format: table or label-studio (default: table).
        drop: Columns of --table that are not copied, separated by commas.
        delimiter: Column delimiter of --table (default: that of the training table; a tab for .tsv files).
    """
    from candidly.cli.checks import check_apart, check_table
    from candidly.cli.models import load
    from candidly.cli.output import describe_plan
    from candidly.cli.stream_verification import Results, is_results
    from candidly.estimator.saving import record_plan
    from candidly.tables import files

    tasks = format == "label-studio"
    with output.hide_warnings():
        new = {"rows": rows, "alpha": alpha, "confidence": confidence, "seed": seed, "sequential": sequential or None}
        given: dict[str, Any] = {name: value for name, value in new.items() if value is not None}
        if action == "plan" and rows is None:
            raise ValueError("verify plan needs --rows, the number of rows to check")
        if action == "export" and given:
            raise ValueError(f"--{next(iter(given))} applies to a new plan; remove it, or use `candidly verify plan`")
        if drop is not None and table is None:
            raise ValueError("--drop applies to the columns of --table; name the table, or remove it")
        if tasks and out == "-":
            raise ValueError("tasks of Label Studio are written to a file; name one that ends in .json with --out")
        if tasks:
            files.check_writable(out, [".json"])
        else:
            check_table(out, [table], output)
        check_apart("the file", out, model)
        if is_results(model):
            results = Results(model, output)
            check = results.plan(given.pop("rows"), **given) if action == "plan" else results.last_plan()
            rows_to_check = _checked_table(check, results.rows_to_check(check, table, drop, delimiter, _FILE))
            _write_to_check(rows_to_check, check, out, results.separator, tasks)
            output.show(*describe_plan(check, model, out, "cleaned/"), to_stderr=out == "-")
            return
        classifier = load(model, output)
        more = None if table is None else _training_table(classifier, table, drop, delimiter, _FILE)
        names = [str(name) for name in classifier.classes_.tolist()]
        if not tasks:
            files.check_names(out, names, _separator(classifier))
        if action == "plan":
            plan = classifier.plan_verification(given.pop("rows"), **given)
            record_plan(model, plan)
        elif not classifier.ledger_:
            raise ValueError(f"{model} has no plan; make one with `candidly verify plan`")
        else:
            plan = classifier.ledger_[-1]
        _write_to_check(_to_check(classifier, plan, more), plan, out, _separator(classifier), tasks)
    output.show(*describe_plan(plan, model, out), to_stderr=out == "-")


def certify(
    model: ModelArgument,
    answers: Annotated[str | None, Named("TABLE", positional=True)] = None,
    *,
    out: str,
    decisions: File = None,
    table: Table = None,
    drop: Columns = None,
    delimiter: Text = None,
    output: OutputOptions,
) -> None:
    """Clean the training rows of a model, with a bound on lost labels from rows that were checked by hand.

    Prints the statement that is certified. The result has one line per training row: candidates, which of them were
    kept and removed, and the answer, where there is one. Rows of the plan without an answer count as lost. Further
    rows may be answered, too: their labels are fixed, but do not count.

    Args:
        model: Folder in which `candidly verify plan` recorded the plan.
        answers: The file that `candidly verify plan` wrote, with answers; the .json file that Label Studio exports
            after its tasks were answered; or any table with the columns row and answer.
        out: Table to write: .csv, .tsv, .parquet, .arrow or .feather, or - for standard output; a folder if several
            files were cleaned.
        decisions: Log of `candidly review`, instead of a file with answers: those that were given in mode verify.
        table: Training table of the model, to copy its other columns.
        drop: Columns of --table that are not copied, separated by commas.
        delimiter: Column delimiter of the file with answers (default: a comma; a tab for .tsv files).
    """
    from candidly.cli.checks import check_apart, check_table
    from candidly.cli.models import load
    from candidly.cli.output import describe_certificate
    from candidly.cli.stream_verification import Results, is_results
    from candidly.tables import files

    with output.hide_warnings():
        if drop is not None and table is None:
            raise ValueError("--drop applies to the columns of --table; name the table, or remove it")
        if (answers is None) == (decisions is None):
            raise ValueError("certify needs answers: give a file with answers, or --decisions, but not both")
        if is_results(model):
            if table is not None:
                raise ValueError("--table cannot be copied to the results of several files, which have ids; remove it")
            if answers is None:
                raise ValueError("--decisions is for a model, not for the results of several files; give the answers")
            results = Results(model, output)
            bound = results.certify(_read_answers(results.ledger, results.classes, answers, delimiter), out)
            output.show(*describe_certificate(bound, out))
            return
        check_table(out, [answers, table], output)
        check_apart("the table", out, model)
        classifier = load(model, output)
        files.check_names(out, [str(name) for name in classifier.classes_.tolist()], _separator(classifier))
        more = None if table is None else _training_table(classifier, table, drop, None, _RESULT)
        if answers is None:
            found = _read_verified(classifier, decisions)
        else:
            found = _read_answers(classifier.ledger_, classifier.model_.classes, answers, delimiter)
        certificate = classifier.certify(found)
        files.write(_to_result(classifier, certificate, found, more), out, separator=_separator(classifier))
    output.show(*describe_certificate(certificate, out), to_stderr=out == "-")


def _separator(classifier: "PartialLabelClassifier") -> str:
    return "|" if classifier.schema_ is None else classifier.schema_.separator


def _training_table(
    classifier: "PartialLabelClassifier",
    table: str,
    drop: str | None,
    delimiter: str | None,
    results: tuple[str, ...],
) -> Any:
    """Read the columns of the training table that are copied; raise ValueError if one has the name of a result."""
    from candidly.tables import labelled

    _, found = read_training_table(classifier, table, drop, delimiter)
    for column in found.column_names:
        if column in results:
            name = labelled.name_of(table)
            raise ValueError(f"{name} has a column {column!r}, like one of the result; rename it, or --drop {column}")
    return found


def read_training_table(
    classifier: "PartialLabelClassifier", table: str, drop: str | None, delimiter: str | None
) -> tuple[Any, Any]:
    """Read the training table of a model; return its features, and it without candidates, labels and dropped columns.

    Raise ValueError if the model was trained on another table.
    """
    from candidly.cli.options import split_names
    from candidly.cli.reading import naming, read_new_rows
    from candidly.tables import labelled
    from candidly.tables.schema import check_column

    name, schema = labelled.name_of(table), classifier.schema_
    rows, found = read_new_rows(table, classifier.features_, schema, {}, None, delimiter)
    dropped = split_names(drop, "--drop")
    for column in dropped:
        check_column(found, name, column, "--drop")
    record = classifier.fit_record_
    if record is not None:  # without it, the classifier refuses to plan and certify
        with naming(name):
            same = found.num_rows == len(record.candidates) and classifier.is_trained_on(rows, record.candidates)
        if not same:
            raise ValueError(f"{name} is not the table that the model was trained on; name that one with --table")
    hidden = {*dropped, _CANDIDATES} if schema is None else {*dropped, schema.candidates, schema.labels}
    return rows, found.select([column for column in found.column_names if column not in hidden])


def _to_check(classifier: "PartialLabelClassifier", plan: "VerificationPlan", more: Any) -> Any:
    """Return the rows of a plan as an Arrow table with an empty column for answers."""
    import pyarrow as pa

    from candidly.tables.class_columns import set_column

    assert classifier.fit_record_ is not None, "there is a plan"
    candidates = classifier.fit_record_.candidates
    chosen = list(plan.rows)
    sets = set_column(candidates.matrix[chosen], [str(name) for name in candidates.classes])
    if more is None:
        return _checked_table(plan, pa.table({_CANDIDATES: sets}))
    return _checked_table(plan, more.take(pa.array(chosen)).append_column(_CANDIDATES, sets))


def _checked_table(plan: "VerificationPlan", rows: Any) -> Any:
    """Return the columns of the rows of a plan with the plan, their numbers, and an empty column for answers."""
    import pyarrow as pa

    columns: dict[str, Any] = {_PLAN: pa.array([_title(plan)] * plan.m), _ROW: pa.array(list(plan.rows))}
    columns |= dict(zip(rows.column_names, rows.columns, strict=True))
    return pa.table(columns | {_ANSWER: pa.nulls(plan.m, pa.string())})


def _write_to_check(table: Any, plan: "VerificationPlan", out: str, separator: str, tasks: bool) -> None:
    """Write the rows of a plan as a table, or as tasks of Label Studio."""
    from candidly import store
    from candidly.tables import files

    if tasks:
        store.replace(out, _to_tasks(table, plan))
    else:
        files.write(table, out, separator=separator)


def _to_tasks(table: Any, plan: "VerificationPlan") -> bytes:
    """Return the rows of a plan as tasks of Label Studio, in JSON."""
    import json

    from candidly.estimator.verification import NOT_A_CANDIDATE, UNKNOWN
    from candidly.tables.labelled import column_texts

    table = table.drop_columns([_ANSWER])
    lists = table.column(_CANDIDATES).to_pylist()
    texts = {
        name: column_texts(table.column(name), f"column {name!r}") for name in table.column_names if name != _CANDIDATES
    }
    tasks = []
    for i, (row, names) in enumerate(zip(plan.rows, lists, strict=True)):
        data: dict[str, Any] = {name: values[i] or "" for name, values in texts.items()}
        data |= {_ROW: row, _CANDIDATES: " | ".join(names)}
        data["choices"] = [{"value": name} for name in (*names, NOT_A_CANDIDATE, UNKNOWN)]
        tasks.append({"data": data})
    return (json.dumps(tasks, indent=1) + "\n").encode()


def _title(plan: "VerificationPlan") -> str:
    return f"plan {plan.number} of {plan.family}"


def _read_answers(
    ledger: "Sequence[VerificationPlan]", classes: tuple[Any, ...], file: str, delimiter: str | None
) -> dict[int, Any]:
    """Read the answers by row; rows without an answer are left out. Errors name the file."""
    from candidly.cli.reading import read_answers as read_file
    from candidly.estimator.verification import read_answers
    from candidly.tables import labelled

    name = labelled.name_of(file)
    answers, plans = read_file(file, classes, delimiter)
    if not ledger:
        raise ValueError("the model has no plan; make one with `candidly verify plan` before rows are checked")
    if plans is not None:
        for title in plans:
            if title is not None and title != _title(ledger[-1]):
                raise ValueError(
                    f"{name} holds rows of {title!r}, but the last plan of the model is {_title(ledger[-1])!r}; name "
                    "the file with its rows, or the model that this file belongs to"
                )
    found = {row: answer for row, answer in answers.items() if answer is not None}
    try:
        read_answers(found, ledger[-1], classes)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return found


def _read_verified(classifier: "PartialLabelClassifier", log: Any) -> dict[int, Any]:
    """Return the answers to the last plan by row, from a log of decisions."""
    from candidly.review import Log

    found, ledger = Log(log), classifier.ledger_
    if not ledger:
        raise ValueError("the model has no plan; make one with `candidly verify plan` before rows are checked")
    answers = found.verified(ledger[-1], classifier.model_.classes)
    if not answers:
        raise ValueError(
            f"{log} has no answer to {_title(ledger[-1])!r} of the model; verify its rows with `candidly review`, or "
            "name the log and the model that belong together"
        )
    return answers


def _to_result(
    classifier: "PartialLabelClassifier", certificate: "Certificate", answers: dict[int, Any], more: Any
) -> Any:
    """Return the certified rows as an Arrow table."""
    import numpy as np
    import pyarrow as pa

    from candidly.tables.class_columns import set_column

    assert classifier.fit_record_ is not None, "there is a certificate"
    before, after = classifier.fit_record_.candidates.matrix, certificate.candidates.matrix
    names = [str(name) for name in certificate.candidates.classes]
    columns: dict[str, Any] = {_ROW: pa.array(np.arange(len(before)))}
    if more is not None:
        columns |= dict(zip(more.column_names, more.columns, strict=True))
    columns |= {_CANDIDATES: set_column(before, names), "kept": set_column(after, names)}
    columns["removed"] = set_column(before & ~after, names)
    checked = [answers.get(row) for row in range(len(before))]
    columns["checked"] = pa.array([None if answer is None else str(answer) for answer in checked], pa.string())
    return pa.table(columns)
