"""Statistics that know nothing of TRACE: metrics, bootstrap, intervals, conformal thresholds."""
