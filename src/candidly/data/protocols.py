"""How datasets are prepared and split.

`PROTOCOLS` has three of them:

- ``default``: all classes are kept, features are standardised on the training rows of each run, and a random 80 % of
  the rows are training rows.
- ``uai2025``: the protocol of the experiments of T. Fuchs and F. Kalinke, *Partial-Label Learning with Conformal
  Candidate Cleaning*, UAI 2025, so that results can be compared with the published ones, seed by seed and row by row.
  Use it for that purpose only: the classes of real-world datasets are chosen with the true labels, and features are
  scaled with the test rows.
- ``grouped``: all classes are kept, features are scaled to [0, 1] over the training rows of each run, and whole groups
  of rows are test rows, about 20 % of the rows: no row of a test group trains. It needs a dataset with groups.

All use the publisher's split if there is one. All keep images as bytes and flatten grey images. `scaling` returns how
networks scale them: to numbers from 0 to 1 or, for colour images with a publisher's split, to channels with mean 0 and
standard deviation 1 over the training images.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from candidly.checks.arguments import instance, integer
from candidly.data.dataset import Dataset
from candidly.data.published.registry import REGISTRY

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Protocol:
    """How to prepare and split a dataset.

    Attributes
    ----------
    name
        Its name in commands and results.
    prepare
        Returns a loaded dataset ready for training.
    split
        Returns training and test rows of a prepared dataset for a seed, if the publisher fixed no split.
    inputs
        How networks see the features of tables: as `prepare` returns them, standardised, or scaled to [0, 1], the last
        two over the training rows of each run.
    grouped
        Whether test rows share no group with training rows; the dataset must have groups.

    Examples
    --------
    >>> toy = Dataset("toy", np.zeros((10, 1)), np.eye(2, dtype=bool)[[0, 1] * 5], None, ("a", "b"))
    >>> train, test = PROTOCOLS["default"].rows(toy, seed=0)
    >>> len(train), len(test)
    (8, 2)
    """

    name: str
    prepare: Callable[[Dataset], Dataset]
    split: Callable[[Dataset, int], tuple[Rows, Rows]]
    inputs: Literal["prepared", "standardised", "unit range"]
    grouped: bool = False

    def check(self, dataset: Dataset) -> None:
        """Raise ValueError if the protocol cannot split the dataset because of its groups."""
        _check(dataset)
        if not self.grouped:
            return
        if dataset.groups is None:
            known = ", ".join(name for name, entry in REGISTRY.items() if entry.bags)
            raise ValueError(
                f"dataset {dataset.name!r} has no groups, which the protocol {self.name!r} splits by; published "
                f"datasets with groups are {known}; in your own file, add a column 'groups' (.npz: an array 'groups') "
                "with the group of each row"
            )
        if dataset.num_train is None:
            if len(np.unique(dataset.groups)) < 2:
                raise ValueError(
                    f"the rows of {dataset.name!r} form a single group; at least 2 are needed to split by groups"
                )
            return
        train, test = np.split(dataset.groups, [dataset.num_train])
        both = np.intersect1d(train, test)
        if len(both):
            raise ValueError(
                f"in {dataset.name!r}, group {both[0]} has both training and test rows of the publisher's split; "
                "correct the groups, or set num_train to None to split by groups alone"
            )

    def rows(self, dataset: Dataset, seed: int) -> tuple[Rows, Rows]:
        """Return training and test rows for a seed; if the publisher fixed them, they are the same for all seeds."""
        self.check(dataset)
        seed = integer("seed", seed, least=0)
        if dataset.num_train is not None:
            return np.arange(dataset.num_train), np.arange(dataset.num_train, len(dataset.X))
        return self.split(dataset, seed)


def default(dataset: Dataset) -> Dataset:
    """Flatten grey images; keep everything else unchanged.

    Examples
    --------
    >>> images = np.full((3, 2, 2), 255, dtype=np.uint8)
    >>> default(Dataset("toy", images, np.eye(3, dtype=bool), np.arange(3), ("a", "b", "c"))).X.tolist()[0]
    [255, 255, 255, 255]
    """
    _check(dataset)
    grey = dataset.X.dtype == np.uint8 and dataset.X.ndim == 3
    return replace(dataset, X=dataset.X.reshape(len(dataset.X), -1)) if grey else dataset


def default_split(dataset: Dataset, seed: int) -> tuple[Rows, Rows]:
    """Split the rows at random into 80 % training rows and the rest.

    Examples
    --------
    >>> toy = Dataset("toy", np.zeros((5, 1)), np.eye(5, dtype=bool), None, tuple("abcde"))
    >>> train, test = default_split(toy, seed=1)
    >>> sorted([*train.tolist(), *test.tolist()])
    [0, 1, 2, 3, 4]
    """
    n = len(dataset.X)
    cut = int(0.8 * n)
    if cut == 0:
        raise ValueError(f"{n} rows cannot be split into training and test rows; pass at least 2")
    rows = np.random.Generator(np.random.PCG64(seed)).permutation(n)
    return rows[:cut], rows[cut:]


def grouped_split(dataset: Dataset, seed: int) -> tuple[Rows, Rows]:
    """Split the rows so that no group has both training and test rows.

    Groups are shuffled. The first of them are test groups, as many as bring the test rows closest to 20 %.

    Returns
    -------
    train, test
        Row numbers, in ascending order.

    Examples
    --------
    >>> groups = np.array([0, 0, 1, 1, 1, 2, 3, 3, 3, 4])
    >>> toy = Dataset("toy", np.zeros((10, 1)), np.eye(2, dtype=bool)[groups % 2], None, ("a", "b"), groups=groups)
    >>> train, test = grouped_split(toy, seed=0)
    >>> groups[train].tolist(), groups[test].tolist()
    ([0, 0, 1, 1, 1, 3, 3, 3], [2, 4])
    """
    assert dataset.groups is not None, "the protocol checks it"
    _, group, sizes = np.unique(dataset.groups, return_inverse=True, return_counts=True)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(sizes))
    # At least one group tests and one trains.
    tested = np.cumsum(sizes[order])[:-1]
    cut = int(np.argmin(np.abs(tested - 0.2 * len(group)))) + 1
    is_test = np.isin(group, order[:cut])
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def scaling(dataset: Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]] | tuple[None, None]:
    """Return the shift and scale of images, for `Problem.of`; None for tables.

    Channels are standardised over the publisher's training images. Without a publisher's split, runs have different
    training images, and pixels are divided by 255.

    Examples
    --------
    >>> images = np.array([[[0, 4]], [[0, 4]], [[9, 9]]], dtype=np.uint8).reshape(3, 1, 1, 2)
    >>> toy = Dataset("toy", images, np.eye(3, dtype=bool), np.arange(3), ("a", "b", "c"), num_train=2)
    >>> [array.tolist() for array in scaling(toy)]
    [[[[2.0]]], [[[0.5]]]]
    """
    _check(dataset)
    if dataset.X.dtype != np.uint8:
        return None, None
    if dataset.X.ndim < 4 or dataset.num_train is None:
        return np.zeros(()), np.array(1 / 255)
    train = dataset.X[: dataset.num_train]
    n = train[:, 0].size
    # Sums of integers are exact and need no copy of the images. As Python integers, their squares do not overflow.
    total = train.sum(axis=(0, 2, 3), dtype=np.int64).astype(object)
    squares = np.einsum("nchw,nchw->c", train, train, dtype=np.int64).astype(object)
    spread = np.sqrt((n * squares - total * total).astype(float)) / n
    scale = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1), 1 / 255)
    return (total / n).astype(float)[:, None, None], scale[:, None, None]


def uai2025(dataset: Dataset) -> Dataset:
    """Prepare a dataset as the UAI 2025 experiments did: images as in `default`, real-world datasets as follows.

    K is the number of most frequent true classes needed to exceed 99 % of the rows. The K classes that are most often
    candidates are kept, in their order, with the rows whose true class is one of them. Each feature is scaled to [0, 1]
    over the rows that are kept; constant features are dropped.

    Parameters
    ----------
    dataset
        A dataset with true labels, as `candidly.data.load` returns it.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([0, 2, 2, 0])
    >>> X = np.array([[1.0, 7], [3, 7], [5, 7], [2, 7]])
    >>> prepared = uai2025(Dataset("toy", X, np.eye(3, dtype=bool)[y], y, ("a", "b", "c")))
    >>> prepared.classes, prepared.y.tolist(), prepared.X.ravel().tolist()
    (('a', 'c'), [0, 1, 1, 0], [0.0, 0.5, 1.0, 0.25])
    """
    _check(dataset)
    if dataset.X.dtype == np.uint8:
        return default(dataset)
    if dataset.X.ndim != 2:
        raise ValueError(
            f"X of {dataset.name!r} has shape {dataset.X.shape}; uai2025 takes a matrix, or images of bytes"
        )
    if dataset.y is None:
        raise ValueError(f"dataset {dataset.name!r} has no true labels, but uai2025 chooses classes by them; set its y")

    most_frequent_first = np.sort(np.bincount(dataset.y, minlength=len(dataset.classes)))[::-1]
    num_classes = int(np.argmax(np.cumsum(most_frequent_first) / len(dataset.y) > 0.99)) + 1
    # As published: NumPy's default sort, which is not stable, decides between classes with equal counts.
    kept = np.sort(np.argsort(np.count_nonzero(dataset.S, axis=0))[-num_classes:])
    rows = np.isin(dataset.y, kept)

    X = dataset.X[rows]
    low = X.min(axis=0)
    span = np.ptp(X, axis=0)
    # As published: a feature that varies by less than 1e-10 counts as constant.
    X = (X - low) / np.where(span < 1e-10, 1.0, span)
    return replace(
        dataset,
        X=X[:, X.std(axis=0) > 1e-10],
        S=dataset.S[np.ix_(rows, kept)],
        y=np.searchsorted(kept, dataset.y[rows]).astype(np.int64),
        classes=tuple(dataset.classes[j] for j in kept),
        groups=None if dataset.groups is None else dataset.groups[rows],
    )


def uai2025_split(dataset: Dataset, seed: int) -> tuple[Rows, Rows]:
    """Split the rows into training and test rows, as the UAI 2025 experiments did for this seed.

    The training rows are 80 %, rounded down to a multiple of 16.

    Returns
    -------
    train, test
        Row numbers, shuffled.

    Examples
    --------
    >>> toy = Dataset("toy", np.zeros((50, 1)), np.eye(2, dtype=bool)[[0, 1] * 25], None, ("a", "b"))
    >>> train, test = uai2025_split(toy, seed=0)
    >>> len(train), len(test)
    (32, 18)
    """
    n = len(dataset.X)
    train_size = int(0.8 * n) // 16 * 16
    if train_size == 0:
        raise ValueError(
            f"{n} rows give no training rows, because their number is a multiple of 16; pass at least 20 rows"
        )
    generator = np.random.Generator(np.random.PCG64(seed))
    train = generator.choice(n, train_size, replace=False, shuffle=False)
    test = np.setdiff1d(np.arange(n), train)
    generator.shuffle(train)
    generator.shuffle(test)
    return train, test


def _check(dataset: Dataset) -> None:
    instance("dataset", dataset, Dataset, "a Dataset, as candidly.data.load returns it")


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("default", default, default_split, "standardised"),
        Protocol("uai2025", uai2025, uai2025_split, "prepared"),
        Protocol("grouped", default, grouped_split, "unit range", grouped=True),
    )
}
