"""What a killed run leaves half done: finished, or cleared away, by the next."""

import re
import shutil
import time
from pathlib import Path

from lib.paths import ROOT
from workflow import files, fresh
from workflow.locks import alive
from workflow.pipeline import Run
from workflow.records import forget_shards, read_record

# files of store.write_atomically and write_json, folders of forget_shards, export, typeset and book: each with the id
# of the process that writes it
SCRATCH = re.compile(r"\..+\.(\d{1,7})(?:\.partial)?|\.(?:export|typeset|book)-(\d{1,7})-\w+")
YOUNG = 600  # seconds: what is younger, a process of another machine may be writing


def clear(run: Run) -> None:
    """Finish the moves that were begun, forget shards of what has its record, and remove what nobody writes any more.
    For who has the lock of the run."""
    for job in run.jobs:
        files.finish_move(job)
        if record := read_record(ROOT / job.record, job):
            forget_shards(job, fresh.resume_key(run, record["parts"]))
    age = YOUNG if run.cluster else 0
    for folder, spared in ((run.folder, age), (run.figures, age), ("artifacts/.checksums", YOUNG)):  # that of all runs
        for path in list((ROOT / folder).rglob(".*")):
            if abandoned(path, spared):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def abandoned(path: Path, age: float) -> bool:
    """Whether a name is that of something unfinished whose process is gone, and which has been there for so long."""
    found = SCRATCH.fullmatch(path.name)
    if not found or not path.exists() or alive(int(found[1] or found[2])):
        return False
    return time.time() - path.stat().st_mtime >= age
