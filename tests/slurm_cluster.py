"""A SLURM cluster of this machine's own: munged, slurmctld and two slurmd on the loopback, with
their own key, ports and folders. Nothing of a SLURM that may run here already is read or
touched."""

import getpass
import os
import secrets
import shutil
import socket
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path

import clone
import pytest
import yaml

PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
PROGRAMS = (
    "munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo", "scontrol",
)  # fmt: skip
NODES = ("one", "two")  # of slurm.conf


@contextmanager
def cluster(folder: Path):
    """A cluster that runs; the test is skipped where it can't be had."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    if absent:
        pytest.skip(f"{', '.join(absent)} not found (Debian: munge slurmctld slurmd slurm-client)")
    started = Cluster(folder)
    try:
        try:
            started.start()
        except AssertionError:  # in a container
            logs = [path.read_text()[-1500:] for path in sorted(folder.glob("*.out"))]
            pytest.skip("\n".join(["SLURM does not come up here", *logs]))
        yield started
    finally:
        started.stop()


def options(folder: Path, minutes: int, **more: int) -> str:
    """A file of a project for --slurm on this cluster."""
    path = folder / "clusters" / "tests.yaml"
    path.parent.mkdir(exist_ok=True)
    of_all = {"partition": "work", "time": minutes, "mem": 1000, **more}
    path.write_text(yaml.safe_dump({"all": of_all}))
    return str(path)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [each.getsockname()[1] for each in servers]


class Cluster:
    """The daemons, and the commands that speak to them."""

    def __init__(self, folder: Path):
        self.folder, self.daemons = folder, []
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH}
        facts = {
            "user": getpass.getuser(),
            "host": socket.gethostname().split(".")[0],
            "ports": free_ports(3),
        }
        conf = Path(__file__).with_name("slurm.conf").read_text()
        (folder / "slurm.conf").write_text(conf.format(folder=folder, **facts))
        (folder / "munge.key").touch(0o600)
        (folder / "munge.key").write_bytes(secrets.token_bytes(128))
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir()

    def start(self) -> None:
        munge = f"{self.folder}/munge"
        file_options = [f"--{name}-file={munge}.{name}" for name in ("pid", "log", "seed", "key")]
        self.daemon("munged", "--foreground", "--force", f"--socket={munge}.socket", *file_options)
        clone.until((self.folder / "munge.socket").exists)
        self.daemon("slurmctld", "-D")
        for name in NODES:
            self.daemon("slurmd", "-D", "-N", name)
        clone.until(
            lambda: self.says("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * len(NODES)
        )

    def daemon(self, *command: str) -> None:
        with open(self.folder / f"{len(self.daemons)}.out", "w") as log:
            settings = {
                "env": os.environ | self.environment,
                "stdout": log,
                "stderr": log,
                "start_new_session": True,
            }
            self.daemons.append(subprocess.Popen(command, **settings))

    def says(self, *command: str) -> str:
        done = subprocess.run(
            command, env=os.environ | self.environment, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    def jobs(self) -> list[str]:
        """Ids of the jobs that wait or run."""
        return self.says("squeue", "-h", "-o", "%A").split()

    def stop(self) -> None:
        self.says("scancel", "-s", "KILL", *self.jobs())
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
