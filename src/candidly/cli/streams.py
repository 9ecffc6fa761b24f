"""Commands for tables in several files: clean and predict, block by block, with one result per file."""

import csv
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly import store
from candidly.candidates import Candidates
from candidly.checks import arguments
from candidly.cleaning.budget import MIN_ROWS
from candidly.cli.checks import check_base, check_folds, check_model, check_source
from candidly.cli.models import load
from candidly.cli.options import CleaningOptions, OutputOptions
from candidly.cli.output import describe_cleaned_stream, describe_predicted_stream
from candidly.cli.reading import (
    categories,
    choose_new_rows,
    find_delimiter,
    find_schema,
    naming,
    new_text_columns,
    read_block,
    read_classes,
)
from candidly.cli.results import Predictions, check_cleaned, check_predicted, cleaned_table, training_rows
from candidly.cli.training import set_level, train
from candidly.conformal.calibration import Rule
from candidly.estimator import Cleaned, PartialLabelClassifier, targets
from candidly.estimator.saving import Fingerprint, identify
from candidly.report import saved, summarise
from candidly.store import states
from candidly.tables import class_columns, delimited, files, labelled
from candidly.tables.class_columns import Block, Names
from candidly.tables.parts import check_same_encoders, find_parts, is_several
from candidly.tables.schema import Schema, check_column
from candidly.tables.streams import Rows, Stream

LEVELS = "levels"
"""First part of the names of files with the levels of the rule that cleans."""

_MODEL, _SAMPLE, _TRAINED_ON = "model", "sample", "trained-on.json"
_NUMBERED = re.compile(r"\b(rows?) ([0-9]+)(?: and ([0-9]+))?")


def is_stream(table: str | None, out: str) -> bool:
    """Return whether a command works block by block: the table is in several files, or results go to a folder.

    Raise ValueError if the table is in several files and `out` is the name of one.

    Examples
    --------
    >>> is_stream("rows.csv", "out/"), is_stream("rows.csv", "out.csv"), is_stream("-", "out/")
    (True, False, False)
    """
    if table is None or table == "-":
        return False
    named_as_file = files.suffix_of(out) in files.SUFFIXES and not out.endswith(("/", os.sep))
    if not is_several(table):
        return not named_as_file and (out.endswith(("/", os.sep)) or os.path.isdir(out))
    if out == "-" or named_as_file:
        raise ValueError(f"{table} is several files, and so are their results; name a folder with --out, such as out/")
    return True


def clean_stream(options: CleaningOptions, out: str, train_rows: int | None, shard: str | None) -> None:
    """Clean the files of a table with a model, or with one that is trained on a sample of all rows."""
    output = options.output
    with output.hide_warnings():
        check_folds(options.training.folds)
        check_source(options)
        check_model(options)
        _check_cleaning(options, train_rows)
        source = str(options.table)
        known = None if options.model is None else load(options.model, output)
        first = str(find_parts(source)[0])
        schema = find_schema(first, options.candidates, options.reading, None if known is None else known.schema_)
        stream = Stream.open(
            source,
            out,
            command="clean",
            settings=_cleaning_settings(options, train_rows),
            shard=shard,
            delimiter=schema.delimiter,
            progress=output.progress,
        )
        if known is None:
            assert train_rows is not None, "one of the two is given"
            number, seed = min(train_rows, stream.rows), options.training.seed or 0
            if number < MIN_ROWS:
                raise ValueError(f"train-rows is {number}; cleaning needs at least {MIN_ROWS} rows to train on")
            drawn = draw_sample(stream.rows, number, seed)
            classifier = _train_on_sample(stream, options, schema, drawn)
            trained: _Trained | None = _Trained(drawn, training_rows(classifier))
        else:
            classifier = known
            set_level(classifier, options)
            trained = _find_trained(stream, options, classifier)
        classifier.set_params(verbose=0)
        whole = schema.completed(classifier.schema_, stream.columns)
        check_cleaned(whole, classifier.classes_.tolist(), first)
        facts: dict[str, Any] = {"classes": [str(name) for name in classifier.classes_.tolist()]}
        facts |= {"alpha": classifier.alpha_, "model": identify(options.model or stream.notes / _MODEL)}
        facts |= {"columns": whole.named, "separator": schema.separator}
        _write_levels(stream, classifier, output)
        if known is None:
            facts["guess"] = saved.read(stream.notes / _MODEL).cost  # for the rows of the sample

        def step(rows: Rows) -> tuple[Any, dict[str, Any]]:
            block = read_block(rows, options, classifier)
            with naming(str(rows.part.path), rows.start):
                cleaned = classifier.clean_all(block.features, block.candidates)
            number = 0
            if trained is not None:
                cleaned, number = trained.put_into(cleaned, rows)
            counts = count_cleaned(cleaned, block.labels) | {"training_rows": number}
            return cleaned_table(block, cleaned, rows.part.name, first=rows.first), counts

        texts = [*labelled.text_columns(schema, classifier.schema_), *categories(classifier.features_)]
        manifest = stream.run(step, texts=texts, separator=schema.separator, facts=facts, progress=output.progress)
    output.show(*describe_cleaned_stream(manifest, source, out))


def predict_stream(
    model: Path,
    table: str,
    out: str,
    *,
    alpha: float | None,
    rule: Rule,
    max_risk: float | None,
    id: str | None,
    drop: str | None,
    separator: str,
    delimiter: str | None,
    shard: str | None,
    output: OutputOptions,
) -> None:
    """Predict the rows of the files of a table; `candidly.cli.models.predict` documents the options."""
    with output.hide_warnings():
        classifier = load(model, output).set_params(verbose=0)
        schema, first = classifier.schema_, str(find_parts(table)[0])
        names = [str(name) for name in classifier.classes_.tolist()]
        if alpha is not None:
            files.check_names(first, names, separator)
        identity = identify(model)
        given = {"alpha": alpha, "max-risk": max_risk, "id": id, "drop": drop, "delimiter": delimiter}
        given |= vars(rule) if alpha is not None else {}
        stream = Stream.open(
            table,
            out,
            command="predict",
            settings={"model": identity, "separator": separator} | _given(given),
            shard=shard,
            delimiter=find_delimiter(delimiter, first, schema or Schema()),
            progress=output.progress,
        )
        named = {"--id": id}
        if id is None and schema is not None and schema.id in stream.columns:
            id = schema.id
        check_predicted(id)

        def step(rows: Rows) -> tuple[Any, dict[str, Any]]:
            file = str(rows.part.path)
            features, found = choose_new_rows(rows.table, file, classifier.features_, schema, named, drop)
            ids = None if id is None else found.column(id)
            with naming(file, rows.start):
                predicted = Predictions.of(
                    classifier, features, ids, id, alpha=alpha, rule=rule, max_risk=max_risk, first=rows.first
                )
            return predicted.table, predicted.counts()

        texts = new_text_columns(classifier.features_, schema, named)
        facts = {"classes": names, "model": identity}
        manifest = stream.run(step, texts=texts, separator=separator, facts=facts, progress=output.progress)
    output.show(*describe_predicted_stream(manifest, table, out))


def draw_sample(rows: int, number: int, seed: int) -> NDArray[np.int64]:
    """Return the numbers of rows that are drawn at random from all rows of a stream, in ascending order.

    They do not depend on how the rows are cut into files.
    """
    drawn = np.random.default_rng([seed, rows]).choice(rows, number, replace=False, shuffle=False)
    return np.sort(drawn.astype(np.int64))


def count_cleaned(cleaned: Cleaned, labels: list[Any] | None) -> dict[str, Any]:
    """Return what is reported about cleaned rows, as sums: candidates, rows by their number, lost labels."""
    before, after, classes = cleaned.candidates.matrix, cleaned.kept.matrix, cleaned.candidates.classes
    sizes = [matrix.sum(1) for matrix in (before, after)]
    found: dict[str, Any] = {"rows": len(before), "changed": int((sizes[0] != sizes[1]).sum())}
    for name, size in zip(("before", "after"), sizes, strict=True):
        found[f"candidates_{name}"] = int(size.sum())
        found[f"sizes_{name}"] = np.bincount(size)[1:].tolist()  # rows with 1, 2, ... candidates
    found["removed_by_class"] = (before & ~after).sum(0).tolist()
    if labels is not None:
        y, known = targets.number(labels, classes, len(before))
        best = targets.number(cleaned.transduction, classes, len(before))[0]
        inside = known & (y >= 0)
        inside[inside] = before[inside, y[inside]]
        lost = ~after[inside, y[inside]]
        wrong, removed = (int(matrix[inside].sum()) for matrix in (before, before & ~after))
        found["truth"] = {"rows": int(known.sum()), "outside": int((known & ~inside).sum())}
        found["truth"] |= {"right": int((best == y)[known].sum()), "lost": int(lost.sum())}
        found["truth"] |= {"wrong": wrong - int(inside.sum()), "wrong_removed": removed - int(lost.sum())}
    return found


class _Trained:
    """The rows of a stream that a model was trained on: their numbers, and their held-out results."""

    def __init__(self, numbers: NDArray[np.int64], results: Cleaned) -> None:
        self.numbers, self.results = numbers, results

    def put_into(self, cleaned: Cleaned, rows: Rows) -> tuple[Cleaned, int]:
        """Return cleaned rows with the held-out results of those that trained, and how many there are."""
        low, high = np.searchsorted(self.numbers, [rows.first, rows.first + rows.table.num_rows])
        if low == high:
            return cleaned, 0
        here, there = self.numbers[low:high] - rows.first, slice(low, high)
        if not np.array_equal(cleaned.candidates.matrix[here], self.results.candidates.matrix[there]):
            raise ValueError(f"{rows.part.path} has other candidates than those trained on; begin in a new folder")
        kept = cleaned.kept.matrix.copy()
        kept[here] = self.results.kept.matrix[there]
        changed: dict[str, Any] = {"kept": Candidates(kept, cleaned.kept.classes)}
        for name in ("transduction", "confidence", "candidate_proba", "outside", "outside_proba"):
            values = getattr(cleaned, name).copy()
            values[here] = getattr(self.results, name)[there]
            changed[name] = values
        return replace(cleaned, **changed), len(here)


def _check_cleaning(options: CleaningOptions, train_rows: int | None) -> None:
    if options.votes.annotations is not None:
        raise ValueError("--annotations cannot be read in blocks; write the result to a file, or give a table")
    if options.report is not None:
        raise ValueError("--report describes a table in memory; remove it, or write a report of the model afterwards")
    if (train_rows is None) == (options.model is None):
        wrong = "neither --train-rows nor --model was" if train_rows is None else "--train-rows and --model were both"
        raise ValueError(f"{wrong} given; train on a sample of all rows with --train-rows N, or use a saved --model")
    if train_rows is not None:
        arguments.integer("train_rows", train_rows, least=MIN_ROWS)
        check_base(options.training.base)


def _cleaning_settings(options: CleaningOptions, train_rows: int | None) -> dict[str, Any]:
    model = None if options.model is None else identify(options.model)
    found: dict[str, Any] = {"model": model, "train-rows": train_rows, "candidates": options.candidates}
    found |= vars(options.reading) | {"classes": read_classes(options.reading.classes)}
    found |= vars(options.training) | {"force_cleaning": options.training.force_cleaning or None}
    return _given(found)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given, by their names in the terminal."""
    return {name.replace("_", "-"): value for name, value in options.items() if value is not None}


def _train_on_sample(
    stream: Stream, options: CleaningOptions, schema: Schema, drawn: NDArray[np.int64]
) -> PartialLabelClassifier:
    """Return the model of a stream; the first process trains it, and all others use the one that was saved."""
    output, folder = options.output, stream.notes / _MODEL
    with stream.alone("training", output.progress):
        if not (folder / "model.json").exists():
            sample = stream.notes / f"{_SAMPLE}{files.suffix_of(stream.parts[0].path).removesuffix('.gz')}"
            with output.busy("drawing a sample of the rows"):
                classes = _write_sample(stream, schema, read_classes(options.reading.classes), drawn, sample)
            with _naming_files(stream, drawn):
                rows = labelled.read_labelled(sample, schema, classes=classes)
                check_cleaned(rows.schema, rows.candidates.classes, stream.parts[0].name)
                classifier = train(rows, options.training, output)
            with output.busy("estimating what cleaning costs"):
                facts = summarise(classifier, rows.title, rows.ids, rows.labels)
            with output.busy("saving the model"), files.writing(folder):
                classifier.save(folder, {saved.FILE: saved.to_bytes(facts)})
    return load(folder, output)


def _write_levels(stream: Stream, classifier: PartialLabelClassifier, output: OutputOptions) -> None:
    """Write what certification needs: the rule, and its levels by class and probability on held-out rows."""
    record, budget = classifier.fit_record_, classifier.budget_
    if record is None or budget is None:
        return
    with stream.alone("ordering the candidates", output.progress):
        if not (stream.notes / f"{LEVELS}.json").exists():
            levels = budget.class_levels(record.log_p(record.held_out), record.sets[record.held_out])
            tensors, facts = budget.parts()
            states.write(stream.notes, tensors | vars(levels), {"budget": facts}, stem=LEVELS)


def _write_sample(
    stream: Stream, schema: Schema, classes: list[str] | None, drawn: NDArray[np.int64], sample: Path
) -> list[str]:
    """Write the rows that were drawn to a file; return the classes of all rows of the stream."""
    import pyarrow as pa

    is_text = files.is_text_file(sample)
    check_same_encoders([part.path for part in stream.parts])
    names = Names(schema.separator, classes)
    column = str(schema.candidates)
    found = []
    for part in stream.parts:
        for rows in stream.blocks(part, raw=is_text):
            file = str(part.path)
            check_column(rows.table, file, column, "--candidates")
            sets, start = rows.table.column(column), rows.start
            if is_text:
                sets = pa.chunked_array(delimited.decode(file, column, sets, start))
            for chunk in sets.chunks:
                names.number_sets(chunk, column, Block(file, start))
                start += len(chunk)
            low, high = np.searchsorted(drawn, [rows.first, rows.first + rows.table.num_rows])
            found.append(rows.table.take(pa.array(drawn[low:high] - rows.first)))
    if classes is None:
        classes = list(names.sort()[0])
        class_columns.check_found(str(stream.parts[0].path), classes, stream.rows, column, schema.separator)
    try:
        table = pa.concat_tables(found, promote_options="permissive")
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"the files have columns of different types ({reason}); give them the same types") from None
    if not is_text:
        files.write(table, sample)
        return classes
    text = io.StringIO(newline="")
    mark = schema.delimiter or ("\t" if sample.suffix == ".tsv" else ",")
    writer = csv.writer(text, delimiter=mark, lineterminator="\n")
    writer.writerow(table.column_names)
    writer.writerows(zip(*(values.to_pylist() for values in table.columns), strict=True))
    store.replace(sample, text.getvalue().encode())
    return classes


@contextmanager
def _naming_files(stream: Stream, drawn: NDArray[np.int64]) -> Iterator[None]:
    """Let errors about rows of the sample name their files."""

    def name(found: re.Match[str]) -> str:
        places = [stream.locate(int(drawn[int(row)])) for row in found.groups()[1:] if row is not None]
        return " and ".join(f"row {row} of {part.path}" for part, row in places)

    try:
        yield
    except ValueError as error:
        raise ValueError(_NUMBERED.sub(name, str(error), count=1)) from error


def _find_trained(stream: Stream, options: CleaningOptions, classifier: PartialLabelClassifier) -> _Trained | None:
    """Return the held-out results of a model if the rows of the stream, in this order, are those it was trained on."""
    if stream.rows != classifier.features_.rows:
        return None
    note = stream.notes / _TRAINED_ON
    with stream.alone("comparing the rows with those of the model", options.output.progress):
        if not note.exists():
            with options.output.busy("comparing the rows with those of the model"):
                same = _is_trained_on(stream, options, classifier)
            store.replace(note, b'{"same": true}\n' if same else b'{"same": false}\n')
    if not store.read_json(note).get("same"):
        return None
    if classifier.fit_record_ is None:
        raise ValueError(
            f"{options.model} was trained on these rows, but it was saved without them, so their held-out results are "
            "not known; use --train-rows, or fit the model without --lean"
        )
    return _Trained(np.arange(stream.rows), training_rows(classifier))


def _is_trained_on(stream: Stream, options: CleaningOptions, classifier: PartialLabelClassifier) -> bool:
    found = Fingerprint(stream.rows, len(classifier.classes_))
    schema = find_schema(str(stream.parts[0].path), options.candidates, options.reading, classifier.schema_)
    texts = [*labelled.text_columns(schema, classifier.schema_), *categories(classifier.features_)]
    for part in stream.parts:
        for rows in stream.blocks(part, texts=texts):
            block = read_block(rows, options, classifier)
            with naming(str(part.path), rows.start):
                found.add(classifier.features_.transform(block.features, quiet=True), block.candidates.matrix)
    return found.hexdigest() == classifier.trained_on_
