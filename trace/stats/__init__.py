"""Statistics that know nothing of TRACE: metrics, bootstrap, jackknife, intervals, betting, conformal thresholds."""
