"""Which columns of a table are what: candidates, true labels, features, or nothing that is read."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from candidly.messages import warn
from candidly.tables.labelled import INDEX, SHOWN


@dataclass(frozen=True)
class Roles:
    """What the user says of the columns; `candidly.data.read_table` explains it."""

    candidates: str
    label: str | None
    drop: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.label == self.candidates:
            raise ValueError(
                f"candidates and label are both {self.label!r}; name two columns, or pass label=None if there are no "
                "true labels"
            )
        if isinstance(self.drop, str):
            raise ValueError(f"drop is the single text {self.drop!r}; pass a list of columns")
        for name in (self.candidates, self.label):
            if name in self.drop and name != "label":
                raise ValueError(f"drop lists {name!r}, a column to be read; take it out of one of the two")


@dataclass(frozen=True)
class Columns:
    """The columns to read."""

    candidates: str
    label: str | None
    features: list[str]


def choose(path: Path, names: list[str], roles: Roles, index: Collection[str] = ()) -> Columns:
    """Choose the columns to read.

    Parameters
    ----------
    path
        The table, for messages.
    names
        All its columns.
    roles
        What the user says of them.
    index
        Columns that hold the index of a data frame, beside those whose name says so.

    Raises
    ------
    ValueError
        When a column is missing or there twice, or none is left for the features.

    Warns
    -----
    UserWarning
        When an index is left out.

    Examples
    --------
    >>> choose(Path("t.csv"), ["a", "label", "b", "candidates"], Roles("candidates", "label", ["b"]))
    Columns(candidates='candidates', label='label', features=['a'])
    """
    unknown = [name for name in roles.drop if name not in names]
    if unknown:
        raise ValueError(f"drop lists {unknown[0]!r}, but the columns of {path} are {_shown(names)}; correct it")
    kept = [name for name in names if name not in roles.drop]
    if roles.label is None:
        kept = [name for name in kept if name == roles.candidates or not _alike(name, "label")]
    if roles.candidates not in kept:
        raise _without_candidates(path, kept, roles.candidates)
    label = _find_label(path, kept, roles.label)
    left_out = [
        name for name in kept if (name in index or INDEX.fullmatch(name)) and name not in (roles.candidates, label)
    ]
    kept = [name for name in kept if name not in left_out]
    twice = [name for name, times in Counter(kept).items() if times > 1]
    if twice:
        raise ValueError(f"{path} has several columns {twice[0]!r}; rename them")
    features = [name for name in kept if name not in (roles.candidates, label)]
    if not features:
        note = f", and {left_out[0]!r} looks like an index" if left_out else ""
        raise ValueError(
            f"{path} has no column of features beside {_shown(names)}{note}; add or rename numeric columns"
        )
    if left_out:
        warn(
            f"{path}: left out {', '.join(map(repr, left_out))}, which looks like the index of a data frame and not "
            "like a feature; rename the column to keep it, or list it in read_table(..., drop=)"
        )
    return Columns(roles.candidates, label, features)


def _find_label(path: Path, names: list[str], label: str | None) -> str | None:
    if label is None or label in names:
        return label
    for name in names:
        if _alike(name, label):
            raise ValueError(
                f"{path} has a column {name!r}, but none {label!r}; rename it, or name it with read_table(..., "
                f"label={name!r}), or leave it out with drop=[{name!r}]"
            )
    if label != "label":
        raise ValueError(f"{path} has no column {label!r}; name the column of labels, out of {_shown(names)}")
    return None


def _without_candidates(path: Path, names: list[str], candidates: str) -> ValueError:
    for name in names:
        if _alike(name, candidates):
            return ValueError(
                f"{path} has a column {name!r}, but none {candidates!r}; rename it, or name it with read_table(..., "
                f"candidates={name!r})"
            )
    for delimiter in ";\t":
        if len(names) == 1 and delimiter in names[0]:
            return ValueError(
                f"{path} has the one column {names[0]!r}; if {delimiter!r} stands between its columns, pass "
                f"read_table(..., delimiter={delimiter!r})"
            )
    return ValueError(
        f"{path} has no column {candidates!r}; name the column of candidates with read_table(..., candidates=), out of "
        f"{_shown(names)}"
    )


def _alike(name: str, other: str) -> bool:
    return name.strip().casefold() == other.strip().casefold()


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
