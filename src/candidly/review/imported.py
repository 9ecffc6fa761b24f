"""Decisions that were made in an annotation tool, as a log."""

from candidly.review.decisions import Decision, Log, Session, now
from candidly.tables.exports import Export
from candidly.tables.schema import Schema

_TRUTH = "ground truth"


def log_of(export: Export, schema: Schema) -> Log:
    """Return the annotations of an export as a log of decisions, one reviewer per annotator.

    Ground truth replaces the other annotations of its task.

    Parameters
    ----------
    export : Export
        The tasks. Their ids are the ids of the rows.
    schema : Schema
        The columns of the table that the decisions are about; it names one of ids.

    Raises
    ------
    ValueError
        If there are no annotations, or if an annotator gave a task several labels.
    """
    if schema.id is None:
        raise ValueError(f"{export.name} belongs to rows by their ids; name the column of ids with --id")
    time, decisions = now(), []
    for number, (one, task) in enumerate(export.tasks.items()):
        given = [(_TRUTH, name) for name in task.truth] or list(task.votes)
        reviewers = [reviewer for reviewer, _ in given]
        repeated = next((name for name in reviewers if reviewers.count(name) > 1), None)
        if repeated is not None:
            raise ValueError(f"{export.name}: {repeated!r} gave task {one!r} several labels; a row has one, keep it")
        decisions += [
            Decision(time, reviewer, "decide", export.name, number, one, "", None, label, 0.0, number + 1)
            for reviewer, label in given
        ]
    if not decisions:
        raise ValueError(f"{export.name} has no annotations; export tasks after they were annotated")
    reviewer = decisions[-1].reviewer
    table = Session(
        time, reviewer, export.name, export.name, schema.id, schema.candidates, (), schema.separator, schema.delimiter
    )
    return Log.of(export.name, table, decisions)
