"""What held-out rows say about probabilities: their conformity scores, fold by fold, and the p-values they give."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from candidly import conformal

SCORES = {"best": conformal.best, "worst": conformal.worst}


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of held-out rows by networks that did not train on them.

    Attributes
    ----------
    scores : dict of Tensor, shape (K, M)
        By kind, "best" (a row's most probable candidate) and "worst" (its least probable): the scores of each fold's
        rows, ascending, padded with +inf.
    counts : Tensor of int, shape (K,)
        How many rows each fold holds out.

    Examples
    --------
    >>> p, S = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]), torch.eye(2)[[0, 1, 1]].bool()
    >>> calibration = Calibration.of(p, S, torch.tensor([0, 0, 0]), 1)
    >>> calibration.p_values(torch.tensor([[[0.7, 0.3]]]))
    tensor([[0.5000, 0.2500]])
    """

    scores: Mapping[str, Tensor]
    counts: Tensor

    @classmethod
    def of(cls, p: Tensor, S: Tensor, fold: Tensor, folds: int) -> "Calibration":
        """Score rows with probabilities p (N, C), of which those of fold -1 are left out."""
        found = {name: _by_fold(score(p, S), fold, folds) for name, score in SCORES.items()}
        return cls(found, torch.stack([(fold == k).sum() for k in range(folds)]))

    def p_values(self, p: Tensor, score: str = "best") -> Tensor:
        """Return the p-values (n, C) of new rows with each fold's probabilities p (K, n, C)."""
        return conformal.cross_p_values(self.scores[score], self.counts, p)

    def own_p_values(self, p: Tensor, S: Tensor, fold: Tensor, member: Tensor) -> Tensor:
        """Return the p-values (n, C) of rows against the others of their fold; 1 where there are none.

        `member` says which of them calibrate.
        """
        own, found = conformal.best(p, S), torch.ones_like(p)
        for k, count in enumerate(self.counts.tolist()):
            rows = fold == k
            if count:
                scores = self.scores["best"][k, :count]
                found[rows] = conformal.own_p_values(scores, p[rows], own[rows], member[rows])
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Return everything by name, for a file."""
        return {f"calibration.{name}": scores for name, scores in self.scores.items()} | {
            "calibration.counts": self.counts
        }

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor]) -> "Calibration":
        """Read what `tensors` returned, trusting nothing."""
        scores = {name: tensors[f"calibration.{name}"] for name in SCORES if f"calibration.{name}" in tensors}
        counts = tensors.get("calibration.counts")
        if counts is None or scores.keys() != SCORES.keys() or not all(_fit(one, counts) for one in scores.values()):
            raise ValueError("the scores of held-out rows are missing or damaged; save the model again")
        return cls(scores, counts)


def _fit(scores: Tensor, counts: Tensor) -> bool:
    """Whether these are scores of so many rows."""
    types = scores.dtype == torch.float32 and counts.dtype == torch.int64
    shapes = scores.ndim == 2 and counts.ndim == 1 and len(scores) == len(counts) > 0
    return types and shapes and bool(((counts >= 0) & (counts <= scores.shape[1])).all())


def _by_fold(scores: Tensor, fold: Tensor, folds: int) -> Tensor:
    parts = [scores[fold == k].sort().values for k in range(folds)]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=torch.inf)
