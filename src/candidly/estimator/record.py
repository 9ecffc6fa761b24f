"""What `fit` records about the training rows, for audits, reports and cleaning at another level."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from candidly import conformal
from candidly.candidates import Candidates
from candidly.checks.limits import check_bytes
from candidly.estimator.vote_record import VoteRecord

_PREFIX = "rows."
_NAMES = {"p", "top", "top_p", "fold", "held_out"}
_LARGEST = 1.001  # probability; rounding may exceed 1


@dataclass(frozen=True, eq=False)
class Cleaned:
    """Rows after cleaning.

    Attributes
    ----------
    candidates, kept : Candidates
        The candidates before and after cleaning.
    transduction : ndarray, shape (n,)
        The most probable candidate of each row, by name.
    confidence : ndarray, shape (n,)
        Estimated probability that `transduction` is the true label: its entry in `candidate_proba`.
    candidate_proba : ndarray, shape (n, C)
        Estimated probability that each candidate, kept or not, is the true label; 0 for other classes. A row sums to 1.
    priority : ndarray of int, shape (n,)
        The order in which to review the rows: 1 for the lowest confidence. Of rows with equal confidence, such as rows
        with one candidate, those with the highest `outside_proba` come first.
    outside : ndarray of object, shape (n,)
        The most probable class of all, by name, if it is not a candidate; None if it is one.
    outside_proba : ndarray, shape (n,)
        Its probability among all classes; 0 where `outside` is None.
    """

    candidates: Candidates
    kept: Candidates
    transduction: NDArray[Any]
    confidence: NDArray[np.float32]
    candidate_proba: NDArray[np.float32]
    priority: NDArray[np.int64]
    outside: NDArray[np.object_]
    outside_proba: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Scored:
    """Rows with the probabilities of their candidates.

    Attributes
    ----------
    candidates : Candidates
        The candidates, before cleaning.
    p : Tensor, shape (candidates,)
        The probability of each candidate, row by row, in the order of the classes. Those of a row need not sum to 1:
        other classes have the rest.
    top, top_p : Tensor, shape (n,)
        The number of each row's most probable class, candidate or not, and its probability.
    """

    candidates: Candidates
    p: Tensor
    top: Tensor
    top_p: Tensor

    @classmethod
    def of(cls, candidates: Candidates, p: Tensor, **more: Any) -> Self:
        """Keep what concerns candidates and the most probable classes of the probabilities p (n, C)."""
        top_p, top = p.max(1)
        return cls(candidates, p[torch.from_numpy(candidates.matrix.copy())], top, top_p, **more)

    @property
    def sets(self) -> Tensor:
        """The candidates as a new tensor, (n, C)."""
        return torch.from_numpy(self.candidates.matrix.copy())

    def log_p(self, rows: Tensor) -> Tensor:
        """Return the log-probabilities of some rows, (rows, C), with the probability 0 for all but candidates."""
        return conformal.log(self._spread(0.0)[rows])

    def scores(self, rows: Tensor, temperature: float) -> Tensor:
        """Return the log-probabilities by which candidates of some rows are removed.

        `temperature` is that of the rule (`Budget.temperature`); it matters only if there are votes.
        """
        return self.log_p(rows)

    def best(self) -> Tensor:
        """Return the number of each row's most probable candidate, (n,)."""
        return self._spread(-1.0).argmax(1)

    def probabilities(self, temperature: float) -> Tensor:
        """Return how likely each candidate is the true label, at a temperature, (n, C); 0 for other classes."""
        return conformal.candidate_probabilities(conformal.log(self._spread(0.0)), self.sets, temperature)

    def cleaned(self, kept: Tensor, temperature: float) -> "Cleaned":
        """Return what cleaning gives, for the kept candidates (n, C) and the temperature of probabilities."""
        best, q = self.best(), self.probabilities(temperature)
        confidence = q.gather(1, best[:, None])[:, 0].clamp_max(1)  # rounding may exceed 1
        return self._collect(kept, best, confidence, q, self.top, self.top_p)

    def _collect(
        self, kept: Tensor, best: Tensor, confidence: Tensor, q: Tensor, top: Tensor, top_p: Tensor
    ) -> Cleaned:
        """Return results, given the chosen labels with their probabilities, and the most probable classes of all."""
        classes = self.candidates.classes
        is_outside = ~self.sets.gather(1, top[:, None])[:, 0]
        outside_p = top_p.where(is_outside, 0)
        order = np.lexsort((-outside_p.numpy(), confidence.numpy()))
        priority = np.empty(len(order), dtype=np.int64)
        priority[order] = np.arange(1, len(order) + 1)
        outside = np.empty(len(order), dtype=object)
        for row in is_outside.nonzero()[:, 0].tolist():
            outside[row] = classes[int(top[row])]
        results = (as_array(classes)[best.numpy()], confidence.numpy(), q.numpy(), priority, outside, outside_p.numpy())
        for result in results:
            result.setflags(write=False)
        return Cleaned(self.candidates, Candidates(kept.numpy(), classes), *results)

    def _spread(self, other: float, p: Tensor | None = None) -> Tensor:
        """Return probabilities of candidates as a matrix (n, C), with the value `other` for all other classes."""
        p = self.p if p is None else p
        return torch.full(self.candidates.shape, other, dtype=p.dtype).masked_scatter_(self.sets, p)


@dataclass(frozen=True, eq=False)
class FitRecord(Scored):
    """What a `candidly.PartialLabelClassifier` knows about its training rows after `fit`; it is saved with the model.

    Attributes
    ----------
    candidates : Candidates
        The candidates that were passed to `fit`, before cleaning.
    p : Tensor, shape (candidates,)
        The probability of each candidate, row by row, in the order of the classes. Held-out rows are scored by networks
        that were not trained on them.
    top, top_p : Tensor, shape (n,)
        The number of each row's most probable class, candidate or not, and its probability.
    fold : Tensor of int, shape (n,)
        The fold in which each row is held out; -1 if it is never held out. A row without weight has the fold of the
        networks that scored it.
    held_out : Tensor of int, shape (m,)
        The numbers of the held-out rows, in an order that does not depend on the order of the rows.
    parameters : dict
        The constructor arguments at the time of `fit`; `alpha` and `force_cleaning` are those of the last cleaning.
    seconds : float
        How long `fit` took.
    groups : Tensor of int, shape (n,), or None
        Rows with the same number were held out together: they share a group or have equal features, directly or
        through other rows. -1 for rows without weight that are connected with no other. None if `fit` was called
        without groups.
    voted : VoteRecord or None
        Votes on the rows, and the posterior labels; None if `fit` was called without votes.
    """

    fold: Tensor
    held_out: Tensor
    parameters: Mapping[str, Any]
    seconds: float
    groups: Tensor | None = None
    voted: VoteRecord | None = None

    def scores(self, rows: Tensor, temperature: float) -> Tensor:
        """Return what candidates of some rows are removed by.

        With votes these are the logarithms of the posterior times `temperature`: at the temperature of the rule the
        probabilities of candidates are then those of the posterior, and at its cautious one, they are less certain.
        """
        if self.voted is None:
            return super().scores(rows, temperature)
        return temperature * conformal.log(self._spread(0.0, self.voted.p)[rows])

    def cleaned(self, kept: Tensor, temperature: float) -> Cleaned:
        """Return what cleaning gives; with votes, labels and probabilities are those of the posterior."""
        if self.voted is None:
            return super().cleaned(kept, temperature)
        top, top_p = self.voted.top, self.voted.top_p
        q = self._spread(0.0, self.voted.p).scatter_(1, top[:, None], top_p[:, None])
        return self._collect(kept, top, top_p.clamp_max(1), q, top, top_p)

    @property
    def nbytes(self) -> int:
        """The size of the record in a saved model."""
        return sum(value.nbytes for value in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Return everything but class names, parameters and seconds by name, for a file; integers as small as possible.

        Candidates are one bit per row and class, or lists of class numbers if that is smaller.
        """
        matrix = self.candidates.matrix
        listed = {"sizes": _narrow(self.candidates.sizes), "columns": _narrow(matrix.nonzero()[1])}
        packed = {"bits": torch.from_numpy(np.packbits(matrix))}
        smaller = min(packed, listed, key=lambda parts: sum(part.nbytes for part in parts.values()))
        whole = {"top": self.top, "fold": self.fold, "held_out": self.held_out}
        whole |= {} if self.groups is None else {"groups": self.groups}
        found = {name: _narrow(values.numpy()) for name, values in whole.items()} | smaller
        named = {f"{_PREFIX}{name}": value for name, value in (found | {"p": self.p, "top_p": self.top_p}).items()}
        return named | ({} if self.voted is None else self.voted.tensors())

    @classmethod
    def of_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        classes: tuple[Hashable, ...],
        counts: Tensor,
        parameters: Mapping[str, Any],
        seconds: float,
        size: int,
        votes: Any = None,
    ) -> "FitRecord":
        """Return the record whose `tensors` returned these.

        Parameters
        ----------
        tensors : mapping of str to Tensor
            They may be untrusted.
        classes : tuple
            Class names.
        counts : Tensor of int, shape (K,)
            Number of held-out rows of each fold.
        parameters, seconds
            The other fields.
        size : int
            Size of the file in bytes, which limits how much memory its content may take.
        votes : dict, optional
            What `VoteRecord.to_json` returned, if there are votes.

        Raises
        ------
        ValueError
            If they are damaged.
        """
        cast = {name: value for name, value in tensors.items() if not name.startswith(_PREFIX)}
        found = {name.removeprefix(_PREFIX): tensors[name] for name in tensors.keys() - cast.keys()}
        n = _length(found.get("top_p"))
        check_bytes("the record of the training rows", n * len(classes), size)
        names = set(found) - {"groups"}
        listed = names == _NAMES | {"sizes", "columns"}
        _require(n > 0 and seconds >= 0 and (listed or names == _NAMES | {"bits"}))
        read = _unlist if listed else _unpack
        candidates = Candidates(read(found, n, len(classes)), classes)
        fold = _whole(found["fold"], n, -1, len(counts))
        held_out = _whole(found["held_out"], int(counts.sum()), 0, n)
        groups = _whole(found["groups"], n, -1, n) if "groups" in found else None
        p = _probabilities(found["p"], int(candidates.sizes.sum()))
        top, top_p = _whole(found["top"], n, 0, len(classes)), _probabilities(found["top_p"], n)
        _require(len(held_out.unique()) == len(held_out) and torch.equal(_count(fold[held_out], len(counts)), counts))
        row = torch.arange(n).repeat_interleave(torch.from_numpy(candidates.sizes))
        _require(bool((p <= top_p[row]).all()))
        _require(bool(cast) == (votes is not None))
        voted = VoteRecord.of_parts(cast, votes, classes, candidates.sizes) if cast else None
        return cls(candidates, p, top, top_p, fold, held_out, parameters, float(seconds), groups, voted)


def as_array(names: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """Return class names as an array: of text or numbers if all names have that type, else of objects."""
    plain = len({type(name) for name in names}) == 1 and isinstance(names[0], str | int | float)
    found = np.array(names) if plain else None
    # NumPy drops \0 at the end of text, and makes integers that do not fit into 64 bits floating-point numbers.
    if found is not None and found.tolist() == list(names) and type(found.tolist()[0]) is type(names[0]):
        return found
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array


def _require(intact: bool) -> None:
    if not intact:
        raise ValueError("the record of the training rows is damaged; restore a copy, or fit and save the model again")


def _length(values: Tensor | None) -> int:
    return 0 if values is None or values.ndim != 1 else len(values)


def _count(fold: Tensor, folds: int) -> Tensor:
    """Return the number of rows of each fold; rows that were not held out count for none, and so make a difference."""
    return fold[fold >= 0].bincount(minlength=folds)


def _probabilities(values: Tensor, length: int) -> Tensor:
    _require(values.dtype == torch.float32 and values.shape == (length,))
    _require(bool(((values >= 0) & (values <= _LARGEST)).all()))
    return values


def _whole(values: Tensor, length: int, least: int, end: int) -> Tensor:
    """Return integers from `least` to `end` - 1."""
    _require(values.dtype in (torch.int8, torch.int16, torch.int32, torch.int64) and values.shape == (length,))
    found = values.long()  # a small type would not hold the bounds
    _require(bool(((found >= least) & (found < end)).all()))
    return found


def _narrow(values: NDArray[Any]) -> Tensor:
    """Return integers in the smallest type that holds them."""
    kinds = (np.int8, np.int16, np.int32)
    most = int(values.max(initial=0))
    return torch.from_numpy(values.astype(next((kind for kind in kinds if most <= np.iinfo(kind).max), np.int64)))


def _unpack(found: Mapping[str, Tensor], n: int, num_classes: int) -> NDArray[np.bool_]:
    """Return the candidates that were saved as bits."""
    bits = found["bits"]
    _require(bits.dtype == torch.uint8 and bits.shape == (-(-n * num_classes // 8),))
    flat = np.unpackbits(bits.numpy()).view(np.bool_)
    matrix, rest = flat[: n * num_classes].reshape(n, num_classes), flat[n * num_classes :]
    _require(bool(matrix.any(1).all()) and not rest.any())
    return matrix


def _unlist(found: Mapping[str, Tensor], n: int, num_classes: int) -> NDArray[np.bool_]:
    """Return the candidates that were saved as lists of class numbers."""
    sizes = _whole(found["sizes"], n, 1, num_classes + 1)
    columns = _whole(found["columns"], int(sizes.sum()), 0, num_classes)
    rows = torch.arange(n).repeat_interleave(sizes)
    matrix = torch.zeros(n, num_classes, dtype=torch.bool)
    matrix[rows, columns] = True
    _require(bool(((columns.diff() > 0) | (rows.diff() > 0)).all()))
    return matrix.numpy()
