"""The plumbing: what to run, when, and in which environment. The science, in `lib/`, knows nothing of it.

Read in this order: words (the command line), environment (Python and its packages), run (from start to
summary), jobs (the workflow as a table), fresh (what is still valid; sources reads code for it), schedule and
Snakefile (what runs when), notebook (one job; guard keeps jobs apart), export (LaTeX, PDF and PNG files).
"""
