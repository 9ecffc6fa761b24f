"""`Task`: what an annotation tool knows about one row."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Task:
    """A task of an annotation tool.

    Attributes
    ----------
    id : str
        The id that the tool gave it.
    data : mapping of str to JSON values
        Its fields.
    votes : tuple of (str, str)
        Who gave which label, without annotations that are ground truth, and without those that were cancelled.
    truth : tuple of str
        The different labels that are marked as ground truth.
    """

    id: str
    data: Mapping[str, Any]
    votes: tuple[tuple[str, str], ...] = ()
    truth: tuple[str, ...] = ()

    def joined(self, other: "Task") -> "Task":
        """Return the task with the votes of another one, each of them once.

        Examples
        --------
        >>> Task("1", {}, (("ann", "cat"),)).joined(Task("1", {}, (("ann", "cat"), ("bob", "dog")))).votes
        (('ann', 'cat'), ('bob', 'dog'))
        """
        votes = tuple(dict.fromkeys(self.votes + other.votes))
        return replace(self, votes=votes, truth=tuple(dict.fromkeys(self.truth + other.truth)))
