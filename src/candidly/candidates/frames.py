"""Data frames of pandas, polars and Arrow, without importing these libraries."""

from typing import Any


def as_frame(table: Any, name: str = "X") -> Any:
    """Return a data frame wrapped for narwhals, or None if `table` is not a data frame. Messages call it `name`."""
    import narwhals.stable.v2 as nw
    from narwhals.exceptions import DuplicateError

    try:
        frame = nw.from_native(table, pass_through=True)
    except DuplicateError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{name} has columns of the same name ({reason}); rename them") from None
    if isinstance(frame, nw.LazyFrame):
        raise ValueError(f"{name} is a lazy {type(table).__name__}; compute it first, with its collect()")
    return frame if isinstance(frame, nw.DataFrame) else None


def far_date(column: Any) -> bool:
    """Return whether a column of a data frame, wrapped for narwhals, has a date outside of the years 1 to 9999."""
    import narwhals.stable.v2 as nw
    import numpy as np

    if column.dtype not in (nw.Datetime, nw.Date) or column.implementation.is_pandas():
        return False
    dates = np.asarray(column.drop_nulls().to_numpy())
    if dates.dtype.kind != "M" or not dates.size:
        return False
    years = dates.astype("datetime64[Y]").astype(np.int64) + 1970
    return bool(years.min() < 1 or years.max() > 9999)
