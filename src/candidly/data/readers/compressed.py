"""Decompression with a bound on memory."""

import gzip
import zlib
from pathlib import Path

# Deflate expands at most so many times: a file that claims more is not what it says.
MAX_EXPANSION = 1032


def gunzip(path: Path, limit: int) -> bytes:
    """Decompress at most `limit` bytes.

    Raises
    ------
    ValueError
        When the file is truncated or damaged.
    """
    try:
        with gzip.open(path) as stream:
            return stream.read(limit)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is no readable gzip file ({error}); delete it and get it again") from error
