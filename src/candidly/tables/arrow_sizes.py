"""How much memory the compressed buffers of an Arrow file take, which pyarrow tells only after reading them.

Every compressed buffer begins with its length when unpacked. Where buffers begin is in the metadata of each message, a
flatbuffer, of which this module reads the few fields that it needs. The format is documented in "Arrow Columnar Format"
and in the schema file Message.fbs of Apache Arrow.
"""

import struct
from collections.abc import Iterator
from typing import IO, Any

_DICTIONARY, _RECORDS = 2, 3  # types of messages
_MAGIC = 8  # bytes before the first message of the file format


def unpacked_sizes(file: IO[bytes], is_stream: bool) -> Iterator[int]:
    """Yield the size of each message's buffers when unpacked; 0 if they are not compressed.

    Raises
    ------
    ValueError, struct.error, IndexError
        When the file is damaged.
    """
    import pyarrow as pa

    file.seek(0 if is_stream else _MAGIC)
    for message in pa.ipc.MessageReader.open_stream(file):
        yield _unpacked_size(message.metadata.to_pybytes(), memoryview(message.body or b""))


def _unpacked_size(metadata: bytes, body: Any) -> int:
    root = _follow(metadata, 0)
    kind, header = _field(metadata, root, 1), _field(metadata, root, 2)
    if kind is None or header is None or metadata[kind] not in (_DICTIONARY, _RECORDS):
        return 0
    batch: int | None = header
    if metadata[kind] == _DICTIONARY:
        batch = _field(metadata, _follow(metadata, header), 1)
    if batch is None:
        return 0
    records = _follow(metadata, batch)
    listed, compression = _field(metadata, records, 2), _field(metadata, records, 3)
    if listed is None or compression is None:
        return 0
    buffers = _follow(metadata, listed)
    total = 0
    for i in range(struct.unpack_from("<I", metadata, buffers)[0]):
        start, length = struct.unpack_from("<qq", metadata, buffers + 4 + 16 * i)
        if length >= 8:
            total += max(struct.unpack_from("<q", body, start)[0], 0)  # -1: this buffer is not compressed
    return total


def _follow(metadata: bytes, position: int) -> int:
    """Return where the offset at a position points to."""
    return position + int(struct.unpack_from("<I", metadata, position)[0])


def _field(metadata: bytes, table: int, index: int) -> int | None:
    """Return the position of a field of a table; None if the field is absent."""
    listing = table - struct.unpack_from("<i", metadata, table)[0]
    entry = 4 + 2 * index
    if listing < 0 or entry >= struct.unpack_from("<H", metadata, listing)[0]:
        return None
    offset = struct.unpack_from("<H", metadata, listing + entry)[0]
    return table + int(offset) if offset else None
