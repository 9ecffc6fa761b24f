"""What `fit` records about votes on the training rows: who voted for what, the posterior labels, and the annotators."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from candidly import conformal
from candidly.candidates import Annotator, Confusion, Votes
from candidly.candidates.annotators import fit_posterior
from candidly.candidates.vote_tables import VoteTable
from candidly.store.validation import flag, instance, list_of, number, optional, require, share
from candidly.store.validation import record as validate

_PREFIX = "votes."


@dataclass(frozen=True, eq=False)
class VoteRecord:
    """Votes on the training rows of a classifier, and what they say about the labels together with the networks.

    Attributes
    ----------
    table : VoteTable
        The votes: the tasks are the training rows, by number.
    anonymous : bool
        Whether the workers are not persons.
    p : Tensor, shape (candidates,)
        The posterior probability of each candidate, row by row, in the order of the classes.
    top, top_p : Tensor, shape (n,)
        The number of each row's most probable class by the posterior, candidate or not, and its probability.
    temperature : float
        The temperature of the networks' probabilities in the posterior.
    annotators : tuple of Annotator
        The annotators by name; a single one without a name if votes are anonymous.
    """

    table: VoteTable
    anonymous: bool
    p: Tensor
    top: Tensor
    top_p: Tensor
    temperature: float
    annotators: tuple[Annotator, ...]

    @classmethod
    def of(cls, votes: Votes, classes: tuple[Hashable, ...], S: Tensor, p: Tensor, fold: Tensor) -> Self:
        """Combine votes with probabilities.

        Parameters
        ----------
        votes : Votes
            Votes on the n rows, in their order.
        classes : tuple
            The class names that the other arguments refer to.
        S : Tensor of bool, shape (n, C)
            Candidates.
        p : Tensor, shape (n, C)
            Probabilities by networks that were not trained on a row.
        fold : Tensor of int, shape (n,)
            -1 for rows that all networks were trained on: their votes alone decide, because networks repeat the labels
            that they were trained on.
        """
        position = {name: j for j, name in enumerate(classes)}
        numbers = np.array([position[name] for name in votes.table.classes])
        found = votes.table
        table = VoteTable(range(len(S)), found.workers, classes, found.task, found.worker, numbers[found.label])
        log_p = conformal.log(p).masked_fill((fold < 0)[:, None], 0.0)
        agreement = [None if math.isnan(one) else one for one in votes.agreement.workers.tolist()]
        posterior = fit_posterior(log_p, table, agreement, anonymous=votes.anonymous)
        top_p, top = posterior.p.max(1)
        q = posterior.p[S]
        return cls(table, votes.anonymous, q, top, top_p, posterior.temperature, posterior.annotators)

    def same_votes(self, votes: Votes) -> bool:
        """Return whether these are the votes on the training rows."""
        ours, theirs = ((table.workers, _names(table)) for table in (self.table, votes.table))
        pairs = zip((self.table.task, self.table.worker), (votes.table.task, votes.table.worker), strict=True)
        return ours == theirs and all(np.array_equal(*pair) for pair in pairs)

    def tensors(self) -> dict[str, Tensor]:
        """Return the numbers by name, for a file."""
        whole = {
            "row": self.table.task,
            "worker": self.table.worker,
            "label": self.table.label,
            "top": self.top.numpy(),
        }
        found = {name: torch.from_numpy(values.astype(np.int32)) for name, values in whole.items()}
        return {f"{_PREFIX}{name}": value for name, value in (found | {"p": self.p, "top_p": self.top_p}).items()}

    def to_json(self) -> dict[str, Any]:
        """Return everything else in JSON types."""
        position = {name: j for j, name in enumerate(self.table.classes)}
        annotators = [
            vars(one)
            | {"name": None, "confusions": [[position[c.true], position[c.given], *c[2:]] for c in one.confusions]}
            for one in self.annotators
        ]
        workers = [name if type(name) in (str, int, float) else str(name) for name in self.table.workers]
        return {
            "workers": workers,
            "anonymous": self.anonymous,
            "temperature": self.temperature,
            "annotators": annotators,
        }

    @classmethod
    def of_parts(
        cls, tensors: Mapping[str, Tensor], facts: Any, classes: tuple[Hashable, ...], sizes: NDArray[np.int64]
    ) -> Self:
        """Return the record whose `tensors` and `to_json` returned these; raise ValueError if they are damaged.

        `sizes` (n,) are the numbers of candidates of the rows.
        """
        confusion = list_of(number, 4, 4)
        one = {"name": optional(instance(str)), "votes": number, "accuracy": share, "low": share, "high": share}
        one |= {"agreement": optional(share), "confusions": list_of(confusion, 0)}
        fields = {"workers": list_of(instance(str, int, float), 1), "anonymous": flag, "temperature": number}
        validate(fields | {"annotators": list_of(validate(one), 1)})(facts, "the votes")
        found = {name.removeprefix(_PREFIX): value for name, value in tensors.items()}
        names = {"row", "worker", "label", "top", "p", "top_p"}
        require(set(found) == names, "the tensors of the votes", sorted(found))
        n, C, W = len(sizes), len(classes), len(facts["workers"])
        row, worker, label = (_whole(found[name], None, end) for name, end in (("row", n), ("worker", W), ("label", C)))
        require(len(row) == len(worker) == len(label) > 0, "the number of votes", len(row))
        require(bool((np.diff(row) >= 0).all()), "the order of the votes", "not sorted by row")
        top = torch.from_numpy(_whole(found["top"], n, C))
        p, top_p = _shares(found["p"], int(sizes.sum())), _shares(found["top_p"], n)
        expected = 1 if facts["anonymous"] else W
        require(len(facts["annotators"]) == expected, "the number of annotators", len(facts["annotators"]))
        workers = tuple(facts["workers"])
        annotators = []
        for name, known in zip([None] if facts["anonymous"] else workers, facts["annotators"], strict=True):
            confusions = []
            for true, given, votes, fraction in known["confusions"]:
                for code in (true, given):
                    require(isinstance(code, int) and 0 <= code < C, "a class of a confusion", code)
                confusions.append(Confusion(classes[true], classes[given], float(votes), float(fraction)))
            annotators.append(Annotator(**(known | {"name": name, "confusions": tuple(confusions)})))
        table = VoteTable(range(n), workers, classes, row, worker, label)
        return cls(table, facts["anonymous"], p, top, top_p, float(facts["temperature"]), tuple(annotators))


def _names(table: VoteTable) -> list[str]:
    return [str(table.classes[label]) for label in table.label.tolist()]


def _whole(values: Tensor, length: int | None, end: int) -> NDArray[np.int64]:
    """Return integers from 0 to `end` - 1."""
    right = values.dtype == torch.int32 and values.ndim == 1 and (length is None or len(values) == length)
    require(right and bool(((values >= 0) & (values < end)).all()), "the numbers of the votes", "out of range")
    found: NDArray[np.int64] = values.long().numpy()
    return found


def _shares(values: Tensor, length: int) -> Tensor:
    right = values.dtype == torch.float32 and values.shape == (length,)
    require(right and bool(((values >= 0) & (values <= 1.001)).all()), "the posterior", "out of range")
    return values
