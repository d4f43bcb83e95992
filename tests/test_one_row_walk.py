"""docs/one-row.md against the shipped signals: one response from 01 to 07, number by number."""

import re

import numpy as np
import pytest

from lib import store
from lib.calibrate import fitting, sample_efficiency, transfer
from lib.params import Reading
from lib.project import ROOT, SHIPPED
from lib.score import one_row
from lib.score.confidence import confidence_frame, selected
from lib.score.reading import read


@pytest.mark.skipif(not SHIPPED.exists(), reason="the shipped demo signals are not in this copy")
def test_the_walk_of_the_followed_row_is_what_the_signals_say():
    page = (ROOT / "docs" / "one-row.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| ([^|]*) \| ([^|]*) \| [^|]* \|$", page, flags=re.M)
    rows = dict(lines)
    kinds = ("generations", "verification", "dropout")
    datasets = ["demo-medium", "demo-hard"]
    signals = {kind: store.gather("shipped", kind, ["tiny-llama"], datasets)[0] for kind in kinds}
    responses = read(signals["generations"])
    one = one_row.choose(responses, "medium-0355", "tiny-llama", "demo-medium")
    scores = confidence_frame(responses, signals["verification"], selected(signals["dropout"]))
    raw = one_row.of(scores, one).set_index("estimator").confidence
    asked = one_row.options(one_row.of(signals["verification"], one).iloc[0])
    told = one_row.disagreement(one_row.of(selected(signals["dropout"]), one), Reading())
    sets = fitting.splits(signals["generations"], responses)
    fitted = fitting.fit_answers(sets)
    calibrated, _ = fitting.calibrate(scores, sets, fitted)
    after = one_row.of(calibrated, one).set_index(["estimator", "method"]).confidence
    place = one_row.place(sets[one_row.pair(one)].evaluation.keys, one)
    carried = transfer.of_row(sets, fitted, one_row.pair(one), place).set_index(["source_dataset", "method"]).confidence
    few = sample_efficiency.of_row(sets[one_row.pair(one)], place, one.dataset, [20]).set_index(["n", "method"])["mean"]
    of_response = np.exp(one_row.of(responses, one).iloc[0].response)
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
    shown = {name: ", ".join(f"{x:.5f}" if x > 0.999 else f"{x:.3f}" for x in np.atleast_1d(value))
             for name, value in found.items()}  # fmt: skip
    assert {name: rows.get(name) for name in shown} == shown
