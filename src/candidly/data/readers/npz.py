"""Reader of `.npz` files that checks the sizes of arrays before it allocates memory."""

import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from candidly.checks.limits import check_bytes
from candidly.data.readers.compressed import MAX_EXPANSION


def read(
    path: str | os.PathLike[str], required: Collection[str], optional: Collection[str] = ()
) -> dict[str, NDArray[Any]]:
    """Read arrays from a `.npz` file.

    Parameters
    ----------
    path
        The file.
    required, optional
        The names of the arrays. Other arrays are ignored.

    Raises
    ------
    ValueError
        When the file is damaged, lacks an array, holds Python objects, claims more than it can hold, or its arrays take
        more memory than `candidly.checks.limits.max_bytes` allows.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".npz") as file:
    ...     np.savez(file, X=np.eye(2), other=np.zeros(3))
    ...     _ = file.seek(0)
    ...     read(file.name, ["X"], optional=["y"])
    {'X': array([[1., 0.],
           [0., 1.]])}
    """
    try:
        with zipfile.ZipFile(path) as archive:
            present = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            missing = [name for name in required if name not in present]
            if missing:
                raise ValueError(
                    f"{path} has no array {', '.join(missing)}; it holds {', '.join(sorted(present)) or 'nothing'}"
                )
            wanted = [name for name in (*required, *optional) if name in present]
            for name in wanted:
                _check_member(present[name], f"{path}: {name}")
            needed = sum(present[name].file_size for name in wanted)
            check_bytes(f"{path}: {', '.join(wanted)}", needed, os.path.getsize(path))
            return {name: _read_member(archive, present[name], f"{path}: {name}") for name in wanted}
    except (FileNotFoundError, PermissionError):
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OverflowError, OSError, struct.error) as error:
        raise ValueError(f"{path} is not a readable .npz file ({error}); save it again with numpy.savez") from error


def _check_member(info: zipfile.ZipInfo, place: str) -> None:
    if info.flag_bits & 1:
        raise ValueError(f"{place} is encrypted; save it with numpy.savez")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{place} is compressed in a way that numpy does not use; save it with numpy.savez_compressed")
    if info.file_size > MAX_EXPANSION * info.compress_size:
        raise ValueError(f"{place} claims {info.file_size} bytes in {info.compress_size}, which is impossible; drop it")


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, place: str) -> NDArray[Any]:
    with archive.open(info) as stream:
        shape, dtype = _read_header(stream, place)
        size = stream.tell() + math.prod(shape) * dtype.itemsize
    if size != info.file_size:
        raise ValueError(
            f"{place} is damaged: shape {shape} of type {dtype} takes {size} bytes, but it has {info.file_size}; "
            "save it again"
        )
    with archive.open(info) as stream, _refusal(place):
        return npy.read_array(stream, allow_pickle=False)


def _read_header(stream: IO[bytes], place: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    with _refusal(place):
        version = npy.read_magic(stream)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_header(stream)
    if not all(type(length) is int and 0 <= length < 2**63 for length in shape):
        raise ValueError(f"{place} is damaged: its shape is {shape}; save it again")
    if dtype.itemsize == 0:
        raise ValueError(f"{place} has type {dtype}, whose values take no space; save numbers or text")
    if dtype.hasobject or dtype.names:
        raise ValueError(f"{place} has type {dtype}; Python objects and records are not read, save numbers or text")
    return shape, dtype


@contextmanager
def _refusal(place: str) -> Iterator[None]:
    """Turn the errors that numpy raises for a damaged array into one kind."""
    try:
        yield
    except (ValueError, TypeError, OverflowError, SyntaxError, RecursionError, tokenize.TokenError) as error:
        raise ValueError(f"{place} is not a readable array ({error}); save it again") from error
