"""``python -m candidly`` is ``candidly``."""

from candidly.cli import main

main()
