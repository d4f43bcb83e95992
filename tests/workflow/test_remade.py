"""What is made again when something changes, of the project's own notebooks: no model runs, keys are compared."""

import re

import pytest

from lib import params
from lib.paths import ROOT
from workflow import keys
from workflow.fingerprint import normalize_source
from workflow.pipeline import Run

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


@pytest.fixture
def edited(before, monkeypatch):
    """The notebooks whose keys change with an edit of a file."""

    def edit(path, old, new, count=-1):
        text = keys.read_source
        assert old in text(path)
        changed = lambda read: text(read).replace(old, new, count) if read == path else text(read)  # noqa: E731
        monkeypatch.setattr(keys, "read_source", changed)
        return changed_by(before, contents())

    return edit


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


@pytest.mark.parametrize("name", params.Profile.model_fields)
def test_what_a_parameter_remakes(before, name):
    (remade,) = [numbers for numbers, names in REMADE.items() if name in names.split()]
    other = {"model": "tiny-qwen", "dataset": "svamp"}.get(params.kind_of(name), "another")
    value = [other] if isinstance(VALUES[name], list) else other
    assert changed_by(before, contents(**{name: value})) == remade


LIGHT = {"02", "05", "06", "07", "08", "09"}  # notebooks that run no model


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
def test_a_job_that_runs_a_model_is_remade_only_for_code_that_decides_what_it_leaves(edited, path, old, new, remade):
    numbers = set(edited(path, old, new).split())
    assert numbers and numbers - LIGHT == set(remade.split())


@pytest.mark.parametrize("path, old", [
    ("lib/paper/tables.py", "Isotonic Regression"), ("lib/paper/report_contents.py", "cut by length"),
])  # fmt: skip
def test_an_edit_of_a_table_remakes_the_notebooks_that_set_tables_alone(edited, path, old):
    assert edited(path, old, f"{old} x") == "08 09"


@pytest.mark.parametrize("old, new, remade", [
    ('"""', '"""More than before. ', False),  # of the module
    ('    """', '    """More than before. ', False),  # of a function
    ("\n\n\ndef ", "\n\n\n# a comment\ndef ", False),
    ("return ", "return +", True),
])  # fmt: skip
def test_a_mended_docstring_remakes_no_job_and_a_changed_statement_does(edited, old, new, remade):
    assert bool(edited("lib/score/metrics.py", old, new, 1)) == remade


def test_no_module_reads_docstrings_or_source():
    """They do not count, so nothing may depend on them."""
    for path in (ROOT / "lib").rglob("*.py"):
        assert not re.search(r"__doc__|\bget(doc|source|comments)", path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("old, new", [("'shown'", "'other'"), ("1", "2")])
def test_a_string_in_a_cell_is_no_docstring(old, new):
    source = "'shown'\n1"
    assert normalize_source(source, cell=True) != normalize_source(source.replace(old, new), cell=True)
