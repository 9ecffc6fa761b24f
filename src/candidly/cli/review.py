"""Commands for decisions by people: review, apply."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from candidly.cli.options import (
    Column,
    Columns,
    File,
    Fraction,
    Model,
    ModelArgument,
    Number,
    OutputOptions,
    Table,
    Text,
)
from candidly.cli.parsing import Named

# Everything heavy is imported by the functions that need it, so that `candidly --help` is immediate.
if TYPE_CHECKING:
    from candidly.cleaning import VerificationPlan
    from candidly.estimator import PartialLabelClassifier
    from candidly.review.decisions import Log, Session
    from candidly.review.desk import Desk, Material
    from candidly.review.merging import Rows
    from candidly.tables.schema import Schema

Mode = Annotated[Literal["verify", "decide"] | None, Named("TEXT")]
LogArgument = Annotated[Path, Named("LOG", positional=True)]
_HIDDEN = "candidates"
_LOG = b'{"session"'  # how a log of decisions begins


def review(
    model: ModelArgument,
    *,
    table: str,
    log: File = None,
    reviewer: Text = None,
    mode: Mode = None,
    rows: Number = None,
    alpha: Fraction = None,
    confidence: Fraction = None,
    seed: Number = None,
    sequential: bool = False,
    image: Column = None,
    images: File = None,
    annotations: Table = None,
    drop: Columns = None,
    delimiter: Text = None,
    port: int = 0,
    no_browser: bool = False,
    output: OutputOptions,
) -> None:
    """Check and decide rows in the browser, by keyboard.

    Serves a page on this machine until it is interrupted (Ctrl-C), and prints its address. In mode verify it shows the
    rows that were drawn for a certificate (`candidly verify plan`, or --rows), without what the model predicts, and
    the certificate when all are answered. In mode decide it shows the most doubtful rows first, with probabilities.
    Every decision is appended to the log before the page says that it is saved. Several reviewers can use one log.
    Then `candidly certify`, `candidly apply`, `candidly fit` and `candidly clean` use the log.

    Args:
        model: Folder that `candidly fit` wrote.
        table: Training table of the model. Its candidates and true labels are not shown as columns.
        log: File of decisions, JSON lines; it is appended to (default: TABLE-decisions.jsonl beside the table).
        reviewer: Name of the reviewer (default: the name of the user).
        mode: verify or decide (default: verify while drawn rows have no answer, then decide).
        rows: Draw this number of rows to verify, and record them in the model, before any row is shown.
        alpha: With --rows: fraction of all training rows that may lose their true label (default: 0.05).
        confidence: With --rows: probability, over the draw, with which the certificate holds (default: 0.9).
        seed: With --rows: seed of the draw (default: 0).
        sequential: With --rows: allow a certificate after any number of rows, in their order.
        image: Column with the file of an image for each row, relative to the table's folder or to --images.
        images: Folder with the images; no file outside of it is shown (default: the folder of the table).
        annotations: Table of votes to show beside rows in mode decide, with the columns task, worker and label.
        drop: Columns of the table that are not shown, separated by commas.
        delimiter: Column delimiter of CSV tables (default: that of the training table; a tab for .tsv files).
        port: Port of the page; 0 chooses a free one.
        no_browser: Do not open the page in a browser.
    """
    import webbrowser
    from contextlib import suppress

    from candidly.cli.models import load
    from candidly.review.decisions import Log
    from candidly.review.server import HOST, listen, make_token, require_packages, serve
    from candidly.tables import files

    with output.hide_warnings():
        require_packages()
        draw = {"alpha": alpha, "confidence": confidence, "seed": seed, "sequential": sequential or None}
        given: dict[str, Any] = {name: value for name, value in draw.items() if value is not None}
        if rows is None and given:
            raise ValueError(f"--{next(iter(given))} applies to rows that are drawn; draw some with --rows")
        if rows is not None and mode == "decide":
            raise ValueError("--rows draws rows for the mode verify; remove it or --mode decide")
        if not 0 <= port < 65536:
            raise ValueError(f"port is {port}; give a number from 0 to 65535")
        if images is not None and image is None:
            raise ValueError("--images is the folder of the images that a column names; name the column with --image")
        who = _name_reviewer(reviewer)
        classifier = load(model, output)
        if classifier.fit_record_ is None:
            raise ValueError(f"{model} was saved without its training rows; fit it without --lean to review them")
        _check_names(classifier)
        with output.busy(f"reading {table}"):
            material = _read_material(classifier, table, image, images, annotations, drop, delimiter)
        place = _default_log(table) if log is None else log
        files.check_folder(place.absolute().parent)
        known = Log(place, create=True)
        session = _session(classifier, material.rows, who, delimiter)
        known.check(session)
        material.rows.locate(known.settled(who).values())
        with listen(port) as listening:  # from here on nothing should fail: a plan costs confidence
            plan = _choose_plan(classifier, known, model, rows, mode, given)
            with output.busy("preparing the rows"):
                desks = _make_desks(classifier, material, known, who, plan, mode)
            known.start(session)
            token = make_token()
            address = f"http://{HOST}:{listening.getsockname()[1]}/{token}/"
            first = next(iter(desks))
            lines = [
                f"review of {material.rows.title} by {who}, mode {first}: {address}",
                f"decisions: {place}; stop with Ctrl-C",
            ]
            output.show(lines, {"address": address, "mode": first, "log": str(place), "reviewer": who})
            if not no_browser:
                webbrowser.open(address)
            before = len(known.decisions)
            with suppress(KeyboardInterrupt):
                serve(desks, listening, token)
    if not output.json:
        output.show([f"{len(known.decisions) - before} decisions were added to {place}"], {})


def apply(
    log: LogArgument,
    *,
    table: str,
    out: str,
    model: Model = None,
    reviewer: Text = None,
    id: Column = None,
    candidates: Column = None,
    delimiter: Text = None,
    output: OutputOptions,
) -> None:
    """Write a table with the decisions of a review, or with the answers that Label Studio or Argilla exported.

    The table keeps its rows and columns; only candidates change. A decided row has the class that was named, which may
    be a new one. After "none of these" a row has all classes but its candidates, and after "cannot tell" the same
    candidates. Rows are found by their ids, in any order; in a table without ids, every decided row must be unchanged
    and in its place. Rows on which reviewers disagree are left unchanged.

    Args:
        log: File of decisions that `candidly review` wrote; or a .json file that Label Studio or Argilla exported.
        table: The table that was reviewed: a .csv, .tsv, .parquet, .arrow or .feather file.
        out: Table to write: .csv, .tsv, .parquet, .arrow or .feather, or - for standard output.
        model: Model that was reviewed, for the candidates of a table without a column of candidates.
        reviewer: Use only the decisions of this reviewer.
        id: For an export: column of ids of the table, and field with the same ids in the tasks (default: that of
            --model).
        candidates: For an export: column of candidates of the table (default: that of --model).
        delimiter: For an export: column delimiter of the table, if it is CSV (default: a comma; a tab for .tsv files).
    """
    from candidly.cli.checks import check_table
    from candidly.cli.output import describe_decisions
    from candidly.review.merging import merge
    from candidly.tables import files
    from candidly.tables.class_columns import set_column

    with output.hide_warnings():
        check_table(out, [table], output)
        schema = _table_schema(log, id, candidates, delimiter, model, output)
        found = read_log(log, schema)
        whole, rows, sets, column, separator = _read_decided(found, table, model, output)
        merged = merge(found, rows, sets, reviewer)
        names = [str(name) for name in merged.candidates.classes]
        files.check_names(out, names, separator)
        cells = set_column(merged.candidates.matrix, names)
        if column in whole.column_names:
            whole = whole.set_column(whole.column_names.index(column), column, cells)
        else:
            whole = whole.append_column(column, cells)
        files.write(whole, out, separator=separator)
    output.show(*describe_decisions(found, merged, out), to_stderr=out == "-")


def _table_schema(
    log: Path, id: str | None, candidates: str | None, delimiter: str | None, model: Path | None, output: OutputOptions
) -> "Schema":
    """Return what is known about the columns of the table that an export is about; a log knows them."""
    from dataclasses import replace

    from candidly.cli.models import load
    from candidly.tables.schema import Schema

    named = {"id": id, "candidates": candidates, "delimiter": delimiter}
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if not _is_export(log):
        if given:
            raise ValueError(
                f"--{next(iter(given))} applies to an export, and {log} is a log, which knows it; remove it"
            )
        return Schema()
    known = None if model is None else load(model, output).schema_
    return replace(known or Schema(), **given)


def read_log(path: Path, schema: "Schema | None" = None) -> "Log":
    """Read a log of decisions or, if a schema is given, an export with annotations of a table with this schema.

    Raise ValueError if there is no decision.
    """
    from candidly.review.decisions import Log
    from candidly.review.imported import log_of
    from candidly.tables.exports import read_export

    if schema is not None and _is_export(path):
        return log_of(read_export(path, key=schema.id, preferred="answer"), schema)
    found = Log(path)
    if not found.sessions:
        raise ValueError(f"{path} holds no review; name the log of `candidly review`")
    return found


def _is_export(path: Path) -> bool:
    """Return whether a file of decisions is an export of an annotation tool; a log begins with a session."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    with open(path, "rb") as file:
        return not file.read(len(_LOG)).startswith(_LOG)


def _name_reviewer(name: str | None) -> str:
    """Return the name of the reviewer, by default that of the user."""
    import getpass

    if name is None:
        try:
            name = getpass.getuser()
        except (OSError, KeyError):  # a user without a name, as in some containers
            name = ""
        if not name:
            raise ValueError("the name of the user is not known; name the reviewer with --reviewer")
    name = name.strip()
    if not name or len(name) > 200 or not name.isprintable():
        raise ValueError(f"--reviewer is {name!r}; use a name of 1 to 200 printable characters")
    return name


def _check_names(classifier: "PartialLabelClassifier") -> None:
    from candidly.review.decisions import SPECIAL

    for name in map(str, classifier.classes_.tolist()):
        if name in SPECIAL:
            raise ValueError(f"the class {name!r} has the name of an answer on the page; rename it and fit again")


def _default_log(table: str) -> Path:
    path = Path(table)
    return path.with_name(f"{path.name.split('.')[0]}-decisions.jsonl")


def _read_material(
    classifier: "PartialLabelClassifier",
    table: str,
    image: str | None,
    images: Path | None,
    annotations: str | None,
    drop: str | None,
    delimiter: str | None,
) -> "Material":
    """Read the training table of a model and what is shown of it."""
    from candidly.cli.verification import read_training_table
    from candidly.review.desk import Material
    from candidly.review.images import Images
    from candidly.review.merging import Rows
    from candidly.tables.labelled import column_texts, read_ids
    from candidly.tables.schema import check_column

    if table == "-":
        raise ValueError("--table must be a file, because the log belongs to it; write standard input to a file")
    features, shown = read_training_table(classifier, table, drop, delimiter)
    schema = classifier.schema_
    key = None if schema is None else schema.id
    found = None
    if image is not None:
        check_column(shown, table, image, "--image")
        folder = Path(table).absolute().parent if images is None else images
        if not folder.is_dir():
            raise ValueError(f"--images is {images}, which is not a folder; name the folder of the images")
        found = Images(column_texts(shown.column(image), f"column {image!r} of {table}"), folder)
    ids = read_ids(shown.column(key), table, key) if key is not None and key in shown.column_names else None
    shown = shown.drop_columns([name for name in {image, key} if name in shown.column_names])
    votes = None if annotations is None else _read_votes(annotations, key)
    if votes is not None and ids is None:
        raise ValueError("--annotations needs a table with ids, to which the tasks belong; fit the model with --id")
    return Material(Rows(Path(table).name, features, ids), shown, found, votes)


def _read_votes(file: str, id: str | None) -> dict[str, list[tuple[str, str]]]:
    """Read the votes on each task: pairs of annotator and label; in an export, the field `id` has the ids of tasks."""
    from candidly.tables import files
    from candidly.tables.exports import is_export, read_export
    from candidly.tables.labelled import column_texts, name_of
    from candidly.tables.schema import check_column

    if is_export(file):
        return {one: list(task.votes) for one, task in read_export(file, key=id).tasks.items() if task.votes}
    columns = ("task", "worker", "label")
    table = files.read(file, texts=columns)
    for column in columns:
        check_column(table, name_of(file), column, "--annotations")
    votes: dict[str, list[tuple[str, str]]] = {}
    texts = [column_texts(table.column(column), f"column {column!r} of {file}") for column in columns]
    for task, worker, label in zip(*texts, strict=True):
        if task and label:
            votes.setdefault(task, []).append((worker or "", label))
    return votes


def _choose_plan(
    classifier: "PartialLabelClassifier",
    log: "Log",
    model: Path,
    rows: int | None,
    mode: str | None,
    given: dict[str, Any],
) -> "VerificationPlan | None":
    """Return the last plan of a model; with `rows`, after a new one was drawn and recorded."""
    from candidly.estimator.saving import record_plan

    plan = classifier.ledger_[-1] if classifier.ledger_ else None
    if rows is not None:
        missing = 0 if plan is None else plan.m - len(log.verified(plan, classifier.classes_.tolist()))
        if missing:
            raise ValueError(
                f"{model} has a plan with {missing} rows that are not answered in {log.path}; remove --rows to go on "
                "with it, because every new plan lowers the confidence"
            )
        plan = classifier.plan_verification(rows, **given)
        record_plan(model, plan)
    if plan is None and mode == "verify":
        raise ValueError(f"{model} has no plan, so there are no rows to verify; draw some with --rows")
    return plan


def _make_desks(
    classifier: "PartialLabelClassifier",
    material: "Material",
    log: "Log",
    reviewer: str,
    plan: "VerificationPlan | None",
    mode: str | None,
) -> "dict[str, Desk]":
    """Return the desks of the modes that are served: verify first, if there are rows to verify."""
    from candidly.review.desk import Desk

    decide = Desk(classifier, material, log, reviewer, "decide", plan)
    if plan is None or mode == "decide" or (mode is None and not decide.missing()):
        return {"decide": decide}
    _warn_of_seen(log, material.rows, reviewer, plan)
    return {"verify": Desk(classifier, material, log, reviewer, "verify", plan), "decide": decide}


def _warn_of_seen(log: "Log", rows: "Rows", reviewer: str, plan: "VerificationPlan") -> None:
    """Warn if the reviewer has decided rows of a plan before, with the model's probabilities in view."""
    from candidly.messages import warn

    open_ = set(plan.rows) - log.verified(plan, ()).keys()
    seen = {rows.find(one) for one in log.decisions if one.reviewer == reviewer and one.mode == "decide"} & open_
    if seen:
        warn(
            f"{reviewer} has decided {len(seen)} of the rows to verify before, with probabilities in view; to be sure "
            "of the certificate, let another person verify (--reviewer)"
        )


def _session(classifier: "PartialLabelClassifier", rows: "Rows", reviewer: str, delimiter: str | None) -> "Session":
    from candidly.review.decisions import Session, model_hash, now
    from candidly.tables.schema import Schema

    schema = classifier.schema_ or Schema()
    return Session(
        time=now(),
        reviewer=reviewer,
        model=model_hash(classifier),
        table=rows.title,
        id=None if rows.ids is None else schema.id,
        candidates=schema.candidates,
        features=tuple(rows.features.column_names),
        separator=schema.separator,
        delimiter=delimiter or schema.delimiter,
    )


def _read_decided(log: "Log", table: str, model: Path | None, output: OutputOptions) -> tuple[Any, Any, Any, str, str]:
    """Read the table that decisions are about.

    Return all of its columns, its rows as decisions name them, its candidates, the name of their column, and the text
    between class names in a cell.
    """
    from candidly.cli.models import load
    from candidly.review.merging import Rows
    from candidly.tables import files
    from candidly.tables.class_columns import Names, read_sets
    from candidly.tables.labelled import name_of, read_ids
    from candidly.tables.schema import check_column

    session, name = log.sessions[-1], name_of(table)
    roles = [column for column in (session.id, session.candidates) if column is not None]
    typed = files.read(table, delimiter=session.delimiter, texts=roles)
    if session.id is not None:
        check_column(typed, name, session.id, "--table")
    ids = None if session.id is None else read_ids(typed.column(session.id), name, session.id)
    rows = Rows.of(Path(name).name, typed, ids, session)
    column = session.candidates or _HIDDEN
    if session.candidates is not None:
        check_column(typed, name, column, "--table")
        candidates = read_sets(typed, name, column, Names(session.separator))
    elif model is not None:
        classifier = load(model, output)
        record = classifier.fit_record_
        if record is None or not classifier.is_trained_on(rows.features, record.candidates):
            raise ValueError(f"{model} was not trained on {name}; name the model that was reviewed with --model")
        candidates = record.candidates
    else:
        raise ValueError(f"{name} has no column of candidates; name the model that was reviewed with --model")
    # All cells of a CSV file are read as text, so that they are written as they were.
    whole = files.read(table, delimiter=session.delimiter, texts=typed.column_names)
    return whole, rows, candidates, column, session.separator
