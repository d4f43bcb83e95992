"""Post-hoc calibrators: maps from score to probability, fitted on calibration rows."""
