"""What the tables and the findings make of the demo, from its shipped signals: every cell and every verdict as
`python tests/demo/test_demo_findings.py` wrote them to demo_findings.json."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
from digests import check, digest, write

from lib import params
from lib.analysis import robustness, run_results, run_signals
from lib.paper import comparison, exhibits, footnotes, reference, verdicts
from lib.paper.booktabs import Stack

DEMO = params.load_profile("demo")
KNOWN = Path(__file__).with_name("demo_findings.json")
TABLES = [
    "estimators", "result_estimation", "insitu_ptrue", "dropout_grid_search", "bin_ablation", "result_estimation_full",
    "inference_settings", "result_calibration", "result_calibration_full", "result_isotonic",
    "calibration_transfer_full", "calibration_transfer_summary", "dropout_in_situ", "dropout_in_situ_grid",
    "costs", "selective",
]  # fmt: skip
READING = params.Reading.of(DEMO.model_dump())
CHOICES = [("phi", "top_k"), ("include_eos", True), ("temperature_objective", "ans_joint")]


def of_table(table) -> dict[str, list]:
    """Numbers as they are printed, places of its rules and bold cells, width of its notes."""
    parts = [part for part, _ in table.parts] if isinstance(table, Stack) else [table]
    cells = [cell for part in parts for row in part.body() for _, cell in sorted(row.cells.items())]
    printed = [float(number) for cell in cells for number in re.findall(r"-?\d*\.?\d+", cell.text)]
    bold = [place for place, cell in enumerate(cells) if cell.bold]
    return digest(pd.DataFrame({"printed": printed})) | {
        "bold": bold, "rules": re.findall(r"cmidrule.*?{(.*?)}", table.latex),
        "lines": [table.latex.count("\n")]}  # fmt: skip


def found() -> dict[str, dict[str, list]]:
    signals = run_signals.RunSignals.of("replay-demo", DEMO.models, DEMO.datasets, READING)
    demo = run_results.results_of_run(
        "replay-demo", signals, DEMO.models, DEMO.datasets, transfer_models=DEMO.transfer_models,
        transfer_datasets=DEMO.transfer_datasets)  # fmt: skip
    demo = replace(demo, notes=footnotes.notes_of_run("replay-demo", "demo models", signals, demo))
    judged = verdicts.judge_all(demo)
    labels = run_results.labels_of_run(DEMO.models, DEMO.datasets, transfer_models=DEMO.transfer_models,
                                       transfer_datasets=DEMO.transfer_datasets)  # fmt: skip
    analysis = partial(
        robustness.analyze, labels=labels, n_bins_ablation=tuple(DEMO.n_bins_ablation), model=DEMO.figure_model,
        drawn=params.Subsampling.of(DEMO.model_dump()), call=robustness.calling_once())  # fmt: skip
    anew = robustness.sensitivity(signals, params.Calibration(), analysis, verdicts.judge_all, CHOICES)
    beside = comparison.beside(demo, reference.published()).records
    return (
        {name.replace("costs", "costs_table"): of_table(exhibits.build(f"tab_{name}", demo)) for name in TABLES}
        | {name: {"verdict": [str(one.held), one.said, one.reason]} | digest(one.rows) for name, one in judged.items()}
        | {f"under {choice}": {"then": rows.then.tolist()} for choice, rows in anew.groupby("choice", sort=False)}
        | {"beside the paper": digest(beside)}
    )


def test_every_cell_and_every_verdict():
    check(KNOWN, found())


if __name__ == "__main__":
    write(KNOWN, found())
