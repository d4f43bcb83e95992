"""What several test files share: the demo models, the published material that may lie beside the
project, and which tests are left to `--all`."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("DATA_FOLDER", None)  # tests name their own

import clone
import pytest
from hypothesis import settings

from lib import params
from lib.paths import ROOT
from workflow.engine.notebook import skip_unused_import

skip_unused_import()  # as a run does

LONGEST_FIRST = (
    "test_goldens", "test_slurm_endings", "test_killed_at_every_step", "test_transcript",
    "test_same_bytes", "test_end_to_end", "test_paper_walk", "test_logged", "test_slurm",
    "test_keys", "test_runs", "test_own_runs", "test_hub", "test_fuzz", "test_fresh",
    "test_system", "test_findings", "test_edits", "test_verify",
)  # fmt: skip


@pytest.fixture(scope="session")
def shared() -> Path:
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(
            "the published datasets, tokenizers and paper (../shared) are not on this machine"
        )
    return folder


@pytest.fixture(
    scope="session", params=["tiny-llama", pytest.param("tiny-qwen", marks=pytest.mark.slow)]
)
def lm(request):
    """Each demo model in turn."""
    import torch  # slow to import: not in the process that only hands out the tests

    from lib.models import loading

    torch.set_num_threads(1)
    return loading.load_language_model(request.param, params.load_model_config(request.param))


@pytest.fixture(scope="session")
def llama():
    import architectures  # slow to import

    return architectures.load("tiny-llama")


@pytest.fixture(scope="session")
def shipped():
    """The shipped signals of the demo, read by its profile."""
    from lib.analysis.signals import load_signals

    demo = params.load_profile("demo")
    return load_signals(
        "shipped", demo.models, demo.datasets, params.EvaluationChoices.of(demo.model_dump())
    )


@pytest.fixture(scope="session")
def demo(shipped):
    """The results of the shipped signals, with the demo's transfer."""
    from lib.analysis import run_results

    profile = params.load_profile("demo")
    return run_results.results_of_run(
        "shipped",
        shipped,
        profile.models,
        profile.datasets,
        transfer_models=profile.transfer_models,
        transfer_datasets=profile.transfer_datasets,
    )


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """A SLURM cluster of this machine's own; the tests that ask for it are skipped where it can't
    be had."""
    import slurm_cluster

    with slurm_cluster.cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def alone(tmp_path_factory) -> tuple[Path, str]:
    """A small demo that nobody stops: its folder, and what it said."""
    return clone.make_once(tmp_path_factory.getbasetemp(), clone.left_alone)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The small project after a whole run of ./run_all.sh, and what that said as its `text`."""
    from small_project import Project, run_whole

    folder, text = clone.make_once(tmp_path_factory.getbasetemp(), run_whole)
    project = Project(folder / "a project")
    project.text = text
    return project


@pytest.fixture(scope="session")
def published(tmp_path_factory) -> Path:
    """A folder without the demo, in which the paper's own numbers were set."""
    folder, output = clone.make_once(tmp_path_factory.getbasetemp(), clone.papers_numbers)
    assert clone.counts(output) == (2, 0)
    return folder


@pytest.fixture(scope="session")
def replayed(tmp_path_factory) -> Path:
    """A folder unpacked from the archive, in which the whole demo is replayed."""
    return clone.make_once(tmp_path_factory.getbasetemp(), clone.archive_replayed)[0]


# ---- slow tests


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run the slow tests, too")
    parser.addoption("--anew", action="store_true", help="draw other random examples than always")


def pytest_configure(config):
    """How long an example takes is not what is tested; and the same code passes, or fails, whoever
    runs the tests."""
    settings.register_profile(
        "properties", deadline=None, derandomize=not config.getoption("--anew")
    )
    examples = 2_000 if config.getoption("--all") else 60  # of a test that reads anything at all
    settings.register_profile("fuzz", settings.get_profile("properties"), max_examples=examples)
    settings.load_profile("properties")


def pytest_collection_modifyitems(config, items):
    """The longest files come first, so that no worker ends long before the other; slow tests wait
    for `--all`."""
    order = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
    slow = []
    if not config.getoption("--all"):
        slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]


def pytest_terminal_summary(terminalreporter, config):
    if not config.getoption("--all"):
        terminalreporter.write_line(
            "slow tests were left out: ./run_all.sh test -- --all runs them, too"
        )
