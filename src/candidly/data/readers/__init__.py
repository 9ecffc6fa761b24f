"""Readers of the formats in which datasets come."""
