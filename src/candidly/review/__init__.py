"""The page on which people check and decide rows: its server, and the log of their decisions."""

from candidly.review.decisions import Agreement, Decision, Log, Session

__all__ = ["Agreement", "Decision", "Log", "Session"]
