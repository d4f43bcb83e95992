"""The workflow: dependency tracking, scheduling, export and report. `lib/`, the science, does not
import it.

The modules in reading order:

cli                     the command line (help.txt)
environment             Python and its packages, found or installed
run                     from start to summary
run_plan                the parameters, shipped signals, cores and GPUs of a run
findings                the notebooks and exhibits of each finding (findings.yaml)
check                   preflight check: machine, disk, access, models, the memory that they need
dataset_file            `--datasets mine.csv`: the parameter file of a file of questions
lab                     the notebook that JupyterLab opens
hub                     revisions, access and weights of models
machine                 programs and GPUs of this machine, the lock of a run, and vLLM
judge                   `judge`: the run of a table of scores

serving/address         the address of a server, as its users write it
serving/model_file      the parameter file of a model that a server has
serving/asking          `--url`: what a run lacks is asked for, and why some of it is not had
serving/batch_files     `requests`: the same as files for a batch service
serving/answer_files    the file of a server's answers
serving/connection      a connection to a server: its key, proxies, time
serving/errors          why a server gave no answer, in its own words
serving/givers          who gives log-probabilities

engine/notebook_table   the notebooks, with their inputs and outputs (notebooks.yaml)
engine/jobs_of_run      runs and their jobs
engine/job_key          everything that the outputs of a job depend on, and its record once finished
engine/local_files      the files of models and datasets on this machine
engine/fingerprint      JSON files, and checksums of files and code
engine/freshness        which outputs are up to date
engine/jobs             run the jobs in order, on this machine, each in a process of its own
engine/job_process      what that process does: make a job's outputs, and tell how it goes on
engine/notebook         the environment of a notebook, its kernel and its execution
engine/notebook_links   the links of an executed notebook
engine/apart            a function in a process that ends, and its memory with it
engine/slurm            submit the jobs to a SLURM cluster
engine/slurm_options    the options of sbatch, from the file of `--slurm`
engine/progress         the lines printed while jobs run

output/paper_files      write an executed notebook's tables and figures (results.tex.jinja)
output/first_numbers    the numbers that end the line of a job
output/page_template     the templates of pages
output/report           the HTML report of a run (report.html.jinja)
output/table_report     that of a table of scores (table_report.html.jinja)
output/model_report     the same of a user's model (model_report.html.jinja)
output/verify           judge a finished run: a finding's claims, and whether it reproduces another
"""
