"""Experiment entry points."""
