"""The protocol of the synthetic worlds: draw, train, measure."""
