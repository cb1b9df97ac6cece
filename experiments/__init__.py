"""Experiment entry points, the records they leave, and the tables made from records."""
