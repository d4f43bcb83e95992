"""Confidence from what a model left behind, and how good it is."""
