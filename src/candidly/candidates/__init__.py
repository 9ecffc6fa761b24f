"""Candidate sets: a boolean matrix (n, C) with class names, and conversions from labels and annotators' votes."""

from candidly.candidates.bags import find_bags
from candidly.candidates.sets import Candidates, check, encode
from candidly.candidates.votes import Agreement, Annotator, Confusion, Votes, from_annotations

__all__ = [
    "Agreement",
    "Annotator",
    "Candidates",
    "Confusion",
    "Votes",
    "check",
    "encode",
    "find_bags",
    "from_annotations",
]
