"""What several processes share to fit one classifier: seeds, class names, column encoders, folds, held-out rows.

Each process holds some shards of the rows (`candidly.engine.ranks`). What needs all rows is learned from a sample that
all processes have: of at most `MOST_ROWS` rows, from each shard in proportion to its rows. With fewer rows the sample
is all rows. One process with the same shards draws the same sample.
"""

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from candidly.candidates import Candidates
from candidly.candidates.labels import sorted_names
from candidly.engine.ranks import Shard, Shards
from candidly.estimator.folds import Plan
from candidly.estimator.saving import fingerprint
from candidly.tables.columns import Table, read

MOST_ROWS = 100_000
"""Number of rows from which encoders, the rule that cleans and calibration are learned, if the rows are divided."""


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows, or a sample of those of all shards: encoded features, candidates, probabilities and folds."""

    X: NDArray[Any]
    S: Candidates
    p: Tensor
    fold: Tensor


@dataclass(frozen=True)
class Sharing:
    """The shards of n rows of this process."""

    shards: Shards
    n: int

    @property
    def divided(self) -> bool:
        """Whether there are several shards."""
        return self.shards.count > 1

    @property
    def parts(self) -> list[Shard]:
        """The shards of this process."""
        return self.shards.parts(self.n)

    def entropy(self, number: int) -> int:
        """Return the number that rank 0 has drawn: without a random state, each rank draws another one."""
        return int(self.shards.group.exchange(number)[0])

    def total(self, number: int) -> int:
        """Return the sum of a number over all ranks."""
        return int(self.shards.group.total(torch.tensor(number)))

    def unite(self, S: Candidates) -> Candidates:
        """Return the candidates with the classes of all ranks, sorted unless all ranks have the same ones."""
        found: list[list[Any]] = self.shards.group.exchange(list(S.classes))
        if all(tuple(names) == S.classes for names in found):
            return S
        classes = sorted_names(found)
        matrix = np.zeros((len(S), len(classes)), dtype=bool)
        matrix[:, [classes.index(name) for name in S.classes]] = S.matrix
        return Candidates(matrix, classes)

    def by_shard(self, seed: np.random.SeedSequence, make: Callable[[slice, np.random.Generator], Plan]) -> Plan:
        """Return the plan of all shards of this process, given a function that plans one of them."""
        if not self.divided:
            return make(slice(None), np.random.default_rng(seed))
        plans = [make(slice(shard.start, shard.stop), _generator(seed, shard)) for shard in self.parts]
        folds = sorted({folds for one in self.shards.group.exchange([plan.folds for plan in plans]) for folds in one})
        if len(folds) > 1:
            raise ValueError(
                f"some shards have rows for {folds[-1]} folds, but others only for {folds[0]}; give all more rows that "
                "differ, or use fewer folds"
            )
        groups, first = [], 0
        for plan in plans:
            if plan.groups is not None:
                groups.append(np.where(plan.groups < 0, -1, plan.groups + first))
                first += int(plan.groups.max()) + 1
        return Plan(
            np.concatenate([plan.index + shard.start for plan, shard in zip(plans, self.parts, strict=True)]),
            np.concatenate([plan.fold for plan in plans]),
            np.concatenate([plan.row_fold for plan in plans]),
            folds[0],
            np.concatenate(groups) if groups else None,
        )

    def sizes(self, index: NDArray[np.intp]) -> list[int]:
        """Return how many training rows each shard has, given the row behind each."""
        return [int(((index >= shard.start) & (index < shard.stop)).sum()) for shard in self.parts]

    def draw(self, rows: NDArray[np.intp], seed: np.random.SeedSequence) -> NDArray[np.intp]:
        """Return a sample of some rows of this process, its part of the sample of all ranks; their order is kept."""
        total, found = self.total(len(rows)), []
        for shard in self.parts:
            own = rows[(rows >= shard.start) & (rows < shard.stop)]
            if total > MOST_ROWS:
                size = MOST_ROWS * len(own) // total
                own = own[np.sort(_generator(seed, shard).choice(len(own), size, replace=False))]
            found.append(own)
        return np.concatenate(found)

    def table(self, table: Table | NDArray[np.uint8], rows: NDArray[np.intp]) -> Table | NDArray[np.uint8]:
        """Return some rows of a table, and those of all other ranks; images need no encoder, and one is returned."""
        if isinstance(table, np.ndarray):
            return table[:1]
        if isinstance(table.columns, list):
            columns = {str(j): column.to_arrow() for j, column in enumerate(table.columns)}
            written = io.BytesIO()
            part = pa.table(columns).take(pa.array(rows))
            with pa.ipc.new_stream(written, part.schema) as stream:
                stream.write_table(part)
            parts = [pa.ipc.open_stream(one).read_all() for one in self._bytes(written.getvalue())]
            if len({one.num_columns for one in parts}) > 1:
                raise ValueError(f"X has {[one.num_columns for one in parts]} columns on the ranks; give all the same")
            whole = read(pa.concat_tables(parts, promote_options="permissive").unify_dictionaries())
            return replace(whole, names=table.names, labels=table.labels)  # type: ignore[type-var]
        if not isinstance(table.columns, np.ndarray) or table.columns.dtype.kind not in "biuf":
            raise ValueError(
                "X is sparse, or an array of texts, and its rows are divided into shards; pass a data frame or an "
                "array of numbers"
            )
        whole = self.join(torch.from_numpy(np.ascontiguousarray(table.columns[rows], dtype=np.float64))).numpy()
        return replace(table, columns=whole, shape=(len(whole), table.shape[1]))

    def held_out(self, rows: HeldOut) -> HeldOut:
        """Return the rows of this process followed, and preceded, by those of other ranks."""
        return HeldOut(
            self.join(torch.from_numpy(np.ascontiguousarray(rows.X))).numpy(),
            Candidates(self.join(torch.from_numpy(rows.S.matrix.astype(np.uint8))).bool().numpy(), rows.S.classes),
            self.join(rows.p),
            self.join(rows.fold),
        )

    def fingerprint(self, X: NDArray[Any], S: Candidates) -> str:
        """Return a hash of the training rows of all shards."""
        if not self.divided:
            return fingerprint(X, S)
        own = [
            fingerprint(X[one.start : one.stop], Candidates(S.matrix[one.start : one.stop], S.classes))
            for one in self.parts
        ]
        found = [text for texts in self.shards.group.exchange(own) for text in texts]
        return hashlib.sha256("".join(found).encode()).hexdigest()[:16]

    def join(self, x: Tensor) -> Tensor:
        """Return the tensors (k, ...) of all ranks, one after the other."""
        group = self.shards.group
        if group.alone:
            return x
        counts = group.exchange(len(x))
        padded = group.gather(x.unsqueeze(0), 0)[0].split(max(*counts, 1))
        return torch.cat([part[:count] for part, count in zip(padded, counts, strict=True)])

    def _bytes(self, data: bytes) -> Sequence[bytes]:
        """Return the bytes of all ranks."""
        group = self.shards.group
        counts = group.exchange(len(data))
        whole = self.join(torch.frombuffer(bytearray(data), dtype=torch.uint8)).numpy().tobytes()
        ends = np.cumsum(counts).tolist()
        return [whole[end - count : end] for end, count in zip(ends, counts, strict=True)]


def _generator(seed: np.random.SeedSequence, shard: Shard) -> np.random.Generator:
    return np.random.default_rng([*seed.generate_state(4).tolist(), shard.number])
