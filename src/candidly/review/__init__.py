"""The page on which people check and decide rows: its server, and the log of their decisions."""

from candidly.review.decisions import Agreement, Decision, Item, Log, Session

__all__ = ["Agreement", "Decision", "Item", "Log", "Session"]
