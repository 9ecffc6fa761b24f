"""Commands that use a model: predict, evaluate, report, export."""

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


def report(model: ModelArgument, *, out: Path, output: OutputOptions) -> None:
    """Write the HTML report of a model again.

    Args:
        model: Folder that `candidly fit` wrote.
        out: File to write (.html).
    """
    from candidly.cli.checks import check_page
    from candidly.cli.output import describe_report, write_page
    from candidly.report import saved

    check_page(out, model)
    facts = saved.read(model)
    write_page(facts, out)
    output.show(*describe_report(facts, {"report": out}))


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
