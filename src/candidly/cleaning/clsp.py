"""Candidate label set pruning.

S. He, C. Wang, G. Yang, L. Feng, *Candidate Label Set Pruning: A Data-centric Perspective for Deep Partial-label
Learning*, ICLR 2024.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from candidly.checks import arguments
from candidly.engine.contract import Cleaner
from candidly.engine.nets.neighbours import nearest
from candidly.engine.problem import Problem, as_tensor


@dataclass
class Clsp(Cleaner):
    """Candidate label set pruning (CLSP): before training, remove candidates that a row's neighbours do not share.

    With N_k(i) the k nearest rows by cosine similarity, a candidate j of row i gets ``O_ij = Σ_{v∈N_k(i)} (1 − S_vj)``
    down-votes. At most ``g_i = ⌈τ(|S_i| − 1)⌉`` candidates are removed: those with strictly more down-votes than the
    g_i-th largest, counted from 0. Ties and single candidates are kept, so no row becomes empty.

    Parameters
    ----------
    k : int
        Neighbours per row.
    tau : float
        Pruning strength in [0, 1].
    features : array (N, d), optional
        Features to search neighbours in; by default the problem's features.

    Notes
    -----
    The paper searches in features learned by a network; this library's default is raw features. The paper's settings
    (k, τ) are (150, 0.6) for uniform, (50, 0.6) for label-dependent and (5, 0.2) for instance-dependent candidates.

    Examples
    --------
    >>> Clsp(k=5).tau
    0.2
    """

    k: int = 10
    tau: float = 0.2
    features: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        arguments.settings(self, k={"least": 1}, tau={"least": 0, "most": 1})

    def take(self, rows: NDArray[np.intp]) -> "Clsp":
        """Return the cleaner for a subset of the rows."""
        return self if self.features is None else replace(self, features=self._given()[rows])

    def setup(self, problem: Problem) -> Problem:
        """Prune each run's sets, searching neighbours among its training rows."""
        problem.refuse_shards("CLSP searches nearest neighbours among all rows")
        X = problem.features
        if self.features is not None:
            X = self._given().to(problem.X.device, problem.dtype)
        if len(X) != len(problem.X):
            raise ValueError(
                f"features has {len(X)} rows but the problem has {len(problem.X)}; give features for every row"
            )
        unit = F.normalize(X.flatten(1), dim=-1)
        pruned = problem.sets.clone()
        runs_by_rows: dict[bytes, list[int]] = {}
        for run, rows in enumerate(problem.rows):
            runs_by_rows.setdefault(rows.cpu().numpy().tobytes(), []).append(run)
        for runs in runs_by_rows.values():  # those of several seeds or members with the same rows share the search
            rows = problem.rows[runs[0]]
            neighbours = nearest(unit[rows], min(self.k, len(rows) - 1))
            for run in runs:
                pruned[run, rows] = self.prune(pruned[run, rows], neighbours)
        return replace(problem, S=pruned)

    def _given(self) -> Tensor:
        """Return the features that were given, after checking them."""
        features = as_tensor(self.features, "features")
        if features.ndim < 2 or not features.isfinite().all():
            shape = tuple(features.shape)
            raise ValueError(f"features has shape {shape}, or NaN or infinite numbers; give finite numbers (rows, d)")
        return features

    def prune(self, S: Tensor, neighbours: Tensor) -> Tensor:
        """Return pruned S (n, C) given each row's neighbours (n, k), without an n × k × C array."""
        votes = torch.zeros(S.shape, dtype=torch.int32, device=S.device)
        for column in neighbours.unbind(1):
            votes += ~S[column]
        votes.masked_fill_(~S, 0)
        most = torch.ceil(self.tau * (S.sum(-1) - 1).double() - 1e-9).long()  # 1e-9: τ = 0.2 times 5 is 1, not 1 + ulp
        limit = votes.sort(-1, descending=True).values.gather(-1, most.unsqueeze(-1))
        return S & (votes <= limit)
