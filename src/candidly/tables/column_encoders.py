"""How one column becomes numbers: what is remembered of it, how that is applied to new rows and stored as JSON."""

import reprlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.tables.columns import Texts

KINDS = {"number": "numbers", "text": "numbers", "date": "dates", "duration": "durations"}  # in words

_MOST = 1e6  # standard deviations; more could overflow in a network
_READ_AS = {
    "text": "text read as numbers",
    "date": "dates as seconds since 1970",
    "duration": "durations as seconds",
}


@dataclass(frozen=True)
class Number:
    """A column of numbers.

    Attributes
    ----------
    kind : str
        What it was: "number", "text" (which reads as numbers), "date" or "duration" (both become seconds).
    mean, scale : float
        Mean and standard deviation of the values there were; the scale of a constant column is 0.
    missing : int
        How many values were missing.
    """

    kind: str
    mean: float
    scale: float
    missing: int

    @property
    def width(self) -> int:
        """How many columns it becomes."""
        return 1 + bool(self.missing)

    @property
    def suffixes(self) -> list[str]:
        """What the names of these columns end in."""
        return ["", " missing"][: self.width]

    @property
    def read_as(self) -> str:
        """How it became numbers, in words; empty if it was numbers."""
        return _READ_AS.get(self.kind, "")

    def describe_missing(self, rows: int) -> str:
        """Say what became of missing values, of so many rows, in words."""
        if self.missing == rows:
            return "no values at all, with an indicator column"
        number = f"{self.missing} missing value{'s' * (self.missing > 1)}"
        return f"{number} replaced by the mean {self.mean:.6g}, with an indicator column"

    def accepts(self, kind: str) -> bool:
        """Tell whether a column of this kind may stand in its place."""
        return KINDS[kind] == KINDS[self.kind]


@dataclass(frozen=True)
class Category:
    """A column of categories, written as text.

    Attributes
    ----------
    values : tuple of str
        The categories that have a column of their own, sorted.
    rest : tuple of str
        Rarer ones, which share a column, sorted.
    missing : int
        How many values were missing; if any were, that is a category too.
    """

    values: tuple[str, ...]
    rest: tuple[str, ...]
    missing: int

    @property
    def width(self) -> int:
        """How many columns it becomes."""
        return len(self.values) + bool(self.rest) + bool(self.missing)

    @property
    def suffixes(self) -> list[str]:
        """What the names of these columns end in."""
        shared = [" other"] * bool(self.rest) + [" missing"] * bool(self.missing)
        return [f"={value}" for value in self.values] + shared

    def encode(self, texts: Texts, encoded: NDArray[np.float32]) -> list[str]:
        """Write a 1 where each row's category is, and return the texts that are none."""
        column = {value: i for i, value in enumerate(self.values)} | dict.fromkeys(self.rest, len(self.values))
        missing = self.width - 1 if self.missing else -1  # the last place, which is code -1's
        places = np.array([*(column.get(value, -1) for value in texts.values), missing], dtype=np.intp)[texts.codes]
        rows = np.flatnonzero(places >= 0)
        encoded[rows, places[rows]] = 1
        return [value for value in texts.values if value not in column]

    def describe(self) -> str:
        """Say what it becomes, in words."""
        number = len(self.values) + bool(self.missing)
        words = f"{number} categor{'y' if number == 1 else 'ies'}"
        if self.missing:
            words += f", one of them for {self.missing} missing value{'s' * (self.missing > 1)}"
        return words + f"; {len(self.rest)} rarer ones share the column 'other'" * bool(self.rest)


def fit_numbers(values: NDArray[np.float64], kind: str) -> list[Number]:
    """Measure columns of numbers, (columns, rows), of which NaN are missing."""
    missing = np.isnan(values)
    gaps = missing.sum(axis=1)
    count = np.maximum(values.shape[1] - gaps, 1)
    low, high = (np.nan_to_num(end.reduce(values, axis=1)) for end in (np.fmin, np.fmax))  # NaN: a column of NaN alone
    # Squares overflow or vanish near the ends of double precision: such columns are measured in another unit.
    unit = np.frexp(np.maximum(-low, high))[1]
    unit = np.where(np.abs(unit) > 400, unit, 0)
    if unit.any():
        values, low, high = np.ldexp(values, -unit[:, None]), np.ldexp(low, -unit), np.ldexp(high, -unit)
    mean = np.where(missing, 0, values).sum(axis=1) / count
    deviation = values - mean[:, None]
    deviation[missing] = 0
    spread = np.sqrt(np.square(deviation, out=deviation).sum(axis=1) / count)
    constant = (low == high) | (spread <= 10 * np.finfo(np.float64).eps * np.abs(mean))  # rounding is no variation
    mean, spread = np.where(low == high, low, mean), np.where(constant, 0, spread)
    facts = zip(np.ldexp(mean, unit).tolist(), np.ldexp(spread, unit).tolist(), gaps.tolist(), strict=True)
    return [Number(kind, *fact) for fact in facts]


def standardise(values: NDArray[np.float64], columns: Sequence[Number]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return ``(values - mean) / scale`` and what is missing, which is 0; both (columns, rows)."""
    mean = np.array([column.mean for column in columns])[:, None]
    scale = np.array([column.scale for column in columns])[:, None]
    missing = np.isnan(values)
    half = np.where(np.maximum(np.abs(mean), scale) > 1e150, 0.5, 1.0)  # else the difference could overflow
    unit = scale * half
    with np.errstate(over="ignore"):
        z = (values * half - mean * half) / np.where(unit > 0, unit, 1)
    np.clip(z, -_MOST, _MOST, out=z)
    z[missing | (unit == 0)] = 0
    return z, missing


def fit_texts(texts: Texts, label: str, max_categories: int) -> Category:
    """Count the texts of a column; `label` names it in a message."""
    rows, number = len(texts.codes), len(texts.values)
    if number > max_categories and number > rows / 2:
        raise ValueError(
            f"{label} has {number} different texts in {rows} rows, as an id has; drop it, it says nothing of new rows"
        )
    counts = np.bincount(texts.codes[texts.codes >= 0], minlength=number).tolist()
    ranked = [value for _, value in sorted((-count, value) for count, value in zip(counts, texts.values, strict=True))]
    missing = int((texts.codes < 0).sum())
    return Category(tuple(sorted(ranked[:max_categories])), tuple(sorted(ranked[max_categories:])), missing)


def to_json(column: Number | Category) -> dict[str, Any]:
    """Return the facts of a column in JSON types."""
    facts = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(column).items()}
    return facts if isinstance(column, Number) else {"kind": "category"} | facts


def from_json(facts: Any, rows: int) -> Number | Category:
    """Read the facts of a column that was fitted on so many rows, trusting nothing."""
    kind: Any = facts.get("kind") if isinstance(facts, dict) else None
    names = ("values", "rest") if kind == "category" else ("mean", "scale")
    require(isinstance(facts, dict) and facts.keys() == {"kind", "missing", *names}, "a column", facts)
    first, second, missing = facts[names[0]], facts[names[1]], facts["missing"]
    require(is_count(missing) and missing <= rows, "missing", missing)
    if kind == "category":
        require(are_texts(first) and first == sorted(first), "values", first)
        require(are_texts(second) and second == sorted(second) and bool(first or not second), "rest", second)
        require(not set(first) & set(second) and bool(first or missing), "values", first)
        return Category(tuple(first), tuple(second), missing)
    require(isinstance(kind, str) and kind in KINDS, "kind", kind)
    require(_is_finite(first), "mean", first)
    require(_is_finite(second) and second >= 0, "scale", second)
    return Number(kind, float(first), float(second), missing)


def require(good: bool, what: str, found: Any) -> None:
    """Refuse stored facts that `to_json` did not write."""
    if not good:
        shown = reprlib.repr(found)[:200]
        raise ValueError(f"the stored features are damaged: {what} is {shown}; fit and save them again")


def is_count(value: Any) -> bool:
    """Tell whether a value from JSON is an integer of at least 0, and one of this world."""
    return type(value) is int and 0 <= value < 2**63


def are_texts(value: Any) -> bool:
    """Tell whether a value from JSON is a list of different texts."""
    return isinstance(value, list) and all(type(text) is str for text in value) and len(set(value)) == len(value)


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max
