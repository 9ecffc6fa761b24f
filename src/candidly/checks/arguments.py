"""Checks of arguments that users pass: numbers, fractions, flags and choices. Numbers of numpy and torch are numbers.

Every check takes the argument's name and value, raises ValueError with both and what is allowed, and returns the value
as a plain Python type. Values from files are checked more strictly, by `candidly.store.validation`.
"""

import dataclasses
import math
import numbers
import os
import reprlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 100
_LONGEST_PATH = 4096  # characters; Linux accepts no more, other systems fewer


def shown(value: Any) -> str:
    """Return a value as a message shows it: its `repr`, cut, in one line.

    Examples
    --------
    >>> shown("3"), shown(list(range(9)))
    ("'3'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    return " ".join(_short.repr(value).split())


def integer(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Return an integer; raise ValueError for other types, such as True and 2.0, and outside of the bounds.

    Examples
    --------
    >>> integer("folds", 0, least=1)
    Traceback (most recent call last):
        ...
    ValueError: folds is 0; it must be an integer of at least 1
    """
    number = _plain(value)
    if _is_number(number, numbers.Integral):
        found = int(number)
        if (least is None or found >= least) and (most is None or found <= most):
            return found
    raise ValueError(f"{name} is {shown(value)}; it must be an integer{_bounds(least, most)}")


def real(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """Return a finite number; raise ValueError for other types, such as True and "1", and outside of the bounds.

    Examples
    --------
    >>> real("lr", float("nan"), above=0)
    Traceback (most recent call last):
        ...
    ValueError: lr is nan; it must be a finite number above 0
    """
    number = _plain(value)
    if _is_number(number, numbers.Real):
        found = _as_float(number)
        inside = (least is None or found >= least) and (most is None or found <= most)
        if math.isfinite(found) and inside and (above is None or found > above) and (below is None or found < below):
            return found
    bounds = _bounds(least, most, above, below)
    raise ValueError(f"{name} is {shown(value)}; it must be a {'' if most or below else 'finite '}number{bounds}")


def fraction(name: str, value: Any) -> float:
    """Return a number between 0 and 1, both excluded, such as a level; raise ValueError for anything else.

    Examples
    --------
    >>> fraction("alpha", 1)
    Traceback (most recent call last):
        ...
    ValueError: alpha is 1; it must lie between 0 and 1
    """
    number = _plain(value)
    if _is_number(number, numbers.Real) and 0 < _as_float(number) < 1:
        return _as_float(number)
    raise ValueError(f"{name} is {shown(value)}; it must lie between 0 and 1")


def flag(name: str, value: Any) -> bool:
    """Return True or False; raise ValueError for anything else, such as 1 and "no".

    Examples
    --------
    >>> flag("dkw", "no")
    Traceback (most recent call last):
        ...
    ValueError: dkw is 'no'; use True or False
    """
    found = _plain(value)
    if not isinstance(found, bool):
        raise ValueError(f"{name} is {shown(value)}; use True or False")
    return found


def choice(name: str, value: Any, options: Collection[str]) -> str:
    """Return one of several texts; raise ValueError for anything else.

    Examples
    --------
    >>> choice("growth", "product", ("sum", "factor"))
    Traceback (most recent call last):
        ...
    ValueError: growth is 'product'; use one of sum, factor
    """
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} is {shown(value)}; use one of {', '.join(options)}")
    return str(value)


def text(name: str, value: Any, wanted: str = "a text") -> str:
    """Return a text that is not empty; raise ValueError for anything else.

    Examples
    --------
    >>> text("separator", 5, "a text, such as '|'")
    Traceback (most recent call last):
        ...
    ValueError: separator is 5; it must be a text, such as '|'
    """
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {shown(value)}; it must be {wanted}")
    return value


def path(name: str, value: Any) -> Path:
    """Return a path, with ``~`` expanded; raise ValueError for other types, empty paths and null characters.

    Examples
    --------
    >>> path("folder", "")
    Traceback (most recent call last):
        ...
    ValueError: folder is ''; it must be a path, such as 'results'
    """
    given = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(given, str) or not given or "\0" in given:
        raise ValueError(f"{name} is {shown(value)}; it must be a path, such as 'results'")
    if len(given) > _LONGEST_PATH:
        found = f"{shown(given)}, of {len(given)} characters"
        raise ValueError(f"{name} is {found}; it must be a path of at most {_LONGEST_PATH}")
    return Path(os.path.expanduser(given))


def items(name: str, value: Any, wanted: str) -> Iterable[Any]:
    """Return something with several items, such as a list; raise ValueError for a text, a mapping or a single value.

    Examples
    --------
    >>> items("alphas", 0.1, "a list of levels, such as [0.05, 0.1]")
    Traceback (most recent call last):
        ...
    ValueError: alphas is 0.1; it must be a list of levels, such as [0.05, 0.1]
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        raise ValueError(f"{name} is {shown(value)}; it must be {wanted}")
    return value


def instance(name: str, value: Any, kind: type | tuple[type, ...], wanted: str) -> None:
    """Raise ValueError unless a value is an instance of a class.

    Examples
    --------
    >>> instance("problem", 3, dict, "a mapping")
    Traceback (most recent call last):
        ...
    ValueError: problem is 3; it must be a mapping
    """
    if not isinstance(value, kind):
        raise ValueError(f"{name} is {shown(value)}; it must be {wanted}")


def settings(part: Any, **bounds: Mapping[str, Any]) -> None:
    """Check the fields of a dataclass by their annotations: int, float, bool, str, literals, and None if allowed.

    An annotation may also allow a bool or some texts. Numbers of numpy and torch become Python's. Fields with other
    annotations are not checked.

    Parameters
    ----------
    part : dataclass instance
        Its fields are the settings.
    bounds : mapping, by name of a field
        Bounds of a number, as `integer` and `real` take them.

    Examples
    --------
    >>> @dataclasses.dataclass
    ... class Slow:
    ...     warmup: int = 10
    ...
    ...     def __post_init__(self):
    ...         settings(self, warmup={"least": 0})
    >>> Slow(warmup=-5)
    Traceback (most recent call last):
        ...
    ValueError: warmup is -5; it must be an integer of at least 0
    """
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        kinds = get_args(field.type) if get_origin(field.type) is not Literal else ()
        if value is None and type(None) in kinds:
            continue
        kind = next((one for one in kinds if one is not type(None)), field.type)
        limits = bounds.get(field.name, {})
        texts = next((get_args(one) for one in kinds if get_origin(one) is Literal), ())
        if bool in kinds and texts:
            if not isinstance(_plain(value), bool) and not (isinstance(value, str) and value in texts):
                raise ValueError(f"{field.name} is {shown(value)}; use one of True, False, {', '.join(texts)}")
        elif get_origin(kind) is Literal:
            choice(field.name, value, get_args(kind))
        elif kind is str:
            text(field.name, value)
        elif kind is bool:
            flag(field.name, value)
        elif kind is int:
            integer(field.name, value, **limits)
        elif kind is float:
            real(field.name, value, **limits)
        else:
            continue
        plain = _plain(value)
        if kind is float and not isinstance(plain, int | float):  # a fraction, which torch does not take
            plain = float(plain)
        object.__setattr__(part, field.name, plain)  # the class may be frozen


def _plain(value: Any) -> Any:
    """Return a number or flag of numpy or torch, or an array of shape (), as Python's; other values as they are."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def _is_number(value: Any, kind: type) -> bool:
    """Return whether a value is a number of an abstract kind of `numbers`; True and False are not."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _as_float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer or a fraction that is too large
        return math.inf


def _bounds(
    least: float | None = None, most: float | None = None, above: float | None = None, below: float | None = None
) -> str:
    """Return allowed bounds as they follow "it must be a number"."""
    if least is not None and most is not None:
        return f" from {least} to {most}"
    if above is not None and below is not None:
        return f" between {above} and {below}"
    lower = f" of at least {least}" if least is not None else f" above {above}" if above is not None else ""
    upper = f"at most {most}" if most is not None else f"below {below}" if below is not None else ""
    if not upper:
        return lower
    return f"{lower} and {upper}" if lower else f" {upper}" if most is None else f" of {upper}"
