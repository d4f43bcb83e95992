"""The plumbing: what to run, when, and in which environment. The science, in `lib/`, knows nothing of it.

Read in this order: cli (the command line), environment (Python and its packages), run (from start to summary),
progress (what is seen meanwhile), pipeline (the workflow as a table), fresh (what is still valid; records says what a
job left, sources reads code for it, checksums files; moving and leftovers mend what a kill left), schedule and
Snakefile (what runs when), warm (where jobs are forked; ask asks for one), notebook (one job, and kernel its process;
guard keeps jobs and runs apart), hub (what is fetched), shipped (what is part of the project), export, marked, report
and typeset (the files that a reader opens), finding (one of the paper's, on a run), check and cost (what a run would
take).
"""
