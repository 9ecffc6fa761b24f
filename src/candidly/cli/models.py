"""Commands that use a model: predict, evaluate, report, export."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from candidly.cli.options import (
    Candidate,
    Column,
    Columns,
    File,
    Fraction,
    ModelArgument,
    OutputOptions,
    RequiredColumn,
    SetOptions,
    TableArgument,
    Text,
    ToolOptions,
)

# Everything heavy is imported by the functions that need it, so that `candidly --help` is immediate.
if TYPE_CHECKING:
    from candidly.estimator import PartialLabelClassifier


def predict(
    model: ModelArgument,
    table: TableArgument,
    *,
    out: str,
    alpha: Fraction = None,
    sets: SetOptions,
    max_risk: Fraction = None,
    id: Column = None,
    drop: Columns = None,
    separator: str = "|",
    delimiter: Text = None,
    shard: Text = None,
    tools: ToolOptions,
    output: OutputOptions,
) -> None:
    """Predict the classes of new rows with a model.

    The table needs the model's feature columns. Its columns of ids, candidates, labels and groups are ignored if
    present. A table larger than memory may be in several files: the table is then a folder, or a pattern in quotes such
    as 'part-*.parquet', and --out a folder. Run the command again to go on after it was interrupted.

    Args:
        model: Folder that `candidly fit` wrote.
        table: A .csv, .tsv, .parquet, .arrow, .feather, .mat or .npz file, tasks that Label Studio exported (.json), or
            - for standard input.
        out: Table to write: ids, predicted class and its probability; a file, - for standard output, or a folder; with
            --format label-studio a .json file.
        alpha: Also write prediction sets: the classes with a p-value above this level.
        max_risk: Leave the least probable predictions out; of the others, about this fraction may be wrong.
        id: Column of row ids (default: that of the training table, if present).
        drop: Columns to ignore, separated by commas.
        separator: Separator between class names in a CSV cell.
        delimiter: Column delimiter of CSV files (default: that of the training table; a tab for .tsv files).
        shard: With a folder: take every n-th file, such as 3/16 for files 3, 19, 35, ... of 16 processes.
    """
    from candidly.checks.arguments import fraction
    from candidly.cli.output import describe_predictions
    from candidly.cli.reading import naming, read_new_rows, read_tasks
    from candidly.cli.results import Predictions, check_predicted
    from candidly.cli.streams import is_stream, predict_stream
    from candidly.cli.suggestions import check_result, write_result
    from candidly.conformal.calibration import Rule
    from candidly.tables import exports, files, labelled

    with output.hide_warnings():
        for name, value in (("alpha", alpha), ("max_risk", max_risk)):
            if value is not None:
                fraction(name, value)
        rule = Rule(**sets.given(alpha))
        several = not exports.is_export(table) and is_stream(table, out)
        if several and tools != ToolOptions():
            raise ValueError("--format is for results in one file, and --out is a folder; predict into a file")
        if several:
            options: dict[str, Any] = {"alpha": alpha, "rule": rule, "max_risk": max_risk, "id": id, "drop": drop}
            options |= {"separator": separator, "delimiter": delimiter, "shard": shard, "output": output}
            predict_stream(model, table, out, **options)
            return
        if shard is not None:
            raise ValueError("--shard applies to results in a folder; name one with --out, such as out/")
        check_result(out, [table], tools, output)
        classifier = load(model, output)
        names = [str(name) for name in classifier.classes_.tolist()]
        if alpha is not None:
            files.check_names(out, names, separator)
        schema = classifier.schema_
        rows, found = read_new_rows(table, classifier.features_, schema, {"--id": id}, drop, delimiter)
        tasks = read_tasks(table, schema, id) if exports.is_export(table) else None
        if tasks is not None:
            id = tasks.key
        elif id is None and schema is not None and schema.id in found.column_names:
            id = schema.id
        check_predicted(id)
        ids = None if id is None else found.column(id)
        with naming(labelled.name_of(table)):
            predicted = Predictions.of(classifier, rows, ids, id, alpha=alpha, rule=rule, max_risk=max_risk)
        write_result(
            predicted.table,
            rows,
            out,
            tools,
            classes=names,
            version=model.name,
            separator=separator,
            export=tasks,
        )
    output.show(*describe_predictions(predicted, len(names), out), to_stderr=out == "-")


def evaluate(
    model: ModelArgument,
    table: TableArgument,
    *,
    labels: RequiredColumn,
    plot: File = None,
    candidate: Candidate = None,
    drop: Columns = None,
    delimiter: Text = None,
    output: OutputOptions,
) -> None:
    """Compare a model with true labels: accuracy, prediction sets, and errors by probability.

    Use rows that the model was not trained on. Rows without a label are ignored; a label that is not a class of the
    model counts as an error.

    Args:
        model: Folder that `candidly fit` wrote.
        table: A .csv, .tsv, .parquet, .arrow or .feather file, or - for standard input.
        labels: Column of true labels.
        plot: Also write plots to this file (.svg, .pdf or .png).
        candidate: Candidate that scores a held-out row: best, mean, pooled, worst or singletons (default: best).
        drop: Columns to ignore, separated by commas.
        delimiter: Column delimiter of CSV files (default: that of the training table; a tab for .tsv files).
    """
    from candidly.cli.output import describe_evaluation
    from candidly.cli.reading import naming, read_new_rows
    from candidly.estimator import evaluation
    from candidly.store.figures import FORMATS
    from candidly.tables import files, labelled

    with output.hide_warnings():
        if plot is not None:
            files.check_writable(plot, FORMATS)
        classifier = load(model, output)
        rows, found = read_new_rows(
            table, classifier.features_, classifier.schema_, {"--labels": labels}, drop, delimiter
        )
        classes = {str(name): name for name in classifier.classes_.tolist()}
        texts = labelled.column_texts(found.column(labels), f"column {labels!r}")
        true = [None if text is None else classes.get(text, text) for text in texts]
        with naming(labelled.name_of(table)):
            result = evaluation.evaluate(classifier, rows, true, candidate=candidate or "best")
        if plot is not None:
            with files.writing(plot):
                evaluation.draw(result, plot)
    output.show(*describe_evaluation(result, plot))


def report(model: ModelArgument, *, out: Path, decisions: File = None, output: OutputOptions) -> None:
    """Write the HTML report of a model again, with what people decided since.

    Args:
        model: Folder that `candidly fit` wrote.
        out: File to write (.html).
        decisions: Log of `candidly review`: the report says what was decided, how far reviewers agree, how often the
            model was right, and what the answers in mode verify certify.
    """
    from candidly.cli.checks import check_page
    from candidly.cli.output import describe_report, write_page
    from candidly.report import saved

    check_page(out, model)
    facts = saved.read(model)
    if decisions is not None:
        with output.hide_warnings():
            facts = replace(facts, checked=_describe_review(load(model, output), decisions))
    write_page(facts, out)
    output.show(*describe_report(facts, {"report": out}))


def _describe_review(classifier: "PartialLabelClassifier", decisions: Path) -> list[str]:
    """Return sentences on a review of a model's training rows, and on the certificate that follows from it."""
    from candidly.cli.output import review_lines
    from candidly.cli.review import read_log
    from candidly.review.decisions import SPECIAL, model_hash

    log = read_log(decisions)
    found = [one for one in log.settled().values() if one.model == model_hash(classifier)]
    if not found:
        raise ValueError(f"{decisions} has no decision on rows of this model; name the log of its review")
    lines = review_lines(log, [one.after for one in found])
    named = [one for one in found if one.after not in SPECIAL]
    if named:
        right = sum(str(classifier.transduction_[one.row]) == one.after for one in named)
        lines.append(f"The class that the model predicts is the one that was decided in {right} of {len(named)} rows")
    if classifier.ledger_:
        plan = classifier.ledger_[-1]
        answers = log.verified(plan, classifier.model_.classes)
        if len(answers) == len(plan.rows):  # looking at a certificate before would weaken it
            lines += classifier.certify(answers).lines()
        elif answers:
            lines.append(f"{len(answers)} of {len(plan.rows)} planned rows are verified; a certificate needs all")
    return lines


def export(model: ModelArgument, *, out: Path, output: OutputOptions) -> None:
    """Write the networks of a model as one program, for ONNX or PyTorch.

    The program runs without candidly. It takes encoded rows, as `features_.transform` of the loaded classifier returns
    them, and returns the probability of each class.

    Args:
        model: Folder that `candidly fit` wrote.
        out: File to write (.onnx, or .pt2 for torch.export.load).
    """
    from candidly.cli.checks import check_apart
    from candidly.estimator.exporting import FORMATS
    from candidly.tables import files

    with output.hide_warnings():
        files.check_writable(out, FORMATS)
        check_apart("the file", out, model)
        classifier = load(model, output)
        with output.busy("exporting"):
            classifier.export(out)
    shape, classes = list(classifier.model_.shape), [str(name) for name in classifier.classes_.tolist()]
    size = " × ".join(map(str, shape))
    line = f"{out}: input x, rows of {size} numbers; output probabilities of {len(classes)} classes"
    output.show([line], {"out": str(out), "shape": shape, "classes": classes})


def load(model: Path, output: OutputOptions) -> "PartialLabelClassifier":
    """Load a model; messages about it begin with its folder."""
    from candidly.estimator import PartialLabelClassifier

    try:
        return PartialLabelClassifier.load(model).set_params(verbose=int(output.progress))
    except ValueError as error:
        reason = str(error)
        raise ValueError(reason if reason.startswith(str(model)) else f"{model}: {reason}") from error
