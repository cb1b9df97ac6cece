"""Records as frames, and the statistics of the paper; no text, no pictures."""
