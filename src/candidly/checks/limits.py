"""How much memory the content of a file may take, so that a small file cannot fill the memory of the machine."""

import io
import os
from collections.abc import Callable
from typing import IO, Any

from candidly.checks.machine import available_memory, in_bytes

VARIABLE = "CANDIDLY_MAX_BYTES"
"""Environment variable that replaces the default limit: a number of bytes."""

_SMALL = 1 << 30  # bytes that the content of any file may take
_EXPANSION = 100  # times the size of the file that its content may take


def max_bytes(size: int) -> int:
    """Return how many bytes of memory the content of a file of `size` bytes may take.

    This is the number in the environment variable ``CANDIDLY_MAX_BYTES``. By default it is 1 GiB, or 100 times the size
    of the file if that is more, but not more than the available memory.

    Raises
    ------
    ValueError
        When the environment variable is not a number of bytes.

    Examples
    --------
    >>> max_bytes(1000) <= 2**30
    True
    """
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        allowed, available = max(_SMALL, _EXPANSION * size), available_memory()
        return allowed if available is None else min(allowed, max(available, 0))
    if not (given.isascii() and given.isdigit()):
        raise ValueError(f"the environment variable {VARIABLE} is {given!r}; set it to a number of bytes, or remove it")
    return int(given)


def check_bytes(name: str, needed: int, size: int) -> None:
    """Raise ValueError if the content of a file of `size` bytes needs more memory than `max_bytes` allows.

    Parameters
    ----------
    name : str
        The file, and possibly the part of it, for the message.
    needed : int
        The bytes of memory that the content takes, or a lower bound.
    size : int
        The size of the file.

    Examples
    --------
    >>> check_bytes("birds.npz", 10**15, 1000)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: birds.npz takes at least 909.5 TiB of memory, more than the limit of 1.0 GiB (the file has ...
    """
    limit = max_bytes(size)
    if needed > limit:
        raise ValueError(
            f"{name} takes at least {in_bytes(needed)} of memory, more than the limit of {in_bytes(limit)} (the file "
            f"has {in_bytes(size)}); if you trust the file, set the environment variable {VARIABLE} to more than "
            f"{needed}, otherwise get it again"
        )


class Bounded(io.RawIOBase):
    """A stream of decompressed content that raises ValueError when the content exceeds `max_bytes`.

    Parameters
    ----------
    stream : binary file
        The decompressed content.
    name, size
        As in `check_bytes`.
    cost : callable
        The bytes of memory that a part of the content takes, by default its length.
    """

    def __init__(self, stream: IO[bytes], name: str, size: int, cost: Callable[[bytes], int] = len) -> None:
        self._stream = stream
        self._name = name
        self._size = size
        self._cost = cost
        self._taken = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes."""
        part = self._stream.read(len(buffer))
        self._taken += self._cost(part)
        check_bytes(self._name, self._taken, self._size)
        buffer[: len(part)] = part
        return len(part)
