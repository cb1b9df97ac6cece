"""What the benchmark measures: one file a subject, with `cases(size) -> list[BenchmarkCase]`."""
