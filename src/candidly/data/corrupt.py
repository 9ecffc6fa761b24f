"""Synthetic candidate sets, generated from true labels and a seed.

All sets come from one uniform number per row and class, U = Generator(PCG64(seed)).random((n, C)): S = P > U, with
P = 1 at the true label y. U < 1, so the true label is always a candidate, except in noisy sets. Where rows are drawn
again, whole rows take the generator's next numbers, in ascending order, until all are accepted. Numbers are drawn in
blocks of rows, which does not change the result. The generators differ in P at the wrong labels j ≠ y:

**Uniform flips** (`uniform`; Lv et al., ICML 2020): P_j = q. The CIFAR-10 candidate sets of Fuchs and Kalinke, UAI
2025, were published in this form, with q = 0.1.

**Hierarchical** (`hierarchical`; Wang et al., PiCO, ICLR 2022): P_j = q if j is in the superclass of y, else 0. The
CIFAR-100 sets of Fuchs and Kalinke were published in this form, with q = 0.1 and 20 superclasses of 5 classes each.

**Uniform over supersets** (`uniform_superset`; Feng et al., NeurIPS 2020): each of the 2^(C−1) − 1 sets that hold y and
are not all classes is equally likely. P_j = 1/2, and full rows are drawn again.

**Label-dependent** (`label_dependent`): P_j = π_k at j = (y + k) mod C, k = 1, 2, …, and 0 elsewhere.

**Noisy** (`noisy`): P_y = 1 − η and P_j = q, and empty rows are drawn again. This is the distribution of independent
labels given that there is at least one: with w wrong labels in S and a = 1 − η(1 − q)^(C−1),

    Pr(S) = (1 − η if y ∈ S, else η) · q^w (1 − q)^(C−1−w) / a,   Pr(y ∈ S) = (1 − η)/a,   Pr(j ∈ S) = q/a.

Missing true labels are also studied by Lv et al., 2021 (On the Robustness of Average Losses for Partial-Label
Learning), and by Lian et al., 2022 (IRNet); the distribution here is not taken from them.

**Instance-dependent** (`instance_dependent`; Xu et al., NeurIPS 2021): with g a network trained on the true
labels, u_j = g_j(x) at the wrong labels and 0 at the true one, u ← u / max_j u, and then

- ``rate=None``, the text of Fuchs and Kalinke: P_j = u_j, so at least one wrong label is always added;
- ``rate=r``, their experiments (r = 0.8): P_j = min(1, r·u_j / mean_j u), the mean over all C entries. Elsewhere in the
  field r = 0.4, and 0.04 for 100 or more classes.

Deviation: where all wrong labels have probability 0, none is added (the published code: up to 1e-10, dividing by 1).

**Long-tailed** (`long_tailed`; the exponential profile of Cui et al., CVPR 2019) selects rows instead of making sets:
class c keeps n_max·ρ^(c/(C−1)) of them, n_max the size of the largest class. Pass y[rows] to any of the generators.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from candidly.checks import machine
from candidly.checks.arguments import integer, items, real

if TYPE_CHECKING:
    from candidly.engine.nets.build import Factory
    from candidly.engine.recipe import Recipe

__all__ = [
    "hierarchical",
    "instance_dependent",
    "instance_dependent_from",
    "label_dependent",
    "long_tailed",
    "noisy",
    "uniform",
    "uniform_superset",
]

Rows = NDArray[np.intp]  # row numbers or labels
BLOCK = 2**16  # entries drawn at a time: half a megabyte, which fits into the processor's cache


def uniform(y: ArrayLike, num_classes: int, q: float, seed: int) -> NDArray[np.bool_]:
    """Add each wrong label independently with probability q.

    Parameters
    ----------
    y : array of int, shape (n,)
        True labels, 0 … C−1.
    num_classes : int
        Number of classes C.
    q : float
        Probability of each wrong label, 0 to 1.
    seed : int
        Seed of the PCG64 generator.

    Returns
    -------
    ndarray of bool, shape (n, C)
        Candidates; the true label is always one.

    Examples
    --------
    >>> uniform([0, 2], num_classes=4, q=0.5, seed=0).astype(int)
    array([[1, 1, 1, 1],
           [0, 0, 1, 0]])
    """
    q = _probability("q", q)
    y, num_classes = _labels(y, num_classes)
    return _draw(lambda rows: q, y, num_classes, seed)


def hierarchical(y: ArrayLike, superclasses: ArrayLike, q: float, seed: int) -> NDArray[np.bool_]:
    """Add each wrong label in the superclass of the true label with probability q, and no others.

    Parameters
    ----------
    y, q, seed
        As in `uniform`.
    superclasses : array of int or str, shape (C,)
        ``superclasses[j]`` is the superclass of class j.

    Returns
    -------
    ndarray of bool, shape (n, C)
        Candidates; the true label is always one.

    Examples
    --------
    >>> hierarchical([0, 2], superclasses=["pet", "pet", "car", "car"], q=1, seed=0).astype(int)
    array([[1, 1, 0, 0],
           [0, 0, 1, 1]])
    """
    q = _probability("q", q)
    parents = np.asarray(superclasses)
    if parents.ndim != 1 or parents.dtype.kind not in "iuU":
        found = f"shape {parents.shape} and dtype {parents.dtype}"
        raise ValueError(f"superclasses has {found}; pass one integer or name per class")
    y, _ = _labels(y, len(parents))
    return _draw(lambda rows: q * (parents[y[rows], None] == parents), y, len(parents), seed)


def uniform_superset(y: ArrayLike, num_classes: int, seed: int) -> NDArray[np.bool_]:
    """Draw each set uniformly from all sets that hold the true label, except the set of all classes.

    Parameters
    ----------
    y, num_classes, seed
        As in `uniform`.

    Returns
    -------
    ndarray of bool, shape (n, C)
        Candidates; the true label is always one, and one label is always missing.

    Examples
    --------
    >>> uniform_superset([0, 2], num_classes=4, seed=0).astype(int)
    array([[1, 0, 0, 1],
           [0, 0, 1, 0]])
    """
    y, num_classes = _labels(y, num_classes, least=2)
    return _draw(lambda rows: 0.5, y, num_classes, seed, refused=num_classes)


def label_dependent(
    y: ArrayLike, num_classes: int, seed: int, probabilities: Sequence[float] = (0.5, 0.4, 0.3, 0.2, 0.1)
) -> NDArray[np.bool_]:
    """Add the classes that follow the true one, each with its own probability.

    Parameters
    ----------
    y, num_classes, seed
        As in `uniform`.
    probabilities : sequence of float
        Probabilities of the classes y + 1, y + 2, … (mod C); fewer than C of them. Other classes are never added.

    Returns
    -------
    ndarray of bool, shape (n, C)
        Candidates; the true label is always one.

    Examples
    --------
    >>> label_dependent([0, 3], num_classes=4, seed=0, probabilities=(1, 0.5)).astype(int)
    array([[1, 1, 1, 0],
           [1, 0, 0, 1]])
    """
    wanted = "a list of probabilities, of the classes that follow the true one"
    listed = items("probabilities", probabilities, wanted)
    chances = np.array([_probability("one of probabilities", value) for value in listed])
    y, num_classes = _labels(y, num_classes)
    if len(chances) >= num_classes:
        raise ValueError(f"{len(chances)} probabilities for {num_classes} classes; pass at most {num_classes - 1}")
    # P by distance from y. Negative indices count from the end, which is the distance mod C.
    at = np.zeros(num_classes)
    at[1 : len(chances) + 1] = chances
    return _draw(lambda rows: at[np.arange(num_classes) - y[rows, None]], y, num_classes, seed)


def noisy(y: ArrayLike, num_classes: int, q: float, eta: float, seed: int) -> NDArray[np.bool_]:
    """Add each wrong label with probability q and leave the true one out with probability eta.

    Empty rows are drawn again, so the true label is missing less often than eta; the module docstring gives the
    distribution.

    Parameters
    ----------
    y, num_classes, q, seed
        As in `uniform`.
    eta : float
        Probability of leaving the true label out, 0 to 1. Values of q and eta for which fewer than one draw in a
        thousand is non-empty are refused.

    Returns
    -------
    ndarray of bool, shape (n, C)
        Candidates, at least one per row.

    Examples
    --------
    >>> noisy([0, 2], num_classes=4, q=0.5, eta=0.5, seed=0).astype(int)
    array([[0, 1, 1, 1],
           [0, 0, 0, 1]])
    """
    q = _probability("q", q)
    eta = _probability("eta", eta)
    y, num_classes = _labels(y, num_classes)
    if 1 - eta * (1 - q) ** (num_classes - 1) < 1e-3:
        raise ValueError(f"with q = {q} and eta = {eta} nearly all rows are empty; raise q or lower eta")
    return _draw(lambda rows: q, y, num_classes, seed, kept=1 - eta, refused=0)


def long_tailed(y: ArrayLike, num_classes: int, rho: float, seed: int) -> Rows:
    """Select rows so that class sizes decrease exponentially from the first class to the last.

    Parameters
    ----------
    y, num_classes
        As in `uniform`.
    rho : float
        Size of the last class relative to the first, above 0 and at most 1; 0.01 is common.
    seed : int
        Determines which rows of a class are kept.

    Returns
    -------
    ndarray of int
        The rows to keep, ascending. Class c keeps n_max·rho^(c/(C−1)) rows, rounded down: at most all its rows, and at
        least one.

    Examples
    --------
    >>> y = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2])
    >>> rows = long_tailed(y, num_classes=3, rho=0.25, seed=0)
    >>> np.bincount(y[rows]).tolist()
    [4, 2, 1]
    """
    rho = real("rho", rho, above=0, most=1)
    y, num_classes = _labels(y, num_classes, least=2)
    # A separate random stream: with the same seed, sets drawn for the rows must not depend on which rows are kept.
    U = _generator(seed, 1).random(len(y))
    sizes = np.bincount(y, minlength=num_classes)
    # 100 · 0.29 is 28.999999999999996: the small term makes up for such rounding errors.
    wished = np.floor(sizes.max() * rho ** (np.arange(num_classes) / (num_classes - 1)) + 1e-9)
    order = np.lexsort((U, y))
    rank = np.arange(len(y)) - (np.cumsum(sizes) - sizes)[y[order]]
    return np.sort(order[rank < np.maximum(wished, 1)[y[order]]])


def instance_dependent_from(p: ArrayLike, y: ArrayLike, seed: int, rate: float | None = None) -> NDArray[np.bool_]:
    """Add wrong labels that are likely according to a supervised network.

    Parameters
    ----------
    p : array of float, shape (n, C)
        Probabilities of a network trained on the true labels.
    y, seed
        As in `uniform`.
    rate : float, optional
        None: the most likely wrong label is always added, the others with their probability relative to it. A number:
        the mean of the relative probabilities over all classes, before they are clipped to 1.

    Returns
    -------
    ndarray of bool, shape (n, C)
        Candidates; the true label is always one.

    Examples
    --------
    >>> p = [[0.8, 0.2, 0.0], [0.1, 0.1, 0.8]]
    >>> instance_dependent_from(p, [0, 2], seed=0).astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    p = np.asarray(p)
    if p.ndim != 2 or p.dtype.kind not in "biuf":
        raise ValueError(f"p has shape {p.shape} and dtype {p.dtype}; pass probabilities of shape (rows, classes)")
    y, _ = _labels(y, p.shape[1])
    if len(p) != len(y):
        raise ValueError(f"p has {len(p)} rows and y has {len(y)}; pass one row of probabilities per label")
    if p.size and not (p.min() >= 0 and p.max() < np.inf):
        wrong = np.flatnonzero(~((p >= 0) & (p < np.inf)).all(axis=1))[0]
        raise ValueError(f"row {wrong} of p is {p[wrong]}; pass probabilities, neither negative nor NaN")
    rate = None if rate is None else real("rate", rate, above=0)

    def law(rows: Rows) -> NDArray[np.float64]:
        u = np.array(p[rows], dtype=np.float64, order="C")
        u[np.arange(len(rows)), y[rows]] = 0
        u /= _or_one(u.max(axis=1, keepdims=True))
        if rate is not None:
            u = np.minimum(1, rate * u / _or_one(u.mean(axis=1, keepdims=True)))
        return u

    return _draw(law, y, p.shape[1], seed)


def instance_dependent(
    X: ArrayLike,
    y: ArrayLike,
    num_classes: int,
    seed: int,
    *,
    rate: float | None = None,
    net: "str | Factory" = "mlp",
    recipe: "Recipe | str | None" = None,
    device: str = "auto",
    shift: ArrayLike | None = None,
    scale: ArrayLike | None = None,
) -> NDArray[np.bool_]:
    """Train a network on the true labels, and add the wrong labels that it finds likely.

    Parameters
    ----------
    X : array (n, ...)
        Features.
    y, num_classes
        As in `uniform`.
    seed : int
        Seed of the network and of the sets.
    rate : float or None
        0.8 is the value of the published experiments, None the formula of the paper; see `instance_dependent_from`.
    net, device
        The network and the device on which to train it, as in `candidly.fit`.
    recipe : Recipe or str, optional
        How to train the network; by default as published: 100 epochs of plain gradient descent with learning rate 0.001
        and batches of 256. For a few thousand rows this is far too little training, and their sets hardly depend on
        the instance.
    shift, scale : array, optional
        The input of the network is ``(x - shift) * scale``, as in `Problem.of`.

    Returns
    -------
    bool array (n, num_classes)

    Examples
    --------
    >>> from candidly.engine.recipe import Recipe
    >>> X, y = [[0.0], [0.1], [0.9], [1.0]], [0, 0, 1, 1]
    >>> instance_dependent(X, y, 3, seed=0, recipe=Recipe(epochs=1), device="cpu")[range(4), y].all().item()
    True
    """
    from candidly.engine.fitting import fit
    from candidly.engine.problem import Problem
    from candidly.engine.recipe import Recipe
    from candidly.methods import Supervised

    labels, num_classes = _labels(y, num_classes)
    S = np.zeros((len(labels), num_classes), dtype=bool)
    S[np.arange(len(labels)), labels] = True
    if np.shape(X)[:1] != labels.shape:
        raise ValueError(f"X has shape {np.shape(X)} and y has {len(labels)} labels; pass one label per row of X")
    problem = Problem.of(X, S, seeds=[seed], shift=shift, scale=scale)
    published = Recipe("generator", 100, 256, optimiser="sgd", schedule="constant", max_lr=1e-3)
    model = fit(problem, Supervised(), None, recipe or published, net=net, device=device)
    return instance_dependent_from(model.predict(X)[0].double().numpy(), labels, seed, rate)


def _probability(name: str, value: float) -> float:
    return real(name, value, least=0, most=1)


def _labels(y: ArrayLike, num_classes: int, least: int = 1) -> tuple[Rows, int]:
    """Return labels and the number of classes, after checking them and the memory that the sets need."""
    num_classes = integer("num_classes", num_classes, least=least)
    if isinstance(y, np.ma.MaskedArray) and np.ma.getmaskarray(y).any():
        raise ValueError("y is a masked array with masked entries; fill them, or drop their rows")
    y = np.asarray(y)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(f"y has shape {y.shape} and dtype {y.dtype}; pass integer labels of shape (rows,)")
    wrong = np.flatnonzero((y < 0) | (y >= num_classes))
    if wrong.size:
        raise ValueError(f"row {wrong[0]} has label {y[wrong[0]]}; labels must be from 0 to {num_classes - 1}")
    need = machine.Need(len(y) * num_classes, "use a smaller num_classes, or fewer rows")
    machine.require({f"the sets of {len(y)} rows and {num_classes} classes": need}, machine.available_memory(), "cpu")
    return y.astype(np.intp, copy=False), num_classes


def _or_one(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values, with 1 in place of 0, to divide by them."""
    return np.where(value > 0, value, 1)


def _generator(seed: int, *key: int) -> np.random.Generator:
    seed = integer("seed", seed, least=0)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def _draw(
    law: Callable[[Rows], ArrayLike], y: Rows, num_classes: int, seed: int, kept: float = 1, refused: int | None = None
) -> NDArray[np.bool_]:
    """Draw S = P > U, where P is `law(rows)` with `kept` at y. Sets of size `refused` are drawn again."""
    generator = _generator(seed)
    S = np.empty((len(y), num_classes), dtype=bool)
    rows = np.arange(len(y))
    while rows.size:
        again = [rows[:0]]
        for block in np.array_split(rows, -(-rows.size * S.shape[1] // BLOCK)):
            P = np.empty((len(block), num_classes))
            P[:] = law(block)
            P[np.arange(len(block)), y[block]] = kept
            S[block] = drawn = generator.random(P.shape) < P
            if refused is not None:
                again.append(block[np.count_nonzero(drawn, axis=1) == refused])
        rows = np.concatenate(again)
    return S
