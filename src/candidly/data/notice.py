"""Warnings that point at the user's line, however deep in this package they arise."""

import sys
import warnings

_INNER = ("candidly.data", "contextlib")


def warn(message: str | Warning) -> None:
    """Warn the first caller outside `candidly.data`.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("mind the gap")
    >>> str(caught[0].message)
    'mind the gap'
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(_INNER):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
