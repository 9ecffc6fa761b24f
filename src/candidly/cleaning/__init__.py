"""Cleaners prune candidate sets during training, and know no method. `CLEANERS` has those that are called by name."""

from candidly.cleaning.clsp import Clsp
from candidly.cleaning.conformal import Conformal
from candidly.cleaning.controls import Oracle, Random
from candidly.engine.contract import Cleaner

CLEANERS: dict[str, type[Cleaner]] = {"conformal": Conformal, "clsp": Clsp}


def find_cleaner(cleaner: Cleaner | str | None) -> Cleaner | None:
    """Return a cleaner by its name, with its default settings; a cleaner itself and None as they are."""
    if cleaner is None or isinstance(cleaner, Cleaner):
        return cleaner
    if not isinstance(cleaner, str) or cleaner not in CLEANERS:
        raise ValueError(f"unknown cleaner {cleaner!r}; use one of {', '.join(CLEANERS)}, None or an instance")
    return CLEANERS[cleaner]()


__all__ = ["CLEANERS", "Cleaner", "Clsp", "Conformal", "Oracle", "Random", "find_cleaner"]
