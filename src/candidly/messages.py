"""Messages to users: text of unknown origin made safe to print, and warnings that point at the user's line."""

import sys
import warnings


def visible(text: str) -> str:
    r"""Replace everything that is not printable by an escape that can be seen: no terminal takes it for a command.

    That is control codes, line breaks, surrogates, spaces other than the plain one, and characters that turn the
    direction of writing.

    Examples
    --------
    >>> visible("\x1b[31mred\n"), visible("a\u202eb")
    ('\\x1b[31mred\\n', 'a\\u202eb')
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


_INNER = ("candidly", "contextlib")


def warn(message: str | Warning) -> None:
    """Warn the first caller outside the package.

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
