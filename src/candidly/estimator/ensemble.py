"""Ensembles: networks of several methods that predict together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from candidly.engine.model import Model
from candidly.engine.nets.build import Factory
from candidly.methods import Method

KEY = "ensemble"
"""The key of a saved ensemble's facts."""

MOST_METHODS = 16


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Models of several methods for the same folds. Their runs follow each other: those of the first method come first.

    Attributes
    ----------
    models : tuple of Model
        One per method, with equally many runs.
    """

    models: tuple[Model, ...]

    @property
    def runs(self) -> int:
        """Number of networks."""
        return sum(model.runs for model in self.models)

    @property
    def classes(self) -> tuple[Any, ...]:
        """Class names."""
        return self.models[0].classes

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row of X."""
        return self.models[0].shape

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return self.models[0].device

    @property
    def history(self) -> dict[str, NDArray[Any]]:
        """What the histories of all models have in common, (epochs, runs); NaN after an early stop."""
        names = [name for name in self.models[0].history if all(name in model.history for model in self.models)]
        epochs = max(len(model.history["loss"]) for model in self.models)
        found = {}
        for name in names:
            parts = [np.asarray(model.history[name], dtype=np.float64) for model in self.models]
            filled = [np.pad(part, ((0, epochs - len(part)), (0, 0)), constant_values=np.nan) for part in parts]
            found[name] = np.concatenate(filled, 1)
            found[name].setflags(write=False)
        return found

    def predict_blocks(self, X: Any) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of rows with each network's class probabilities, (R, b, C)."""
        for blocks in zip(*(model.predict_blocks(X) for model in self.models), strict=True):
            yield blocks[0][0], torch.cat([p for _, p in blocks])

    def to(self, device: str | torch.device) -> "Ensemble":
        """Return the same networks on another device, where they will predict."""
        return Ensemble(tuple(model.to(device) for model in self.models))

    def parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything that makes up the models: tensors by name, and facts in JSON types."""
        parts = [model.parts() for model in self.models]
        tensors = {f"{k}.{name}": value for k, (own, _) in enumerate(parts) for name, value in own.items()}
        return tensors, {KEY: [facts for _, facts in parts]}

    @classmethod
    def of_parts(
        cls,
        tensors: Mapping[str, Tensor],
        facts: Any,
        net: Factory | None = None,
        method: Sequence[Method | None] | None = None,
    ) -> "Ensemble":
        """Return an ensemble made of what `parts` returned; `facts` are those under `KEY`.

        Parameters
        ----------
        tensors, facts, net
            As in `candidly.Model.of_parts`. They may be untrusted.
        method : sequence of Method or None, optional
            The user-defined methods, None where a method is known.

        Raises
        ------
        ValueError
            If they are damaged, or `net` or `method` does not fit.
        """
        if not isinstance(facts, list) or not 1 < len(facts) <= MOST_METHODS:
            raise ValueError(f"an ensemble has 2 to {MOST_METHODS} models, but this one has not; restore a copy")
        given = [None] * len(facts) if method is None else list(method)
        if len(given) != len(facts):
            raise ValueError(f"the model was trained with {len(facts)} methods; pass a list of as many, None for known")
        own: list[dict[str, Tensor]] = [{} for _ in facts]
        for name, value in tensors.items():
            place, _, rest = name.partition(".")
            if not place.isdecimal() or int(place) >= len(facts):
                raise ValueError(f"the tensor {name!r} belongs to no model of the ensemble; restore a copy")
            own[int(place)][rest] = value
        models = tuple(
            Model.of_parts(part, fact, net=net, method=one) for part, fact, one in zip(own, facts, given, strict=True)
        )
        if len({(model.runs, model.classes, model.shape) for model in models}) > 1:
            raise ValueError("the models of the ensemble do not fit together; restore a copy")
        return cls(models)
