"""What is made again when something changes, of the project's own notebooks: no model runs, keys
are compared."""

import ast
import re

import pytest

from lib import params
from lib.paths import ROOT
from workflow.engine import job_key
from workflow.engine.fingerprint import code_cells
from workflow.engine.job_key import SHOWING
from workflow.engine.jobs_of_run import Run
from workflow.engine.notebook_table import NOTEBOOKS

HEAVY = [row for row in NOTEBOOKS if row.runs_model]

VALUES = params.load_profile("demo").model_dump() | {
    "models": ["tiny-llama"],
    "datasets": ["demo-easy"],
}
# notebooks whose own keys hold a parameter; those that read what they write follow
HOLDING = {
    "max_batch_tokens on_code_change cpu max_dropout_tokens rows_per_shard": "",
    "n_temperature_nodes save_texts top_logits": "01",
    "datasets models": "01 02 03 04 04b 05 06 07 08 09",
    "example": "01 02 03 04 05 06 07",
    "limit": "01 03 04",
    "seed": "01 02 03 04 04b 05 06 07 08 09",
    "demonstration engine max_new_tokens": "01 04b",
    "grader": "02 04 04b 05 06 07 08 09",
    "bins missing": "02 04 05 06 07 08 09",
    "include_thinking logprobs_from": "02 05 06 07 08 09",
    "n_bins_ablation bin_models main_figure_dataset main_figure_model": "02 08",
    "dropout_prefix dropout_passes dropout_rates dropout_limit dropout_top_k": "04",
    "dropout_top_p n_tuning_examples": "04",
    "phi": "04 05 08 09",
    "ablation_limit": "04b",
    "figure_model": "05 06 08 09",
    "figure_dataset": "05 08",
    "options fit_on_tuning_rows": "05 08 09",
    "resamples": "02 05 07 08 09",
    "calibration_sizes draws incorrect_fraction": "06",
    "transfer_datasets transfer_models": "07 08 09",
    "all_transfers": "07",
    "title": "08",
    "precision_confidence target_precisions": "09",
}
NOTEBOOKS_HOLDING = {}
for names, numbers in HOLDING.items():
    NOTEBOOKS_HOLDING |= dict.fromkeys(names.split(), numbers)


def contents(**changed):
    """What the key of each job holds, by its notebook's number."""
    jobs = Run("mine", VALUES | changed).jobs
    return {job.notebook.number: job_key.key_parts(job) for job in jobs if not job.notebook.module}


def changed_by(before, after):
    numbers = [number for number in before if before[number] != after[number]]
    return " ".join(sorted(numbers))


@pytest.fixture(scope="module")
def before():
    return contents()


@pytest.mark.parametrize("name", params.Profile.model_fields)
def test_what_a_parameter_remakes(before, name):
    other = {"model": "tiny-qwen", "dataset": "svamp"}.get(params.kind_of(name), "another")
    value = [other] if isinstance(VALUES[name], list) else other
    assert changed_by(before, contents(**{name: value})) == NOTEBOOKS_HOLDING[name]


# file, its text before and after, and the notebooks that run a model and whose keys change
CODE = [
    # another estimator, calibrator, claim or table
    ("lib/score/estimators.py", "_DECLARED = (",
     "_DECLARED = (\n    Estimator('mine', '', '', '', '', '', len),", ""),
    ("lib/calibrate/calibrators.py", "METHODS", "METHODS_AND_MINE", ""),
    ("lib/paper/verdicts.py", "FINDINGS", "FINDINGS_AND_MINE", ""),
    # what decides what a model leaves
    ("lib/score/estimators.py", "np.clip(1 - np.asarray(bald", "np.clip(2 - np.asarray(bald", "04"),
    ("lib/score/metrics.py", "def ece(", "def ece(*, more=0, ", "04"),
    ("lib/score/interpretation.py", "def interpret_row(", "def interpret_row(more, ", "04"),
    ("lib/generate/prompt_arms.py", "def choose_ablation_rows(",
     "def choose_ablation_rows(more, ", "04b"),
    ("lib/models/loading.py", "def load_language_model(", "def load_language_model(more, ",
     "01 03 04 04b"),
    ("lib/row_cache.py", "def map(", "def map(more, ", "01 03 04 04b"),
]  # fmt: skip


@pytest.mark.parametrize("path, old, new, remade", CODE)
def test_a_job_that_runs_a_model_is_remade_only_for_code_that_decides_what_it_leaves(
    before, monkeypatch, path, old, new, remade
):
    read_source = job_key.read_source
    assert old in read_source(path)

    def read_changed(file):
        text = read_source(file)
        return text.replace(old, new) if file == path else text

    monkeypatch.setattr(job_key, "read_source", read_changed)
    numbers = set(changed_by(before, contents()).split())
    heavy = {row.number for row in HEAVY}
    assert numbers
    assert numbers & heavy == set(remade.split())


def names_in(*nodes: ast.AST, stored=False) -> set[str]:
    names = set()
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and (isinstance(part.ctx, ast.Store) or not stored):
                names.add(part.id)
    return names


def imported_for_showing(statement: ast.stmt, deciding: set[str]) -> set[str]:
    """What a statement imports from the rooms that show, but what decides."""
    if not isinstance(statement, ast.ImportFrom):
        return set()
    module = statement.module
    if not f"{module}/".replace(".", "/").startswith(SHOWING):
        return set()
    names = set()
    for alias in statement.names:
        if f"{module}.{alias.name}" not in deciding:
            names.add(alias.asname or alias.name)
    return names


def misused(cells: list[str], decided_by: tuple[str, ...] = ()) -> list[str]:
    """Statements that make rows or write frames with what was imported from the rooms that show, or
    computed by that, and that is not among what decides."""
    deciding = {path.partition(":")[0].removesuffix(".py").replace("/", ".") for path in decided_by}
    touched = {"Out", "_", "__", "___"}  # what a cell showed
    lines = []
    for statement in ast.parse("\n".join(cells)).body:
        touched |= imported_for_showing(statement, deciding)
        if not isinstance(statement, ast.ImportFrom) and names_in(statement) & touched:
            touched |= names_in(statement, stored=True)
            touched |= names_in(*getattr(statement, "targets", ()))
            line = ast.unparse(statement)
            if re.search(r"\b(map|RowCache|write_frame|(verify|pass|ask)_pair)\(", line):
                lines.append(line)
    return lines


@pytest.mark.parametrize("row", HEAVY, ids=lambda row: row.number)
def test_nothing_that_shows_decides_what_a_heavy_notebook_writes_but_what_its_row_names(row):
    """So its key may leave out the rooms that show, which no other room imports."""
    cells = code_cells(row.path)
    assert misused(cells, row.decided_by) == []
    assert bool(misused(cells)) == bool(row.decided_by), "what need not be named"


def test_no_module_reads_docstrings_or_source():
    """They do not count, so nothing may depend on them."""
    for path in (ROOT / "lib").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"__doc__|\bget(doc|source|comments)", text), path
