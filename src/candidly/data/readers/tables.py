"""Read a user's table as a dataset: candidate sets, true labels and a matrix of numbers."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.checks import arguments
from candidly.data.dataset import Dataset
from candidly.data.readers.user_files import checked
from candidly.tables import files
from candidly.tables.class_columns import Block, Names, is_text, missing_mask, read_classes
from candidly.tables.columns import decoded, is_written_number, number_advice, to_number
from candidly.tables.schema import OPTIONS, Schema, check_column, choose_features


def read_table(
    path: str | os.PathLike[str],
    candidates: str = "candidates",
    label: str | None = "label",
    separator: str = "|",
    *,
    groups: str | None = "groups",
    drop: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    delimiter: str = ",",
) -> Dataset:
    r"""Read a table with a column of candidates; every other column is a numeric feature.

    The whole table is in memory while the matrix of its features is filled, and each column is freed once it is copied.
    `candidly.tables` reads tables whose features are text or dates, or have missing values.

    Parameters
    ----------
    path
        A `.csv` or `.tsv` file in UTF-8 with a header, also with `.gz`; or a `.parquet`, `.arrow` or `.feather` file.
    candidates
        The column of candidates: text such as ``cat|dog``, or (not in CSV) lists of text or of integers. Blanks around
        names are ignored.
    label
        The column of true labels, if there is one. A label that is not a candidate in any row is a class too. With
        None, true labels are not read: a column named `label`, in upper or lower case, is left out and does not become
        a feature.
    separator
        The text between the names in a cell.
    groups
        The column with the group of each row, if there is one: any value, equal in rows that belong together, such as
        the name of a scene or recording. With None, groups are not read, and a column `groups` is a feature.
    drop
        Columns to leave out. The index of a data frame (a column without a name, `Unnamed: 0`, `__index_level_0__`, and
        in Parquet and Arrow what pandas noted as the index) is always left out, with a warning.
    classes
        The class names, in this order; other names are refused. By default those that are found, sorted.
    delimiter
        The character between the columns of a CSV file. In a `.tsv` file it is a tab unless you pass another one.

    Returns
    -------
    Dataset
        With float32 features if all feature columns are, else float64. Classes are sorted, integers by value; where all
        of them are integers, `1.0` is `1`. Groups are numbered in the order of rows.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    ValueError
        For a missing column, a feature that is not a finite number, and a row without candidates, label or a name; the
        message names the row and the column. The texts `nan`, `None`, `null`, `NA` and similar ones are missing names,
        unless `classes` lists them.

    Warns
    -----
    UserWarning
        When an index is left out, when a feature is named like a column of true labels, and when true labels are not
        among the candidates of their rows.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("weight,candidates,label\n4.5,cat|dog,cat\n9,dog,dog\n")
    ...     file.flush()
    ...     dataset = read_table(file.name)
    >>> dataset.classes, dataset.X.tolist(), dataset.S.tolist(), dataset.y.tolist()
    (('cat', 'dog'), [[4.5], [9.0]], [[True, True], [False, True]], [0, 1])
    """
    if label == candidates:
        raise ValueError(
            f"candidates and label are both {label!r}; name two columns, or pass label=None if there are no true labels"
        )
    if groups is not None and groups in (candidates, label):
        role = "candidates" if groups == candidates else "label"
        raise ValueError(f"{role} and groups are both {groups!r}; name two columns, or pass groups=None")
    path = arguments.path("path", path)
    file = str(path)
    schema = Schema(arguments.text("candidates", candidates), labels=label, drop=drop, separator=separator)
    names = Names(separator, classes)
    # A comma is the default, which means a tab in `.tsv` files.
    texts = [*schema.named.values(), *([] if groups is None else [groups])]
    table = files.read(path, delimiter=None if delimiter == "," else delimiter, texts=texts)
    schema = _resolve_label(table, file, schema)
    left = [name for name in table.column_names if name not in schema.drop]
    grouping = None
    if groups is not None and (groups != "groups" or groups in left):
        check_column(table.select(left), file, groups, "groups=")
        grouping = _read_groups(table.column(groups), groups, file)
        schema = replace(schema, drop=[*schema.drop, groups])
    features, schema = choose_features(table, file, schema)
    found = read_classes(table, file, names, candidates, schema.labels)
    columns = {name: table.column(name) for name in features}
    del table
    return checked(path, _to_matrix(columns, file), found.matrix, found.labels, found.names, grouping)


def _resolve_label(table: Any, file: str, schema: Schema) -> Schema:
    """Return a schema whose column of labels is in the table.

    The default column `label` may be missing. Without a column of labels, columns of that name are dropped.
    """
    label = schema.labels
    drop = list(schema.drop)
    columns = [name for name in table.column_names if name not in drop]
    if label is None:
        drop += [name for name in columns if name != schema.candidates and _is_same_name(name, "label")]
    elif label == "label" and not any(_is_same_name(name, label) for name in columns):
        label = None
    elif label not in columns and label not in drop:
        check_column(table.select(columns), file, label, OPTIONS["labels"])
    return replace(schema, labels=label, drop=drop)


def _read_groups(column: Any, name: str, file: str) -> NDArray[np.int64]:
    """Return the number of each row's group, counted in the order of rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = decoded(column.combine_chunks())
    missing = missing_mask(values)
    if is_text(values.type):
        values = pc.utf8_trim_whitespace(values)
        missing |= pc.equal(values.fill_null(""), "").to_numpy(zero_copy_only=False)
    elif not (pa.types.is_integer(values.type) or pa.types.is_null(values.type)):
        raise ValueError(f"{file}: column {name!r} has type {values.type}; groups are integers or text, convert it")
    if missing.any():
        place = Block(file, 0).name_row(np.argmax(missing))
        raise ValueError(f"{place} has no group in column {name!r}; fill it or drop the row")
    return np.asarray(values.dictionary_encode().indices, np.int64)


def _is_same_name(name: str, other: str) -> bool:
    return name.strip().casefold() == other.strip().casefold()


def _to_matrix(columns: dict[str, Any], file: str) -> NDArray[Any]:
    """Return the values of columns as a matrix (n, d), and empty the dictionary column by column."""
    import pyarrow as pa

    for name, column in columns.items():
        _check_numbers(column, name, file)
    narrow = all(column.type in (pa.float32(), pa.float16()) for column in columns.values())
    rows = len(next(iter(columns.values())))
    X = np.empty((rows, len(columns)), np.float32 if narrow else np.float64)
    for j, name in enumerate(list(columns)):
        start = 0
        for chunk in columns.pop(name).chunks:
            values = X[start : start + len(chunk), j]
            values[:] = chunk.to_numpy(zero_copy_only=False)
            finite = np.isfinite(values)
            if not finite.all():
                place = Block(file, start).name_row(np.argmin(finite))
                raise ValueError(f"{place} has no finite number in column {name!r}; correct it or drop the row")
            start += len(chunk)
    return X


def _check_numbers(column: Any, name: str, file: str) -> None:
    """Check that a column holds numbers or truth values, and that none is missing."""
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        advice = f"features are numbers, convert it or leave it out with {OPTIONS['drop']}"
        if is_text(kind):
            for row, text in enumerate(column.to_pylist()):
                if text is not None and to_number(text) is None:
                    found = f"{file}: row {row} has {text[:60]!r} in column {name!r}"
                    raise ValueError(f"{found}; {number_advice(text) if is_written_number(text) else advice}")
        if not pa.types.is_null(kind):
            raise ValueError(f"{file}: column {name!r} has type {kind}; {advice}")
    if column.null_count:
        place = Block(file, 0).name_row(np.argmax(missing_mask(column)))
        raise ValueError(f"{place} has no value in column {name!r}; fill it or drop the row")
