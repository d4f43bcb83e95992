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
ADDED = {  # to the project's own modules
    "engine/notebook.py": "IMPORTS_WITH_MODEL = []  # its notebooks import no torch",
    "check.py": "from lib.tasks import datasets\n\n"
    "def refuse_unusable(run, names):  # its models are none\n"
    "    for name in run.values['datasets'] if names else []:\n"
    "        datasets.use_local_files(params.load_dataset_config(name))\n\n"
    "def with_small(run, names):\n    return replace(run, small=tuple(names))",
}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip())


def build(root: Path) -> Path:
    """The small project: the real runner, `lib.params` and files around them, three trivial
    notebooks and modules."""
    for name in ("lib", "workflow"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / "run_all.sh", ROOT / "pyproject.toml", *ROOT.glob("requirements*.lock")):
        shutil.copy2(path, root)
    for name, text in ADDED.items():
        with (root / "workflow" / name).open("a") as file:
            file.write(f"\n\n{text}\n")
    return shutil.copytree(SMALL, root, dirs_exist_ok=True)


class Project:
    """A built project and ways to run it."""

    def __init__(self, root: Path):
        self.root = root

    def start(
        self, *words: str, shell: bool = False, cwd: Path | None = None, **extra: str
    ) -> subprocess.Popen:
        """`python -m workflow.run`, or `./run_all.sh`, in the environment of the tests."""
        command = (
            [str(self.root / "run_all.sh")] if shell else [sys.executable, "-m", "workflow.run"]
        )
        env = {
            key: value
            for key, value in os.environ.items()
            if key not in ("PYTHONPATH", "CONDA_PREFIX")
        }
        own = (
            {"VIRTUAL_ENV": sys.prefix}
            if shell
            else {"VIRTUAL_ENV": sys.prefix, "PYTHONPATH": str(self.root)}
        )
        spoken = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(
            [*command, *words], cwd=cwd or self.root, env=env | own | extra, **spoken
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
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if (
                    process.cwd().startswith(str(self.root))
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
        return found
