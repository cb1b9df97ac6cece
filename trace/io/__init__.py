"""Files in and out: arrays, tables, images, splits, models and weights; one error type, one atomic writer."""
