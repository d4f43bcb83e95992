"""What is asked, and what counts as the answer."""
