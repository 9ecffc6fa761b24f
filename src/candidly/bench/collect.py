"""Reading accuracies from run folders, Parquet files of predictions and CSV files.

The accuracy of a seed comes from the `summary.json` of a finished run, as the mean over its initialisations, or from a
Parquet file of predictions, as the fraction of correct rows. Names in these files are untrusted text: any string is
accepted, and made printable; the code that writes a table escapes it for the format. Cleaners that were renamed since
the results were made get their present name.
"""

import csv
import io
import os
import re
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from candidly import store
from candidly.bench import marker
from candidly.bench.names import current
from candidly.bench.scores import Cell, Scores, check_share, mean_of
from candidly.checks import arguments
from candidly.messages import listed, visible

__all__ = ["read", "read_csv"]

FORMAT = 1  # of summary.json
TEXT, WHOLE, ANY = "strings", "whole numbers", "numbers or strings"
COLUMNS = {"dataset": TEXT, "method": TEXT, "seed": WHOLE, "split": TEXT, "row": ANY, "true": ANY, "predicted": ANY}
BATCH_ROWS = 2**20

AnyPath = str | os.PathLike[str]
Entry = tuple[str, str, int]


@dataclass(frozen=True, eq=False)
class _Source:
    """The content of one file: accuracies and, for a run, its settings and when it finished.

    `settings` should be the same for all runs on a dataset, `parts` for all runs of a method on it.
    """

    path: Path
    shares: dict[Entry, float]
    finished: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)

    @property
    def age(self) -> tuple[str, str]:
        """A key that is greater for newer files."""
        return self.finished, str(self.path)


def read(folders: AnyPath | Iterable[AnyPath], split: str = "test") -> Scores:
    """Read the accuracies of all runs under some folders.

    Parameters
    ----------
    folders : path or iterable of paths
        Folders, which are searched recursively, or single files. Every `summary.json` is read, and every Parquet file
        in a folder without one. A Parquet file has the columns dataset, method, seed, split, row, true and predicted;
        rows without a true label are ignored.
    split : str, default "test"
        Which rows to score.

    Returns
    -------
    Scores

    Raises
    ------
    FileNotFoundError
        If a folder does not exist.
    ValueError
        If nothing is found or a file is malformed.

    Warns
    -----
    UserWarning
        If a file has no accuracy for this split, if there are several runs of one dataset and method, of which the
        newest counts, or if cells of one dataset have different seeds or settings.

    Notes
    -----
    Runs of one dataset and method with the same settings and different seeds are joined; if one of them repeats seeds
    of another, the one with more seeds counts. Of runs with different settings, only the newest counts, and those with
    the same settings.

    Examples
    --------
    >>> import json, tempfile
    >>> summary = {"format": 1, "dataset": "lost", "method": "proden", "seeds": [0, 1]}
    >>> summary["metrics"] = {"test_accuracy": [[0.50, 0.75], [0.75, 0.75]]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "summary.json").write_text(json.dumps(summary))
    ...     scores = read(folder)
    >>> dict(scores.cells["lost", "proden"])
    {0: 0.625, 1: 0.75}
    """
    arguments.text("split", split, "a text, such as 'test'")
    if isinstance(folders, str | os.PathLike):
        folders = [folders]
    folders = [arguments.path("folders", one) for one in arguments.items("folders", folders, "a path or several paths")]
    if not folders:
        raise ValueError("no folder was given; give folders with runs or Parquet files of predictions")
    sources = [
        _read_predictions(path, split) if path.suffix == ".parquet" else _read_summary(path, split)
        for path in _find(folders)
    ]
    silent = [str(source.path) for source in sources if not source.shares]
    if silent:
        warnings.warn(
            f"no {visible(split)} accuracy (no such rows, or no true labels) in {listed(silent)}", stacklevel=2
        )
    found = _choose(sources)
    if not found:
        raise ValueError(
            f"no accuracies of the split {arguments.shown(split)} under {listed(map(str, folders))}; "
            "give folders with summary.json or Parquet files of predictions, or another split"
        )
    _compare_settings(found)
    return _gather({entry: source.shares[entry] for entry, source in found.items()}, split)


def read_csv(path: AnyPath) -> Scores:
    r"""Read published accuracies from a CSV file with one line per seed.

    Parameters
    ----------
    path : path
        A CSV file with the columns method, dataset, seed and test_accuracy; others are ignored.

    Returns
    -------
    Scores

    Raises
    ------
    ValueError
        If a column is missing, a line is malformed, or two lines have the same method, dataset and seed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "published.csv")
    ...     _ = path.write_text("method,dataset,seed,test_accuracy\nproden,lost,0,0.5\n")
    ...     read_csv(path).mean("lost", "proden")
    0.5
    """
    found: dict[Entry, float] = {}
    text = store.read_text(arguments.path("path", path))
    try:
        lines = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        for name in ("method", "dataset", "seed", "test_accuracy"):
            if name not in (lines.fieldnames or ()):
                raise ValueError(f"there is no column {name!r}; add it")
        for line in lines:
            _add_line(found, line, f"line {lines.line_num}")
    except csv.Error as error:
        raise ValueError(f"{path} is not a CSV file: {error}; correct it") from None
    except ValueError as error:
        raise ValueError(f"{path} cannot be used: {error}") from None
    if not found:
        raise ValueError(f"{path} has no lines below its header; give a file with accuracies")
    return _gather(found, "test")


def _add_line(found: dict[Entry, float], line: Mapping[Any, Any], where: str) -> None:
    if None in line:  # where the reader puts cells that belong to no column
        raise ValueError(f"{where} has more fields than the header; quote fields that contain commas")
    method, dataset, seed, accuracy = (line[name] for name in ("method", "dataset", "seed", "test_accuracy"))
    if method is None or dataset is None or seed is None or accuracy is None:
        raise ValueError(f"{where} has too few fields; complete or remove it")
    if not method.strip() or not dataset.strip():
        raise ValueError(f"{where} has no method or no dataset; complete or remove it")
    try:
        entry, value = (visible(dataset), current(visible(method)), int(seed)), float(accuracy)
    except ValueError:
        raise ValueError(f"{where} has seed {seed!r} and test_accuracy {accuracy!r}; give numbers") from None
    if entry in found:
        raise ValueError(f"{where} repeats method {method!r}, dataset {dataset!r}, seed {seed}; remove one of them")
    found[entry] = check_share(value, where)


def _find(folders: Sequence[AnyPath]) -> list[Path]:
    """Return every file to read once, even if folders overlap."""
    paths: dict[Path, Path] = {}
    for folder in map(Path, folders):
        if folder.is_file():
            if folder.suffix not in (".json", ".parquet"):
                raise ValueError(f"{folder} is neither a folder nor a .json or .parquet file; give one of these")
            paths.setdefault(folder.resolve(), folder)
        elif not folder.is_dir():
            raise FileNotFoundError(f"the folder {folder} does not exist; check the path")
        for parent, below, names in os.walk(folder):
            below.sort()
            summaries = [name for name in names if name == "summary.json"]
            if "done" in names and not summaries:
                raise ValueError(f"{parent} is a run without summary.json; remove this folder, and run it again")
            for name in summaries or sorted(name for name in names if name.endswith(".parquet")):
                path = Path(parent, name)
                paths.setdefault(path.resolve(), path)
    return list(paths.values())


def _choose(sources: Sequence[_Source]) -> dict[Entry, _Source]:
    """Return the file that counts for each dataset, method and seed; warn where newer files replace others."""
    cells: dict[Cell, list[_Source]] = defaultdict(list)
    for source in sources:
        for cell in dict.fromkeys((dataset, method) for dataset, method, _ in source.shares):
            cells[cell].append(source)
    found: dict[Entry, _Source] = {}
    replaced: dict[tuple[Path, Path], str] = {}
    for cell, rivals in cells.items():
        newest = max((one for one in rivals if one.settings), key=lambda one: one.age, default=None)
        kept = []
        for one in rivals:
            differ = _differences([newest, one], parts=True) if newest is not None and one.settings else ""
            if newest is None or not differ:
                kept.append(one)
            else:
                replaced[newest.path, one.path] = f"{_name(cell, newest, one)}, which differs in {differ}"
        for one in sorted(sorted(kept, key=lambda one: one.age, reverse=True), key=lambda one: -len(one.shares)):
            for entry in (entry for entry in one.shares if entry[:2] == cell):
                _settle(found, entry, one, replaced)
    if replaced:
        text = listed(replaced.values(), mark=" | ")
        warnings.warn(f"there are several runs of one dataset and method, and the newest counts: {text}", stacklevel=3)
    return found


def _settle(found: dict[Entry, _Source], entry: Entry, one: _Source, replaced: dict[tuple[Path, Path], str]) -> None:
    """Decide between a file and the one found before, which has no fewer accuracies."""
    known = found.setdefault(entry, one)
    repeats = bool(known.settings and one.settings) and len(one.shares) < len(known.shares)
    if known is one or repeats or known.shares[entry] == one.shares[entry]:
        return
    newer, older = (one, known) if one.age > known.age else (known, one)
    found[entry] = newer
    replaced[newer.path, older.path] = _name(entry[:2], newer, older)


def _name(cell: Cell, newer: _Source, older: _Source) -> str:
    return f"{' '.join(cell)} from {newer.path} ({newer.finished}) instead of {older.path} ({older.finished})"


def _compare_settings(found: Mapping[Entry, _Source]) -> None:
    """Warn if the runs on a dataset have different settings."""
    datasets: dict[str, dict[Path, _Source]] = defaultdict(dict)
    for (dataset, _, _), source in found.items():
        datasets[dataset][source.path] = source
    uneven = [f"{name}: {text}" for name, sources in datasets.items() if (text := _differences(sources.values()))]
    if uneven:
        text = listed(uneven, mark=" | ")
        warnings.warn(f"runs on the same dataset have different settings, so tables may mislead: {text}", stacklevel=3)


def _differences(sources: Iterable[_Source], *, parts: bool = False) -> str:
    """Describe the settings, with `parts` also those of method and cleaner, in which runs differ; "" if in none."""
    values: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for key, value in (source.settings | source.parts if parts else source.settings).items():
            values[key].add(str(value))
    return listed(f"{key} ({listed(sorted(found))})" for key, found in values.items() if len(found) > 1)


def _settings(facts: Mapping[str, Any]) -> dict[str, Any]:
    config = facts.get("config")
    if not isinstance(config, dict):
        return {}
    recipe, dataset = config.get("recipe"), config.get("dataset")
    named = recipe if isinstance(recipe, dict) else {}
    found = {f"recipe {key}": value for key, value in named.items() if key not in ("name", "max_lr")}
    content = dataset.get("content") if isinstance(dataset, dict) else None
    return {"protocol": config.get("protocol"), "content of the dataset": content} | found


def _parts(facts: Mapping[str, Any]) -> dict[str, Any]:
    config = facts.get("config")
    if not isinstance(config, dict):
        return {}
    recipe = config.get("recipe")  # methods may have learning rates of their own, but not the runs of one
    rate = {"recipe max_lr": recipe["max_lr"]} if isinstance(recipe, dict) and "max_lr" in recipe else {}
    return {name: config.get(name) for name in ("method", "cleaner", "code", "inits")} | rate


def _finished(path: Path, told: Any = None) -> str:
    """Return when a run finished; when its file was changed if the file does not tell."""
    if isinstance(told, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told, re.ASCII):
        return told
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(path.stat().st_mtime))


def _read_summary(path: Path, split: str) -> _Source:
    marker.check(path)
    facts = store.read_json(path)
    if "format" not in facts:
        return _Source(path, {})  # the file of another program
    version = facts["format"]
    if type(version) is not int or version != FORMAT:
        raise ValueError(
            f"{path} has format version {version!r}, known is {FORMAT}; read it with a newer version of candidly"
        )
    dataset, method, seeds, metrics = (facts.get(key) for key in ("dataset", "method", "seeds", "metrics"))
    if not (isinstance(dataset, str) and isinstance(method, str) and isinstance(metrics, dict)):
        raise ValueError(f"{path} lacks 'dataset', 'method' or 'metrics', or has a wrong type there; write it again")
    if not isinstance(seeds, list) or any(type(seed) is not int for seed in seeds) or len(set(seeds)) < len(seeds):
        raise ValueError(f"{path} has seeds {seeds!r}; give a list of different whole numbers")
    name = f"{split}_accuracy"
    values = metrics.get(name, [])
    if values == []:
        return _Source(path, {})
    if not isinstance(values, list) or len(values) != len(seeds):
        raise ValueError(f"{path}: {name} is not a list with one entry for each of the {len(seeds)} seeds; correct it")
    entries = {}
    for seed, starts in zip(seeds, values, strict=True):
        if not isinstance(starts, list) or not starts:
            raise ValueError(f"{path}: {name} of seed {seed} is {starts!r}; give a list, one number per initialisation")
        shares = [check_share(value, f"{path}: {name} of seed {seed}") for value in starts]
        entries[visible(dataset), current(visible(method)), seed] = mean_of(shares)
    return _Source(path, entries, _finished(path, facts.get("finished")), _settings(facts), _parts(facts))


def _read_predictions(path: Path, split: str) -> _Source:
    """Count correct rows batch by batch: the file may have more rows than fit in memory."""
    counts: dict[Entry, tuple[int, int]] = defaultdict(lambda: (0, 0))
    if not path.is_file():  # a named pipe could block
        raise ValueError(f"{path} is not a file; remove it, or give other folders")
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow)
            for batch in file.iter_batches(BATCH_ROWS, columns=[name for name in COLUMNS if name != "row"]):
                for group in _count(batch, split):
                    if None in group.values():
                        raise ValueError(f"{path} has rows without dataset, method or seed; fill them in")
                    entry = (visible(group["dataset"]), current(visible(group["method"])), int(group["seed"]))
                    right, rows = counts[entry]
                    counts[entry] = right + group["right_sum"], rows + group["right_count"]
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as Parquet ({error}); write it again") from error
    return _Source(path, {entry: right / rows for entry, (right, rows) in counts.items()}, _finished(path))


def _count(batch: pa.RecordBatch, split: str) -> list[dict[str, Any]]:
    """Return the numbers of rows and of correct rows for each dataset, method and seed."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    for name, column in columns.items():
        if pa.types.is_dictionary(column.type):
            columns[name] = column.cast(column.type.value_type)
    labelled = pc.invert(pc.is_null(columns["true"], nan_is_null=True))
    counted = pc.and_(pc.equal(columns["split"].cast(pa.string()), split), labelled)
    table = pa.table(columns).filter(counted)
    true, predicted = table["true"], table["predicted"]
    if true.type != predicted.type and not (_is_number(true.type) and _is_number(predicted.type)):
        true, predicted = true.cast(pa.string()), predicted.cast(pa.string())
    table = table.append_column("right", pc.fill_null(pc.equal(true, predicted), False))
    groups = table.group_by(["dataset", "method", "seed"]).aggregate([("right", "sum"), ("right", "count")])
    return groups.to_pylist()


def _check_columns(path: Path, schema: pa.Schema) -> None:
    for name, content in COLUMNS.items():
        number = schema.names.count(name)
        if number != 1:
            raise ValueError(f"{path} has {number or 'no'} columns named {name!r}; write exactly one")
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if {TEXT: text, WHOLE: pa.types.is_integer(kind), ANY: not pa.types.is_nested(kind)}[content]:
            continue
        raise ValueError(f"{path}: the column {name!r} holds {kind}; write {content}")


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _gather(entries: Mapping[Entry, float], split: str) -> Scores:
    cells: dict[Cell, dict[int, float]] = defaultdict(dict)
    for (dataset, method, seed), accuracy in entries.items():
        cells[dataset, method][seed] = accuracy
    scores = Scores(cells, split)
    uneven = [text for dataset in scores.datasets if (text := _describe_uneven(scores, dataset))]
    if uneven:
        warnings.warn(f"methods on the same dataset have different seeds: {listed(uneven, mark=' | ')}", stacklevel=3)
    return scores


def _describe_uneven(scores: Scores, dataset: str) -> str:
    """Describe which methods have which seeds; "" if all have the same."""
    methods: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for (name, method), seeds in scores.cells.items():
        if name == dataset:
            methods[tuple(seeds)].append(method)
    parts = [f"{listed(names)} (seeds {listed(map(str, seeds), 10)})" for seeds, names in methods.items()]
    return f"{dataset}: {listed(parts, mark='; ')}" if len(parts) > 1 else ""
