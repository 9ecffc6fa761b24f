"""Decompression with bounded memory."""

import gzip
import zlib
from pathlib import Path

# The largest factor by which deflate can expand data: a file that claims more is damaged.
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
        raise ValueError(f"{path} is not a readable gzip file ({error}); delete it and get it again") from error
