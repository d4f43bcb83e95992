"""The workflow: dependency tracking, scheduling, export and report. `lib/`, the science, does not
import it.

The modules in reading order:

cli             the command line (help.txt)
environment     Python and its packages, found or installed
run             from start to summary
progress        the lines printed while jobs run
plan            the parameters, shipped signals, cores and GPUs of a run
rules           the notebooks, with their inputs and outputs (notebooks.yaml, findings.yaml)
pipeline        runs and their jobs
keys            everything that the outputs of a job depend on, and the record of a finished job
local_files     the files of models and datasets on this machine
fresh           which outputs are up to date
fingerprint     JSON files, and checksums of files and code
jobs            run the jobs in order, on the cores and GPUs of this machine, each in a process of its own
apart           a function in a process that ends, and its memory with it
slurm           submit the jobs to a SLURM cluster
notebook        the environment of a notebook, its kernel and its execution
hub             revisions, access and weights of models
export          write an executed notebook's tables and figures (results.tex.jinja)
report          the HTML report of a run (report.html.jinja)
judge           judge a finished run: a finding's claims, and whether it reproduces the shipped run
check           preflight check: machine, disk, access, models, the memory that they need
ask             `requests` and `ask`: what a model that only a server has is asked
machine         programs and GPUs of this machine, the lock of a run, and vLLM for the runs that use it
"""
