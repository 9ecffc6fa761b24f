"""Accuracies of methods on datasets, one per seed."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from candidly.bench import names
from candidly.checks import arguments
from candidly.messages import did_you_mean, listed_names, visible

__all__ = ["Cell", "Scores"]

Cell = tuple[str, str]

# The order of rows in tables; other names follow alphabetically.
_METHODS = ("balanced", "proden", "rc", "cc", "cavl", "pop", "valen", "crosel")
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
    order : pair of tuples of str
        Datasets and methods in another order than the above; `select` sets it.

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
    order: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def __post_init__(self) -> None:
        arguments.instance("cells", self.cells, Mapping, "a mapping of (dataset, method) to accuracies by seed")
        arguments.text("split", self.split, "a text, such as 'test'")
        cells: dict[Cell, Mapping[int, float]] = {}
        for key, seeds in self.cells.items():
            if not isinstance(key, tuple) or len(key) != 2 or not all(isinstance(name, str) for name in key):
                raise ValueError(f"cells has the key {arguments.shown(key)}; it must be a pair (dataset, method)")
            cell = (visible(key[0]), visible(key[1]))
            arguments.instance(f"cells[{cell}]", seeds, Mapping, "a mapping of seeds to accuracies")
            if cell in cells or not seeds:
                wrong = (
                    "occurs twice once characters that are not printable are escaped"
                    if cell in cells
                    else "has no seeds"
                )
                raise ValueError(f"the cell {cell} {wrong}; rename it or leave it out")
            for seed, accuracy in seeds.items():
                arguments.integer(f"a seed of the cell {cell}", seed)
                check_share(accuracy, f"the cell {cell}, seed {seed}")
            cells[cell] = MappingProxyType(dict(sorted(seeds.items())))
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "order", _check_order(self.order, cells))
        places = [(dataset, method) for dataset in self.datasets for method in self.methods]
        object.__setattr__(self, "cells", MappingProxyType({cell: cells[cell] for cell in places if cell in cells}))

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets, sorted or in the order selected."""
        return self.order[0] or tuple(sorted({dataset for dataset, _ in self.cells}))

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods, those without a cleaner first, or in the order selected."""
        return self.order[1] or tuple(sorted({method for _, method in self.cells}, key=_place))

    @property
    def base_methods(self) -> tuple[str, ...]:
        """Names of the methods without a cleaner."""
        return tuple(method for method in self.methods if not names.split(method)[0])

    def select(self, datasets: Iterable[str] | None = None, methods: Iterable[str] | None = None) -> "Scores":
        """Return the scores of some datasets and methods, in the order given; None stands for all.

        Raises
        ------
        ValueError
            If a name is unknown or given twice, or if no cell is left.

        Examples
        --------
        >>> scores = Scores({("lost", "proden"): {0: 0.7}, ("lost", "cc"): {0: 0.6}, ("lost", "pop"): {0: 0.8}})
        >>> scores.select(methods=["pop", "proden"]).methods
        ('pop', 'proden')
        """
        chosen = (
            _pick("datasets", datasets, self.datasets),
            _pick("methods", methods, self.methods),
        )
        cells = {cell: seeds for cell, seeds in self.cells.items() if cell[0] in chosen[0] and cell[1] in chosen[1]}
        if not cells:
            raise ValueError("no chosen method has a result on a chosen dataset; choose others")
        return Scores(cells, self.split, chosen)

    def labels(self, names: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the text that a table shows for each dataset and method: its name, or another one from `names`.

        Raises
        ------
        ValueError
            If `names` has an unknown key, or if two methods or two datasets would be shown alike.

        Examples
        --------
        >>> Scores({("lost", "proden"): {0: 0.7}}).labels({"proden": "PRODEN"})
        {'lost': 'lost', 'proden': 'PRODEN'}
        """
        names = {} if names is None else names
        arguments.instance("names", names, Mapping, "a mapping of names to the texts to show")
        for key, text in names.items():
            for one in (key, text):
                arguments.instance("an entry of names", one, str, "a text")
        names = {visible(key): visible(text).strip() for key, text in names.items()}
        known = (*self.datasets, *self.methods)
        for name, text in names.items():
            if name not in known:
                raise ValueError(f"names has {name!r}{did_you_mean(name, known)}, which is not in the table; check it")
            if not text:
                raise ValueError(f"names shows {name!r} as an empty text; give a name")
        shown = {name: names.get(name, name) for name in known}
        for group in (self.datasets, self.methods):
            texts = [shown[name] for name in group]
            twice = next((text for text in texts if texts.count(text) > 1), None)
            if twice is not None:
                raise ValueError(f"names shows two rows or columns as {twice!r}; give different names")
        return shown

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


def _check_order(order: Any, cells: Iterable[Cell]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the datasets and methods in order, each empty or with all names of the cells."""
    if not isinstance(order, tuple | list) or len(order) != 2:
        raise ValueError(f"order is {arguments.shown(order)}; it must be a pair: datasets and methods")
    found = []
    for i, what in enumerate(("datasets", "methods")):
        part = tuple(arguments.items(f"order[{i}]", order[i], f"a tuple of {what}"))
        missing = next((cell[i] for cell in cells if cell[i] not in part), None) if part else None
        if missing is not None:
            raise ValueError(f"order[{i}] lacks {missing!r}; give all {what} of the cells, or use Scores.select")
        found.append(part)
    return found[0], found[1]


def _pick(what: str, wanted: Iterable[str] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return names that must be known and different."""
    if wanted is None:
        return known
    given = list(arguments.items(what, wanted, "a list of names"))
    for name in given:
        arguments.instance(f"an entry of {what}", name, str, "a name")
    chosen = tuple(visible(name) for name in given)
    for name in chosen:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(f"{what} has {name!r}, of which there is no result{hint}; there are {listed_names(known)}")
        if chosen.count(name) > 1:
            raise ValueError(f"{what} has {name!r} twice; give each name once")
    if not chosen:
        raise ValueError(f"{what} is empty; give at least one name")
    return chosen


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
