"""What the paper shows, and whether it holds: tables, figures, findings."""
