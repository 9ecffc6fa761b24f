"""What `fit` records about the training rows, for audits and reports."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from candidly.candidates import Candidates


@dataclass(frozen=True, eq=False)
class FitRecord:
    """What a `candidly.PartialLabelClassifier` knows about its training rows after `fit`; it is not saved.

    Attributes
    ----------
    candidates : Candidates
        The candidates that were passed to `fit`, before cleaning.
    log_p : Tensor, shape (n, C)
        Log-probabilities of the training rows. Held-out rows are scored by networks that were not trained on them.
    held_out : Tensor of int, shape (m,)
        The numbers of the held-out rows.
    parameters : dict
        The constructor arguments at the time of `fit`.
    seconds : float
        How long `fit` took.
    groups : Tensor of int, shape (n,), or None
        Rows with the same number were held out together: they share a group or have equal features, directly or
        through other rows. -1 for rows without weight that are connected with no other. None if `fit` was called
        without groups.
    """

    candidates: Candidates
    log_p: Tensor
    held_out: Tensor
    parameters: Mapping[str, Any]
    seconds: float
    groups: Tensor | None = None
