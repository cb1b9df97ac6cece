"""What the benchmark measures: one file a subject."""
