"""Accuracies of methods on datasets, one per seed."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from candidly.bench import names
from candidly.messages import visible

__all__ = ["Cell", "Scores"]

Cell = tuple[str, str]

# The order of rows in tables; other names follow alphabetically.
_METHODS = ("proden", "rc", "cc", "cavl", "pop", "valen", "crosel")
_CLEANERS = ("", "conf", "clsp", "conformal", "algorithm1", "random")


@dataclass(frozen=True)
class Scores:
    """The accuracy of every seed, for each dataset and method.

    Attributes
    ----------
    cells : mapping of (dataset, method) to mapping of seed to accuracy
        Accuracies are between 0 and 1. Datasets are sorted by name. Methods without a cleaner come first, then those
        with each cleaner, in the order of the papers.
    split : str, default "test"
        Which rows were predicted.

    Raises
    ------
    ValueError
        If a cell has no seeds, an accuracy is not between 0 and 1, or two names are the same once made printable.

    Examples
    --------
    >>> scores = Scores({("lost", "conf+proden"): {0: 0.75, 1: 0.80}, ("lost", "proden"): {0: 0.70, 1: 0.75}})
    >>> scores.methods
    ('proden', 'conf+proden')
    >>> round(scores.mean("lost", "proden"), 3)
    0.725
    """

    cells: Mapping[Cell, Mapping[int, float]]
    split: str = "test"

    def __post_init__(self) -> None:
        cells: dict[Cell, Mapping[int, float]] = {}
        for (dataset, method), seeds in self.cells.items():
            cell = (visible(dataset), visible(method))
            if cell in cells or not seeds:
                wrong = (
                    "occurs twice once characters that are not printable are escaped"
                    if cell in cells
                    else "has no seeds"
                )
                raise ValueError(f"the cell {cell} {wrong}; rename it or leave it out")
            for seed, accuracy in seeds.items():
                check_share(accuracy, f"the cell {cell}, seed {seed}")
            cells[cell] = MappingProxyType(dict(sorted(seeds.items())))
        ordered = dict(sorted(cells.items(), key=lambda item: (item[0][0], _place(item[0][1]))))
        object.__setattr__(self, "cells", MappingProxyType(ordered))

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets, sorted."""
        return tuple(dict.fromkeys(dataset for dataset, _ in self.cells))

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods, those without a cleaner first."""
        return tuple(sorted({method for _, method in self.cells}, key=_place))

    @property
    def base_methods(self) -> tuple[str, ...]:
        """Names of the methods without a cleaner."""
        return tuple(method for method in self.methods if not names.split(method)[0])

    def mean(self, dataset: str, method: str) -> float:
        """Return the mean accuracy over the seeds of a cell.

        It is rounded, so that means which differ only by floating-point errors are tied.
        """
        return round(mean_of(self.cells[dataset, method].values()), 12)

    def spread(self, dataset: str, method: str) -> float:
        """Return the sample standard deviation over the seeds of a cell; nan if there is only one."""
        values = self.cells[dataset, method].values()
        if len(values) < 2:
            return math.nan
        centre = mean_of(values)
        return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def _place(method: str) -> tuple[int, str, int, str, str, str]:
    """Return the sort key of a method: cleaner, base method, suffix."""
    cleaner, base, suffix = names.split(method)
    first = _CLEANERS.index(cleaner) if cleaner in _CLEANERS else len(_CLEANERS)
    second = _METHODS.index(base) if base in _METHODS else len(_METHODS)
    return first, cleaner, second, base, suffix, method


def check_share(value: Any, where: str) -> float:
    """Return an accuracy as a float; raise ValueError if it is not between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{where}: accuracy is {value!r}; it must be between 0 and 1")
    return float(value)


def mean_of(values: Iterable[float]) -> float:
    """Return the mean, computed from an exact sum."""
    values = list(values)
    return math.fsum(values) / len(values)
