"""Specs of experiments: datasets × methods × seeds, with one protocol and one recipe.

Methods are named as in the paper's tables: ``proden`` alone, ``conf+proden`` with a cleaner before the plus. Datasets
are named as in `candidly.data.load`, or by the path of a file. The name of a fully labelled dataset can be followed by
the steps that make its candidate sets, such as ``digits+uniform-0.3`` (see `candidly.bench.datasets`).
"""

import dataclasses
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any

from candidly import cleaning, store
from candidly.bench.names import RENAMED, current, join, split
from candidly.checks import arguments
from candidly.cleaning import CLEANERS, Cleaner
from candidly.data.protocols import PROTOCOLS
from candidly.engine.recipe import RECIPES, Recipe, find_recipe
from candidly.messages import did_you_mean, warn
from candidly.methods import METHODS, Method

_KINDS: dict[str, type[Method] | type[Cleaner]] = {**METHODS, **cleaning.KINDS}
_NAME = re.compile(r"[a-z0-9._+-]+")
_MOST_BYTES = 2**20  # of a file
_MOST_SEEDS = 10_000

_MOST_INITS = 1000
NEXT_INIT = 1000  # initialisation k of seed s trains on the split of s, with the seed s + 1000 k

REALWORLD = ("bird-song", "lost", "mir-flickr", "msrc-v2", "soccer", "yahoo-news")
IMAGES = ("mnist", "fmnist", "kmnist", "svhn", "cifar10", "cifar100")
BASE = ("proden", "cc", "cavl", "pop", "valen", "crosel")


@dataclass(frozen=True)
class Spec:
    """An experiment. Every combination of a dataset and a method is one run, whose seeds train together.

    Attributes
    ----------
    datasets, methods : tuple of str
        Their names.
    cleaners : tuple of str
        Cleaners for the methods whose names contain none: names from `candidly.CLEANERS` or `own`, or "none".
    seeds : tuple of int
        Each is a split and an initialisation. A string such as "0-4" is accepted.
    inits : int
        Initialisations per seed, over which results are averaged. The k-th of seed s trains with the seed s + 1000 k.
    protocol : str
        How datasets are prepared and split: a name from `candidly.data.protocols.PROTOCOLS`.
    recipe : Recipe
        How to train. A name from `candidly.RECIPES` is accepted.
    own : mapping of str to Method or Cleaner
        Custom methods and cleaners, or known ones with other settings, by the names used above.

    Examples
    --------
    >>> spec = Spec(datasets=("lost",), methods=("proden", "cc"), cleaners=("none", "conf"), recipe="quick")
    >>> spec.combinations()
    ('proden', 'conf+proden', 'cc', 'conf+cc')
    """

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    cleaners: tuple[str, ...] = ("none",)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    inits: int = 1
    protocol: str = "default"
    recipe: Recipe = RECIPES["uai2025"]
    own: Mapping[str, Method | Cleaner] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("datasets", "methods", "cleaners"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        self._rename_cleaners()
        object.__setattr__(self, "seeds", parse_seeds(self.seeds))
        object.__setattr__(self, "recipe", find_recipe(self.recipe))
        object.__setattr__(self, "inits", arguments.integer("inits", self.inits, least=1, most=_MOST_INITS))
        if self.inits > 1 and self.seeds[-1] >= NEXT_INIT:
            raise ValueError(
                f"seeds go up to {self.seeds[-1]}; with several initialisations use seeds below {NEXT_INIT}"
            )
        arguments.choice("protocol", self.protocol, PROTOCOLS)
        arguments.instance("own", self.own, Mapping, "a mapping of names to methods and cleaners")
        for name, part in self.own.items():
            arguments.instance(f"own[{name!r}]", part, (Method, Cleaner), "an instance of a method or a cleaner")
            if not isinstance(name, str) or not _NAME.fullmatch(name) or "+" in name:
                raise ValueError(f"{name!r} cannot name a method or cleaner; use a-z, 0-9, dots, '_' and '-'")
            if name in (*METHODS, *CLEANERS, *RENAMED, "none"):
                raise ValueError(f"own[{name!r}] has the name of a known method or cleaner; choose another name")
        for cleaner in self.cleaners:
            self.parts(join(cleaner, next(iter(METHODS))))
        for name in self.combinations():
            self.parts(name)

    def _rename_cleaners(self) -> None:
        """Replace cleaner names of version 0.1 by the present ones, with a warning."""
        methods = {name: current(name) for name in self.methods}
        cleaners = {name: RENAMED.get(name, name) for name in self.cleaners}
        renamed = [f"{new!r} instead of {old!r}" for old, new in (methods | cleaners).items() if old != new]
        if renamed:
            warn(FutureWarning(f"a cleaner was renamed; write {', '.join(renamed)}, which will stop working"))
        object.__setattr__(self, "methods", tuple(dict.fromkeys(methods.values())))
        object.__setattr__(self, "cleaners", tuple(dict.fromkeys(cleaners.values())))

    def combinations(self) -> tuple[str, ...]:
        """Return the names of all methods with their cleaners."""
        expanded = (name if "+" in name else join(cleaner, name) for name in self.methods for cleaner in self.cleaners)
        return tuple(dict.fromkeys(expanded))

    def parts(self, name: str) -> tuple[Method, Cleaner | None]:
        """Return the method and the cleaner of a name; a suffix in parentheses belongs to the cleaner."""
        before, base, suffix = split(name)
        wanted = f"{before} {suffix}".strip()
        methods = {known: kind() for known, kind in METHODS.items()}
        methods |= {own: part for own, part in self.own.items() if isinstance(part, Method)}
        cleaners = {known: make() for known, make in CLEANERS.items()}
        cleaners |= {own: part for own, part in self.own.items() if isinstance(part, Cleaner)}
        if base not in methods:
            hint = did_you_mean(base, methods)
            known = ", ".join(methods)
            raise ValueError(f"unknown method {name!r}{hint}; known are {known}, each also as cleaner+method")
        if wanted and wanted not in cleaners:
            hint = did_you_mean(wanted, cleaners)
            raise ValueError(f"unknown cleaner {wanted!r} in {name!r}{hint}; known are {', '.join(cleaners)}")
        if wanted and name != join(wanted, base):
            raise ValueError(f"unknown method {name!r}; write {join(wanted, base)!r}")
        return methods[base], cleaners[wanted] if wanted else None


def parse_seeds(seeds: str | Iterable[Any]) -> tuple[int, ...]:
    """Return seeds, sorted, from numbers or from a string such as "0-4" or "0,2,7-9".

    Examples
    --------
    >>> parse_seeds("0-2,7")
    (0, 1, 2, 7)
    """
    if isinstance(seeds, str):
        found: list[int] = []
        for part in seeds.split(","):
            match = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", part)
            low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not 0 <= high - low < _MOST_SEEDS:
                raise ValueError(f"seeds is {seeds!r}; write them as 0-4 or 0,2,5")
            found += range(low, high + 1)
        seeds = found
    given = arguments.items("seeds", seeds, "a list of integers, or a text such as '0-4'")
    first = enumerate(islice(given, _MOST_SEEDS + 1))
    numbers = tuple(arguments.integer(f"seeds[{i}]", seed, 0, 2**31 - 1) for i, seed in first)
    if not 1 <= len(numbers) <= _MOST_SEEDS:
        raise ValueError(f"seeds is {arguments.shown(seeds)}; give at least 1 and at most {_MOST_SEEDS}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"seeds is {arguments.shown(list(numbers))}, with one of them twice; give each seed once")
    return tuple(sorted(numbers))


def _names(what: str, names: Any) -> tuple[str, ...]:
    """Return names from a list, or from a string in which commas separate them."""
    if isinstance(names, Mapping):
        raise ValueError(f"{what} is {arguments.shown(names)}; it must be a list of names")
    given = names.split(",") if isinstance(names, str) else arguments.items(what, names, "a list of names")
    entries = list(given)
    for i, name in enumerate(entries):
        arguments.instance(f"{what}[{i}]", name, str, "a name")
    found = tuple(dict.fromkeys(name.strip() for name in entries))
    if not found or not all(found):
        raise ValueError(f"{what} is {names!r}; give at least one name, and separate several by commas")
    return found


def read_spec(path: str | os.PathLike[str], own: Mapping[str, Method | Cleaner] = MappingProxyType({})) -> Spec:
    """Read a spec from a TOML file.

    Its keys are the attributes of `Spec`. `recipe` is a name, or a table of the attributes of `Recipe`. `own` has a
    table for each custom method or cleaner: its key `kind` names a known one, and its other keys are the settings.
    `suite` takes datasets, methods and protocol from a named suite.

    Parameters
    ----------
    path
        The file.
    own
        Custom methods and cleaners that the file can name, as methods and cleaners and as `kind`; see `read_own`.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If a key is unknown or has a wrong value. The message names the file, the table and the key.

    Examples
    --------
    >>> import tempfile
    >>> text = '''
    ... datasets = ["lost"]
    ... methods = ["proden", "strict+proden"]
    ... seeds = "0-2"
    ... [own.strict]
    ... kind = "conformal"
    ... level = "fixed"
    ... alpha = 0.02
    ... '''
    >>> with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
    ...     _ = file.write(text), file.flush()
    ...     spec = read_spec(file.name)
    >>> spec.seeds, spec.own["strict"].alpha
    ((0, 1, 2), 0.02)
    """
    arguments.instance("own", own, Mapping, "a mapping of names to methods and cleaners, as read_own returns")
    text = store.read_text(arguments.path("path", path), _MOST_BYTES)
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"{path}: too many tables or lists are nested; a spec has two levels") from None
    except ValueError as error:
        raise ValueError(f"{path} is not TOML: {error}; correct it") from None
    try:
        values = dict(SUITES[_known(SUITES, "suite", table.pop("suite"))]) if "suite" in table else {}
        values |= table
        if isinstance(values.get("recipe"), dict):
            values["recipe"] = _build(Recipe, values["recipe"], "recipe")
        kinds = _KINDS | {name: type(part) for name, part in own.items()}
        tables = _table("own", values.get("own", {}))
        values["own"] = {**own, **{name: _part(name, part, kinds) for name, part in tables.items()}}
        spec: Spec = _build(Spec, values, "")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return spec


def _part(name: str, table: Any, kinds: Mapping[str, type[Method] | type[Cleaner]]) -> Any:
    settings = _table(f"own.{name}", table)
    kind = _known(kinds, f"kind of own.{name}", settings.pop("kind", None))
    return _build(kinds[kind], settings, f"own.{name}")


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {arguments.shown(value)}; make it a table, [{name}]")
    return dict(value)


def _known(names: Mapping[str, Any], what: str, name: Any) -> str:
    if not isinstance(name, str) or name not in names:
        hint = did_you_mean(name, names)
        raise ValueError(f"{what} is {arguments.shown(name)}{hint}; use one of {', '.join(names)}")
    return str(name)


def _build(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """Make an object from the keys of a table; the constructor checks their values."""
    # A file cannot hold what a field without a type takes, such as an array.
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    known = [one.name for one in fields if one.init and one.type is not Any]
    for key in values:
        if key not in known:
            place = f"{where} has the unknown key" if where else "unknown key"
            names = f"known are {', '.join(known)}" if known else "it has no settings"
            raise ValueError(f"{place} {key!r}{did_you_mean(key, known)}; {names}")
    required = [one.name for one in fields if one.default is one.default_factory is dataclasses.MISSING]
    missing = [name for name in required if name not in values]
    if missing:
        raise ValueError(f"{f'{where} lacks' if where else 'there is no'} {missing[0]!r}; add it")
    try:
        return kind(**values)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{where}: {error}" if where else str(error)) from None


_PUBLISHED = (*BASE, *(f"conf+{name}" for name in BASE))
_ALL = (*_PUBLISHED, *(f"clsp+{name}" for name in BASE))
SUITES: dict[str, dict[str, Any]] = {
    "uai2025-realworld": {"datasets": REALWORLD, "methods": _ALL, "protocol": "uai2025"},
    "uai2025-images": {"datasets": IMAGES, "methods": _ALL, "protocol": "uai2025"},
    "uai2025-ablation": {
        "datasets": (*REALWORLD, *IMAGES),
        "methods": ("proden", "conf+proden", "conf+proden (no correction)"),
        "protocol": "uai2025",
    },
}
