"""What a finished run shows: the paper's files, the report, and its verification."""
