"""`python docs/tables/scores.py` renews demo/scores.csv, which notebook 10 judges by default.

A row is an evaluation question of SVAMP: whether the answer of the 1.5B is right, and four
confidences in it, from the signals in artifacts/shipped/small/.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lib.analysis.signals import load_signals  # noqa: E402
from lib.params import EvaluationChoices  # noqa: E402
from lib.store import evaluation_rows  # noqa: E402

MODEL, DATASET = "qwen2.5-coder-1.5b", "svamp"
COLUMNS = ["seq_avg", "ans_avg", "p_true", "p_true_insitu"]


def score_table() -> str:
    """Return the table as CSV."""
    signals = load_signals(
        "replay-small", [MODEL], [DATASET], EvaluationChoices(), kinds=["verification"]
    )
    rows = evaluation_rows(signals.confidence)
    table = rows.pivot(index="example_id", columns="estimator", values="confidence")[COLUMNS]
    correct = rows.groupby("example_id").correct.first().map({True: "true", False: "false"})
    table.insert(0, "correct", correct)
    return table.rename_axis("id").to_csv()


if __name__ == "__main__":
    (ROOT / "demo" / "scores.csv").write_text(score_table(), encoding="utf-8")
