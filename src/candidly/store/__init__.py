"""What is written to disk: files replaced as a whole, states of tensors and facts, figures; checks of what is read."""

from candidly.store.files import digest, read_json, replace, replacing

__all__ = ["digest", "read_json", "replace", "replacing"]
