"""What the manual looks like: its guide, and templates that pdoc takes before its own."""
