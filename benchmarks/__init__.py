"""Scripts that measure accuracy, speed and memory, with their committed results."""
