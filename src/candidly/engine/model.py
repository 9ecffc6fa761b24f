"""The result of `fit`: networks that predict for every run, the history, and the kept candidates."""

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from candidly.checks import arguments
from candidly.checks.arguments import instance, shown
from candidly.engine.batches import block_size, predict_block
from candidly.engine.building import CHANGED, builder, copy_tensors, network_tensors
from candidly.engine.contract import Method
from candidly.engine.description import describe, method_code, networks_code
from candidly.engine.device import find_device, usual_settings
from candidly.engine.memory import MOST_RUNS
from candidly.engine.nets.build import Factory
from candidly.engine.nets.resnet import Resnet9
from candidly.engine.problem import Problem, as_tensor, check_finite, round_to
from candidly.engine.recipe import Recipe, smaller_rate
from candidly.engine.saved import check_facts, known_method, shapes
from candidly.messages import warn
from candidly.store import states

_ROWS = 64  # rows to predict at a time on the CPU; few, so that a single row is fast


@dataclasses.dataclass(frozen=True)
class Model:
    """R trained models, one per run. Networks are in evaluation mode, and threads may share a model.

    Attributes
    ----------
    method : Method
        The trained copy of the method, with its networks.
    problem : Problem
        The problem's shape and scaling, without its rows.
    net : str or callable
        What the networks were built with.
    recipe : Recipe
        How it was trained.
    cleaner : dict
        The cleaner's name and settings.
    history : dict of arrays (epochs, R)
        Read-only: loss, mean_candidates and share_changed; alpha, threshold and estimated_lost with a conformal
        cleaner; accuracy and true_kept (`candidly.metrics.true_kept`) over the training rows and in training mode, if
        true labels were given; covering_rate if rows were held out. Runs that stopped earlier than others, because
        they were trained in another group, have NaN after their last epoch.
    kept : Tensor of bool (R, N, C)
        The candidates of each training row as the method last saw them; other rows have their original candidates. If
        several processes trained the model, these are the rows of this process.
    """

    method: Method
    problem: Problem
    net: str | Factory
    recipe: Recipe
    cleaner: Mapping[str, Any]
    history: Mapping[str, np.ndarray[Any, Any]]
    kept: Tensor

    def __post_init__(self) -> None:
        for net in self.method.networks().values():
            net.eval()
        for values in self.history.values():
            values.setflags(write=False)

    @property
    def runs(self) -> int:
        """Number of models."""
        return self.problem.runs

    @property
    def classes(self) -> tuple[Any, ...]:
        """Class names."""
        return self.problem.classes

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row of X."""
        return tuple(self.problem.X.shape[1:])

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return self.problem.X.device

    @usual_settings
    def predict(self, X: Any) -> Tensor:
        """Return each run's class probabilities (R, n, C) for rows X (n, ...), on the CPU.

        On the CPU, a row has the same probabilities to the bit alone, in any order and together with any other rows.
        On CUDA this holds as far as the libraries round every row of a matrix product or convolution in the same way.
        """
        blocks = [p for _, p in self.predict_blocks(X)]
        empty = torch.empty(self.problem.runs, 0, self.problem.num_classes, dtype=self.problem.dtype)
        return torch.cat(blocks, 1) if blocks else empty

    def predict_blocks(self, X: Any, index: Tensor | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of rows and what `predict` returns for them, so that memory does not grow with the rows.

        With `index` (R, M), the rows of X that each run predicts, blocks are slices of M.
        """
        like = self.problem.X
        rows = as_tensor(X)
        if rows.shape[1:] != like.shape[1:]:
            shapes = f"{tuple(rows.shape[1:])} but the model was trained on {tuple(like.shape[1:])}"
            raise ValueError(f"rows of X have shape {shapes}; give the same features")
        if rows.dtype != like.dtype:
            rows = round_to(rows, self.problem.dtype)
        check_finite(rows)
        size = _ROWS if like.device.type == "cpu" else min(64 * _ROWS, block_size(self.problem))
        number = len(rows) if index is None else index.shape[1]
        for start in range(0, number, size):
            block = slice(start, min(start + size, number))
            asked = rows[block] if index is None else rows[index[:, block]]
            p = predict_block(self.problem, self.method, asked, size, self.recipe.test_flips).cpu()
            if not p.isfinite().all():
                run, row, _ = (~p.isfinite()).nonzero()[0].tolist()
                row = start + row if index is None else int(index[run, start + row])
                raise ValueError(
                    f"training diverged: the probabilities of row {row} in run {run} (seed "
                    f"{self.problem.seeds[run]}) are not finite; {smaller_rate(self.recipe)}"
                )
            yield block, p

    def to(self, device: str | torch.device) -> "Model":
        """Return the same model with its networks on another device, where it will predict."""
        place = find_device(device)
        method = copy.copy(self.method)
        for name, net in self.method.networks().items():
            setattr(method, name, copy.deepcopy(net).to(place))
        for name, value in self.method.state().items():
            setattr(method, name, value.to(place))
        return dataclasses.replace(self, method=method, problem=self.problem.to(place))

    def without_rows(self) -> "Model":
        """Return a copy without anything stored per training row, which predicts as if it had been saved and loaded.

        `kept` is empty. The method's copy has its networks, settings and numbers, but no per-row state: Tensors of
        shape (runs, rows, ...) and each run's row numbers are removed, and a `Problem` loses its rows.
        """
        model = self.without_state()
        copied: dict[int, Any] = {}  # so that networks which share parts still do
        for name, value in vars(model.method).items():
            if isinstance(value, nn.Module):
                net = copy.deepcopy(value, copied)
                for module in net.modules():
                    if isinstance(module, Resnet9):
                        module.use_float32()
                setattr(model.method, name, net)
        return dataclasses.replace(model, kept=self.kept[:, :0].clone())

    def without_state(self) -> "Model":
        """Return the same model without the method's per-row state; networks and `kept` are shared, not copied."""
        method = copy.copy(self.method)
        for name, value in vars(self.method).items():
            if isinstance(value, Problem):
                setattr(method, name, value.without_rows())
            elif _is_per_row(value, (self.problem.runs, self.kept.shape[1])):
                delattr(method, name)
        return dataclasses.replace(self, method=method)

    def parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything that makes up the model: tensors by name, and facts in JSON types."""
        tensors = network_tensors(self.method) | {"kept": self.kept}
        tensors |= {f"history.{name}": torch.tensor(value, device="cpu") for name, value in self.history.items()}
        if self.problem.scale is not None and self.problem.shift is not None:
            tensors |= {"shift": self.problem.shift, "scale": self.problem.scale}
        facts = {
            "method": describe(self.method),
            "net": describe(self.net),
            "own_net": callable(self.net),
            "recipe": dataclasses.asdict(self.recipe),
            "cleaner": dict(self.cleaner),
            "seeds": list(self.problem.seeds),
            "classes": list(self.problem.classes),
            "shape": list(self.problem.X.shape[1:]),
            "dtype": str(self.problem.X.dtype).removeprefix("torch."),
            "standardised": self.problem.standardised,
            "code": {"net": networks_code(self.method), "method": method_code(self.method)},
        }
        return tensors, facts

    @classmethod
    @usual_settings
    def of_parts(
        cls,
        tensors: Mapping[str, Tensor],
        facts: Mapping[str, Any],
        net: Factory | None = None,
        method: Method | None = None,
    ) -> "Model":
        """Return a model made of what `parts` returned, on the CPU and without the method's per-row state.

        Parameters
        ----------
        tensors, facts : mappings
            They may be untrusted: whatever sizes they claim, no more memory is used than the tensors take.
        net : callable, optional
            Required if the model was trained with a custom network.
        method : Method, optional
            Required if the model was trained with a custom method.

        Raises
        ------
        ValueError
            If they are not a model's parts, or `net` or `method` is missing.

        Examples
        --------
        >>> from candidly import METHODS, Recipe, fit
        >>> problem = Problem.of([[0.0], [1.0]], [[True, False], [False, True]])
        >>> model = fit(problem, METHODS["proden"](), recipe=Recipe(epochs=1), net="linear", device="cpu")
        >>> again = Model.of_parts(*model.parts())
        >>> torch.equal(again.predict([[0.5]]), model.predict([[0.5]]))
        True
        """
        if net is not None and not callable(net):
            raise ValueError(f"net is {shown(net)}; it must be a function that returns a new module")
        instance("method", method, (Method, type(None)), "an instance of the method that the model was trained with")
        check_facts(facts)
        if facts["own_net"] and net is None:
            raise ValueError(
                f"this model was trained with the custom network {facts['net']!r}; pass load(..., net=factory)"
            )
        network = facts["net"] if net is None else net
        saved = {key: value for key, value in tensors.items() if key.startswith("net.")}
        problem = shapes(tensors, facts, len(saved) if callable(network) else MOST_RUNS)
        trained = known_method(facts["method"]) if method is None else copy.copy(method)
        room = sum(value.numel() for value in saved.values())
        # The library's methods are set up without memory: networks are allocated later, and other state is dropped.
        outline = problem.to(torch.device("meta")) if method is None else problem
        try:
            trained.setup(outline, builder(outline, network, room=room))
        except RuntimeError as error:  # torch raises it for negative sizes and for products that overflow
            if method is not None or callable(network):
                raise
            reason = str(error).partition("\n")[0]
            raise ValueError(f"networks of the model's sizes cannot be built ({reason}): {CHANGED}") from None
        for one in trained.networks().values():
            if next(one.parameters()).is_meta:
                one.to_empty(device="cpu")
        advice = "the saved network differs; pass the net that the model was trained with"
        copy_tensors(saved, network_tensors(trained), advice)
        code = {"net": networks_code(trained) if net else None, "method": method_code(trained) if method else None}
        for name, found in code.items():
            if "code" in facts and found not in (None, facts["code"][name]):
                warn(
                    f"the code or settings of {name} differ from those that the model was trained with, so predictions "
                    f"may differ; pass the same {name}"
                )
        for name in trained.state() if method is None else ():
            delattr(trained, name)
        history = {key[8:]: value.cpu().numpy() for key, value in tensors.items() if key.startswith("history.")}
        recipe = Recipe(**facts["recipe"])
        kept = tensors["kept"].cpu()
        return cls(trained, problem.without_rows(), network, recipe, facts["cleaner"], history, kept)

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder, as ``model.json`` and a file of tensors; replace a model that it holds.

        Readers and other writers of the folder at the same time are safe: each reads or writes one whole model.
        """
        states.write_folder(arguments.path("folder", folder), *self.parts())

    @classmethod
    def load(cls, folder: str | Path, net: Factory | None = None, method: Method | None = None) -> "Model":
        """Read a model that `save` wrote; pass `net` and `method` if they were custom ones."""
        return cls.of_parts(*states.read(arguments.path("folder", folder), stem="model"), net, method)


def _is_per_row(value: Any, shape: tuple[int, int]) -> bool:
    """Whether an attribute of a method is a Tensor of shape (runs, rows, ...), or has the row numbers of each run."""
    if isinstance(value, Tensor):
        return tuple(value.shape[:2]) == shape
    return (
        isinstance(value, tuple)
        and len(value) == shape[0]
        and all(isinstance(rows, Tensor) and rows.dtype == torch.int64 and rows.ndim == 1 for rows in value)
    )
