"""The report of a user's model: one self-contained page.

It says how often the model is right, which score to use, how to calibrate it and when to answer;
then comes the part to choose from (lib.paper.explorer), then the tables, and last the paper's
claims.

The page loads nothing, contains no date, and its template escapes all text of users.
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lib import store
from lib.analysis.model_answers import ModelAnswer, answer_for_pairs
from lib.analysis.signals import load_signals
from lib.errors import show_hidden
from lib.files import write_text
from lib.paper import model_sentences
from lib.paper.booktabs import CAPTIONS
from lib.paper.explorer import SCRIPT, explorer_markup, policy_hash
from lib.params import EvaluationChoices, SelectivePrediction, labels_by_name
from lib.paths import ROOT
from workflow.engine.jobs_of_run import Run
from workflow.output.page_template import load_template
from workflow.output.paper_files import FINDINGS, SECTIONS
from workflow.output.report import read_exported

UNFOLDED = ("tab_result_estimation", "tab_result_calibration")  # of the tables and figures
Outputs = Mapping[str, dict]


def write_model_report(run: Run, path: Path) -> None:
    """Write the report of a run whose notebooks are done."""
    _, outputs = read_exported(ROOT / run.folder / "exported")
    write_text(path, model_report_page(run, list_answers(run), outputs))


def list_answers(run: Run) -> list[ModelAnswer]:
    """Return what the run says of each of its pairs."""
    models, datasets = run.values["models"], run.values["datasets"]
    signals = load_signals(run.name, models, datasets, EvaluationChoices.of(run.values))
    thresholds = store.read_pairs(run.name, "selective", "thresholds", models, datasets)
    return answer_for_pairs(signals, thresholds, SelectivePrediction.of(run.values))


def model_report_page(run: Run, answers: list[ModelAnswer], outputs: Outputs) -> str:
    """Return the page as HTML."""
    models = labels_by_name("model", run.values["models"])
    datasets = labels_by_name("dataset", run.values["datasets"])
    parts = []
    for answer in answers:
        model, dataset = answer.pair
        parts.append({
            "title": f"{models[model]} on {datasets[dataset]}",
            "shortage": answer.shortage,
            "remedy": suggest_remedy(run, answer),
            "sentences": model_sentences.list_sentences(answer),
            "choices": model_sentences.explain_choices(answer),
            "picture": encode_picture(answer),
            "code": model_sentences.list_code(answer, f"{run.folder}/calibrators"),
        })  # fmt: skip
    explored = records_of(outputs, "rep_explorer")
    page = load_template("model_report.html.jinja").render(
        title=", ".join(models.values()),
        command=run.command,
        run=run.name,
        parts=parts,
        exhibits=list_exhibits(outputs),
        notes=records_of(outputs, "rep_notes"),
        claims=records_of(outputs, FINDINGS.target),
        explorer=explorer_markup(explored) if explored else "",
        script=Markup(SCRIPT),  # noqa: S704  ours
        policy_hash=Markup(policy_hash(SCRIPT)),  # noqa: S704
    )
    return show_hidden(page)


def suggest_remedy(run: Run, answer: ModelAnswer) -> str:
    """Say what gives the rows that lack; empty if none do."""
    if not answer.shortage:
        return ""
    profile = run.profile or run.name
    models = " ".join(run.values["models"])
    command = f"./run_all.sh {profile} --models {models} --datasets mine.csv"
    more = f"{command} asks the questions of a file (columns question, answer)"
    limit = run.values["limit"]
    if limit and answer.evaluated >= limit:
        larger = (
            f"A larger `limit` than {limit} in params/{profile}.yaml asks more of these questions"
        )
        return f"{larger}, if there are; {more}."
    return f"All questions were asked. {command} asks those of a longer file."


def encode_picture(answer: ModelAnswer) -> str:
    """Return the reliability diagrams as base64; empty if there are none."""
    if not answer.diagrams:
        return ""
    return base64.b64encode(model_sentences.draw_answer(answer).save("png")).decode()


def list_exhibits(outputs: Outputs) -> list[dict[str, Any]]:
    """Return the tables and figures of 08, in the order of their captions."""
    exhibits = []
    for name, (short, long) in CAPTIONS.items():
        if name not in outputs:
            continue
        forms = outputs[name]
        table = "".join(forms.get("text/html", ""))  # escaped in lib.paper
        exhibits.append({
            "name": name,
            "is_open": name in UNFOLDED,
            "short": short,
            "long": long,
            "picture": "".join(forms.get("image/png", "")).replace("\n", ""),
            "table": Markup(table),  # noqa: S704
        })  # fmt: skip
    return exhibits


def records_of(outputs: Outputs, target: str) -> Any:
    """Return the data of an output; none if it was not made."""
    for section in SECTIONS:
        if section.target == target:
            return outputs.get(target, {}).get(section.form, [])
    return []
