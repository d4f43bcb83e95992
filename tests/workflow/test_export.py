"""Export: exactly one file for each declared target, whatever else a notebook holds; and one
document of them all."""

import re
import shutil

import nbformat
import pytest

from lib.errors import UserError
from lib.paths import ROOT
from workflow.output.paper_files import SECTIONS, TARGETS, exported_files
from workflow.run import typeset

DATA = {
    "text/html": "<p>",
    "text/latex": "x",
    "application/pdf": "UERG",
    "image/png": "UE5H",
    "application/json": [],
}


@pytest.mark.parametrize(
    "targets, kinds, line",
    [
        (TARGETS[1:], DATA, f"one output must have the target '{TARGETS[0]}', and there are 0"),
        (
            (*TARGETS, TARGETS[0]),
            DATA,
            f"one output must have the target '{TARGETS[0]}', and there are 2",
        ),
        ((*TARGETS, "tab_result_estimatoin"), DATA, "did you mean 'tab_result_estimation'"),
        ((*TARGETS, "../tab_x"), DATA, "unknown target '../tab_x'"),
        (["fig_main_analysis"], ["image/png"], "'fig_main_analysis' has no application/pdf"),
    ],
)
def test_a_target_that_is_wrong_or_lacks_a_form_is_one_line(targets, kinds, line):
    nb = nbformat.v4.new_notebook(
        metadata={"papermill": {"parameters": {"run": "demo", "title": "100% <mine>"}}}
    )
    data = {kind: DATA[kind] for kind in kinds}
    for metadata in [{}, *({"paper": target} for target in targets)]:
        stream = nbformat.v4.new_output("stream", text="x")
        output = nbformat.v4.new_output("display_data", data=data, metadata=metadata)
        nb.cells.append(nbformat.v4.new_code_cell("", outputs=[stream, output]))
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        exported_files(nb)
    assert line in str(caught.value)


def test_each_section_of_the_report_is_made_by_the_notebook_that_it_names():
    notebooks = {}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for name in re.findall(r"\{\\\"paper\\\": \\\"rep_(\w+)", path.read_text()):
            assert name not in notebooks, "made once"
            notebooks[name] = path.stem
    sections = {section.name: section.notebook for section in SECTIONS}
    assert notebooks == sections | dict.fromkeys(["answer", "calibrators"], "10_judge")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_typeset(tmp_path, monkeypatch):
    """Where it cannot be set, the run says so in a line and goes on; it is tried again once the
    tables have changed."""
    document = r"\documentclass{article}\begin{document}%s\end{document}"
    (tmp_path / "results.tex").write_text(document % r"x \undefined")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        assert "pdflatex is missing" in typeset(tmp_path)
    assert "pdflatex failed" in typeset(tmp_path)
    assert "undefined" in (tmp_path / "results.log").read_text()
    assert typeset(tmp_path) == ""
    (tmp_path / "results.log").unlink()
    (tmp_path / "results.tex").write_text(document % "x")
    assert typeset(tmp_path) == ""
    assert {path.name for path in tmp_path.iterdir()} == {"results.tex", "results.pdf"}
