"""Which encoder computed the features of a table: in the metadata of Parquet and Arrow files, and with a model."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from candidly.messages import cut, warn
from candidly.store.validation import distinct, list_of, optional, record, text

KEY = b"candidly.encoders"
"""The key of the metadata of a table under which its encoders are listed, as JSON."""

_MOST = 1000  # encoded columns of a table


@dataclass(frozen=True)
class Provenance:
    """The encoder that computed features, and the column that they were computed from.

    Attributes
    ----------
    column : str
        The encoded column of images or texts. It is not a feature; its features are named after it.
    encoder : str
        The name of the encoder, such as "efficientnet-lite0".
    version : str
        The packages that ran the encoder, with their versions.
    weights : str
        The SHA-256 digest of the encoder's weights.
    preparation : str
        How an image is resized and scaled, or how a text is split into tokens and what is done with them.
    reduction : str, optional
        The SHA-256 digest of the components to which the features were reduced.

    Examples
    --------
    >>> made = Provenance("photo", "efficientnet-lite0", "0.1.0", "ab12")
    >>> Provenance.list_from_json(Provenance.list_to_json([made])) == (made,)
    True
    """

    column: str
    encoder: str
    version: str
    weights: str
    preparation: str = ""
    reduction: str | None = None

    @property
    def identity(self) -> tuple[str, str, str | None]:
        """What makes features comparable. Names and versions may differ, for example those of a file that was moved."""
        return self.weights, self.preparation, self.reduction

    def __str__(self) -> str:
        reduced = "" if self.reduction is None else f", components {self.reduction[:8]}"
        prepared = self.preparation and f", {self.preparation}"
        return f"{self.encoder} (weights {self.weights[:8]}{reduced}{prepared})"

    @staticmethod
    def list_to_json(encoders: Sequence["Provenance"]) -> list[dict[str, Any]]:
        """Return encoders in JSON types."""
        return [asdict(one) for one in encoders]

    @staticmethod
    def list_from_json(facts: Any) -> tuple["Provenance", ...]:
        """Read what `list_to_json` returned. Raise ValueError if it is damaged."""
        _check(facts, "the list of encoders")
        columns = [one["column"] for one in facts]
        distinct(list_of(text, 0, _MOST))(columns, "the list of encoded columns")
        return tuple(Provenance(**one) for one in facts)


_check = list_of(
    record(
        {**dict.fromkeys(("column", "encoder", "version", "weights", "preparation"), text), "reduction": optional(text)}
    ),
    0,
    _MOST,
)


def of_table(table: Any, file: str) -> tuple[Provenance, ...]:
    """Return the encoders that the metadata of an Arrow table lists; raise ValueError if the list is damaged."""
    return of_schema(table.schema, file)


def of_schema(schema: Any, file: str) -> tuple[Provenance, ...]:
    """Return the encoders that the metadata of an Arrow schema lists; raise ValueError if the list is damaged."""
    noted = (schema.metadata or {}).get(KEY)
    if noted is None:
        return ()
    try:
        return Provenance.list_from_json(json.loads(noted))
    except (ValueError, RecursionError) as error:
        reason = cut(str(error), 200)
        raise ValueError(f"{file} has damaged metadata of encoders ({reason}); run `candidly embed` again") from None


def attach(table: Any, made: Provenance) -> Any:
    """Return a table whose metadata also lists an encoder."""
    found = [one for one in of_table(table, "the table") if one.column != made.column]
    noted = json.dumps(Provenance.list_to_json([*found, made])).encode()
    return table.replace_schema_metadata({**(table.schema.metadata or {}), KEY: noted})


def check_encoders(found: Sequence[Provenance], fitted: Sequence[Provenance], file: str) -> None:
    """Raise ValueError if features of a table come from other encoders than those that a model was fitted on.

    Warn if the table does not say where they come from, as in a CSV file, which has no metadata.

    Examples
    --------
    >>> a, b = (Provenance("photo", name, "1", name) for name in ("a", "b"))
    >>> check_encoders([a], [a], "new.parquet")
    >>> check_encoders([b], [a], "new.parquet")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: new.parquet has features of 'photo' from the encoder b (weights b), but the model was fitted on ...
    """
    known = {one.column: one for one in found}
    for one in fitted:
        other = known.get(one.column)
        if other is None:
            warn(
                f"{file} does not say which encoder computed its features, and the model was fitted on features from "
                f"{one.encoder}; write them with `candidly embed` as Parquet to have this checked"
            )
        elif other.identity != one.identity:
            raise ValueError(
                f"{file} has features of {one.column!r} from the encoder {other}, but the model was fitted "
                f"on features from {one}; encode the rows with `candidly embed --like` and a file that the "
                "model was fitted on"
            )
