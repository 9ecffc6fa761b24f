"""Commands that use a model: predict, evaluate, report, export."""

from pathlib import Path
from typing import TYPE_CHECKING

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
)

# Everything heavy is imported by the functions that need it, so that `candidly --help` is immediate.
if TYPE_CHECKING:
    from candidly.estimator import PartialLabelClassifier

_RESULT = ("predicted", "probability", "set")


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
    output: OutputOptions,
) -> None:
    """Predict the classes of new rows with a model.

    The table needs the model's feature columns. Its columns of ids, candidates, labels and groups are ignored if
    present.

    Args:
        model: Folder that `candidly fit` wrote.
        table: A .csv, .tsv, .parquet, .arrow or .feather file, or - for standard input.
        out: Table to write: ids, predicted class and its probability; a file, or - for standard output.
        alpha: Also write prediction sets: the classes with a p-value above this level.
        max_risk: Leave the least probable predictions out; of the others, about this fraction may be wrong.
        id: Column of row ids (default: that of the training table, if present).
        drop: Columns to ignore, separated by commas.
        separator: Separator between class names in a CSV cell.
        delimiter: Column delimiter of CSV files (default: that of the training table; a tab for .tsv files).
    """
    import numpy as np
    import pyarrow as pa

    from candidly.checks.arguments import fraction
    from candidly.cli.checks import check_id, check_table
    from candidly.cli.output import describe_predictions
    from candidly.cli.reading import naming, read_new_rows
    from candidly.conformal.calibration import Rule
    from candidly.tables import files, labelled
    from candidly.tables.class_columns import set_column

    with output.hide_warnings():
        for name, value in (("alpha", alpha), ("max_risk", max_risk)):
            if value is not None:
                fraction(name, value)
        rule = Rule(**sets.given(alpha))
        check_table(out, [table], output)
        classifier = load(model, output)
        names = [str(name) for name in classifier.classes_.tolist()]
        if alpha is not None:
            files.check_names(out, names, separator)
        schema = classifier.schema_
        rows, found = read_new_rows(table, classifier.features_, schema, {"--id": id}, drop, delimiter)
        if id is None and schema is not None and schema.id in found.column_names:
            id = schema.id
        check_id(id, _RESULT)
        ids = pa.array(np.arange(found.num_rows)) if id is None else found.column(id)
        with naming(labelled.name_of(table)):
            p, p_values = classifier.predict_all(rows, [] if alpha is None else [rule])
        chosen = None
        if alpha is not None:
            classifier.calibration_.check_level(alpha, rule)
            chosen = p_values[0] > alpha
        blank = None if max_risk is None else p.max(1) < classifier.calibration_.threshold(max_risk)
        columns = {id or "row": ids, "predicted": pa.array(names).take(pa.array(p.argmax(1), mask=blank))}
        columns["probability"] = pa.array(p.max(1), pa.float32())
        if chosen is not None:
            columns["set"] = set_column(chosen, names)
        files.write(pa.table(columns), out, separator=separator)
    output.show(*describe_predictions(p, chosen, blank, out), to_stderr=out == "-")


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
