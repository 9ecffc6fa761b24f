"""The schema of a user's table: which columns are what, and how its text is written."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from candidly.store.validation import list_of, optional, record, require, text

_MOST_COLUMNS = 1_000_000


@dataclass(frozen=True)
class Schema:
    """Which columns of a table are what; those that are not named are features.

    A model that was trained on a table keeps its schema, so that new rows are read the same way.

    Parameters
    ----------
    candidates : str, optional
        The column of candidates: text such as ``cat|dog``, or lists.
    id : str, optional
        The column that names the rows, all differently.
    labels : str, optional
        The column of true labels, where they are known; for evaluation only.
    drop : sequence of str
        Columns to leave out.
    separator : str
        What stands between class names in a text.
    delimiter : str, optional
        What stands between the columns of CSV; left out, a comma, and a tab in `.tsv` files.

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

    def __post_init__(self) -> None:
        if isinstance(self.drop, str):
            raise ValueError(f"drop is the single text {self.drop!r}; pass a list of columns")
        object.__setattr__(self, "drop", tuple(self.drop))

    @property
    def named(self) -> dict[str, str]:
        """The columns that have a role, by role."""
        roles = {"candidates": self.candidates, "id": self.id, "labels": self.labels}
        return {role: column for role, column in roles.items() if column is not None}

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON types."""
        return asdict(self) | {"drop": list(self.drop)}

    @classmethod
    def from_json(cls, facts: Any) -> "Schema":
        """Read what `to_json` returned, trusting nothing."""
        columns = dict.fromkeys(("candidates", "id", "labels", "delimiter"), optional(text))
        record({**columns, "drop": list_of(text, 0, _MOST_COLUMNS), "separator": text})(facts, "the schema")
        require(facts["separator"] != "", "the schema's separator", facts["separator"])
        return cls(**facts)
