"""Readers of the file formats of datasets."""
