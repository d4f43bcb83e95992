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
# what names the demo's models and datasets
OF_DEMO = ("example", "main_figure", "figure", "transfer", "bin_models")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return copy_of_project(tmp_path_factory.mktemp("field") / "a project")


def test_odd_labels_and_ids_to_a_report(project):
    """Responses of a server to questions of a folder of parquet, as `load_dataset` reads it."""
    (project / "mine").mkdir()
    ids = [f"alg/{i}.json é" for i in range(1, 7)]
    rows = [{"id": name, "question": f"{name} + 1? \\input{{x}} & 5% <i>$1", "answer": f"#### {i + 1}"}
            for i, name in enumerate(ids)]  # fmt: skip
    for part, some in (("train", rows[:3]), ("test", rows[3:])):
        pd.DataFrame(some).to_parquet(project / f"mine/{part}-00000-of-00001.parquet")
    with open(project / "mine/log.jsonl", "w") as file:
        for i, name in enumerate(ids):
            tokens = (
                ("so <b>$x_1$</b> & 5%\n", -0.4 - 0.1 * i),
                ("#### ", -0.1),
                (str(i + i % 3 // 2), -0.2),
            )
            logprobs = [{"token": token, "logprob": logprob} for token, logprob in tokens]
            print(json.dumps({"example_id": name, "logprobs": logprobs}), file=file)
    dataset = {"label": "Été_1 & <b>", "source": "./mine", "calibration": 3, "evaluation": 3}
    (project / "params/datasets/d48.yaml").write_text(yaml.safe_dump(dataset))
    (project / "params/models/m48.yaml").write_text(
        yaml.safe_dump({"label": LABEL, "responses": "mine/log.jsonl"})
    )
    demo = yaml.safe_load((project / "params/demo.yaml").read_text())
    mine = {name: value for name, value in demo.items() if not name.startswith(OF_DEMO)}
    mine |= {"models": ["m48"], "datasets": ["d48"], "resamples": 100, "draws": 2}
    (project / "params/mine.yaml").write_text(yaml.safe_dump(mine))
    said = run(project, "check", "mine") + run(project, "mine")
    assert "mine: ready" in said and "Traceback" not in said
    assert IN_LATEX in (project / "figures/mine/tab_result_estimation.tex").read_text()
    assert (
        "M_1 &amp; 50% {x} ~ $y$ #2 &lt;b&gt;" in (project / "figures/mine/report.html").read_text()
    )


def test_a_file_whose_name_is_none_is_refused(project):
    (project / "params/models/my model (v2).yaml").write_text(
        "label: x\nsource: demo/models/tiny-llama\n"
    )
    edit(project / "params/pilot.yaml", models=["my model (v2)"])
    assert "my model (v2)" in refusal(project, "pilot")


@pytest.mark.parametrize("name, value, said", [
    ("title", 'a=b "c" 100% é', ""), ("bins", "0", "'bins' is 0"),
])  # fmt: skip
def test_parameters_by_papermill(project, tmp_path, name, value, said):
    """As docs/reproduce.md says: a value with signs reaches the notebook, an impossible one stops
    it."""
    (out := tmp_path / "résultats d'été").mkdir()
    given = [
        "-f",
        "params/demo.yaml",
        "-p",
        "run",
        "lab-mine",
        "-p",
        name,
        value,
        "--cwd",
        "notebooks",
    ]
    command = [
        sys.executable,
        "-m",
        "papermill",
        *given,
        "notebooks/02_single_pass.ipynb",
        str(out / "02.ipynb"),
    ]
    env = ENV | {"PYTHONPATH": str(project)}
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)
    assert (done.returncode == 0) == (said == "") and said in done.stderr.strip().splitlines()[
        -1
    ], done.stderr[-2000:]
    cells = json.loads((out / "02.ipynb").read_text())["cells"]
    (given,) = (
        "".join(cell["source"])
        for cell in cells
        if "injected-parameters" in cell["metadata"]["tags"]
    )
    assert said or f"{name} = {json.dumps(value)}".replace("u00", "x") in given
