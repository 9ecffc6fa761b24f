"""Votes of several annotators become candidate sets.

Where annotators disagree, their labels are the candidates and the votes say how likely each is to start with.
`from_annotations` counts the votes of a table and reports how far the annotators agree.
"""

import warnings
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candidly.candidates import Candidates
from candidly.candidates.labels import class_names
from candidly.candidates.vote_tables import Ballots, read_long, read_wide, tidy

__all__ = ["Agreement", "Votes", "from_annotations"]


@dataclass(frozen=True, eq=False)
class Agreement:
    """How far annotators agree; None and NaN where there is nothing to compare.

    Parameters
    ----------
    observed : float or None
        Chance that a vote has the label of another vote on its task, over the votes that have another. It is None if
        no task has two votes.
    alpha : float or None
        Krippendorff's alpha for nominal data: 1 is full agreement, 0 what chance gives. It is None if no task has two
        votes or all votes that can be compared have the same label.
    workers : ndarray of float, shape (W,)
        Share of each worker's votes that have the label most of the task's other workers chose; of k labels tied
        there, the worker's counts 1/k. Tasks without other workers are left out; NaN if none is left.

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


@dataclass(frozen=True, eq=False, repr=False)
class Votes:
    """Counted votes, and the candidate sets they make; returned by `from_annotations`.

    Parameters
    ----------
    candidates : Candidates
        The candidates of the N tasks, among C classes.
    counts : ndarray of int, shape (N, C)
        Votes for each label, also for those that are no candidates. Read-only.
    tasks : tuple
        The N task ids, in the order in which they first appear.
    workers : tuple
        The W workers, likewise.
    agreement : Agreement
        How far the workers agree.
    fallbacks : int
        Tasks of which no label reached the thresholds, so that the most voted ones are the candidates.
    """

    candidates: Candidates
    counts: NDArray[np.int64]
    tasks: tuple[Hashable, ...]
    workers: tuple[Hashable, ...]
    agreement: Agreement
    fallbacks: int

    def weights(self) -> NDArray[np.float64]:
        """Return each candidate's share of its task's votes for candidates, shape (N, C): weights to start from.

        Examples
        --------
        >>> table = {"ann": ["cat", "dog"], "bob": ["dog", None], "eve": ["cat", None]}
        >>> from_annotations(table, columns=table).weights().round(2).tolist()
        [[0.67, 0.33], [0.0, 1.0]]
        """
        votes = np.where(self.candidates.matrix, self.counts, 0)
        shares: NDArray[np.float64] = votes / votes.sum(axis=1, keepdims=True)
        return shares

    def __repr__(self) -> str:
        votes, classes = self.counts.sum(), len(self.candidates.classes)
        sets = self.candidates
        observed, alpha = (
            "unknown" if value is None else f"{value:.3f}" for value in (self.agreement.observed, self.agreement.alpha)
        )
        lines = [
            f"Votes: {len(self.tasks)} tasks, {len(self.workers)} workers, {votes} votes, {classes} classes",
            f"  candidates per task {sets.mean_size:.2f}, tasks with one candidate {sets.singletons.mean():.1%}",
            f"  agreement {observed}, Krippendorff's alpha {alpha}",
        ]
        if self.fallbacks:
            lines.append(f"  tasks below the thresholds, with their most voted labels kept: {self.fallbacks}")
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
) -> Votes:
    """Make candidate sets of annotators' votes.

    Parameters
    ----------
    table : pandas, polars or Arrow table, dict of columns, list of dicts or structured array
        Long, with one row per vote, or with `columns` wide, with one row per task. A label that is None, NaN or blank
        is no vote. Labels are kept as they are, but whole floating-point numbers become integers.
    task, worker, label : str, optional
        The columns of a long table, by default "task", "worker" and "label". In a wide table, `task` names the column
        of task ids; by default they are the row numbers.
    columns : iterable of str, optional
        The columns of a wide table that hold one worker's labels each; their names are the workers.
    classes : iterable, optional
        All class names, in order; by default the sorted labels.
    min_votes : int, default 1
        A label is a candidate if it has at least so many votes on the task, and at least the share `min_share`. Where
        no label has, the most voted stays, or all of them in a tie.
    min_share : float, default 0.0
        See `min_votes`; the share is of all the task's votes.

    Returns
    -------
    Votes
        A worker's repeated vote for one label of one task counts once. Different labels by one worker on one task all
        count: they are ambiguous labels too.

    Raises
    ------
    ValueError
        For a table without votes, a column that is not there, a missing task or worker, a label that is not in
        `classes` or is a list, or arguments that are out of range or do not go together.

    Warns
    -----
    UserWarning
        When rows of a long table have no label, votes are repeated, tasks have no vote (they are left out, so take your
        features from `Votes.tasks`), or tasks have no label within the thresholds.

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
    if not isinstance(min_votes, (int, np.integer)) or min_votes < 1:
        raise ValueError(f"min_votes is {min_votes}; pass a whole number of at least 1")
    if not 0 <= min_share <= 1:
        raise ValueError(f"min_share is {min_share}; pass a share between 0 and 1")
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
    # Divided, because 7 / 100 >= 0.07 but 7 < 0.07 * 100.
    kept = (counts >= min_votes) & (counts / counts.sum(axis=1, keepdims=True) >= min_share)
    below = ~kept.any(axis=1)
    kept[below] = counts[below] == counts[below].max(axis=1, keepdims=True)
    for note in found.notes:
        warnings.warn(note, stacklevel=2)
    if below.any():
        warnings.warn(
            f"{below.sum()} tasks have no label with min_votes={min_votes} and min_share={min_share}, and keep their "
            "most voted ones; lower the thresholds, or drop the tasks",
            stacklevel=2,
        )
    agreement = Agreement(*_agree(counts), _agree_with_others(found, counts))
    tasks, workers = tuple(found.tasks), tuple(found.workers)
    return Votes(Candidates(kept, tuple(found.classes)), counts, tasks, workers, agreement, int(below.sum()))


def _count(found: Ballots) -> NDArray[np.int64]:
    shape = len(found.tasks), len(found.classes)
    counts = np.bincount(found.task * shape[1] + found.label, minlength=shape[0] * shape[1]).reshape(shape)
    counts.setflags(write=False)
    return counts


def _agree(counts: NDArray[np.int64]) -> tuple[float | None, float | None]:
    """Return observed agreement and Krippendorff's alpha; the notes of `Agreement` have the formulas."""
    votes = counts.sum(axis=1)
    counts, votes = counts[votes >= 2], votes[votes >= 2]
    n, by_label = int(votes.sum()), counts.sum(axis=0)
    if n == 0:
        return None, None
    observed = float(((counts * (counts - 1)).sum(axis=1) / (votes - 1)).sum() / n)
    by_chance = int((by_label * (by_label - 1)).sum())
    if by_chance == n * (n - 1):
        return observed, None
    return observed, 1 - (1 - observed) * (n * (n - 1)) / (n * (n - 1) - by_chance)


def _agree_with_others(found: Ballots, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each worker's agreement with the majority of the others.

    To leave a worker out takes one vote from each label the worker chose. Unless these were all the top labels of the
    task, the others' majority is among the top labels not chosen. If they were, the top labels are now one vote lower:
    tied with each other, and with the labels not chosen that were one vote lower before.
    """
    task, workers = found.task, len(found.workers)
    top = counts.max(axis=1)
    at_top, next_to_top = ((counts == level[:, None]).sum(axis=1)[task] for level in (top, top - 1))
    gap = top[task] - counts[task, found.label]
    pair = task * workers + found.worker
    group = np.cumsum(np.diff(pair, prepend=pair[0]) > 0)  # votes are sorted by task and worker
    own_top, own_next = (np.bincount(group, weights=gap == level)[group] for level in (0, 1))
    all_top = own_top == at_top
    tied = own_top + next_to_top - own_next
    others = ~(all_top & (top[task] == 1))
    credit = np.where(all_top & (gap == 0), 1 / np.maximum(tied, 1), 0.0)
    votes = np.bincount(found.worker[others], minlength=workers)
    credits = np.bincount(found.worker[others], weights=credit[others], minlength=workers)
    shares = np.divide(credits, votes, out=np.full(workers, np.nan), where=votes > 0)
    shares.setflags(write=False)
    return shares
