"""The workflow: dependency tracking, scheduling, export and report. `lib/`, the science, does not import it.

The modules in reading order:

cli             the command line
environment     Python and its packages, found or installed
run             from start to summary
progress        the lines printed while jobs run
plan            the parameters, cores and GPUs of a run
rules           the notebooks, with their inputs and outputs
pipeline        runs and their jobs
keys            everything that the outputs of a job depend on
fresh           which outputs are up to date
records         the record of a finished job
fingerprint     checksums of files and code
files           JSON files
schedule        run the jobs in order, on the cores and GPUs of this machine
preload         the processes that jobs and kernels are forked from
slurm           submit the jobs to a SLURM cluster; slurm_job runs one of them
notebook        run one job; kernel_environment is what its kernel is given
locks, gpus     keep runs and jobs apart
hub, weights    download datasets and models
shipped         check the signals shipped with the project, and let a run reuse them
export          write an executed notebook's tables and figures, and the PDF
report          the HTML report of a run
finding         one of the paper's findings
verify          compare a run with the shipped one
model_checks    whether the models of a run can be loaded
check           preflight check: machine, disk, access, models
memory          the memory that a model needs, and what is free
vllm            install vLLM for the runs that use it
"""
