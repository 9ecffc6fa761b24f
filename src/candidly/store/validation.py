"""Checks of values that were read from JSON.

A check is a function of a value and of what to call it, which raises ValueError where the value is not as it should be.
Checks of lists and of records are made of the checks of their parts.
"""

import reprlib
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

Check = Callable[[Any, str], None]

_LONGEST = 10_000  # characters of a text


def require(good: bool, what: str, found: Any) -> None:
    """Raise ValueError saying what was found, unless it is good."""
    if not good:
        raise ValueError(f"{what} is {reprlib.repr(found)[:200]}")


def text(value: Any, what: str) -> None:
    """Check that a value is text of bearable length."""
    require(type(value) is str and len(value) <= _LONGEST, what, value)


def any_text(value: Any, what: str) -> None:
    """Check that a value is text of any length."""
    require(type(value) is str, what, value)


def one_of(texts: Collection[str]) -> Check:
    """Return the check that a value is one of these texts."""
    return lambda value, what: require(type(value) is str and value in texts, what, value)


def number(value: Any, what: str) -> None:
    """Check that a value is a finite number."""
    require(type(value) in (int, float) and abs(value) <= sys.float_info.max, what, value)


def share(value: Any, what: str) -> None:
    """Check that a value is a number from 0 to 1."""
    require(type(value) in (int, float) and 0 <= value <= 1, what, value)


def count(least: int, most: int) -> Check:
    """Return the check of an integer within bounds."""
    return lambda value, what: require(type(value) is int and least <= value <= most, what, value)


def optional(check: Check) -> Check:
    """Return a check that also lets None pass."""
    return lambda value, what: None if value is None else check(value, what)


def list_of(item: Check, least: int, most: int) -> Check:
    """Return the check of a list, of its length and of what is in it."""

    def check(value: Any, what: str) -> None:
        require(isinstance(value, list), what, value)
        require(least <= len(value) <= most, f"the length of {what}", len(value))
        for i, one in enumerate(value):
            item(one, f"{what}[{i}]")

    return check


def distinct(items: Check) -> Check:
    """Return the check of a list that holds nothing twice."""

    def check(value: Any, what: str) -> None:
        items(value, what)
        require(len(set(value)) == len(value), f"the number of different values in {what}", len(set(value)))

    return check


def mapping(item: Check, most: int) -> Check:
    """Return the check of a mapping from texts to whatever the check is of."""

    def check(value: Any, what: str) -> None:
        require(isinstance(value, dict), what, value)
        require(len(value) <= most, f"the length of {what}", len(value))
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
