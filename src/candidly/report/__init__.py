"""The HTML report of a fitted classifier: one self-contained page on what cleaning did and what it costs."""

from candidly.report.facts import ReportFacts
from candidly.report.rendering import render, write
from candidly.report.summary import summarise

__all__ = ["ReportFacts", "render", "summarise", "write"]
