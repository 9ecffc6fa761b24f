"""Text for people: escaping, cutting and listing names in messages, warnings, and what is shown while work is done."""

import difflib
import re
import sys
import threading
import time
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

# Spreadsheets run a cell as a formula if it starts with one of these signs, also full-width and small ones, possibly
# after blanks or characters without width. A program that splits columns elsewhere starts cells at other delimiters.
# Patterns without a leading underscore mean the same to Python and to Arrow: blanks are listed, because "\s" differs
# between the two.
_SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b"
_BLANKS = "\f\r \u00a0\u00ad\u1680\u2000-\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
_DELIMITERS = "\t\n;,"
FORMULA = rf"(?:^|[{_DELIMITERS}])'*[{_BLANKS}]*[{_SIGNS}]|^'*[\t\n]"
NEUTRALISED = rf"(?:^|[{_DELIMITERS}])'+[{_BLANKS}]*[{_SIGNS}]|^'+[\t\n]"
NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
# Control characters that a cell of a CSV file must not hold: all but newline and tab.
CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"

_PATIENCE = 1.0  # seconds after which people are told what the program does: several steps may follow each other

_filters = threading.RLock()  # Python's filters of warnings are process-wide

_PARTS = re.compile(f"([{_DELIMITERS}])")
_PART_FORMULA = re.compile(f"'*[{_BLANKS}]*[{_SIGNS}]")
_NUMBER = re.compile(NUMBER)
_CONTROL = re.compile(CONTROL)


def visible(text: str) -> str:
    r"""Replace characters that are not printable by escapes, so that a terminal cannot take them for commands.

    These are control codes, line breaks, surrogates, spaces other than the plain one, and characters that change the
    direction of writing.

    Examples
    --------
    >>> visible("\x1b[31mred\n"), visible("a\u202eb")
    ('\\x1b[31mred\\n', 'a\\u202eb')
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def neutralise(text: str) -> str:
    r"""Make text safe in a cell of a CSV file: no control characters, and nothing that a spreadsheet runs as a formula.

    Control characters other than newlines and tabs are escaped. Text that looks like a formula gets an apostrophe in
    front, and so does text that starts with apostrophes before a formula: `restore` takes one away from both.
    The same is done behind every delimiter in the text, because programs differ in the delimiter that they expect.
    `candidly.tables.delimited` applies the same rule to Arrow columns.

    Examples
    --------
    >>> neutralise("=1+1"), neutralise("-5"), neutralise("'=1"), neutralise("a\x07"), neutralise("a;=1")
    ("'=1+1", '-5', "''=1", 'a\\x07', "a;'=1")
    """
    parts = _PARTS.split(escape_control(text))
    return "".join(f"'{part}" if _is_risky(parts, i) else part for i, part in enumerate(parts))


def restore(text: str) -> str:
    """Take away the apostrophes that `neutralise` put in front of formulas.

    Examples
    --------
    >>> restore("'=1+1"), restore("''=1"), restore("a;'=1"), restore("'a")
    ('=1+1', "'=1", 'a;=1', "'a")
    """
    parts = _PARTS.split(text)
    return "".join(part[1:] if part[:1] == "'" and _is_risky(parts, i) else part for i, part in enumerate(parts))


def _is_risky(parts: list[str], i: int) -> bool:
    """Return whether part i of a text that was split at delimiters could be run; the first may start with a blank."""
    part = parts[i]
    if i == 0 and parts[1:2] in (["\t"], ["\n"]) and not part.strip("'"):
        return True
    return bool(_PART_FORMULA.match(part)) and not _NUMBER.fullmatch(part)


def escape_control(text: str) -> str:
    r"""Replace control characters other than newlines and tabs by escapes such as ``\x1b``."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def width(text: str) -> int:
    """Return how many columns a text takes in a font of fixed width."""
    return sum(_columns(letter) for letter in text)


def _columns(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, most: int) -> str:
    """Cut a text that takes more than `most` columns, and end it with an ellipsis.

    Examples
    --------
    >>> cut("nightingale", 6), cut("wren", 6)
    ('night…', 'wren')
    """
    if len(text) <= most and width(text) <= most:
        return text
    taken = 0
    for i, letter in enumerate(text):
        taken += _columns(letter)
        if taken >= most or i >= 2 * most:  # combining accents take no columns
            return f"{text[:i].rstrip()}…"
    return text


def listed(items: Iterable[str], most: int = 5, mark: str = ", ") -> str:
    """List the first few items and say how many more there are.

    Examples
    --------
    >>> listed(["a", "b"]), listed(["a", "b", "c", "d"], most=2)
    ('a, b', 'a, b and 2 more')
    """
    texts = list(items)
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return mark.join(texts[:most]) + more


def listed_names(names: Iterable[Any]) -> str:
    """List the names of columns, quoted, at most 20 of them.

    Examples
    --------
    >>> listed_names(["a", 7])
    "'a', 7"
    """
    return listed(map(repr, names), most=20)


def did_you_mean(name: Any, names: Iterable[Any]) -> str:
    """Return a hint at the most similar of several names, ready to follow in a sentence; "" if none is similar.

    Examples
    --------
    >>> did_you_mean("LABLE", ["label", "id"]), did_you_mean("size", ["label", "id"])
    (" (did you mean 'label'?)", '')
    """
    folded = {str(other).strip().casefold(): other for other in names}
    near = difflib.get_close_matches(str(name).strip().casefold(), folded, n=1)
    return f" (did you mean {folded[near[0]]!r}?)" if near else ""


def option(name: str, *, python: str | None = None) -> str:
    """Name an option for both kinds of users: in a terminal and in Python, where it may be called differently.

    Examples
    --------
    >>> option("drop"), option("labels", python="label")
    ('--drop (in Python, drop=)', '--labels (in Python, label=)')
    """
    return f"--{name} (in Python, {python or name}=)"


def warn(message: str | Warning) -> None:
    """Warn, pointing at the line of the first caller outside the package.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("mind the gap")
    >>> str(caught[0].message)
    'mind the gap'
    """
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and _is_inner(str(frame.f_globals.get("__name__"))):
        level += 1
        frame = frame.f_back
    warnings.warn(message, stacklevel=level)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings within a ``with`` block, for work that is done again with its warnings; one thread at a time."""
    with _filters, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def busy(what: str, shown: bool) -> Iterator[None]:
    """Show on standard error what is done, with its seconds, if it takes longer than one; remove it in the end.

    For work without a progress bar. Nothing is shown unless `shown`.
    """
    if not shown:
        yield
        return
    over, start = threading.Event(), time.monotonic()

    def show() -> None:
        width = 0
        while not over.wait(_PATIENCE):
            text = f"{visible(what)} [{time.monotonic() - start:.0f} s]"
            _overwrite(text, width)
            width = len(text)
        if width:
            _overwrite("", width)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _overwrite(text: str, width: int) -> None:
    """Write a line over the last one, which had a width."""
    with suppress(OSError, ValueError):  # nobody reads it
        sys.stderr.write(f"\r{text.ljust(width)}" + "\r" * (not text))
        sys.stderr.flush()


def _is_inner(module: str) -> bool:
    return module.split(".")[0] == "candidly" or module == "contextlib"
