"""What users bring: tables in files, their columns as numbers, and class names in their cells."""

from candidly.tables.features import Features
from candidly.tables.schema import Schema

__all__ = ["Features", "Schema"]
