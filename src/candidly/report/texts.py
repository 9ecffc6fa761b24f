"""Format names and numbers for the page."""

from collections.abc import Sequence

from candidly import messages as printable
from candidly.cleaning.audit import format_guess

MISSING = "–"


def visible(text: str) -> str:
    r"""Return text as `candidly.messages.visible` does; also make text that is empty or only blanks visible.

    Examples
    --------
    >>> visible("\x1b[31mred"), visible("a\u202eb"), visible(""), visible(" ")
    ('\\x1b[31mred', 'a\\u202eb', '(empty)', '\\x20')
    """
    if not text.strip(" "):
        return r"\x20" * len(text) or "(empty)"
    return printable.visible(text)


def whole(number: int) -> str:
    """Format a count, in groups of three digits."""
    return f"{number:,}"


def rounded(number: float | None, digits: int = 3) -> str:
    """Format a number with `digits` significant digits.

    Examples
    --------
    >>> rounded(0.00012345), rounded(-2), rounded(None), rounded(31415.9)
    ('0.000123', '−2', '–', '31,416')
    """
    if number is None:
        return MISSING
    large = 1000 <= abs(number) < 1e6
    return (f"{number:,.0f}" if large else f"{number:.{digits}g}").replace("-", "−")


def fixed(number: float) -> str:
    """Format a number with three decimals, so that a column is easy to compare; a large one as `rounded` does."""
    return f"{number:.3f}".replace("-", "−") if abs(number) < 1000 else rounded(number)


def percent(share: float | None) -> str:
    """Format a fraction in percent."""
    return MISSING if share is None else f"{100 * share:.1f}\u00a0%"


def guess(estimate: Sequence[float] | None) -> str:
    """Format the range of a guess in whole percents.

    Examples
    --------
    >>> guess([0.021, 0.009, 0.081]).replace("\u00a0", " ")
    '0 to 9 %'
    """
    return format_guess(estimate).replace("%", "\u00a0%")


def interval(estimate: Sequence[float]) -> str:
    """Format the bounds of a fraction in percent.

    Examples
    --------
    >>> interval([0.021, 0.009, 0.044]).replace("\u00a0", " ")
    '0.9 to 4.4 %'
    """
    _, low, high = estimate
    return f"{100 * low:.1f} to {percent(high)}"


def duration(seconds: float) -> str:
    """Format a duration in suitable units.

    Examples
    --------
    >>> duration(7.25), duration(200), duration(7500)
    ('7.2 s', '3 min 20 s', '2 h 5 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
