"""Checks of tensors that functions of candidate sets and probabilities are given."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from candidly.checks.arguments import shown

_P = ParamSpec("_P")
_R = TypeVar("_R")

# What parameters of these names hold; their annotation is Tensor.
_SETS = ("S", "sets", "before", "after")
_MATRICES = ("p", "log_p", "q", *_SETS)  # (..., N, C)
_FLAGS = (*_SETS, "valid")
_LABELS = ("y", "labels")


def takes_tensors(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function such that it raises ValueError for arguments that are not the tensors it needs.

    Parameters with the annotation Tensor must be tensors. By their names, sets are boolean, labels are integers, and
    probabilities and sets have as many rows and classes as each other.

    Examples
    --------
    >>> @takes_tensors
    ... def total(p: Tensor) -> Tensor:
    ...     return p.sum()
    >>> total([[0.5, 0.5]])
    Traceback (most recent call last):
        ...
    ValueError: p is [[0.5, 0.5]]; it must be a tensor, such as torch.as_tensor(p)
    """
    signature = inspect.signature(function)
    names = [name for name, parameter in signature.parameters.items() if parameter.annotation is Tensor]

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given = dict(zip(signature.parameters, args, strict=False)) | kwargs
        _check({name: given[name] for name in names if name in given})
        return function(*args, **kwargs)

    return checked


def broadcast(**given: object) -> None:
    """Raise ValueError unless arguments are tensors whose shapes agree; by their names, sets must be boolean.

    Examples
    --------
    >>> broadcast(z=torch.zeros(3, 2), S=torch.ones(4, 2).bool())
    Traceback (most recent call last):
        ...
    ValueError: z has shape (3, 2) and S has shape (4, 2); they must be the same
    """
    for name, value in given.items():
        _check_tensor(name, value)
    shapes = {name: tuple(value.shape) for name, value in given.items() if isinstance(value, Tensor)}
    if len(set(shapes.values())) == 1:  # the usual case; losses are checked in every step
        return
    try:
        torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        found = " and ".join(f"{name} has shape {shape}" for name, shape in shapes.items())
        raise ValueError(f"{found}; they must be the same") from None


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} is {shown(value)}; it must be a tensor, such as torch.as_tensor({name})")
    if name in _FLAGS and value.dtype != torch.bool:
        raise ValueError(f"{name} has dtype {value.dtype}; it must be a boolean tensor, such as {name} > 0")


def _check(given: dict[str, object]) -> None:
    shapes = {}
    for name, value in given.items():
        _check_tensor(name, value)
        assert isinstance(value, Tensor)
        if name in _LABELS and (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool):
            raise ValueError(f"{name} has dtype {value.dtype}; it must be a tensor of integers, the class numbers")
        if name in _MATRICES:
            shapes[name] = tuple(value.shape)
            if value.ndim < 2:
                raise ValueError(f"{name} has shape {shapes[name]}; it must have the axes (..., rows, classes)")
    if len({shape[-2:] for shape in shapes.values()}) > 1:
        found = " and ".join(f"{name} has shape {shape}" for name, shape in shapes.items())
        raise ValueError(f"{found}; they must have the same rows and classes")
