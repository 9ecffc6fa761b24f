"""Removing candidates: cleaners act during training; a risk budget, with an audit or a certificate, acts after it."""

from collections.abc import Callable

from candidly.cleaning.audit import Audit
from candidly.cleaning.budget import Budget
from candidly.cleaning.certify import Certificate, VerificationPlan
from candidly.cleaning.clsp import Clsp
from candidly.cleaning.conformal import Conformal
from candidly.cleaning.controls import Oracle, Random
from candidly.engine import Cleaner

CLEANERS: dict[str, Callable[[], Cleaner]] = {
    "conformal": Conformal,
    "conf": Conformal.published,
    "conf (no correction)": lambda: Conformal.published(correction=False),
    "clsp": Clsp,
    "algorithm1": Conformal.algorithm1,
    "random": lambda: Random(Conformal()),
}
"""Ready-made cleaners by the name that Python, commands, experiments and tables use.

``conformal`` is `Conformal()`, the default; ``conf`` is the rule of the published experiments, so that ``conf+proden``
matches the paper's tables; ``algorithm1`` is the rule in the paper's text.
"""

KINDS: dict[str, type[Cleaner]] = {"conformal": Conformal, "clsp": Clsp}
"""Cleaner classes by name, for experiments with other settings and for saved classifiers."""


def find_cleaner(cleaner: Cleaner | str | None) -> Cleaner | None:
    """Return a cleaner by its name; an instance and None are returned as they are."""
    if cleaner is None or isinstance(cleaner, Cleaner):
        return cleaner
    if not isinstance(cleaner, str) or cleaner not in CLEANERS:
        raise ValueError(f"unknown cleaner {cleaner!r}; use one of {', '.join(CLEANERS)}, None or an instance")
    return CLEANERS[cleaner]()


__all__ = [
    "CLEANERS",
    "KINDS",
    "Audit",
    "Budget",
    "Certificate",
    "Cleaner",
    "Clsp",
    "Conformal",
    "Oracle",
    "Random",
    "VerificationPlan",
    "find_cleaner",
]
