"""From a user's table to the matrix that a network reads: fitted once, stored as JSON, applied to new rows."""

import math
import reprlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.messages import listed
from candidly.tables import column_encoders as encoding
from candidly.tables.column_encoders import KINDS, Category, Number, are_texts, is_count, require
from candidly.tables.columns import MOST_COLUMNS, Numbers, Table, Texts, parse, read, to_number

_ESTIMATOR = "PartialLabelClassifier"  # scikit-learn's messages name it
_LINES = 20  # of a description, for each kind of column


@dataclass(frozen=True)
class Features:
    """How the columns of a table become numbers; `fit` finds out.

    Numbers are standardised. A missing one becomes the mean, and a column beside it says where. Each category has a
    column that is 1 where it occurs.

    Attributes
    ----------
    columns : tuple of Number or Category
        What is known of each column.
    names_ : tuple of str or None
        Column names; None if X was no table.
    rows : int
        How many rows there were.
    image : tuple of int or None
        Shape of one image, if X held images: they are not encoded, and there are no columns.

    Examples
    --------
    >>> X = [[1.0, "red"], [3.0, "blue"], [None, "red"]]
    >>> features = Features.fit(X)
    >>> features.encoded_names
    ['x0', 'x0 missing', 'x1=blue', 'x1=red']
    >>> features.transform(X).tolist()
    [[-1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]
    >>> features.describe()[0]
    '1 numeric column standardised'
    >>> Features.from_json(features.to_json()) == features
    True
    """

    columns: tuple[Number | Category, ...]
    names_: tuple[str, ...] | None
    rows: int
    image: tuple[int, ...] | None = None

    @classmethod
    def fit(cls, X: Any, *, rows: NDArray[np.intp] | None = None, max_categories: int = 50) -> "Features":
        """Look at every column.

        Parameters
        ----------
        X : array, nested list, tensor, sparse matrix, or table of pandas, polars or pyarrow; shape (n, d)
            Numbers, text and dates, by column. Text that reads as numbers in all rows is numbers. Images, bytes (uint8)
            of shape (n, channels, height, width), stay as they are.
        rows : array of int, optional
            The rows to look at, by default each of them once.
        max_categories : int
            How many categories of a column get a column of their own: the most frequent. The rest share one.
        """
        if isinstance(max_categories, bool) or not isinstance(max_categories, int | np.integer) or max_categories < 1:
            raise ValueError(f"max_categories is {max_categories!r}; pass an integer of at least 1")
        table = read(X)
        if isinstance(table, np.ndarray):
            return cls((), None, len(table), table.shape[1:])
        table.check_size(table.shape[1])
        columns: list[Number | Category] = []
        for j, whole in table.blocks():
            block = whole if rows is None else whole.take(rows)
            if isinstance(block, Numbers):
                columns += encoding.fit_numbers(block.values, block.kind)
            else:
                columns.append(encoding.fit_texts(block, table.label(j), int(max_categories)))
        features = cls(tuple(columns), table.names, table.shape[0] if rows is None else len(rows))
        if features.width > MOST_COLUMNS:
            raise ValueError(f"X has {features.width} columns when encoded; the limit is {MOST_COLUMNS}, select some")
        return features

    @property
    def n_features_in_(self) -> int:
        """How many columns X has, or how many numbers an image."""
        return math.prod(self.image) if self.image else len(self.columns)

    @property
    def width(self) -> int:
        """How many columns the encoded matrix has, or how many numbers an image."""
        return math.prod(self.image) if self.image else sum(column.width for column in self.columns)

    @property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns; images have none."""
        names = self.names_ or [f"x{j}" for j in range(len(self.columns))]
        return [name + suffix for name, column in zip(names, self.columns, strict=True) for suffix in column.suffixes]

    def transform(self, X: Any) -> NDArray[Any]:
        """Encode rows.

        Parameters
        ----------
        X : as in `fit`
            Columns of a table are taken by name, in whatever order they come.

        Returns
        -------
        array, shape (n, width)
            In float32. A number further than a million standard deviations from the mean counts as a million, and
            what was constant in `fit` is 0. Images are copied as they are.

        Warns
        -----
        UserWarning
            If values are missing in a column that had all of them, or categories are new: all columns of that category
            are 0 there.
        """
        table = read(X)
        if isinstance(table, np.ndarray) or self.image is not None:
            return self._check_images(table).copy()
        table = self._take_columns(table)
        table.check_size(self.width)
        rows = _Rows(table, self.columns)
        for first, block in table.blocks({j for j, column in enumerate(self.columns) if isinstance(column, Category)}):
            rows.put(first, block)
        rows.warn()
        return rows.encoded

    def describe(self) -> list[str]:
        """Say in plain words what happens to which columns."""
        if self.image is not None:
            return [f"images of shape {self.image}, passed on as they are"]
        names = self.names_ or [f"column {j}" for j in range(len(self.columns))]
        named = [(_printable(name), column) for name, column in zip(names, self.columns, strict=True)]
        numeric = [(name, column) for name, column in named if isinstance(column, Number)]
        constant = [name for name, column in numeric if not column.scale]
        lines = []
        if varying := len(numeric) - len(constant):
            lines.append(f"{varying} numeric column{'s' * (varying > 1)} standardised")
        if constant:
            shown = ", ".join(constant[:_LINES]) + ", …" * (len(constant) > _LINES)
            lines.append(f"{len(constant)} constant column{'s' * (len(constant) > 1)} set to 0: {shown}")
        lines += _cut([f"{name}: {column.read_as}" for name, column in numeric if column.read_as])
        lines += _cut([f"{name}: {column.describe_missing(self.rows)}" for name, column in numeric if column.missing])
        return lines + _cut([f"{name}: {column.describe()}" for name, column in named if isinstance(column, Category)])

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON types; floating-point numbers come back to the bit."""
        return {
            "rows": self.rows,
            "names": None if self.names_ is None else list(self.names_),
            "image": None if self.image is None else list(self.image),
            "columns": [encoding.to_json(column) for column in self.columns],
        }

    @classmethod
    def from_json(cls, facts: Any) -> "Features":
        """Read what `to_json` returned, trusting nothing."""
        keys = ("rows", "names", "image", "columns")
        require(isinstance(facts, dict) and facts.keys() == set(keys), "the whole", facts)
        rows, names, image, columns = (facts[key] for key in keys)
        require(is_count(rows) and rows > 0, "rows", rows)
        require(isinstance(columns, list) and len(columns) <= MOST_COLUMNS, "columns", columns)
        if image is not None:
            require(isinstance(image, list) and len(image) == 3 and all(map(is_count, image)), "image", image)
            require(0 < math.prod(image) < 2**31 and not columns and names is None, "image", image)
            return cls((), None, rows, tuple(image))
        require(names is None or (are_texts(names) and len(names) == len(columns)), "names", names)
        known = tuple(encoding.from_json(column, rows) for column in columns)
        features = cls(known, None if names is None else tuple(names), rows)
        require(0 < features.width <= MOST_COLUMNS, "the number of encoded columns", features.width)
        return features

    def _check_images(self, images: Table | NDArray[np.uint8]) -> NDArray[np.uint8]:
        found = f"images of shape {images.shape[1:]}" if isinstance(images, np.ndarray) else "a table"
        wanted = "a table" if self.image is None else f"images (uint8) of shape {self.image}"
        if not isinstance(images, np.ndarray) or images.shape[1:] != self.image:
            raise ValueError(f"X is {found}, but {_ESTIMATOR} was fitted on {wanted}; pass the same")
        return images

    def _take_columns(self, table: Table) -> Table:
        """Return the columns in the order of `fit`."""
        if self.names_ is not None and table.names is not None:
            lacking = sorted(set(self.names_) - set(table.names))
            extra = sorted(set(table.names) - set(self.names_))
            wrong = [f"lacks the columns {listed(map(repr, lacking))}"] * bool(lacking)
            wrong += [f"has the columns {listed(map(repr, extra))}, which fit did not see"] * bool(extra)
            if wrong:
                raise ValueError(f"X {' and '.join(wrong)}; pass the columns that were fitted")
            return table.by_name(self.names_)
        if table.shape[1] != len(self.columns):
            raise ValueError(
                f"X has {table.shape[1]} features, but {_ESTIMATOR} is expecting {len(self.columns)} features as input"
            )
        if (self.names_ is None) != (table.names is None):
            has, was = ("has", "without") if self.names_ is None else ("does not have valid", "with")
            message = f"X {has} feature names, but {_ESTIMATOR} was fitted {was} feature names"
            warnings.warn(message, stacklevel=3)
        return table


class _Rows:
    """Encoded rows in the making, and what is to be said of them."""

    def __init__(self, table: Table, columns: Sequence[Number | Category]) -> None:
        self.table, self.columns = table, columns
        self.starts = np.cumsum([0, *(column.width for column in columns)])
        self.encoded = np.zeros((table.shape[0], int(self.starts[-1])), dtype=np.float32)
        self.gaps: list[int] = []  # columns that lack values and did not in fit
        self.news: list[str] = []  # categories that were not in fit

    def put(self, first: int, block: Numbers | Texts) -> None:
        """Encode a block, of which this is the number of the first column."""
        column = self.columns[first]
        if isinstance(column, Number):
            self._put_numbers(first, self._as_numbers(first, block, column))
        elif isinstance(block, Texts):
            new = column.encode(block, self.encoded[:, self.starts[first] : self.starts[first + 1]])
            self.news += [f"{reprlib.repr(value)} in {self.table.label(first)}" for value in new]
            self.gaps += [first] * (not column.missing and bool((block.codes < 0).any()))

    def _put_numbers(self, first: int, block: Numbers) -> None:
        columns = [c for c in self.columns[first : first + len(block.values)] if isinstance(c, Number)]
        for j, column in enumerate(columns, first):
            if not column.accepts(block.kind) and not np.isnan(block.values[j - first]).all():
                has, held = KINDS[block.kind], KINDS[column.kind]
                raise ValueError(f"{self.table.label(j)} of X has {has} but held {held} in fit; convert it")
        z, missing = encoding.standardise(block.values, columns)
        self.encoded[:, self.starts[first : first + len(columns)]] = z.T
        for i in np.flatnonzero(missing.any(axis=1)).tolist():
            if columns[i].missing:
                self.encoded[:, self.starts[first + i] + 1] = missing[i]
            else:
                self.gaps.append(first + i)

    def _as_numbers(self, first: int, block: Numbers | Texts, column: Number) -> Numbers:
        """Read the texts of a column that held numbers in `fit`."""
        numbers = parse(block) if isinstance(block, Texts) else block
        if isinstance(numbers, Numbers):
            return numbers
        code = next(code for code, text in enumerate(numbers.values) if to_number(text) is None)
        row, found = int((numbers.codes == code).argmax()), reprlib.repr(numbers.values[code])
        place, held = self.table.label(first), KINDS[column.kind]
        raise ValueError(f"X has {found} in row {row}, {place}, which held {held} in fit; correct it")

    def warn(self) -> None:
        """Warn once of each thing that `fit` did not see."""
        if self.gaps:
            where = listed(map(self.table.label, self.gaps))
            message = (
                f"X lacks values where fit saw none missing, in {where}; numbers become the mean, categories zeros"
            )
            warnings.warn(message, stacklevel=3)
        if self.news:
            message = f"X has categories that fit did not see, which become zeros: {listed(self.news)}"
            warnings.warn(message, stacklevel=3)


def _cut(lines: list[str]) -> list[str]:
    more = len(lines) - _LINES
    return lines if more <= 0 else [*lines[:_LINES], f"and so on for {more} more columns"]


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)
