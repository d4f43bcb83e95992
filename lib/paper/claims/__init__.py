"""The claims of the paper, a module for each of its parts; `CLAIMS` in lib/paper/verdicts.py lists
them."""
