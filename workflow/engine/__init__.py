"""The engine: which jobs a run has, which are up to date, and running them. It knows no science."""
