"""What users bring: tables in files, their columns as numbers, and class names in their cells."""
