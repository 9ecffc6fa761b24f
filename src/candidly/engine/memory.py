"""Memory that a training needs at least, compared with what is available before any of it is used.

Every function raises `candidly.checks.machine.Shortage` if a lower bound of what is needed exceeds the free memory.
"""

import math
from collections.abc import Mapping, Sequence

import torch

from candidly.checks import machine
from candidly.checks.machine import Need

MOST_RUNS = 10_000
"""Largest number of runs of a training; a saved model with more is not loaded."""

FEWER_RUNS = "use fewer members, folds, seeds or initialisations"
_CPU = torch.device("cpu")
_SMALL = 2**26  # bytes that are not worth asking the system for
_NUMBER = 24  # bytes of a Python float
_REFERENCE = 8  # bytes of an entry of a list


def free_memory(device: torch.device) -> int | None:
    """Return how many bytes can still be allocated on a device; None where it is unknown."""
    if device.type == "cpu":
        return machine.available_memory()
    if device.type != "cuda":
        return None
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch uses it again
    return torch.cuda.mem_get_info(device)[0] + kept


def require_memory(needs: Mapping[str, Need], device: torch.device = _CPU) -> None:
    """Raise `Shortage` if needs, which are lower bounds, exceed the free memory of a device."""
    if sum(need.size for need in needs.values()) >= _SMALL:
        machine.require(needs, free_memory(device), str(device))


def require_tensor(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
    """Raise `Shortage` if a tensor of per-row or per-run state is larger than the free memory."""
    need = Need(math.prod(shape) * dtype.itemsize, _advice(shape[0] if shape else 1, "fewer rows"))
    require_memory({f"a tensor of shape {tuple(shape)}": need}, device)


def require_runs(runs: int, rows: int, classes: int, device: torch.device = _CPU) -> None:
    """Raise `Shortage` if the kept candidates of all runs, (R, N, C), exceed the free memory.

    Raise ValueError for more than `MOST_RUNS` runs, before any of them is trained.
    """
    kept = Need(runs * (rows * classes + _REFERENCE), _advice(runs, "fewer rows"))
    where = f" in each of {runs} runs" if runs > 1 else ""
    require_memory({f"the candidates of {rows} rows and {classes} classes{where}": kept}, device)
    if runs > MOST_RUNS:
        raise ValueError(f"{runs} runs would be trained together, and at most {MOST_RUNS} can be; {FEWER_RUNS}")


def require_networks(runs: int, weights: int, size: int, device: torch.device) -> None:
    """Raise `Shortage` if networks, `size` bytes for each weight, exceed the free memory."""
    need = Need(runs * weights * size, _advice(runs, "a smaller network", "fewer features"))
    name = f"{runs} networks with {weights} weights each" if runs > 1 else f"a network with {weights} weights"
    require_memory({name: need}, device)


def _advice(runs: int, *others: str) -> str:
    """Return what to reduce; fewer runs are no help if there is only one."""
    *most, last = others
    if runs > 1:
        return ", ".join([FEWER_RUNS, *most, f"or {last}"])
    return f"use {', '.join(most)}{', or ' if most else ''}{last}"


def require_schedule(epochs: int, steps: int, runs: int, one_cycle: bool) -> None:
    """Raise `Shortage` if the learning rates of all steps and the history exceed the free memory."""
    numbers = 2 * _NUMBER if one_cycle else 0  # learning rate and momentum; constant ones are stored once
    schedule = Need(epochs * steps * (3 * _REFERENCE + numbers), "use fewer epochs, or a larger batch size")
    history = Need(3 * epochs * runs * _NUMBER, "use fewer epochs")
    name = f"the learning rates of {epochs} epochs (max_epochs, or those of the recipe) with {steps} steps"
    require_memory({name: schedule, f"the history of {epochs} epochs": history})
