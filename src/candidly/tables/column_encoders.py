"""Encode one column as numbers: fit its statistics, apply them to new rows, and store them as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.store.validation import count, distinct, list_of, number, one_of, record, require, text
from candidly.tables.columns import Texts

KINDS = {"number": "numbers", "text": "numbers", "date": "dates", "duration": "durations"}
"""What a column of each kind holds, for messages."""

_MOST = 1e6  # standard deviations; larger numbers could overflow in a network
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
        What the column was: "number", "text" (all of it numbers), "date" or "duration" (both become seconds).
    mean, scale : float
        Mean and standard deviation of the values that are not missing; the scale of a constant column is 0.
    missing : int
        Number of missing values.
    """

    kind: str
    mean: float
    scale: float
    missing: int

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return 2 if self.missing else 1

    @property
    def suffixes(self) -> list[str]:
        """Endings of the names of the encoded columns."""
        return ["", " missing"] if self.missing else [""]

    @property
    def read_as(self) -> str:
        """Description of how the column became numbers; empty if it held numbers."""
        return _READ_AS.get(self.kind, "")

    def describe_missing(self, rows: int) -> str:
        """Describe what happens to missing values in a column that was fitted on `rows` rows."""
        if self.missing == rows:
            return "no values at all, with an indicator column"
        return f"{_missing_values(self.missing)} replaced by the mean {self.mean:.6g}, with an indicator column"

    def accepts(self, kind: str) -> bool:
        """Return whether new rows may have a column of this kind here."""
        return KINDS[kind] == KINDS[self.kind]


@dataclass(frozen=True)
class Category:
    """A column of categories, as text.

    Attributes
    ----------
    values : tuple of str
        The categories that have separate columns, sorted.
    rest : tuple of str
        Rarer categories, which share a column, sorted.
    missing : int
        Number of missing values; if there are any, they have a column too.
    """

    values: tuple[str, ...]
    rest: tuple[str, ...]
    missing: int

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return len(self.values) + bool(self.rest) + bool(self.missing)

    @property
    def suffixes(self) -> list[str]:
        """What the names of these columns end in."""
        endings = [f"={value}" for value in self.values]
        if self.rest:
            endings.append(" other")
        if self.missing:
            endings.append(" missing")
        return endings

    def encode(self, texts: Texts, encoded: NDArray[np.float32]) -> list[str]:
        """Write a 1 into the column of each row's category. Return the texts that are not categories."""
        column = {value: j for j, value in enumerate(self.values)}
        column |= dict.fromkeys(self.rest, len(self.values))
        column_of_code = [column.get(value, -1) for value in texts.values]
        column_of_code.append(self.width - 1 if self.missing else -1)  # the last entry is that of code -1: missing
        columns = np.array(column_of_code, dtype=np.intp)[texts.codes]
        rows = np.flatnonzero(columns >= 0)
        encoded[rows, columns[rows]] = 1
        return [value for value in texts.values if value not in column]

    def describe(self) -> str:
        """Describe the encoded columns."""
        number = len(self.values) + bool(self.missing)
        words = f"{number} categor{'y' if number == 1 else 'ies'}"
        if self.missing:
            words += f", one of them for {_missing_values(self.missing)}"
        if self.rest:
            words += f"; {len(self.rest)} rarer ones share the column 'other'"
        return words


def _missing_values(number: int) -> str:
    return f"{number} missing value{'' if number == 1 else 's'}"


def fit_numbers(values: NDArray[np.float64], kind: str) -> list[Number]:
    """Return mean, standard deviation and missing values of columns of numbers, (columns, rows), NaN where missing."""
    missing = np.isnan(values)
    num_missing = missing.sum(axis=1)
    num_present = np.maximum(values.shape[1] - num_missing, 1)
    # The extremes of a column in which all values are missing are NaN; they become 0.
    low = np.nan_to_num(np.fmin.reduce(values, axis=1))
    high = np.nan_to_num(np.fmax.reduce(values, axis=1))
    # Squares overflow or underflow near the limits of double precision: scale such columns by a power of 2.
    exponent = np.frexp(np.maximum(-low, high))[1]
    exponent = np.where(np.abs(exponent) > 400, exponent, 0)
    if exponent.any():
        values = np.ldexp(values, -exponent[:, None])
        low = np.ldexp(low, -exponent)
        high = np.ldexp(high, -exponent)
    mean = np.where(missing, 0, values).sum(axis=1) / num_present
    deviation = values - mean[:, None]
    deviation[missing] = 0
    spread = np.sqrt(np.square(deviation, out=deviation).sum(axis=1) / num_present)
    # A spread as small as rounding errors counts as constant.
    constant = (low == high) | (spread <= 10 * np.finfo(np.float64).eps * np.abs(mean))
    mean = np.where(low == high, low, mean)
    spread = np.where(constant, 0, spread)
    means = np.ldexp(mean, exponent).tolist()
    scales = np.ldexp(spread, exponent).tolist()
    return [Number(kind, *facts) for facts in zip(means, scales, num_missing.tolist(), strict=True)]


def find_extremes(values: NDArray[np.float64], columns: Sequence[Number]) -> list[tuple[int, int]]:
    """Return (column, row) of values that are so large that the others of the column become equal when standardised.

    Such a column has a hundredth of its values, or one, at either end, and the others lie closer together than a
    billionth of the distance between the ends.
    """
    found = []
    for j, (one, column) in enumerate(zip(values, columns, strict=True)):
        low, high = np.fmin.reduce(one) / 2, np.fmax.reduce(one) / 2  # halved: a difference may overflow
        far = max(high - column.mean / 2, column.mean / 2 - low)
        # With a hundredth of the values at either end, these are 7 standard deviations away; few columns have such.
        if not column.scale or (len(one) >= 100 and far / column.scale < 3):
            continue
        present = np.flatnonzero(~np.isnan(one))
        n, k = len(present), max(1, len(present) // 100)
        if n < 4:
            continue
        inside = np.partition(one[present], [k, n - 1 - k]) / 2
        if 0 < inside[n - 1 - k] - inside[k] < 1e-9 * (high - low):
            found.append((j, int(present[np.abs(one[present] / 2 - inside[k]).argmax()])))
    return found


def standardise(values: NDArray[np.float64], columns: Sequence[Number]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return ``(values - mean) / scale``, 0 where a value is missing, and where values are missing; (columns, rows)."""
    mean = np.array([column.mean for column in columns])[:, None]
    scale = np.array([column.scale for column in columns])[:, None]
    missing = np.isnan(values)
    half = np.where(np.maximum(np.abs(mean), scale) > 1e150, 0.5, 1.0)  # keeps the difference from overflowing
    unit = scale * half
    with np.errstate(over="ignore"):
        z = (values * half - mean * half) / np.where(unit > 0, unit, 1)
    np.clip(z, -_MOST, _MOST, out=z)
    z[missing | (unit == 0)] = 0
    return z, missing


def fit_texts(texts: Texts, label: str, max_categories: int) -> Category:
    """Return the most frequent texts of a column as categories; messages call the column `label`."""
    rows = len(texts.codes)
    different = len(texts.values)
    if different > max_categories and different > rows / 2:
        raise ValueError(
            f"{label} has {different} different texts in {rows} rows, like an id; drop it, it does not help to predict "
            "new rows"
        )
    is_missing = texts.codes < 0
    counts = np.bincount(texts.codes[~is_missing], minlength=different).tolist()
    most_frequent_first = sorted(zip(counts, texts.values, strict=True), key=lambda pair: (-pair[0], pair[1]))
    ranked = [value for _, value in most_frequent_first]
    return Category(
        values=tuple(sorted(ranked[:max_categories])),
        rest=tuple(sorted(ranked[max_categories:])),
        missing=int(is_missing.sum()),
    )


def to_json(column: Number | Category) -> dict[str, Any]:
    """Return the facts of a column in JSON types."""
    if isinstance(column, Number):
        return asdict(column)
    return {
        "kind": "category",
        "values": list(column.values),
        "rest": list(column.rest),
        "missing": column.missing,
    }


_MISSING = count(0, 2**63 - 1)
_TEXTS = distinct(list_of(text, 0, 2**63 - 1))
_check_number = record({"kind": one_of(KINDS), "mean": number, "scale": number, "missing": _MISSING})
_check_category = record({"kind": one_of(["category"]), "values": _TEXTS, "rest": _TEXTS, "missing": _MISSING})


def check(facts: Any, what: str) -> None:
    """Check the facts of a column that were read from JSON."""
    if not isinstance(facts, dict) or facts.get("kind") != "category":
        _check_number(facts, what)
        require(facts["scale"] >= 0, f"{what}['scale']", facts["scale"])
        return
    _check_category(facts, what)
    values = facts["values"]
    rest = facts["rest"]
    require(values == sorted(values), f"{what}['values']", values)
    require(rest == sorted(rest), f"{what}['rest']", rest)
    require(not set(values) & set(rest), f"{what}['rest']", rest)
    require(bool(values) or not rest, f"{what}['values']", values)
    require(bool(values) or facts["missing"] > 0, f"{what}['values']", values)


def from_json(facts: Any) -> Number | Category:
    """Return the column whose facts `to_json` returned; `check` must have passed."""
    if facts["kind"] == "category":
        return Category(tuple(facts["values"]), tuple(facts["rest"]), facts["missing"])
    return Number(facts["kind"], float(facts["mean"]), float(facts["scale"]), facts["missing"])
