"""Checks before work is done: of the arguments that users pass, and of the machine's memory; and its faults."""
