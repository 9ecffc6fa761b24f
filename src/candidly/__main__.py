"""``python -m candidly`` is ``candidly``."""

from candidly.cli.app import main

main()
