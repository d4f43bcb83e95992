"""Whole commands on what users have: names, labels and ids with every sign, a folder of parquet,
papermill by hand."""

import json
import subprocess
import sys

import pandas as pd
import pytest
import yaml
from clone import ENV, copy_of_project, edit, refusal, run

pytestmark = pytest.mark.slow
LABEL = "M_1 & 50% {x} ~ $y$ #2 <b>"
IN_LATEX = r"M\_1 \& 50\% \{x\} \textasciitilde{} \$y\$ \#2 \textless{}b\textgreater{}"
IN_HTML = "M_1 &amp; 50% {x} ~ $y$ #2 &lt;b&gt;"
IDS = [f"alg/{i}.json é" for i in range(1, 7)]
# what names the demo's models and datasets
OF_DEMO = ("example", "main_figure", "figure", "transfer", "bin_models")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return copy_of_project(tmp_path_factory.mktemp("field") / "a project")


def test_odd_labels_and_ids_to_a_report(project):
    """Responses of a server to questions of a folder of parquet, as `load_dataset` reads it."""
    write_questions(project / "mine")
    write_log(project / "mine/log.jsonl")
    dataset = {"label": "Été_1 & <b>", "source": "./mine", "calibration": 3, "evaluation": 3}
    (project / "params/datasets/d48.yaml").write_text(yaml.safe_dump(dataset))
    model = {"label": LABEL, "responses": "mine/log.jsonl"}
    (project / "params/models/m48.yaml").write_text(yaml.safe_dump(model))
    demo = yaml.safe_load((project / "params/demo.yaml").read_text())
    profile = {name: value for name, value in demo.items() if not name.startswith(OF_DEMO)}
    profile |= {"models": ["m48"], "datasets": ["d48"], "resamples": 100, "draws": 2}
    (project / "params/mine.yaml").write_text(yaml.safe_dump(profile))
    output = run(project, "check", "mine") + run(project, "mine")
    assert "mine: ready" in output
    assert "Traceback" not in output
    figures = project / "figures/mine"
    assert IN_LATEX in (figures / "tab_result_estimation.tex").read_text()
    assert IN_HTML in (figures / "report.html").read_text()


def write_questions(folder):
    folder.mkdir()
    rows = []
    for number, name in enumerate(IDS, 1):
        question = f"{name} + 1? \\input{{x}} & 5% <i>$1"
        rows.append({"id": name, "question": question, "answer": f"#### {number}"})
    pd.DataFrame(rows[:3]).to_parquet(folder / "train-00000-of-00001.parquet")
    pd.DataFrame(rows[3:]).to_parquet(folder / "test-00000-of-00001.parquet")


def write_log(path):
    with path.open("w") as file:
        for i, name in enumerate(IDS):
            logprobs = [
                {"token": "so <b>$x_1$</b> & 5%\n", "logprob": -0.4 - 0.1 * i},
                {"token": "#### ", "logprob": -0.1},
                {"token": str(i + i % 3 // 2), "logprob": -0.2},
            ]
            print(json.dumps({"example_id": name, "logprobs": logprobs}), file=file)


def test_a_file_whose_name_is_none_is_refused(project):
    model = "label: x\nsource: demo/models/tiny-llama\n"
    (project / "params/models/my model (v2).yaml").write_text(model)
    edit(project / "params/pilot.yaml", models=["my model (v2)"])
    assert "my model (v2)" in refusal(project, "pilot")


def papermill(project, folder, name, value):
    """Execute a notebook by papermill, with a value of a parameter; the process, and its cells."""
    executed = folder / "02.ipynb"
    command = [
        sys.executable, "-m", "papermill", "-f", "params/demo.yaml", "-p", "run", "lab-mine",
        "-p", name, value, "--cwd", "notebooks", "notebooks/02_single_pass.ipynb", str(executed),
    ]  # fmt: skip
    env = ENV | {"PYTHONPATH": str(project)}
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)
    return done, json.loads(executed.read_text())["cells"]


def test_by_papermill_a_value_with_signs_reaches_the_notebook(project, tmp_path):
    """As docs/reproduce.md says."""
    folder = tmp_path / "résultats d'été"
    folder.mkdir()
    title = 'a=b "c" 100% é'
    done, cells = papermill(project, folder, "title", title)
    assert done.returncode == 0, done.stderr[-2000:]
    for cell in cells:
        if "injected-parameters" in cell["metadata"]["tags"]:
            injected = "".join(cell["source"])
    assert f"title = {json.dumps(title)}".replace("u00", "x") in injected


@pytest.mark.parametrize("name, value, message", [
    ("bins", "0", "'bins' is 0"),
])  # fmt: skip
def test_by_papermill_a_misspelled_or_impossible_value_stops_it(
    project, tmp_path, name, value, message
):
    done, _ = papermill(project, tmp_path, name, value)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert message in last, done.stderr[-2000:]
