"""A SLURM cluster of this machine's own: munged, slurmctld and two slurmd on the loopback, with their own key, ports
and folders. Nothing of a SLURM that may run here already is read or touched."""

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import clone
import pytest
import yaml

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo", "scontrol")
NODES = ("one", "two")
FILE = {"all": {"partition": "work", "time": 30, "mem": 1000}}
CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=40
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU,CR_LLN
SlurmdParameters=config_overrides
ReturnToService=2
MessageTimeout=100
KillWait=2
MinJobAge=100000
{nodes}
PartitionName=work Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=16000"


@contextmanager
def cluster(folder: Path) -> Iterator["Cluster"]:
    """A cluster that runs; the test is skipped where it can't be had."""
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    if absent := [name for name in PROGRAMS if not shutil.which(name)]:
        pytest.skip(f"{', '.join(absent)} not found (Debian: munge slurmctld slurmd slurm-client)")
    found = Cluster(folder)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def options(folder: Path, **of_all: object) -> str:
    """A file of a project for --slurm on this cluster."""
    path = folder / "clusters" / "tests.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"all": FILE["all"] | of_all}))
    return str(path)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in servers]


class Cluster:
    """The daemons, and the commands that speak to them."""

    def __init__(self, folder: Path):
        self.folder, self.daemons = folder, []
        host, user, ports = socket.gethostname().split(".")[0], getpass.getuser(), free_ports(1 + len(NODES))
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir(parents=True)
        nodes = [NODE.format(name=name, host=host, port=port) for name, port in zip(NODES, ports[1:], strict=True)]
        facts = {"host": host, "user": user, "ports": ports, "folder": folder, "nodes": "\n".join(nodes)}
        (folder / "slurm.conf").write_text(CONFIGURATION.format(**facts))
        (folder / "munge.key").write_bytes(secrets.token_bytes(128))
        (folder / "munge.key").chmod(0o600)
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": os.environ["PATH"]}

    def start(self) -> None:
        place = self.folder
        own = [f"--{name}-file={place}/munge.{name}" for name in ("pid", "log", "seed", "key")]
        self.daemon("munged", "--foreground", "--force", f"--socket={place}/munge.socket", *own)
        self.until(lambda: (place / "munge.socket").exists())
        self.daemon("slurmctld", "-D")
        for name in NODES:
            self.daemon("slurmd", "-D", "-N", name)
        self.until(lambda: self.says("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * len(NODES))

    def daemon(self, program: str, *options: str) -> None:
        log = open(self.folder / f"{program}{len(self.daemons)}.out", "w")  # noqa: SIM115
        own = {"env": os.environ | self.environment, "stdout": log, "stderr": log, "start_new_session": True}
        self.daemons.append(subprocess.Popen([program, *options], **own))

    def says(self, *command: str) -> str:
        done = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True)
        return done.stdout + done.stderr

    def jobs(self) -> list[str]:
        """Ids of the jobs that wait or run."""
        return self.says("squeue", "-h", "-o", "%A").split()

    def until(self, ready, patience: float = 90) -> None:
        try:
            clone.until(ready, patience)
        except AssertionError:  # in a container
            logs = [path.read_text()[-1500:] for path in sorted(self.folder.glob("*.out"))]
            pytest.skip("\n".join(["SLURM does not come up here", *logs]))

    def stop(self) -> None:
        for job in self.jobs():
            self.says("scancel", "-s", "KILL", job)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for daemon in reversed(self.daemons):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(daemon.pid, number)
                    daemon.wait(20)
