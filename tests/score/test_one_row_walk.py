"""docs/code-map.md against the shipped signals: one response from 01 to 07, number by number."""

import re

import numpy as np
import pytest

from lib import store
from lib.calibrate import fitting, sample_efficiency, transfer
from lib.params import Calibration, Reading, Subsampling
from lib.paths import ROOT, SHIPPED
from lib.score import running_example
from lib.score.confidence import confidence_frame, rows_at_selected_rate
from lib.score.interpretation import interpret_responses


@pytest.mark.skipif(not SHIPPED.exists(), reason="the shipped demo signals are not in this copy")
def test_the_walk_of_the_followed_row_is_what_the_signals_say():
    page = (ROOT / "docs" / "code-map.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| ([^|]*) \| ([^|]*) \| [^|]* \|$", page, flags=re.M)
    rows = dict(lines)
    kinds = ("generations", "verification", "dropout")
    datasets = ["demo-medium", "demo-hard"]
    signals = {kind: store.load_frames("shipped", kind, ["tiny-llama"], datasets)[0] for kind in kinds}
    responses = interpret_responses(signals["generations"])
    one = running_example.choose_example(responses, "medium-0355", "tiny-llama", "demo-medium")
    scores = confidence_frame(responses, signals["verification"], rows_at_selected_rate(signals["dropout"]))
    raw = running_example.rows_of_example(scores, one).set_index("estimator").confidence
    asked = running_example.option_probabilities(running_example.rows_of_example(signals["verification"], one).iloc[0])
    told = running_example.bald_by_token(
        running_example.rows_of_example(rows_at_selected_rate(signals["dropout"]), one), Reading()
    )
    sets = fitting.calibration_data(signals["generations"], responses)
    fitted = fitting.fit_answers(sets)
    calibrated, *_ = fitting.calibrate(scores, sets, fitted)
    after = running_example.rows_of_example(calibrated, one).set_index(["estimator", "method"]).confidence
    pair = sets[one.model, one.dataset]
    carried = transfer.scores_by_source(pair.evaluation, fitted).loc[one.example_id].droplevel("source_model")
    drawn = sample_efficiency.scores_by_draw(
        pair, one.dataset, Subsampling(calibration_sizes=[20]), ["uniform"], Calibration()
    ).loc[one.example_id]
    few = drawn.groupby(level=["n", "method"]).mean()
    of_response = np.exp(running_example.rows_of_example(responses, one).iloc[0].response)
    found = {
        "least sure token, the wrong digit": of_response[31], "least sure word": np.sort(of_response)[1],
        "Seq Avg": raw.seq_avg, "Seq Joint": raw.seq_joint,
        "least sure answer token": np.exp(one.answer).min(), "Ans Avg": raw.ans_avg,
        "P(True), standard": asked.loc["standard", "P(True)"], "P(True), in situ": asked.loc["in situ", "P(True)"],
        "BALD": told.BALD, "phi": told.phi, "c_BALD": told.phi.mean(),
        "Ans Avg, isotonic": after["ans_avg", "isotonic"], "Ans Avg, temperature": after["ans_avg", "platt"],
        "P(True), isotonic": after["p_true", "isotonic"], "P(True), Platt": after["p_true", "platt"],
        "isotonic from 20 rows, a mean": few[20, "isotonic"],
        "isotonic of Demo-Hard": carried["demo-hard", "isotonic"],
    }  # fmt: skip
    shown = {name: ", ".join(f"{x:.5f}" if 0.999 < x < 1 else f"{x:.3f}" for x in np.atleast_1d(value))
             for name, value in found.items()}  # fmt: skip
    assert {name: rows.get(name) for name in shown} == shown
