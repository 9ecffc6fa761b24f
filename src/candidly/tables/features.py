"""Encode a user's table as the matrix that a network reads: fit once, store as JSON, apply to new rows."""

import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates.values import unmasked
from candidly.checks.arguments import instance, integer, shown
from candidly.messages import listed, visible, warn
from candidly.store.validation import count, distinct, list_of, optional, record, require, text
from candidly.tables import column_encoders
from candidly.tables.column_encoders import KINDS, Category, Number
from candidly.tables.columns import (
    MOST_COLUMNS,
    Numbers,
    Table,
    Texts,
    number_advice,
    parse,
    read,
    to_number,
    warn_of_strange,
)
from candidly.tables.reduction import Reduction, can_reduce, check_finite

_ESTIMATOR = "PartialLabelClassifier"  # scikit-learn's messages name it
_IN_ORDER = "columns are taken in their order"
_LINES = 20  # lines of a description for each kind of column
_FEW = 3  # columns with missing values that have a line each
_LISTED = 5  # columns that are named in one line, those with the most missing values first
_MOST_PIXELS = 2**31 - 1  # numbers in one image


@dataclass(frozen=True)
class Features:
    """A fitted encoder of tables: how each column becomes numbers. Create it with ``Features.fit(X)``.

    Numbers are standardised; dates and durations are seconds. A missing number becomes the mean, and if `fit` saw any,
    an extra column marks them. The most frequent categories of a text column each have a column that is 1 where the
    category occurs, the others share one, and missing values are a category. A wide sparse matrix, such as word counts,
    is first reduced to the components of a truncated SVD, which are then columns of numbers.

    Attributes
    ----------
    columns : tuple of Number or Category
        Statistics of each column, or of each component.
    names_ : tuple of str or None
        Column names; None if X was not a table.
    rows : int
        Number of rows that `fit` used.
    image : tuple of int or None
        Shape of one image, if X held images: they are not encoded, and there are no columns.
    labels : tuple of str or None
        Column names of a data frame that are not text, as text; None also if they are 0, 1, 2, …
    reduction : Reduction or None
        The components of X, if it was reduced.

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
    labels: tuple[str, ...] | None = None
    reduction: Reduction | None = None

    @classmethod
    def fit(
        cls,
        X: Any,
        *,
        rows: NDArray[np.intp] | None = None,
        max_categories: int = 50,
        n_components: int | None = 100,
    ) -> "Features":
        """Return how to encode the columns of X.

        Parameters
        ----------
        X : array, nested list, tensor, sparse matrix, or table of pandas, polars or pyarrow; shape (n, d)
            Each column holds numbers, text or dates. Text columns in which all values are numbers are numbers. Images,
            bytes (uint8) of shape (n, channels, height, width), are not changed. A `candidly.tables.columns.Table` is
            accepted too.
        rows : array of int, optional
            Indices of the rows to use, possibly repeated; by default all rows. Images are not looked at.
        max_categories : int
            Number of categories of a column that get separate columns: the most frequent. The rest share one.
        n_components : int or None
            Number of components to which a sparse matrix is reduced if it has more than ten times as many columns and
            no missing values. None reduces nothing.
        """
        max_categories = integer("max_categories", max_categories, least=1)
        number = None if n_components is None else integer("n_components", n_components, least=1)
        table = read(X)
        rows = None if rows is None else _check_rows(rows, table.shape[0])
        if isinstance(table, np.ndarray):  # images; anything else is a Table now
            return cls((), None, len(table), table.shape[1:])
        reduction = None
        if number is not None and can_reduce(table, number):
            check_finite(table)
            reduction = Reduction.fit(table.columns if rows is None else table.columns.tocsr()[rows], number)
            reduced = reduction.transform(table)
            table = Table(reduced, reduced.shape)
        table.check_size(table.shape[1])
        columns: list[Number | Category] = []
        extremes: list[str] = []
        for j, whole in table.blocks():
            block = whole if rows is None else whole.take(rows)
            if isinstance(block, Numbers):
                fitted = column_encoders.fit_numbers(block.values, block.kind)
                columns += fitted
                for k, row in column_encoders.find_extremes(block.values, fitted):
                    place = f"row {row if rows is None else rows[row]} of {table.label(j + k)}"
                    extremes.append(f"{block.values[k, row]:g} in {place}")
            elif isinstance(whole, Texts):
                warn_of_strange(whole, table.label(j))
                columns.append(column_encoders.fit_texts(block, table.label(j), max_categories))
        used = table.shape[0] if rows is None else len(rows)
        features = cls(tuple(columns), table.names, used, labels=table.labels, reduction=reduction)
        if extremes:
            _report_extremes(extremes, len(columns))
        if features.width > MOST_COLUMNS:
            raise ValueError(f"X has {features.width} columns when encoded; the limit is {MOST_COLUMNS}, select some")
        return features

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X, or of numbers in an image."""
        if self.reduction is not None:
            return len(self.reduction.components)
        return math.prod(self.image) if self.image else len(self.columns)

    @property
    def width(self) -> int:
        """Number of columns of the encoded matrix, or of numbers in an image."""
        return math.prod(self.image) if self.image else sum(column.width for column in self.columns)

    @property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns; images have none."""
        letters = "x" if self.reduction is None else "svd"
        names = self.names_ or [f"{letters}{j}" for j in range(len(self.columns))]
        return [name + suffix for name, column in zip(names, self.columns, strict=True) for suffix in column.suffixes]

    def transform(self, X: Any, *, quiet: bool = False) -> NDArray[Any]:
        """Encode rows.

        Parameters
        ----------
        X : as in `fit`
            Columns of a table are matched by name, also by names that are not text; their order does not matter.
        quiet : bool
            Whether to leave out the warnings below.

        Returns
        -------
        array
            Of shape (n, width), in float32. Numbers are clipped at a million standard deviations from the mean, and
            columns that were constant in `fit` are 0. Images are copied unchanged.

        Warns
        -----
        UserWarning
            If values are missing in a column that had no missing values in `fit`, or if a category is new: all encoded
            columns of that text column are then 0 in that row.
        """
        table = read(X)
        if isinstance(table, np.ndarray) or self.image is not None:  # images, or they were fitted
            return self._check_images(table).copy()
        table = self._take_columns(table)
        if self.reduction is not None:
            reduced = self.reduction.transform(table)
            table = Table(reduced, reduced.shape)
        table.check_size(self.width)
        encoder = _Encoder(table, self.columns)
        categories = {j for j, column in enumerate(self.columns) if isinstance(column, Category)}
        for first, block in table.blocks(categories):
            encoder.encode(first, block)
        if not quiet:
            encoder.warn_of_unseen()
        return encoder.encoded

    def describe(self) -> list[str]:
        """Return a description of how the columns are encoded, in lines."""
        if self.image is not None:
            return [f"images of shape {self.image}, not changed"]
        if self.reduction is not None:
            number = len(self.columns)
            components = f"{number} {_plural('component', number)}"
            return [f"{self.n_features_in_} sparse columns reduced to {components} (truncated SVD), standardised"]
        names = self.names_ or [f"column {j}" for j in range(len(self.columns))]
        named = [(visible(name), column) for name, column in zip(names, self.columns, strict=True)]
        numbers = [(name, column) for name, column in named if isinstance(column, Number)]
        categories = [(name, column) for name, column in named if isinstance(column, Category)]
        constant = [name for name, column in numbers if column.scale == 0]
        varying = len(numbers) - len(constant)
        lines = []
        if varying:
            lines.append(f"{varying} numeric {_plural('column', varying)} standardised")
        if constant:
            number = len(constant)
            lines.append(f"{number} constant {_plural('column', number)} set to 0: {listed(constant, _LINES)}")
        lines += _cut([f"{name}: {column.read_as}" for name, column in numbers if column.read_as])
        lines += _describe_missing([(name, column) for name, column in numbers if column.missing], self.rows)
        lines += _cut([f"{name}: {column.describe()}" for name, column in categories])
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return everything but `reduction` in JSON types; `from_json` restores floating-point numbers to the bit."""
        facts = {
            "rows": self.rows,
            "names": None if self.names_ is None else list(self.names_),
            "image": None if self.image is None else list(self.image),
            "columns": [column_encoders.to_json(column) for column in self.columns],
        }
        return facts if self.labels is None else facts | {"labels": list(self.labels)}

    @classmethod
    def from_json(cls, facts: Any, components: NDArray[np.float32] | None = None) -> "Features":
        """Read what `to_json` returned, with the components of `reduction`. Raise ValueError if it is damaged."""
        instance("components", components, (np.ndarray, NoneType), "an array, or None")
        try:
            features = cls._from_json(facts)
            return features if components is None else features._with_components(components)
        except ValueError as error:
            raise ValueError(f"the stored features are damaged: {error}; fit and save them again") from None

    @classmethod
    def _from_json(cls, facts: Any) -> "Features":
        if isinstance(facts, dict):
            facts = {"labels": None} | facts  # which is left out where it is None
        _check_facts(facts, "the whole")
        rows = facts["rows"]
        labels = facts["labels"]
        names = facts["names"]
        columns = facts["columns"]
        if facts["image"] is not None:
            image = tuple(facts["image"])
            require(math.prod(image) <= _MOST_PIXELS, "the size of an image", math.prod(image))
            require(not columns, "the number of columns beside an image", len(columns))
            require(names is None, "the list of names beside an image", names)
            require(labels is None, "the list of labels beside an image", labels)
            return cls((), None, rows, image)
        require(names is None or len(names) == len(columns), "names", names)
        require(labels is None or (names is None and len(labels) == len(columns)), "labels", labels)
        known = tuple(column_encoders.from_json(column) for column in columns)
        for j, column in enumerate(known):
            require(column.missing <= rows, f"columns[{j}]['missing']", column.missing)
        found = [None if one is None else tuple(one) for one in (names, labels)]
        features = cls(known, found[0], rows, labels=found[1])
        require(0 < features.width <= MOST_COLUMNS, "the number of encoded columns", features.width)
        return features

    def _with_components(self, components: NDArray[np.float32]) -> "Features":
        """Return the features with a reduction; raise ValueError if it does not have their columns."""
        plain = self.image is None and self.names_ is None and self.labels is None
        require(plain, "the list of names, labels or images beside components", self.names_)
        shaped = components.dtype == np.float32 and components.ndim == 2 and components.shape[1] == self.width
        require(shaped, "the shape of the components", components.shape)
        require(0 < len(components) <= MOST_COLUMNS, "the number of reduced columns", len(components))
        require(bool(np.isfinite(components).all()), "the components, which are not finite", len(components))
        return replace(self, reduction=Reduction(components))

    def _check_images(self, images: Table | NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the images. Raise ValueError if X or `fit` had none, or if they have another shape."""
        if isinstance(images, np.ndarray) and images.shape[1:] == self.image:
            return images
        found = f"images of shape {images.shape[1:]}" if isinstance(images, np.ndarray) else "a table"
        wanted = "a table" if self.image is None else f"images (uint8) of shape {self.image}"
        raise ValueError(f"X is {found}, but {_ESTIMATOR} was fitted on {wanted}; pass the same")

    def _take_columns(self, table: Table) -> Table:
        """Return the columns in the order of `fit`."""
        if self.names_ is not None and table.names is not None:
            return _arrange(table, table.names, self.names_)
        if self.labels is not None and table.labels is not None:
            return _arrange(table, table.labels, self.labels)
        # The next three messages are scikit-learn's: its estimator checks look for them.
        width = self.n_features_in_
        if table.shape[1] != width:
            raise ValueError(
                f"X has {table.shape[1]} features, but {_ESTIMATOR} is expecting {width} features as input"
            )
        numbered = tuple(map(str, range(width)))
        if self.names_ is None and self.labels is None and table.labels is not None:
            if set(table.labels) == set(numbered):
                return _arrange(table, table.labels, numbered)
            warn(f"X has column labels such as {table.labels[0]}, but {_ESTIMATOR} was fitted without; {_IN_ORDER}")
        elif self.labels is not None:
            warn(f"X has no column labels, but {_ESTIMATOR} was fitted with {self.labels[0]}, …; {_IN_ORDER}")
        if self.names_ is None and table.names is not None:
            warn(f"X has feature names, but {_ESTIMATOR} was fitted without feature names")
        if self.names_ is not None and table.names is None:
            warn(f"X does not have valid feature names, but {_ESTIMATOR} was fitted with feature names")
        return table


_check_facts = record(
    {
        "rows": count(1, 2**63 - 1),
        "names": optional(distinct(list_of(text, 0, MOST_COLUMNS))),
        "labels": optional(distinct(list_of(text, 0, MOST_COLUMNS))),
        "image": optional(list_of(count(1, _MOST_PIXELS), 3, 3)),
        "columns": list_of(column_encoders.check, 0, MOST_COLUMNS),
    }
)


def _check_rows(rows: Any, n: int) -> NDArray[np.intp]:
    """Return row numbers as an array. Raise ValueError if there are none, or one is not a row of X."""
    found = unmasked(rows)
    if found.ndim != 1 or not found.size or found.dtype.kind not in "iu":
        raise ValueError(f"rows is {shown(rows)}; it must be a list of at least one row number")
    if found.min() < 0 or found.max() >= n:
        wrong = found[(found < 0) | (found >= n)][0]
        raise ValueError(f"rows holds {wrong}, but X has rows 0 to {n - 1}; pass the numbers of rows of X")
    return found.astype(np.intp, copy=False)


def _arrange(table: Table, found: Sequence[str], fitted: Sequence[str]) -> Table:
    """Return the columns in the order of `fit`. Raise ValueError if there are others, or if some are missing."""
    lacking = sorted(set(fitted) - set(found))
    extra = sorted(set(found) - set(fitted))
    wrong = []
    if lacking:
        wrong.append(f"lacks the columns {listed(map(repr, lacking))}")
    if extra:
        wrong.append(f"has the columns {listed(map(repr, extra))}, which fit did not see")
    if wrong:
        advice = "pass the columns that were fitted"
        if extra:
            advice += ", and leave others out (in a terminal, with --drop)"
        raise ValueError(f"X {' and '.join(wrong)}; {advice}")
    position = {name: j for j, name in enumerate(found)}
    return table.take_columns([position[name] for name in fitted])


def _report_extremes(extremes: Sequence[str], columns: int) -> None:
    """Warn of values that make the others of their column equal; raise ValueError if all columns have such values."""
    message = (
        f"X has values that are so far from the others of their column that these become equal: {listed(extremes)}; "
        "correct or remove them"
    )
    if len(extremes) == columns:
        raise ValueError(message)
    warn(message)


class _Encoder:
    """Encodes a table block by block, and collects what `fit` did not see.

    A block is a number of adjacent columns of numbers, or a single column of texts.
    """

    def __init__(self, table: Table, columns: Sequence[Number | Category]) -> None:
        self.table = table
        self.columns = columns
        self.starts = np.cumsum([0, *(column.width for column in columns)])
        self.encoded = np.zeros((table.shape[0], int(self.starts[-1])), dtype=np.float32)
        self.newly_missing: list[int] = []  # columns with missing values that had none in `fit`
        self.new_categories: list[str] = []

    def encode(self, first: int, block: Numbers | Texts) -> None:
        """Encode a block of columns; `first` is the number of its first column."""
        column = self.columns[first]
        if isinstance(column, Number):
            self._encode_numbers(first, self._as_numbers(first, block, column))
        else:
            assert isinstance(block, Texts), "Table.blocks returns the columns of categories as texts"
            self._encode_texts(first, block, column)

    def _encode_texts(self, first: int, block: Texts, column: Category) -> None:
        new = column.encode(block, self.encoded[:, self.starts[first] : self.starts[first + 1]])
        self.new_categories += [f"{reprlib.repr(value)} in {self.table.label(first)}" for value in new]
        if not column.missing and (block.codes < 0).any():
            self.newly_missing.append(first)

    def _encode_numbers(self, first: int, block: Numbers) -> None:
        columns = [c for c in self.columns[first : first + len(block.values)] if isinstance(c, Number)]
        for j, column in enumerate(columns, first):
            if not column.accepts(block.kind) and not np.isnan(block.values[j - first]).all():
                raise ValueError(
                    f"{self.table.label(j)} of X has {KINDS[block.kind]} but held {KINDS[column.kind]} in fit; "
                    "convert it"
                )
        z, missing = column_encoders.standardise(block.values, columns)
        self.encoded[:, self.starts[first : first + len(columns)]] = z.T
        for i in np.flatnonzero(missing.any(axis=1)).tolist():
            if columns[i].missing:
                self.encoded[:, self.starts[first + i] + 1] = missing[i]  # the column after the values
            else:
                self.newly_missing.append(first + i)

    def _as_numbers(self, first: int, block: Numbers | Texts, column: Number) -> Numbers:
        """Return a block as numbers, because its column held numbers in `fit`."""
        if isinstance(block, Numbers):
            return block
        label = self.table.label(first)
        code = next((code for code, text in enumerate(block.values) if to_number(text) is None), None)
        if code is None:
            parsed = parse(block, label)
            assert isinstance(parsed, Numbers), "all texts are numbers"
            return parsed
        row = int((block.codes == code).argmax())
        text = block.values[code]
        raise ValueError(
            f"X has {reprlib.repr(text)} in row {row}, {label}, which held {KINDS[column.kind]} in fit; "
            f"{number_advice(text)}"
        )

    def warn_of_unseen(self) -> None:
        """Warn of missing values and of categories that `fit` did not see."""
        if self.newly_missing:
            where = listed(map(self.table.label, self.newly_missing))
            warn(
                f"X has missing values in {where}, where the training data had none; numbers are replaced by the mean, "
                "categories by zeros"
            )
        if self.new_categories:
            warn(f"X has categories that fit did not see, which become zeros: {listed(self.new_categories)}")


def _plural(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"


def _describe_missing(columns: list[tuple[str, Number]], rows: int) -> list[str]:
    """Return a line for each of a few columns with missing values, or one line for many of them."""
    if len(columns) <= _FEW:
        return [f"{name}: {column.describe_missing(rows)}" for name, column in columns]
    most = sorted(columns, key=lambda one: -one[1].missing)
    counts = [f"{name} ({'all' if column.missing == rows else column.missing})" for name, column in most]
    what = "missing values, which are replaced by the mean, with indicator columns"
    return [f"{len(columns)} columns have {what}: {listed(counts, _LISTED)}"]


def _cut(lines: list[str]) -> list[str]:
    more = len(lines) - _LINES
    return lines if more <= 0 else [*lines[:_LINES], f"and {more} more columns"]
