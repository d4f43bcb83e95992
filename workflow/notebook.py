"""One job: a notebook executed by papermill, in a kernel of its own, and recorded.

`python -m workflow.notebook RUN JOB`, as the Snakefile calls it. Lines on stdout that begin with @@ are
events for the runner. The job holds a lock, and ends with the process that started it, as its kernel does with the
job: else kill -9 would leave a kernel that writes on (preload.py).
"""

import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack, suppress
from pathlib import Path

from lib import params
from lib.paths import ROOT, UserError
from workflow import fresh, hub, node, records
from workflow.fingerprint import cells
from workflow.gpus import available, take_gpu
from workflow.locks import job_lock, scratch_folder
from workflow.pipeline import MARK, PUBLISHED, Job, Run
from workflow.preload import follow, fork_kernels


class Failure(Exception):
    """A job that did not succeed: one line for the user, and the exit code that it deserves."""

    def __init__(self, text: str, code: int = 1):
        super().__init__(text)
        self.code = code


def tell(job: Job, event: str, **facts) -> None:
    """One event for run.py: start, progress, end or fail. In one write, for jobs at once share the pipe."""
    line = json.dumps({"job": job.name, "event": event, **facts})
    node.append_event(f"{MARK}{line}\n")
    sys.stdout.write(f"\n{MARK}{line}\n")  # print would write the newline apart where Python is unbuffered
    sys.stdout.flush()


def constants(job: Job) -> dict[str, str]:
    """Environment variables that libraries read as they are imported."""
    threads = {f"{name}_NUM_THREADS": str(job.threads) for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}
    fetched = fresh.is_local(job) or (job.run.cluster and job.model and hub.cached(params.load_model_config(job.model)))
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"} if fetched else {}  # else nodes would try for minutes
    return {
        **threads,
        **offline,
        **(allocation() if job.on_gpu else reuse()),
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "SOURCE_DATE_EPOCH": "0",  # the same date in every PDF
        "TOKENIZERS_PARALLELISM": "false",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "JUPYTER_PREFER_ENV_PATH": "1",
    }


def allocation() -> dict[str, str]:
    """How PyTorch takes a GPU's memory, unless the user says so: in segments that grow, as caches do at every step, so
    that what one batch gave back serves the next, whatever its shape."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    return {} if any(name in os.environ for name in names) else {names[0]: "expandable_segments:True"}


def reuse() -> dict[str, str]:
    """How the C library takes memory, unless the user says so: what a layer gave back serves the next one. Returned to
    the system it would come back page by page, a tenth to a quarter of the time of passes on a processor. Blocks
    of more than 32 MB are returned, or they would lie about in pieces."""
    wanted = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}
    return {} if any(name in os.environ for name in wanted) else wanted


def surroundings(job: Job, scratch: Path) -> dict[str, str]:
    """Environment variables of the kernel."""
    own = str(scratch / "ipython")  # not the user's start-up files, but ours
    return {**constants(job), "JUPYTER_RUNTIME_DIR": str(scratch), "IPYTHONDIR": own, "TMPDIR": str(scratch)}


def forkable(job: Job) -> bool:
    """Whether this process, which was forked, has imported its libraries as the job's kernel would."""
    alike = all(os.environ.get(name) == value for name, value in constants(job).items())
    return alike and not job.on_gpu


def start_up(record: str, scratch: Path, code: str = "", earlier: str = "") -> None:
    """What the kernel does before the first cell: lib is told the pinned revisions, which record its shards wait for,
    and what `code` makes the rows, where rows of other code are not kept."""
    folder = scratch / "ipython" / "profile_default" / "startup"
    folder.mkdir(parents=True)
    lines = ["import lib.row_cache", f"lib.row_cache.RowCache.record = {record!r}"]
    lines += [f"lib.row_cache.RowCache.earlier_record = {earlier!r}"]
    if code:
        lines += [f"lib.row_cache.RowCache.code = {code!r}"]
    if params.REVISIONS:
        lines += ["import lib.params", f"lib.params.REVISIONS.update({params.REVISIONS!r})"]
    (folder / "run.py").write_text("\n".join([*lines, "del lib", ""]), encoding="utf-8")


class Progress:
    """A file that papermill writes the stdout of cells to: lines that begin with 'shard' become events."""

    def __init__(self, job: Job):
        self.job, self.rest = job, ""

    def write(self, text: str) -> None:
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            if line.startswith("shard"):
                tell(self.job, "progress", text=line.strip())

    def flush(self) -> None:
        pass


def source(job: Job, scratch: Path) -> str:
    """The notebook to run. For the paper's own numbers a copy without the cells that need a run's (tagged `run`)."""
    if job.run.name != PUBLISHED:
        return job.notebook.path
    import nbformat

    nb = nbformat.read(ROOT / job.notebook.path, as_version=4)
    nb.cells = [cell for cell in nb.cells if "run" not in cell.metadata.get("tags", [])]
    path = scratch / f"{job.notebook.name}.ipynb"
    nbformat.write(nb, path)
    return str(path)


def execute(job: Job, scratch: Path) -> None:
    """Run the notebook; Failure if a cell fails or the kernel dies. One retry if the kernel never started."""
    sys.modules.setdefault("rfc3987_syntax", None)  # a grammar of URIs: 1.5 s of import that no notebook needs
    from nbclient.exceptions import DeadKernelError
    from papermill import execute_notebook
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    logging.getLogger("papermill").setLevel(logging.ERROR)  # a parameters cell may leave out what it takes by parts
    options = {
        "parameters": job.parameters,
        "kernel_name": "python3",
        "cwd": "notebooks",
        "progress_bar": False,
        "stdout_file": Progress(job),
        "start_timeout": 120,
        "config": Config({"KernelManager": {"transport": "ipc", "ip": str(scratch / "k")}}),
    }
    (ROOT / job.executed).unlink(missing_ok=True)
    for last in (False, True):
        try:
            execute_notebook(source(job, scratch), job.executed, **options)
            return
        except PapermillExecutionError as error:
            raise cell_failure(job, error) from None
        except DeadKernelError:
            raise dead_kernel(job) from None
        except (RuntimeError, TimeoutError, OSError) as error:
            if last or started(job):
                raise Failure(f"{job.title}: {first_line(str(error)) or type(error).__name__}") from error


def executed_cells(job: Job) -> list[dict]:
    """Code cells of the executed notebook, as far as it was saved."""
    with suppress(UserError):
        return [cell for cell in cells(job.executed) if cell["cell_type"] == "code"]
    return []


def started(job: Job) -> bool:
    return any(cell.get("execution_count") for cell in executed_cells(job))


def first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0].strip()[:500]


def cell_failure(job: Job, error) -> Failure:
    """The line for a cell that raised; a UserError speaks for itself."""
    if error.ename == "UserError":
        return Failure(first_line(error.evalue), code=2)
    place = f"cell [{error.exec_count}] `{first_line(error.source)}`"
    return Failure(f"{job.executed} failed in {place}: {error.ename}: {first_line(error.evalue)}")


def dead_kernel(job: Job) -> Failure:
    """The line for a kernel that vanished, which nearly always means that memory ran out."""
    times = [cell for cell in executed_cells(job) if cell["metadata"].get("papermill", {}).get("start_time")]
    place = f" in the cell `{first_line(''.join(times[-1]['source']))}`" if times else ""
    return Failure(
        f"{job.executed}: the kernel died{place}, most likely for want of memory: make max_batch_tokens in the "
        "profile smaller, or use --cores 1, so that one notebook runs at a time"
    )


def run_job(job: Job, scratch: Path, forked: bool) -> None:
    """Execute, export, record; nothing of it where what the job waited for came out as it was."""
    began = time.monotonic()
    node.wait_for_inputs(job)
    if why := fresh.settle(job):
        return tell(job, "kept", text=why)
    if record := records.read_record(ROOT / job.record, job):  # by a process that was killed before it could say so
        return tell(job, "end", seconds=record["seconds"])
    parts = fresh.parts(job)
    code = fresh.resume_key(job.run, parts)
    tell(job, "start")
    with ExitStack() as stack:
        if job.on_gpu:
            names = available()
            count = len(names) if job.run.cluster else job.cards  # a cluster gives a job what it asked for
            taken = take_gpu(stack, names, lambda text: tell(job, "progress", text=text), max(1, count))
            os.environ["CUDA_VISIBLE_DEVICES"] = taken
        if forked and forkable(job):
            fork_kernels()
        os.environ.update(surroundings(job, scratch))
        tempfile.tempdir = None  # which is asked for anew
        # figures are shown inline, no file of the user's is run, and no kernel of the site's stands for ours
        for name in ("MPLBACKEND", "PYTHONSTARTUP", "JUPYTER_PATH"):
            os.environ.pop(name, None)
        start_up(code, scratch, fresh.code_key(job, parts), fresh.earlier_resume_key(job.run, parts))
        (ROOT / job.executed).parent.mkdir(parents=True, exist_ok=True)
        execute(job, scratch)
    outputs = job.outputs + job.loose
    if job.notebook.exports:
        from workflow.export import export

        outputs += [f"{job.run.figures}/{name}" for name in export(ROOT / job.executed, ROOT / job.run.figures)]
    seconds = time.monotonic() - began
    records.write_record(job, parts, outputs, seconds)
    records.forget_shards(job, code)
    tell(job, "end", seconds=seconds)


def main(argv: list[str], forked: bool = True) -> int:
    """`forked` from a process that has imported what the notebook imports; else this one ends with its parent."""
    os.chdir(ROOT)
    if not forked:
        follow(os.getppid())
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, frame: sys.exit(128 + received))
    job = node.with_local_cores(Run.load(argv[0])).job(argv[1])
    hub.pin(job.run)
    if job.run.cluster:
        os.environ["CALIBRATION_EVENTS"] = str(ROOT / job.events)
    scratch = scratch_folder()
    try:
        with job_lock(job):
            run_job(job, scratch, forked)
        return 0
    except (UserError, Failure) as problem:
        code = getattr(problem, "code", 2)
        tell(job, "fail", text=str(problem), code=code)
        return code
    except Exception as problem:  # of the system, or ours: the traceback is for the log
        traceback.print_exc()
        tell(job, "fail", text=f"{job.title}: {type(problem).__name__}: {first_line(str(problem))}", code=1)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], forked=False))
