"""Validation of values that were read from JSON.

A check is a function of a value and of the name to call it by in a message. It raises ValueError for a value that is
not allowed. Checks of lists and records are composed of the checks of their parts.
"""

import math
import reprlib
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

Check = Callable[[Any, str], None]


def require(good: bool, what: str, found: Any) -> None:
    """Raise ValueError with the value that was found, unless `good`."""
    if not good:
        raise ValueError(f"{what} is {reprlib.repr(found)[:200]}")


def text(value: Any, what: str) -> None:
    """Check that a value is a string, of any length."""
    require(type(value) is str, what, value)


def flag(value: Any, what: str) -> None:
    """Check that a value is true or false."""
    require(type(value) is bool, what, value)


def number(value: Any, what: str) -> None:
    """Check that a value is a finite number."""
    require(type(value) in (int, float) and abs(value) <= sys.float_info.max, what, value)


def share(value: Any, what: str) -> None:
    """Check that a value is a number from 0 to 1."""
    require(type(value) in (int, float) and 0 <= value <= 1, what, value)


def count(least: int, most: float = math.inf) -> Check:
    """Return the check of an integer from `least` to `most`."""
    return lambda value, what: require(type(value) is int and least <= value <= most, what, value)


def instance(*types: type) -> Check:
    """Return the check of a value that is an instance of one of these types."""
    return lambda value, what: require(isinstance(value, types), what, value)


def one_of(options: Collection[str]) -> Check:
    """Return the check of a string that is one of these."""
    return lambda value, what: require(isinstance(value, str) and value in options, what, value)


def optional(check: Check) -> Check:
    """Return a check that also allows None."""
    return lambda value, what: None if value is None else check(value, what)


def expect(check: Check, wanted: str) -> Check:
    """Return the same check with a message that says what was wanted instead of the value."""

    def described(value: Any, what: str) -> None:
        try:
            check(value, what)
        except ValueError:
            raise ValueError(f"{what} is {reprlib.repr(value)[:200]} instead of {wanted}") from None

    return described


def list_of(item: Check, least: int, most: float = math.inf) -> Check:
    """Return the check of a list with `least` to `most` items, and of each item."""

    def check(value: Any, what: str) -> None:
        require(isinstance(value, list), what, value)
        require(least <= len(value) <= most, f"the length of {what}", len(value))
        for i, one in enumerate(value):
            item(one, f"{what}[{i}]")

    return check


def distinct(items: Check) -> Check:
    """Return the check of a list without duplicates."""

    def check(value: Any, what: str) -> None:
        items(value, what)
        require(len(set(value)) == len(value), f"the number of different values in {what}", len(set(value)))

    return check


def mapping(item: Check) -> Check:
    """Return the check of a mapping from strings to checked values."""

    def check(value: Any, what: str) -> None:
        require(isinstance(value, dict), what, value)
        for name, one in value.items():
            text(name, f"a key of {what}")
            item(one, f"{what}[{reprlib.repr(name)}]")

    return check


def record(parts: Mapping[str, Check]) -> Check:
    """Return the check of a mapping with exactly these keys."""

    def check(value: Any, what: str) -> None:
        require(isinstance(value, dict), what, value)
        for name in value.keys() ^ parts.keys():
            require(name in value, f"{name!r} in {what}", "missing")
            require(name in parts, f"a key of {what}", name)
        for name, part in parts.items():
            part(value[name], f"{what}[{name!r}]")

    return check
