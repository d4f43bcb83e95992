"""A small project with the real plumbing and trivial notebooks: a whole run takes seconds, and no torch."""

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
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).resolve().parents[2]
PAIR = "tiny__easy"
SPOKEN = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}

FILES = {  # in place of the project's own, or beside them
    "lib/alpha.py": """
        from lib import beta  # a comment

        def words(model, dataset, seed):
            return beta.join([model, dataset, str(seed)])
        """,
    "lib/beta.py": 'join = " ".join\n',
    "lib/gamma.py": """
        TEMPLATE, WORKER = ".html.jinja", "worker.py"  # beside it

        def count(text, bins):
            return {"letters": len(text), "bins": bins}
        """,
    "lib/gamma.html.jinja": "<p>",
    "lib/worker.py": "from lib import delta",
    "lib/delta.py": "",
    "lib/paper/show.py": """
        def said(text):
            return " ".join(text)
        """,
    "lib/row_cache.py": """
        import os

        class RowCache:
            code = os.environ.get("CALIBRATION_CODE")
        """,
    # what the report takes of the modules of claims
    "lib/paper/report_contents.py": "NOT_COMPARABLE, EXPECTED_CAPTURE_RATE = 'not comparable: ', 0.834",
    "lib/paper/numbers_of_paper.py": "def paper_facts(): return {'twice': []}",
    "lib/paper/verdicts.py": "FINDINGS, QUANTIFIERS, VERDICT_WORDS = {}, {}, dict.fromkeys((None, False), '')",
    "params/demo.yaml": "models: [tiny]\ndatasets: [easy]\nmain_figure_model: tiny\n",
    "params/models/tiny.yaml": "label: Tiny\nsource: weights/tiny\n",
    "params/models/other.yaml": "label: Other\nsource: weights/tiny\n",
    "params/datasets/easy.yaml": "label: Easy\nsource: {all: questions.jsonl}\ncalibration: 1\nevaluation: 1\n",
    "artifacts/paper.yaml": "twice: []\n",
    "artifacts/reference.csv": "",
    "weights/tiny/model.safetensors": "weights",
    "questions.jsonl": "{}\n",
}
ROWS = [  # of workflow.rules.NOTEBOOKS, in place of the project's own
    {"name": "01_generate", "runs_model": True, "writes": ("generations/{model}__{dataset}.parquet",)},
    {"name": "02_single_pass", "reads": ("01_generate",), "folders": ("kept",),
     "writes": ("confidence/single_pass.parquet",)},
    {"name": "08_tables", "reads": ("01_generate", "02_single_pass"), "exports": True,
     "decided_by": ("workflow/export.py",), "writes": ("exported/08_tables.json",)},
    {"name": "report", "module": "workflow/report.py", "reads": ("08_tables/exported",),
     "data": ("artifacts/reference.csv", "artifacts/paper.yaml"), "decided_by": ("workflow/report.html.jinja",)},
]  # fmt: skip
ADDED = {  # to the project's own
    "rules.py": f"NOTEBOOKS = tuple(Notebook(**row) for row in {ROWS!r})",
    "notebook.py": 'KERNEL["imports"]["with a model"] = []  # its notebooks import no torch',
    "check.py": "from lib.tasks import datasets\n\n"
    "def refuse_unusable(run, names):  # its models are none\n"
    "    for name in run.values['datasets'] if names else []:\n"
    "        datasets.use_local_files(params.load_dataset_config(name))\n\n"
    "def with_small(run, names):\n    return replace(run, small=tuple(names))",
}
NOTEBOOKS = {
    "01_generate": (
        "run = 'demo'\nmodel: str = 'tiny'\ndataset = 'easy'\nseed = 0",
        "import json\nimport os\nfrom lib import alpha\nfrom lib.row_cache import RowCache\nfrom lib.paper import show",
        "from lib.paths import ARTIFACTS, UserError",
        "folder = ARTIFACTS / run / 'generations'\nfolder.mkdir(parents=True, exist_ok=True)\nprint('shard 1/1: done')",
        "_ = (folder / f'{model}__{dataset}.parquet').write_text(alpha.words(model, dataset, seed))",
        "facts = {'cwd': os.getcwd(), 'environment': dict(os.environ), 'code': RowCache.code}",
        "_ = (folder / f'{model}__{dataset}.json').write_text(json.dumps(facts))\nshow.said('what is shown')",
    ),
    "02_single_pass": (
        "run = 'demo'\nmodels = ['tiny']\ndatasets = ['easy']\nbins = 10",
        "import json\nfrom lib.gamma import count\nfrom lib.paper import show",
        "from lib.paths import ARTIFACTS, SHIPPED",
        "own, profile = ARTIFACTS / run / 'generations', run.partition('-')[2] or 'demo'",
        "folder = own if own.exists() else SHIPPED.parent / profile / 'generations'",
        "texts = [(folder / f'{m}__{d}.parquet').read_text() for m in models for d in datasets]",
        "for name, text in {'confidence/single_pass.parquet': json.dumps(count(show.said(texts), bins)),\n"
        "                   'confidence/single_pass.json': '{}', 'kept/a.json': '{}'}.items():\n"
        "    (ARTIFACTS / run / name).parent.mkdir(parents=True, exist_ok=True)\n"
        "    _ = (ARTIFACTS / run / name).write_text(text)",
    ),
    "08_tables": (
        "run = 'demo'\ntitle = ''",
        "from lib.paths import ARTIFACTS\nfrom workflow.export import TARGETS",
        "text = (ARTIFACTS / run / 'confidence' / 'single_pass.parquet').read_text()",
        "data = {'text/latex': text, 'application/pdf': 'UERG', 'image/png': 'UE5H', 'application/json': []}",
        "for name in TARGETS:\n    display(data | {'text/html': ''}, raw=True, metadata={'paper': name})",
    ),
}


def write_notebook(path: Path, parameters: str, *code: str) -> None:
    """A notebook of one title, one parameters cell and code cells."""
    title, first = new_markdown_cell(f"# {path.stem}"), new_code_cell(parameters, metadata={"tags": ["parameters"]})
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(new_notebook(cells=[title, first, *map(new_code_cell, code)], metadata=kernel)))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip())


def build(root: Path) -> Path:
    """The small project: the real runner, `lib.params` and files around them, three trivial notebooks and modules."""
    for name in ("lib", "workflow"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / "run_all.sh", ROOT / "pyproject.toml", *ROOT.glob("requirements*.lock")):
        shutil.copy2(path, root)
    for name, text in ADDED.items():
        with (root / "workflow" / name).open("a") as file:
            file.write(f"\n\n{text}\n")
    for name, text in FILES.items():
        write(root / name, text)
    for name, (parameters, *code) in NOTEBOOKS.items():
        write_notebook(root / "notebooks" / f"{name}.ipynb", parameters, *code)
    return root


class Project:
    """A built project and ways to run it."""

    def __init__(self, root: Path):
        self.root = root

    def start(self, *words: str, shell: bool = False, cwd: Path | None = None, **extra: str) -> subprocess.Popen:
        """`python -m workflow.run`, or `./run_all.sh`, in the environment of the tests."""
        command = [str(self.root / "run_all.sh")] if shell else [sys.executable, "-m", "workflow.run"]
        env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CONDA_PREFIX")}
        own = {"VIRTUAL_ENV": sys.prefix} if shell else {"VIRTUAL_ENV": sys.prefix, "PYTHONPATH": str(self.root)}
        return subprocess.Popen([*command, *words], cwd=cwd or self.root, env=env | own | extra, **SPOKEN)

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

    def add_cell(self, name: str, source: str) -> None:
        """Put a cell in a notebook, after its parameters."""
        parameters, *code = NOTEBOOKS[name]
        write_notebook(self.root / f"notebooks/{name}.ipynb", parameters, source, *code)

    def family(self) -> list[psutil.Process]:
        """Processes that work for the project, kernels included."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cwd().startswith(str(self.root)) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found
