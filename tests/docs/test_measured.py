"""What pages say of memory, hours and sizes, from what holds it: manifests, logs, other pages."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from docs.tables.expected import jobs
from lib import params
from lib.analysis.comparison_of_runs import recompute_frames
from lib.paper.comparison_with_paper import printed_numbers
from lib.paths import ROOT

SMALL = params.load_profile("small")
LARGER = "qwen2.5-coder-1.5b"


def read(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def cells(page: str, first: str) -> list[str]:
    """The other cells of the row of a page's table whose first cell begins with this."""
    row = rf"^\| {re.escape(first)}[^|]*\|(.*)\|$"
    (other_cells,) = re.findall(row, (ROOT / page).read_text(encoding="utf-8"), flags=re.M)
    return [cell.strip() for cell in other_cells.split("|")]


def test_hours_and_jobs_of_the_papers_run():
    fewer, more = map(float, cells("docs/hardware.md", "all "))
    hours = f"{fewer:.0f} to {more:.0f} hours on one H200 by arithmetic"
    assert f"runs the paper's five models: {hours}" in read("README.md")
    assert cells("ARTIFACT-APPENDIX.md", "7. the paper's own run")[1].startswith(hours)
    of_models = 4 * len(params.load_profile("paper").models) * 3
    sentence = f"has {jobs('paper', 'paper')} jobs, {of_models} of them on a GPU"
    page = read("docs/hardware.md")
    assert sentence in page


def test_memory_of_the_dropout_passes_that_were_made_again():
    """The shipped frames of the 1.5B are those of the second processor."""
    folder = ROOT / "artifacts" / "shipped" / "small" / "dropout"
    manifests = [json.loads(path.read_text()) for path in folder.glob(f"{LARGER}__*.json")]
    peak = max(manifest["peak_memory_mb"] for manifest in manifests) / 1000
    assert len(manifests) == 3
    assert f"These runs used at most {peak:.1f} GB." in read("docs/small-models.md")


def test_hours_of_the_larger_small_model():
    """At the pace of the table: seconds of fifty questions, on each of the three datasets."""
    page = "docs/small-models.md"
    seconds = {}
    for notebook in ("01_generate", "03_ptrue_insitu", "04_mc_dropout_grid"):
        of_pairs = cells(page, f"`{notebook}`")
        seconds[notebook[:2]] = sum(map(int, of_pairs[:3])) / 50
    other_rates = len(SMALL.dropout_rates) - 1
    passes = 2 * SMALL.dropout_limit + other_rates * SMALL.n_tuning_examples
    both_splits = 2 * SMALL.limit
    first_passes = both_splits * (seconds["01"] + seconds["03"])
    hours = (first_passes + passes * seconds["04"]) / 3600
    sentence = f"At the pace of the table 01, 03 and 04 of the 1.5B take {hours:.1f} hours."
    assert sentence in read(page)


@pytest.mark.parametrize("model", ["tiny-llama", "tiny-qwen"])
def test_the_training_of_a_demo_model_is_that_of_its_log(model):
    log = (ROOT / "demo" / "logs" / f"{model}.log").read_text(encoding="utf-8")
    *_, last = re.findall(r"(\d+) s +step (\d+)/\2 +tokens +([\d.]+)M", log)
    seconds, steps, tokens = map(float, last)
    sentence = f"{steps:.0f} steps, {tokens:.1f} million tokens, {seconds / 60:.0f} minutes"
    assert sentence in cells("demo/README.md", "training")
    assert f"demo.train {model} --steps {steps:.0f}" in read("demo/README.md")


def test_responses_and_numbers_of_the_demo_that_verify_compares(demo, shipped):
    bins = params.load_profile("demo").n_bins_ablation
    compared = replace(demo, frames={**demo.frames, **recompute_frames(shipped, bins)})
    sentence = (
        f"all {len(shipped.generations)} responses of the demo were alike, "
        f"and its {len(printed_numbers(compared))} numbers agreed"
    )
    assert sentence in read("docs/reproduce.md")


def test_memory_that_the_demo_needs():
    needed = cells("ARTIFACT-APPENDIX.md", "2. the demo: ")[-1]
    assert f"two cores, {needed} of memory" in read("README.md")
    appendix = read("ARTIFACT-APPENDIX.md")
    assert f"all but the tests need {needed}." in appendix
    command = r"by `python docs/benchmarks/memory\.py \./run_all\.sh` on 2\d{3}-\d\d-\d\d"
    (peak,) = re.findall(rf"at most ([\d.]+) GB, {command}", appendix)
    assert float(peak) < float(needed.removesuffix(" GB"))


@pytest.mark.skipif(sys.platform != "linux", reason="proportional set sizes are Linux's")
def test_the_memory_of_a_command_and_its_children_is_measured():
    """A process that holds 200 MB, started by one that holds little."""
    inner = "import time; held = bytearray(b'x') * 200_000_000; time.sleep(1)"
    start = f"subprocess.run([sys.executable, '-c', {inner!r}])"
    outer = f"import subprocess, sys; {start}; sys.exit(3)"
    command = [sys.executable, "docs/benchmarks/memory.py", sys.executable, "-c", outer]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    (peak,) = re.findall(r"^at most ([\d.]+) GB at once$", done.stdout, flags=re.M)
    assert done.returncode == 3
    assert 0.2 <= float(peak) < 0.4
