"""Candidate sets from the votes of several annotators.

Where annotators disagree, their labels are the candidates, and the votes are their initial weights. `from_annotations`
counts the votes of a table and measures how far the annotators agree.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from candidly.candidates import Candidates
from candidly.candidates.labels import class_names
from candidly.candidates.vote_tables import VoteTable, read_long, read_wide, tidy
from candidly.checks import arguments
from candidly.messages import warn

__all__ = ["Agreement", "Annotator", "Confusion", "Votes", "from_annotations"]


@dataclass(frozen=True, eq=False)
class Agreement:
    """Agreement between annotators; None or NaN where there is nothing to compare.

    Parameters
    ----------
    observed : float or None
        Probability that a vote has the same label as another vote on its task, over tasks with at least two votes.
        None if no task has two votes.
    alpha : float or None
        Krippendorff's alpha for nominal data: 1 is full agreement, 0 is agreement by chance. None if no task has two
        votes or all votes that can be compared have the same label.
    workers : ndarray of float, shape (W,)
        Fraction of each worker's votes that agree with the majority of the task's other workers; if k labels are tied
        there, a vote for one of them counts 1/k. Tasks without other workers are left out; NaN if no task is left.

    Notes
    -----
    With v_uc votes for label c on task u, v_u = Σ_c v_uc, only tasks with v_u ≥ 2, n_c = Σ_u v_uc and n = Σ_c n_c,

        o_cc = Σ_u v_uc (v_uc − 1) / (v_u − 1),   observed = Σ_c o_cc / n,
        alpha = 1 − (1 − observed) / (1 − Σ_c n_c (n_c − 1) / (n (n − 1))).

    K. Krippendorff, Content Analysis: An Introduction to Its Methodology, Sage, 2004 (4th edition 2018), the chapter on
    reliability. Tasks may have different numbers of votes. Two labels by one worker on one task are two votes, which
    disagree.
    """

    observed: float | None
    alpha: float | None
    workers: NDArray[np.float64]


class Confusion(NamedTuple):
    """A label that an annotator gives instead of the true one.

    Attributes
    ----------
    true, given : str or number
        The true label, by the posterior, and the label of the vote.
    votes : float
        Expected number of such votes.
    fraction : float
        Their fraction of the annotator's votes on rows with this true label.
    """

    true: Hashable
    given: Hashable
    votes: float
    fraction: float


@dataclass(frozen=True)
class Annotator:
    """How an annotator votes.

    Attributes
    ----------
    name : str or number, or None
        None stands for all annotators of anonymous votes.
    votes : int
        Number of votes.
    accuracy, low, high : float
        Estimated fraction of right votes, with a 95 % likelihood-ratio interval. It is measured against the posterior
        without the annotator's own votes (`candidly.candidates.annotators`, equation 8).
    agreement : float or None
        Fraction of votes that agree with the majority of the others (`Agreement`); None if nothing can be compared.
    confusions : tuple of Confusion
        The most frequent confusions, at most five, with at least one expected vote.
    """

    name: Hashable
    votes: int
    accuracy: float
    low: float
    high: float
    agreement: float | None
    confusions: tuple[Confusion, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Votes:
    """Counted votes and the candidate sets made from them; `from_annotations` returns them.

    Parameters
    ----------
    candidates : Candidates
        The candidates of the N tasks, among C classes; their index is the tasks.
    counts : ndarray of int, shape (N, C)
        Votes for each label, also for labels that are not candidates. Read-only.
    tasks : tuple
        The N task ids, in the order in which they first appear.
    workers : tuple
        The W workers, in the order in which they first appear.
    agreement : Agreement
        Agreement between the workers.
    below : ndarray of bool, shape (N,)
        Tasks in which no label reached the thresholds; their most frequent labels are the candidates. Read-only.
    table : VoteTable
        The votes by number: which worker gave which label to which task.
    anonymous : bool
        Whether the workers are not persons, such as columns for the first and the second vote.
    """

    candidates: Candidates
    counts: NDArray[np.int64]
    tasks: tuple[Hashable, ...]
    workers: tuple[Hashable, ...]
    agreement: Agreement
    below: NDArray[np.bool_]
    table: VoteTable
    anonymous: bool = False

    def weights(self) -> NDArray[np.float64]:
        """Return the fraction of votes for each candidate of a task, shape (N, C): initial label weights.

        Examples
        --------
        >>> table = {"ann": ["cat", "dog"], "bob": ["dog", None], "eve": ["cat", None]}
        >>> from_annotations(table, columns=table).weights().round(2).tolist()
        [[0.67, 0.33], [0.0, 1.0]]
        """
        votes = np.where(self.candidates.matrix, self.counts, 0)
        shares: NDArray[np.float64] = votes / votes.sum(axis=1, keepdims=True)
        return shares

    @property
    def fallbacks(self) -> int:
        """Number of tasks in which no label reached the thresholds."""
        return int(self.below.sum())

    def majority(self) -> NDArray[np.object_]:
        """Return the label with the most votes of each task, shape (N,); None where several labels are tied.

        Examples
        --------
        >>> table = {"ann": ["cat", "dog"], "bob": ["dog", None], "eve": ["cat", None]}
        >>> from_annotations(table, columns=table).majority().tolist()
        ['cat', 'dog']
        """
        top = self.counts == self.counts.max(axis=1, keepdims=True)
        best: NDArray[np.object_] = np.empty(len(top), dtype=object)
        for row, number in enumerate(top.argmax(axis=1).tolist()):
            best[row] = self.candidates.classes[number]
        best[top.sum(axis=1) > 1] = None
        return best

    def select(self, tasks: Iterable[int]) -> "Votes":
        """Return the votes on some tasks, given by their numbers in `tasks`, in this order.

        Examples
        --------
        >>> table = {"photo": ["a", "b"], "ann": ["cat", "dog"], "bob": ["dog", None]}
        >>> votes = from_annotations(table, task="photo", columns=["ann", "bob"])
        >>> votes.select([1]).tasks, votes.select([1]).workers
        (('b',), ('ann',))
        """
        chosen = np.asarray(list(tasks))
        wrong = chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= len(self.tasks)
        if wrong or len(np.unique(chosen)) < len(chosen):
            raise ValueError(f"tasks must be different numbers from 0 to {len(self.tasks) - 1}, at least one")
        table = self.table.select(chosen)
        counts = self.counts[chosen]
        return _collect(table, counts, self.candidates.matrix[chosen], self.below[chosen], self.anonymous)

    def with_classes(self, names: Iterable[Hashable]) -> "Votes":
        """Return the same votes with other class names, in the order of ``candidates.classes``.

        Examples
        --------
        >>> votes = from_annotations({"ann": [1, 0], "bob": [0, 0]}, columns=["ann", "bob"])
        >>> votes.with_classes(["cat", "dog"]).candidates.decode()
        [('cat', 'dog'), ('cat',)]
        """
        classes = class_names(names)
        sets = Candidates(self.candidates.matrix, classes, self.candidates.index)
        return replace(self, candidates=sets, table=replace(self.table, classes=classes))

    def __repr__(self) -> str:
        sets = self.candidates
        votes = self.counts.sum()
        classes = len(sets.classes)
        observed, alpha = (
            "unknown" if value is None else f"{value:.3f}" for value in (self.agreement.observed, self.agreement.alpha)
        )
        lines = [
            f"Votes: {len(self.tasks)} tasks, {len(self.workers)} workers, {votes} votes, {classes} classes",
            f"  candidates per task {sets.mean_size:.2f}, tasks with one candidate {sets.singletons.mean():.1%}",
            f"  agreement {observed}, Krippendorff's alpha {alpha}",
        ]
        if self.fallbacks:
            lines.append(f"  tasks below the thresholds, with their most frequent labels kept: {self.fallbacks}")
        return "\n".join(lines)


def from_annotations(
    table: Any,
    *,
    task: Hashable | None = None,
    worker: Hashable | None = None,
    label: Hashable | None = None,
    columns: Iterable[Hashable] | None = None,
    classes: Iterable[Hashable] | None = None,
    min_votes: int = 1,
    min_share: float = 0.0,
    anonymous: bool = False,
) -> Votes:
    """Make candidate sets from the votes of annotators.

    Parameters
    ----------
    table : pandas, polars or Arrow table, dict of columns, list of dicts or structured array
        A long table has one row per vote; a wide table, for which you pass `columns`, has one row per task. A label
        that is None, NaN or blank is not counted. If all labels are whole numbers, they become integers.
    task, worker, label : str, optional
        The columns of a long table, by default "task", "worker" and "label". In a wide table, `task` names the column
        of task ids; by default they are the row numbers.
    columns : iterable of str, optional
        The columns of a wide table, each with the labels of one worker; their names are the workers.
    classes : iterable, optional
        All class names, in order; by default the sorted labels.
    min_votes : int, default 1
        A label is a candidate if it has at least `min_votes` votes on the task and at least the fraction `min_share`
        of the task's votes. If no label has, the most frequent one is the candidate, or all that are tied.
    min_share : float, default 0.0
        See `min_votes`.
    anonymous : bool, default False
        Whether the workers are not persons, such as columns for the first, second and third vote of a task. Then all
        are assumed to make the same errors, and none is described by name.

    Returns
    -------
    Votes
        A worker's repeated vote for one label of one task counts once. Different labels by one worker on one task all
        count, because they are ambiguous labels too.

    Raises
    ------
    ValueError
        For a table without votes, a column that does not exist, a missing task or worker, a label that is not in
        `classes` or is a list, or arguments that are out of range or contradict each other.

    Warns
    -----
    UserWarning
        When rows of a long table have no label, votes are repeated, tasks have no vote (they are left out: use the
        features of the tasks in `Votes.tasks`), or no label of a task reaches the thresholds.

    Examples
    --------
    >>> table = {
    ...     "task": ["p1", "p1", "p1", "p2", "p2", "p3"],
    ...     "worker": ["ann", "bob", "eve", "ann", "bob", "eve"],
    ...     "label": ["cat", "dog", "cat", "dog", "dog", "owl"],
    ... }
    >>> votes = from_annotations(table)
    >>> votes.candidates.decode()
    [('cat', 'dog'), ('dog',), ('owl',)]
    >>> votes
    Votes: 3 tasks, 3 workers, 6 votes, 3 classes
      candidates per task 1.33, tasks with one candidate 66.7%
      agreement 0.600, Krippendorff's alpha 0.333
    >>> from_annotations(table, min_share=0.5).candidates.decode()
    [('cat',), ('dog',), ('owl',)]
    >>> from_annotations({"ann": ["cat", "dog"], "bob": ["dog", None]}, columns=["ann", "bob"]).counts.tolist()
    [[1, 1], [0, 1]]
    """
    if isinstance(min_votes, bool) or not isinstance(min_votes, (int, np.integer)) or min_votes < 1:
        raise ValueError(f"min_votes is {min_votes!r}; pass an integer of at least 1")
    if not isinstance(min_share, (int, float, np.integer, np.floating)) or not 0 <= min_share <= 1:
        raise ValueError(f"min_share is {min_share!r}; pass a fraction between 0 and 1")
    anonymous = arguments.flag("anonymous", anonymous)
    fixed = None if classes is None else class_names(classes)
    if columns is None:
        roles = {"task": task, "worker": worker, "label": label}
        found = read_long(table, {role: role if name is None else name for role, name in roles.items()}, fixed)
    elif worker is None and label is None:
        found = read_wide(table, columns, task, fixed)
    else:
        raise ValueError(
            "columns= is for wide tables, worker= and label= are for long ones; leave one or the other out"
        )
    found = tidy(found, fixed)
    counts = _count(found)
    # Compare fractions, not counts: 7 / 100 >= 0.07, but 7 < 0.07 * 100.
    kept = (counts >= min_votes) & (counts / counts.sum(axis=1, keepdims=True) >= min_share)
    below = ~kept.any(axis=1)
    kept[below] = counts[below] == counts[below].max(axis=1, keepdims=True)
    for note in found.notes:
        warn(note)
    if below.any():
        warn(
            f"{below.sum()} tasks have no label with min_votes={min_votes} and min_share={min_share}, and keep their "
            "most frequent labels; lower the thresholds, or drop the tasks"
        )
    return _collect(found, counts, kept, below, anonymous)


def _collect(
    found: VoteTable, counts: NDArray[np.int64], kept: NDArray[np.bool_], below: NDArray[np.bool_], anonymous: bool
) -> Votes:
    for array in (counts, below):
        array.setflags(write=False)
    observed, alpha = _agree(counts)
    return Votes(
        candidates=Candidates(kept, tuple(found.classes), tuple(found.tasks)),
        counts=counts,
        tasks=tuple(found.tasks),
        workers=tuple(found.workers),
        agreement=Agreement(observed, alpha, _agree_with_others(found, counts)),
        below=below,
        table=replace(found, notes=()),
        anonymous=anonymous,
    )


def _count(found: VoteTable) -> NDArray[np.int64]:
    tasks = len(found.tasks)
    classes = len(found.classes)
    cell = found.task * classes + found.label
    return np.bincount(cell, minlength=tasks * classes).reshape(tasks, classes)


def _agree(counts: NDArray[np.int64]) -> tuple[float | None, float | None]:
    """Return observed agreement and Krippendorff's alpha; the notes of `Agreement` have the formulas."""
    votes = counts.sum(axis=1)
    several = votes >= 2
    counts = counts[several]
    votes = votes[several]
    by_label = counts.sum(axis=0)
    n = int(votes.sum())
    if n == 0:
        return None, None
    observed = float(((counts * (counts - 1)).sum(axis=1) / (votes - 1)).sum() / n)
    by_chance = int((by_label * (by_label - 1)).sum())
    if by_chance == n * (n - 1):
        return observed, None
    return observed, 1 - (1 - observed) * (n * (n - 1)) / (n * (n - 1) - by_chance)


def _agree_with_others(found: VoteTable, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each worker's agreement with the majority of the others.

    Leaving a worker out takes one vote from each label the worker chose. Unless these were all the top labels of the
    task, the majority of the others is among the top labels not chosen. If they were, the top labels are now one vote
    lower: tied with each other, and with the labels not chosen that were one vote lower before.
    """
    task = found.task
    workers = len(found.workers)
    top = counts.max(axis=1)
    at_top = (counts == top[:, None]).sum(axis=1)[task]
    next_to_top = (counts == top[:, None] - 1).sum(axis=1)[task]
    gap = top[task] - counts[task, found.label]
    pair = task * workers + found.worker
    group = np.cumsum(np.diff(pair, prepend=pair[0]) > 0)  # votes are sorted by task and worker
    own_top = np.bincount(group, weights=gap == 0)[group]
    own_next = np.bincount(group, weights=gap == 1)[group]
    all_top = own_top == at_top
    tied = own_top + next_to_top - own_next
    others = ~(all_top & (top[task] == 1))
    credit = np.where(all_top & (gap == 0), 1 / np.maximum(tied, 1), 0.0)
    votes = np.bincount(found.worker[others], minlength=workers)
    credits = np.bincount(found.worker[others], weights=credit[others], minlength=workers)
    shares = np.divide(credits, votes, out=np.full(workers, np.nan), where=votes > 0)
    shares.setflags(write=False)
    return shares
