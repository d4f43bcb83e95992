"""One response followed through the notebooks: which one it is, and its numbers, by hand and on the shipped signals."""

import ast
import re

import nbformat
import numpy as np
import pandas as pd
import pytest
from playing import SHIPPED_ONLY
from synthetic import passed

from lib import store
from lib.analysis import calibration_statistics
from lib.analysis.run_signals import SIGNAL_KINDS
from lib.calibrate import fitting, sample_efficiency, transfer
from lib.params import Calibration, Reading, Subsampling, load_profile
from lib.paths import ROOT, UserError
from lib.score import metrics, running_example
from lib.score.confidence import confidence_frame, rows_at_selected_rate
from lib.score.interpretation import interpret_responses


def responses():
    sure = {"a": (0.9, True), "b": (0.5, False), "c": (0.8, False), "d": (0.99, False)}
    rows = [
        ("m", "d", "calibration" if name == "d" else "evaluation", name, right, np.log([p]))
        for name, (p, right) in sure.items()
    ]
    return pd.DataFrame(rows, columns=[*store.KEYS, "correct", "answer"])


def test_the_named_row_or_else_the_most_confident_wrong_one():
    assert running_example.choose_example(responses(), "", "m", "d").example_id == "c"
    assert running_example.choose_example(responses(), "d", "m", "d").example_id == "c", "no calibration row"
    assert running_example.choose_example(responses(), "b", "m", "other").example_id == "b", (
        "in whatever dataset it stands"
    )
    assert running_example.choose_example(responses(), "", "m", "other").example_id == "c", (
        "of all, where it has none of the dataset"
    )
    assert running_example.choose_example(responses().assign(correct=True), "", "m", "d").example_id == "a"


def test_of_responses_without_an_answer_the_first():
    """As all are read where `missing` is zero; where it is drop, none of them is there."""
    silent = responses().assign(answer=None, correct=False)
    assert running_example.choose_example(silent, "", "m", "d").example_id == "a"
    with pytest.raises(UserError, match="^model 'm': no evaluation row has an answer, .*; choose last_number or zero$"):
        running_example.choose_example(silent[silent.split == "calibration"], "", "m", "d")


def test_options_by_hand():
    """Masses .2 and .6 of a distribution: p = .25; of ` A` there is no ` B`, so it does not count."""
    logits = np.log(np.array([0.2, 0.6, 0.1]))
    verified = pd.Series(
        {
            **dict.fromkeys(store.KEYS, "x"),
            "spellings": ["A", "B", " A"],
            "standard_tokens": 9,
            "in_situ_tokens": 3,
            **{f"{way}_logits": logits + 5 for way in ("standard", "in_situ")},
            **{f"{way}_logz": 5.0 for way in ("standard", "in_situ")},
        }
    )
    table = running_example.option_probabilities(verified)
    np.testing.assert_allclose(table.loc["standard", ["A", "B", "P(True)"]].astype(float), [0.2, 0.6, 0.25])
    assert list(table.tokens) == [9, 3]


def test_disagreement_by_hand():
    table = running_example.bald_by_token(passed(), Reading())
    assert table.predictive.tolist() == [0.5, 0.7] and table.conditional.tolist() == [0.3, 0.1]
    assert table.BALD.tolist() == pytest.approx([0.2, 0.6]) and table.phi.tolist() == pytest.approx([0.8, 0.4])
    said = running_example.describe_c_bald(table)
    assert "clip(1 - 0.200, 0, 1) = 0.800" in said and said.endswith("c_BALD = (0.800 + 0.400) / 2 = 0.600")


def test_ece_by_hand():
    c, y = [0.9, 0.95, 0.32, 0.33], [1, 0, 1, 1]
    table = calibration_statistics.ece_terms(c, y)
    assert list(table["count"]) == [2, 1, 1] and table["product"].sum() == pytest.approx(metrics.ece(c, y))
    assert table.gap.max() == pytest.approx(metrics.mce(c, y))


@SHIPPED_ONLY
def test_the_walk_of_the_followed_row_is_what_the_signals_say():
    """docs/code-map.md from 01 to 07, number by number; what two notebooks show of the row is the same."""
    page = (ROOT / "docs" / "code-map.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([^|]*) \| ([^|]*) \| [^|]* \|$", page, flags=re.M))
    generations, verification, dropout = (
        store.load_frames("shipped", kind, ["tiny-llama"], ["demo-medium", "demo-hard"])[0] for kind in SIGNAL_KINDS
    )
    graded, passes = interpret_responses(generations), rows_at_selected_rate(dropout)
    one = running_example.choose_example(graded, "medium-0355", "tiny-llama", "demo-medium")
    scores = confidence_frame(graded, verification, passes)
    raw = running_example.rows_of_example(scores, one).set_index("estimator").confidence
    asked = running_example.option_probabilities(running_example.rows_of_example(verification, one).iloc[0])
    told = running_example.bald_by_token(running_example.rows_of_example(passes, one), Reading())
    assert [*asked["P(True)"], told.phi.mean()] == pytest.approx([raw.p_true, raw.p_true_insitu, raw.c_bald])
    sets = fitting.calibration_data(generations, graded)
    fitted = fitting.fit_answers(sets)
    calibrated, *_ = fitting.calibrate(scores, sets, fitted)
    after = running_example.rows_of_example(calibrated, one).set_index(["estimator", "method"]).confidence
    own = after["ans_avg"].drop("").to_dict()
    pair = sets[one.model, one.dataset]
    carried = transfer.scores_by_source(pair.evaluation, fitted).loc[one.example_id, "tiny-llama"]
    assert carried["demo-medium"].to_dict() == pytest.approx(own)
    drawn = sample_efficiency.scores_by_draw(
        pair, one.dataset, Subsampling(calibration_sizes=[20]), ["uniform"], Calibration()
    ).loc[one.example_id]
    few = drawn.groupby(level=["n", "method"]).mean()
    assert few[300].drop("").to_dict() == pytest.approx(own, abs=1e-3), "between temperatures of a grid"
    of_response = np.exp(running_example.rows_of_example(graded, one).iloc[0].response)
    found = {
        "least probable token, the wrong digit": of_response[31], "least probable word": np.sort(of_response)[1],
        "Seq Avg": raw.seq_avg, "Seq Joint": raw.seq_joint,
        "least probable answer token": np.exp(one.answer).min(), "Ans Avg": raw.ans_avg,
        "P(True), standard": raw.p_true, "P(True), in situ": raw.p_true_insitu,
        "BALD": told.BALD, "phi": told.phi, "c_BALD": raw.c_bald,
        "Ans Avg, isotonic": own["isotonic"], "Ans Avg, temperature": own["platt"],
        "P(True), isotonic": after["p_true", "isotonic"], "P(True), Platt": after["p_true", "platt"],
        "isotonic, 20 rows, mean over draws": few[20, "isotonic"],
        "isotonic fitted on Demo-Hard": carried["demo-hard", "isotonic"],
    }  # fmt: skip
    shown = {
        name: ", ".join(f"{x:.5f}" if 0.999 < x < 1 else f"{x:.3f}" for x in np.atleast_1d(value))
        for name, value in found.items()
    }
    assert {name: rows.get(name) for name in shown} == shown


@pytest.mark.parametrize("profile", ["demo", "small", "paper"])
def test_where_no_row_is_named_all_follow_the_same(profile):
    """Notebooks over all pairs look for it in the same model and dataset."""
    space = load_profile(profile).model_dump()
    space["shown_models"] = space["transfer_models"] or space["models"]
    asked = {}
    for name in ("02", "05", "06", "07"):
        (path,) = (ROOT / "notebooks").glob(f"{name}_*.ipynb")
        code = "\n".join(cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code")
        (call,) = [
            node
            for node in ast.walk(ast.parse(code))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "running_example.choose_example"
        ]
        asked[name] = tuple(eval(ast.unparse(argument), {**space}) for argument in call.args[1:])
    assert len(set(asked.values())) == 1, asked


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_to_files(path):
    opening = nbformat.read(path, 4).cells[0].source
    links = re.findall(r"\]\(([^)]+)\)", opening)
    assert links and all((path.parent / link).resolve().is_file() for link in links)
