"""What the commands on a user's own tables do; `candidly.cli` calls them."""

from candidly.commands.models import evaluate, predict, report
from candidly.commands.training import audit, clean, fit

__all__ = ["audit", "clean", "evaluate", "fit", "predict", "report"]
