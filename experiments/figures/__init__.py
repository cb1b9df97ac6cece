"""Figures from records: one file a study; a decorator registers a figure."""
