"""`kubectl`, as far as a run uses it, for a cluster that is this machine: a job is done while it is created.

`fake_kubectl.py FOLDER WORDS`: what it remembers lies in the folder. Volumes are there already.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1])


def create() -> str:
    job = json.load(sys.stdin)
    name, container = job["metadata"]["name"], job["spec"]["template"]["spec"]["containers"][0]
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]} | {e["name"]: e["value"] for e in container["env"]}
    with open(FOLDER / f"{name}.log", "w") as log:
        done = subprocess.run(container["command"], cwd=container["workingDir"], env=env, stdout=log, stderr=log)
    job["status"] = {"failed" if done.returncode else "succeeded": 1}
    (FOLDER / f"{name}.json").write_text(json.dumps(job))
    return f"job.batch/{name} created"


def main(words: list[str]) -> str:
    match words:
        case ["get", "persistentvolumeclaim", "project", *_] | ["get", "jobs", "-l", _, "-o", "name"]:
            return ""
        case ["get", "persistentvolumeclaim", name, *_]:
            sys.exit(f'Error from server (NotFound): persistentvolumeclaims "{name}" not found')
        case ["auth", "can-i", "create", "jobs"]:
            return "yes"
        case ["create", "-f", "-"]:
            return create()
        case ["get", "job", name, "-o", "json"]:
            return (FOLDER / f"{name}.json").read_text()
    sys.exit(f"error: unknown command {words}")


if __name__ == "__main__":
    print(main(sys.argv[4:]))  # after --namespace NAME
