"""Published datasets: their registry, and how they are found, downloaded, checked and read."""
