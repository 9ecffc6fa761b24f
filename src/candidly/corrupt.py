"""Seeded synthetic candidate sets, made from true labels.

All functions draw one uniform number per row and class, U = Generator(PCG64(seed)).random((n, C)), and return
S = P > U with P = 1 at the true label; U < 1, so the true label is always a candidate. They differ in P at the wrong
labels j ≠ y.

**Uniform flips** (`uniform`; Lv et al., ICML 2020): P_j = q. The CIFAR-10 candidate sets of Fuchs and Kalinke, UAI
2025, were published in this form, with q = 0.1.

**Instance-dependent** (`instance_dependent`; Xu et al., NeurIPS 2021): with g a network trained on the true
labels, u_j = g_j(x) at the wrong labels and 0 at the true one, u ← u / max_j u, and then

- ``rate=None``, the text of Fuchs and Kalinke: P_j = u_j, so at least one wrong label is always added;
- ``rate=r``, their experiments (r = 0.8): P_j = min(1, r·u_j / mean_j u), the mean over all C entries. Elsewhere in the
  field r = 0.4, and 0.04 for 100 or more classes.

Deviation: a row whose wrong labels all have probability 0 gets no wrong label, where the formula would be 0/0.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from candidly.nets import Factory
    from candidly.recipe import Recipe

__all__ = ["instance_dependent", "instance_dependent_from", "uniform"]


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
    if not 0 <= q <= 1:
        raise ValueError(f"q is {q}; pass a probability from 0 to 1")
    y = _labels(y, num_classes)
    P = np.full((len(y), num_classes), q, dtype=np.float64)
    return _draw(P, y, seed)


def instance_dependent_from(p: ArrayLike, y: ArrayLike, seed: int, rate: float | None = None) -> NDArray[np.bool_]:
    """Add wrong labels that a supervised network finds likely.

    Parameters
    ----------
    p : array of float, shape (n, C)
        Probabilities of a network trained on the true labels.
    y : array of int, shape (n,)
        True labels, 0 … C−1.
    seed : int
        Seed of the PCG64 generator.
    rate : float, optional
        None: the most likely wrong label is always added, the others with their probability relative to it. A number:
        mean of the relative probabilities over all classes, before they are clipped to 1.

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
    u = np.array(p, dtype=np.float64)
    if u.ndim != 2:
        raise ValueError(f"p has shape {u.shape}; pass probabilities of shape (rows, classes)")
    y = _labels(y, u.shape[1])
    if len(u) != len(y):
        raise ValueError(f"p has {len(u)} rows and y has {len(y)}; pass one row of probabilities per label")
    wrong = np.flatnonzero(~(np.isfinite(u) & (u >= 0)).all(axis=1))
    if wrong.size:
        raise ValueError(f"row {wrong[0]} of p is {u[wrong[0]]}; pass probabilities, neither negative nor NaN")
    if rate is not None and not 0 < rate < np.inf:
        raise ValueError(f"rate is {rate}; pass a number above 0, or None for the unscaled form")
    u[np.arange(len(y)), y] = 0
    u /= _or_one(u.max(axis=1, keepdims=True))
    if rate is not None:
        u = np.minimum(1, rate * u / _or_one(u.mean(axis=1, keepdims=True)))
    return _draw(u, y, seed)


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
) -> NDArray[np.bool_]:
    """Train a network on the true labels and make what it confuses candidates of each other.

    Parameters
    ----------
    X : array (n, ...)
        Features.
    y : int array (n,)
        True labels.
    num_classes : int
        How many classes there are.
    seed : int
        Of the network and of the sets.
    rate : float or None
        0.8 is the published experiments' form, None the paper's text; see `instance_dependent_from`.
    net : str or callable
        The network, as in `candidly.fit`.
    recipe : Recipe or str, optional
        How to train it; left out, as published: 100 epochs of plain gradient descent at 0.001 in batches of 256. That
        is far too little for a few thousand rows, whose sets then hardly depend on the instance.
    device : str
        Where to train it.

    Returns
    -------
    bool array (n, num_classes)
    """
    from candidly.engine import fit
    from candidly.methods import Supervised
    from candidly.problem import Problem
    from candidly.recipe import Recipe

    labels = _labels(y, num_classes)
    problem = Problem.of(X, np.eye(num_classes, dtype=bool)[labels], seeds=[seed])
    published = Recipe("generator", 100, 256, optimiser="sgd", schedule="constant", max_lr=1e-3)
    model = fit(problem, Supervised(), None, recipe or published, net=net, device=device, progress=False)
    return instance_dependent_from(model.predict(X)[0].double().numpy(), labels, seed, rate)


def _labels(y: ArrayLike, num_classes: int) -> NDArray[np.integer[Any]]:
    y = np.asarray(y)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(f"y has shape {y.shape} and dtype {y.dtype}; pass integer labels of shape (rows,)")
    wrong = np.flatnonzero((y < 0) | (y >= num_classes))
    if wrong.size:
        raise ValueError(f"row {wrong[0]} has label {y[wrong[0]]}; labels must be from 0 to {num_classes - 1}")
    return y


def _or_one(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divisors for rows that may be all 0."""
    return np.where(value > 0, value, 1)


def _draw(P: NDArray[np.float64], y: NDArray[np.integer[Any]], seed: int) -> NDArray[np.bool_]:
    P[np.arange(len(y)), y] = 1
    U = np.random.Generator(np.random.PCG64(seed)).random(P.shape)
    return P > U
