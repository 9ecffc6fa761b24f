"""Certified cleaning of a table in several files: rows are drawn from all of them, and one rule is applied to all.

The rules are those of `candidly.cleaning.certify`: nested, and fixed before any label is looked at. The level of a
candidate follows from its score in the result of its file, and from the levels of the rule on the rows that the model
was trained on (`candidly.cleaning.budget.ClassLevels`), which were saved with the stream. The results are read again,
without networks, and their checksums must be those of the manifest. So the population is all rows of the stream, and
the statement is that of `candidly certify`.
"""

import glob
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from candidly import store
from candidly.checks import arguments
from candidly.cleaning import VerificationPlan, certify
from candidly.cleaning.budget import Budget, ClassLevels
from candidly.cleaning.certify import Bound, Terms
from candidly.cli.options import OutputOptions, split_names
from candidly.cli.streams import LEVELS
from candidly.estimator import verification
from candidly.store import lock, states
from candidly.store.files import to_json
from candidly.tables import files
from candidly.tables.class_columns import Block, Names, set_column
from candidly.tables.parts import column_names, find_parts, read_blocks
from candidly.tables.schema import check_column
from candidly.tables.streams import MANIFEST, NOTES, Rows, Stream, read_manifest

CERTIFICATE = "_certificate.json"
"""File with the statement, in the folder of certified results."""

_LEDGER = "ledger.json"
_LISTS = ("candidates", "kept", "removed", "scores")


def is_results(folder: Path) -> bool:
    """Return whether a folder holds results of a stream, finished or not."""
    return (folder / f"{MANIFEST}.json").is_file() or (folder / NOTES).is_dir()


@dataclass(frozen=True, eq=False)
class _Scored:
    """A block of results: the table, candidates and levels (n, C), and the number of the first row in the stream."""

    table: Any
    S: Tensor
    levels: Tensor
    first: int


class Results:
    """The results of a finished `candidly clean` of several files."""

    def __init__(self, folder: Path, output: OutputOptions) -> None:
        self.folder, self.output = folder, output
        self.manifest = read_manifest(folder)
        if self.manifest["command"] != "clean":
            raise ValueError(f"{folder} holds results of `candidly {self.manifest['command']}`, which removes nothing")
        facts = self.manifest["facts"]
        self.classes: tuple[str, ...] = tuple(facts["classes"])
        self.separator: str = facts["separator"]
        self.columns: Mapping[str, str] = facts["columns"]
        self.n = int(self.manifest["rows"])
        notes = folder / NOTES
        if not (notes / f"{LEVELS}.json").is_file():
            raise ValueError(
                f"{folder} was cleaned by a model without its training rows, whose rules are not known; fit the model "
                "without --lean, and clean again"
            )
        tensors, rule = states.read(notes, stem=LEVELS)
        self.levels = ClassLevels(*(tensors.pop(name) for name in ("values", "levels", "counts")))
        self.budget = Budget.of_parts(tensors, rule["budget"], len(self.classes))
        names = [one["result"]["sha256"] for one in self.manifest["files"] if one["result"] is not None]
        self.family = store.digest({"files": names, "model": facts["model"]})

    @cached_property
    def ledger(self) -> tuple[VerificationPlan, ...]:
        """The plans so far."""
        path = self.folder / NOTES / _LEDGER
        return verification.read_ledger(store.read_json(path)["plans"], self.n) if path.exists() else ()

    def last_plan(self) -> VerificationPlan:
        """Return the last plan."""
        if not self.ledger:
            raise ValueError(f"{self.folder} has no plan; make one with `candidly verify plan`")
        return self.ledger[-1]

    def plan(
        self, m: int, *, alpha: float = 0.05, confidence: float = 0.9, seed: int = 0, sequential: bool = False
    ) -> VerificationPlan:
        """Draw rows to check from all files, and record them, as `PartialLabelClassifier.plan_verification` does."""
        m, terms = arguments.integer("m", m, least=1), Terms.of(alpha, confidence, seed, sequential, self.family)
        notes = self.folder / NOTES
        with lock.locked(notes / "ledger.lock", wait=True):
            self.__dict__.pop("ledger", None)
            with self.output.busy("counting the rows that can lose a candidate"):
                self._check_files()
                population = sum(int(_is_member(block, terms.alpha).sum()) for block in self._blocks())

            def choose(rng: np.random.Generator) -> NDArray[np.int64]:
                return self._find_members(rng.choice(population, m, replace=False), terms.alpha)

            with self.output.busy("drawing rows"):
                found = certify.draw_from(population, self.n, m, terms, self.ledger, choose)
            plans = [plan.to_json() for plan in (*self.ledger, found)]
            store.replace(notes / _LEDGER, to_json({"plans": plans}, "the ledger").encode())
            self.__dict__.pop("ledger")
        return found

    def rows_to_check(
        self,
        plan: VerificationPlan,
        source: str | None,
        drop: str | None,
        delimiter: str | None,
        taken: tuple[str, ...],
    ) -> Any:
        """Return the rows of a plan: their file, id, columns of the files that were cleaned, and candidates.

        Columns of the result that `taken` names are not copied.
        """
        wanted = np.sort(np.array(plan.rows))
        blocks = [
            table.take(pa.array(wanted[low:high] - start))
            for start, table in self._rows_of(source, drop, delimiter, (*taken, "file"))
            for low, high in [np.searchsorted(wanted, [start, start + table.num_rows])]
        ]
        starts = [one["file"]["start"] for one in self.manifest["files"]]
        names = [one["file"]["name"] for one in self.manifest["files"]]
        columns = {"file": pa.array([names[int(np.searchsorted(starts, row, "right")) - 1] for row in plan.rows])}
        drawn = pa.concat_tables(blocks, promote_options="permissive") if blocks else pa.table({})
        order = pa.array(np.searchsorted(wanted, plan.rows))
        columns |= {name: drawn.column(name).take(order) for name in drawn.column_names}
        known = self._collect(plan.rows)
        matrix = torch.stack([known[row][1] for row in plan.rows]).numpy()
        return pa.table(columns | {"candidates": set_column(matrix, self.classes)})

    def _rows_of(
        self, source: str | None, drop: str | None, delimiter: str | None, taken: tuple[str, ...]
    ) -> Iterator[tuple[int, Any]]:
        """Yield blocks of columns to show, with the number of their first row: those of the source, or ids."""
        dropped = split_names(drop, "--drop")
        hidden = {self.columns.get("candidates"), self.columns.get("labels"), *dropped}
        for file, blocks in self._sources(source, delimiter):
            start = file["start"]
            for table in blocks:
                for column in dropped:
                    check_column(table, file["name"], column, "--drop")
                names = [name for name in table.column_names if name not in hidden]
                if source is None:
                    names = [name for name in names if name == self.columns.get("id")]
                wrong = next((name for name in names if name in taken), None)
                if wrong is not None:
                    raise ValueError(
                        f"{file['name']} has a column {wrong!r}, like one of the result; rename it, or --drop {wrong}"
                    )
                if names:
                    yield start, table.select(names)
                start += table.num_rows

    def certify(self, answers: Mapping[int, Any], out: str) -> Bound:
        """Apply the rule that the answers allow to all files; write the results and the certificate."""
        plan = verification.find_plan(self.ledger, None, self.family)
        y = verification.read_answers(answers, plan, self.classes)
        with self.output.busy("reading the rows that were checked"):
            self._check_files()
            checked = plan.rows[: certify.count_checked(plan, y)]
            known = self._collect({*checked, *y})
            population = sum(int(_is_member(block, plan.alpha).sum()) for block in self._blocks())
        if population != plan.population:
            raise ValueError("the plan was made for other rows; plan a new verification")
        C = len(self.classes)
        usable = [certify.use_levels(known[row][0], plan.alpha) for row in checked]
        found = certify.decide(
            plan,
            torch.stack(usable) if usable else torch.zeros(0, C, dtype=torch.float64),
            torch.stack([known[row][1] for row in checked]) if usable else torch.zeros(0, C, dtype=torch.bool),
            y,
            self.levels.levels,
        )
        fixed = certify.fix_labels(found, {row: S for row, (_, S) in known.items()}, y)
        order = np.array(sorted(fixed), dtype=np.int64)

        def step(rows: Rows) -> tuple[Any, dict[str, Any]]:
            block = self._score(rows.table, rows.first, str(rows.part.path))
            levels = certify.use_levels(block.levels, plan.alpha)
            kept, is_free = block.S & ~found.is_removed(levels), torch.ones(len(levels), dtype=torch.bool)
            low, high = np.searchsorted(order, [rows.first, rows.first + len(levels)])
            texts: list[str | None] = [None] * len(levels)
            for row in order[low:high].tolist():
                kept[row - rows.first], is_free[row - rows.first] = fixed[row], False
                texts[row - rows.first] = None if row not in answers else str(answers[row])
            gone = (block.S & ~kept)[is_free]
            fewer = found.is_removed(levels[is_free], with_one_more=True)
            counts = {"rows": len(levels), "changed": int(gone.any(1).sum()), "removed": int(gone.sum())}
            counts["removed_with_one_more"] = int(fewer.sum())
            removed = (block.S & ~kept).numpy()
            first = rows.table.column_names[0]
            columns = {first: rows.table.column(first), "candidates": set_column(block.S.numpy(), self.classes)}
            columns |= {"kept": set_column(kept.numpy(), self.classes), "removed": set_column(removed, self.classes)}
            return pa.table(columns | {"checked": pa.array(texts, pa.string())}), counts

        given = {str(row): str(answers[row]) for row in sorted(answers)}
        settings = {"family": self.family, "plan": plan.number, "answers": store.digest(given)}
        progress = self.output.progress
        stream = Stream.open(self._source(), out, command="certify", settings=settings, progress=progress)
        manifest = stream.run(step, texts=stream.columns, separator=self.separator, progress=progress)
        totals = (manifest["totals"][name] for name in ("changed", "removed", "removed_with_one_more"))
        bound = Bound(**found.facts(self.classes, certify.left(self.ledger), *totals))
        store.replace(stream.folder / CERTIFICATE, (json.dumps(bound.to_json(), indent=1) + "\n").encode())
        return bound

    def _source(self) -> str:
        """Return the folder or pattern of all result files."""
        names = [one["result"]["name"] for one in self.manifest["files"] if one["result"] is not None]
        if all("/" not in name for name in names):
            return str(self.folder)
        return f"{glob.escape(str(self.folder))}/**/*{files.suffix_of(names[0])}"

    def _paths(self) -> Iterator[tuple[Mapping[str, Any], Path]]:
        for one in self.manifest["files"]:
            if one["result"] is not None:
                yield one, self.folder / one["result"]["name"]

    def _check_files(self) -> None:
        """Raise ValueError if a result was changed: levels would be others than those of the plan."""
        for one, path in self._paths():
            with open(path, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != one["result"]["sha256"]:
                raise ValueError(f"{path} was changed since it was written; remove it, and run `candidly clean` again")

    def _blocks(self) -> Iterator[_Scored]:
        for one, path in self._paths():
            first = one["file"]["start"]
            for table in read_blocks(path, texts=self._texts(path)):
                yield self._score(table, first, str(path))
                first += table.num_rows

    def _texts(self, path: Path) -> list[str]:
        return [*_LISTS, "predicted", *self.columns.values()] if files.is_text_file(path) else []

    def _score(self, table: Any, first: int, file: str) -> _Scored:
        """Return the candidates and levels of a block of results."""
        names = Names(self.separator, self.classes)
        S = np.zeros((table.num_rows, len(self.classes)), dtype=bool)
        start = 0
        for chunk in table.column("candidates").chunks:
            sizes, codes = names.number_sets(chunk, "candidates", Block(file, start))
            S[np.repeat(np.arange(start, start + len(sizes)), sizes), codes] = True
            start += len(sizes)
        q = np.zeros(S.shape, dtype=np.float32)
        scores = table.column("scores")
        if pa.types.is_string(scores.type):
            parts = (part.rpartition("=")[2] for text in scores.to_pylist() for part in text.split(self.separator))
            q[S] = np.fromiter(map(float, parts), np.float32, count=int(S.sum()))
        else:
            q[S] = np.concatenate([chunk.flatten().to_numpy() for chunk in scores.chunks])
        sets, probabilities = torch.from_numpy(S), torch.from_numpy(q)
        levels = self.levels.of(probabilities, self.budget.removable(probabilities, sets))
        return _Scored(table, sets, levels, first)

    def _find_members(self, ordinals: NDArray[np.int64], alpha: float) -> NDArray[np.int64]:
        """Return the numbers of rows, given their places among the rows that can lose a candidate."""
        order = np.argsort(ordinals)
        wanted = ordinals[order]
        found = np.empty(len(ordinals), dtype=np.int64)
        before = 0
        for block in self._blocks():
            members = np.flatnonzero(_is_member(block, alpha).numpy())
            low, high = np.searchsorted(wanted, [before, before + len(members)])
            found[order[low:high]] = members[wanted[low:high] - before] + block.first
            before += len(members)
        return found

    def _collect(self, rows: Any) -> dict[int, tuple[Tensor, Tensor]]:
        """Return the levels and candidates of some rows, (C,) each."""
        wanted = np.array(sorted(rows), dtype=np.int64)
        found = {}
        for block in self._blocks():
            low, high = np.searchsorted(wanted, [block.first, block.first + len(block.S)])
            for row in wanted[low:high].tolist():
                found[row] = (block.levels[row - block.first].clone(), block.S[row - block.first].clone())
        return found

    def _sources(self, source: str | None, delimiter: str | None) -> Iterator[tuple[Mapping[str, Any], Iterator[Any]]]:
        """Yield the facts and the blocks of each file that was cleaned, or of its result if no source is given."""
        if source is None:
            for one, path in self._paths():
                yield one["file"], read_blocks(path, texts=self._texts(path))
            return
        paths, known = find_parts(source), [one["file"] for one in self.manifest["files"]]
        sizes = [(path.stat().st_size, path.name) for path in paths]
        if sizes != [(one["bytes"], Path(one["name"]).name) for one in known]:
            raise ValueError(f"{source} are not the files that were cleaned; name those with --table")
        for one, path in zip(known, paths, strict=True):
            mark = delimiter or self.manifest["settings"].get("delimiter")
            if one["rows"]:
                yield one, read_blocks(path, delimiter=mark, texts=column_names(path, delimiter=mark))


def _is_member(block: _Scored, alpha: float) -> Tensor:
    """Return which rows can lose a candidate."""
    return certify.use_levels(block.levels, alpha).isfinite().any(1)
