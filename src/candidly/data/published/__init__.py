"""The published datasets: what is known of them, where they lie, how they are downloaded, checked and read."""
