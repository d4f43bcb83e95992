"""What keeps runs and jobs apart: locks, a watch that ends a job whose run is gone, and one GPU for each job."""

import errno
import fcntl
import json
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil

from lib.paths import ROOT, UserError
from workflow.pipeline import Job, Run

POLL = 0.5  # seconds
BEAT, SILENT = 20, 120  # seconds between two signs of life in a run's lock, and without one until it counts as dead
LOCKLESS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)  # of a file system that knows no flock
HALTED = 20  # seconds that a kernel may be stopped, which then counts as dead
DRIVER = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia")  # one is there where an NVIDIA driver is
LOOK = "from torch import cuda\nfor i in range(cuda.device_count()): print(cuda.get_device_properties(i).uuid)"
GONE = "the run that started this job is gone"

# ---- locks -------------------------------------------------------------------------------------------------


def try_lock(file: IO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as error:
        if error.errno in LOCKLESS:
            where = str(file.name).removeprefix(f"{ROOT}/")
            message = f"the file system of {where} has no locks (flock): mount it with them, or use another"
            raise UserError(message) from None
        return False


def wait_for(file: IO, patience: float, hopeless: Callable[[], bool] = lambda: False) -> bool:
    """Lock a file; False if it stays locked for `patience` seconds, or waiting is hopeless."""
    until = time.monotonic() + patience
    while not try_lock(file):
        if hopeless() or time.monotonic() > until:
            return False
        time.sleep(POLL)
    return True


@contextmanager
def run_lock(run: Run, patience: float = 30):
    """The run's lock, inheritable. Refused while its holder lives; orphans of a killed run are awaited. Where locks are
    of each machine alone, those of another count as long as the file was touched a short while ago."""
    here = platform.node() or "nameless"

    def noted() -> tuple[int, str, str]:  # process, the name of its scratch folder, and its machine
        lock.seek(0)
        found = re.fullmatch(r"(\d{1,9})(?: (job\w+) (\S+))?", lock.read(400).strip())
        return (int(found[1]), found[2] or "", found[3] or here) if found else (0, "", here)

    def refuse() -> None:
        pid, _, machine = noted()
        there = "" if machine == here else f" on {machine}, or was killed there less than {SILENT // 60} minutes ago"
        raise UserError(f"run '{run.name}' is going on already, in process {pid}{there}")

    path = ROOT / run.folder / ".lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as lock:
        if not wait_for(lock, patience, hopeless=lambda: noted()[2] == here and alive(noted()[0])):
            refuse()
        _, left, machine = noted()
        if machine != here and time.time() - path.stat().st_mtime < SILENT:
            refuse()
        if left and machine == here:  # by a run that was killed
            shutil.rmtree(short_tempdir() / left, ignore_errors=True)
        scratch = scratch_folder()
        rewrite(lock, f"{os.getpid()} {scratch.name} {here}")
        ended = threading.Event()
        threading.Thread(target=beat, args=[path, ended], daemon=True).start()
        os.environ["CALIBRATION_SCRATCH"] = str(scratch)
        os.set_inheritable(lock.fileno(), True)
        try:
            yield lock
        finally:
            ended.set()
            del os.environ["CALIBRATION_SCRATCH"]
            shutil.rmtree(scratch, ignore_errors=True)
            rewrite(lock, "")


def beat(path: Path, ended: threading.Event) -> None:
    """Touch a lock until its run has ended."""
    while not ended.wait(BEAT):
        with suppress(OSError):
            os.utime(path)


def short_tempdir() -> Path:
    """The temporary folder of all runs, where paths are short enough for sockets (104 bytes on macOS)."""
    if scratch := os.environ.get("CALIBRATION_SCRATCH"):
        return Path(scratch).parent
    place = tempfile.gettempdir()
    return Path(place if len(place.encode()) < 60 else "/tmp")


def scratch_folder() -> Path:
    """A folder of one's own: a run's in the temporary folder, that of a job of the run inside it."""
    return Path(tempfile.mkdtemp(prefix="job", dir=os.environ.get("CALIBRATION_SCRATCH") or short_tempdir()))


@contextmanager
def job_lock(job: Job, patience: float = 20):
    """The job's lock file, locked. Its holder is given time to end; a kernel left behind is killed."""
    path = ROOT / job.run.folder / "jobs" / f".{job.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as lock:
        if not wait_for(lock, patience):
            raise UserError(f"{job.title} is running already, in another process")
        lock.seek(0)
        with suppress(ValueError, TypeError, RecursionError):  # killed while it wrote
            for pid, born in json.loads(lock.read()):
                kill_orphan(pid, born)
        yield lock
        lock.truncate(0)


def rewrite(file: IO, text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


# ---- processes ---------------------------------------------------------------------------------------------


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def alive(pid: int) -> bool:
    try:
        return pid > 0 and not gone(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def kill_orphan(pid: int, born: float) -> None:
    """Kill a kernel of an earlier, killed job if it still lives (same process id and time of birth)."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if abs(process.create_time() - born) < 0.01:
            process.kill()
            process.wait(10)


def chain() -> list[psutil.Process]:
    """Who is to outlive this job: its ancestors, and of a forked one also the process that asked for it
    (CALIBRATION_ASKER) with its own, up to the run.py that started them (CALIBRATION_RUN_PID), which comes last; empty
    if started by hand."""
    run, asker = int(os.environ.get("CALIBRATION_RUN_PID", 0)), int(os.environ.get("CALIBRATION_ASKER", 0))
    if not run:
        return []
    above = up_to(run, psutil.Process().parents())
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(asker) if asker else None
        return [*up_to(run, [process, *process.parents()])[:-1], *above] if process else above
    raise SystemExit(GONE)


def up_to(run: int, line: list[psutil.Process]) -> list[psutil.Process]:
    ids = [process.pid for process in line]
    if run not in ids:
        raise SystemExit(GONE)
    return line[: ids.index(run) + 1]


def end(code: int, scratch: Path, parents: list[psutil.Process] = ()) -> None:
    """Kill the kernel and all below, and the schedulers above if they lost their run, and exit at once."""
    lost = parents[:-1] if parents and gone(parents[-1]) else []
    for process in [*psutil.Process().children(recursive=True), *lost]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(code)


def watch(scratch: Path, lock: IO) -> None:
    """Start the thread that ends this job when an ancestor is gone, and notes its kernel in the lock file."""
    parents = chain()

    def look() -> None:
        noted: list = []
        halted = 0.0  # seconds for which the kernel has been stopped, while this process was not
        while True:
            if any(map(gone, parents)):
                end(143, scratch, parents)
            with suppress(psutil.Error):
                kernels = psutil.Process().children()
                stopped = [child for child in kernels if child.status() == psutil.STATUS_STOPPED]
                halted = halted + POLL if stopped else 0.0
                for child in stopped if halted > HALTED else ():
                    child.kill()
            with suppress(psutil.Error):  # a child that ended meanwhile
                children = [[child.pid, child.create_time()] for child in psutil.Process().children()]
                if children != noted:
                    rewrite(lock, json.dumps(children))
                    noted = children
            time.sleep(POLL)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, frame: end(128 + received, scratch))
    threading.Thread(target=look, daemon=True).start()


def follow(parent: int) -> None:
    """Start the thread that ends this process once `parent`, which started it, is gone: Snakemake, where nobody listens
    any more, may wait for ever, and with it the lock of the run that it inherited."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(POLL)
        os._exit(143)

    threading.Thread(target=look, daemon=True).start()


def stop(process: subprocess.Popen, patience: float = 20, number: int = signal.SIGTERM) -> None:
    """End a scheduler (which leads its process group) and all below it: asked first, then killed."""
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    os.killpg(process.pid, number)
    _, survivors = psutil.wait_procs(family, timeout=patience)
    for survivor in survivors:
        survivor.kill()
    process.wait()


# ---- GPUs --------------------------------------------------------------------------------------------------


def gpus() -> list[str]:
    """GPUs to use, as CUDA_VISIBLE_DEVICES takes them: those that it names, else all; a cut one (MIG) in its parts. By
    UUID, which on a shared node tells a job's own GPU 0 from that of another."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return seen_by_torch()
    cards = by_card(listed)
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible(cards, chosen) if chosen is not None else [name for names in cards.values() for name in names]


def by_card(listed: str) -> dict[str, list[str]]:
    """What nvidia-smi lists: of each GPU, by its UUID in order, the UUIDs to use, its own or those of its parts."""
    cards: dict[str, list[str]] = {}
    for kind, uuid in re.findall(r"^\s*(GPU|MIG) .*\(UUID: ([^)]+)\)", listed, flags=re.M):
        if kind == "GPU":
            card = uuid
            cards[card] = []
        else:
            cards[card].append(uuid)
    return {card: parts or [card] for card, parts in cards.items()}


def visible(cards: dict[str, list[str]], chosen: str) -> list[str]:
    """What CUDA makes of CUDA_VISIBLE_DEVICES: names up to the first that it does not know (-1, NoDevFiles); none at
    all where one stands twice."""
    found: list[str] = []
    for word in map(str.strip, chosen.split(",")):
        names = called(cards, word)
        if not names:
            break
        if set(names) & set(found):
            return []
        found += names
    return found


def called(cards: dict[str, list[str]], word: str) -> list[str]:
    """What a word of CUDA_VISIBLE_DEVICES names: an index, a UUID or its beginning, a part, whose old names hold that
    of its GPU (MIG-GPU-.../1/0)."""
    if re.fullmatch(r"[0-9]+", word):
        return list(cards.values())[int(word)] if int(word) < len(cards) else []
    if word.startswith("MIG-GPU-"):
        return [word] if word.removeprefix("MIG-").split("/")[0] in cards else []
    if word.startswith("GPU-"):
        matching = [names for card, names in cards.items() if card.startswith(word)]
    else:
        matching = [[part] for parts in cards.values() for part in parts if word and part.startswith(word)]
    return matching[0] if len(matching) == 1 else []


def seen_by_torch() -> list[str]:
    """What PyTorch finds where there is a driver and no nvidia-smi, as in some containers; in a process of its own, for
    one that has looked can't be forked."""
    if not any(Path(place).exists() for place in DRIVER):
        return []
    try:
        done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    parts = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.startswith("MIG-")]
    return parts[:1] or [f"GPU-{uuid}" for uuid in done.stdout.split()]  # of parts CUDA sees one


def own_folder() -> Path:
    """The user's own in the shared temporary folder. Raises UserError where someone else made what bears its name."""
    folder = short_tempdir() / f"calibrated-confidence-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise UserError(f"{folder} is not a folder of yours alone: remove it, or set TMPDIR to another place")
    return folder


def lock_gpu(stack: ExitStack, name: str) -> bool:
    """Whether a GPU was free, and now is not, until the stack is closed."""
    path = own_folder() / f"gpu-{re.sub(r'[^A-Za-z0-9_-]', '_', name)}.lock"
    file = open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+")  # noqa: SIM115
    if try_lock(file):
        stack.enter_context(file)
        return True
    file.close()
    return False


def gpu_memory(names: list[str]) -> list[float]:
    """Bytes of the cards of which nvidia-smi tells; none where it tells nothing, or they are cut in parts."""
    command = ["nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        found = {uuid.strip(): 2**20 * float(size) for uuid, size in (line.split(",") for line in listed.splitlines())}
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
    return [found[name] for name in names] if set(names) <= set(found) else []


def take_gpu(stack: ExitStack, names: list[str], say: Callable[[str], None] = lambda text: None, count: int = 1) -> str:
    """The first GPUs whose locks are free, so many, by commas, held until the job ends; waits while other jobs have
    them, and says so. Raises UserError where there are too few."""
    if len(names) < count:
        there = f"there are {len(names)}" if names else "there is none"
        raise UserError(f"the run began with a GPU and {there} now: see nvidia-smi, CUDA_VISIBLE_DEVICES")
    waiting = False
    while True:
        with ExitStack() as taken:  # all or none: two jobs that want two each would wait for each other
            free: list[str] = []
            for name in names:
                if len(free) < count and lock_gpu(taken, name):
                    free.append(name)
            if len(free) == count:
                stack.push(taken.pop_all())
                return ",".join(free)
        if not waiting:
            say(f"waits for a GPU: other jobs have {', '.join(names)}")
        waiting = True
        time.sleep(POLL)
