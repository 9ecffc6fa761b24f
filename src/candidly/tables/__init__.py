"""Users' tables: read and write files, choose columns by a schema, and encode features as numbers."""

from candidly.tables.features import Features
from candidly.tables.files import read, write
from candidly.tables.labelled import Labelled, VoteColumns, read_labelled, read_votes
from candidly.tables.provenance import Provenance
from candidly.tables.schema import Schema

__all__ = [
    "Features",
    "Labelled",
    "Provenance",
    "Schema",
    "VoteColumns",
    "read",
    "read_labelled",
    "read_votes",
    "write",
]
