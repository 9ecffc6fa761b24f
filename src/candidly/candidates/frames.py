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
