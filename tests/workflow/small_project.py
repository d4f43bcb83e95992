"""A small project with the real plumbing and trivial notebooks: a whole run takes seconds, and no
torch."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
from nbformat.v4 import new_code_cell

ROOT = Path(__file__).resolve().parents[2]
SMALL = Path(__file__).with_name("small")  # files in place of the project's own, or beside them
PAIR = "tiny__easy"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip())


def build(root: Path) -> Path:
    """The small project: the real runner, `lib.params` and files around them, three trivial
    notebooks and modules. What would wait for PyTorch or look at models is one of the files in
    place of the project's own, a whole module each."""
    for name in ("lib", "workflow"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / "run_all.sh", ROOT / "pyproject.toml", *ROOT.glob("requirements*.lock")):
        shutil.copy2(path, root)
    shutil.copy2(ROOT / "workflow" / "check.py", root / "workflow" / "project_check.py")
    return shutil.copytree(SMALL, root, dirs_exist_ok=True)


def run_whole(folder: Path) -> str:
    """What the small project says in a folder of its own, run by ./run_all.sh from elsewhere, with
    what a site's Jupyter brings in the way: a kernel of the same name, by another interpreter."""
    project = Project(build(folder / "a project"))
    kernel = {
        "argv": ["/bin/false", "-f", "{connection_file}"],
        "display_name": "x",
        "language": "python",
    }
    write(folder / "jupyter/kernels/python3/kernel.json", json.dumps(kernel))
    variables = {
        "MPLBACKEND": "agg",
        "PYTHONPATH": "/nowhere",
        "JUPYTER_PATH": str(folder / "jupyter"),
    }
    variables |= {"HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "7"}  # which a job sets otherwise
    (folder / "my questions").mkdir()
    words = ("--data-dir", "my questions")
    code, text = project.run(*words, shell=True, cwd=folder, **variables)
    assert code == 0, text
    return text


class Project:
    """A built project and ways to run it."""

    def __init__(self, root: Path):
        self.root = root

    def start(
        self, *words: str, shell: bool = False, cwd: Path | None = None, **extra: str
    ) -> subprocess.Popen:
        """`python -m workflow.run`, or `./run_all.sh`, in the environment of the tests."""
        env = {"VIRTUAL_ENV": sys.prefix}
        for name, value in os.environ.items():
            if name not in ("PYTHONPATH", "CONDA_PREFIX", "VIRTUAL_ENV"):
                env[name] = value
        if shell:
            command = [str(self.root / "run_all.sh")]
        else:
            command = [sys.executable, "-m", "workflow.run"]
            env["PYTHONPATH"] = str(self.root)
        return subprocess.Popen(
            [*command, *words],
            cwd=cwd or self.root,
            env=env | extra,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, *words: str, **more: Any) -> tuple[int, str]:
        """The exit code of a command, and what it said."""
        process = self.start(*words, **more)
        text, _ = process.communicate(timeout=180)
        return process.returncode, text

    def replace(self, name: str, old: str, new: str) -> None:
        text = self.read(name)
        assert old in text
        (self.root / name).write_text(text.replace(old, new))

    def read(self, name: str) -> str:
        return (self.root / name).read_text()

    def add_cells(self, name: str, *sources: str, place: int = 2) -> None:
        """Put cells in the notebook as it was, after its parameters."""
        nb = json.loads((SMALL / f"notebooks/{name}.ipynb").read_text())
        nb["cells"][place:place] = map(new_code_cell, sources)
        (self.root / f"notebooks/{name}.ipynb").write_text(json.dumps(nb))

    def family(self) -> list[psutil.Process]:
        """Processes that work for the project, kernels included."""
        running = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_here = process.cwd().startswith(str(self.root))
                if is_here and process.status() != psutil.STATUS_ZOMBIE:
                    running.append(process)
        return running
