"""The command embed: features of images and texts from a pretrained encoder."""

import glob
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from candidly.cli.options import Column, File, Number, OutputOptions, Table, Text
from candidly.cli.parsing import Named

# Everything heavy is imported by the functions that need it, so that `candidly --help` is immediate.
if TYPE_CHECKING:
    from candidly.encoders.embedding import Embedding, Images
    from candidly.tables.streams import Rows, Stream

_ROWS = 8192  # rows that are encoded before their features are written
_DEFAULTS = {"image": "efficientnet-lite0", "text": "all-minilm-l6-v2"}


def embed(
    source: Annotated[str, Named("IMAGES|TABLE", positional=True)],
    *,
    out: str,
    encoder: Text = None,
    image: Column = None,
    text: Column = None,
    like: Table = None,
    reduce: Number = None,
    skip_broken: bool = False,
    root: File = None,
    batch_size: Number = None,
    device: Text = None,
    delimiter: Text = None,
    shard: Text = None,
    output: OutputOptions,
) -> None:
    """Compute features of images or texts with a pretrained encoder.

    The result has the columns of the table, or a column of paths, and the features. Parquet and Arrow files also note
    the encoder's name, version and digest of weights, which `candidly fit` saves with a model: `candidly predict`
    refuses features of another encoder. The guide "Pretrained encoders" lists them.

    If --out is a folder, which must exist or end in /, every file of the source gets a file in it, or every 2048
    images. A killed run goes on when the command is given again, and several processes can share the work (--shard).

    Args:
        source: Folder of images, which is searched with all folders in it; pattern of images in quotes; or table.
        out: Table to write: .csv, .tsv, .parquet, .arrow or .feather, or - for standard output; or a folder.
        encoder: Encoder (default: that of --like, otherwise efficientnet-lite0 or, for texts, all-minilm-l6-v2).
        image: Column of image paths; for a folder of images, the name of that column (default: image).
        text: Column of texts.
        like: File or folder that `candidly embed` wrote: use its encoder and components. If the encoder was moved, also
            give --encoder.
        reduce: Number of components to which the features are reduced.
        skip_broken: Leave out rows whose image is missing or cannot be read, instead of stopping.
        root: Folder to which the paths in a table are relative (default: that of the table).
        batch_size: Number of rows to encode at a time (default: 16 on a CPU, 512 on a GPU).
        device: Where to encode: auto, cpu or cuda (default: auto).
        delimiter: Column delimiter of CSV files (default: a comma; a tab for .tsv files).
        shard: Encode a part of the files, such as 3/16; --out must be a folder.
    """
    from candidly.cli.output import describe_embedding
    from candidly.encoders import embedding

    with output.hide_warnings(), ExitStack() as stack:
        if image is not None and text is not None:
            raise ValueError("--image and --text were both given; encode one column after the other")
        if like is not None and reduce is not None:
            raise ValueError("--like names the components; remove --reduce")
        kind = "image" if text is None else "text"
        is_table = _is_table(source)
        to_folder = _check_out(source, out, output, is_table=is_table, shard=shard, reduce=reduce)
        if is_table and image is None and text is None:
            raise ValueError(
                f"{source} is a table; name its column of image paths with --image or of texts with --text, or name "
                "images by a pattern such as 'photos/**/*.jpg'"
            )
        column = image or text or embedding.IMAGE
        made = _make(kind, column, encoder, like, skip_broken, batch_size, device, output)
        job = _Job(source, None if root is None else Path(root), delimiter, made, reduce, output)
        if not is_table:
            if kind == "text":
                raise ValueError(f"--text names a column, and {source} is not a table; name a table")
            job = stack.enter_context(job.listed())
        started = time.monotonic()
        counts = job.stream(out, shard) if to_folder else job.write(out)
        seconds = time.monotonic() - started
    others = {} if job.images is None else dict(job.images.others)
    output.show(*describe_embedding(counts, others, made.encoder, column, seconds, out), to_stderr=out == "-")


def _check_out(
    source: str, out: str, output: OutputOptions, *, is_table: bool, shard: str | None, reduce: int | None
) -> bool:
    """Return whether the results go to a folder; raise if they cannot be written."""
    from candidly.cli.checks import check_table
    from candidly.cli.streams import is_stream
    from candidly.tables import files

    if is_stream(source, out) if is_table else out.endswith(("/", os.sep)) or os.path.isdir(out):
        return True
    if shard is not None:
        raise ValueError(f"--shard needs a folder for the results, and --out is {out}; name a folder, such as out/")
    check_table(out, [source] if is_table else [], output)
    if reduce is not None and files.is_text_file(out):
        raise ValueError(
            f"--reduce needs a file that can hold the components, and --out is {out}; name a .parquet or .arrow file"
        )
    return False


def _is_table(source: str) -> bool:
    """Return whether a source is a table: a file with such a suffix, or a folder or pattern with tables, not images."""
    from candidly.encoders import images
    from candidly.tables import files

    if source == "-":
        return True
    if os.path.isdir(source):
        found = os.listdir(source)
        if any(files.suffix_of(name) in images.SUFFIXES for name in found):
            return False
    else:
        found = [source] if os.path.exists(source) else glob.glob(source, recursive=True)
        if not found and files.suffix_of(source) in files.SUFFIXES:
            raise FileNotFoundError(f"{source} does not exist; check the path")
    return any(files.suffix_of(name) in files.SUFFIXES for name in found)


def _make(
    kind: str,
    column: str,
    encoder: str | None,
    like: str | None,
    skip: bool,
    batch_size: int | None,
    device: str | None,
    output: OutputOptions,
) -> "Embedding":
    """Load the encoder, before anything is read."""
    from candidly.encoders import ImageEncoder, TextEncoder
    from candidly.encoders.embedding import Embedding, read_like

    known, components = (None, None) if like is None else read_like(like, column)
    name = encoder or (_DEFAULTS[kind] if known is None else known.encoder)
    settings: dict[str, Any] = {"batch_size": batch_size, "device": device or "auto", "verbose": int(output.progress)}
    made: ImageEncoder | TextEncoder
    if kind == "image":
        made = ImageEncoder(name, broken="missing" if skip else "error", **settings)
    elif skip:
        raise ValueError("--skip-broken applies to images; remove it, texts that are missing are encoded as empty")
    else:
        made = TextEncoder(name, **settings)
    with output.busy(f"loading {name}"):
        made.provenance(column)
    if components is not None:
        made.set_components(components)
    if known is not None and made.provenance(column).identity != known.identity:
        raise ValueError(
            f"{like} has features from {known}, and the encoder here is {made.provenance(column)}; name the same "
            "encoder with --encoder"
        )
    return Embedding(made, column, None, f"--{kind}", skip)


@dataclass(frozen=True, eq=False)
class _Job:
    """What is encoded: the files of a source, with the features of a column."""

    source: str
    root: Path | None
    delimiter: str | None
    made: "Embedding"
    reduce: int | None
    output: OutputOptions
    title: str | None = None  # of a list of images
    images: "Images | None" = None

    def listed(self) -> Any:
        """Return a context with a job for a list of images instead of the images."""
        from contextlib import contextmanager
        from tempfile import TemporaryDirectory

        from candidly.encoders import embedding

        if self.root is not None:
            raise ValueError("--root applies to the paths in a table; remove it")

        @contextmanager
        def listing() -> Iterator["_Job"]:
            with self.output.busy(f"looking for images in {self.source}"):
                images = embedding.find_images(self.source)
            with TemporaryDirectory() as folder:
                embedding.list_images(images.paths, self.made.column, Path(folder))
                yield replace(self, source=folder, root=images.root, title=self.source, images=images)

        return listing()

    def write(self, out: str) -> dict[str, int]:
        """Write the result to one file."""
        from candidly.tables import files
        from candidly.tables.parts import BlockWriter, find_parts

        counts = {"rows": 0, "broken": 0}
        parts = [self.source] if self.source == "-" else [str(part) for part in find_parts(self.source)]
        self._fit(parts)

        def results() -> Iterator[Any]:
            for part in parts:
                for block in self._blocks(part):
                    result, more = self._apply(block, part)
                    for name in counts:
                        counts[name] += more[name]
                    yield result

        if out == "-":
            import pyarrow as pa

            files.write(pa.concat_tables(results()), out)
        else:
            with BlockWriter(out) as writer:
                for result in results():
                    writer.write(result)
        return counts

    def stream(self, out: str, shard: str | None) -> dict[str, int]:
        """Write the results to a folder."""
        from candidly.tables.streams import Stream

        made = self.made.encoder.provenance(self.made.column)
        settings = {"column": made.column, "encoder": made.encoder, "weights": made.weights, "reduce": self.reduce}
        settings |= {"preparation": made.preparation, "components": made.reduction, "skip_broken": self.made.skip}
        if self.images is None:
            settings["root"] = None if self.root is None else os.path.realpath(self.root)
        else:
            settings["root"] = self.images.place()
            settings["images"] = f"{len(self.images.paths)} files, state {self.images.digest()[:16]}"
        progress = self.output.progress
        stream = Stream.open(
            self.source,
            out,
            command="embed",
            settings=settings,
            shard=shard,
            delimiter=self.delimiter,
            suffix=".parquet",
            progress=progress,
        )
        if self.reduce is not None:
            self._share_components(stream)

        def step(rows: "Rows") -> tuple[Any, dict[str, int]]:
            return self._apply(rows.table, str(rows.part.path))

        return {"rows": 0, "broken": 0} | stream.run(step, texts=stream.columns, rows=_ROWS, progress=progress)[
            "totals"
        ]

    def _blocks(self, part: str) -> Iterator[Any]:
        """Yield the rows of a file; text is read as a whole, so that its columns have one type."""
        from candidly.tables import files
        from candidly.tables.parts import read_blocks

        if part == "-" or files.is_text_file(part):
            table = files.read(part, delimiter=self.delimiter, texts=[self.made.column])
            yield from (table.slice(start, _ROWS) for start in range(0, table.num_rows, _ROWS))
        else:
            yield from read_blocks(part, rows=_ROWS)

    def _apply(self, table: Any, part: str) -> tuple[Any, dict[str, int]]:
        """Return a block with its features, and counts."""
        from candidly.messages import warn
        from candidly.tables.labelled import name_of

        name = self.title or name_of(part)
        result = self._at(part).apply(table, name)
        left_out = table.num_rows - result.num_rows
        if left_out:
            warn(f"left out {left_out} rows of {name} whose image is missing or cannot be read")
        return result, {"rows": result.num_rows, "broken": left_out}

    def _at(self, part: str) -> "Embedding":
        """Return the embedding with the folder to which the paths in a file are relative."""
        below = Path() if part == "-" else Path(part).parent
        return replace(self.made, root=below if self.root is None else self.root)

    def _fit(self, parts: list[str]) -> None:
        """Compute the components, if there are to be any, from rows that are evenly spaced over all files."""
        if self.reduce is not None:
            self.made.encoder.set_params(n_components=self.reduce).fit(self._sample(parts))

    def _sample(self, parts: list[str]) -> list[str | None]:
        """Return at most as many items as components are computed from, evenly spaced over all files."""
        from candidly.encoders.estimators import SAMPLE
        from candidly.tables import files
        from candidly.tables.parts import column_names, count_rows, read_blocks
        from candidly.tables.schema import check_name

        column = self.made.column
        if parts == ["-"]:
            raise ValueError("--reduce reads the rows twice, which standard input does not allow; name a file")
        for part in parts:
            check_name(column_names(part, delimiter=self.delimiter), part, column, self.made.option)
        step = -(-sum(count_rows(part, delimiter=self.delimiter) for part in parts) // SAMPLE)
        found: list[str | None] = []
        number = 0
        for part in parts:
            texts = [column] if files.is_text_file(part) else ()
            for block in read_blocks(part, columns=[column], delimiter=self.delimiter, texts=texts):
                items = self._at(part).items(block, part)
                found += items[-number % step :: step]
                number += len(items)
        return found

    def _share_components(self, stream: "Stream") -> None:
        """Use the components that another process of the stream computed, or compute them for all."""
        from candidly import store
        from candidly.encoders.embedding import pack, unpack

        file = stream.notes / "components"
        with stream.alone("components", self.output.progress):
            if not file.is_file():
                self._fit([str(part.path) for part in stream.parts])
                store.replace(file, pack(self.made.encoder.components_))
            self.made.encoder.set_components(unpack(file.read_bytes(), str(file)))
