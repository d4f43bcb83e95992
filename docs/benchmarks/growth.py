"""The memory and the seconds of the notebooks that read all pairs, on a run of many pairs or rows.

    git worktree add ../grown && cd ../grown
    PYTHONPATH=. python docs/benchmarks/growth.py 60 500      # 60 pairs of 500 rows
    PYTHONPATH=. python docs/benchmarks/growth.py 6 4000 05_calibration

The run repeats the shipped signals of the demo: its models under further names, and its rows. It
writes `artifacts/grown` and `params/models/`, so use a copy of the project. A notebook runs in a
kernel of its own, with one thread. docs/hardware.md quotes the numbers.
"""

import os
import sys

import pandas as pd
import yaml
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from lib import store
from lib.params import load_profile
from lib.paths import PARAMS, ROOT
from workflow.engine.notebook import FIXED

RUN = "grown"
NOTEBOOKS = ("05_calibration", "06_sample_efficiency", "07_transfer", "09_beyond", "08_tables")
DEMO = load_profile("demo")
DEMO_ROWS = 500  # of a pair
OF_FILE = {"file", "sha256", "rows", "columns", "libraries", "python"}  # facts that differ
LAST_CELL = """
import resource, time
print(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)
"""


def repeat_rows(frame: pd.DataFrame, copies: int) -> pd.DataFrame:
    """Return a frame several times, each row under another id."""
    parts = []
    for copy in range(copies):
        parts.append(frame.assign(example_id=frame.example_id + f"-{copy}"))
    return pd.concat(parts, ignore_index=True)


def write_pair(shipped: str, model: str, dataset: str, copies: int) -> None:
    """Write the signals of a pair of the grown run."""
    inputs: dict[str, str] = {}
    for kind in ("generations", "verification", "dropout"):
        original = store.find_frame("shipped", kind, shipped)
        frame = repeat_rows(pd.read_parquet(original), copies).assign(model=model)
        facts = store.read_manifest(original) | {"inputs": inputs}
        path = store.frame_path(RUN, kind, f"{model}__{dataset}")
        store.write_frame(frame, path, **{name: facts[name] for name in facts.keys() - OF_FILE})
        if kind == "generations":
            checksum = store.read_manifest(path)["sha256"]
            inputs = {f"generations/{path.name}": checksum}


def write_run(pairs: int, rows: int) -> list[str]:
    """Write the signals of a run, and return its models."""
    models = []
    for number in range(pairs // (len(DEMO.models) * len(DEMO.datasets))):
        for original in DEMO.models:
            model = f"{original}-{number}"
            models.append(model)
            config = PARAMS / "models" / f"{original}.yaml"
            facts = yaml.safe_load(config.read_text(encoding="utf-8"))
            facts["label"] = model
            config.with_stem(model).write_text(yaml.safe_dump(facts), encoding="utf-8")
            for dataset in DEMO.datasets:
                write_pair(f"{original}__{dataset}", model, dataset, rows // DEMO_ROWS)
    return models


def measure_notebook(name: str, values: dict) -> None:
    """Run a notebook, and print its seconds of CPU and its peak in MB."""
    notebook = load_notebook_node(str(ROOT / "notebooks" / f"{name}.ipynb"))
    notebook = parameterize_notebook(notebook, values)
    notebook.cells.append(new_code_cell(LAST_CELL))
    folder = {"metadata": {"path": str(ROOT / "notebooks")}}
    NotebookClient(notebook, timeout=None, kernel_name="python3", resources=folder).execute()
    seconds, peak = notebook.cells[-1].outputs[0].text.split()
    print(f"{name:22} {float(seconds):6.1f} s {float(peak):6.0f} MB", flush=True)


def main() -> None:
    models = write_run(int(sys.argv[1]), int(sys.argv[2]))
    values = DEMO.model_dump() | {"run": RUN, "models": models}
    for name in ("main_figure_model", "figure_model"):
        values[name] = models[0]
    values["transfer_models"] = models[:2]
    os.environ |= FIXED | {"PYTHONPATH": str(ROOT)}  # as in a run
    for library in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    for name in sys.argv[3:] or NOTEBOOKS:
        measure_notebook(name, values)


if __name__ == "__main__":
    main()
