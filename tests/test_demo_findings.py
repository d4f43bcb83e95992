"""What the tables and the findings make of the demo, from its shipped signals: every cell and every verdict as
`python tests/test_demo_findings.py` wrote them to demo_findings.json."""

import re
from pathlib import Path

import pandas as pd
from digests import check, digest, write

from lib import params
from lib.paper import (
    calibration_tables,
    comparison,
    costs,
    extras,
    findings,
    results,
    run_results,
    selective,
    sensitivity,
    tables,
    transfer_tables,
)

DEMO = params.load_profile("demo")
KNOWN = Path(__file__).with_name("demo_findings.json")
TABLES = {name: module for module, names in {
    tables: ["estimators", "result_estimation", "insitu_ptrue", "dropout_grid_search", "bin_ablation",
             "result_estimation_full", "inference_settings"],
    calibration_tables: ["result_calibration", "result_calibration_full", "result_isotonic"],
    transfer_tables: ["calibration_transfer_full", "calibration_transfer_summary"],
    extras: ["dropout_in_situ", "dropout_in_situ_grid"], costs: ["costs_table"], selective: ["selective"],
}.items() for name in names}  # fmt: skip
READING = params.Reading.of(DEMO.model_dump())
CHOICES = [("phi", "top_k"), ("include_eos", True), ("temperature_objective", "ans_joint")]


def of_table(table) -> dict[str, list]:
    """Numbers behind its cells and as they are printed, places of its rules and bold cells, width of its notes."""
    numbers = pd.DataFrame([(one.value, one.low, one.high) for one in table.numbers], columns=["value", "low", "high"])
    printed = [float(number) for cell in table.cells for number in re.findall(r"-?\d*\.?\d+", cell.text)]
    bold = [place for place, cell in enumerate(table.cells) if cell.bold]
    return digest(numbers.astype(float)) | digest(pd.DataFrame({"printed": printed})) | {
        "bold": bold, "rules": re.findall(r"cmidrule.*?{(.*?)}", table.latex),
        "lines": [table.latex.count("\n")]}  # fmt: skip


def found() -> dict[str, dict[str, list]]:
    signals = run_results.RunSignals.of("replay-demo", DEMO.models, DEMO.datasets, READING)
    demo = run_results.results_of_run(
        "replay-demo", signals, "demo models", DEMO.models, DEMO.datasets, transfer_models=DEMO.transfer_models,
        transfer_datasets=DEMO.transfer_datasets)  # fmt: skip
    judged = findings.verdicts(demo)
    anew = sensitivity.sensitivity(demo, signals, chosen=CHOICES).records
    beside = comparison.beside(demo, results.published()).records
    return (
        {name: of_table(getattr(module, name).of(demo)) for name, module in TABLES.items()}
        | {name: {"verdict": [str(one.held), one.said, one.reason]} | digest(one.rows) for name, one in judged.items()}
        | {f"under {choice}": {"then": rows.then.tolist()} for choice, rows in anew.groupby("choice", sort=False)}
        | {"beside the paper": digest(beside)}
    )


def test_every_cell_and_every_verdict():
    check(KNOWN, found())


if __name__ == "__main__":
    write(KNOWN, found())
