"""Images of rows: the only files that the review page can load, by row number and never by name."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LARGEST = 32 << 20
"""Bytes of an image file that are sent at most."""

# The types that are sent, by the bytes that files of the type begin with: a name says nothing about the content. SVG is
# left out because it can hold scripts.
_TYPES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)


@dataclass(frozen=True, eq=False)
class Images:
    """The image files that a column of a table names.

    Attributes
    ----------
    names : sequence of str or None
        The file of each row, as the table names it: relative to the folder, or absolute inside it.
    folder : Path
        No file outside of this folder is read, whatever the table or a symbolic link says.
    """

    names: Sequence[str | None]
    folder: Path

    def has(self, row: int) -> bool:
        """Return whether the table names an image for a row."""
        return bool(self.names[row])

    def read(self, row: int) -> tuple[bytes, str]:
        """Return the image of a row and its media type.

        Raises
        ------
        ValueError
            If the row has no image, or the file cannot be shown; the message says why.
        """
        name = self.names[row]
        if not name:
            raise ValueError("the row has no image")
        if "\0" in name:
            raise ValueError("the name of the image holds a character that no file name has")
        root = os.path.realpath(self.folder)
        path = os.path.realpath(os.path.join(root, name))
        if os.path.commonpath([root, path]) != root:
            raise ValueError("the image is outside of the folder of images; name its folder with --images")
        try:
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise ValueError(f"the image cannot be read ({error.strerror})") from None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise ValueError("the image is not a regular file")
            if found.st_size > LARGEST:
                raise ValueError(f"the image has {found.st_size} bytes; at most {LARGEST} are shown")
            with open(handle, "rb", closefd=False) as file:
                data = file.read(LARGEST)
        finally:
            os.close(handle)
        return data, _type_of(data)


def _type_of(data: bytes) -> str:
    kind = next((kind for start, kind in _TYPES if data.startswith(start)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if data[4:12] == b"ftypavif":
        kind = "image/avif"
    if kind is None:
        raise ValueError("the file is not a PNG, JPEG, GIF, WebP, AVIF or BMP image; SVG is not shown")
    return kind
