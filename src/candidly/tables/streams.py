"""Streams: a row-wise function applied to a table in several files, block by block, with one result file per file.

Memory does not grow with the number of rows. A killed run goes on where it stopped, and several processes can share the
files of one stream. The folder of the results holds

- one file per input file, with the same name, written under a temporary name and renamed when it is complete;
- ``_manifest.json``, when all files are finished: what was read and written, with counts and checksums. A shard also
  writes ``_manifest-3-of-16.json`` when its files are finished;
- ``_candidly/``: the plan of the stream, one record per finished file, and what the command needs to go on.

Programs that read a folder of tables, such as pyarrow and Spark, ignore names that begin with an underscore.
"""

import fnmatch
import json
import os
import platform
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from tqdm import tqdm

from candidly import __version__, store
from candidly.messages import busy, listed, warn
from candidly.store import lock
from candidly.store.files import to_json
from candidly.tables import files
from candidly.tables.parts import BLOCK_ROWS, BlockWriter, column_names, count_rows, find_parts, read_blocks

NOTES = "_candidly"
"""Folder for what a stream needs to go on, in the folder of its results."""

MANIFEST = "_manifest"
"""First part of the names of manifests."""

_FORMAT = 1
_PLAN, _LOCK, _RECORDS = "stream.json", "lock", "files"
_MOST_WARNINGS = 5
_SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


@dataclass(frozen=True)
class Part:
    """One file of a stream.

    Attributes
    ----------
    name : str
        Its path below the folder that all files of the stream share; the result has the same path below its folder.
    rows, start : int
        Number of rows, and of rows in earlier files.
    bytes, modified : int
        Size of the file, and when it was modified, in nanoseconds.
    path : Path
        Where it is.
    """

    name: str
    rows: int
    start: int
    bytes: int
    modified: int
    path: Path

    def facts(self) -> dict[str, Any]:
        """Return what identifies the file, wherever it is, in JSON types."""
        return {name: value for name, value in asdict(self).items() if name != "path"}


@dataclass(frozen=True, eq=False)
class Rows:
    """A block of rows.

    Attributes
    ----------
    table : pyarrow.Table
        The rows.
    part : Part
        Their file.
    start : int
        The number of the first row in its file; ``first`` is its number in the stream.
    """

    table: Any
    part: Part
    start: int

    @property
    def first(self) -> int:
        """The number of the first row in the stream."""
        return self.part.start + self.start


Counts = Mapping[str, Any]
"""What is added up over all rows: numbers, lists of numbers, and mappings of these."""

Step = Callable[[Rows], tuple[Any, Counts]]
"""A row-wise function: it returns the result of a block, a table with as many rows, and counts."""


@dataclass(frozen=True)
class Stream:
    """A table in several files, and the folder of results. Create it with `Stream.open`.

    Attributes
    ----------
    command : str
        What is done, for messages and the manifest.
    settings : mapping
        What the results depend on beside the files, in JSON types.
    parts : tuple of Part
        All files, in order.
    folder : Path
        Where results are written.
    shard : tuple of int
        (3, 16) means the third of 16 shards: files 3, 19, 35 and so on.
    columns : tuple of str
        The columns of the first file; the others have the same.
    delimiter : str or None
        The delimiter of text files.
    suffix : str or None
        The suffix of results; None means that of the file.
    """

    command: str
    settings: Mapping[str, Any]
    parts: tuple[Part, ...]
    folder: Path
    shard: tuple[int, int]
    columns: tuple[str, ...]
    delimiter: str | None = None
    suffix: str | None = None

    @classmethod
    def open(
        cls,
        source: files.FilePath,
        folder: str | Path,
        *,
        command: str,
        settings: Mapping[str, Any],
        shard: str | None = None,
        delimiter: str | None = None,
        suffix: str | None = None,
        progress: bool = False,
    ) -> Self:
        """Find the files, count their rows, and plan the stream, or go on with the one that the folder holds.

        Parameters
        ----------
        source : path
            A file, a folder or a pattern (`candidly.tables.parts.find_parts`).
        folder : path
            Where results are written; it is made if it does not exist.
        command, settings, delimiter, suffix
            As the attributes.
        shard : str, optional
            Such as ``3/16``.
        progress : bool
            Whether to show what is done.

        Raises
        ------
        FileNotFoundError
            When there are no files.
        ValueError
            When the folder holds something else or a stream with other files or settings, when a file has other
            columns than the first, and when results would be files of the source.
        """
        chosen, folder = _read_shard(shard), Path(folder)
        paths = find_parts(source)
        _check_apart(source, paths, folder)
        notes = folder / NOTES
        if not (notes / _PLAN).exists():
            _check_new(folder)
        with _waiting(notes / _LOCK, "planning", progress):
            known = store.read_json(notes / _PLAN) if (notes / _PLAN).exists() else None
            columns = column_names(paths[0], delimiter=delimiter)
            facts = None if known is None else known.get("files")
            parts = _find(paths, source, columns, delimiter, facts, progress)
            stream = cls(command, dict(settings), tuple(parts), folder, chosen, tuple(columns), delimiter, suffix)
            plan = json.loads(to_json(stream._plan(), "the plan of a stream"))
            if known is None:
                store.replace(notes / _PLAN, _encode(plan))
            else:
                _compare(known, plan, folder)
        if not stream.own:
            warn(f"shard {shard} is empty, because the number of files to read is {len(parts)}; use fewer shards")
        return stream

    @property
    def rows(self) -> int:
        """Number of rows in all files."""
        return self.parts[-1].start + self.parts[-1].rows

    @property
    def own(self) -> tuple[Part, ...]:
        """The files of this shard."""
        i, n = self.shard
        return self.parts[i - 1 :: n]

    @property
    def notes(self) -> Path:
        """The folder for what the command needs to go on."""
        return self.folder / NOTES

    @contextmanager
    def alone(self, what: str, progress: bool) -> Iterator[None]:
        """Do something that one process does for all shards, while the others wait."""
        with _waiting(self.notes / f"{what}.lock", what, progress):
            yield

    def locate(self, row: int) -> tuple[Part, int]:
        """Return the file of a row of the stream, and the number of the row in it."""
        starts = [part.start for part in self.parts]
        part = self.parts[int(np.searchsorted(starts, row, side="right")) - 1]
        return part, row - part.start

    def blocks(
        self, part: Part, *, texts: Collection[str] = (), raw: bool = False, rows: int = BLOCK_ROWS
    ) -> Iterator[Rows]:
        """Yield the blocks of a file (`candidly.tables.parts.read_blocks`); raise ValueError if it was changed."""
        start = 0
        for table in read_blocks(part.path, rows=rows, delimiter=self.delimiter, texts=texts, raw=raw):
            yield Rows(table, part, start)
            start += table.num_rows
        if start != part.rows:
            raise ValueError(f"{part.path} has {start} rows, and had {part.rows}; do not change it while it is read")

    def run(
        self,
        step: Step,
        *,
        texts: Collection[str] = (),
        separator: str = "|",
        rows: int = BLOCK_ROWS,
        facts: Mapping[str, Any] | None = None,
        progress: bool = False,
    ) -> dict[str, Any]:
        """Apply a function to the files of this shard that are not finished, and write the manifest.

        Parameters
        ----------
        step : callable
            The function. Its results must not depend on how rows are cut into blocks.
        texts : collection of str
            Columns of text files that stay text.
        separator : str
            The text between the values of a list in CSV.
        rows : int
            The largest number of rows of a block.
        facts : mapping, optional
            Anything to note in the manifest, in JSON types. It must be the same for all shards.
        progress : bool
            Whether to show a progress bar.

        Returns
        -------
        dict
            The manifest of this shard. ``totals`` are the sums of the counts over its files.
        """
        name = "-of-".join(map(str, self.shard))
        with lock.locked(self.notes / f"shard-{name}.lock", wait=False) as mine:
            if not mine:
                raise ValueError(
                    f"another process writes shard {'/'.join(map(str, self.shard))} of {self.folder}; wait for it, or "
                    "give each process another --shard"
                )
            left = [part for part in self.own if self._record(part) is None]
            total = sum(part.rows for part in left)
            heard = _Warnings()
            with tqdm(
                total=total, desc=self.command, unit="row", unit_scale=True, disable=not progress, delay=1, leave=False
            ) as bar:
                for part in left:
                    self._write(part, step, texts, separator, rows, bar, heard)
            heard.finish()
            manifest = self._manifest(self.own, facts or {})
            if self.shard != (1, 1):
                store.replace(self.folder / f"{MANIFEST}-{name}.json", _encode(manifest))
            if self.shard == (1, 1) or all(self._record(part) is not None for part in self.parts):
                store.replace(self.folder / f"{MANIFEST}.json", _encode(self._manifest(self.parts, facts or {})))
            return manifest

    def place(self, part: Part) -> Path:
        """Return where the result of a file is written."""
        if self.suffix is None:
            return self.folder / part.name
        return self.folder / (part.name[: -len(files.suffix_of(part.name))] + self.suffix)

    def _write(
        self, part: Part, step: Step, texts: Collection[str], separator: str, rows: int, bar: Any, heard: "_Warnings"
    ) -> None:
        counts: dict[str, Any] = {}
        target = self.place(part)
        record = self.notes / _RECORDS / f"{part.name}.json"
        for folder in (target.parent, record.parent):
            folder.mkdir(parents=True, exist_ok=True)
        output = None
        if part.rows:
            with BlockWriter(target, separator) as writer:
                for block in self.blocks(part, texts=texts, rows=rows):
                    with heard.listening(part):
                        table, more = step(block)
                    writer.write(table)
                    counts = add(counts, more)
                    bar.update(block.table.num_rows)
            output = {"name": target.relative_to(self.folder).as_posix(), "rows": writer.rows}
            output |= {"bytes": writer.bytes, "sha256": writer.sha256}
        now = part.path.stat()
        if (now.st_size, now.st_mtime_ns) != (part.bytes, part.modified):
            target.unlink(missing_ok=True)
            raise ValueError(f"{part.path} was changed while it was read; run the command again in a new folder")
        store.replace(record, _encode({"file": part.facts(), "result": output, "counts": counts}))

    def _record(self, part: Part) -> dict[str, Any] | None:
        """Return the record of a finished file; None if it is not finished."""
        try:
            found = store.read_json(self.notes / _RECORDS / f"{part.name}.json")
        except FileNotFoundError:
            return None
        if not {"file", "result", "counts"} <= found.keys():
            return None
        size = -1 if found["result"] is None else found["result"]["bytes"]
        target = self.place(part)
        return found if size == (target.stat().st_size if target.is_file() else -1) else None

    def _plan(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "command": self.command,
            "settings": self.settings,
            "versions": _versions(),
            "files": [part.facts() for part in self.parts],
        }

    def _manifest(self, parts: Sequence[Part], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the manifest of finished files."""
        records = [self._record(part) for part in parts]
        totals: dict[str, Any] = {}
        for record in records:
            assert record is not None, "all files are finished"
            totals = add(totals, record["counts"])
        found = {name: value for name, value in self._plan().items() if name != "files"}
        found |= {"shard": None if len(parts) == len(self.parts) else list(self.shard), "facts": dict(facts)}
        return found | {"rows": sum(part.rows for part in parts), "totals": totals, "files": records}


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Return the manifest of a finished stream; raise ValueError if some of its files are not finished.

    Examples
    --------
    >>> read_manifest("/no/such/folder")
    Traceback (most recent call last):
        ...
    FileNotFoundError: /no/such/folder holds no finished stream; let all of its shards finish first
    """
    path = Path(folder) / f"{MANIFEST}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no finished stream; let all of its shards finish first")
    found = store.read_json(path)
    if found.get("format") != _FORMAT:
        raise ValueError(f"{path} was written by another version of candidly; run the stream again in a new folder")
    return found


def add(one: Counts, other: Counts) -> dict[str, Any]:
    """Return the sums of counts; lists are added element by element.

    Examples
    --------
    >>> add({"rows": 2, "sizes": [1, 1]}, {"rows": 3, "sizes": [0, 1, 2], "truth": {"rows": 1}})
    {'rows': 5, 'sizes': [1, 2, 2], 'truth': {'rows': 1}}
    """
    return {key: _sum(one.get(key), other.get(key)) for key in (*one, *(key for key in other if key not in one))}


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, Mapping):
        return add(one, other)
    if isinstance(one, list):
        short, long = sorted((one, other), key=len)
        return [a + b for a, b in zip(short, long, strict=False)] + long[len(short) :]
    return one + other


class _Warnings:
    """Repeats the first few different warnings of a stream, with the file; blocks would repeat each many times."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.more = 0

    @contextmanager
    def listening(self, part: Part) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for one in caught:
            text = re.sub(r"^X ", f"{part.path} ", str(one.message))
            kind = re.sub(r"'[^']*'|[0-9]+", "", str(one.message))  # without values and numbers
            self.more += kind in self.seen or len(self.seen) >= _MOST_WARNINGS
            if kind not in self.seen and len(self.seen) < _MOST_WARNINGS:
                self.seen.add(kind)
                warn(text)

    def finish(self) -> None:
        if self.more:
            warn(f"{self.more} more blocks of rows caused such warnings")


@contextmanager
def _waiting(path: Path, what: str, progress: bool) -> Iterator[None]:
    """Hold a lock; say what another process is doing while it holds it."""
    with ExitStack() as stack:
        with busy(f"waiting for another process, which is {what}", progress):
            stack.enter_context(lock.locked(path, wait=True))
        yield


def _read_shard(text: str | None) -> tuple[int, int]:
    """Read ``3/16``.

    Examples
    --------
    >>> _read_shard("3/16"), _read_shard(None)
    ((3, 16), (1, 1))
    """
    if text is None:
        return 1, 1
    found = _SHARD.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError(f"shard is {text!r}; give its number, from 1, and the number of shards, such as 3/16")
    return int(found[1]), int(found[2])


def _find(
    paths: Sequence[Path],
    source: files.FilePath,
    columns: Sequence[str],
    delimiter: str | None,
    known: Any,
    progress: bool,
) -> list[Part]:
    """Return the files with their sizes; rows are counted unless an earlier plan knows the same file."""
    top = Path(os.path.commonpath([path.absolute().parent for path in paths]))
    counted = {one["name"]: one for one in known} if isinstance(known, list) else {}
    found: list[Part] = []
    start = 0
    for path in tqdm(paths, desc="counting rows", unit="file", disable=not progress, delay=1, leave=False):
        size, name = path.stat(), path.absolute().relative_to(top).as_posix()
        old = counted.get(name)
        if old is not None and (old["bytes"], old["modified"]) == (size.st_size, size.st_mtime_ns):
            rows = int(old["rows"])
        else:
            _check_columns(path, paths[0], columns, delimiter)
            rows = count_rows(path, delimiter=delimiter)
        found.append(Part(name, rows, start, size.st_size, size.st_mtime_ns, path))
        start += rows
    if not start:
        raise ValueError(f"{source} has no rows; pass at least one")
    return found


def _check_columns(path: Path, first: Path, columns: Sequence[str], delimiter: str | None) -> None:
    found = column_names(path, delimiter=delimiter)
    lacking = [name for name in columns if name not in found]
    extra = [name for name in found if name not in columns]
    wrong = [f"lacks the columns {listed(map(repr, lacking))}"] * bool(lacking)
    wrong += [f"has the columns {listed(map(repr, extra))} in addition"] * bool(extra)
    if wrong:
        raise ValueError(f"{path} {' and '.join(wrong)}, unlike {first}; all files of a stream need the same columns")


def _check_apart(source: files.FilePath, paths: Sequence[Path], folder: Path) -> None:
    """Raise ValueError if results would be, or replace, files of the source."""
    place = Path(os.path.realpath(folder))
    inside = next((path for path in paths if Path(os.path.realpath(path)).is_relative_to(place)), None)
    if inside is not None:
        raise ValueError(f"{inside} is read and lies in {folder}, where results are written; name another folder")
    pattern = Path(os.path.abspath(source)).parts
    if not os.path.exists(source) and _matches(Path(os.path.abspath(folder), paths[0].name).parts, pattern):
        raise ValueError(f"{source} would also match the results in {folder}; name another folder")


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a path matches a pattern, both split at the slashes.

    Examples
    --------
    >>> _matches(["a", "b", "c.csv"], ["**", "*.csv"]), _matches(["a", "b", "c.csv"], ["*", "*.csv"])
    (True, False)
    """
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_matches(path[i:], pattern[1:]) for i in range(len(path) + 1))
    return bool(path) and fnmatch.fnmatchcase(path[0], pattern[0]) and _matches(path[1:], pattern[1:])


def _check_new(folder: Path) -> None:
    """Raise ValueError unless a folder is new, or holds nothing."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; name a folder for the results")
    other = next((path.name for path in folder.iterdir() if path.name != NOTES), None) if folder.exists() else None
    if other is not None:
        raise ValueError(f"{folder} holds {other!r}, which is not a result of this stream; name a new folder")
    top = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    files.check_folder(top)


def _compare(known: Mapping[str, Any], plan: Mapping[str, Any], folder: Path) -> None:
    """Raise ValueError if a folder holds a stream that was planned differently."""
    advice = "name a new folder, or go on as before"
    if known.get("format") != _FORMAT or not isinstance(known.get("settings"), dict):
        raise ValueError(f"{folder} holds a stream of another version of candidly; name a new folder")
    if known["command"] != plan["command"]:
        raise ValueError(f"{folder} holds results of `candidly {known['command']}`; name a new folder")
    for kind in ("settings", "versions"):
        old, new = known[kind], plan[kind]
        for name in (*new, *(name for name in old if name not in new)):
            if old.get(name) != new.get(name):
                raise ValueError(
                    f"{folder} holds a stream in which {name} was {json.dumps(old.get(name))}, and now it is "
                    f"{json.dumps(new.get(name))}; {advice}"
                )
    before = {one["name"]: one for one in known["files"]}
    now = {one["name"]: one for one in plan["files"]}
    for name in (*now, *before):
        if now.get(name) != before.get(name):
            state = "was removed" if name not in now else "was added" if name not in before else "was changed"
            raise ValueError(f"{folder} holds a stream that was begun before {name} {state}; {advice}")


def _versions() -> dict[str, str]:
    import pyarrow as pa

    return {
        "candidly": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "python": platform.python_version(),
    }


def _encode(value: Mapping[str, Any]) -> bytes:
    return (to_json(value, "the record of a stream", indent=1) + "\n").encode()
