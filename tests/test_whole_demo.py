"""The demo as it is shipped, every question of it: what is true of the small one, and the signals in the repository."""

import pandas as pd
import pytest
from clone import copy_of_project, run
from test_end_to_end import (  # noqa: F401  the same tests, here on this project
    test_everything_declared_is_exported,
    test_replay_gives_the_tables_of_the_run,
    test_results_are_one_document_with_its_fonts,
    test_tables_and_figures_compile_in_a_document,
    test_the_report,
    test_the_report_in_a_browser,
)

from lib import params, store
from lib.paths import SHIPPED

DEMO = params.load_profile("demo")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = copy_of_project(tmp_path_factory.mktemp("whole") / "a folder")
    run(folder)
    return folder


def test_the_shipped_signals_are_those_of_such_a_run(project):
    """Nearly every token alike: another processor may round a probability the other way now and then."""
    alike = total = 0
    for pair in store.pair_names(DEMO.models, DEMO.datasets):
        here = pd.read_parquet(project / f"artifacts/demo/generations/{pair}.parquet")
        there = pd.read_parquet(SHIPPED / f"generations/{pair}.parquet")
        assert here.question.tolist() == there.question.tolist()
        alike += sum(a == b for a, b in zip(here.text, there.text, strict=True))
        total += len(here)
    assert alike / total > 0.97
    assert sum(p.stat().st_size for p in SHIPPED.rglob("*") if p.is_file()) <= 10e6
