"""Cleaners prune candidate sets during training, and know no method."""

from candidly.cleaning.base import Cleaner
from candidly.cleaning.clsp import Clsp
from candidly.cleaning.conformal import Conformal
from candidly.cleaning.controls import Oracle, Random

__all__ = ["Cleaner", "Clsp", "Conformal", "Oracle", "Random"]
