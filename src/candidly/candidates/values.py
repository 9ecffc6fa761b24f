"""Single values of cells: whether one is missing, and which text or integer it stands for.

These are the only definitions; vectorised forms for whole columns are in `candidly.tables.columns` and
`candidly.tables.class_columns`.
"""

import decimal
import numbers
import re
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING_TEXTS = frozenset(("nan", "NaN", "None", "null", "NA", "N/A", "NULL", "<NA>"))
"""Texts that programs write for a missing value. As a class name, each of them must be listed by the user."""

# NAType and NaTType are from pandas, which is not imported.
_MISSING_TYPES = frozenset(("NoneType", "NAType", "NaTType", "MaskedConstant"))
_INTEGER = re.compile(r"(0|-?[1-9][0-9]{0,19})(\.0+)?")


def plain(value: Any) -> Any:
    """Return a scalar of NumPy or another array library as a Python scalar, and any other value unchanged.

    A masked value becomes None. A date or duration that Python has no type for is returned unchanged.

    Examples
    --------
    >>> plain(np.float32(0.5)), plain("a"), plain(np.ma.masked)
    (0.5, 'a', None)
    """
    if value is np.ma.masked:
        return None
    if getattr(value, "ndim", None) != 0:
        return value
    item = value.item()
    is_time = getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m")
    return value[()] if is_time and isinstance(item, int) else item


def unmasked(values: Any) -> NDArray[Any]:
    """Return values as an array without a mask: masked values become None, masked dates and durations NaT.

    Examples
    --------
    >>> unmasked(np.ma.array([1, 2], mask=[True, False])).tolist()
    [None, 2]
    """
    array = np.asarray(values)
    mask = np.ma.getmask(values)
    if array.dtype.names is not None or not np.any(mask):
        return array
    array = np.array(array, dtype=array.dtype if array.dtype.kind in "Mm" else object)
    array[mask] = "NaT" if array.dtype.kind in "Mm" else None
    return array


def from_tensor(tensor: Any, name: str) -> NDArray[Any]:
    """Return a tensor as an array, without importing torch; messages call it `name`."""
    try:
        tensor = tensor.detach().cpu().to_dense()
        if tensor.is_floating_point() and tensor.element_size() < 4:
            tensor = tensor.float()  # NumPy has no bfloat16
        array: NDArray[Any] = tensor.numpy()
    except (RuntimeError, TypeError) as error:  # NotImplementedError, of meta tensors, is a RuntimeError
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{name} is a tensor without plain numbers ({reason}); pass a dense tensor of numbers"
        ) from None
    return array


def is_missing_type(kind: type) -> bool:
    """Return whether all values of a type are missing: None, NA and NaT from pandas, and NumPy's masked value."""
    return kind.__name__ in _MISSING_TYPES


def is_missing(value: Any, *, blank: bool = False) -> bool:
    """Return whether a value is missing: None, NaN, NA or NaT, and with `blank` also empty and blank text.

    Examples
    --------
    >>> is_missing(float("nan")), is_missing(""), is_missing("", blank=True)
    (True, False, True)
    """
    if is_missing_type(type(value)):
        return True
    if isinstance(value, (str, bytes)):
        return blank and not value.strip()
    differs = value != value  # as NaN does from itself; an array gives an array
    return isinstance(differs, (bool, np.bool_)) and bool(differs)


def as_text(value: Any) -> str:
    """Return a value as the text of a class, a category or an id; whole numbers are written without a point.

    Examples
    --------
    >>> as_text(7.0), as_text(0.5), as_text(b"cat"), as_text(True)
    ('7', '0.5', 'cat', 'True')
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    is_number = isinstance(value, (numbers.Real, decimal.Decimal)) and not isinstance(value, bool)
    if not is_number:
        return str(value)
    if isinstance(value, numbers.Integral):
        return str(int(value))
    number = float(value)
    if not number.is_integer():
        return repr(number)
    # A Decimal can be an integer with more digits than a float has.
    exact = int(value)
    return str(exact if exact == value else int(number))


def integer_text(text: str) -> str | None:
    """Return the integer that a text stands for, also after it was a floating-point number; None if it is not one.

    Examples
    --------
    >>> integer_text("10"), integer_text("10.0"), integer_text("010"), integer_text("x")
    ('10', '10', None, None)
    """
    found = _INTEGER.fullmatch(text)
    return found[1] if found else None


def as_integers(names: Sequence[Hashable]) -> list[Hashable]:
    """Return class names as integers if all of them are whole numbers, else unchanged.

    Integers become floating-point numbers in a column in which a value is missing.

    Examples
    --------
    >>> as_integers([1.0, 2]), as_integers([1.0, 1.5]), as_integers(["a", 1.0])
    ([1, 2], [1.0, 1.5], ['a', 1.0])
    """
    if all(isinstance(name, int) or (isinstance(name, float) and name.is_integer()) for name in names):
        return [int(name) if isinstance(name, float) else name for name in names]
    return list(names)
