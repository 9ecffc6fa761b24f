"""Reading and writing files: atomic replacement, saved tensors and facts, figures, and validation of JSON."""

from candidly.store.files import digest, read_json, read_limited, read_text, replace, replacing

__all__ = ["digest", "read_json", "read_limited", "read_text", "replace", "replacing"]
