"""Reading and writing files: atomic replacement, saved tensors and facts, figures, and validation of JSON."""

from candidly.store.files import digest, read_json, replace, replacing

__all__ = ["digest", "read_json", "replace", "replacing"]
