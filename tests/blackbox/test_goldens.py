"""Everything that a run's user sees is what it was: words, numbers, verdicts, frames, notebooks."""

import goldens
import pytest

from docs.tables import results
from docs.tables.picture import PATH as README_PICTURE

pytestmark = pytest.mark.slow


def test_a_run_without_a_model(published, tmp_path):
    """Every byte of its tables and macros; its records, its report, each claim with verdict, count
    and reason. Every byte of docs/results.md, too, which shows it."""
    texts = goldens.make("replay-small", tmp_path)
    project = tmp_path / "replay-small" / "a project"
    ours = results.read(results.RUN, project)
    paper = results.read(results.PAPER, published)
    page = results.PAGE.read_text("utf-8")
    assert results.page(ours, paper) == page, "python docs/tables/results.py renews it"
    stored = {path.name for path in results.PICTURES.iterdir()}
    assert stored == {*results.pictures(ours), README_PICTURE.name}
    goldens.check("replay-small", texts)


def test_the_replay_of_what_was_unpacked_from_the_archive(replayed):
    goldens.check("replay", goldens.of_run(replayed, "replay"))


def test_a_small_demo(alone):
    """Every frame, cell by cell, with its manifest; and the tables that come of them."""
    goldens.check("demo", goldens.small_demo(alone[0]))


def test_every_notebook_as_it_stands(tmp_path):
    goldens.check("notebooks", goldens.make("notebooks", tmp_path))
