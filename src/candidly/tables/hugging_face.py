"""Columns of classes as Hugging Face's `datasets` stores them: numbers, with class names in the schema's metadata."""

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["number_classes"]

_KEY = b"huggingface"


def number_classes(table: Any, columns: Sequence[str], names: Sequence[str]) -> Any:
    """Return a table in which columns of class names are numbers that `datasets` reads as `ClassLabel`.

    A column with a value that is not a class name, such as a true label that is never a candidate, stays text.

    Parameters
    ----------
    table : pyarrow.Table
        The table.
    columns : sequence of str
        The columns of class names, or of lists of them; those that the table does not have are ignored.
    names : sequence of str
        The class names, in the order of their numbers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> number_classes(pa.table({"bird": ["wren", None], "id": ["a", "b"]}), ["bird"], ["robin", "wren"]).to_pydict()
    {'bird': [1, None], 'id': ['a', 'b']}
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    classes, label = pa.array(names, pa.string()), {"names": list(names), "_type": "ClassLabel"}
    features: dict[str, Any] = {}
    for name in columns:
        if name not in table.column_names:
            continue
        column = table.column(name).combine_chunks()
        nested = pa.types.is_list(column.type)
        values = column.flatten() if nested else column
        numbers = pc.index_in(values, classes).cast(pa.int64())
        if numbers.null_count > values.null_count:
            continue
        if nested:
            lengths = pc.list_value_length(column).fill_null(0)
            ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
            numbers = pa.ListArray.from_arrays(ends, numbers, mask=column.is_null())
        table = table.set_column(table.column_names.index(name), name, numbers)
        features[name] = {"feature": label, "_type": "List"} if nested else label
    facts = json.dumps({"info": {"features": features}}).encode()
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: facts})
