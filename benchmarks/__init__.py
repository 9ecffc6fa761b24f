"""Timed and scored scripts with their committed results."""
