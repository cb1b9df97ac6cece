"""Tests of the vision experiments."""
