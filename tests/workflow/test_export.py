"""Export: exactly one file for each declared target, whatever else a notebook holds."""

import base64
import subprocess
import sys

import nbformat
import pytest
from small_project import ROOT

from workflow.export import TARGETS, ExportError, export, exported, preview

DATA = {
    "text/latex": "\\begin{tabular}{l}x\\end{tabular}",
    "application/pdf": base64.b64encode(b"%PDF").decode(),
    "image/png": base64.b64encode(b"\x89PNG").decode(),
}


def notebook(*targets, data=DATA):
    """A notebook with one output per target; None stands for an output without one."""
    nb = nbformat.v4.new_notebook()
    for target in targets:
        metadata = {} if target is None else {"paper": target}
        output = nbformat.v4.new_output("display_data", data=data, metadata=metadata)
        stream = nbformat.v4.new_output("stream", text="noise\n")
        nb.cells.append(nbformat.v4.new_code_cell("", outputs=[stream, output]))
    return nb


def test_one_file_for_each(tmp_path):
    path = tmp_path / "08_tables.ipynb"
    nbformat.write(notebook(None, *TARGETS), path)
    names = export(path, tmp_path / "figures")
    wanted = {f"{name}.tex" for name in TARGETS if name[:3] == "tab"} | {"preview.tex"}
    wanted |= {f"{name}{suffix}" for name in TARGETS if name[:3] == "fig" for suffix in (".pdf", ".png")}
    assert set(names) == wanted == {path.name for path in (tmp_path / "figures").iterdir()}
    assert (tmp_path / "figures/tab_estimators.tex").read_text() == DATA["text/latex"]
    assert (tmp_path / "figures/fig_main_analysis.png").read_bytes() == b"\x89PNG"


def test_by_the_command_line_of_nbconvert(tmp_path):
    path = tmp_path / "08_tables.ipynb"
    nbformat.write(notebook(*TARGETS), path)
    command = [sys.executable, "-m", "nbconvert", "--to", "workflow.export.PaperExporter", str(path)]
    done = subprocess.run([*command, "--output-dir", str(tmp_path / "out")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {path.stem for path in (tmp_path / "out").iterdir()} == {*TARGETS, "preview"}


@pytest.mark.parametrize(
    "targets, line",
    [
        (TARGETS[1:], f"no output has the target {TARGETS[0]}"),
        ((*TARGETS, TARGETS[0]), f"target '{TARGETS[0]}' is there twice"),
        ((*TARGETS, "tab_result_estimatoin"), "did you mean 'tab_result_estimation'"),
        ((*TARGETS, "../tab_x"), "not of the form"),
        ((*TARGETS, "tab_x/../../y"), "not of the form"),
        ((*TARGETS, "tab_estimators\n"), "not of the form"),
        ((*TARGETS, 7), "not of the form"),
    ],
)
def test_wrong_targets(targets, line):
    with pytest.raises(ExportError, match="^[^\n]*$") as caught:
        exported(notebook(*targets))
    assert line in str(caught.value)


def test_a_table_needs_latex_and_a_figure_both_forms():
    with pytest.raises(ExportError, match="'tab_estimators' has no text/latex"):
        exported(notebook("tab_estimators", data={"text/html": "<table>"}))
    with pytest.raises(ExportError, match="'fig_main_analysis' has no application/pdf"):
        exported(notebook("fig_main_analysis", data={"image/png": DATA["image/png"]}))


def test_nothing_is_written_when_something_is_wrong(tmp_path):
    path = tmp_path / "08_tables.ipynb"
    nbformat.write(notebook(*TARGETS[:-1]), path)
    with pytest.raises(ExportError):
        export(path, tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


def test_preview_inputs_each_table_and_figure():
    text = preview(exported(notebook(*TARGETS)))
    assert all(text.count(f"{{{name}" if name[:3] == "tab" else f"{{{name}.pdf}}") for name in TARGETS)
