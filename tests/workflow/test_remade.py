"""What is made again when something changes, of the project's own notebooks: no model runs, keys are compared."""

import ast

import pytest

from lib import params
from workflow import fresh
from workflow.fingerprint import code_cells, declared_parameters
from workflow.pipeline import NOTEBOOKS, Run

VALUES = params.load_profile("demo").model_dump() | {"models": ["tiny-llama"], "datasets": ["demo-easy"]}
HEAVY = [row.name for row in NOTEBOOKS if row.heavy]


def contents(**changed):
    """What the key of each job holds, by its notebook's number."""
    return {job.notebook.number: fresh.parts(job) for job in Run("mine", VALUES | changed).jobs}


def changed_by(before, after):
    return " ".join(sorted(number for number in before if before[number] != after[number]))


@pytest.fixture(scope="module")
def before():
    return contents()


def test_a_job_holds_only_the_parameters_that_its_notebook_uses():
    """By name, or as fields of a part of the profile that the notebook reads from its globals."""
    for row in NOTEBOOKS:
        tree = ast.parse("\n".join(code_cells(row.path)))
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "of" and hasattr(node.value, "attr"):
                used |= set(getattr(getattr(params, node.value.attr, None), "model_fields", {}))
        assert set(declared_parameters(row.path)) <= used, row.name


REMADE = {  # notebooks whose own keys hold a parameter; those that read what they write follow
    "": "max_batch_tokens on_code_change cpu max_dropout_tokens rows_per_shard",
    "01": "n_temperature_nodes save_texts top_logits",
    "01 02 03 04 04b 05 06 07 08 09 10": "datasets models",
    "01 02 03 04 05 06 07": "example",
    "01 03 04": "limit",
    "01 03 04 04b 05 06 08 09 10": "seed",
    "01 04b": "demonstration engine max_new_tokens",
    "02 04 04b 05 06 07 08 09 10": "grader",
    "02 04 05 06 07 08 09 10": "answer_format bins closed missing",
    "02 05 06 07 08 09 10": "include_eos include_thinking logprobs_from",
    "02 05 07 08 10": "title",
    "02 08": "main_figure_dataset main_figure_model",
    "02 08 09": "n_bins_ablation bin_models",
    "03": "standard_prompt ptrue_includes_thinking",
    "04": "dropout_prefix dropout_passes dropout_rates dropout_limit dropout_top_k dropout_top_p n_tuning_examples",
    "04 05 08 09 10": "dropout_scope phi",
    "04b": "ablation_limit",
    "05 06 07 08 09 10": "isotonic_decimals one_class temperature_objective",
    "05 06 08 09 10": "figure_model",
    "05 08": "figure_dataset",
    "05 08 10": "resamples",
    "05 08 09 10": "options fit_on_tuning_rows",
    "06": "incorrect_fraction",
    "06 09": "calibration_sizes draws",
    "07 08 09": "transfer_datasets transfer_models",
    "10": "precision_confidence target_precisions",
}


def another(name, value):
    """Another value of a parameter."""
    for kind, other in (("model", "tiny-qwen"), ("dataset", "demo-easy")):
        if fresh.kind_of(name) == kind:
            other = "demo-hard" if name == "datasets" else other
            return [other] if isinstance(value, list) else other
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return value[:-1] or [*value, *value]
    return f"{value}x" if isinstance(value, str) else 3


@pytest.mark.parametrize("name", params.Profile.model_fields)
def test_what_a_parameter_remakes(before, name):
    (remade,) = [numbers for numbers, names in REMADE.items() if name in names.split()]
    assert changed_by(before, contents(**{name: another(name, VALUES[name])})) == remade


def edited(monkeypatch, path, old, new):
    """What each key holds when a file of the code holds other text."""
    text = fresh.text

    def changed(read):
        return text(read).replace(old, new) if read == path else text(read)

    assert old in text(path)
    monkeypatch.setattr(fresh, "text", changed)
    return contents()


LIGHT = {"02", "05", "06", "07", "08", "09", "10"}


@pytest.mark.parametrize("path, old, new", [
        ("lib/score/estimators.py", "_DECLARED = (", '_DECLARED = (\n    Estimator("mine", "", "", "", "", "", len),'),
        ("lib/calibrate/calibrators.py", "METHODS", "METHODS_AND_MINE"),
        ("lib/paper/claims.py", "FINDINGS", "FINDINGS_AND_MINE"),
        ("lib/paper/footnotes.py", "def notes(", "def mine():\n    pass\n\n\ndef notes("),
        ("lib/score/bootstrap.py", "def ", "def more_"),
])  # fmt: skip
def test_an_estimator_a_calibrator_a_claim_or_a_table_remakes_no_job_that_runs_a_model(
    before, monkeypatch, path, old, new
):
    remade = set(changed_by(before, edited(monkeypatch, path, old, new)).split())
    assert remade and remade <= LIGHT


@pytest.mark.parametrize(
    "path, old, new, remade",
    [
        ("lib/score/estimators.py", "np.clip(1 - np.asarray(bald", "np.clip(2 - np.asarray(bald", "04"),
        ("lib/score/metrics.py", "def ece(", "def ece(*, more=0, ", "04"),
        ("lib/score/ablation.py", "def choose_ablation_rows(", "def choose_ablation_rows(more, ", "04b"),
        ("lib/generate/models.py", "def load_language_model(", "def load_language_model(more, ", "01 03 04 04b"),
        ("lib/row_cache.py", "def map(", "def map(more, ", "01 03 04 04b"),
    ],
)
def test_code_that_decides_what_a_model_leaves_remakes_it(before, monkeypatch, path, old, new, remade):
    assert set(remade.split()) == set(changed_by(before, edited(monkeypatch, path, old, new)).split()) - LIGHT


def test_no_code_of_the_models_reaches_what_scores():
    """But for what its row of the table names."""
    for name in HEAVY:
        (job,) = [job for job in Run("mine", VALUES).jobs if job.notebook.name == name]
        reached = {part.removeprefix("code ") for part in fresh.code(job)}
        scoring = {path for path in reached if path.startswith(fresh.SHOWING)}
        assert scoring == set(job.notebook.decided_by), name
