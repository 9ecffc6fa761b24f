"""The schema of a user's table: which columns are candidates, ids, true labels, groups or features, and separators."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from types import NoneType
from typing import Any

from candidly.checks import arguments
from candidly.messages import did_you_mean, listed_names, option, warn
from candidly.store.validation import instance, list_of, optional, record, text
from candidly.tables import provenance
from candidly.tables.delimited import check_delimiter
from candidly.tables.provenance import Provenance

_MOST_COLUMNS = 1_000_000
_INDEX = re.compile(r"|Unnamed: 0(\.\d+)*|__index_level_\d+__")  # how pandas calls an index without a name
_LABELS = ("label", "labels", "true", "target")  # columns with these names probably hold true labels

OPTIONS = {
    "candidates": option("candidates"),
    "id": option("id"),
    "labels": option("labels", python="label"),
    "groups": option("groups"),
    "drop": option("drop"),
}
"""How messages name the option behind each part of a schema."""


@dataclass(frozen=True)
class Schema:
    """Which columns of a table are what; columns that are not named are features.

    A model that was trained on a table keeps its schema, so that new rows are read the same way.

    Parameters
    ----------
    candidates : str, optional
        The column of candidates: text such as ``cat|dog``, or lists.
    id : str, optional
        The column with a unique name for each row.
    labels : str, optional
        The column of true labels, where they are known; for evaluation only.
    drop : sequence of str
        Columns to leave out.
    separator : str
        The text between class names in a cell.
    delimiter : str, optional
        The character between the columns of CSV; by default a comma, and a tab in `.tsv` files.
    groups : str, optional
        The column with the group of each row, such as its scene or recording. Rows of one group are held out together.
    encoders : sequence of Provenance
        The encoders that computed features of the table, as its metadata lists them.

    Examples
    --------
    >>> schema = Schema("tags", id="key", drop=["note"])
    >>> Schema.from_json(schema.to_json()) == schema
    True
    >>> schema.named
    {'candidates': 'tags', 'id': 'key'}
    """

    candidates: str | None = None
    id: str | None = None
    labels: str | None = None
    drop: Sequence[str] = ()
    separator: str = "|"
    delimiter: str | None = None
    groups: str | None = None
    encoders: Sequence[Provenance] = ()

    def __post_init__(self) -> None:
        for name in ("candidates", "id", "labels", "groups"):
            arguments.instance(name, getattr(self, name), (str, NoneType), "the name of a column, or None")
        drop = tuple(arguments.items("drop", self.drop, "a list of columns"))
        for column in drop:
            arguments.instance("one of drop", column, str, "the name of a column")
        arguments.text("separator", self.separator, "the text between the names, e.g. '|'")
        check_delimiter(self.delimiter)
        encoders = tuple(arguments.items("encoders", self.encoders, "a list of encoders"))
        for encoder in encoders:
            arguments.instance("one of encoders", encoder, Provenance, "a candidly.tables.Provenance")
        object.__setattr__(self, "drop", drop)
        object.__setattr__(self, "encoders", encoders)

    @property
    def named(self) -> dict[str, str]:
        """The columns that have a role, by role."""
        roles = {"candidates": self.candidates, "id": self.id, "labels": self.labels, "groups": self.groups}
        return {role: column for role, column in roles.items() if column is not None}

    def completed(self, like: "Schema | None", columns: Sequence[str]) -> "Schema":
        """Return the schema with the roles that it leaves open, and `drop`, taken from another table's schema.

        Only the columns that the table has are taken, and only those that this schema does not name.
        """
        if like is None:
            return self
        free = [column for column in columns if column not in {*self.named.values(), *self.drop}]
        roles = {role: column for role, column in like.named.items() if role not in self.named and column in free}
        completed: dict[str, Any] = {**roles, "drop": [*self.drop, *(column for column in like.drop if column in free)]}
        return replace(self, **completed)

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON types; without `encoders` if there are none."""
        facts = asdict(self) | {"drop": list(self.drop)}
        encoders = Provenance.list_to_json(self.encoders)
        return facts | {"encoders": encoders} if encoders else {k: v for k, v in facts.items() if k != "encoders"}

    @classmethod
    def from_json(cls, facts: Any) -> "Schema":
        """Read what `to_json` returned. Raise ValueError if it is damaged. Version 0.1 wrote no groups."""
        facts = {"groups": None, "encoders": []} | facts if isinstance(facts, dict) else facts
        columns = dict.fromkeys(("candidates", "id", "labels", "delimiter", "groups"), optional(text))
        parts = {**columns, "drop": list_of(text, 0, _MOST_COLUMNS), "separator": text, "encoders": instance(list)}
        try:
            record(parts)(facts, "the schema")
            encoders = Provenance.list_from_json(facts["encoders"])
        except ValueError as error:
            raise ValueError(f"{error}; pass what Schema.to_json() returned") from None
        return cls(**facts | {"encoders": encoders})


def choose_features(table: Any, file: str, schema: Schema) -> tuple[list[str], Schema]:
    """Return the columns of a table that are features.

    Features are all columns that the schema does not name, except the index of a data frame, and columns of images or
    texts whose features the table holds (`candidly.encoders`).

    Parameters
    ----------
    table : pyarrow.Table
    file : str
        The name of the table in messages.
    schema : Schema
        What the user says about the columns.

    Returns
    -------
    features : list of str
    schema : Schema
        The given one, with the index columns and encoded columns that were left out added to `drop`, and with the
        encoders that the metadata of the table lists.

    Raises
    ------
    ValueError
        When a column is missing or named twice, or none is left for the features.

    Warns
    -----
    UserWarning
        When an index is left out, or when a feature is named like a column of true labels.

    Examples
    --------
    >>> import pyarrow as pa
    >>> choose_features(pa.table({"a": [1], "tags": ["x"], "b": [2]}), "t.csv", Schema("tags", drop=["b"]))[0]
    ['a']
    """
    columns = table.column_names
    named = [*schema.named.items(), *(("drop", column) for column in schema.drop)]
    for role, column in named:
        check_column(table, file, column, OPTIONS[role])
    taken: dict[str, str] = {}
    for role, column in named:
        if column in taken:
            raise ValueError(f"{taken[column]} and {role} both name the column {column!r}; take it out of one")
        taken[column] = role
    noted = _pandas_index(table.schema)
    encoders = provenance.of_table(table, file)
    encoded = [one.column for one in encoders if one.column in columns and one.column not in taken]
    free = [column for column in columns if column not in taken and column not in encoded]
    index = [column for column in free if column in noted or _INDEX.fullmatch(column)]
    features = [column for column in free if column not in index]
    if not features:
        note = f", and {index[0]!r} looks like an index" if index else ""
        raise ValueError(f"{file} has no column of features beside {listed_names(columns)}{note}; add or rename one")
    suspect = next((column for column in features if column.strip().casefold() in _LABELS), None)
    if suspect is not None:
        warn(
            f"{file}: {suspect!r} is a feature; if it holds true labels, name it with {OPTIONS['labels']} or leave it "
            f"out with {OPTIONS['drop']}"
        )
    if index:
        warn(
            f"{file}: left out {listed_names(index)}, which looks like the index of a data frame; rename the column to "
            f"keep it, or list it in {OPTIONS['drop']}"
        )
    return features, replace(schema, drop=[*schema.drop, *index, *encoded], encoders=encoders)


def check_column(table: Any, file: str, column: str, given: str) -> None:
    """Check that a table has the column that an option names."""
    check_name(table.column_names, file, column, given)


def check_name(columns: Sequence[str], file: str, column: str, given: str) -> None:
    """Check that the column that an option names is one of those of a table."""
    if column not in columns:
        hint = did_you_mean(column, columns)
        raise ValueError(
            f"{file} has no column {column!r}{hint}; name another with {given}, out of {listed_names(columns)}"
        )


def _pandas_index(schema: Any) -> list[str]:
    """Return the columns that pandas noted as the index when it wrote a Parquet or Arrow file."""
    try:
        noted = (schema.pandas_metadata or {}).get("index_columns", [])
        return [name for name in noted if isinstance(name, str)]  # a range of numbers has no column
    except (ValueError, AttributeError, TypeError):  # metadata of another program
        return []
