"""Compute and evaluate confidence from stored model outputs."""
