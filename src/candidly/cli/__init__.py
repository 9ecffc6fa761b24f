"""The terminal: commands that parse options, call the library and print."""

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program with the arguments `argv`, by default those of the process."""
    from candidly.cli import signals

    with signals.handled(to_the_end=argv is None):  # also while the rest is imported
        from candidly.cli import app

        app.main(argv)
