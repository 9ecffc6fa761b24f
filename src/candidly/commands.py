"""What the commands on a user's own tables do: fit, clean, predict, evaluate, report. `candidly.cli` calls them."""

import csv
import dataclasses
import importlib.util
import io
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from candidly import evaluation, store
from candidly.annotations import Votes
from candidly.bench.diagram import FORMATS
from candidly.calibration import Candidate, check_share
from candidly.data import files, labelled
from candidly.data.labelled import Ballot, Labelled, Roles
from candidly.data.sets import score_column, set_column
from candidly.encoding import Category
from candidly.estimator import PartialLabelClassifier
from candidly.findings import Findings
from candidly.options import Reading, Setting, Telling, Training, Voting
from candidly.wording import describe_evaluation, describe_findings, describe_predictions

_PAGES = (".html", ".htm")
_MODEL = {"model.json", "model.safetensors", "findings.json"}
_CLEANED = ("candidates", "kept", "removed", "predicted", "confidence", "scores", "true")
_PREDICTED = ("predicted", "confidence", "set")
_ROLES, _DROPPED = ("candidates", "id", "labels"), "dropped columns"
_LONGEST = 10_000  # characters that findings take


def fit(
    table: str, candidates: str, out: Path, report: Path | None, reading: Reading, training: Training, telling: Telling
) -> None:
    """Train a model on a table and write it to a folder."""
    with _quiet(telling):
        _check_folder(out)
        _check_page(report, out)
        rows = _read(table, candidates, reading)
        estimator = _train(rows, training, telling)
        findings = _find(estimator, rows)
        with files.writing(out):
            estimator.save(out, findings)
        _write_page(findings, report)
    telling.tell(*describe_findings(findings, {"model": out, "report": report}))


def clean(
    table: str | None,
    candidates: str | None,
    out: str,
    report: Path | None,
    voting: Voting,
    reading: Reading,
    training: Training,
    telling: Telling,
) -> None:
    """Clean the candidates of a table, or those that votes make, and write them to another."""
    with _quiet(telling):
        if training.folds is not None and training.folds < 2:
            raise ValueError(
                f"folds is {training.folds}; every row is scored by networks that did not train on it, use 2 or more"
            )
        _check_source(table, candidates, voting)
        _check_table(out, (table, voting.annotations, voting.features), telling)
        _check_page(report, out)
        votes = None
        if table is None:
            rows, votes = _read_votes(voting, reading)
        else:
            rows = _read(table, str(candidates), reading)
        _check_id(rows.roles.id, _CLEANED)
        files.check_names(out, [str(name) for name in rows.candidates.classes], reading.separator)
        estimator = _train(rows, training, telling)
        findings = _find(estimator, rows)
        files.write(_cleaned(rows, estimator, out), out, separator=reading.separator)
        _write_page(findings, report)
    lines, facts = describe_findings(findings, {"cleaned": out, "report": report})
    if votes is not None:
        lines = [*str(votes).splitlines(), *lines]
        facts["agreement"] = {"observed": votes.agreement.observed, "krippendorff_alpha": votes.agreement.alpha}
    telling.tell(lines, facts, to_stderr=out == "-")


def predict(
    model: Path,
    table: str,
    out: str,
    *,
    alpha: float | None,
    setting: Setting,
    max_risk: float | None,
    id: str | None,
    drop: str | None,
    separator: str,
    delimiter: str | None,
    telling: Telling,
) -> None:
    """Predict the classes of a table's rows with a model and write them to another."""
    with _quiet(telling):
        for name, value in (("alpha", alpha), ("max_risk", max_risk)):
            if value is not None:
                check_share(name, value)
        rule = setting.of(alpha)
        _check_table(out, [table], telling)
        estimator = _load(model).set_params(verbose=_progress(telling))
        names = [str(name) for name in estimator.classes_.tolist()]
        if alpha is not None:
            files.check_names(out, names, separator)
        rows, found, known = _read_new(estimator, table, {"--id": id}, split(drop, "--drop"), model, delimiter)
        id = id or next((name for name in known.get("id", ()) if name in found.column_names), None)
        _check_id(id, _PREDICTED)
        ids = pa.array(np.arange(found.num_rows)) if id is None else found.column(id)
        with _naming(labelled.name_of(table)):
            p = estimator.predict_proba(rows)
        sets = None if alpha is None else estimator.predict_set(rows, alpha, **rule)
        blank = None if max_risk is None else np.equal(estimator.predict(rows, max_risk), np.array(None, object))
        columns = {id or "row": ids, "predicted": pa.array(names).take(pa.array(p.argmax(1), mask=blank))}
        columns["confidence"] = pa.array(p.max(1), pa.float32())
        if sets is not None:
            columns["set"] = set_column(sets, names)
        files.write(pa.table(columns), out, separator=separator)
    telling.tell(*describe_predictions(p, sets, blank, out), to_stderr=out == "-")


def evaluate(
    model: Path,
    table: str,
    labels: str,
    *,
    plot: Path | None,
    candidate: Candidate | None,
    drop: str | None,
    delimiter: str | None,
    telling: Telling,
) -> None:
    """Compare a model's predictions with the true labels of a table's rows."""
    with _quiet(telling):
        if plot is not None:
            files.check_writable(plot, FORMATS)
        estimator = _load(model).set_params(verbose=_progress(telling))
        rows, found, _ = _read_new(estimator, table, {"--labels": labels}, split(drop, "--drop"), model, delimiter)
        classes = {str(name): name for name in estimator.classes_.tolist()}
        texts = labelled.column_texts(found.column(labels))
        true = [None if text is None else classes.get(text, text) for text in texts]
        with _naming(labelled.name_of(table)):
            result = evaluation.evaluate(estimator, rows, true, candidate=candidate or "best")
        if plot is not None:
            with files.writing(plot):
                evaluation.draw(result, plot)
    telling.tell(*describe_evaluation(result, plot))


def report(model: Path, out: Path, telling: Telling) -> None:
    """Write the page on a model anew."""
    _check_page(out, model)
    findings = _read_findings(model)
    if findings is None:
        raise FileNotFoundError(f"{model / 'findings.json'} does not exist; `candidly fit` writes it with the model")
    _write_page(findings, out)
    telling.tell(*describe_findings(findings, {"report": out}))


def split(text: str | None, option: str) -> list[str]:
    """Split names at commas; a name that has some stands in double quotes.

    Examples
    --------
    >>> split('a, "b,c"', "--drop"), split(None, "--drop")
    (['a', 'b,c'], [])
    """
    if text is None:
        return []
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or "" in names:
        raise ValueError(f"{option} is {text!r}, with an empty name; write names with one comma between them")
    return names


def _quiet(telling: Telling) -> AbstractContextManager[Any]:
    return warnings.catch_warnings(action="ignore") if telling.quiet else nullcontext()


def _progress(telling: Telling) -> int:
    """Whether to show bars."""
    return int(sys.stderr.isatty() and not telling.quiet)


def _read(table: str, candidates: str, reading: Reading) -> Labelled:
    roles = Roles(candidates, reading.id, reading.labels, split(reading.drop, "--drop"))
    classes = _read_classes(reading.classes)
    return labelled.read(table, roles, separator=reading.separator, classes=classes, delimiter=reading.delimiter)


def _read_votes(voting: Voting, reading: Reading) -> tuple[Labelled, Votes]:
    annotators = None if voting.annotators is None else split(voting.annotators, "--annotators")
    return labelled.read_votes(
        str(voting.annotations),
        Ballot(voting.task, voting.worker, voting.label, annotators),
        str(voting.features),
        Roles(None, reading.id, reading.labels, split(reading.drop, "--drop")),
        classes=_read_classes(reading.classes),
        delimiter=reading.delimiter,
        min_votes=1 if voting.min_votes is None else voting.min_votes,
        min_share=0.0 if voting.min_share is None else voting.min_share,
    )


def _read_classes(text: str | None) -> list[str] | None:
    if text is None or not text.startswith("@"):
        return split(text, "--classes") or None
    try:
        lines = Path(text[1:]).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise ValueError(f"--classes {text} cannot be read: {reason}; name a file with one class per line") from None
    return [line.strip() for line in lines if line.strip()]


def _train(rows: Labelled, training: Training, telling: Telling) -> PartialLabelClassifier:
    n = len(rows.candidates)
    if training.folds is not None and training.folds > n:
        raise ValueError(f"folds is {training.folds} but there are {n} rows; use fewer folds, or add rows")
    given: dict[str, Any] = {"members": training.members, "folds": training.folds, "alpha": training.alpha}
    given["max_epochs"] = training.epochs
    estimator = PartialLabelClassifier(
        training.method,
        None if training.cleaner == "none" else training.cleaner,
        **{name: value for name, value in given.items() if value is not None},
        device=training.device,
        random_state=training.seed,
        verbose=_progress(telling),
    )
    with _naming(rows.title):
        return estimator.fit(rows.features, rows.candidates, weights=rows.weights)


def _find(estimator: PartialLabelClassifier, rows: Labelled) -> Findings:
    """Return the findings; their settings also say which columns are no features."""
    findings = estimator.findings(rows.title, rows.ids, rows.labels)
    roles = {f"{role} column": getattr(rows.roles, role) for role in _ROLES}
    if rows.roles.drop:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(rows.roles.drop)
        roles[_DROPPED] = line.getvalue()
    columns = {what: text for what, text in roles.items() if text is not None and len(text) <= _LONGEST}
    return dataclasses.replace(findings, settings=findings.settings | columns)


def _known_columns(model: Path) -> dict[str, list[str]]:
    """Return the columns that are no features, by what they were when the model was trained."""
    findings = _read_findings(model)
    settings = {} if findings is None else findings.settings
    known = {role: settings.get(f"{role} column") for role in _ROLES}
    dropped = settings.get(_DROPPED)
    columns = {role: [name] for role, name in known.items() if isinstance(name, str)}
    return columns | {_DROPPED: split(dropped, _DROPPED) if isinstance(dropped, str) else []}


def _load(model: Path) -> PartialLabelClassifier:
    try:
        return PartialLabelClassifier.load(model)
    except ValueError as error:
        reason = str(error)
        raise ValueError(reason if reason.startswith(str(model)) else f"{model}: {reason}") from error


@contextmanager
def _naming(table: str) -> Iterator[None]:
    """Call a table by its name in errors that call it X."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("X "):
            raise
        raise ValueError(f"{table} {str(error)[2:]}") from error


def _read_findings(model: Path) -> Findings | None:
    path = model / "findings.json"
    if not path.is_file():
        return None
    facts = store.read_json(path)
    try:
        return Findings.from_json(facts)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _read_new(
    estimator: PartialLabelClassifier,
    table: str,
    named: Mapping[str, str | None],
    drop: list[str],
    model: Path,
    delimiter: str | None,
) -> tuple[Any, Any, dict[str, list[str]]]:
    """Return the features of new rows, their whole table, and the columns that were none in training.

    Neither are those that options name.
    """
    features, known = estimator.features_, _known_columns(model)
    used = features.names_ or ()
    # As text, like those that were fitted: 01 would be another category than 1.
    categories = [name for name, column in zip(used, features.columns, strict=False) if isinstance(column, Category)]
    others = [name for names in known.values() for name in names]
    given = [(option, name) for option, name in named.items() if name is not None]
    found = files.read(table, delimiter=delimiter, texts=[*categories, *others, *(name for _, name in given)])
    for option, name in [*given, *(("--drop", name) for name in drop)]:
        labelled.check_column(found, labelled.name_of(table), name, option)
    if named.get("--labels") in used:
        raise ValueError(f"--labels is {named['--labels']!r}, which the model was trained on; name the true labels")
    left_out = {*others, *drop, *(name for _, name in given)} - set(used)
    rows = found.select([name for name in found.column_names if name not in left_out])
    labelled.check_types(rows, labelled.name_of(table))
    return rows, found, known


def _cleaned(rows: Labelled, estimator: PartialLabelClassifier, out: str) -> Any:
    before, after, names = rows.candidates.matrix, estimator.candidates_.matrix, estimator.classes_.tolist()
    removed = before & ~after
    ids = pa.array(np.arange(len(before))) if rows.id_column is None else rows.id_column
    columns = {
        rows.roles.id or "row": ids,
        "candidates": set_column(before, names),
        "kept": set_column(after, names),
        "removed": set_column(removed, names),
        "predicted": pa.array(estimator.transduction_.tolist(), pa.string()),
        "confidence": pa.array(estimator.confidence_, pa.float32()),
        "scores": score_column(removed, estimator.p_values_, names, with_names=files.is_text_file(out)),
    }
    return pa.table(columns | ({} if rows.labels is None else {"true": pa.array(rows.labels, pa.string())}))


def _check_source(table: str | None, candidates: str | None, voting: Voting) -> None:
    """Check that there is one source of candidates, and all of it."""
    given = [name.replace("_", "-") for name, value in vars(voting).items() if value is not None]
    if voting.annotations is None:
        if table is None or candidates is None:
            raise ValueError("say what to clean: a table and its --candidates, or --annotations and --features")
        if given:
            raise ValueError(f"--{given[0]} is for votes; name their table with --annotations, or leave it out")
    elif table is not None or candidates is not None:
        raise ValueError("candidates of a table and --annotations exclude each other; leave one out")
    elif voting.features is None:
        raise ValueError("--annotations needs --features, the table with the features of the tasks; name it")
    elif voting.annotations == voting.features == "-":
        raise ValueError("standard input is one table; name a file for --annotations or --features")


def _check_folder(out: Path) -> None:
    """Check that a model can be written, before it is trained."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder for the model")
    others = sorted({path.name for path in out.iterdir()} - _MODEL) if out.exists() else []
    if others:
        raise ValueError(f"{out} holds {others[0]!r}, which would be lost; name a new or an empty folder")
    files.check_folder(next(parent for parent in out.absolute().parents if parent.exists()))


def _check_table(out: str, tables: Sequence[str | None], telling: Telling) -> None:
    files.check_writable(out)
    if out == "-" and telling.json:
        raise ValueError("--json and --out - both write to standard output; leave one out")
    for table in tables:
        if table is not None and out != "-" and os.path.realpath(table) == os.path.realpath(out):
            raise ValueError(f"{out} is both read and written; name another file with --out")


def _check_page(page: Path | None, out: str | Path) -> None:
    if page is None:
        return
    if Path(os.path.realpath(page)).is_relative_to(os.path.realpath(out)):
        raise ValueError(f"{page} is or lies in {out}, which is written as a whole; name another place for the page")
    files.check_writable(page, _PAGES)
    if importlib.util.find_spec("jinja2") is None:
        raise ModuleNotFoundError("reports need jinja2, which is not installed; run `pip install 'candidly[report]'`")


def _check_id(id: str | None, results: Sequence[str]) -> None:
    if id in results:
        raise ValueError(f"the id column has the name {id!r} of a column of the result; rename it")


def _write_page(findings: Findings, page: Path | None) -> None:
    from candidly.report import write

    if page is not None:
        with files.writing(page):
            write(findings, page)
