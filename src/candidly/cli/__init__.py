"""The terminal: commands that parse options, call the library and print."""

from candidly.cli.app import main

__all__ = ["main"]
