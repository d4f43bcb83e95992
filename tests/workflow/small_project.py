"""A small project with the real plumbing and trivial notebooks: a whole run takes seconds, and no torch."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
PAIR = "tiny__easy"

ALPHA = """
    from lib import beta  # a comment

    def words(model, dataset, seed):
        return beta.join([model, dataset, str(seed)])
"""
BETA = """
    def join(parts):
        return " ".join(parts)
"""
GAMMA = """
    def count(text, bins):
        return {"letters": len(text), "bins": bins}
"""
SHOW = """
    from lib.gamma import count

    def said(text):
        return f"{count(text, 0)['letters']} letters"
"""
ROW_CACHE = """
    import os

    class RowCache:
        record, code = os.environ.get("CALIBRATION_RECORD", ""), os.environ.get("CALIBRATION_CODE", "")
"""
REPORTED = {  # what the report takes of the modules of claims
    "claims": "FINDINGS = {}",
    "comparison": "FOREIGN, INSIDE_EXPECTED, STANDS = 'not comparable: ', 0.834, 'no'",
    "microscope": "class Microscope: ...",
    "reference": "def paper_facts(): return {'twice': []}",
    "verdicts": "VERDICT_WORDS = {True: 'holds', False: 'does not hold', None: 'cannot be judged here'}\n"
    "QUANTIFIERS = {}",
}
LOCKS = ("requirements.lock", "requirements-slurm.lock", "requirements-kubernetes.lock")
ROWS = [  # of workflow.pipeline.NOTEBOOKS, in place of the project's own
    {"name": "01_generate", "heavy": True, "writes": ("generations/{model}__{dataset}.parquet",)},
    {"name": "02_single_pass", "reads": ("01_generate",), "writes": ("confidence/single_pass.parquet",)},
    {"name": "08_tables", "reads": ("01_generate", "02_single_pass"), "exports": True},
]
NOTEBOOKS = {
    "01_generate": (
        "run = 'demo'\nmodel: str = 'tiny'\ndataset = 'easy'\nseed = 0",
        "import json\nimport os\nfrom lib import alpha\nfrom lib.row_cache import RowCache\nfrom lib.paper import show",
        "from lib.paths import ARTIFACTS, UserError",
        "folder = ARTIFACTS / run / 'generations'\nfolder.mkdir(parents=True, exist_ok=True)",
        "print('shard 1/1: done')",
        "_ = (folder / f'{model}__{dataset}.parquet').write_text(alpha.words(model, dataset, seed))",
        "facts = {'cwd': os.getcwd(), 'environment': dict(os.environ), 'code': [RowCache.record, RowCache.code]}",
        "_ = (folder / f'{model}__{dataset}.json').write_text(json.dumps(facts))",
        "show.said(alpha.words(model, dataset, seed))",
    ),
    "02_single_pass": (
        "run = 'demo'\nmodels = ['tiny']\ndatasets = ['easy']\nbins = 10",
        "import json\nfrom lib.gamma import count\nfrom lib.paper import show",
        "from lib.paths import ARTIFACTS, SHIPPED",
        "own, profile = ARTIFACTS / run / 'generations', run.partition('-')[2] or 'demo'",
        "folder = own if own.exists() else SHIPPED.parent / profile / 'generations'",
        "texts = [(folder / f'{m}__{d}.parquet').read_text() for m in models for d in datasets]",
        "out = ARTIFACTS / run / 'confidence'\nout.mkdir(parents=True, exist_ok=True)",
        "_ = (out / 'single_pass.parquet').write_text(json.dumps(count(' '.join(texts), bins)))",
        "_ = (out / 'single_pass.json').write_text('{}')",
        "show.said(' '.join(texts))",
    ),
    "08_tables": (
        "run = 'demo'\ntitle = ''",
        "from lib.paths import ARTIFACTS\nfrom workflow.export import TARGETS",
        "text = (ARTIFACTS / run / 'confidence' / 'single_pass.parquet').read_text()",
        "data = {'text/latex': text, 'application/pdf': 'UERG', 'image/png': 'UE5H', 'application/json': []}",
        "for name in TARGETS:\n    display(data, raw=True, metadata={'paper': name})",
    ),
}


def cell(source: str, tags=()) -> dict:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": os.urandom(4).hex(),
        "metadata": {"tags": list(tags)} if tags else {},
        "outputs": [],
        "source": source,
    }


def write_notebook(path: Path, parameters: str, *code: str) -> None:
    """A notebook of one title, one parameters cell and code cells."""
    title = {"cell_type": "markdown", "id": os.urandom(4).hex(), "metadata": {}, "source": f"# {path.stem}"}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [title, cell(parameters, ["parameters"]), *map(cell, code)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip())


def build(root: Path) -> Path:
    """The small project: real runner and plumbing, real lib.params, three trivial notebooks and modules."""
    names = (
        "__init__",
        "paths",
        "params",
        "configs",
        "validation",
        "random_streams",
        "generate/__init__",
        "generate/gguf_file",
        "tasks/__init__",
        "tasks/answers",
        "tasks/datasets",
        "tasks/source_rows",
        "paper/__init__",
        "paper/latex",
        "paper/exhibits",
    )
    library = [f"lib/{name}.py" for name in names]
    for name, text in REPORTED.items():
        write(root / "lib" / "paper" / f"{name}.py", text)
    for name in ("run_all.sh", "pyproject.toml", *LOCKS, *library):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, root / name)
    shutil.copytree(ROOT / "workflow", root / "workflow", ignore=shutil.ignore_patterns("__pycache__"))
    table = f"NOTEBOOKS = tuple(Notebook(**row) for row in {ROWS!r})\n"
    source = (root / "workflow/pipeline.py").read_text()
    text, found = re.subn(r"(?ms)^NOTEBOOKS = \(.*?^\)[^\n]*\n", lambda _: table, source)
    assert found == 1
    (root / "workflow/pipeline.py").write_text(text)
    with (root / "workflow/usable.py").open("a") as file:
        file.write("\n\ndef find_unusable(run, names):  # its models are none\n    return []\n")
    for name, text in (
        ("alpha", ALPHA),
        ("beta", BETA),
        ("gamma", GAMMA),
        ("paper/show", SHOW),
        ("row_cache", ROW_CACHE),
    ):
        write(root / "lib" / f"{name}.py", text)
    write(root / "lib/gamma.html.jinja", "<p>")
    for name, (parameters, *code) in NOTEBOOKS.items():
        write_notebook(root / "notebooks" / f"{name}.ipynb", parameters, *code)
    write(root / "params/demo.yaml", "models: [tiny]\ndatasets: [easy]\nmain_figure_model: tiny\n")
    write(root / "params/models/tiny.yaml", "label: Tiny\nsource: weights/tiny\n")
    write(root / "params/models/other.yaml", "label: Other\nsource: weights/tiny\n")
    easy = "label: Easy\nsource: {all: questions.jsonl}\ncalibration: 1\nevaluation: 1\n"
    write(root / "params/datasets/easy.yaml", easy)
    write(root / "weights/tiny/model.safetensors", "weights")
    write(root / "questions.jsonl", "{}\n")
    return root


class Project:
    """A built project and ways to run it."""

    def __init__(self, root: Path):
        self.root = root

    def environment(self, **extra: str) -> dict:
        env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CONDA_PREFIX")}
        return {**env, "VIRTUAL_ENV": sys.prefix, **extra}

    def start(self, *arguments: str, **extra: str) -> subprocess.Popen:
        """`python -m workflow.run` with the interpreter of the tests."""
        return subprocess.Popen(
            [sys.executable, "-m", "workflow.run", *arguments],
            cwd=self.root,
            env=self.environment(PYTHONPATH=str(self.root), **extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, **extra: str) -> tuple[int, str]:
        process = self.start(*arguments, **extra)
        text, _ = process.communicate(timeout=180)
        return process.returncode, text

    def shell(self, *arguments: str, cwd: Path | None = None, **extra: str) -> tuple[int, str]:
        """`./run_all.sh`, with the environment of the tests as the active one."""
        done = subprocess.run(
            [str(self.root / "run_all.sh"), *arguments],
            cwd=cwd or self.root,
            env=self.environment(**extra),
            capture_output=True,
            text=True,
            timeout=180,
        )
        return done.returncode, done.stdout + done.stderr

    def replace(self, name: str, old: str, new: str) -> None:
        path = self.root / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def read(self, name: str) -> str:
        return (self.root / name).read_text()


def with_cell(project: Project, name: str, source: str) -> None:
    """Put a cell in a notebook, after its parameters."""
    parameters, *code = NOTEBOOKS[name]
    write_notebook(project.root / f"notebooks/{name}.ipynb", parameters, source, *code)


# ---- its processes


def family(project: Project) -> list[psutil.Process]:
    """Processes that work for the project, kernels included."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd().startswith(str(project.root)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def named(project: Project, word: str) -> list[psutil.Process]:
    """Those that have been started with a word."""
    found = []
    for process in family(project):
        with contextlib.suppress(psutil.Error):
            if word in process.cmdline():
                found.append(process)
    return found


def until(condition, seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.1)
