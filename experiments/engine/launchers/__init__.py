"""One file a value of `--launcher`."""
