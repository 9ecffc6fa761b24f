"""Accuracies of methods on datasets, one per seed, collected from result folders.

A seed's accuracy comes from the `summary.json` of a finished run, as the mean over its initialisations, or from a
Parquet file of predictions, as the share of rows that are right. Names in these files are untrusted text: any string is
taken, with control characters replaced by spaces; escaping is left to those who render it.
"""

import csv
import json
import math
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from candidly.bench.spec import CLEANERS
from candidly.methods import METHODS

__all__ = ["Scores", "plain", "read", "read_csv"]

FORMAT = 1
_ORDER = tuple(METHODS)
_CLEANERS = ("", *CLEANERS)
TEXT, WHOLE, ANY = "strings", "whole numbers", "numbers or strings"
COLUMNS = {"dataset": TEXT, "method": TEXT, "seed": WHOLE, "split": TEXT, "row": ANY, "true": ANY, "predicted": ANY}
BATCH_ROWS = 2**20

AnyPath = str | os.PathLike[str]
Cell = tuple[str, str]
Entry = tuple[str, str, int]

# Besides ASCII's and Latin-1's control characters: line separators, bidirectional controls and lone surrogates, which
# start lines, reorder text and cannot be encoded.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def plain(text: str) -> str:
    r"""Replace control, bidirectional and unencodable characters by spaces.

    Examples
    --------
    >>> plain("lost\x1b[31m\n")
    'lost [31m '
    """
    return _CONTROL.sub(" ", text)


@dataclass(frozen=True)
class Scores:
    """Accuracy of each seed, per dataset and method.

    Attributes
    ----------
    cells : mapping of (dataset, method) to mapping of seed to accuracy
        Accuracies are shares between 0 and 1. Datasets come alphabetically; methods come without cleaner first, then
        cleaner by cleaner, each in the order of `candidly.METHODS`.
    split : str, default "test"
        The rows that were predicted.

    Raises
    ------
    ValueError
        If a cell has no seed, an accuracy is no share, or two names differ by control characters only.

    Examples
    --------
    >>> scores = Scores({("lost", "conf+proden"): {0: 0.75, 1: 0.80}, ("lost", "proden"): {0: 0.70, 1: 0.75}})
    >>> scores.methods
    ('proden', 'conf+proden')
    >>> round(scores.mean("lost", "proden"), 3)
    0.725
    """

    cells: Mapping[Cell, Mapping[int, float]]
    split: str = "test"

    def __post_init__(self) -> None:
        cells: dict[Cell, Mapping[int, float]] = {}
        for names, seeds in self.cells.items():
            cell = (plain(names[0]), plain(names[1]))
            if cell in cells or not seeds:
                wrong = "occurs twice once control characters are replaced" if cell in cells else "has no seeds"
                raise ValueError(f"the cell {cell} {wrong}; rename it or leave it out")
            for seed, accuracy in seeds.items():
                _check_share(accuracy, f"the cell {cell}, seed {seed}")
            cells[cell] = MappingProxyType(dict(sorted(seeds.items())))
        ordered = dict(sorted(cells.items(), key=lambda item: (item[0][0], _place(item[0][1]))))
        object.__setattr__(self, "cells", MappingProxyType(ordered))

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets, alphabetically."""
        return tuple(dict.fromkeys(dataset for dataset, _ in self.cells))

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods, base methods first."""
        return tuple(sorted({method for _, method in self.cells}, key=_place))

    @property
    def base_methods(self) -> tuple[str, ...]:
        """Names of the methods that use no cleaner."""
        return tuple(method for method in self.methods if not _split_name(method)[0])

    def mean(self, dataset: str, method: str) -> float:
        """Mean accuracy over the seeds of a cell.

        Means that differ by rounding only come out equal, so that they tie.
        """
        return round(_mean(self.cells[dataset, method].values()), 12)

    def spread(self, dataset: str, method: str) -> float:
        """Sample standard deviation over the seeds of a cell; nan if there is only one."""
        values = self.cells[dataset, method].values()
        if len(values) < 2:
            return math.nan
        centre = _mean(values)
        return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def read(folders: AnyPath | Iterable[AnyPath], split: str = "test") -> Scores:
    """Collect the accuracies that lie under folders.

    Parameters
    ----------
    folders : path or iterable of paths
        Folders, searched with all that is below them, or single files. Every `summary.json` counts, and every Parquet
        file that does not lie beside one. A Parquet file has the columns dataset, method, seed, split, row, true and
        predicted; rows without a true label are left out.
    split : str, default "test"
        The rows to score.

    Returns
    -------
    Scores

    Raises
    ------
    FileNotFoundError
        If a folder does not exist.
    ValueError
        If nothing is found, a file is malformed, or two files have the same dataset, method and seed.

    Warns
    -----
    UserWarning
        If a file has no accuracy for this split, or cells of one dataset have different seeds.

    Examples
    --------
    >>> import tempfile
    >>> summary = {"format": 1, "dataset": "lost", "method": "proden", "seeds": [0, 1]}
    >>> summary["metrics"] = {"test_accuracy": [[0.50, 0.75], [0.75, 0.75]]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "summary.json").write_text(json.dumps(summary))
    ...     scores = read(folder)
    >>> dict(scores.cells["lost", "proden"])
    {0: 0.625, 1: 0.75}
    """
    folders = [folders] if isinstance(folders, (str, os.PathLike)) else list(folders)
    found: dict[Entry, tuple[float, Path]] = {}
    silent = []
    for path in _find(folders):
        entries = _read_predictions(path, split) if path.suffix == ".parquet" else _read_summary(path, split)
        if not entries:
            silent.append(str(path))
        for entry, accuracy in entries.items():
            if entry in found:
                raise ValueError(
                    f"{path} and {found[entry][1]} both have dataset {entry[0]!r}, method {entry[1]!r}, seed "
                    f"{entry[2]}; remove one or give the folders separately"
                )
            found[entry] = accuracy, path
    if silent:
        warnings.warn(f"no {split} accuracy (no such rows, or no true labels) in {_some(silent)}", stacklevel=2)
    if not found:
        raise ValueError(
            f"no {split} accuracies under {', '.join(map(str, folders)) or 'no folder'}; "
            "give folders that hold summary.json or Parquet files of predictions"
        )
    return _gather({entry: accuracy for entry, (accuracy, _) in found.items()}, split)


def read_csv(path: AnyPath) -> Scores:
    r"""Read published accuracies, one line per seed.

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
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = csv.DictReader(file, strict=True)
            for name in ("method", "dataset", "seed", "test_accuracy"):
                if name not in (lines.fieldnames or ()):
                    raise ValueError(f"there is no column {name!r}; add it")
            for line in lines:
                _add_line(found, line, f"line {lines.line_num}")
    except (csv.Error, ValueError) as error:  # also text that is no UTF-8
        raise ValueError(f"{path} cannot be used: {error}") from None
    if not found:
        raise ValueError(f"{path} has no lines below its header; give a file with accuracies")
    return _gather(found, "test")


def _add_line(found: dict[Entry, float], line: Mapping[str, str | None], where: str) -> None:
    method, dataset, seed, accuracy = (line[name] for name in ("method", "dataset", "seed", "test_accuracy"))
    if method is None or dataset is None or seed is None or accuracy is None:
        raise ValueError(f"{where} has too few fields; complete or remove it")
    try:
        entry, value = (plain(dataset), plain(method), int(seed)), float(accuracy)
    except ValueError:
        raise ValueError(f"{where} has seed {seed!r} and test_accuracy {accuracy!r}; give numbers") from None
    if entry in found:
        raise ValueError(f"{where} repeats method {method!r}, dataset {dataset!r}, seed {seed}; remove one of them")
    found[entry] = _check_share(value, where)


def _find(folders: Sequence[AnyPath]) -> list[Path]:
    """Return each source file once, also when folders overlap."""
    paths: dict[Path, Path] = {}
    for folder in map(Path, folders):
        if folder.is_file():
            if folder.suffix not in (".json", ".parquet"):
                raise ValueError(f"{folder} is neither a folder nor a .json or .parquet file; give one of these")
            paths.setdefault(folder.resolve(), folder)
        elif not folder.is_dir():
            raise FileNotFoundError(f"{folder} does not exist; check the name")
        for parent, below, names in os.walk(folder):
            below.sort()
            summaries = [name for name in names if name == "summary.json"]
            for name in summaries or sorted(name for name in names if name.endswith(".parquet")):
                path = Path(parent, name)
                paths.setdefault(path.resolve(), path)
    return list(paths.values())


def _read_summary(path: Path, split: str) -> dict[Entry, float]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8 or nested too deeply
        raise ValueError(f"{path} is no JSON file ({error}); restore it or remove it") from None
    version = facts.get("format") if isinstance(facts, dict) else None
    if type(version) is not int or version != FORMAT:
        raise ValueError(f"{path} has format version {version!r}, known is {FORMAT}; read it with a newer candidly")
    dataset, method, seeds, metrics = (facts.get(key) for key in ("dataset", "method", "seeds", "metrics"))
    if not (isinstance(dataset, str) and isinstance(method, str) and isinstance(metrics, dict)):
        raise ValueError(f"{path} lacks 'dataset', 'method' or 'metrics', or has a wrong type there; write it again")
    if not isinstance(seeds, list) or any(type(seed) is not int for seed in seeds) or len(set(seeds)) < len(seeds):
        raise ValueError(f"{path} has seeds {seeds!r}; give a list of different whole numbers")
    name = f"{split}_accuracy"
    values = metrics.get(name)
    if values is None:
        return {}
    if not isinstance(values, list) or len(values) != len(seeds):
        raise ValueError(f"{path}: {name} is not a list with one entry for each of the {len(seeds)} seeds; correct it")
    entries = {}
    for seed, starts in zip(seeds, values, strict=True):
        if not isinstance(starts, list) or not starts:
            raise ValueError(f"{path}: {name} of seed {seed} is {starts!r}; give a list, one number per initialisation")
        shares = [_check_share(value, f"{path}: {name} of seed {seed}") for value in starts]
        entries[plain(dataset), plain(method), seed] = _mean(shares)
    return entries


def _read_predictions(path: Path, split: str) -> dict[Entry, float]:
    """Aggregate batch by batch: such a file may have more rows than fit in memory."""
    counts: dict[Entry, tuple[int, int]] = defaultdict(lambda: (0, 0))
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow)
            for batch in file.iter_batches(BATCH_ROWS, columns=[name for name in COLUMNS if name != "row"]):
                for group in _count(batch, split):
                    if None in group.values():
                        raise ValueError(f"{path} has rows without dataset, method or seed; fill them in")
                    entry = (plain(group["dataset"]), plain(group["method"]), int(group["seed"]))
                    right, rows = counts[entry]
                    counts[entry] = right + group["right_sum"], rows + group["right_count"]
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as Parquet ({error}); write it again") from error
    return {entry: right / rows for entry, (right, rows) in counts.items()}


def _count(batch: pa.RecordBatch, split: str) -> list[dict[str, Any]]:
    """Return the number of rows and of right ones, per dataset, method and seed."""
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
        warnings.warn(f"cells of one dataset have different seeds: {_some(uneven, mark=' | ')}", stacklevel=3)
    return scores


def _describe_uneven(scores: Scores, dataset: str) -> str:
    """Say which methods have which seeds, or nothing where all have the same."""
    methods: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for (name, method), seeds in scores.cells.items():
        if name == dataset:
            methods[tuple(seeds)].append(method)
    parts = [f"{_some(names)} (seeds {_some(map(str, seeds), 10)})" for seeds, names in methods.items()]
    return f"{dataset}: {_some(parts, mark='; ')}" if len(parts) > 1 else ""


def _place(method: str) -> tuple[int, str, int, str, str, str]:
    """Key that sorts methods: by cleaner, then by base method, then by suffix."""
    cleaner, base, suffix = _split_name(method)
    first = _CLEANERS.index(cleaner) if cleaner in _CLEANERS else len(_CLEANERS)
    second = _ORDER.index(base) if base in _ORDER else len(_ORDER)
    return first, cleaner, second, base, suffix, method


def _split_name(method: str) -> tuple[str, str, str]:
    """Split "conf+proden (no correction)" into cleaner, base method and suffix; the first and last may be empty."""
    name, _, suffix = method.partition("(") if method.endswith(")") else (method, "", "")
    cleaner, _, base = name.rstrip().rpartition("+")
    return cleaner, base, suffix


def _check_share(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{where}: accuracy is {value!r}; give a share between 0 and 1")
    return float(value)


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return math.fsum(values) / len(values)


def _some(texts: Iterable[str], limit: int = 5, mark: str = ", ") -> str:
    texts = list(texts)
    more = f"{mark}and {len(texts) - limit} more" if len(texts) > limit else ""
    return mark.join(texts[:limit]) + more
