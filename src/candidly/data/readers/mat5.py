"""Check the structure of a `.mat` file before scipy reads it.

scipy looks up data types in a table without a bounds check, so that one wrong byte can crash Python. This module walks
through the header of every variable, and through every element of a numeric matrix, in the same steps as scipy, and
refuses files on which scipy would crash. The format is documented in MathWorks' "MAT-File Format".
"""

import io
import struct
import zlib
from collections.abc import Collection
from typing import IO, Any, NamedTuple

from candidly.data.readers.compressed import MAX_EXPANSION

_MATRIX, _COMPRESSED = 14, 15  # data types
_INT32 = 5
_NUMBERS = frozenset((1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18))
_SPARSE, _OPAQUE = 5, 17  # classes
_NUMERIC = range(6, 16)
_BLOCK = 1 << 16
_LONGEST = 4096  # bytes of a name or shape
_SIZES = (8, 4, 4, 2, 2, 1)  # bytes of the data types of level 4


class Variable(NamedTuple):
    """The shape of a variable, whether it is a matrix of numbers, dense or sparse, and the bytes of its numbers."""

    shape: tuple[int, ...]
    is_numeric: bool
    stored: int


def variables(content: bytes) -> dict[str, Variable]:
    """Return the variables of a level 5 file.

    Raises
    ------
    ValueError, zlib.error
        When the content is damaged.
    """
    order = "<" if content[126:128] == b"IM" else ">"
    stream = io.BytesIO(content)
    found: dict[str, Variable] = {}
    position = 128
    while position < len(content):
        stream.seek(position)
        kind, size = struct.unpack(f"{order}II", _take(stream, 8))
        position += 8 + size
        if not 0 < size <= len(content) - position + size:
            raise ValueError(f"an element of {size} bytes does not fit in")
        inner: IO[bytes] = stream
        if kind == _COMPRESSED:
            expanded: Any = _Expanded(stream, size)
            inner = io.BufferedReader(expanded, _BLOCK)
            possible = MAX_EXPANSION * size
            kind, size = struct.unpack(f"{order}II", _take(inner, 8))
            if size > possible:
                raise ValueError(f"{size} bytes cannot come from {possible // MAX_EXPANSION}")
        if kind != _MATRIX:
            raise ValueError(f"data type {kind} where a matrix begins")
        name, variable = _Matrix(inner, size, order).walk()
        if name in found:
            raise ValueError(f"{name} is there twice")
        if name is not None:
            found[name] = variable
    return found


def check_level4(content: bytes) -> None:
    """Check the headers of a level 4 file.

    Raises
    ------
    ValueError
        When one of them is impossible.
    """
    order = "<" if 0 <= struct.unpack_from("<i", content.ljust(4))[0] <= 5000 else ">"
    position = 0
    while position < len(content):
        if len(content) - position < 20:
            raise ValueError("it ends within a header")
        kind, rows, columns, imaginary, length = struct.unpack_from(f"{order}5i", content, position)
        swapped = kind // 1000
        zero = kind // 100 % 10
        number = kind // 10 % 10
        form = kind % 10
        if swapped not in (0, 1) or zero or number >= len(_SIZES) or form > 2 or imaginary not in (0, 1):
            raise ValueError(f"a header has type {kind} and imaginary part {imaginary}")
        if rows < 0 or columns < 0 or length < 1:
            raise ValueError(f"a header has shape ({rows}, {columns}) and a name of {length} bytes")
        position += 20 + length + rows * columns * _SIZES[number] * (1 + imaginary)
        if position > len(content):
            raise ValueError(f"a matrix ({rows}, {columns}) does not fit in")


class _Expanded(io.RawIOBase):
    """The content of a compressed element, decompressed block by block."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._inflate = zlib.decompressobj()
        self._stream = stream
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = b""
        while not part:
            block = self._inflate.unconsumed_tail
            if not block:
                block = self._stream.read(min(_BLOCK, self._left))
                self._left -= len(block)
            part = self._inflate.decompress(block, len(buffer))
            if not block:
                break
        buffer[: len(part)] = part
        return len(part)


class _Matrix:
    """A matrix element of `size` bytes, after its tag was read."""

    def __init__(self, stream: IO[bytes], size: int, order: str) -> None:
        self._stream = stream
        self._left = size
        self._order = order

    def walk(self) -> tuple[str | None, Variable]:
        """Return the name, which some objects lack, and the variable."""
        tag, size, flags, _ = struct.unpack(f"{self._order}4I", self._take(16))
        if (tag, size) != (6, 8):
            raise ValueError(f"flags of type {tag} and {size} bytes")
        kind = flags & 0xFF
        is_complex = bool(flags & 0x800)
        if kind == _OPAQUE:
            return None, Variable((), False, 0)
        lengths = self._element((5, 6))
        shape = struct.unpack(f"{self._order}{len(lengths) // 4}i", lengths[: len(lengths) // 4 * 4])
        name = self._element((1, 16)).decode("latin1")
        if not 1 <= len(shape) <= 32 or min(shape) < 0:
            raise ValueError(f"{name} has the shape {shape}")
        is_numeric = kind in _NUMERIC or kind == _SPARSE
        before = self._left
        if is_numeric:
            for _ in range(2 if kind == _SPARSE else 0):
                self._element((_INT32,), keep=False)  # indices
            for _ in range(1 + is_complex):
                self._element(_NUMBERS, keep=False)
        return name, Variable(shape, is_numeric, before - self._left)

    def _element(self, kinds: Collection[int], keep: bool = True) -> bytes:
        """Skip an element. Return its content if `keep` is set."""
        head = self._take(8)
        kind, size = struct.unpack(f"{self._order}II", head)
        small = kind >> 16  # in a small element, size and type share four bytes; the other four are the content
        if small:
            kind, size = kind & 0xFFFF, small
        if kind not in kinds or (small and size > 4) or (keep and size > _LONGEST):
            raise ValueError(f"an element of data type {kind} and {size} bytes")
        if small:
            return head[4 : 4 + size]
        content = self._take(size if keep else 0)
        left = 0 if keep else size
        while left:
            left -= len(self._take(min(left, _BLOCK)))
        self._take(min(-size % 8, self._left))
        return content

    def _take(self, size: int) -> bytes:
        if size > self._left:
            raise ValueError("an element runs past the end of its matrix")
        self._left -= size
        return _take(self._stream, size)


def _take(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise ValueError(f"it ends {size - len(content)} bytes too soon")
    return content
