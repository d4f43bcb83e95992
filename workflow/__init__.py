"""The plumbing: what to run, when, and in which environment. The science, in `lib/`, knows nothing of it.

In reading order:

cli             the command line
environment     Python and its packages
run             from start to summary
progress        what is seen meanwhile
pipeline        the workflow as a table
fresh           what is still valid
records         what a job left
fingerprint     what files and code hold
files           files written and moved such that a kill loses none
leftovers       what a kill left is finished or cleared away
schedule        what runs when, by the Snakefile
preload         where jobs and their kernels are forked
notebook        one job
locks, gpus     keep jobs and runs apart
hub, weights    what is fetched
reference_data  what is part of the project
export, marked  from the executed notebook to files, which report_file, report and typeset make readable
finding, book   one of the paper's findings on a run, and a run as pages
usable          whether its models can be asked
check, cost     what a run would take; extras is what some runs install besides
cluster, node   a run on a cluster, and its job there; dry_run says what would be submitted
"""
