"""`kubectl`, as far as a run uses it, for a cluster that is this machine: jobs are processes, their status is in files.

`FOLDER/kubectl` is this file, with what it was asked for in `FOLDER/asked`. Volumes are there already.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
RUN = '"$@"; echo $? > "$0"'  # a job's exit code, in the file that is its name


def create() -> str:
    job = json.load(sys.stdin)
    name, container = job["metadata"]["name"], job["spec"]["template"]["spec"]["containers"][0]
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]} | {e["name"]: e["value"] for e in container["env"]}
    command = ["/bin/sh", "-c", RUN, str(FOLDER / f"{name}.code"), *container["command"]]
    log = open(FOLDER / f"{name}.log", "w")  # noqa: SIM115
    process = subprocess.Popen(command, cwd=container["workingDir"], env=env, stdout=log, stderr=log,
                               stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    (FOLDER / f"{name}.json").write_text(json.dumps({**job, "pid": process.pid}))
    return f"job.batch/{name} created"


def status(name: str) -> str:
    code = FOLDER / f"{name}.code"
    if not (FOLDER / f"{name}.json").exists():
        sys.exit(f'Error from server (NotFound): jobs.batch "{name}" not found')
    words = code.read_text().split() if code.exists() else []
    return json.dumps({"status": {"succeeded" if words == ["0"] else "failed": 1} if words else {"active": 1}})


def running(label: str) -> list[Path]:
    jobs = [path for path in FOLDER.glob("*.json") if not path.with_suffix(".code").exists()]
    return [path for path in jobs if f"run={json.loads(path.read_text())['metadata']['labels']['run']}" == label]


def delete(label: str) -> str:
    for path in running(label):
        os.killpg(json.loads(path.read_text())["pid"], signal.SIGKILL)
        path.unlink()
    return "deleted"


def main(words: list[str]) -> str:
    with (FOLDER / "asked").open("a") as file:
        file.write(" ".join(words) + "\n")
    match words:
        case ["get", "persistentvolumeclaim", "project", *_]:
            return "persistentvolumeclaim/project"
        case ["get", "persistentvolumeclaim", name, *_]:
            sys.exit(f'Error from server (NotFound): persistentvolumeclaims "{name}" not found')
        case ["auth", "can-i", "create", "jobs"]:
            return "yes"
        case ["create", "-f", "-"]:
            return create()
        case ["get", "job", name, "-o", "json"]:
            return status(name)
        case ["get", "jobs", "-l", label, "-o", "name"]:
            return "\n".join(f"job.batch/{path.stem}" for path in running(label))
        case ["delete", "jobs", "-l", label, *_]:
            return delete(label)
    sys.exit(f"error: unknown command {words}")


if __name__ == "__main__":
    print(main(sys.argv[3:]))  # after --namespace NAME
