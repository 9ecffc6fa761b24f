"""How published experiments prepared and split their datasets.

`uai2025` and `uai2025_split` follow the experiments of T. Fuchs and F. Kalinke, *Partial-Label Learning with Conformal
Candidate Cleaning*, UAI 2025, so that results pair with the published ones, seed by seed and row by row. They are for
that only: the classes are chosen with the true labels, and the scaling sees the test rows.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from candidly.data.dataset import Dataset


def uai2025(dataset: Dataset) -> Dataset:
    """Restrict a real-world dataset to its main classes and scale its features, as the UAI 2025 experiments did.

    K is the number of most frequent true classes needed to exceed 99 % of the rows. The K classes that are candidates
    most often stay, in their order, with the rows whose true class is among them. Each feature is scaled to [0, 1] over
    the rows that stay; constant features are dropped.

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
    if dataset.y is None:
        raise ValueError(f"dataset {dataset.name!r} has no true labels, but uai2025 chooses classes by them; set its y")

    most_frequent_first = np.sort(np.bincount(dataset.y, minlength=len(dataset.classes)))[::-1]
    num_classes = int(np.argmax(np.cumsum(most_frequent_first) / len(dataset.y) > 0.99)) + 1
    # Published: the default kind of sort, which is not stable; it decides between classes with equal counts.
    kept = np.sort(np.argsort(np.count_nonzero(dataset.S, axis=0))[-num_classes:])
    rows = np.isin(dataset.y, kept)

    X = dataset.X[rows]
    low, span = X.min(axis=0), np.ptp(X, axis=0)
    # Published: a feature that moves by less than 1e-10 counts as constant.
    X = (X - low) / np.where(span < 1e-10, 1.0, span)
    return replace(
        dataset,
        X=X[:, X.std(axis=0) > 1e-10],
        S=dataset.S[np.ix_(rows, kept)],
        y=np.searchsorted(kept, dataset.y[rows]).astype(np.int64),
        classes=tuple(dataset.classes[j] for j in kept),
    )


def uai2025_split(n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split n rows into training and test rows, as the UAI 2025 experiments did for this seed.

    The training rows are 80 %, rounded down to a multiple of 16.

    Returns
    -------
    train, test
        Row numbers, shuffled.

    Examples
    --------
    >>> train, test = uai2025_split(50, seed=0)
    >>> len(train), len(test)
    (32, 18)
    """
    train_size = int(0.8 * n) // 16 * 16
    if train_size == 0:
        raise ValueError(
            f"{n} rows leave none to train on, because training rows come in multiples of 16; pass at least 20"
        )
    generator = np.random.Generator(np.random.PCG64(seed))
    train = generator.choice(n, train_size, replace=False, shuffle=False)
    test = np.setdiff1d(np.arange(n), train)
    generator.shuffle(train)
    generator.shuffle(test)
    return train, test
