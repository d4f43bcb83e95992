"""Maps from score to probability, fitted on calibration rows."""
