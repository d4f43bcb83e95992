"""Links of executed notebooks, and of their pages, lead somewhere."""

from pathlib import Path

import nbformat
import pytest

from docs.tables import site
from lib.paths import ROOT
from workflow.engine.notebook_links import LINK, lead_links_to_project

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_link_of_an_executed_notebook_leads_to_a_file(path):
    nb = nbformat.read(path, as_version=4)
    executed = ROOT / "artifacts" / "demo" / "notebooks" / path.name
    assert lead_links_to_project(nb, executed)
    targets = []
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            targets += LINK.findall(cell.source)
    assert targets
    for target in targets:
        assert (executed.parent / target).resolve().exists(), target


def test_addresses_and_parts_of_a_page_stay():
    text = (
        "[a](https://x.org/b.html) [c](#d) [e](../docs/results.md#finding-1) [f](07_transfer.ipynb)"
    )
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    lead_links_to_project(nb, ROOT / "artifacts" / "lab" / "notebooks" / "x.ipynb")
    assert nb.cells[0].source == (
        "[a](https://x.org/b.html) [c](#d) [e](../../../docs/results.md#finding-1) "
        "[f](../../../notebooks/07_transfer.ipynb)"
    )


@pytest.mark.parametrize(
    "texts, has_links",
    [
        (["no link", "nor here"], False),
        (["[a](https://x.org)", "[b](#b)"], False),
        (["[a](02_single_pass.ipynb)", "no link"], True),
        (["[a](02_single_pass.ipynb)"], True),
    ],
)
def test_a_notebook_is_changed_only_if_it_has_links_to_files(texts, has_links):
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text) for text in texts])
    executed = ROOT / "artifacts" / "lab" / "notebooks" / "x.ipynb"
    assert lead_links_to_project(nb, executed) == has_links


def test_links_of_a_page_lead_to_other_pages_or_to_the_repository(tmp_path, monkeypatch):
    page = (
        '<a href="../../../notebooks/05_calibration.ipynb">05</a> '
        '<a href="../../../notebooks/01_generate.ipynb">01</a> '
        '<a href="../../../lib/files.py">code</a>'
    )
    monkeypatch.setattr(site, "ROOT", tmp_path)
    readme = Path(tmp_path / "README.md")
    within = '<a href="05_calibration.html">05</a> <a href="../index.html">01</a> '
    readme.write_text("git clone URL-OF-THIS-REPOSITORY")
    assert site.lead_links_to_pages(page, ["05_calibration"]) == f"{within}code"
    readme.write_text("git clone https://github.com/someone/math x")
    code = '<a href="https://github.com/someone/math/blob/main/lib/files.py">code</a>'
    assert site.lead_links_to_pages(page, ["05_calibration"]) == within + code
