"""Files as an earlier version of the project left them, in earlier.tar.xz: a finished run with its calibrators, a run
that was killed between two shards, and the shipped signals of a run.

    python tests/blackbox/earlier.py      # makes them by the code as it is now: only where a version begins
"""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clone import ENV, GIT, SMALL, copy_of_project, edit, run  # noqa: E402

FILE = Path(__file__).with_name("earlier.tar.xz")
PAIR = "tiny-llama__demo-easy"
WHAT = [  # the model's work, and what is read of it; what is light is made again
    *(f"artifacts/earlier/{kind}" for kind in ("jobs/0[134]*", "notebooks/0[134]*", "[giva]*/*__*", "dropout*/*")),
    "artifacts/earlier/*.json",
    "artifacts/earlier/calibrators/*",
    "artifacts/half/*.json",
    "artifacts/half/shards/*/*",
    "artifacts/shipped/earlier/*",
    "figures/earlier/*.tex",
]
PREDICT = """
import json, sys
from lib.calibrate.calibrator_files import load_calibrator
scores = [place / 9 for place in range(10)]
found = {path.split("/")[-1]: load_calibrator(path).predict(scores) for path in sys.argv[1:]}
print(json.dumps({name: list(map(float, values)) for name, values in found.items()}))
"""


def write_profiles(project: Path) -> None:
    """Both profiles: small, and with results that outlive a change of the code."""
    for name in ("earlier", "half"):
        path = shutil.copy(project / "params" / "demo.yaml", project / "params" / f"{name}.yaml")
        edit(path, **SMALL, on_code_change="keep")


def kill_between_shards(project: Path, name: str) -> None:
    """Starts a run, and kills all of it as soon as the first notebook has saved a shard or two."""
    command = [project / "run_all.sh", name, "--cores", "1"]
    process = subprocess.Popen(command, cwd=project, env=ENV, start_new_session=True, stdout=subprocess.DEVNULL)
    while len(list((project / "artifacts" / name / "shards").glob("01_*/[0-9]*.parquet"))) < 2:
        assert process.poll() is None, "it came to its end"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def predictions(project: Path) -> dict[str, list[float]]:
    """What the finished run's isotonic calibrators make of ten scores, loaded from their files."""
    paths = sorted((project / "artifacts" / "earlier" / "calibrators").glob("*__isotonic.json"))
    command = [sys.executable, "-c", PREDICT, *map(str, paths)]
    env = ENV | {"PYTHONPATH": str(project)}
    return json.loads(subprocess.run(command, cwd=project, check=True, capture_output=True, text=True, env=env).stdout)


def unpack(project: Path) -> None:
    """What the archive holds, in a copy of the project."""
    write_profiles(project)
    with tarfile.open(FILE) as packed:
        packed.extractall(project, filter="data")


def make(project: Path) -> bytes:
    write_profiles(project)
    kill_between_shards(project, "half")
    run(project, "earlier", "--cores", "1")
    for words in (("init", "-q"), ("add", "params"), ("commit", "-qm", "first")):
        subprocess.run([*GIT, *words], cwd=project, check=True)
    who = {f"GIT_{role}_{what}": "someone" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = [sys.executable, "-m", "workflow.reference_data", "earlier"]
    subprocess.run(command, cwd=project, check=True, env=ENV | who | {"PYTHONPATH": str(project)})
    (project / "artifacts" / "earlier" / "predictions.json").write_text(json.dumps(predictions(project)))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as archive:
        for pattern in WHAT:
            for path in sorted(project.glob(pattern)):
                archive.add(path, path.relative_to(project))
    return packed.getvalue()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        FILE.write_bytes(make(copy_of_project(Path(scratch) / "a project")))
    print(f"{FILE.name}: {FILE.stat().st_size / 1e6:.2f} MB")
