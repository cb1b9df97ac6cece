"""Ridge regression under a mean shift: closed forms, and samples of the same problem."""
