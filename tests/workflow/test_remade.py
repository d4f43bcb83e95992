"""What is made again when something changes, of the project's own notebooks: no model runs, keys are compared."""

import ast
import re

import pytest

from lib import params
from lib.paths import ROOT
from workflow import keys
from workflow.fingerprint import code_cells, import_closure, imported_names
from workflow.keys import SHOWING
from workflow.pipeline import Run
from workflow.rules import NOTEBOOKS

HEAVY = [row for row in NOTEBOOKS if row.runs_model]

VALUES = params.load_profile("demo").model_dump() | {"models": ["tiny-llama"], "datasets": ["demo-easy"]}


def contents(**changed):
    """What the key of each job holds, by its notebook's number."""
    jobs = Run("mine", VALUES | changed).jobs
    return {job.notebook.number: keys.key_parts(job) for job in jobs if not job.notebook.module}


def changed_by(before, after):
    return " ".join(sorted(number for number in before if before[number] != after[number]))


@pytest.fixture(scope="module")
def before():
    return contents()


REMADE = {  # notebooks whose own keys hold a parameter; those that read what they write follow
    "": "max_batch_tokens on_code_change cpu max_dropout_tokens rows_per_shard",
    "01": "n_temperature_nodes save_texts top_logits",
    "01 02 03 04 04b 05 06 07 08 09": "datasets models",
    "01 02 03 04 05 06 07": "example",
    "01 03 04": "limit",
    "01 03 04 04b 05 06 08 09": "seed",
    "01 04b": "demonstration engine max_new_tokens",
    "02 04 04b 05 06 07 08 09": "grader",
    "02 04 05 06 07 08 09": "bins missing",
    "02 05 06 07 08 09": "include_thinking logprobs_from",
    "02 08": "n_bins_ablation bin_models main_figure_dataset main_figure_model",
    "04": "dropout_prefix dropout_passes dropout_rates dropout_limit dropout_top_k dropout_top_p n_tuning_examples",
    "04 05 08 09": "phi",
    "04b": "ablation_limit",
    "05 06 08 09": "figure_model",
    "05 08": "figure_dataset",
    "05 08 09": "resamples options fit_on_tuning_rows",
    "06": "calibration_sizes draws incorrect_fraction",
    "07 08 09": "transfer_datasets transfer_models",
    "08": "title",
    "09": "precision_confidence target_precisions",
}


def test_what_a_parameter_remakes(before):
    for name in params.Profile.model_fields:
        (remade,) = [numbers for numbers, names in REMADE.items() if name in names.split()]
        other = {"model": "tiny-qwen", "dataset": "svamp"}.get(params.kind_of(name), "another")
        value = [other] if isinstance(VALUES[name], list) else other
        assert changed_by(before, contents(**{name: value})) == remade, name


@pytest.mark.parametrize("path, old, new, remade", [
    # another estimator, calibrator, claim or table
    ("lib/score/estimators.py", "_DECLARED = (", '_DECLARED = (\n    Estimator("mine", "", "", "", "", "", len),', ""),
    ("lib/calibrate/calibrators.py", "METHODS", "METHODS_AND_MINE", ""),
    ("lib/paper/verdicts.py", "FINDINGS", "FINDINGS_AND_MINE", ""),
    # what decides what a model leaves
    ("lib/score/estimators.py", "np.clip(1 - np.asarray(bald", "np.clip(2 - np.asarray(bald", "04"),
    ("lib/score/metrics.py", "def ece(", "def ece(*, more=0, ", "04"),
    ("lib/score/interpretation.py", "def choose_ablation_rows(", "def choose_ablation_rows(more, ", "04b"),
    ("lib/generate/models.py", "def load_language_model(", "def load_language_model(more, ", "01 03 04 04b"),
    ("lib/row_cache.py", "def map(", "def map(more, ", "01 03 04 04b"),
])  # fmt: skip
def test_a_job_that_runs_a_model_is_remade_only_for_code_that_decides_what_it_leaves(
    before, monkeypatch, path, old, new, remade
):
    text = keys.read_source
    assert old in text(path)
    changed = lambda read: text(read).replace(old, new) if read == path else text(read)  # noqa: E731
    monkeypatch.setattr(keys, "read_source", changed)
    numbers = set(changed_by(before, contents()).split())
    assert numbers and numbers & {row.number for row in HEAVY} == set(remade.split())


def names(*nodes: ast.AST, stored=False) -> set[str]:
    found = [part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)]
    return {name.id for name in found if not stored or isinstance(name.ctx, ast.Store)}


def misused(cells: list[str], decided_by: tuple[str, ...] = ()) -> list[str]:
    """Statements that make rows or write frames with what was imported from the rooms that show, or computed by that,
    and that is not among what decides."""
    deciding = {path.partition(":")[0].removesuffix(".py").replace("/", ".") for path in decided_by}
    touched, lines = {"Out", "_", "__", "___"}, []  # what a cell showed
    for statement in (statement for cell in cells for statement in ast.parse(cell).body):
        if isinstance(statement, ast.ImportFrom) and f"{statement.module}/".replace(".", "/").startswith(SHOWING):
            found = [one for one in statement.names if f"{statement.module}.{one.name}" not in deciding]
            touched |= {one.asname or one.name for one in found}
        elif names(statement) & touched:
            touched |= names(statement, stored=True) | names(*getattr(statement, "targets", ()))
            making = re.search(r"\b(map|RowCache|write_frame|write_passes)\(", ast.unparse(statement))
            lines += [ast.unparse(statement)] if making else []
    return lines


@pytest.mark.parametrize("row", HEAVY, ids=lambda row: row.number)
def test_nothing_that_shows_decides_what_a_heavy_notebook_writes_but_what_its_row_names(row):
    """So its key may leave out the rooms that show."""
    cells = code_cells(row.path)
    assert misused(cells, row.decided_by) == []
    assert bool(misused(cells)) == bool(row.decided_by), "what need not be named"
    for file in (file for file in import_closure(cells, leave_out=SHOWING) if file.endswith(".py")):
        used = imported_names(file, ast.parse((ROOT / file).read_text()))
        assert not any(f"{name.replace('.', '/')}/".startswith(SHOWING) for name in used), file


def test_no_module_reads_docstrings_or_source():
    """They do not count, so nothing may depend on them."""
    for path in (ROOT / "lib").rglob("*.py"):
        assert not re.search(r"__doc__|\bget(doc|source|comments)", path.read_text(encoding="utf-8")), path
