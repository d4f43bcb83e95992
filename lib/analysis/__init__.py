"""Statistics of a run: tokens, dropout passes, calibration examples."""
