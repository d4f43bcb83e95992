"""Datasets, prompts, and the extraction and grading of answers."""
