"""Add the features of an encoder to tables, with their provenance in the metadata; find images, and list them."""

import base64
import glob
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.encoders.estimators import ImageEncoder, TextEncoder
from candidly.encoders.images import SUFFIXES
from candidly.tables import files, provenance
from candidly.tables.class_columns import is_text
from candidly.tables.parts import check_same_encoders, find_parts, read_schema
from candidly.tables.provenance import Provenance
from candidly.tables.schema import check_column

IMAGE = "image"
"""The column of images if they come from a folder or a pattern, by default."""

LIST_ROWS = 2048
"""Number of images in each file of a list of images: an interrupted stream encodes at most as many again."""

_COMPONENTS = b"candidly.components."  # key of the metadata, followed by the encoded column
_FEATURES = "<f4"


@dataclass(frozen=True, eq=False)
class Embedding:
    """How the features of a column are added to a table.

    Attributes
    ----------
    encoder : ImageEncoder or TextEncoder
        A fitted encoder.
    column : str
        The column of paths of images, or of texts. Its features are named after it: ``photo_0``, ``photo_1``, …
    root : Path or None
        The folder to which paths of images are relative; None means the current one.
    option : str
        The option that names the column, for messages.
    skip : bool
        Whether to leave rows out whose image cannot be read; the encoder must return missing values for them.
    """

    encoder: ImageEncoder | TextEncoder
    column: str
    root: Path | None = None
    option: str = "--image"
    skip: bool = False

    def items(self, table: Any, file: str) -> list[str | None]:
        """Return the paths or texts of a table."""
        check_column(table, file, self.column, self.option)
        values = _decoded(table.column(self.column))
        if not is_text(values.type):
            raise ValueError(
                f"{file}: column {self.column!r} has type {values.type}; name a column of text with {self.option}"
            )
        found = values.to_pylist()
        if isinstance(self.encoder, TextEncoder):
            return found
        missing = next((row for row, value in enumerate(found) if not value), None)
        if missing is not None and not self.skip:
            raise ValueError(f"{file} has no path in row {missing}, column {self.column!r}; write one, or drop the row")
        root = self.root or Path()
        return [str(root / (value or "")) for value in found]

    def apply(self, table: Any, file: str) -> Any:
        """Return the table with the features as further columns, and with their provenance in its metadata."""
        import pyarrow as pa

        items = self.items(table, file)
        try:
            features = self.encoder.transform(items)
        except OSError as error:  # one of an image, which is not one of the file that is being written
            raise ValueError(str(error)) from error
        names = [f"{self.column}_{j}" for j in range(features.shape[1])]
        taken = next((name for name in names if name in table.column_names), None)
        if taken is not None:
            raise ValueError(f"{file} has a column {taken!r} already, which is the name of a feature; rename it")
        if self.skip:
            good = np.isfinite(features).all(1)
            features, table = features[good], table.filter(pa.array(good))
        fields = [*table.schema, *(pa.field(name, pa.float32()) for name in names)]
        columns = [*table.columns, *(pa.array(column, pa.float32()) for column in np.ascontiguousarray(features.T))]
        joined = pa.Table.from_arrays(columns, schema=pa.schema(fields, table.schema.metadata))
        joined = provenance.attach(joined, self.encoder.provenance(self.column))
        if self.encoder.n_components is None:
            return joined
        key, packed = _COMPONENTS + self.column.encode(), pack(self.encoder.components_)
        return joined.replace_schema_metadata({**joined.schema.metadata, key: packed})


def _decoded(values: Any) -> Any:
    """Return a column of categories, or of another kind of text, as texts."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.cast(pa.string()) if values.type == pa.string_view() else values


def pack(components: NDArray[np.float32]) -> bytes:
    """Return components as text, for the metadata of a table."""
    rows, number = components.shape
    return f"{rows} {number} ".encode() + base64.b64encode(components.astype(_FEATURES).tobytes())


def unpack(packed: bytes, file: str) -> NDArray[np.float32]:
    """Return the components that `pack` packed; raise ValueError if they are damaged."""
    try:
        rows, number, data = packed.split(b" ")
        values = np.frombuffer(base64.b64decode(data, validate=True), _FEATURES)
        components = values.reshape(int(rows), int(number)).astype(np.float32)
    except ValueError:
        components = np.zeros((0, 0), np.float32)
    if not components.size or not np.isfinite(components).all():
        raise ValueError(f"{file} has damaged components in its metadata; encode with --reduce again")
    return components


def read_like(file: str, column: str) -> tuple[Provenance, NDArray[np.float32] | None]:
    """Return which encoder computed the features of a column, and the components, if any.

    `file` is a Parquet or Arrow file, or a folder of them.
    """
    parts = find_parts(file)
    part = str(parts[0])
    check_same_encoders(parts)
    if files.is_text_file(part):
        raise ValueError(f"{part} is a text file, which does not note an encoder; name a .parquet or .arrow file")
    found = read_schema(files.Source.of(part))
    encoders = provenance.of_schema(found, file)
    made = next((one for one in encoders if one.column == column), None)
    if made is None:
        known = ", ".join(repr(one.column) for one in encoders)
        has = f"has features of {known}, not of {column!r}" if known else "has no features of an encoder"
        raise ValueError(
            f"{file} {has}; name a file that `candidly embed` wrote, and the column with --image or --text"
        )
    packed = (found.metadata or {}).get(_COMPONENTS + column.encode())
    return made, None if packed is None else unpack(packed, file)


@dataclass(frozen=True)
class Images:
    """Images that were found.

    Attributes
    ----------
    root : Path
        The folder to which the paths are relative.
    paths : list of str
        The images, sorted.
    others : Counter
        The suffixes of files that were left out, as they are not those of images, and how many files have them.
    """

    root: Path
    paths: list[str]
    others: Counter[str]

    def digest(self) -> str:
        """Return a digest of the images' paths, sizes and times of change."""
        found = hashlib.sha256()
        for path in self.paths:
            try:
                file = os.stat(self.root / path)
                state = f"{file.st_size} {file.st_mtime_ns}"
            except FileNotFoundError:  # a link to nothing
                state = "missing"
            found.update(f"{path}\0{state}\0".encode())
        return found.hexdigest()

    def place(self) -> str | None:
        """Return the folder that the images lie in; None if their paths say so themselves."""
        return None if all(map(os.path.isabs, self.paths)) else os.path.realpath(self.root)


def find_images(source: str) -> Images:
    """Find the images in a folder and in those in it, or those that match a pattern.

    Files whose names begin with a dot and files with other suffixes are left out.
    """
    if os.path.isdir(source):
        root, found = Path(source), sorted(_walk(source))
    else:
        matching = [source] if os.path.isfile(source) else glob.glob(source, recursive=True)
        root, found = Path(), sorted({name for name in matching if os.path.isfile(name)})
        if not found:
            raise FileNotFoundError(
                f"{source} does not exist, or no file matches it; name a folder of images, a pattern such as "
                "'photos/*.jpg' in quotes, or a table"
            )
    shown = [name for name in found if name == source or not Path(name).name.startswith(".")]
    images = [name for name in shown if files.suffix_of(name) in SUFFIXES]
    if not images:
        raise FileNotFoundError(f"{source} holds no image; name files that end in {', '.join(SUFFIXES)}")
    odd = next((name for name in images if name.encode(errors="replace").decode() != name), None)
    if odd is not None:
        raise ValueError(f"{source} holds a file whose name {odd!r} is not UTF-8; rename it")
    others = Counter(Path(name).suffix.lower() or "without suffix" for name in shown)
    for name in images:
        others[Path(name).suffix.lower()] -= 1
    return Images(root, images, +others)


def _walk(folder: str) -> Iterator[str]:
    """Yield the paths of all files in a folder and those in it, relative to it.

    Links to folders are followed last, and only to folders that were not searched before and that do not hold this one.
    """
    seen, starts = {*map(str, Path(os.path.realpath(folder)).parents)}, [folder]
    for start in starts:  # which grows meanwhile
        for place, inner, names in os.walk(start):
            real = os.path.realpath(place)
            if real in seen:
                inner.clear()
                continue
            seen.add(real)
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            starts += [one for one in (os.path.join(place, name) for name in inner) if os.path.islink(one)]
            for name in names:
                yield Path(place, name).relative_to(folder).as_posix()


def list_images(paths: Sequence[str], column: str, folder: Path) -> None:
    """Write a table of paths, in files of `LIST_ROWS` rows: the same paths give the same files, with the same times."""
    import pyarrow as pa

    for number, start in enumerate(range(0, len(paths), LIST_ROWS)):
        part = folder / f"images-{number:05d}.parquet"
        files.write(pa.table({column: pa.array(paths[start : start + LIST_ROWS], pa.string())}), part)
        os.utime(part, (0, 0))
