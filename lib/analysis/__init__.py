"""What a run shows beyond its scores: tokens, passes, and rows that calibrators learn from."""
